//! The port of records, on rows.

use std::ops::Bound;

use bytes::Bytes;

use super::EmbeddedStore;
use super::format::{self, Key};
use super::rows::{Durability, Shard, corrupt};
use crate::store::StoreFuture;
use crate::store::error::StoreError;
use crate::store::records::{Page, Put, Record, RecordKind, Records};

impl Records for EmbeddedStore {
    fn get<'a>(&'a self, kind: RecordKind, id: &'a str) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            let key = Key::record(kind, id);
            let stored = self.committer.rows().stored(&key, self.now_ms())?;
            stored.map(|value| record(&key, &value)).transpose()
        })
    }

    fn put<'a>(&'a self, kind: RecordKind, id: &'a str, expected: u64, body: Bytes) -> StoreFuture<'a, Put> {
        Box::pin(async move {
            let key = Key::record(kind, id);
            self.committer.write(&key, |rows| put(rows, &key, expected, &body)).await
        })
    }

    fn list<'a>(&'a self, kind: RecordKind, cursor: Option<&'a str>, limit: usize) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let rows = self.committer.rows().directory();
            Ok(page(&rows, kind, cursor, limit))
        })
    }
}

/// Compares with the newest version, on disk or on its way there. Also a conflict waits for the disk: it shows a record.
fn put(rows: &mut Shard, key: &Key, expected: u64, body: &Bytes) -> Result<(Put, Durability), StoreError> {
    let row = rows.get(key);
    let standing = row.and_then(|row| row.value()).map(|value| record(key, value)).transpose()?;
    let version = standing.as_ref().map_or(0, |record| record.version);
    if version != expected {
        return Ok((Put::Conflict(standing), row.map_or(Durability::Stored, |row| row.seen())));
    }
    let version = version + 1;
    let durability = rows.entry(key.clone()).or_default().set(format::record_value(version, body));
    Ok((Put::Written { version }, durability))
}

/// The cursor is the last id of the page before.
fn page(rows: &Shard, kind: RecordKind, cursor: Option<&str>, limit: usize) -> Page {
    let start = Key::record(kind, cursor.unwrap_or_default());
    let after = rows.range((Bound::Excluded(start), Bound::Unbounded));
    let mut ids = after
        .map_while(|(key, row)| Some((key.record_id(kind)?, row)))
        .filter(|(_, row)| row.stored.is_some())
        .map(|(id, _)| id.to_owned());
    let page: Vec<String> = ids.by_ref().take(limit).collect();
    let next = ids.next().and_then(|_| page.last().cloned());
    Page { ids: page, next }
}

fn record(key: &Key, value: &Bytes) -> Result<Record, StoreError> {
    format::record_of(value).ok_or_else(|| corrupt(key, "too short for its version"))
}
