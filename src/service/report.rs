//! Reports: how many different users.

use std::sync::Arc;

use futures_util::StreamExt;
use jiff::Timestamp;
use jiff::civil::Date;

use super::book::{Book, EventFacts};
use super::error::ServiceError;
use super::merge::{Merger, Question};
use crate::domain::counter::{Counter, Subject};
use crate::domain::estimate::Estimate;
use crate::domain::id::EventId;
use crate::domain::period::{Calendar, Period};
use crate::local::cells::CellsKey;
use crate::local::readings::{KnownReading, Readings, Served};
use crate::runtime::clock::Clock;
use crate::store::counters::AnswerKey;

/// The most keys one question may read: 20,000 dense sketches are 240 MB through this process.
pub const KEYS_MAX: usize = 20_000;
/// Questions of one batch asked at a time: enough to overlap round trips, few enough to leave the store to others.
const BATCH_CONCURRENCY: usize = 32;

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

/// Answers how many.
pub struct Reports {
    pub book: Arc<Book>,
    pub merger: Arc<Merger>,
    pub readings: Arc<Readings>,
    pub calendar: Calendar,
    pub clock: Clock,
}

impl Reading {
    /// A known reading as it is told.
    pub fn of(served: &Served) -> Self {
        let KnownReading { users, relative_standard_error, partial, as_of_ms, .. } = *served.reading;
        let estimate = Estimate { users, relative_standard_error };
        Self {
            count: estimate.rounded(),
            error_95: estimate.error_95(),
            exact: false,
            as_of: Timestamp::from_millisecond(as_of_ms).unwrap_or(Timestamp::UNIX_EPOCH),
            age_ms: served.reading.age().as_millis() as u64,
            stale: served.stale,
            partial,
        }
    }
}

impl Reports {
    /// None: today.
    pub async fn count(&self, event: &EventId, days: Option<Days>) -> Result<Count, ServiceError> {
        let facts = self.book.event(event).await.map_err(ServiceError::no_reading)?;
        let now = self.clock.now();
        let today = self.calendar.day_of(now);
        let days = days.unwrap_or(Days { from: today, to: today });
        self.check(&facts, days, now)?;
        let question = Arc::new(question(event, &facts, days));
        let slot = self.readings.slot(&question.key);
        let merger = self.merger.clone();
        let bounds = self.merger.bounds(slot.latest().as_deref());
        let load = |last| merger.refresh(question, last);
        let served =
            self.readings.read(&slot, bounds, load).await.map_err(|error| ServiceError::from(error).no_reading())?;
        let bounds = (self.calendar.bounds(days.from).0, self.calendar.bounds(days.to).1);
        let zone = self.calendar.zone_name().to_owned();
        Ok(Count { event: event.clone(), days, bounds, zone, reading: Reading::of(&served) })
    }

    /// One answer per event, in order.
    pub async fn counts(&self, events: &[EventId], days: Option<Days>) -> Vec<Result<Count, ServiceError>> {
        // Collected first: a stream over a borrowing closure is not Send for every lifetime, as handlers must be.
        let asked: Vec<_> = events.iter().map(|event| self.count(event, days)).collect();
        futures_util::stream::iter(asked).buffered(BATCH_CONCURRENCY).collect().await
    }

    fn check(&self, facts: &EventFacts, days: Days, now: Timestamp) -> Result<(), ServiceError> {
        let invalid = |field, rule| Err(ServiceError::Invalid { field, rule });
        if days.from > days.to {
            return invalid("from", format!("must not be after to ({})", days.to));
        }
        let oldest = self.calendar.oldest_day(now, facts.retention);
        if days.from < oldest {
            let kept = facts.retention.get();
            return invalid("from", format!("must not be before {oldest}: days are kept for {kept} days"));
        }
        // A visit may be ahead of our clock by minutes, and so may tomorrow's first readers.
        let today = self.calendar.day_of(now);
        if days.to > today.tomorrow().unwrap_or(today) {
            return invalid("to", format!("must not be after {today}"));
        }
        let keys = day_count(days) * usize::from(facts.shards.count());
        if keys > KEYS_MAX {
            return invalid("to", format!("must be nearer: {keys} sketches would be read, at most {KEYS_MAX} are"));
        }
        Ok(())
    }
}

fn question(event: &EventId, facts: &EventFacts, days: Days) -> Question {
    let subject = Subject::Event(event.clone());
    let one_day = days.from == days.to;
    let text = if one_day {
        Period::Day(days.from).to_string()
    } else {
        format!("{}..{}", Period::Day(days.from), Period::Day(days.to))
    };
    let counter = |day| Counter { subject: subject.clone(), generation: facts.generation, period: Period::Day(day) };
    let cells = one_day
        .then(|| CellsKey::new(facts.serial, facts.generation, Period::Day(days.from), facts.shards, facts.retention));
    let counters = days_of(days).map(counter).collect();
    Question { key: AnswerKey { subject, generation: facts.generation, question: text }, counters, cells, frozen: None }
}

fn days_of(days: Days) -> impl Iterator<Item = Date> {
    std::iter::successors(Some(days.from), |day| day.tomorrow().ok()).take_while(move |day| *day <= days.to)
}

fn day_count(days: Days) -> usize {
    // Both ends lie within a retention, which is at most a century of days.
    days_of(days).count()
}
