//! Inventories: every unit of a pool by name, for putting other pools right.

use super::marks::Parcel;
use super::pool::Pool;
use super::terms::PoolStatus;
use super::unit::Unit;

/// What a pool has, but for its claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inventory {
    pub status: PoolStatus,
    pub fenced: bool,
    pub incarnation: u64,
    pub ver: u64,
    /// The highest version that somebody knows to have been replicated, where it is above `ver`: the pool has gone back.
    pub seen: u64,
    /// The number of the last parcel it sent.
    pub seq: u64,
    pub stock: Vec<Unit>,
    pub cooling: Vec<Unit>,
    pub retired: Vec<Unit>,
    pub refunded: u64,
    pub refunded_cents: i64,
    /// Parcels on their way, by shard.
    pub out: Vec<(u16, Parcel)>,
    /// The number of the last parcel that came in, by donor.
    pub came: Vec<(u16, u64)>,
}

impl From<&Pool> for Inventory {
    fn from(pool: &Pool) -> Self {
        Self {
            status: pool.status,
            fenced: pool.fenced,
            incarnation: pool.incarnation,
            ver: pool.ver,
            seen: pool.seen,
            seq: pool.seq,
            stock: pool.avail.iter().copied().collect(),
            cooling: pool.cooling.iter().map(|cooling| cooling.unit).collect(),
            retired: pool.retired.iter().copied().collect(),
            refunded: pool.refunded,
            refunded_cents: pool.refunded_cents,
            out: pool.out.iter().map(|(home, parcel)| (*home, parcel.clone())).collect(),
            came: pool.came.iter().map(|(donor, (seq, _))| (*donor, *seq)).collect(),
        }
    }
}
