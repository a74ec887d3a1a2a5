//! A campaign as it stands, for who asks.

use jiff::Timestamp;

use crate::domain::campaign::{CampaignState, Schedule};
use crate::domain::id::CampaignId;
use crate::domain::ring::Shards;
use crate::store::documents::{CampaignDocument, PacketsDocument, Phase};

/// What a soft campaign does when its last reading is older than 2 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnStale {
    /// 503: nobody is admitted on it.
    #[default]
    Refuse,
    /// Admitted, flagged, without a bound on the overshoot.
    Admit,
}

/// How a campaign admits, and what is being done to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdmissionView {
    Soft {
        on_stale: OnStale,
    },
    Hard {
        hold_s: u64,
        phase: Phase,
        /// What `quota` is on its way to.
        quota_target: u64,
    },
    Packets {
        hold_s: u64,
        phase: Phase,
        packets: PacketsDocument,
        /// Packets that are in; the next one's number is one more.
        loaded: u64,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CampaignView {
    pub campaign: CampaignId,
    pub state: CampaignState,
    pub quota: u64,
    pub opens_at: Timestamp,
    pub closes_at: Option<Timestamp>,
    pub shards: Shards,
    pub admission: AdmissionView,
    pub paused: bool,
    pub created_at: Timestamp,
    pub version: u64,
}

impl CampaignView {
    /// `default_shards`: for a record that has a number of shards which this version does not know.
    pub fn of(
        campaign: &CampaignId,
        (document, version): (&CampaignDocument, u64),
        now: Timestamp,
        default_shards: Shards,
    ) -> Self {
        let CampaignDocument { opens_at, closes_at, paused, closed, .. } = *document;
        let schedule = Schedule { opens_at, closes_at, paused, closed };
        Self {
            campaign: campaign.clone(),
            state: schedule.state(now),
            quota: document.quota,
            opens_at,
            closes_at,
            shards: Shards::new(document.shards.into()).unwrap_or(default_shards),
            admission: match &document.hard {
                None => AdmissionView::Soft {
                    on_stale: if document.admit_on_stale { OnStale::Admit } else { OnStale::Refuse },
                },
                Some(hard) => {
                    let (hold_s, phase) = (hard.hold_s, hard.phase);
                    match &hard.packets {
                        None => AdmissionView::Hard { hold_s, phase, quota_target: hard.quota_target },
                        Some(packets) => {
                            let (packets, loaded) = (packets.clone(), hard.packets_in());
                            AdmissionView::Packets { hold_s, phase, packets, loaded }
                        }
                    }
                }
            },
            paused,
            created_at: document.created_at,
            version,
        }
    }
}
