//! What stands in records: JSON with every field, so that a person can read a store.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::records::{Record, RecordKind};

/// A kind of document, and which records hold it.
pub trait Document: Serialize + for<'de> Deserialize<'de> + Clone + Send + Sync + 'static {
    const KIND: RecordKind;

    /// The fingerprint of the hash key under which the record's users were counted.
    fn fingerprint(&self) -> &str;

    fn encode(&self) -> bytes::Bytes {
        // Serialising to memory fails only for maps with keys that are not texts; documents have none.
        serde_json::to_vec(self).expect("documents have text keys").into()
    }

    fn decode(record: &Record) -> Result<Self, StoreError> {
        serde_json::from_slice(&record.body)
            .map_err(|error| StoreError::Corrupt(format!("a {:?} record is unreadable: {error}", Self::KIND)))
    }
}

/// An event's settings. Fields that are absent have the deployment's defaults.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EventDocument {
    pub shards: Option<u16>,
    pub retention_days: Option<u32>,
    /// 0 until the first reset.
    pub generation: u64,
    pub fingerprint: String,
}

/// A campaign.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CampaignDocument {
    /// `soft`, `hard` or `packets`.
    pub admission: String,
    /// What holds now. Of a hard campaign on its way to another one it is the one that is safe: never less than what
    /// could be granted.
    pub quota: u64,
    pub opens_at: Timestamp,
    pub closes_at: Option<Timestamp>,
    pub shards: u16,
    /// Admit also on a reading that is older than 2 s.
    pub admit_on_stale: bool,
    pub paused: bool,
    pub closed: bool,
    pub created_at: Timestamp,
    pub fingerprint: String,
    /// Of a hard campaign, or one of packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard: Option<HardDocument>,
}

/// What a hard campaign has beside: its stock, and what is being done to it. Any process can finish what another began.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HardDocument {
    pub phase: Phase,
    /// 0: claims are confirmed at once.
    pub hold_s: u64,
    /// How long a process may say "sold out" from memory; frozen, because units that come back cool for twice as long.
    pub interval_ms: u64,
    /// The next number that was never issued; never lowered (docs/FAULTS.md A9).
    pub next_unit: u64,
    /// The quota that is wished; `quota` follows.
    pub quota_target: u64,
    /// Operations begun so far.
    pub operations: u64,
    pub running: Option<Operation>,
    /// Changes of hours and pause so far, and how many of them every pool knows.
    pub schedule: u64,
    pub schedule_told: u64,
    /// Whether the ledger has the campaign as this record says it. Means nothing where there is no ledger.
    #[serde(default)]
    pub entered: bool,
    /// Of a campaign whose units are packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketsDocument>,
}

/// What the packets of a campaign hold, or how that can be worked out again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PacketsDocument {
    pub count: u64,
    pub total_cents: i64,
    pub source: PacketSource,
}

/// Where the amounts come from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketSource {
    /// Drawn: the seed (64 hex digits) gives the same packets again (`domain/packets.rs`).
    Draw { min_cents: i64, max_cents: i64, seed: String },
    /// Chosen by the campaign's owner, who sends them in parts. Their amounts are in the pools and the ledger only; what
    /// stands here tells a part that is sent again from another one.
    List { parts: Vec<PartDocument> },
}

/// One part of a list of packets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartDocument {
    /// The number of its first packet.
    pub first: u64,
    pub count: u64,
    pub cents: i64,
    /// XXH3-64 of the amounts as text, joined by commas; 16 hex digits.
    pub digest: String,
}

impl PacketsDocument {
    /// Packets that were sent so far, with those of a part that is not in yet; all, where they are drawn.
    pub fn loaded(&self) -> u64 {
        match &self.source {
            PacketSource::Draw { .. } => self.count,
            PacketSource::List { parts } => parts.last().map_or(0, |part| part.first + part.count - 1),
        }
    }

    pub fn loaded_cents(&self) -> i64 {
        match &self.source {
            PacketSource::Draw { .. } => self.total_cents,
            PacketSource::List { parts } => parts.iter().map(|part| part.cents).sum(),
        }
    }
}

impl HardDocument {
    /// Packets that are in the pools for certain: those of a part that was begun come when it is sent again.
    pub fn packets_in(&self) -> u64 {
        match (&self.packets, &self.running) {
            (Some(PacketsDocument { source: PacketSource::List { .. }, .. }), Some(part)) => part.first - 1,
            (Some(packets), _) => packets.loaded(),
            (None, _) => 0,
        }
    }

    /// Whether something is to be done to the pools before the record and they agree.
    pub fn is_unfinished(&self, quota: u64) -> bool {
        let on_the_way = matches!(self.phase, Phase::Filling | Phase::Closing | Phase::Removing);
        on_the_way || self.running.is_some() || self.schedule_told < self.schedule || self.quota_target != quota
    }
}

/// Where a hard campaign is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its pools are being made. A pool that is missing in any later phase is lost, not new (docs/FAULTS.md F20).
    Filling,
    Ready,
    Closing,
    Closed,
    /// Its pools are being forgotten.
    Removing,
    Removed,
}

/// A change of stock under way: planned whole before the first pool is touched, so that whoever goes on with it does the
/// same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operation {
    pub number: u64,
    pub kind: OperationKind,
    /// By shard: units to retire, or to bring back from the retired ones.
    pub take: Vec<u64>,
    /// New units: the first number, and how many.
    pub first: u64,
    pub fresh: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    Fill,
    Raise,
    Lower,
}

impl Document for EventDocument {
    const KIND: RecordKind = RecordKind::Event;

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

impl Document for CampaignDocument {
    const KIND: RecordKind = RecordKind::Campaign;

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}
