//! The filter: the cells of the counters that are being visited, bounded by memory.
//!
//! Evicting a cell costs a command per user the next time, never a visit: what is pending is pinned elsewhere
//! (`buffer.rs`). The cache weighs an entry when it is put in, so a counter that has grown is put in again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use moka::sync::Cache;
use tokio::time::Instant;

use super::cell::Cell;
use crate::domain::counter::{Counter, SketchAddress};
use crate::domain::period::{Period, Retention};
use crate::domain::ring::{Position, Shards};

/// How often a counter that is written is weighed again.
const WEIGH_INTERVAL_MS: u64 = 1_000;

/// How often a process that writes a counter notes its shard count again: a note lost in a failover is missing so long.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

/// Names a counter's cells without its text: `owner` is the serial number of the event's or campaign's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CellsKey {
    pub owner: u64,
    pub generation: u64,
    pub period: Period,
    pub shards: Shards,
    pub retention_days: u32,
}

impl CellsKey {
    pub fn new(owner: u64, generation: u64, period: Period, shards: Shards, retention: Retention) -> Self {
        Self { owner, generation, period, shards, retention_days: retention.get() }
    }
}

/// The cells of one counter, one per shard, made when first needed.
pub struct CounterCells {
    pub key: CellsKey,
    pub counter: Arc<Counter>,
    pub shards: Shards,
    pub expires_at: Option<Timestamp>,
    cells: Box<[OnceLock<Arc<Cell>>]>,
    noted: Mutex<Option<Noted>>,
    weighed_bytes: AtomicUsize,
    weighed_at_ms: AtomicU64,
}

/// When this process last noted its shard count for a counter, and after which change of the store.
#[derive(Clone, Copy)]
struct Noted {
    at: Instant,
    change: u64,
}

/// How far a note of the layout is out of date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoteState {
    /// Nothing may be written before it is noted.
    Never,
    /// To be noted again, but writes may go on if that fails.
    Due,
    Current,
}

impl CounterCells {
    fn new(key: CellsKey, counter: Counter, expires_at: Option<Timestamp>) -> Self {
        Self {
            key,
            counter: Arc::new(counter),
            shards: key.shards,
            expires_at,
            cells: (0..key.shards.count()).map(|_| OnceLock::new()).collect(),
            noted: Mutex::new(None),
            weighed_bytes: AtomicUsize::new(0),
            weighed_at_ms: AtomicU64::new(0),
        }
    }

    /// The cell that owns a point of the ring.
    pub fn at(&self, point: u64) -> &Arc<Cell> {
        self.cells[self.shards.index_of(point)].get_or_init(|| {
            let position = self.shards.position_of(point);
            Arc::new(Cell::new(SketchAddress { counter: self.counter.clone(), position }, self.shards))
        })
    }

    /// The cell that starts at a position, if it has been made.
    pub fn made_at(&self, position: Position) -> Option<&Arc<Cell>> {
        self.cells[self.shards.shard_at(position)].get().filter(|cell| cell.address.position == position)
    }

    /// The cells that have been made.
    pub fn made(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.cells.iter().filter_map(OnceLock::get)
    }

    /// Whether this process must note its shard count before it writes (docs/FAULTS.md B6: again every second while it
    /// writes, and after every change of the store). Whoever is told `Due` notes for all.
    pub fn note_state(&self, change: u64) -> NoteState {
        let mut noted = self.lock_noted();
        match &mut *noted {
            None => NoteState::Never,
            Some(last) if last.change != change || last.at.elapsed() > NOTE_INTERVAL => {
                *last = Noted { at: Instant::now(), change };
                NoteState::Due
            }
            Some(_) => NoteState::Current,
        }
    }

    pub fn mark_noted(&self, change: u64) {
        *self.lock_noted() = Some(Noted { at: Instant::now(), change });
    }

    fn bytes(&self) -> usize {
        let made: usize = self.made().map(|cell| cell.acked_bytes()).sum();
        made + size_of::<Self>() + self.cells.len() * size_of::<OnceLock<Arc<Cell>>>()
    }

    fn lock_noted(&self) -> std::sync::MutexGuard<'_, Option<Noted>> {
        // Nothing under this lock can panic.
        self.noted.lock().expect("nothing panics while the note is locked")
    }
}

/// All counters' cells.
pub struct CellCache {
    cache: Cache<CellsKey, Arc<CounterCells>>,
    started: Instant,
}

impl CellCache {
    pub fn new(limit_bytes: usize) -> Self {
        let cache = Cache::builder()
            .weigher(|_, cells: &Arc<CounterCells>| {
                u32::try_from(cells.weighed_bytes.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
            })
            .max_capacity(limit_bytes as u64)
            .build();
        Self { cache, started: Instant::now() }
    }

    /// The cells of a counter; `make` gives the counter and its expiry where they are not known yet.
    pub fn get(&self, key: CellsKey, make: impl FnOnce() -> (Counter, Option<Timestamp>)) -> Arc<CounterCells> {
        if let Some(known) = self.cache.get(&key) {
            return known;
        }
        self.cache.get_with(key, || {
            let (counter, expires_at) = make();
            let cells = CounterCells::new(key, counter, expires_at);
            cells.weighed_bytes.store(cells.bytes(), Ordering::Relaxed);
            Arc::new(cells)
        })
    }

    pub fn find(&self, key: &CellsKey) -> Option<Arc<CounterCells>> {
        self.cache.get(key)
    }

    /// Every counter's cells.
    pub fn all(&self) -> Vec<Arc<CounterCells>> {
        self.cache.iter().map(|(_, cells)| cells).collect()
    }

    /// Puts a counter in again if it has outgrown what it was weighed at.
    pub fn reweigh(&self, cells: &Arc<CounterCells>) {
        let now_ms = self.now_ms();
        let last_ms = cells.weighed_at_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(last_ms) < WEIGH_INTERVAL_MS {
            return;
        }
        cells.weighed_at_ms.store(now_ms, Ordering::Relaxed);
        let bytes = cells.bytes();
        if bytes > cells.weighed_bytes.swap(bytes, Ordering::Relaxed) {
            self.cache.insert(cells.key, cells.clone());
        }
    }

    /// Milliseconds since the process started, plus one: the clock of cells, on which 0 is never.
    pub fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 1
    }
}
