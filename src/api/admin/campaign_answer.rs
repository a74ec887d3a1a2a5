//! A campaign in answers.

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::service::manage::campaign_view::{AdmissionView, CampaignView, OnStale};
use crate::store::documents::{PacketSource, PacketsDocument, Phase};

/// A campaign as it stands.
#[derive(Serialize, ToSchema)]
pub struct CampaignAnswer {
    campaign: String,
    #[schema(example = "soft")]
    admission: &'static str,
    #[schema(example = "open")]
    state: &'static str,
    #[schema(example = 10000)]
    quota: u64,
    /// Of a hard campaign: the quota it is on its way to.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_target: Option<u64>,
    #[schema(value_type = String, format = DateTime)]
    opens_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    closes_at: Option<Timestamp>,
    #[schema(example = 16)]
    shards: u16,
    /// Of a soft campaign: `refuse` or `admit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_stale: Option<&'static str>,
    /// Of an exact campaign: how long a claim is held before it must be confirmed; 0: it is confirmed at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_s: Option<u64>,
    /// Of an exact campaign: `filling`, `ready`, `closing`, `closed`, `removing`, `removed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "ready")]
    phase: Option<Phase>,
    /// Of a campaign of packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<PacketsAnswer>,
    paused: bool,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Rises with each change; the ETag.
    version: u64,
}

/// What the packets of a campaign hold.
#[derive(Serialize, ToSchema)]
pub struct PacketsAnswer {
    #[schema(example = 100)]
    count: u64,
    #[schema(example = 10000)]
    total_cents: i64,
    /// Of a draw: the least and the most that a packet holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_cents: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_cents: Option<i64>,
    /// Of a draw: with the sum and the bounds it gives the same packets again. Whoever has it knows what each holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<String>,
    /// Of a list: how many packets are in. The next part begins with the number after.
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded: Option<u64>,
}

impl PacketsAnswer {
    fn of(packets: PacketsDocument, loaded: u64) -> Self {
        let (bounds, seed, loaded) = match packets.source {
            PacketSource::Draw { min_cents, max_cents, seed } => (Some((min_cents, max_cents)), Some(seed), None),
            PacketSource::List { .. } => (None, None, Some(loaded)),
        };
        Self {
            count: packets.count,
            total_cents: packets.total_cents,
            min_cents: bounds.map(|(min, _)| min),
            max_cents: bounds.map(|(_, max)| max),
            seed,
            loaded,
        }
    }
}

impl From<CampaignView> for CampaignAnswer {
    fn from(view: CampaignView) -> Self {
        let mut answer = Self {
            campaign: view.campaign.as_str().to_owned(),
            admission: "soft",
            state: view.state.as_str(),
            quota: view.quota,
            quota_target: None,
            opens_at: view.opens_at,
            closes_at: view.closes_at,
            shards: view.shards.count(),
            on_stale: None,
            hold_s: None,
            phase: None,
            packets: None,
            paused: view.paused,
            created_at: view.created_at,
            version: view.version,
        };
        match view.admission {
            AdmissionView::Soft { on_stale } => {
                answer.on_stale = Some(if on_stale == OnStale::Admit { "admit" } else { "refuse" });
            }
            AdmissionView::Hard { hold_s, phase, quota_target } => {
                (answer.admission, answer.hold_s, answer.phase) = ("hard", Some(hold_s), Some(phase));
                answer.quota_target = Some(quota_target);
            }
            AdmissionView::Packets { hold_s, phase, packets, loaded } => {
                (answer.admission, answer.hold_s, answer.phase) = ("packets", Some(hold_s), Some(phase));
                answer.packets = Some(PacketsAnswer::of(packets, loaded));
            }
        }
        answer
    }
}
