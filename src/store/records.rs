//! The port of records: small documents about events and campaigns, changed by compare-and-set.

use bytes::Bytes;

use super::StoreFuture;

/// What a record is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum RecordKind {
    Event,
    Campaign,
}

/// A record as stored. Versions start at 1 and rise by one with each write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub version: u64,
    pub body: Bytes,
}

/// What became of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Put {
    /// Stored, and replicated as far as the store can promise it.
    Written { version: u64 },
    /// Somebody else was first: the record that stands now, None if there is none.
    Conflict(Option<Record>),
}

/// One page of ids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    pub ids: Vec<String>,
    /// Where the next page starts; None at the end. Opaque to callers.
    pub next: Option<String>,
}

/// Documents by kind and id.
pub trait Records: Send + Sync {
    fn get<'a>(&'a self, kind: RecordKind, id: &'a str) -> StoreFuture<'a, Option<Record>>;

    /// Writes if the version that stands is `expected` (0: there is none). Atomic. After an error the write may or may
    /// not have happened: read again.
    fn put<'a>(&'a self, kind: RecordKind, id: &'a str, expected: u64, body: Bytes) -> StoreFuture<'a, Put>;

    /// Ids that have a record, `limit` at most, in an order of the store's own. Ids put while paging may be missed;
    /// none appears twice.
    fn list<'a>(&'a self, kind: RecordKind, cursor: Option<&'a str>, limit: usize) -> StoreFuture<'a, Page>;
}
