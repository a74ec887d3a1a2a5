//! Pools in memory: each whole behind a lock of its own, with what the next commit must write of it.
//!
//! A pool is more than one row, and half of a step must never be on disk. So all that a step changed (the head, some
//! claims, entries of the outbox) is taken for a commit at once, under the pool's lock, and its phases (`rows.rs`) are
//! those of the pool as a whole. Of claims only the changed ones are written; entries leave memory once they are.
//!
//! The head is written whole with every commit of its pool. That is a few hundred bytes while units go out in order, and
//! some 10 bytes for each run of numbers where they came back in disorder. What packets hold is written once, when they
//! come in.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use super::format::{self, Key, Table};
use super::pool_changes::{Brought, Changes, is_taken};
use super::pool_head::{self, GOING};
use super::pool_log::{self, Log};
use super::pool_runs::Amounts;
use super::rows::{Durability, Phase, corrupt, lock};
use crate::domain::quota::claim::{ClaimRecord, UserKey};
use crate::domain::quota::marks::Floor;
use crate::domain::quota::mend::Mend;
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
    log: Log,
}

/// What a commit must do for a pool.
pub enum Taken {
    /// Write these rows.
    Rows,
    /// As `Rows`, and delete the pool's rows of claims and packets before: it was emptied.
    Emptied,
    /// As `Rows`, and delete some of the pool's other rows.
    Going,
    /// Nothing, ever again: whoever waits for it must be told.
    Broken(StoreError),
}

impl PoolState {
    fn new(pool: Option<Pool>, log: Log) -> Self {
        let (fresh, flight) = (Changes::default(), Changes::default());
        Self { pool, going: false, fault: None, phase: Phase::Clean, fresh, flight, log }
    }

    fn broken(fault: String) -> Self {
        Self { fault: Some(fault), ..Self::new(None, Log::default()) }
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
                Step::Create { .. } | Step::Mend(Mend::Empty(_)) => {
                    Err(StoreError::Unavailable("the pool is still being removed".to_owned()))
                }
                _ => Ok((Stepped { now_us, at: Floor::default(), answer: Answer::Absent }, self.seen())),
            };
        }
        let before = self.pool.as_ref().map(outline);
        let (brought, mends) = (Brought::by(&step), matches!(step, Step::Mend(_)));
        // Stands if the step panics: a pool that is changed by half is never written, and never served again.
        self.fault = Some("a step panicked half way; start the program again".to_owned());
        let stepped = Pool::step(&mut self.pool, now_us, floor, RUN, step);
        if before.is_none() && self.pool.is_some() {
            self.log = Log::begin(now_us);
        }
        let taken = is_taken(&stepped.answer);
        if taken {
            self.fresh.bring(brought);
        }
        self.note(stepped.now_ms());
        self.fault = None;
        let changed = before != self.pool.as_ref().map(outline) || (mends && taken);
        Ok((stepped, if changed { self.phase.dirtied() } else { self.seen() }))
    }

    /// Takes the pool's outbox; every change of a claim is in it, but for those of mending.
    fn note(&mut self, now_ms: i64) {
        let Some(pool) = &mut self.pool else { return };
        for entry in std::mem::take(&mut pool.log) {
            self.fresh.claims.extend(entry.user);
            self.fresh.entries.push((self.log.append(), pool_log::entry_value(pool.incarnation, now_ms, entry)));
        }
    }

    /// The reader of the outbox needs these no more.
    pub fn acknowledge(&mut self, entries: &[u64]) -> Durability {
        if self.going {
            return self.seen();
        }
        let before = self.fresh.acknowledged.len();
        let kept = entries.iter().filter(|index| self.log.acknowledge(**index));
        self.fresh.acknowledged.extend(kept);
        if self.fresh.acknowledged.len() > before { self.phase.dirtied() } else { self.seen() }
    }

    /// Writes entries anew that are on disk, unless they are acknowledged meanwhile. Answers how many.
    pub fn rewrite(&mut self, entries: Vec<(u64, Bytes)>) -> (u64, Durability) {
        let before = self.fresh.entries.len();
        let kept = entries.into_iter().filter(|(index, _)| !self.going && self.log.keeps(*index));
        self.fresh.entries.extend(kept);
        let count = self.fresh.entries.len() - before;
        (count as u64, if count > 0 { self.phase.dirtied() } else { self.seen() })
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
            rows.push((Key::pool(text), Some(pool_head::head_value(pool, &self.log))));
            rows.extend(self.flight.rows(text, &pool.claims));
        }
        match self.going {
            true => Taken::Going,
            false if self.flight.emptied => Taken::Emptied,
            false => Taken::Rows,
        }
    }

    /// A commit wrote what was taken; `gone`: it also deleted the last of the pool's rows. Answers how many entries it
    /// wrote, and whether the pool must be queued again.
    pub fn settle(&mut self, gone: bool) -> (usize, bool) {
        let written = std::mem::take(&mut self.flight).entries.len();
        if gone && self.going {
            (self.going, self.log) = (false, Log::default());
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
        self.fresh.follow(since);
        self.phase.unsettle()
    }
}

