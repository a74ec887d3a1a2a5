//! What this process knows about one sketch of the store.
//!
//! Two register arrays, because "the store has it" and "we have taken it" are different promises (docs/FAULTS.md B2):
//!
//! ```text
//!            rank <= acked[i]   ──▶ stored: adding it would change nothing in the store
//! visit ──▶  rank <= pending[i] ──▶ buffered: taken, not yet pushed
//!            otherwise          ──▶ goes to the store with the next batch
//! ```
//!
//! `acked` is raised only by what the store acknowledged, or by reading its sketch: a lower bound of the store's
//! registers while the store loses nothing. `pending` is raised by what was accepted while the store did not answer.
//! A push takes `pending` away, and puts it back if it fails; what is being pushed still counts as buffered
//! (docs/FAULTS.md F12).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::batch::OpenBatch;
use crate::domain::counter::SketchAddress;
use crate::domain::ring::Shards;
use crate::domain::sketch::atomic::AtomicRegisters;
use crate::domain::sketch::hash::Hit;
use crate::domain::sketch::registers::Sketch;

/// What the filter says of a visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// The store has a register at least as high: nothing to do.
    Stored,
    /// This process has it and will push it.
    Buffered,
    New,
}

/// One sketch, as this process knows it.
pub struct Cell {
    pub address: SketchAddress,
    /// With how many shards this process writes the counter; a push notes it before it writes.
    pub shards: Shards,
    acked: AtomicRegisters,
    /// Milliseconds on the cell clock (see `cells.rs`) of the last acknowledged write that raised a register.
    acked_at_ms: AtomicU64,
    /// Looked at before the lock, so that the hot path takes none while nothing is pending.
    has_pending: AtomicBool,
    pending: Mutex<Pending>,
    /// Set while a list of pinned cells holds this one.
    pub(super) pinned: AtomicBool,
    pub(super) batch: Mutex<Option<OpenBatch>>,
    /// One batch of a cell travels at a time: what arrives meanwhile makes the next one larger.
    pub(super) travelling: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Pending {
    waiting: Option<AtomicRegisters>,
    pushing: Option<Arc<Sketch>>,
    /// Visits taken since the last successful push, for telling what could not be flushed.
    visits: u64,
    /// Wall clock of the last one, in milliseconds since 1970: a reset after it discards it (docs/FAULTS.md F14).
    last_visit_ms: i64,
    bytes: usize,
}

/// What a push has taken out of a cell.
pub struct Taken {
    pub sketch: Arc<Sketch>,
    pub last_visit_ms: i64,
}

impl Cell {
    pub fn new(address: SketchAddress, shards: Shards) -> Self {
        Self {
            address,
            shards,
            acked: AtomicRegisters::new(),
            acked_at_ms: AtomicU64::new(0),
            has_pending: AtomicBool::new(false),
            pending: Mutex::default(),
            pinned: AtomicBool::new(false),
            batch: Mutex::new(None),
            travelling: tokio::sync::Mutex::new(()),
        }
    }

    /// Answers from memory whether a visit needs the store. No lock while nothing is pending.
    pub fn seen(&self, hit: Hit) -> Seen {
        if self.acked.get(hit.index) >= hit.rank {
            return Seen::Stored;
        }
        if self.has_pending.load(Ordering::Acquire) && self.lock().covers(hit) {
            return Seen::Buffered;
        }
        Seen::New
    }

    /// The store acknowledged these.
    pub fn acknowledge(&self, hits: &[Hit], now_ms: u64) {
        let mut raised = false;
        for hit in hits {
            raised |= self.acked.raise(*hit);
        }
        if raised {
            self.acked_at_ms.fetch_max(now_ms, Ordering::AcqRel);
        }
    }

    /// The store holds this sketch. True: it holds less than it once acknowledged to this process.
    pub fn compare(&self, stored: &Sketch) -> bool {
        let behind = !self.acked.snapshot().ahead_of(stored).is_empty();
        self.acked.merge(stored);
        behind
    }

    /// Takes a visit that the store did not acknowledge. Answers by how many bytes the cell grew.
    pub fn buffer(&self, hit: Hit, now_ms: i64) -> usize {
        let mut pending = self.lock();
        let grown = pending.raise(hit);
        pending.visits += 1;
        pending.last_visit_ms = pending.last_visit_ms.max(now_ms);
        self.has_pending.store(true, Ordering::Release);
        grown
    }

    /// How many bytes `buffer` may at most add for a new register.
    pub fn growth_bytes_max(&self, hit: Hit) -> usize {
        self.lock().waiting.as_ref().map_or_else(|| fresh_bytes(hit), |waiting| waiting.growth_bytes(hit))
    }

    /// Takes everything pending for a push; None if there is nothing, or a push is under way.
    pub fn begin_push(&self) -> Option<Taken> {
        let mut pending = self.lock();
        if pending.pushing.is_some() {
            return None;
        }
        let sketch = Arc::new(pending.waiting.take()?.snapshot());
        pending.pushing = Some(sketch.clone());
        Some(Taken { sketch, last_visit_ms: pending.last_visit_ms })
    }

