//! Pools in memory: each whole behind a lock of its own, with what the next commit must write of it.
//!
//! A pool is more than one row, and half of a step must never be on disk. So all that a step changed (the head, some
//! claims, entries of the outbox) is taken for a commit at once, under the pool's lock, and its phases (`rows.rs`) are
//! those of the pool as a whole. Of claims only the changed ones are written; entries leave memory once they are.
//!
//! The head is written whole with every commit of its pool. That is a few hundred bytes while units go out in order, and
//! some 10 bytes for each run of numbers where they came back in disorder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use super::format::{Key, Table};
use super::pool_head::{self, GOING};
use super::rows::{Durability, Phase, corrupt, lock};
use crate::domain::quota::claim::{ClaimRecord, UserKey};
use crate::domain::quota::marks::Floor;
use crate::domain::quota::pool::Pool;
use crate::domain::quota::step::{Answer, Step, Stepped};
use crate::store::error::StoreError;

/// The server that serves all pools. Always the same: what this store answered is on disk, so that a pool never needs to
/// hear what callers know before it serves again.
pub const RUN: &str = "embedded";

/// A pool and its lock. Held for a step or for taking what a commit writes: never across an await or a commit.
pub struct PoolCell {
    /// As in the keys of its rows.
    pub text: Box<str>,
    state: Mutex<PoolState>,
}

impl PoolCell {
    pub fn lock(&self) -> MutexGuard<'_, PoolState> {
        lock(&self.state)
    }
}

pub struct PoolState {
    /// None: there is none, or it is going.
    pub pool: Option<Pool>,
    /// Its rows are still being deleted.
    going: bool,
    /// Why it cannot be served: foreign bytes in the file, or a step that panicked half way.
    fault: Option<String>,
    phase: Phase,
    /// What changed since the last commit took it.
    fresh: Changes,
    /// What the commit on its way writes, in case it fails.
    flight: Changes,
    log_next: u64,
}

#[derive(Default)]
struct Changes {
    claims: BTreeSet<UserKey>,
    entries: Vec<(u64, Bytes)>,
}

/// What a commit must do for a pool.
pub enum Taken {
    /// Write these rows; delete the pool's other ones, if it is going.
    Rows { going: bool },
    /// Nothing, ever again: whoever waits for it must be told.
    Broken(StoreError),
}

impl PoolState {
    fn new(pool: Option<Pool>, log_next: u64) -> Self {
        let (fresh, flight) = (Changes::default(), Changes::default());
        Self { pool, going: false, fault: None, phase: Phase::Clean, fresh, flight, log_next }
    }

    fn broken(fault: String) -> Self {
        Self { fault: Some(fault), ..Self::new(None, 0) }
    }

    /// Takes a step; answers too what there is to wait for. `text` is the cell's.
    pub fn step(
        &mut self,
        text: &str,
        now_us: i64,
        floor: Floor,
        step: Step,
    ) -> Result<(Stepped, Durability), StoreError> {
        self.sound(text)?;
        if self.going {
            // A new pool must not find the old one's claims.
            return match step {
                Step::Create { .. } => Err(StoreError::Unavailable("the pool is still being removed".to_owned())),
                _ => Ok((Stepped { now_us, at: Floor::default(), answer: Answer::Absent }, self.seen())),
            };
        }
        let before = self.pool.as_ref().map(outline);
        // Stands if the step panics: a pool that is changed by half is never written, and never served again.
        self.fault = Some("a step panicked half way; start the program again".to_owned());
        let stepped = Pool::step(&mut self.pool, now_us, floor, RUN, step);
        self.note();
        self.fault = None;
        let changed = before != self.pool.as_ref().map(outline);
        Ok((stepped, if changed { self.phase.dirtied() } else { self.seen() }))
    }

    /// Takes the pool's outbox; every change of a claim is in it.
    fn note(&mut self) {
        let Some(pool) = &mut self.pool else { return };
        for entry in std::mem::take(&mut pool.log) {
            self.fresh.claims.extend(entry.user);
            self.fresh.entries.push((self.log_next, pool_head::entry_value(pool.incarnation, &entry)));
            self.log_next += 1;
        }
    }

    pub fn sound(&self, text: &str) -> Result<(), StoreError> {
        self.fault.as_ref().map_or(Ok(()), |fault| Err(corrupt(&Key::pool(text), fault)))
    }

    pub fn seen(&self) -> Durability {
        self.phase.seen()
    }

    /// How many entries wait for a commit to take them.
    pub fn entries(&self) -> usize {
        self.fresh.entries.len()
    }

    /// Begins to remove the pool, unless there is none or it is going already.
    pub fn doom(&mut self) -> Durability {
        if self.going || (self.pool.is_none() && self.fault.is_none()) {
            return self.seen();
        }
        (self.pool, self.fault, self.going) = (None, None, true);
        self.phase.dirtied()
    }

    /// Nothing is left of a pool that was doomed. Until then there is always a commit to wait for.
    pub fn is_gone(&self) -> bool {
        !self.going
    }

    /// Adds the rows to write to `rows`; the pool is in flight until `settle` or `unsettle`.
    pub fn take(&mut self, text: &str, rows: &mut Vec<(Key, Option<Bytes>)>) -> Taken {
        if let Err(error) = self.sound(text) {
            return Taken::Broken(error);
        }
        self.phase = Phase::InFlight;
        self.flight = std::mem::take(&mut self.fresh);
        if self.going {
            rows.push((Key::pool(text), Some(Bytes::from_static(GOING))));
        } else if let Some(pool) = &self.pool {
            rows.push((Key::pool(text), Some(pool_head::head_value(pool, self.log_next))));
            let claim = |user: &UserKey| Some((Key::claim(text, *user), pool.claims.get(user)?.to_string()));
            let claims = self.flight.claims.iter().filter_map(claim);
            rows.extend(claims.map(|(key, text)| (key, Some(Bytes::from(text)))));
            let entries = self.flight.entries.iter();
            rows.extend(entries.map(|(index, value)| (Key::pool_log(text, *index), Some(value.clone()))));
        }
        Taken::Rows { going: self.going }
    }

