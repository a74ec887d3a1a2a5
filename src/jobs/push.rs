//! Anti-entropy: what this process knows and the store lacks is pushed again.
//!
//! A round goes over cells, hottest first, at a bounded pace:
//!
//! 1. take the pending registers out of the cell;
//! 2. read the store's sketch, and keep only the registers of ours (pending and acknowledged) that are ahead of it;
//! 3. note the layout, merge those registers into the store;
//! 4. acknowledged: the filter knows them; failed: they wait again.
//!
//! Rounds over every cell follow each change of the store (reconnect, failover, move), and once more a deadline later,
//! for acknowledgements of the old connection may be applied after the first. Rounds over pinned cells come with the
//! timer, and every second while visits are buffered. Merging is idempotent, so a round may be repeated, cut short, or
//! run by two processes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::domain::counter::{Counter, SketchAddress, Subject};
use crate::domain::period::Calendar;
use crate::domain::sketch::registers::Sketch;
use crate::domain::sketch::wire;
use crate::local::buffer::Buffer;
use crate::local::cell::{Cell, Taken};
use crate::local::cells::CellCache;
use crate::runtime::clock::Clock;
use crate::service::book::Book;
use crate::store::counters::Counters;
use crate::store::error::StoreError;

/// When and how fast registers are pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushConfig {
    /// Time between rounds where nothing has happened.
    pub interval: Duration,
    /// Sketches compared in a second. Higher: sooner whole after a failover, more load on the node that has just
    /// taken over.
    pub sketches_per_second: u32,
}

impl Default for PushConfig {
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), sketches_per_second: 1_000 }
    }
}

/// After a change of the store a second round follows so much later.
const SECOND_ROUND_AFTER: Duration = Duration::from_secs(1);
/// While visits are buffered a round is tried so often.
const BUFFERED_RETRY: Duration = Duration::from_secs(1);
/// Sketches read in one go.
const CELLS_PER_READ: usize = 64;

/// Sketches pushed side by side: one node that hangs must not hold up the others' sketches one deadline each.
const PUSHES_AT_ONCE: usize = 16;

/// Pushes.
pub struct Pusher {
    pub counters: Arc<dyn Counters>,
    pub cells: Arc<CellCache>,
    pub buffer: Arc<Buffer>,
    pub book: Arc<Book>,
    pub calendar: Calendar,
    pub clock: Clock,
    pub config: PushConfig,
    /// Rung by whoever saw the store hold less than it acknowledged.
    pub push_soon: Arc<Notify>,
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub pushed: usize,
    pub failed: usize,
}

/// Which cells a round looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    Pinned,
    All,
}

