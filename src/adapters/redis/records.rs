//! The port of records on Redis: a hash per record, changed by one script, and a registry that lists them.
//!
//! A record is entered in the registry before it is written, with every write: so none is missing there, and an entry
//! without a record (the write failed) is left out when listing. Registry entries stand behind a `=`: the client
//! library takes an array that begins with `message` or `subscribe` for a published message and swallows it, and
//! events may be called that.

use std::sync::Arc;

use bytes::Bytes;

use super::confirm::{Confirm, Confirmed, touch};
use super::keys::{self, REGISTRY_BUCKETS};
use super::reply::{Command, Reply};
use super::router::Router;
use super::scripts;
use super::settings::Role;
use crate::store::StoreFuture;
use crate::store::error::StoreError;
use crate::store::records::{Page, Put, Record, RecordKind, Records};

/// Put in front of an id in the registry.
const MARK: char = '=';

pub struct RedisRecords {
    router: Arc<Router>,
    confirm: Arc<Confirm>,
}

impl RedisRecords {
    pub fn new(router: Arc<Router>, confirm: Arc<Confirm>) -> Self {
        Self { router, confirm }
    }

    async fn read(&self, kind: RecordKind, id: &str) -> Result<Option<Record>, StoreError> {
        let key = keys::record(kind, id);
        let command = Command::new("HMGET").arg(key.text).arg("v").arg("b");
        let [version, body] = self.router.ask(key.slot, command).await?.into_array()?;
        match (version, body.into_bytes()?) {
            (Reply::Nil, None) => Ok(None),
            (version, Some(body)) => Ok(Some(Record { version: version.unsigned()?, body })),
            (_, None) => Err(StoreError::Corrupt("a record without a body".into())),
        }
    }

    async fn write(&self, kind: RecordKind, id: &str, expected: u64, body: Bytes) -> Result<Put, StoreError> {
        let registry = keys::registry(keys::registry_bucket(id), kind);
        let enter = Command::new("ZADD").arg(registry.text).arg("0").arg(format!("{MARK}{id}"));
        self.router.ask(registry.slot, enter).await?;

        let key = keys::record(kind, id);
        let script = scripts::RECORD_PUT.call([&key].into_iter()).number(expected).arg(body);
        let touch = touch(&key, "v");
        let put = Confirmed { role: Role::Confirm, slot: key.slot, script, touch, repeatable: false };
        read_put(self.confirm.run(put).await?)
    }

    async fn page(&self, kind: RecordKind, cursor: Option<&str>, limit: usize) -> Result<Page, StoreError> {
        let (mut bucket, mut after) = read_cursor(cursor)?;
        let mut page = Page::default();
        while bucket < REGISTRY_BUCKETS && page.ids.len() < limit {
            let wanted = limit - page.ids.len();
            let key = keys::registry(bucket, kind);
            let from = after.as_ref().map_or("-".to_string(), |id| format!("({MARK}{id}"));
            let command =
                Command::new("ZRANGEBYLEX").arg(key.text).arg(from).arg("+").arg("LIMIT").arg("0").number(wanted);
            let entries = self.router.ask(key.slot, command).await?.into_list()?;
            let ids: Vec<String> = entries.into_iter().map(read_entry).collect::<Result<_, _>>()?;
            let full = ids.len() == wanted;
            after = ids.last().filter(|_| full).cloned();
            page.ids.extend(self.existing(kind, ids).await?);
            if !full {
                bucket += 1;
            }
            // A page may come out shorter than its limit, where entries have no record; the next one goes on.
            if full {
                break;
            }
        }
        page.next = (bucket < REGISTRY_BUCKETS).then(|| format!("{bucket}:{}", after.unwrap_or_default()));
        Ok(page)
    }

    async fn existing(&self, kind: RecordKind, ids: Vec<String>) -> Result<Vec<String>, StoreError> {
        let commands = ids
            .iter()
            .map(|id| keys::record(kind, id))
            .map(|key| (key.slot, Command::new("EXISTS").arg(key.text)))
            .collect();
        let mut existing = Vec::with_capacity(ids.len());
        for (id, reply) in ids.into_iter().zip(self.router.batch(Role::Bulk, commands).await) {
            if reply?.number()? == 1 {
                existing.push(id);
            }
        }
        Ok(existing)
    }
}

impl Records for RedisRecords {
    fn get<'a>(&'a self, kind: RecordKind, id: &'a str) -> StoreFuture<'a, Option<Record>> {
        Box::pin(self.read(kind, id))
    }

    fn put<'a>(&'a self, kind: RecordKind, id: &'a str, expected: u64, body: Bytes) -> StoreFuture<'a, Put> {
        Box::pin(self.write(kind, id, expected, body))
    }

    fn list<'a>(&'a self, kind: RecordKind, cursor: Option<&'a str>, limit: usize) -> StoreFuture<'a, Page> {
        Box::pin(self.page(kind, cursor, limit))
    }
}

fn read_put(reply: Reply) -> Result<Put, StoreError> {
    let mut items = reply.into_list()?.into_iter();
    let how = items.next().unwrap_or(Reply::Nil).number()?;
    match (how, items.next(), items.next()) {
        (1, Some(version), None) => Ok(Put::Written { version: version.unsigned()? }),
        (0, None, None) => Ok(Put::Conflict(None)),
        (0, Some(version), Some(Reply::Bytes(body))) => {
            Ok(Put::Conflict(Some(Record { version: version.unsigned()?, body })))
        }
        _ => Err(StoreError::Corrupt("a record without a body".into())),
    }
}

fn read_entry(entry: Reply) -> Result<String, StoreError> {
    let text = entry.into_bytes()?.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
    text.and_then(|text| text.strip_prefix(MARK).map(str::to_string))
        .ok_or_else(|| StoreError::Corrupt("an entry of the registry is not one of ours".into()))
}

/// Reads `bucket:last id`; the id may be empty.
fn read_cursor(cursor: Option<&str>) -> Result<(u16, Option<String>), StoreError> {
    let Some(cursor) = cursor else { return Ok((0, None)) };
    let parts = cursor.split_once(':').and_then(|(bucket, id)| Some((bucket.parse().ok()?, id)));
    let (bucket, id) = parts.ok_or_else(|| StoreError::Refused("this cursor is not one of ours".into()))?;
    Ok((bucket, (!id.is_empty()).then(|| id.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back_as_they_were_given_out() {
        assert_eq!(read_cursor(None), Ok((0, None)));
        assert_eq!(read_cursor(Some("3:")), Ok((3, None)));
        assert_eq!(read_cursor(Some("3:a:b")), Ok((3, Some("a:b".into()))));
        assert!(read_cursor(Some("x")).is_err());
    }
}
