//! The ports: what Headcount needs from whatever keeps its shared state, with the promises written down.
//! Nothing here names a database.

pub mod counters;
pub mod deployment;
pub mod documents;
pub mod error;
pub mod ledger;
pub mod outbox;
pub mod pools;
pub mod records;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A port's answer to come. Boxed, because ports are trait objects.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, error::StoreError>> + Send + 'a>>;

/// The ports of one store, as the composition root hands them out.
#[derive(Clone)]
pub struct Stores {
    pub counters: Arc<dyn counters::Counters>,
    pub records: Arc<dyn records::Records>,
    pub deployment: Arc<dyn deployment::Deployment>,
    pub pools: Arc<dyn pools::Pools>,
    pub outbox: Arc<dyn outbox::Outbox>,
}
