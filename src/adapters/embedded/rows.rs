//! The rows in memory: what is stored, what is live, and which of them a commit has yet to cover.
//!
//! A row's phases:
//!
//! ```text
//!            write                 snapshot for a commit              commit done
//!   Clean ─────────▶ Dirty ───────────────────────────▶ InFlight ───────────────▶ Clean
//!                      ▲            write meanwhile          │
//!                      └─────────────────────────────────────┤ or: commit failed
//! ```
//!
//! A key stands in the commit queue exactly once while its row is Dirty, so a hot row is written once per commit.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::format::{self, Key, NEVER_MS, Table};
use crate::domain::sketch::registers::Sketch;
use crate::domain::sketch::wire;
use crate::store::error::StoreError;

/// Locks for sketches and layouts: enough that two writers on two cores rarely meet, few enough to sweep.
const COUNTER_SHARDS: usize = 64;

/// Below this a row's sketch is sparse: it is not kept decoded, for that would take 16 kB instead of some hundred
/// bytes, and decoding it again at the next write takes a few microseconds.
const SPARSE_ROW_BYTES: usize = wire::SPARSE_BYTES_MAX;

/// One row.
#[derive(Default)]
pub struct Row {
    /// The value on disk: what readers see.
    pub stored: Option<Bytes>,
    live: Live,
    phase: Phase,
    /// Written since the last sweep; if not, a full sketch's decoded form is dropped too.
    warm: bool,
}

/// What the next commit will store.
#[derive(Default)]
enum Live {
    #[default]
    AsStored,
    Value(Bytes),
    /// Kept decoded while it is written often.
    Sketch {
        sketch: Sketch,
        expires_ms: i64,
    },
    Gone,
}

/// Where a row, or a pool, is between two commits.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    #[default]
    Clean,
    Dirty,
    InFlight,
}

impl Phase {
    /// What a caller that changed nothing must wait for.
    pub fn seen(self) -> Durability {
        if self == Phase::Clean { Durability::Stored } else { Durability::Awaited }
    }

    /// Something changed: what its author must do.
    pub fn dirtied(&mut self) -> Durability {
        let before = std::mem::replace(self, Phase::Dirty);
        if before == Phase::Dirty { Durability::Awaited } else { Durability::Queued }
    }

    /// A commit failed. True if what was in flight must be queued again (not where somebody has queued it meanwhile).
    pub fn unsettle(&mut self) -> bool {
        std::mem::replace(self, Phase::Dirty) == Phase::InFlight
    }
}

/// What a writer must do before it may answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The disk has all it saw.
    Stored,
    /// A commit on its way, or yet to be made, covers what it saw.
    Awaited,
    /// As `Awaited`, and the row must be put in the queue first.
    Queued,
}

impl Row {
    pub fn of_file(value: Bytes) -> Self {
        Self { stored: Some(value), ..Self::default() }
    }

    /// The value writers build on, of a row that is not a sketch.
    pub fn value(&self) -> Option<&Bytes> {
        match &self.live {
            Live::AsStored => self.stored.as_ref(),
            Live::Value(value) => Some(value),
            Live::Sketch { .. } | Live::Gone => None,
        }
    }

    /// Sets the value of a row that is not a sketch.
    pub fn set(&mut self, value: Bytes) -> Durability {
        self.live = Live::Value(value);
        self.dirtied()
    }

    /// Whether there is a value for writers to build on: not in a row just made, or about to go.
    fn exists(&self) -> bool {
        match self.live {
            Live::AsStored => self.stored.is_some(),
            Live::Value(_) | Live::Sketch { .. } => true,
            Live::Gone => false,
        }
    }

    /// When it goes, as writers see it; None where the stored bytes are none of ours.
    fn expires_ms(&self, table: Table) -> Option<i64> {
        match &self.live {
            Live::Sketch { expires_ms, .. } => Some(*expires_ms),
            Live::Gone => Some(NEVER_MS),
            Live::AsStored | Live::Value(_) => self.value().map_or(Some(NEVER_MS), |v| format::expiry_ms(table, v)),
        }
    }

    /// Removes the row; nothing to do where there is none.
    pub fn remove(&mut self) -> Durability {
        if self.exists() {
            self.live = Live::Gone;
            return self.dirtied();
        }
        self.seen()
    }

    /// Raises a sketch by `change`, which says whether anything grew. An expired sketch starts anew; one that would be
    /// past its expiry also after this write is removed.
    pub fn raise(
        &mut self,
        expires_ms: i64,
        now_ms: i64,
        change: impl FnOnce(&mut Sketch) -> bool,
    ) -> Result<Durability, wire::DecodeError> {
        let existed = self.exists() && self.expires_ms(Table::Sketches).is_none_or(|at| at > now_ms);
        let (mut sketch, standing_ms) = match std::mem::take(&mut self.live) {
            _ if !existed => (Sketch::new(), expires_ms),
            Live::Sketch { sketch, expires_ms } => (sketch, expires_ms),
            Live::AsStored | Live::Value(_) | Live::Gone => decoded(self.stored.as_ref())?,
        };
        let until_ms = format::longer(standing_ms, expires_ms);
        if until_ms <= now_ms {
            return Ok(self.remove());
        }
        let grew = change(&mut sketch);
        self.live = Live::Sketch { sketch, expires_ms: until_ms };
        self.warm = true;
        Ok(if grew || until_ms != standing_ms || !existed { self.dirtied() } else { self.seen() })
    }

