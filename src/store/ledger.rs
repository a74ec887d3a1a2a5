//! The port of the ledger: a database with one row for each claim and refund, one for each piece of news about them, and
//! the campaigns and packets that they belong to (`domain/ledger/`; the tables: docs/LEDGER.md).
//!
//! Every call may be repeated, and does then what it did. `StoreError::Unavailable` says that it may have been done or
//! not; `Refused`, that the database will not have it.

use jiff::Timestamp;

use super::StoreFuture;
use crate::domain::id::CampaignId;
use crate::domain::ledger::entry::Entry;
use crate::domain::ledger::settle::Conflict;
use crate::domain::quota::claim::UserKey;

/// A campaign as the ledger has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerCampaign {
    pub campaign: CampaignId,
    /// Of the record this was made from; a row is only ever replaced by a higher one.
    pub version: u64,
    /// `hard` or `packets`.
    pub admission: String,
    /// `filling`, `ready`, `closing`, `closed`, …: the record's phase.
    pub phase: String,
    pub quota: u64,
    /// Of packets.
    pub total_cents: Option<i64>,
    pub hold_s: u64,
    pub opens_at: Timestamp,
    pub closes_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// Of the hash key under which its users are known.
    pub fingerprint: String,
    /// The whole record, JSON: what a lost store is rebuilt from.
    pub document: String,
}

/// News of one pool, written in one transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerBatch {
    pub campaign: CampaignId,
    /// Which shard, from 0.
    pub shard: u16,
    pub entries: Vec<Entry>,
    pub progress: Progress,
}

/// How far a pool's news are in the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Where the pool stood when its outbox was read last.
    pub incarnation: u64,
    pub ver: u64,
    /// Entries that were not written then; 0: the ledger has all that the pool had said.
    pub behind: u64,
    /// When that was, by the clock of the process that wrote it.
    pub at_ms: i64,
}

/// What became of a batch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Entries that were not there before.
    pub fresh: u64,
    /// Rows of claims and refunds that were added or changed: also of entries that were there, where a row was not.
    pub rows: u64,
    /// Entries that contradict the ledger: written apart, for a person.
    pub conflicts: Vec<Conflict>,
}

/// One page of rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RowsPage {
    /// The newest entry of each claim, and refunds.
    pub rows: Vec<Entry>,
    /// Where the next page starts; None at the end. Opaque to callers.
    pub next: Option<String>,
}

pub trait Ledger: Send + Sync {
    /// Writes a campaign, unless the ledger has a newer version of it.
    fn enter<'a>(&'a self, campaign: &'a LedgerCampaign) -> StoreFuture<'a, ()>;

    /// Writes what packets hold, from number `first` on. Numbers that are there already stay as they are.
    fn add_packets<'a>(&'a self, campaign: &'a CampaignId, first: u64, cents: &'a [i64]) -> StoreFuture<'a, ()>;

    /// None: the ledger does not know it.
    fn campaign<'a>(&'a self, campaign: &'a CampaignId) -> StoreFuture<'a, Option<LedgerCampaign>>;

    /// What the packets from number `first` on hold, `limit` at most, in their order.
    fn packets<'a>(&'a self, campaign: &'a CampaignId, first: u64, limit: usize) -> StoreFuture<'a, Vec<i64>>;

    /// Writes entries that are not there yet, and settles them (`domain/ledger/settle.rs`): all of the batch or nothing.
    fn write<'a>(&'a self, batch: &'a LedgerBatch) -> StoreFuture<'a, Written>;

    /// How far the news of each pool are in, by shard.
    fn progress<'a>(&'a self, campaign: &'a CampaignId) -> StoreFuture<'a, Vec<(u16, Progress)>>;

    /// Rows of one shard: of users whose home it is, and of units it refunded.
    fn rows<'a>(
        &'a self,
        campaign: &'a CampaignId,
        shard: u16,
        cursor: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, RowsPage>;

    /// Conflicts of a campaign so far.
    fn conflicts<'a>(&'a self, campaign: &'a CampaignId) -> StoreFuture<'a, u64>;

    /// Puts `alias` in the place of a user's name in all rows. How many rows have the user.
    fn rename<'a>(&'a self, user: UserKey, alias: &'a str) -> StoreFuture<'a, u64>;

    /// Where it is, without secrets: for logs.
    fn describe(&self) -> String;
}
