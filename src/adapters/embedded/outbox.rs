//! The port of outboxes.

use super::EmbeddedStore;
use crate::store::StoreFuture;
use crate::store::error::StoreError;
use crate::store::outbox::{Outbox, OutboxBatch, OutboxLag};
use crate::store::pools::PoolAddress;

fn missing() -> StoreError {
    StoreError::Refused("not built yet".into())
}

impl Outbox for EmbeddedStore {
    fn read<'a>(&'a self, _: &'a PoolAddress, _: usize) -> StoreFuture<'a, Option<OutboxBatch>> {
        Box::pin(async { Err(missing()) })
    }

    fn acknowledge<'a>(&'a self, _: &'a PoolAddress, _: &'a [String]) -> StoreFuture<'a, ()> {
        Box::pin(async { Err(missing()) })
    }

    fn lag<'a>(&'a self, _: &'a PoolAddress) -> StoreFuture<'a, Option<OutboxLag>> {
        Box::pin(async { Err(missing()) })
    }

    fn rename<'a>(&'a self, _: &'a PoolAddress, _: &'a str, _: &'a str) -> StoreFuture<'a, u64> {
        Box::pin(async { Err(missing()) })
    }
}
