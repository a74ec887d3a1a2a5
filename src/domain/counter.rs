//! What is counted: a subject, in one generation, over one period.

use std::sync::Arc;

use super::id::{CampaignId, EventId};
use super::period::Period;
use super::ring::{Position, phase};

/// Whose users are counted. Claimants of a soft campaign are a subject of their own that no public visit
/// reaches; were they an event called `campaign:x`, anybody could fill a quota by posting visits (docs/FAULTS.md B15).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Subject {
    Event(EventId),
    Claimants(CampaignId),
}

impl Subject {
    pub fn id(&self) -> &str {
        match self {
            Subject::Event(id) => id.as_str(),
            Subject::Claimants(id) => id.as_str(),
        }
    }

    /// Where its shards start among the cluster's slots, 0 to 1023.
    pub fn phase(&self) -> u16 {
        phase(self.id())
    }
}

/// One count of different users: the unit that has a layout, sketches, and an expiry.
///
/// The generation is raised by a reset, and is part of every key: what was written for an older one is not seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Counter {
    pub subject: Subject,
    pub generation: u64,
    pub period: Period,
}

/// Where one sketch lies: a counter, and the position on the ring at which the shard starts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SketchAddress {
    pub counter: Arc<Counter>,
    pub position: Position,
}
