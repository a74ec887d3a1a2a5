//! A batch of visits on its way to one sketch, and those who wait for it.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::budget::Reservation;
use crate::domain::element::Element;
use crate::domain::sketch::hash::Hit;
use crate::store::error::StoreError;

/// What became of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Flushed {
    Stored,
    /// This process holds it and will push it.
    Buffered,
    /// Claimants are not buffered: an admission without the store's word would have no bound (docs/FAULTS.md F10).
    Failed(StoreError),
}

/// A batch that still takes elements.
pub struct OpenBatch {
    pub elements: Vec<Element>,
    pub hits: Vec<Hit>,
    /// Visits carried, repeats included: what "buffered" will count.
    pub visits: usize,
    /// Room for these visits, should they have to be buffered.
    room: Vec<Arc<Reservation>>,
    done: watch::Sender<Option<Flushed>>,
    /// Rung when the batch should leave at once.
    pub full: Arc<Notify>,
}

/// Waits for a batch.
pub struct Ticket(watch::Receiver<Option<Flushed>>);

impl Ticket {
    pub async fn flushed(mut self) -> Flushed {
        let lost = || Flushed::Failed(StoreError::Unavailable("the batch was dropped".into()));
        match self.0.wait_for(Option::is_some).await {
            Ok(done) => done.clone().unwrap_or_else(lost),
            Err(_) => lost(),
        }
    }
}

impl OpenBatch {
    pub fn new(full: Arc<Notify>) -> Self {
        let done = watch::Sender::new(None);
        Self { elements: Vec::new(), hits: Vec::new(), visits: 0, room: Vec::new(), done, full }
    }

    /// Takes an element in, unless another one covers it (same register, no higher rank).
    pub fn add(&mut self, (element, hit): (Element, Hit), room: &Arc<Reservation>) -> Ticket {
        self.visits += 1;
        if !self.covers(hit) {
            self.elements.push(element);
            self.hits.push(hit);
        }
        if !self.room.last().is_some_and(|last| Arc::ptr_eq(last, room)) {
            self.room.push(room.clone());
        }
        Ticket(self.done.subscribe())
    }

    /// Tells everybody who waits. Where every caller has gone nobody hears; the visits are taken all the same.
    pub fn tell(&self, outcome: Flushed) {
        self.done.send_replace(Some(outcome));
    }

    fn covers(&self, hit: Hit) -> bool {
        self.hits.iter().any(|sent| sent.index == hit.index && sent.rank >= hit.rank)
    }
}