    /// What a caller that changed nothing must wait for.
    pub fn seen(&self) -> Durability {
        self.phase.seen()
    }

    fn dirtied(&mut self) -> Durability {
        self.phase.dirtied()
    }

    /// The bytes to write, None to delete; the row is in flight until `settle`.
    pub fn snapshot(&mut self) -> Option<Bytes> {
        self.phase = Phase::InFlight;
        match &self.live {
            Live::AsStored => self.stored.clone(),
            Live::Value(value) => Some(value.clone()),
            Live::Sketch { sketch, expires_ms } => Some(format::sketch_value(*expires_ms, &wire::encode(sketch))),
            Live::Gone => None,
        }
    }

    /// A commit wrote `value`. True if nothing is left of the row.
    pub fn settle(&mut self, value: Option<Bytes>) -> bool {
        self.stored = value;
        if self.phase != Phase::InFlight {
            return false;
        }
        self.phase = Phase::Clean;
        let sparse = self.stored.as_ref().is_none_or(|value| value.len() < SPARSE_ROW_BYTES);
        if sparse || !matches!(self.live, Live::Sketch { .. }) {
            self.live = Live::AsStored;
        }
        self.stored.is_none() && matches!(self.live, Live::AsStored)
    }

    /// A commit failed. True if the row must be queued again (it is not where somebody wrote it meanwhile).
    pub fn unsettle(&mut self) -> bool {
        self.phase.unsettle()
    }

    /// Removes what has expired, drops what is cold.
    fn sweep(&mut self, table: Table, now_ms: i64) -> Durability {
        if self.exists() && self.expires_ms(table).is_some_and(|at| at <= now_ms) {
            return self.remove();
        }
        if self.phase == Phase::Clean && !std::mem::replace(&mut self.warm, false) {
            self.live = Live::AsStored;
        }
        self.seen()
    }
}

fn decoded(stored: Option<&Bytes>) -> Result<(Sketch, i64), wire::DecodeError> {
    let Some(value) = stored else { return Ok((Sketch::new(), NEVER_MS)) };
    let expires_ms = format::expiry_ms(Table::Sketches, value).unwrap_or(NEVER_MS);
    // Too short for its expiry: the empty rest is refused like any other foreign bytes.
    let blob = format::sketch_blob(value).unwrap_or_default();
    Ok((wire::decode(&blob)?, expires_ms))
}

/// All rows of the store.
pub struct Rows {
    counters: Vec<Mutex<Shard>>,
    /// Records and deployment rows: few, and listed in order.
    directory: Mutex<Shard>,
}

pub type Shard = BTreeMap<Key, Row>;

impl Rows {
    pub fn new(of_file: impl IntoIterator<Item = (Key, Bytes)>) -> Self {
        let counters = (0..COUNTER_SHARDS).map(|_| Mutex::default()).collect();
        let rows = Self { counters, directory: Mutex::default() };
        for (key, value) in of_file {
            rows.shard(&key).insert(key, Row::of_file(value));
        }
        rows
    }

    /// Locks the part that holds this row. Held for microseconds: never across an await or a commit.
    pub fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        match key.table {
            Table::Sketches | Table::Layouts => {
                let mut hasher = DefaultHasher::new();
                key.text.hash(&mut hasher);
                lock(&self.counters[hasher.finish() as usize % COUNTER_SHARDS])
            }
            // Parts of pools are never here: `batch.rs` keeps them apart.
            Table::Records | Table::Deployment | Table::Pools | Table::Claims | Table::Packets | Table::PoolLog => {
                self.directory()
            }
        }
    }

    pub fn directory(&self) -> MutexGuard<'_, Shard> {
        lock(&self.directory)
    }

    /// The stored value of a row that has not expired. Corrupt where it is too short to carry its expiry.
    pub fn stored(&self, key: &Key, now_ms: i64) -> Result<Option<Bytes>, StoreError> {
        let Some(value) = self.shard(key).get(key).and_then(|row| row.stored.clone()) else { return Ok(None) };
        match format::expiry_ms(key.table, &value) {
            None => Err(corrupt(key, "too short for its expiry")),
            Some(at) => Ok((at > now_ms).then_some(value)),
        }
    }

    /// Marks expired rows for removal and answers their keys, which the caller must queue.
    pub fn sweep(&self, now_ms: i64) -> Vec<Key> {
        let mut queued = Vec::new();
        for shard in &self.counters {
            for (key, row) in lock(shard).iter_mut() {
                if row.sweep(key.table, now_ms) == Durability::Queued {
                    queued.push(key.clone());
                }
            }
        }
        queued
    }
}

pub fn corrupt(key: &Key, why: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("row {}: {why}", key.describe()))
}

/// A poisoned lock is taken all the same: every change of a row under it is complete once begun, or a panic in a
/// caller's closure left a sketch that is only partly raised, which is a sketch as good as any.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
