//! Stock coming and going by the will of an operator, and the end.

use super::marks::OpMark;
use super::marks::STEP_MAX;
use super::pool::Pool;
use super::terms::{PoolSchedule, PoolStatus};
use super::unit::{Cooling, Unit};

impl Pool {
    pub(super) fn reschedule(&mut self, schedule: PoolSchedule) -> bool {
        if schedule.version <= self.schedule.version {
            return false;
        }
        self.schedule = schedule;
        self.changed(true);
        true
    }

    pub(super) fn restock(&mut self, now_ms: i64, op: OpMark, unretire: u32, units: &[Unit], cool: bool) -> bool {
        if op <= self.op || self.is_over() {
            return false;
        }
        let again = (unretire as usize).min(self.retired.len());
        let fresh: Vec<Unit> = self.retired.drain(..again).chain(units.iter().copied()).collect();
        if cool {
            let ready_ms = self.ready_ms(now_ms);
            self.cooling.extend(fresh.iter().map(|unit| Cooling { ready_ms, unit: *unit }));
        } else {
            self.avail.extend(&fresh);
        }
        self.marked(op, fresh.len() as u32);
        true
    }

    pub(super) fn retire(&mut self, now_ms: i64, op: OpMark, count: u32) -> u32 {
        if op <= self.op {
            return if op == self.op { self.op_chunk } else { 0 };
        }
        self.mature(now_ms);
        let taken = (count as usize).min(self.avail.len()).min(STEP_MAX);
        self.retired.extend(self.avail.drain(..taken));
        self.marked(op, taken as u32);
        taken as u32
    }

    fn marked(&mut self, op: OpMark, count: u32) {
        let before = if op.operation == self.op.operation { self.op_total } else { 0 };
        (self.op, self.op_chunk, self.op_total) = (op, count, before + u64::from(count));
        self.changed(true);
    }

    pub(super) fn close(&mut self, limit: u32) -> u64 {
        if self.status == PoolStatus::Closed {
            return 0;
        }
        let limit = limit as usize;
        self.status = PoolStatus::Closing;
        self.changed(true);
        let cooling = self.cooling.len().min(limit);
        let cooled: Vec<Unit> = (0..cooling).filter_map(|_| self.cooling.pop_first()).map(|one| one.unit).collect();
        let stock: Vec<Unit> = self.avail.drain(..self.avail.len().min(limit)).collect();
        self.refund(stock.into_iter().chain(cooled));
        (self.avail.len() + self.cooling.len()) as u64
    }

    pub(super) fn finish(&mut self) -> bool {
        let busy = self.avail.len() + self.cooling.len() + self.deadlines.len() + self.out.len() > 0;
        if self.status != PoolStatus::Closing || busy {
            return self.status == PoolStatus::Closed;
        }
        self.status = PoolStatus::Closed;
        self.changed(true);
        true
    }
}