    /// A commit wrote what was taken; `gone`: it also deleted the last of the pool's rows. Answers how many entries it
    /// wrote, and whether the pool must be queued again.
    pub fn settle(&mut self, gone: bool) -> (usize, bool) {
        let written = std::mem::take(&mut self.flight).entries.len();
        if gone && self.going {
            (self.going, self.log_next) = (false, 0);
        }
        if self.phase == Phase::InFlight {
            self.phase = Phase::Clean;
        }
        let again = self.going && self.phase.dirtied() == Durability::Queued;
        (written, again)
    }

    /// A commit failed: what was in flight is to be written again. Answers whether the pool must be queued.
    pub fn unsettle(&mut self) -> bool {
        let since = std::mem::replace(&mut self.fresh, std::mem::take(&mut self.flight));
        self.fresh.claims.extend(since.claims);
        self.fresh.entries.extend(since.entries);
        self.phase.unsettle()
    }
}

/// Tells whether a step changed anything. Versions alone do not: also units that became ready, and a stop, are changes.
fn outline(pool: &Pool) -> impl PartialEq + use<> {
    let stop = (pool.fenced, pool.seen, pool.admitting_until_ms);
    (pool.incarnation, pool.ver, stop, pool.avail.len(), pool.cooling.len())
}

/// All pools.
pub struct PoolCells {
    cells: Mutex<HashMap<Box<str>, Arc<PoolCell>>>,
}

impl PoolCells {
    /// The pools of a file, from their heads and claims. One that does not fit together is broken; the others are served.
    pub fn new(of_file: impl IntoIterator<Item = (Key, Bytes)>) -> Self {
        let mut heads = BTreeMap::new();
        let mut claims: HashMap<Box<str>, Result<BTreeMap<UserKey, ClaimRecord>, String>> = HashMap::new();
        for (key, value) in of_file {
            if key.table == Table::Pools {
                heads.insert(key.text, value);
            } else if let Some((pool, user)) = key.claim_parts() {
                let record = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
                let of_pool = claims.entry(pool.into()).or_insert_with(|| Ok(BTreeMap::new()));
                match (of_pool, record) {
                    (Ok(of_pool), Some(record)) => drop(of_pool.insert(user, record)),
                    (of_pool, None) => *of_pool = Err(format!("{}: not a claim", key.describe())),
                    (Err(_), Some(_)) => {}
                }
            } else {
                tracing::error!(row = key.describe(), "a claim of nobody: not a row of this program");
            }
        }
        let whole = |(text, value): (Box<str>, Bytes)| {
            let claims = claims.remove(&text).unwrap_or_else(|| Ok(BTreeMap::new()));
            let state = state_of(&value, claims);
            (text, state)
        };
        let mut states: Vec<(Box<str>, PoolState)> = heads.into_iter().map(whole).collect();
        // Not absent: what is lost must not be filled anew.
        let headless = |text| (text, PoolState::broken("claims without a head".to_owned()));
        states.extend(claims.into_keys().map(headless));
        let cell = |(text, state): (Box<str>, PoolState)| {
            if let Some(fault) = &state.fault {
                tracing::error!(
                    pool = Key::pool(&text).describe(),
                    fault,
                    "a pool of the embedded store cannot be served"
                );
            }
            (text.clone(), Arc::new(PoolCell { text, state: Mutex::new(state) }))
        };
        Self { cells: Mutex::new(states.into_iter().map(cell).collect()) }
    }

    pub fn get(&self, text: &str) -> Option<Arc<PoolCell>> {
        lock(&self.cells).get(text).cloned()
    }

    /// The pool's cell, made if there is none.
    pub fn create(&self, text: Box<str>) -> Arc<PoolCell> {
        let new = || Arc::new(PoolCell { text: text.clone(), state: Mutex::new(PoolState::new(None, 0)) });
        lock(&self.cells).entry(text.clone()).or_insert_with(new).clone()
    }

    /// Pools whose removal did not come to its end before the program did.
    pub fn going(&self) -> Vec<Arc<PoolCell>> {
        let cells = lock(&self.cells);
        cells.values().filter(|cell| cell.lock().phase != Phase::Clean).cloned().collect()
    }

    /// Drops the cell of a pool that is gone, unless somebody else has it in hand.
    pub fn forget(&self, cell: &Arc<PoolCell>) {
        let mut cells = lock(&self.cells);
        let state = cell.lock();
        let empty = state.pool.is_none() && !state.going && state.phase == Phase::Clean;
        // Handles are only given out under the lock of the map: nobody can take one meanwhile. Two are its and ours.
        if empty && state.fault.is_none() && Arc::strong_count(cell) == 2 {
            cells.remove(&cell.text);
        }
    }
}

fn state_of(value: &Bytes, claims: Result<BTreeMap<UserKey, ClaimRecord>, String>) -> PoolState {
    if value == GOING {
        return PoolState { going: true, phase: Phase::Dirty, ..PoolState::new(None, 0) };
    }
    match claims.and_then(|claims| pool_head::pool_of(value, claims)) {
        Ok((pool, log_next)) => PoolState::new(Some(pool), log_next),
        Err(fault) => PoolState::broken(fault),
    }
}
