//! Numbers by which steps are told apart: what is known to be safe, which change of stock, which parcel.

use super::unit::Unit;

/// Users or units one step takes at most. Lua fails half way through larger lists, and a failed script is not rolled back
/// (docs/FAULTS.md F2).
pub const STEP_MAX: usize = 256;

/// What a caller knows to be safe in a pool: the highest version that it was told of and that was replicated.
///
/// A pool below it has lost something that somebody was promised, and stops (docs/FAULTS.md A10).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct Floor {
    pub incarnation: u64,
    pub ver: u64,
}

/// The order of changes of stock: operations of a campaign are numbered, and come in chunks. A pool takes each chunk
/// once, and none that is older than what it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord)]
pub struct OpMark {
    pub operation: u64,
    pub chunk: u64,
}

/// Units on their way from one pool to another. The number rises with every parcel of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parcel {
    pub seq: u64,
    pub units: Vec<Unit>,
}
