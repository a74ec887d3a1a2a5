//! Many visits, one command: what the filter does not know is added to the store in batches per sketch.
//!
//! The contract:
//! - a batch leaves when it is full or `linger` after its first element, and only one of a cell travels at a time, so
//!   that a slow store makes larger batches instead of more of them;
//! - every caller hears what became of the batch that carries its element;
//! - what the store does not acknowledge is buffered by the batch itself, not by its callers: they may be gone;
//! - an element that the batch covers already (same register, no higher rank) is not sent twice.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::buffer::{Buffer, Reservation};
use super::cell::Cell;
use super::cells::{CellCache, CounterCells, NoteState};
use crate::domain::counter::Subject;
use crate::domain::element::Element;
use crate::domain::sketch::hash::Hit;
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;
use crate::store::counters::Counters;
use crate::store::error::StoreError;

/// What became of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Flushed {
    Stored,
    /// This process holds it and will push it.
    Buffered,
    /// Claimants are not buffered: an admission without the store's word would have no bound (red-team F10).
    Failed(StoreError),
}

/// A batch that still takes elements.
pub struct OpenBatch {
    elements: Vec<Element>,
    hits: Vec<Hit>,
    /// Visits carried, repeats included: what "buffered" will count.
    visits: usize,
    /// Room for these visits, should they have to be buffered.
    room: Vec<Arc<Reservation>>,
    done: watch::Sender<Option<Flushed>>,
    full: Arc<Notify>,
}

/// Waits for a batch.
pub struct Ticket(watch::Receiver<Option<Flushed>>);

/// Makes batches and sends them.
pub struct Coalescer {
    counters: Arc<dyn Counters>,
    cells: Arc<CellCache>,
    buffer: Arc<Buffer>,
    clock: Clock,
    tasks: Tasks,
    linger: Duration,
    elements_max: usize,
}

impl Ticket {
    pub async fn flushed(mut self) -> Flushed {
        let lost = || Flushed::Failed(StoreError::Unavailable("the batch was dropped".into()));
        match self.0.wait_for(Option::is_some).await {
            Ok(done) => done.clone().unwrap_or_else(lost),
            Err(_) => lost(),
        }
    }
}

impl Coalescer {
    pub fn new(
        counters: Arc<dyn Counters>,
        cells: Arc<CellCache>,
        buffer: Arc<Buffer>,
        (clock, tasks): (Clock, Tasks),
        (linger, elements_max): (Duration, usize),
    ) -> Self {
        Self { counters, cells, buffer, clock, tasks, linger, elements_max }
    }

    /// Adds an element to the cell's open batch, or opens one.
    pub fn add(
        self: &Arc<Self>,
        cells: &Arc<CounterCells>,
        cell: &Arc<Cell>,
        (element, hit): (Element, Hit),
        room: &Arc<Reservation>,
    ) -> Ticket {
        // Nothing under this lock can panic but a failed allocation, which ends the process.
        let mut open = cell.batch.lock().expect("no panic while a batch is locked");
        let batch = open.get_or_insert_with(|| self.open(cells, cell));
        batch.visits += 1;
        if !batch.covers(hit) {
            batch.elements.push(element);
            batch.hits.push(hit);
        }
        if !batch.room.last().is_some_and(|last| Arc::ptr_eq(last, room)) {
            batch.room.push(room.clone());
        }
        if batch.elements.len() == self.elements_max {
            batch.full.notify_one();
        }
        Ticket(batch.done.subscribe())
    }

    fn open(self: &Arc<Self>, cells: &Arc<CounterCells>, cell: &Arc<Cell>) -> OpenBatch {
        let full = Arc::new(Notify::new());
        let flush = self.clone().flush(cells.clone(), cell.clone(), full.clone());
        self.tasks.spawn("flush a batch", flush);
        OpenBatch {
            elements: Vec::new(),
            hits: Vec::new(),
            visits: 0,
            room: Vec::new(),
            done: watch::Sender::new(None),
            full,
        }
    }

    async fn flush(self: Arc<Self>, cells: Arc<CounterCells>, cell: Arc<Cell>, full: Arc<Notify>) {
        tokio::select! {
            () = tokio::time::sleep(self.linger) => {}
            () = full.notified() => {}
        }
        let _travelling = cell.travelling.lock().await;
        let batch = cell.batch.lock().expect("no panic while a batch is locked").take();
        // Each open batch has one flush, and only a flush takes it.
        let Some(batch) = batch else { return };
        let outcome = match self.send(&cells, &cell, &batch.elements).await {
            Ok(()) => {
                cell.acknowledge(&batch.hits, self.cells.now_ms());
                self.buffer.pin(&cell);
                self.cells.reweigh(&cells);
                Flushed::Stored
            }
            Err(error) => self.keep(&cell, &batch, error),
        };
        metrics::histogram!("headcount_batch_elements").record(batch.elements.len() as f64);
        // No receiver is left where every caller has gone; the visits are taken all the same.
        batch.done.send_replace(Some(outcome));
    }

    async fn send(&self, cells: &CounterCells, cell: &Cell, elements: &[Element]) -> Result<(), StoreError> {
        let change = *self.counters.changes().borrow();
        let note = cells.note_state(change);
        if note != NoteState::Current {
            match self.counters.note_layout(&cells.counter, cells.shards, cells.expires_at).await {
                Ok(_) => cells.mark_noted(change),
                Err(error) if note == NoteState::Never => return Err(error),
                // Readers know this process's N already unless a failover lost the note; it is tried again with the next batch.
                Err(error) => tracing::debug!(%error, "the layout could not be noted again"),
            }
        }
        for chunk in elements.chunks(self.elements_max) {
            self.counters.add(&cell.address, chunk, cells.expires_at).await?;
        }
        Ok(())
    }

    fn keep(&self, cell: &Arc<Cell>, batch: &OpenBatch, error: StoreError) -> Flushed {
        if matches!(cell.address.counter.subject, Subject::Claimants(_)) || !error.retry_may_help() {
            tracing::warn!(%error, "a batch was not stored");
            return Flushed::Failed(error);
        }
        tracing::debug!(%error, visits = batch.visits, "a batch is buffered");
        let now_ms = self.clock.now().as_millisecond();
        let grown: usize = batch.hits.iter().map(|hit| cell.buffer(*hit, now_ms)).sum();
        self.buffer.charge(grown);
        self.buffer.pin(cell);
        metrics::counter!("headcount_visits_buffered_total").increment(batch.visits as u64);
        Flushed::Buffered
    }
}

impl OpenBatch {
    fn covers(&self, hit: Hit) -> bool {
        self.hits.iter().any(|sent| sent.index == hit.index && sent.rank >= hit.rank)
    }
}
