//! A pool: what one shard of a campaign keeps, and who may pass to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use twox_hash::XxHash3_64;

use super::claim::{ClaimRecord, UserKey};
use super::step::{Answer, Floor, OpMark, Parcel, Step, Stepped};
use super::unit::{Cooling, Unit, joined};

/// For how long a pool hears what callers know, after its server became another one (docs/FAULTS.md F1).
pub const ADMITTING_MS: i64 = 1000;
/// A pool with more than this keeps half of its stock when another one asks.
pub const GENEROUS_UP_TO: usize = 64;

/// What holds for a pool's whole life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolRules {
    /// 0: claims are confirmed at once.
    pub hold_ms: i64,
    /// How long a process may say "sold out" from memory. Frozen, because units that come back must outwait the longest
    /// memory (docs/FAULTS.md A11).
    pub interval_ms: i64,
}

/// Opening hours and pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSchedule {
    /// The campaign record's version: a pool never goes back to an older one.
    pub version: u64,
    pub opens_ms: i64,
    /// `i64::MAX`: never. Stores write what a float still counts exactly.
    pub closes_ms: i64,
    pub paused: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolStatus {
    Open,
    /// No claims and no debits; what comes back is refunded.
    Closing,
    /// As `Closing`, and nothing is left.
    Closed,
}

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
    pub claims: BTreeMap<UserKey, ClaimRecord>,
    /// Of claims that are held.
    pub deadlines: BTreeSet<(i64, UserKey)>,
    pub confirmed: u64,
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

/// A pool's numbers at one instant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolReading {
    pub status: PoolStatus,
    pub schedule_version: u64,
    /// The server that answered.
    pub run: String,
    pub sver: u64,
    /// Claimable now: cooling units that are ready are among them.
    pub avail: u64,
    pub cooling: u64,
    /// When the first of the cooling ones is ready.
    pub ready_ms: Option<i64>,
    pub held: u64,
    /// When the first hold expires.
    pub deadline_ms: Option<i64>,
    pub confirmed: u64,
    pub retired: u64,
    pub refunded: u64,
    /// Parcels on their way, by shard.
    pub out: Vec<(u16, Parcel)>,
    /// The number of the last parcel that came in, by donor; empty unless asked for.
    pub came: Vec<(u16, u64)>,
    pub op: OpMark,
    pub op_total: u64,
}

impl PoolReading {
    /// Units that are somebody's.
    pub fn taken(&self) -> u64 {
        self.held + self.confirmed
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
            incarnation: 1,
            ver: 1,
            sver: 1,
            seq: 0,
            avail: VecDeque::new(),
            cooling: BTreeSet::new(),
            retired: VecDeque::new(),
            refunded: 0,
            claims: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            confirmed: 0,
            out: BTreeMap::new(),
            came: BTreeMap::new(),
            op: OpMark::default(),
            op_chunk: 0,
            op_total: 0,
            log: Vec::new(),
        }
    }

    /// Takes a step on a pool that may be missing. `run` names the server that serves it.
    pub fn step(pool: &mut Option<Pool>, now_us: i64, floor: Floor, run: &str, step: Step) -> Stepped {
        let now_ms = now_us / 1000;
        let answer = match (pool.as_mut(), step) {
            (Some(pool), step) => pool.guarded(now_us, floor, run, step),
            (None, Step::Create { rules, schedule }) => {
                *pool = Some(Pool::new(rules, schedule, run));
                Answer::Done(true)
            }
            (None, _) => Answer::Absent,
        };
        let at = pool.as_ref().map_or(Floor::default(), |pool| Floor { incarnation: pool.incarnation, ver: pool.ver });
        debug_assert!(now_ms >= 0);
        Stepped { now_us, at, answer }
    }

    fn guarded(&mut self, now_us: i64, floor: Floor, run: &str, step: Step) -> Answer {
        let now_ms = now_us / 1000;
        if floor.incarnation == self.incarnation && floor.ver > self.ver {
            self.seen = self.seen.max(floor.ver);
        }
        if !self.fenced && self.run != run {
            run.clone_into(&mut self.run);
            self.admitting_until_ms = now_ms + ADMITTING_MS;
        }
        if !self.fenced && now_ms < self.admitting_until_ms {
            return Answer::Admitting;
        }
        // Sticky: the first caller who knows better stops the pool for all.
        self.fenced |= self.seen > self.ver;
        if self.fenced {
            return Answer::Fenced;
        }
        self.apply(now_us, step)
    }

    fn apply(&mut self, now_us: i64, step: Step) -> Answer {
        let now_ms = now_us / 1000;
        match step {
            Step::Create { .. } => Answer::Done(false),
            Step::Reschedule(schedule) => Answer::Done(self.reschedule(schedule)),
            Step::Restock { op, unretire, units, cool } => {
                Answer::Done(self.restock(now_ms, op, unretire, &units, cool))
            }
            Step::Retire { op, count } => Answer::Retired(self.retire(now_ms, op, count)),
            Step::Close { limit } => Answer::Left(self.close(limit)),
            Step::Finish => Answer::Done(self.finish()),
            Step::Claim { wishes } => Answer::Claims(self.grant(now_ms, &wishes)),
            Step::Look { user } => Answer::Record(self.claims.get(&user).cloned()),
            Step::Confirm { user, secret } => Answer::Confirm(self.confirm(user, &secret)),
            Step::Release { user, secret, by } => Answer::Release(self.release(now_ms, user, &secret, by)),
            Step::Reap { limit } => Answer::Reaped(self.reap(now_ms, limit)),
            Step::Debit { home, want } => Answer::Debit(self.debit(now_us, home, want)),
            Step::Credit { donor, parcel, wishes } => {
                let how = self.credit(donor, &parcel);
                let wishes = if how == super::step::CreditAnswer::Conflict { Vec::new() } else { wishes };
                Answer::Credit(how, self.grant(now_ms, &wishes))
            }
            Step::Ack { home, parcel } => Answer::Done(self.ack(home, &parcel)),
            Step::Collect { entries } => Answer::Reading(Box::new(self.reading(now_ms, entries))),
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
        for _ in 0..super::step::STEP_MAX {
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
            self.note(LogKind::Refund, None, None, unit.to_string());
        }
    }

    fn reading(&self, now_ms: i64, entries: bool) -> PoolReading {
        let ready = self.cooling.iter().take_while(|cooling| cooling.ready_ms <= now_ms).count();
        PoolReading {
            status: self.status,
            schedule_version: self.schedule.version,
            run: self.run.clone(),
            sver: self.sver,
            avail: (self.avail.len() + ready) as u64,
            cooling: (self.cooling.len() - ready) as u64,
            ready_ms: self.cooling.iter().nth(ready).map(|cooling| cooling.ready_ms),
            held: self.held(),
            deadline_ms: self.deadlines.first().map(|(at, _)| *at),
            confirmed: self.confirmed,
            retired: self.retired.len() as u64,
            refunded: self.refunded,
            out: self.out.iter().map(|(home, parcel)| (*home, parcel.clone())).collect(),
            came: self.came.iter().filter(|_| entries).map(|(donor, (seq, _))| (*donor, *seq)).collect(),
            op: self.op,
            op_total: self.op_total,
        }
    }
}

/// Tells two parcels of one number apart.
pub fn digest(units: &[Unit]) -> u64 {
    XxHash3_64::oneshot(joined(units).as_bytes())
}
