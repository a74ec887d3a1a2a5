//! Reports: how many different users.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;

use super::error::ServiceError;
use crate::domain::id::EventId;

/// Over which days; both ends belong to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Days {
    pub from: Date,
    pub to: Date,
}

/// An answer with its age and error.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    pub count: u64,
    /// Relative: 0.0028 is 0.28 % of the count, at 95 %.
    pub error_95: f64,
    pub exact: bool,
    pub as_of: Timestamp,
    pub age_ms: u64,
    /// The store did not answer, and this is the last that is known.
    pub stale: bool,
    /// Some sketch was unreadable or out of reach; the true count is at least about this.
    pub partial: bool,
}

/// A count with the bounds it was taken over.
#[derive(Clone, PartialEq, Debug)]
pub struct Count {
    pub event: EventId,
    pub days: Days,
    /// The first instant of the span, and the first after it.
    pub bounds: (Timestamp, Timestamp),
    pub zone: String,
    pub reading: Reading,
}

/// Where unions of sketches are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MergeWhere {
    /// The store for soft campaigns, this process for the checks of plain counts (red-team B9).
    #[default]
    Auto,
    Store,
    Gateway,
}

/// How readings are kept fresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportConfig {
    /// A reading younger than this is served as it is. Shorter: more merges for every hot event.
    pub refresh: Duration,
    pub merge: MergeWhere,
    /// Merges this process starts in a second; under more hot events than that readings grow older, as `age_ms` says.
    pub merges_per_second: u32,
}

impl Default for ReportConfig {
    fn default() -> Self {
        Self { refresh: Duration::from_millis(200), merge: MergeWhere::Auto, merges_per_second: 200 }
    }
}

pub struct Reports {}

impl Reports {
    /// None: today.
    pub async fn count(&self, event: &EventId, days: Option<Days>) -> Result<Count, ServiceError> {
        let _ = (event, days);
        unimplemented!()
    }

    /// One answer per event, in order.
    pub async fn counts(&self, events: &[EventId], days: Option<Days>) -> Vec<Result<Count, ServiceError>> {
        let _ = (events, days);
        unimplemented!()
    }
}
