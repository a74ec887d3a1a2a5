//! Transfers: stock moves to the users' shard, never users to the stock.
//!
//! Debit, credit, ack; each is replicated before the next. Between debit and credit the units are in `out`; a parcel
//! that came in is not taken in again; at most one parcel is on its way between two pools, so that no later one
//! overtakes it (docs/FAULTS.md A2). Anybody may do any of the three again at any time.

use super::marks::Parcel;
use super::marks::STEP_MAX;
use super::pool::{GENEROUS_UP_TO, Pool, digest};
use super::step::{CreditAnswer, DebitAnswer};

impl Pool {
    pub(super) fn debit(&mut self, now_us: i64, home: u16, want: u32) -> DebitAnswer {
        if let Some(parcel) = self.out.get(&home) {
            return DebitAnswer::Open(parcel.clone());
        }
        if self.is_over() {
            return DebitAnswer::Closing;
        }
        self.mature(now_us / 1000);
        let stock = self.avail.len();
        // A full pool keeps half for its own users.
        let gives = if stock > GENEROUS_UP_TO { stock / 2 } else { stock };
        let count = gives.min(want as usize).min(STEP_MAX);
        if count == 0 {
            return DebitAnswer::None;
        }
        // The time makes numbers rise even if the pool forgot them (docs/FAULTS.md A16).
        self.seq = (self.seq + 1).max(u64::try_from(now_us).unwrap_or(0));
        let parcel = Parcel { seq: self.seq, units: self.avail.drain(..count).collect() };
        self.out.insert(home, parcel.clone());
        self.changed(true);
        DebitAnswer::New(parcel)
    }

    pub(super) fn credit(&mut self, donor: u16, parcel: &Parcel) -> CreditAnswer {
        let digest = digest(&parcel.units);
        if let Some((seq, known)) = self.came.get(&donor) {
            // 0: the pool was mended since, and nobody knows what came.
            if *seq == parcel.seq && *known != digest && *known != 0 {
                return CreditAnswer::Conflict;
            }
            if *seq >= parcel.seq {
                return CreditAnswer::Known;
            }
        }
        self.came.insert(donor, (parcel.seq, digest));
        self.changed(true);
        if self.is_over() {
            self.refund(parcel.units.iter().copied());
            return CreditAnswer::Refunded;
        }
        self.avail.extend(&parcel.units);
        CreditAnswer::Credited
    }

    pub(super) fn ack(&mut self, home: u16, parcel: &Parcel) -> bool {
        if self.out.get(&home) != Some(parcel) {
            return false;
        }
        self.out.remove(&home);
        self.changed(true);
        true
    }
}
