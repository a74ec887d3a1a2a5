//! The port of the deployment itself: the facts all its processes must share, and how the store is doing.

use super::StoreFuture;

/// The schema this program writes. A store written by a newer one is refused.
pub const SCHEMA: u32 = 1;

/// What every process of a deployment must agree on, else users would be counted twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    pub schema: u32,
    pub zone: String,
    /// `Fingerprint`'s number: which hash key made the elements.
    pub fingerprint: u64,
}

/// One part of the store, as this process sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeHealth {
    pub name: String,
    pub up: bool,
    pub detail: String,
}

/// How the store is doing, without asking it: what the last calls showed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    pub nodes: Vec<NodeHealth>,
    /// Settings of the store under which something promised can be lost, in sentences.
    pub warnings: Vec<String>,
}

pub trait Deployment: Send + Sync {
    /// The deployment's hash key: the stored one, else `proposed`, stored now. Atomic; replicated before it is answered.
    /// Refused when there is no key but records with a fingerprint exist: a new key would count everybody twice
    /// (docs/FAULTS.md A8). A process that already holds the key calls this to write it back.
    fn hash_key(&self, proposed: [u8; 16]) -> StoreFuture<'_, [u8; 16]>;

    /// Writes these facts where none stand, and answers those that stand. Where several copies differ, one that differs
    /// from `mine` is answered.
    fn agree<'a>(&'a self, mine: &'a Facts) -> StoreFuture<'a, Facts>;

    /// The store's clock, in milliseconds since 1970.
    fn now_ms(&self) -> StoreFuture<'_, i64>;

    fn health(&self) -> Health;

    /// True from the first contact with the whole store on, for good: later outages show in `health`.
    fn contacted(&self) -> bool;

    /// Where the store is, without secrets: for logs and `/readyz?verbose`.
    fn describe(&self) -> String;
}
