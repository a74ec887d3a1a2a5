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

/// A soft campaign.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CampaignDocument {
    /// `soft`; other admissions come with later versions.
    pub admission: String,
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
