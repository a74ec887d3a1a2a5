//! The port of pools: the shards of hard campaigns (`domain/quota/`).
//!
//! **A step is done when it is replicated.** `Ok` says that the answer holds also after the part of the store that gave
//! it has failed, as far as the store can promise that at all (`Safety`). That goes for every step, those that changed
//! nothing included: what they saw may be another caller's step that is not replicated yet (docs/FAULTS.md A1, A3).
//!
//! `StoreError::Unconfirmed` says that the step was taken and its answer may yet be lost; any other error, that it may
//! have been taken or not. Every step can be asked again, and says then what is true.

use std::time::Duration;

use super::StoreFuture;
use crate::domain::id::CampaignId;
use crate::domain::quota::claim::{ClaimRecord, UserKey};
use crate::domain::quota::inventory::Inventory;
use crate::domain::quota::marks::Floor;
use crate::domain::quota::step::{Step, Stepped};
use crate::domain::ring::Position;

/// One shard of a campaign, by the position on the ring where it starts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PoolAddress {
    pub campaign: CampaignId,
    pub position: Position,
}

/// How far a pool's steps are kept from loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Safety {
    /// On so many replicas, all that can be promoted; or on disk, where the store is one process.
    Safe { replicas: u32 },
    /// On some of them: the others do not answer (docs/FAULTS.md F17).
    Degraded { replicas: u32, of: u32 },
    /// Nowhere but in one server's memory.
    Single,
}

/// What is done to a campaign by one process at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Duty {
    /// Overdue holds, parcels that got stuck, operations.
    Upkeep,
    /// Its news go to the ledger.
    Drain,
    /// Its lost pools are rebuilt.
    Mend,
}

/// One page of claims.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClaimsPage {
    /// A claim may appear on two pages if it changes meanwhile; none that stood all the time is missing.
    pub claims: Vec<(UserKey, ClaimRecord)>,
    /// Where the next page starts; None at the end. Opaque to callers.
    pub next: Option<String>,
}

/// How far somebody has read the claimants of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimantsMark {
    pub incarnation: u64,
    /// Of the store's own kind.
    pub place: String,
}

/// Users who have, or had, a claim in a pool: the first 8 bytes of their keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claimants {
    pub users: Vec<u64>,
    /// True: these are all; false: those since the mark that was given.
    pub all: bool,
    /// Everybody granted before the call began is in, up to here.
    pub mark: ClaimantsMark,
}

/// Steps on pools.
pub trait Pools: Send + Sync {
    /// Takes a step. `floor` is what the caller knows to be replicated, as of now.
    fn step<'a>(&'a self, pool: &'a PoolAddress, floor: Floor, step: Step) -> StoreFuture<'a, Stepped>;

    /// Claims of a pool, in an order of the store's own. A limit is a hint.
    fn claims<'a>(
        &'a self,
        pool: &'a PoolAddress,
        cursor: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, ClaimsPage>;

    /// Who has claimed, since `since` where the store can still say so, else all.
    fn claimants<'a>(&'a self, pool: &'a PoolAddress, since: Option<&'a ClaimantsMark>) -> StoreFuture<'a, Claimants>;

    /// Forgets a pool with all its claims. For good: a later step finds it `Absent`.
    fn remove<'a>(&'a self, pool: &'a PoolAddress) -> StoreFuture<'a, ()>;

    /// Whether `holder` may do this duty to a campaign for a while; zero gives it back. It only saves work: two holders do
    /// no harm.
    fn lease<'a>(
        &'a self,
        campaign: &'a CampaignId,
        duty: Duty,
        holder: &'a str,
        hold: Duration,
    ) -> StoreFuture<'a, bool>;

    /// All units of a pool, also of one that is fenced; read in pieces, so that it means something only if `ver` is the
    /// same in a second look. None: there is no such pool.
    fn inventory<'a>(&'a self, pool: &'a PoolAddress) -> StoreFuture<'a, Option<Inventory>>;

    /// Why exact campaigns cannot be kept here (the store may evict them, say), with what to do; None: they can.
    fn obstacle(&self) -> StoreFuture<'_, Option<String>>;

    fn safety(&self, pool: &PoolAddress) -> Safety;
}
