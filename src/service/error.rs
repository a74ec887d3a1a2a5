//! Why a use case did not give what was asked; `api/error.rs` is the only map from here to HTTP.

use jiff::Timestamp;

use crate::domain::packets::PacketRule;
use crate::store::error::StoreError;

/// A failure in the caller's words.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ServiceError {
    /// What was sent breaks a rule.
    #[error("{field} {rule}")]
    Invalid { field: &'static str, rule: String },
    /// The word is known, but this version does not do it yet.
    #[error("{field} is not in this version: {hint}")]
    NotInThisVersion { field: &'static str, hint: String },
    #[error("there is no campaign with this id")]
    NoCampaign,
    /// There is no claim with this id (or the user has made another one since).
    #[error("there is no such claim")]
    NoClaim,
    /// Soft campaigns keep no single claims.
    #[error("soft campaigns keep no single claims")]
    NotKeptBySoft,
    #[error("not a campaign of packets")]
    NotPackets,
    /// Hard campaigns are claimed by exact admission. Callers look first, so this is a fault of this program.
    #[error("not a soft campaign")]
    NotSoft,
    /// The campaign's stock is being laid out.
    #[error("the campaign is being prepared")]
    Preparing,
    /// Nothing is known yet about this claim: stock is on its way to the user's shard, or the answer took too long.
    #[error("no answer in time")]
    StockOnItsWay,
    /// The claim was made, but is not replicated as far as promised.
    #[error("not confirmed: {0}")]
    Unconfirmed(StoreError),
    /// A shard's server is another one than before; it hears for a second what processes know before it serves.
    #[error("a shard is being admitted")]
    PoolAdmitting,
    /// Another shard of the campaign is put right; all keep still until then.
    #[error("a shard is being put right")]
    PoolFrozen,
    /// A shard has lost something that was promised, or all of it; it serves nobody until it is reconciled.
    #[error("shard {shard} of the campaign has lost data")]
    PoolLost { shard: u16, fenced: bool },
    /// A record with other contents stands, or it changed since it was read.
    #[error("{0}")]
    Conflict(String),
    /// If-Match named another version than the one that stands.
    #[error("the record's version is {present}")]
    VersionMismatch { present: u64 },
    /// The process may not take more visits before it can hand some on.
    #[error("the buffer of visits is full")]
    BufferFull,
    /// No reading is known and none can be had now.
    #[error("no reading is known, and the store does not answer: {0}")]
    NoReading(StoreError),
    /// The store (or the part of it that is asked) does not answer; nothing was done, or it is safe to repeat.
    #[error("the store does not answer: {0}")]
    Unavailable(StoreError),
    /// The reading is too old to admit anybody on.
    #[error("the last reading is older than {max_age_ms} ms")]
    ReadingTooOld { max_age_ms: u64 },
    /// This process's share of the places left on the present reading is used up; the next reading brings more.
    #[error("waiting for the next reading")]
    NextReading { wait_ms: u64 },
    /// The ledger must have a campaign before it opens, and does not answer; or what was asked is in the ledger only.
    #[error("the ledger does not answer: {0}")]
    Ledger(StoreError),
    /// This process has no ledger.
    #[error("there is no ledger")]
    NoLedger,
    /// The record was written under another hash key: this process would count everybody a second time.
    #[error("this process has another hash key (fingerprint {mine}) than the record ({theirs})")]
    OtherHashKey { mine: String, theirs: String },
    /// The store holds what this version cannot read, or refuses for good.
    #[error("the store refuses: {0}")]
    Refused(StoreError),
}

/// Why one visit of many is not counted.
#[derive(Clone, Debug, PartialEq)]
pub struct VisitRejection {
    /// Its place in what was sent, from 0.
    pub index: usize,
    pub error: ServiceError,
}

/// Where a campaign's clock stands for somebody who is too early or too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpeningHours {
    pub opens_at: Timestamp,
    pub closes_at: Option<Timestamp>,
}

impl ServiceError {
    /// What a reader is told where an unreachable store means that there is no reading.
    pub fn no_reading(self) -> Self {
        match self {
            ServiceError::Unavailable(cause) => ServiceError::NoReading(cause),
            other => other,
        }
    }
}

impl From<PacketRule> for ServiceError {
    fn from(PacketRule { field, rule }: PacketRule) -> Self {
        ServiceError::Invalid { field, rule }
    }
}

impl From<StoreError> for ServiceError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unconfirmed(_) => ServiceError::Unconfirmed(error),
            _ if error.retry_may_help() => ServiceError::Unavailable(error),
            _ => ServiceError::Refused(error),
        }
    }
}
