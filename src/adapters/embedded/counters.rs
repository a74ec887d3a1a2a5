//! The port of counting, on rows.

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::watch;

use super::EmbeddedStore;
use super::format::{self, Key};
use super::rows::{Durability, Shard, corrupt};
use crate::domain::counter::{Counter, SketchAddress};
use crate::domain::element::Element;
use crate::domain::ring::{Layout, Shards};
use crate::domain::sketch::registers::Sketch;
use crate::domain::sketch::wire;
use crate::store::StoreFuture;
use crate::store::counters::{AnswerKey, Counters, Lease, Published, PublishedView, StoreFutureOf};
use crate::store::error::StoreError;

impl Counters for EmbeddedStore {
    fn add<'a>(
        &'a self,
        address: &'a SketchAddress,
        elements: &'a [Element],
        expires_at: Option<Timestamp>,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.raise(address, expires_at, |sketch| {
            elements.iter().filter(|element| sketch.insert(element.as_bytes())).count() > 0
        }))
    }

    fn merge<'a>(
        &'a self,
        address: &'a SketchAddress,
        blob: Bytes,
        expires_at: Option<Timestamp>,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let other = decode(&blob)?;
            self.raise(address, expires_at, |sketch| other.hits().filter(|hit| sketch.raise(*hit)).count() > 0).await
        })
    }

    fn read<'a>(&'a self, addresses: &'a [SketchAddress]) -> StoreFutureOf<'a, Vec<Result<Option<Bytes>, StoreError>>> {
        Box::pin(async move {
            let now_ms = self.now_ms();
            let read = |address| {
                let stored = self.committer.rows().stored(&Key::sketch(address), now_ms)?;
                Ok(stored.as_ref().and_then(format::sketch_blob))
            };
            addresses.iter().map(read).collect()
        })
    }

    fn union<'a>(&'a self, blobs: Vec<Bytes>) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            let mut union = Sketch::new();
            for blob in &blobs {
                union.merge(&decode(blob)?);
            }
            let users = union.estimate().map_err(|e| StoreError::Corrupt(e.to_string()))?;
            Ok(users.round() as u64)
        })
    }

    fn layouts<'a>(&'a self, counters: &'a [Counter]) -> StoreFuture<'a, Vec<Option<Layout>>> {
        Box::pin(async move {
            let now_ms = self.now_ms();
            let layout = |counter| {
                let key = Key::layout(counter);
                let stored = self.committer.rows().stored(&key, now_ms)?;
                stored.map(|value| format::layout_of(&value).ok_or_else(|| corrupt(&key, "not a layout"))).transpose()
            };
            counters.iter().map(layout).collect()
        })
    }

    fn note_layout<'a>(
        &'a self,
        counter: &'a Counter,
        shards: Shards,
        expires_at: Option<Timestamp>,
    ) -> StoreFuture<'a, Layout> {
        Box::pin(async move {
            let key = Key::layout(counter);
            let (expires_ms, now_ms) = (format::expiry_of(expires_at), self.now_ms());
            self.committer.write(&key, |rows| note(rows, &key, shards, expires_ms, now_ms)).await
        })
    }

    fn published<'a>(&'a self, key: &'a AnswerKey) -> StoreFuture<'a, PublishedView> {
        Box::pin(async move { Ok(self.answers.published(key, self.now_ms())) })
    }

    fn lease<'a>(&'a self, key: &'a AnswerKey, token: &'a str, lease_ms: u64) -> StoreFuture<'a, Lease> {
        Box::pin(async move { Ok(self.answers.lease(key, token, lease_ms, self.now_ms())) })
    }

    fn publish<'a>(&'a self, key: &'a AnswerKey, answer: Published) -> StoreFuture<'a, bool> {
        Box::pin(async move { Ok(self.answers.publish(key, answer, self.now_ms())) })
    }

    fn give_back_lease<'a>(&'a self, key: &'a AnswerKey, token: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.answers.give_back(key, token);
            Ok(())
        })
    }

    fn attend<'a>(&'a self, key: &'a AnswerKey, pod: &'a str, window_ms: u64) -> StoreFuture<'a, u32> {
        Box::pin(async move { Ok(self.answers.attend(key, pod, window_ms, self.now_ms())) })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl EmbeddedStore {
    /// Raises one sketch, creating it.
    async fn raise(
        &self,
        address: &SketchAddress,
        expires_at: Option<Timestamp>,
        change: impl FnOnce(&mut Sketch) -> bool,
    ) -> Result<(), StoreError> {
        let key = Key::sketch(address);
        let (expires_ms, now_ms) = (format::expiry_of(expires_at), self.now_ms());
        let raise = |rows: &mut Shard| {
            if expires_ms <= now_ms && !rows.contains_key(&key) {
                return Ok(((), Durability::Stored));
            }
            let row = rows.entry(key.clone()).or_default();
            let durability = row.raise(expires_ms, now_ms, change).map_err(|error| corrupt(&key, error))?;
            Ok(((), durability))
        };
        self.committer.write(&key, raise).await
    }
}

/// Widens the layout that stands, if it must be, and lengthens its life as that of a sketch.
fn note(
    rows: &mut Shard,
    key: &Key,
    shards: Shards,
    expires_ms: i64,
    now_ms: i64,
) -> Result<(Layout, Durability), StoreError> {
    let (mut layout, mut until_ms) = (Layout::of(shards), expires_ms);
    if let Some(value) = rows.get(key).and_then(|row| row.value()) {
        let standing = format::layout_of(value).zip(format::expiry_ms(key.table, value));
        let (standing, standing_ms) = standing.ok_or_else(|| corrupt(key, "not a layout"))?;
        if standing_ms > now_ms {
            layout = standing.including(shards);
            until_ms = format::longer(standing_ms, expires_ms);
        }
    }
    if until_ms <= now_ms {
        return Ok((layout, rows.get_mut(key).map_or(Durability::Stored, |row| row.remove())));
    }
    let row = rows.entry(key.clone()).or_default();
    let value = format::layout_value(until_ms, layout);
    let durability = if row.value() == Some(&value) { row.seen() } else { row.set(value) };
    Ok((layout, durability))
}

fn decode(blob: &[u8]) -> Result<Sketch, StoreError> {
    wire::decode(blob).map_err(|error| StoreError::Corrupt(error.to_string()))
}
