//! A visit: a user was seen on an event.

use jiff::Timestamp;

use super::error::{ServiceError, VisitRejection};
use crate::domain::id::{EventId, UserId};

/// One visit as a caller sends it.
#[derive(Clone, Debug)]
pub struct NewVisit<'a> {
    pub event: EventId,
    pub user: UserId<'a>,
    /// None: now.
    pub at: Option<Timestamp>,
}

/// What became of visits. `stored`: the store has them. `buffered`: this process has them and will push them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub stored: usize,
    pub buffered: usize,
}

impl Taken {
    pub fn accepted(self) -> usize {
        self.stored + self.buffered
    }
}

pub struct Visits {}

impl Visits {
    /// Users of one event at one time: all are taken, or none and why.
    pub async fn record(
        &self,
        event: &EventId,
        users: &[UserId<'_>],
        at: Option<Timestamp>,
    ) -> Result<Taken, ServiceError> {
        let _ = (event, users, at);
        unimplemented!()
    }

    /// Visits of many events: a bad one never spoils the others, but a full buffer refuses all before any is written.
    pub async fn record_many(&self, visits: &[NewVisit<'_>]) -> Result<(Taken, Vec<VisitRejection>), ServiceError> {
        let _ = visits;
        unimplemented!()
    }
}