impl Pusher {
    /// Runs until `stop`. What is still pending then is `flush`'s business.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut changes = self.counters.changes();
        // What happened before this process remembered anything needs no round.
        changes.mark_unchanged();
        let mut next = Instant::now() + self.config.interval;
        let mut again: Option<Instant> = None;
        loop {
            let buffered = self.buffer.budget().used_bytes() > 0;
            let retry = Instant::now() + BUFFERED_RETRY;
            let mut wake = if buffered { next.min(retry) } else { next };
            wake = again.map_or(wake, |again| wake.min(again));
            let scope = tokio::select! {
                () = stop.cancelled() => return,
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    again = Some(Instant::now() + SECOND_ROUND_AFTER);
                    Scope::All
                }
                () = self.push_soon.notified() => Scope::All,
                () = tokio::time::sleep_until(wake) => Scope::Pinned,
            };
            let now = Instant::now();
            let second = again.is_some_and(|again| now >= again);
            if second {
                again = None;
            }
            if now >= next {
                next = now + self.config.interval;
            }
            let scope = if second { Scope::All } else { scope };
            let round = self.round(scope, &stop).await;
            if round.failed > 0 {
                tracing::debug!(pushed = round.pushed, failed = round.failed, "a push round left something behind");
            }
        }
    }

    /// Pushes everything that is pending, again and again until nothing is or `deadline` has come. Answers how many
    /// visits are left.
    pub async fn flush(&self, deadline: Instant) -> u64 {
        let never = CancellationToken::new();
        while self.buffer.buffered_visits() > 0 {
            if tokio::time::timeout_at(deadline, self.round(Scope::Pinned, &never)).await.is_err() {
                break;
            }
            if self.buffer.buffered_visits() > 0 {
                let pause = Instant::now() + Duration::from_millis(100);
                if pause >= deadline {
                    break;
                }
                tokio::time::sleep_until(pause).await;
            }
        }
        self.buffer.buffered_visits()
    }

    /// One round, cut short between two reads when `stop` comes: never within one, for then cells would keep a push
    /// that nobody ends.
    async fn round(&self, scope: Scope, stop: &CancellationToken) -> Round {
        let unpinned = self.buffer.sweep(self.cells.now_ms());
        if unpinned > 0 {
            metrics::counter!("headcount_pins_dropped_total").increment(unpinned as u64);
        }
        let mut round = Round::default();
        let pace = Duration::from_secs(1) * CELLS_PER_READ as u32 / self.config.sketches_per_second.max(1);
        for chunk in self.wanted(scope).chunks(CELLS_PER_READ) {
            if stop.is_cancelled() {
                break;
            }
            let started = Instant::now();
            self.push_chunk(chunk, &mut round).await;
            if chunk.len() == CELLS_PER_READ {
                tokio::time::sleep_until(started + pace).await;
            }
        }
        metrics::counter!("headcount_sketches_pushed_total").increment(round.pushed as u64);
        metrics::gauge!("headcount_buffer_bytes").set(self.buffer.budget().used_bytes() as f64);
        round
    }

    /// The cells to look at, those with pending visits first, then the most recently written.
    fn wanted(&self, scope: Scope) -> Vec<Arc<Cell>> {
        let mut cells = self.buffer.pinned();
        if scope == Scope::All {
            let known: HashSet<*const Cell> = cells.iter().map(Arc::as_ptr).collect();
            for counter in self.cells.all() {
                cells.extend(counter.made().filter(|cell| !known.contains(&Arc::as_ptr(cell))).cloned());
            }
        }
        cells.sort_by_key(|cell| std::cmp::Reverse((cell.has_pending(), cell.acked_at_ms())));
        cells
    }

    async fn push_chunk(&self, cells: &[Arc<Cell>], round: &mut Round) {
        let addresses: Vec<SketchAddress> = cells.iter().map(|cell| cell.address.clone()).collect();
        // Taken before the store is read: what is raised later waits for the next round.
        let taken: Vec<Option<Taken>> = cells.iter().map(|cell| cell.begin_push()).collect();
        let stored = self.counters.read(&addresses).await;
        // Collected first: a stream over a borrowing closure is not Send for every lifetime, as tasks must be.
        let pushes: Vec<_> = cells
            .iter()
            .zip(taken)
            .zip(stored)
            .map(|((cell, taken), stored)| async move {
                let outcome = self.push(cell, taken.as_ref(), stored).await;
                self.settle(cell, taken.is_some(), outcome)
            })
            .collect();
        let outcomes: Vec<Round> = futures_util::stream::iter(pushes).buffer_unordered(PUSHES_AT_ONCE).collect().await;
        for outcome in outcomes {
            round.pushed += outcome.pushed;
            round.failed += outcome.failed;
        }
    }

    /// Ends one cell's push as its outcome says.
    fn settle(&self, cell: &Cell, had_pending: bool, outcome: Result<bool, Refusal>) -> Round {
        match outcome {
            Ok(pushed) => {
                self.buffer.budget().release(cell.end_push(true, self.cells.now_ms()));
                Round { pushed: usize::from(pushed), failed: 0 }
            }
            Err(Refusal::Later) => {
                self.buffer.budget().charge(cell.abandon_push());
                Round { pushed: 0, failed: 1 }
            }
            Err(Refusal::Never(reason)) => {
                self.buffer.budget().release(cell.end_push(false, self.cells.now_ms()));
                if had_pending {
                    metrics::counter!("headcount_pushes_discarded_total").increment(1);
                    let subject = cell.address.counter.subject.id();
                    tracing::warn!(reason, subject, "buffered visits are discarded");
                }
                Round::default()
            }
        }
    }

    /// Pushes what the store lacks of one cell. True: there was something.
    async fn push(
        &self,
        cell: &Cell,
        taken: Option<&Taken>,
        stored: Result<Option<Bytes>, StoreError>,
    ) -> Result<bool, Refusal> {
        let target = self.target(cell, taken).await?;
        let mut ours = cell.acknowledged();
        if let Some(taken) = taken {
            ours.merge(&taken.sketch);
        }
        let ahead = if target.moved {
            // Another key than the one that was read: everything that is pending goes there, nothing else is known of it.
            taken.map_or_else(Sketch::new, |taken| (*taken.sketch).clone())
        } else {
            let stored = match stored? {
                Some(blob) => wire::decode(&blob).map_err(|_| Refusal::Later)?,
                None => Sketch::new(),
            };
            let ahead = ours.ahead_of(&stored);
            cell.compare(&stored);
            ahead
        };
        if ahead.is_empty() {
            return Ok(false);
        }
        self.counters.note_layout(&target.address.counter, cell.shards, target.expires_at).await?;
        self.counters.merge(&target.address, wire::encode(&ahead).into(), target.expires_at).await?;
        Ok(true)
    }

    /// Where a cell's registers belong now: its own key, or that of a newer generation (docs/FAULTS.md F14).
    async fn target(&self, cell: &Cell, taken: Option<&Taken>) -> Result<Target, Refusal> {
        let counter = &cell.address.counter;
        let Subject::Event(event) = &counter.subject else {
            return Ok(Target { address: cell.address.clone(), expires_at: None, moved: false });
        };
        let facts = self.book.event(event).await.map_err(|_| Refusal::Later)?;
        let expires_at = self.calendar.expires_at(counter.period, facts.retention);
        if expires_at.is_some_and(|at| at <= self.clock.now()) {
            return Err(Refusal::Never("their day is past its retention"));
        }
        if counter.generation >= facts.generation {
            return Ok(Target { address: cell.address.clone(), expires_at, moved: false });
        }
        // The event was reset. Visits before the reset go with it; later ones belong to the new generation, and an array
        // that holds both is kept whole: over-count rather than lose.
        let Some(taken) = taken else { return Err(Refusal::Never("the event was reset")) };
        if taken.last_visit_ms < i64::try_from(facts.generation).unwrap_or(i64::MAX) {
            return Err(Refusal::Never("the event was reset after them"));
        }
        let counter = Counter { generation: facts.generation, ..(**counter).clone() };
        let address = SketchAddress { counter: Arc::new(counter), position: cell.address.position };
        Ok(Target { address, expires_at, moved: true })
    }
}

struct Target {
    address: SketchAddress,
    expires_at: Option<Timestamp>,
    moved: bool,
}

/// Why a cell was not pushed.
enum Refusal {
    Later,
    Never(&'static str),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        tracing::debug!(%error, "a sketch could not be pushed");
        Refusal::Later
    }
}
