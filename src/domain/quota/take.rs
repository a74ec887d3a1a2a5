//! Taking a step: who may pass, and what it does.

use super::marks::Floor;
use super::mend::Mend;
use super::pool::Pool;
use super::step::{Answer, CreditAnswer, Step, Stepped};
use super::terms::PoolReading;

/// For how long a pool hears what callers know, after its server became another one (docs/FAULTS.md F1).
pub const ADMITTING_MS: i64 = 1000;

impl Pool {
    /// Takes a step on a pool that may be missing. `run` names the server that serves it.
    pub fn step(pool: &mut Option<Pool>, now_us: i64, floor: Floor, run: &str, step: Step) -> Stepped {
        let now_ms = now_us / 1000;
        let answer = match (pool.as_mut(), step) {
            (Some(pool), step) => pool.guarded(now_us, floor, run, step),
            (None, Step::Create { rules, schedule }) => {
                *pool = Some(Pool::new(rules, schedule, run));
                Answer::Done(true)
            }
            (None, Step::Mend(Mend::Empty(blank))) => {
                *pool = Some(Pool::blank(&blank, run));
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
        match step {
            Step::Mend(mend) => self.mend(now_us, run, mend).map_or(Answer::Fenced, Answer::Done),
            _ if self.fenced => Answer::Fenced,
            Step::Look { .. } | Step::Collect { .. } => self.apply(now_us, step),
            _ if now_ms < self.frozen_until_ms => Answer::Frozen,
            step => self.apply(now_us, step),
        }
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
                let wishes = if how == CreditAnswer::Conflict { Vec::new() } else { wishes };
                Answer::Credit(how, self.grant(now_ms, &wishes))
            }
            Step::Ack { home, parcel } => Answer::Done(self.ack(home, &parcel)),
            Step::Collect { entries } => Answer::Reading(Box::new(self.reading(now_ms, entries))),
            // Taken before this is asked.
            Step::Mend(_) => Answer::Done(false),
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
            taken_cents: self.taken_cents,
            refunded_cents: self.refunded_cents,
            out: self.out.iter().map(|(home, parcel)| (*home, parcel.clone())).collect(),
            came: self.came.iter().filter(|_| entries).map(|(donor, (seq, _))| (*donor, *seq)).collect(),
            op: self.op,
            op_total: self.op_total,
        }
    }
}
