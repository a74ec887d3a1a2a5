//! A pool: what one shard of a campaign keeps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use twox_hash::XxHash3_64;

use super::claim::{ClaimRecord, UserKey};
use super::marks::{OpMark, Parcel, STEP_MAX};
use super::terms::{PoolRules, PoolSchedule, PoolStatus};
use super::unit::{Cooling, Unit, joined};

/// A pool with more than this keeps half of its stock when another one asks.
pub const GENEROUS_UP_TO: usize = 64;

/// One shard of a campaign.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    pub rules: PoolRules,
    pub schedule: PoolSchedule,
    pub status: PoolStatus,
    pub fenced: bool,
    /// The highest floor that callers knew, where it is above `ver`.
    pub seen: u64,
    /// The server that served last.
    pub run: String,
    pub admitting_until_ms: i64,
    /// Nothing but looking is done to it before.
    pub frozen_until_ms: i64,
    /// Who rebuilds the pool, and how many parts it has been given; 0: nobody.
    pub mender: u64,
    pub mended: u64,
    /// Raised when a pool that lost something is reconciled.
    pub incarnation: u64,
    /// Raised by every change.
    pub ver: u64,
    /// Raised when stock may appear or vanish: confirmations do not count (docs/FAULTS.md A12).
    pub sver: u64,
    /// The number of the last parcel sent.
    pub seq: u64,
    pub avail: VecDeque<Unit>,
    pub cooling: BTreeSet<Cooling>,
    pub retired: VecDeque<Unit>,
    pub refunded: u64,
    /// What refunded packets hold.
    pub refunded_cents: i64,
    pub claims: BTreeMap<UserKey, ClaimRecord>,
    /// Of claims that are held.
    pub deadlines: BTreeSet<(i64, UserKey)>,
    pub confirmed: u64,
    /// What packets of live claims hold.
    pub taken_cents: i64,
    /// Parcels on their way, by the shard they go to.
    pub out: BTreeMap<u16, Parcel>,
    /// The last parcel of each donor that came in: number and digest.
    pub came: BTreeMap<u16, (u64, u64)>,
    pub op: OpMark,
    /// Units taken by the last chunk, and by all chunks of its operation.
    pub op_chunk: u32,
    pub op_total: u64,
    /// Entries of the outbox that these steps made; whoever keeps the pool takes them.
    pub log: Vec<LogEntry>,
}

/// An entry of the outbox: what the ledger must learn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    pub ver: u64,
    pub kind: LogKind,
    pub user: Option<UserKey>,
    /// Of grants.
    pub user_raw: Option<String>,
    /// The claim's record after the change; the unit of a refund.
    pub text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogKind {
    Grant,
    Confirm,
    Release,
    Expire,
    Void,
    Refund,
}

impl LogKind {
    const ALL: [LogKind; 6] =
        [LogKind::Grant, LogKind::Confirm, LogKind::Release, LogKind::Expire, LogKind::Void, LogKind::Refund];

    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            LogKind::Grant => "grant",
            LogKind::Confirm => "confirm",
            LogKind::Release => "release",
            LogKind::Expire => "expire",
            LogKind::Void => "void",
            LogKind::Refund => "refund",
        }
    }
}

impl Pool {
    pub fn new(rules: PoolRules, schedule: PoolSchedule, run: &str) -> Self {
        Self {
            rules,
            schedule,
            status: PoolStatus::Open,
            fenced: false,
            seen: 0,
            run: run.to_owned(),
            admitting_until_ms: 0,
            frozen_until_ms: 0,
            mender: 0,
            mended: 0,
            incarnation: 1,
            ver: 1,
            sver: 1,
            seq: 0,
            avail: VecDeque::new(),
            cooling: BTreeSet::new(),
            retired: VecDeque::new(),
            refunded: 0,
            refunded_cents: 0,
            claims: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            confirmed: 0,
            taken_cents: 0,
            out: BTreeMap::new(),
            came: BTreeMap::new(),
            op: OpMark::default(),
            op_chunk: 0,
            op_total: 0,
            log: Vec::new(),
        }
    }

    pub fn held(&self) -> u64 {
        self.deadlines.len() as u64
    }

    /// True from closing on.
    pub fn is_over(&self) -> bool {
        self.status != PoolStatus::Open
    }

    /// Something changed; `stock`: units may have appeared or vanished.
    pub(super) fn changed(&mut self, stock: bool) {
        self.ver += 1;
        self.sver += u64::from(stock);
    }

    /// Cooling units whose time has come join the stock.
    pub(super) fn mature(&mut self, now_ms: i64) {
        for _ in 0..STEP_MAX {
            match self.cooling.first() {
                Some(first) if first.ready_ms <= now_ms => {
                    self.avail.extend(self.cooling.pop_first().map(|cooling| cooling.unit));
                }
                _ => return,
            }
        }
    }

    /// Units cool this long: twice the longest memory of "sold out".
    pub(super) fn ready_ms(&self, now_ms: i64) -> i64 {
        now_ms + 2 * self.rules.interval_ms
    }

    pub(super) fn note(&mut self, kind: LogKind, user: Option<UserKey>, user_raw: Option<&str>, text: String) {
        let entry = LogEntry { ver: self.ver, kind, user, user_raw: user_raw.map(str::to_owned), text };
        self.log.push(entry);
    }

    /// Units that will never be claimed.
    pub(super) fn refund(&mut self, units: impl IntoIterator<Item = Unit>) {
        for unit in units {
            self.refunded += 1;
            self.refunded_cents += unit.cents.unwrap_or(0);
            self.note(LogKind::Refund, None, None, unit.to_string());
        }
    }
}

/// Tells two parcels of one number apart.
pub fn digest(units: &[Unit]) -> u64 {
    XxHash3_64::oneshot(joined(units).as_bytes())
}
