//! A visit: a user was seen on an event.

use std::sync::Arc;

use jiff::Timestamp;

use super::book::{Book, EventFacts};
use super::crowd::{Admitted, Crowd, Settled};
use super::error::{ServiceError, VisitRejection};
use super::identity::Identity;
use crate::domain::counter::{Counter, Subject};
use crate::domain::id::{EventId, UserId};
use crate::domain::period::{Calendar, Period};
use crate::local::cells::{CellsKey, CounterCells};
use crate::runtime::clock::Clock;

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

/// Takes visits.
pub struct Visits {
    pub book: Arc<Book>,
    pub crowd: Arc<Crowd>,
    pub identity: Arc<Identity>,
    pub calendar: Calendar,
    pub clock: Clock,
}

impl Visits {
    /// Users of one event at one time: all are taken, or none and why.
    pub async fn record(
        &self,
        event: &EventId,
        users: &[UserId<'_>],
        at: Option<Timestamp>,
    ) -> Result<Taken, ServiceError> {
        let hashing = self.identity.hashing()?;
        let facts = self.book.event_for_visits(event).await?;
        let cells = self.cells(event, &facts, at)?;
        let mut admitted = Admitted::default();
        for user in users {
            admitted.add(&cells, hashing.element(*user));
        }
        taken(self.crowd.settle(admitted).await?)
    }

    /// Visits of many events: a bad one never spoils the others, but a full buffer refuses all before any is written.
    pub async fn record_many(&self, visits: &[NewVisit<'_>]) -> Result<(Taken, Vec<VisitRejection>), ServiceError> {
        let hashing = self.identity.hashing()?;
        let mut admitted = Admitted::default();
        let mut rejections = Vec::new();
        for (index, visit) in visits.iter().enumerate() {
            let cells = match self.book.event_for_visits(&visit.event).await {
                Ok(facts) => self.cells(&visit.event, &facts, visit.at),
                Err(error) => Err(error),
            };
            match cells {
                Ok(cells) => admitted.add(&cells, hashing.element(visit.user)),
                Err(error) => rejections.push(VisitRejection { index, error }),
            }
        }
        Ok((taken(self.crowd.settle(admitted).await?)?, rejections))
    }

    fn cells(
        &self,
        event: &EventId,
        facts: &EventFacts,
        at: Option<Timestamp>,
    ) -> Result<Arc<CounterCells>, ServiceError> {
        let now = self.clock.now();
        let day = match at {
            None => self.calendar.day_of(now),
            Some(at) => self
                .calendar
                .day_to_count(at, now, facts.retention)
                .map_err(|error| ServiceError::Invalid { field: "at", rule: error.to_string() })?,
        };
        let period = Period::Day(day);
        let key = CellsKey::new(facts.serial, facts.generation, period, facts.shards, facts.retention);
        Ok(self.crowd.cells.get(key, || {
            let counter = Counter { subject: Subject::Event(event.clone()), generation: facts.generation, period };
            (counter, self.calendar.expires_at(period, facts.retention))
        }))
    }
}

fn taken(settled: Settled) -> Result<Taken, ServiceError> {
    match settled.failed {
        // Some of the request may be stored; sending it again is harmless, so it is refused as a whole.
        Some(error) => Err(error.into()),
        None => Ok(Taken { stored: settled.stored, buffered: settled.buffered }),
    }
}
