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

use metrics::{Histogram, histogram};
use tokio::sync::Notify;

use super::batch::{Flushed, OpenBatch, Ticket};
use super::budget::Reservation;
use super::buffer::Buffer;
use super::cell::Cell;
use super::cells::{CellCache, CounterCells, NoteState};
use crate::domain::counter::Subject;
use crate::domain::element::Element;
use crate::domain::sketch::hash::Hit;
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;
use crate::store::counters::Counters;
use crate::store::error::StoreError;

/// Makes batches and sends them.
pub struct Coalescer {
    counters: Arc<dyn Counters>,
    cells: Arc<CellCache>,
    buffer: Arc<Buffer>,
    clock: Clock,
    tasks: Tasks,
    linger: Duration,
    elements_max: usize,
    /// Looked up by name once, and not with every batch.
    batch_elements: Histogram,
}

impl Coalescer {
    pub fn new(
        counters: Arc<dyn Counters>,
        cells: Arc<CellCache>,
        buffer: Arc<Buffer>,
        (clock, tasks): (Clock, Tasks),
        (linger, elements_max): (Duration, usize),
    ) -> Self {
        let batch_elements = histogram!("headcount_batch_elements");
        Self { counters, cells, buffer, clock, tasks, linger, elements_max, batch_elements }
    }

    /// Adds an element to the cell's open batch, or opens one.
    pub fn add(
        self: &Arc<Self>,
        cells: &Arc<CounterCells>,
        cell: &Arc<Cell>,
        element: (Element, Hit),
        room: &Arc<Reservation>,
    ) -> Ticket {
        // Nothing under this lock can panic but a failed allocation, which ends the process.
        let mut open = cell.batch.lock().expect("no panic while a batch is locked");
        let batch = open.get_or_insert_with(|| self.open(cells, cell));
        let ticket = batch.add(element, room);
        if batch.elements.len() == self.elements_max {
            batch.full.notify_one();
        }
        ticket
    }

    fn open(self: &Arc<Self>, cells: &Arc<CounterCells>, cell: &Arc<Cell>) -> OpenBatch {
        let full = Arc::new(Notify::new());
        let flush = self.clone().flush(cells.clone(), cell.clone(), full.clone());
        self.tasks.spawn("flush a batch", flush);
        OpenBatch::new(full)
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
        self.batch_elements.record(batch.elements.len() as f64);
        batch.tell(outcome);
    }

    async fn send(&self, cells: &CounterCells, cell: &Cell, elements: &[Element]) -> Result<(), StoreError> {
        let change = *self.counters.changes().borrow();
        let note = cells.note_state(change);
        if note != NoteState::Current {
            match self.counters.note_layout(&cells.counter, cells.shards, cells.expires_at).await {
                Ok(_) => cells.mark_noted(change),
                Err(error) if note == NoteState::Never => return Err(error),
                // Readers know this process's N already unless a failover lost the note; it is tried again in a second.
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
            tracing::debug!(%error, "a batch was not stored; its callers are told");
            return Flushed::Failed(error);
        }
        tracing::debug!(%error, visits = batch.visits, "a batch is buffered");
        let now_ms = self.clock.now().as_millisecond();
        let grown: usize = batch.hits.iter().map(|hit| cell.buffer(*hit, now_ms)).sum();
        self.buffer.budget().charge(grown);
        self.buffer.pin(cell);
        metrics::counter!("headcount_visits_buffered_total").increment(batch.visits as u64);
        Flushed::Buffered
    }
}