    /// The push succeeded (or what it carried has no place any more). Answers how many bytes of the buffer are free again.
    pub fn end_push(&self, acknowledged: bool, now_ms: u64) -> usize {
        let mut pending = self.lock();
        let Some(pushed) = pending.pushing.take() else { return 0 };
        if acknowledged {
            self.acked.merge(&pushed);
            self.acked_at_ms.fetch_max(now_ms, Ordering::AcqRel);
        }
        let left = pending.waiting.as_ref().map_or(0, AtomicRegisters::bytes);
        if pending.waiting.is_none() {
            pending.visits = 0;
            self.has_pending.store(false, Ordering::Release);
        }
        let freed = pending.bytes.saturating_sub(left);
        pending.bytes = left;
        freed
    }

    /// The push failed: what it carried waits again. Answers by how many bytes the cell grew.
    pub fn abandon_push(&self) -> usize {
        let mut pending = self.lock();
        let Some(pushed) = pending.pushing.take() else { return 0 };
        let before = pending.bytes;
        let waiting = pending.waiting.get_or_insert_with(AtomicRegisters::new);
        waiting.merge(&pushed);
        let bytes = waiting.bytes();
        pending.bytes = before.max(bytes);
        pending.bytes - before
    }

    /// Registers the store acknowledged to this process, or was seen to hold.
    pub fn acknowledged(&self) -> Sketch {
        self.acked.snapshot()
    }

    pub fn acked_at_ms(&self) -> u64 {
        self.acked_at_ms.load(Ordering::Acquire)
    }

    /// Visits taken and not pushed.
    pub fn buffered_visits(&self) -> u64 {
        if self.has_pending.load(Ordering::Acquire) { self.lock().visits } else { 0 }
    }

    pub fn has_pending(&self) -> bool {
        self.has_pending.load(Ordering::Acquire)
    }

    /// Memory of the acknowledged registers.
    pub fn acked_bytes(&self) -> usize {
        size_of::<Self>() + self.acked.bytes()
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // A panic under this lock can only come from a failed allocation, which ends the process.
        self.pending.lock().expect("no panic while pending is locked")
    }
}

impl Pending {
    fn covers(&self, hit: Hit) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.get(hit.index) >= hit.rank)
            || self.pushing.as_ref().is_some_and(|pushing| pushing.get(hit.index) >= hit.rank)
    }

    fn raise(&mut self, hit: Hit) -> usize {
        let before = self.bytes;
        let waiting = self.waiting.get_or_insert_with(AtomicRegisters::new);
        waiting.raise(hit);
        // What is being pushed is charged until the push ends.
        self.bytes = self.bytes.max(waiting.bytes());
        self.bytes - before
    }
}

fn fresh_bytes(hit: Hit) -> usize {
    let fresh = AtomicRegisters::new();
    fresh.bytes() + fresh.growth_bytes(hit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::counter::{Counter, Subject};
    use crate::domain::id::EventId;
    use crate::domain::period::Period;
    use crate::domain::ring::Position;
    use crate::domain::sketch::hash::hit;

    fn cell() -> Cell {
        let counter =
            Counter { subject: Subject::Event(EventId::new("e").unwrap()), generation: 0, period: Period::All };
        Cell::new(SketchAddress { counter: Arc::new(counter), position: Position::FIRST }, Shards::DEFAULT)
    }

    #[test]
    fn buffered_is_not_stored_until_the_push_is_acknowledged() {
        let cell = cell();
        let one = hit(b"one");
        assert_eq!(cell.seen(one), Seen::New);
        cell.buffer(one, 5);
        assert_eq!(cell.seen(one), Seen::Buffered);
        let taken = cell.begin_push().unwrap();
        assert_eq!(taken.sketch.get(one.index), one.rank);
        assert_eq!(cell.seen(one), Seen::Buffered, "what is being pushed is still only buffered");
        cell.end_push(true, 1);
        assert_eq!(cell.seen(one), Seen::Stored);
        assert_eq!(cell.buffered_visits(), 0);
    }

    #[test]
    fn a_failed_push_loses_nothing_raised_before_or_meanwhile() {
        let cell = cell();
        let (one, two) = (hit(b"one"), hit(b"two"));
        cell.buffer(one, 5);
        let _taken = cell.begin_push().unwrap();
        cell.buffer(two, 6);
        assert!(cell.begin_push().is_none(), "one push at a time");
        cell.abandon_push();
        let again = cell.begin_push().unwrap();
        assert_eq!(again.sketch.get(one.index), one.rank);
        assert_eq!(again.sketch.get(two.index), two.rank);
        assert_eq!(again.last_visit_ms, 6);
    }

    #[test]
    fn visits_taken_during_a_push_stay_pending_after_it() {
        let cell = cell();
        let (one, two) = (hit(b"one"), hit(b"two"));
        let grown = cell.buffer(one, 5);
        cell.begin_push().unwrap();
        let more = cell.buffer(two, 6);
        let freed = cell.end_push(true, 1);
        assert_eq!(cell.seen(two), Seen::Buffered);
        cell.begin_push().unwrap();
        assert_eq!(freed + cell.end_push(true, 2), grown + more, "the buffer's account balances");
        assert_eq!(cell.seen(two), Seen::Stored);
    }

    #[test]
    fn a_store_that_lost_registers_is_noticed() {
        let cell = cell();
        cell.acknowledge(&[hit(b"one")], 7);
        assert!(cell.compare(&Sketch::new()));
        let mut stored = Sketch::new();
        stored.insert(b"one");
        stored.insert(b"two");
        assert!(!cell.compare(&stored));
        assert_eq!(cell.seen(hit(b"two")), Seen::Stored);
    }
}
