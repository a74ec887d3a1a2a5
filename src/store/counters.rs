//! The port of counting: sketches, layouts, and the answers that processes share.

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::watch;

use super::StoreFuture;
use super::error::StoreError;
use crate::domain::counter::{Counter, SketchAddress, Subject};
use crate::domain::element::Element;
use crate::domain::ring::{Layout, Shards};

/// Sketches of counters, shared by all processes of a deployment.
///
/// Every write is idempotent: adding or merging again changes nothing. Ok means that the store has it: an embedded
/// store on disk, a Redis primary in memory (its failover can lose what was not yet replicated; anti-entropy by the
/// processes that remember it brings that back).
pub trait Counters: Send + Sync {
    /// Adds elements to one sketch, creating it. Sets the sketch's expiry, which is absolute and only ever lengthened: a
    /// time in the past removes the sketch, unless a later expiry stands.
    fn add<'a>(
        &'a self,
        address: &'a SketchAddress,
        elements: &'a [Element],
        expires_at: Option<Timestamp>,
    ) -> StoreFuture<'a, ()>;

    /// Raises a sketch's registers to at least those of an encoded sketch (Redis's format, sparse or dense), creating
    /// it. Leaves nothing else behind, also when it fails. Sets the expiry as `add` does.
    fn merge<'a>(
        &'a self,
        address: &'a SketchAddress,
        blob: Bytes,
        expires_at: Option<Timestamp>,
    ) -> StoreFuture<'a, ()>;

    /// Reads encoded sketches, one result per address in the order asked; None where there is no sketch. An
    /// unreachable part of the store fails only the sketches it owns. Bytes are as stored: decode them strictly.
    fn read<'a>(&'a self, addresses: &'a [SketchAddress]) -> StoreFutureOf<'a, Vec<Result<Option<Bytes>, StoreError>>>;

    /// Users in the union of encoded sketches as the store itself computes it, whole users. Leaves nothing behind.
    fn union<'a>(&'a self, blobs: Vec<Bytes>) -> StoreFuture<'a, u64>;

    /// The layout of each counter, in order; None where nobody noted one. Replies in one round trip per owner.
    fn layouts<'a>(&'a self, counters: &'a [Counter]) -> StoreFuture<'a, Vec<Option<Layout>>>;

    /// Notes that this process writes a counter with so many shards, and answers the layout that now holds. Must come
    /// before a process's first write of the counter. Marks the counter as `sharded` (its small set, if any, is over).
    fn note_layout<'a>(
        &'a self,
        counter: &'a Counter,
        shards: Shards,
        expires_at: Option<Timestamp>,
    ) -> StoreFuture<'a, Layout>;

    /// The published answer, and the store's time.
    fn published<'a>(&'a self, key: &'a AnswerKey) -> StoreFuture<'a, PublishedView>;

    /// Asks to be the one who computes the next answer. At most one holder per key and lease time.
    fn lease<'a>(&'a self, key: &'a AnswerKey, token: &'a str, lease_ms: u64) -> StoreFuture<'a, Lease>;

    /// Publishes an answer for 60 s, if it is newer than the published one: greater `as_of_ms`, or the published one is
    /// over 2 s old or in the future by the store's clock, or from another server run (docs/FAULTS.md F15). False: an as new
    /// or newer one stands.
    fn publish<'a>(&'a self, key: &'a AnswerKey, answer: Published) -> StoreFuture<'a, bool>;

    /// Gives a lease back early, after a failure, if it is still held by this token.
    fn give_back_lease<'a>(&'a self, key: &'a AnswerKey, token: &'a str) -> StoreFuture<'a, ()>;

    /// Says that process `pod` admits on this subject, and answers how many processes (this one included) said so in
    /// the last `window_ms`.
    fn attend<'a>(&'a self, key: &'a AnswerKey, pod: &'a str, window_ms: u64) -> StoreFuture<'a, u32>;

    /// A number that rises when what was acknowledged may have been lost or may now be elsewhere: after a reconnect, a
    /// failover, a move of data. Whoever remembers acknowledged writes compares and pushes them again.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// A port's answer that is itself per-item results, so that it cannot fail as a whole.
pub type StoreFutureOf<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Names one answer that processes share: a question about one subject.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AnswerKey {
    pub subject: Subject,
    pub generation: u64,
    /// What was asked, as it stands in the key: `d2015-05-17`, `d2015-05-17..d2015-05-20`, `all`.
    pub question: String,
}

/// An answer as published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// The store's time before the first sketch was read, in milliseconds since 1970.
    pub as_of_ms: i64,
    pub body: Bytes,
}

/// What a reader of published answers sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedView {
    /// The store's clock, in milliseconds since 1970: an answer's age is the difference, whatever this process's clock says.
    pub now_ms: i64,
    pub answer: Option<Published>,
}

/// The answer to a wish to compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lease {
    /// This process computes. `now_ms` (store's clock) is the `as_of_ms` of what it will publish.
    Granted { now_ms: i64 },
    /// Another one does, for so long at most.
    Held { now_ms: i64, left_ms: u64 },
}
