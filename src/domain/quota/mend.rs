//! Putting a pool right that has lost something: it is emptied and filled anew from what is known, while the campaign's
//! other pools keep still (docs/FAULTS.md A10; who works out what it gets: `domain/quota/rebuild.rs`).
//!
//! ```text
//! healthy pools    Freeze ─────────────── (Freeze again, longer) ─────────────── Thaw
//! lost pools                 Empty ── Fill part 1 ── Fill part 2 … ── Reopen
//! ```
//!
//! A lost pool serves nobody before `Reopen`; whoever mends it and dies leaves it fenced, and the next one begins with
//! `Empty` again. A frozen pool thaws by itself when its time is over.

use super::claim::{ClaimRecord, ClaimState, UserKey};
use super::pool::Pool;
use super::terms::{PoolRules, PoolSchedule, PoolStatus};
use super::unit::Unit;

/// Parcels that a lost pool sent carry its server's time as their number. Those up to so much in the future of this
/// server's clock are not taken in any more after a freeze: clocks of one store's servers differ by less.
pub const CLOCKS_DIFFER_US: i64 = 10_000_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mend {
    /// The pool keeps still for so long: only `Look`, `Collect` and mending are served. What these lost pools sent, and
    /// has not come in yet, will not come in any more: its units are given out anew.
    Freeze { for_ms: i64, lost: Vec<u16> },
    /// Ends a freeze.
    Thaw,
    /// Stops the pool for everybody until it is rebuilt.
    Fence,
    /// Makes a pool that is fenced or missing an empty one, still fenced.
    Empty(Box<Blank>),
    /// Gives an emptied pool its content, part by part, numbered from 1.
    Fill { mender: u64, part: u64, claims: Vec<(UserKey, ClaimRecord)>, stock: Vec<Unit>, retired: Vec<Unit> },
    /// The pool is whole, and serves again.
    Reopen { mender: u64 },
}

/// What a rebuilt pool begins with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blank {
    /// Who rebuilds it: a random number, so that two at once do not mix their parts. Below 2^53.
    pub mender: u64,
    pub rules: PoolRules,
    pub schedule: PoolSchedule,
    pub status: PoolStatus,
    /// Above any that anybody knows, so that what processes know of the lost pool means nothing for this one.
    pub incarnation: u64,
    pub ver: u64,
    /// At least the numbers that other pools have been told not to take in.
    pub seq: u64,
    /// Units refunded so far, and what they hold.
    pub refunded: u64,
    pub refunded_cents: i64,
    /// By donor, the number up to which parcels are to be taken for ones that came in.
    pub came: Vec<(u16, u64)>,
}

impl Mend {
    /// Users or units it brings.
    pub fn size(&self) -> usize {
        match self {
            Mend::Fill { claims, stock, retired, .. } => claims.len() + stock.len() + retired.len(),
            _ => 0,
        }
    }

    /// The word in logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Mend::Freeze { .. } => "freeze",
            Mend::Thaw => "thaw",
            Mend::Fence => "fence",
            Mend::Empty(_) => "empty",
            Mend::Fill { .. } => "fill",
            Mend::Reopen { .. } => "reopen",
        }
    }
}

impl Pool {
    /// An emptied pool: fenced until it is filled and reopened.
    pub(super) fn blank(blank: &Blank, run: &str) -> Self {
        let Blank { mender, rules, schedule, status, incarnation, ver, seq, refunded, refunded_cents, came } = blank;
        Self {
            fenced: true,
            mender: *mender,
            status: *status,
            incarnation: *incarnation,
            ver: *ver,
            seq: *seq,
            refunded: *refunded,
            refunded_cents: *refunded_cents,
            came: came.iter().map(|(donor, seq)| (*donor, (*seq, 0))).collect(),
            ..Self::new(*rules, *schedule, run)
        }
    }

    /// Whether it is done; None: the pool is fenced, and should not be.
    pub(super) fn mend(&mut self, now_us: i64, run: &str, mend: Mend) -> Option<bool> {
        match mend {
            Mend::Freeze { .. } | Mend::Thaw if self.fenced => return None,
            Mend::Freeze { for_ms, lost } => self.freeze(now_us, for_ms, &lost),
            Mend::Thaw => self.frozen_until_ms = 0,
            Mend::Fence => self.fenced = true,
            Mend::Empty(_) if !self.fenced => return Some(false),
            Mend::Empty(blank) => {
                // What the ledger has not read yet stays; `sver` rises, so that nobody takes this for what it was.
                let (log, sver) = (std::mem::take(&mut self.log), self.sver);
                *self = Self { log, sver: sver + 1, ..Self::blank(&blank, run) };
            }
            Mend::Fill { mender, part, claims, stock, retired } => {
                if self.mender != mender || mender == 0 || part > self.mended + 1 {
                    return Some(false);
                }
                if part == self.mended + 1 {
                    self.fill(part, claims, stock, retired);
                }
            }
            Mend::Reopen { mender } => {
                if self.mender != mender || mender == 0 {
                    return Some(!self.fenced && self.mender == 0);
                }
                (self.fenced, self.seen, self.mender, self.mended) = (false, 0, 0, 0);
                self.changed(true);
            }
        }
        Some(true)
    }

    fn freeze(&mut self, now_us: i64, for_ms: i64, lost: &[u16]) {
        self.frozen_until_ms = self.frozen_until_ms.max(now_us / 1000 + for_ms);
        let burnt = u64::try_from(now_us + CLOCKS_DIFFER_US).unwrap_or(0);
        for donor in lost {
            let came = self.came.entry(*donor).or_default();
            if came.0 < burnt {
                *came = (burnt, 0);
            }
        }
    }

    fn fill(&mut self, part: u64, claims: Vec<(UserKey, ClaimRecord)>, stock: Vec<Unit>, retired: Vec<Unit>) {
        self.mended = part;
        for (user, record) in claims {
            match record.state {
                ClaimState::Held => drop(self.deadlines.insert((record.deadline_ms, user))),
                ClaimState::Confirmed => self.confirmed += 1,
                ClaimState::Released | ClaimState::Expired | ClaimState::Voided => {}
            }
            if record.state.is_live() {
                self.taken_cents += record.unit.cents.unwrap_or(0);
            }
            self.claims.insert(user, record);
        }
        self.avail.extend(stock);
        self.retired.extend(retired);
    }
}
