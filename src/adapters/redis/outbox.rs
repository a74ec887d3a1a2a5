//! The port of outboxes on Redis: a stream for each pool, read by the consumer group `ledger`.

use std::sync::Arc;

use super::confirm::Confirm;
use super::router::Router;
use crate::store::StoreFuture;
use crate::store::error::StoreError;
use crate::store::outbox::{Outbox, OutboxBatch, OutboxLag};
use crate::store::pools::PoolAddress;

pub struct RedisOutbox {
    pub router: Arc<Router>,
    pub confirm: Arc<Confirm>,
}

fn missing() -> StoreError {
    StoreError::Refused("not built yet".into())
}

impl Outbox for RedisOutbox {
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
