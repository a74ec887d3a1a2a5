//! What a pool goes by, and how it stands.

use super::marks::{OpMark, Parcel};

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
    /// What packets of live claims and refunded ones hold.
    pub taken_cents: i64,
    pub refunded_cents: i64,
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