/// Tells whether a step changed anything. Versions alone do not: also units that became ready, and a stop, are changes.
/// Mending is not told by this.
fn outline(pool: &Pool) -> impl PartialEq + use<> {
    let stop = (pool.fenced, pool.seen, pool.admitting_until_ms);
    (pool.incarnation, pool.ver, stop, pool.avail.len(), pool.cooling.len())
}

/// All pools.
pub struct PoolCells {
    cells: Mutex<HashMap<Box<str>, Arc<PoolCell>>>,
}

impl PoolCells {
    /// The pools of a file, from their rows. One that does not fit together is broken; the others are served.
    pub fn new(of_file: impl IntoIterator<Item = (Key, Bytes)>) -> Self {
        let mut heads = BTreeMap::new();
        let mut parts: HashMap<Box<str>, Result<Parts, String>> = HashMap::new();
        for (key, value) in of_file {
            if key.table == Table::Pools {
                heads.insert(key.text, value);
                continue;
            }
            let Some(pool) = Parts::pool_of(&key) else {
                tracing::error!(row = key.describe(), "a claim or packet of nobody: not a row of this program");
                continue;
            };
            let of_pool = parts.entry(pool.into()).or_insert_with(|| Ok(Parts::default()));
            if of_pool.as_mut().is_ok_and(|parts| parts.add(&key, &value).is_none()) {
                *of_pool = Err(format!("{}: not a claim, or not an amount", key.describe()));
            }
        }
        let whole = |(text, value): (Box<str>, Bytes)| {
            let state = state_of(&value, parts.remove(&text).unwrap_or_else(|| Ok(Parts::default())));
            (text, state)
        };
        let mut states: Vec<(Box<str>, PoolState)> = heads.into_iter().map(whole).collect();
        // Not absent: what is lost must not be filled anew.
        let headless = |text| (text, PoolState::broken("claims or packets without a head".to_owned()));
        states.extend(parts.into_keys().map(headless));
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
        let new = || Arc::new(PoolCell { text: text.clone(), state: Mutex::new(PoolState::new(None, Log::default())) });
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

/// What stands in a pool's rows besides its head and its outbox.
#[derive(Default)]
struct Parts {
    claims: BTreeMap<UserKey, ClaimRecord>,
    amounts: Amounts,
}

impl Parts {
    /// Whose row it is; None where it is none of these.
    fn pool_of(key: &Key) -> Option<&str> {
        let claim = key.claim_parts().map(|(pool, _)| pool);
        claim.or_else(|| key.packet_parts().map(|(pool, _)| pool))
    }

    /// None: the bytes are foreign.
    fn add(&mut self, key: &Key, value: &Bytes) -> Option<()> {
        if let Some((_, user)) = key.claim_parts() {
            self.claims.insert(user, std::str::from_utf8(value).ok()?.parse().ok()?);
        } else if let Some((_, number)) = key.packet_parts() {
            self.amounts.insert(number, format::amount_of(value)?);
        }
        Some(())
    }
}

fn state_of(value: &Bytes, parts: Result<Parts, String>) -> PoolState {
    if value == GOING {
        return PoolState { going: true, phase: Phase::Dirty, ..PoolState::new(None, Log::default()) };
    }
    match parts.and_then(|parts| pool_head::pool_of(value, parts.claims, &parts.amounts)) {
        Ok((pool, log)) => PoolState::new(Some(pool), log),
        Err(fault) => PoolState::broken(fault),
    }
}
