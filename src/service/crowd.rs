//! Taking elements into counters: the filter first, then room in the buffer, then a batch to the store.

use std::sync::Arc;

use metrics::{Counter, counter};

use super::error::ServiceError;
use crate::domain::element::Element;
use crate::domain::ring::ring_point;
use crate::domain::sketch::hash::{Hit, hit};
use crate::local::batch::{Flushed, Ticket};
use crate::local::buffer::Buffer;
use crate::local::cell::{Cell, Seen};
use crate::local::cells::{CellCache, CounterCells};
use crate::local::coalescer::Coalescer;
use crate::store::error::StoreError;

/// The way of an element into the store.
pub struct Crowd {
    pub cells: Arc<CellCache>,
    buffer: Arc<Buffer>,
    coalescer: Arc<Coalescer>,
    /// Looked up by name once, and not with every visit.
    filtered: Counter,
    refused: Counter,
}

/// Elements of one request: what the filter answered, and what has to go to the store.
#[derive(Default)]
pub struct Admitted {
    stored: usize,
    buffered: usize,
    new: Vec<NewElement>,
}

struct NewElement {
    cells: Arc<CounterCells>,
    cell: Arc<Cell>,
    element: Element,
    hit: Hit,
}

/// What became of the elements of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    pub stored: usize,
    pub buffered: usize,
    pub failed: Option<StoreError>,
}

impl Admitted {
    /// Asks the filter about one element. No I/O, no lock while nothing is pending, and no allocation where the filter
    /// knows it.
    pub fn add(&mut self, cells: &Arc<CounterCells>, element: Element) {
        let cell = cells.at(ring_point(&element));
        let hit = hit(element.as_bytes());
        match cell.seen(hit) {
            Seen::Stored => self.stored += 1,
            Seen::Buffered => self.buffered += 1,
            Seen::New => {
                self.new.push(NewElement { cells: cells.clone(), cell: cell.clone(), element, hit });
            }
        }
    }
}

impl Crowd {
    pub fn new(cells: Arc<CellCache>, buffer: Arc<Buffer>, coalescer: Arc<Coalescer>) -> Self {
        let filtered = counter!("headcount_visits_filtered_total");
        Self { cells, buffer, coalescer, filtered, refused: counter!("headcount_visits_refused_total") }
    }

    /// Sends what the filter did not know and waits for it. `BufferFull` comes before anything is written.
    pub async fn settle(&self, admitted: Admitted) -> Result<Settled, ServiceError> {
        let Admitted { stored, buffered, new } = admitted;
        let mut settled = Settled { stored, buffered, failed: None };
        self.filtered.increment((stored + buffered) as u64);
        if new.is_empty() {
            return Ok(settled);
        }
        let bytes = new.iter().map(|new| new.cell.growth_bytes_max(new.hit)).sum();
        let Some(room) = self.buffer.budget().reserve(bytes) else {
            self.refused.increment(new.len() as u64);
            return Err(ServiceError::BufferFull);
        };
        let room = Arc::new(room);
        let tickets: Vec<Ticket> = new
            .into_iter()
            .map(|new| self.coalescer.add(&new.cells, &new.cell, (new.element, new.hit), &room))
            .collect();
        drop(room);
        for ticket in tickets {
            match ticket.flushed().await {
                Flushed::Stored => settled.stored += 1,
                Flushed::Buffered => settled.buffered += 1,
                Flushed::Failed(error) => settled.failed = Some(error),
            }
        }
        Ok(settled)
    }
}
