//! The port of outboxes: the news of each pool, kept until the ledger has them.
//!
//! A reader reads, writes what it read into the ledger, and then acknowledges it. What was read and not acknowledged is
//! read again, by whoever reads next. Two readers of one outbox at once read the same entries, which does no harm.

use super::StoreFuture;
use super::pools::PoolAddress;
use crate::domain::ledger::entry::Entry;

/// Some entries, in their order, and where the pool stood when they were read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutboxBatch {
    /// Each with the name under which it is acknowledged, of the store's own kind.
    pub entries: Vec<(String, Entry)>,
    /// Entries behind these that are not acknowledged either.
    pub behind: u64,
    /// The pool's incarnation and version. With nothing behind, the ledger then knows all that the pool said up to it.
    pub incarnation: u64,
    pub ver: u64,
}

/// How far the ledger is behind a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutboxLag {
    /// Entries that are not acknowledged.
    pub entries: u64,
    /// How long the oldest of them has waited; 0: there is none.
    pub age_ms: u64,
}

/// Outboxes of pools.
pub trait Outbox: Send + Sync {
    /// The first entries that are not acknowledged, `limit` at most, 1,000 at most. Only what is replicated is answered,
    /// as of a pool's step: what the ledger knows, no failover takes back (docs/FAULTS.md A5). None: there is no such
    /// pool. A pool that is fenced or frozen is read like any other.
    fn read<'a>(&'a self, pool: &'a PoolAddress, limit: usize) -> StoreFuture<'a, Option<OutboxBatch>>;

    /// The ledger has these. They may stay a while for other readers of the pool's news, and are not read again.
    fn acknowledge<'a>(&'a self, pool: &'a PoolAddress, entries: &'a [String]) -> StoreFuture<'a, ()>;

    /// How far the ledger is behind; None: there is no such pool.
    fn lag<'a>(&'a self, pool: &'a PoolAddress) -> StoreFuture<'a, Option<OutboxLag>>;

    /// Puts `alias` in the place of a user's name in all entries that are still kept. How many there were.
    fn rename<'a>(&'a self, pool: &'a PoolAddress, user: &'a str, alias: &'a str) -> StoreFuture<'a, u64>;
}
