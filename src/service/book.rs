//! The book of events and campaigns: settings with defaults filled in, checked against this process's hash key.

use std::sync::Arc;

use jiff::Timestamp;

use super::error::ServiceError;
use super::identity::Identity;
use crate::domain::campaign::Schedule;
use crate::domain::id::{CampaignId, EventId};
use crate::domain::period::Retention;
use crate::domain::ring::Shards;
use crate::local::record_memory::{Known, RecordMemory, Slot};
use crate::runtime::tasks::Tasks;
use crate::store::documents::{CampaignDocument, Document, EventDocument, Phase};
use crate::store::records::Records;

/// Serial numbers of campaigns start here, so that they never meet those of events.
const CAMPAIGN_SERIALS: u64 = 1 << 62;

/// What holds where an event or campaign says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Defaults {
    pub shards: Shards,
    pub retention: Retention,
}

/// What counting needs to know of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFacts {
    /// Stands for the event's name in cache keys.
    pub serial: u64,
    pub generation: u64,
    pub shards: Shards,
    pub retention: Retention,
    pub version: u64,
}

/// What claims need to know of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct CampaignFacts {
    /// Stands for the campaign's name in cache keys.
    pub serial: u64,
    pub shards: Shards,
    pub quota: u64,
    pub schedule: Schedule,
    pub created_at: Timestamp,
    pub admission: Admission,
}

/// How a campaign admits.
#[derive(Clone, Copy, Debug)]
pub enum Admission {
    /// `admit_on_stale`: also on a reading that is older than promised.
    Soft {
        admit_on_stale: bool,
    },
    Hard(HardFacts),
}

/// What exact admission needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardFacts {
    pub phase: Phase,
    pub hold_s: u64,
    pub interval_ms: u64,
    /// Something is to be done to its pools.
    pub unfinished: bool,
    /// The ledger has it as it stands, where there is one.
    pub entered: bool,
}

/// Records of both kinds, as this process knows them.
pub struct Book {
    pub events: Arc<RecordMemory<EventDocument>>,
    pub campaigns: Arc<RecordMemory<CampaignDocument>>,
    pub defaults: Defaults,
    pub identity: Arc<Identity>,
}

impl Book {
    pub fn new(records: Arc<dyn Records>, defaults: Defaults, identity: Arc<Identity>, tasks: &Tasks) -> Self {
        Self {
            events: Arc::new(RecordMemory::new(records.clone(), 0, tasks.clone())),
            campaigns: Arc::new(RecordMemory::new(records, CAMPAIGN_SERIALS, tasks.clone())),
            defaults,
            identity,
        }
    }

    /// Facts for taking visits: where the record was never read because the store does not answer, the defaults serve.
    /// What is buffered under them is put right before it is pushed (`jobs/push.rs`).
    pub async fn event_for_visits(&self, event: &EventId) -> Result<EventFacts, ServiceError> {
        let slot = self.events.slot(event.as_str());
        match self.events.get(event.as_str(), &slot).await {
            Ok(known) => self.event_facts(&slot, &known),
            Err(error) if error.retry_may_help() => Ok(self.without_record(slot.serial)),
            Err(error) => Err(error.into()),
        }
    }

    /// Facts for reading counts: guessing a generation would answer with another event's history.
    pub async fn event(&self, event: &EventId) -> Result<EventFacts, ServiceError> {
        let slot = self.events.slot(event.as_str());
        let known = self.events.get(event.as_str(), &slot).await?;
        self.event_facts(&slot, &known)
    }

    /// A campaign's record; `NoCampaign` where the store has none.
    pub async fn campaign(&self, campaign: &CampaignId) -> Result<CampaignFacts, ServiceError> {
        let slot = self.campaigns.slot(campaign.as_str());
        let known = self.campaigns.get(campaign.as_str(), &slot).await?;
        let document = known.document.as_ref().ok_or(ServiceError::NoCampaign)?;
        self.check_fingerprint(document)?;
        Ok(CampaignFacts {
            serial: slot.serial,
            shards: shards_or(Some(document.shards), self.defaults.shards),
            quota: document.quota,
            schedule: Schedule {
                opens_at: document.opens_at,
                closes_at: document.closes_at,
                paused: document.paused,
                closed: document.closed,
            },
            created_at: document.created_at,
            admission: match &document.hard {
                None => Admission::Soft { admit_on_stale: document.admit_on_stale },
                Some(hard) => Admission::Hard(HardFacts {
                    phase: hard.phase,
                    hold_s: hard.hold_s,
                    interval_ms: hard.interval_ms,
                    unfinished: hard.is_unfinished(document.quota),
                    entered: hard.entered,
                }),
            },
        })
    }

    /// A campaign's whole record, at most a second old.
    pub async fn campaign_document(&self, campaign: &CampaignId) -> Result<CampaignDocument, ServiceError> {
        let slot = self.campaigns.slot(campaign.as_str());
        let known = self.campaigns.get(campaign.as_str(), &slot).await?;
        let document = known.document.clone().ok_or(ServiceError::NoCampaign)?;
        self.check_fingerprint(&document)?;
        Ok(document)
    }

    pub fn event_facts(
        &self,
        slot: &Slot<EventDocument>,
        known: &Known<EventDocument>,
    ) -> Result<EventFacts, ServiceError> {
        let Some(document) = &known.document else { return Ok(self.without_record(slot.serial)) };
        self.check_fingerprint(document)?;
        Ok(EventFacts {
            serial: slot.serial,
            generation: document.generation,
            shards: shards_or(document.shards, self.defaults.shards),
            retention: document.retention_days.and_then(Retention::days).unwrap_or(self.defaults.retention),
            version: known.version,
        })
    }

    /// Refuses a record that was counted under another hash key (docs/FAULTS.md A8).
    pub fn check_fingerprint<D: Document>(&self, document: &D) -> Result<(), ServiceError> {
        let mine = self.identity.fingerprint()?;
        if document.fingerprint() == mine {
            return Ok(());
        }
        Err(ServiceError::OtherHashKey { mine: mine.to_owned(), theirs: document.fingerprint().to_owned() })
    }

    fn without_record(&self, serial: u64) -> EventFacts {
        let Defaults { shards, retention } = self.defaults;
        EventFacts { serial, generation: 0, shards, retention, version: 0 }
    }
}

fn shards_or(stored: Option<u16>, default: Shards) -> Shards {
    stored.and_then(|count| Shards::new(count.into())).unwrap_or(default)
}
