//! The port of outboxes. Entries are read from the file, where they are as soon as anybody is told of their steps; an
//! entry's name is its index.

use bytes::Bytes;

use super::EmbeddedStore;
use super::file::Snapshot;
use super::format::{self, Key};
use super::pool_cells::PoolState;
use super::pool_head::{self, News};
use super::pool_log;
use super::rows::corrupt;
use crate::store::StoreFuture;
use crate::store::error::StoreError;
use crate::store::outbox::{Outbox, OutboxBatch, OutboxLag};
use crate::store::pools::PoolAddress;

/// So many entries are read at once.
const READ_MAX: usize = 1000;

impl Outbox for EmbeddedStore {
    fn read<'a>(&'a self, pool: &'a PoolAddress, limit: usize) -> StoreFuture<'a, Option<OutboxBatch>> {
        Box::pin(async move {
            let text = format::pool_text(pool);
            let Some((news, rows)) = self.kept(&text, 0, limit.min(READ_MAX))? else { return Ok(None) };
            let behind = news.log.len() - rows.len() as u64;
            let entry = |(index, key, value): &Kept| {
                let entry = pool_log::entry_of(value).map_err(|fault| corrupt(key, fault))?;
                Ok((index.to_string(), entry))
            };
            let entries = rows.iter().map(entry).collect::<Result<_, StoreError>>()?;
            let News { incarnation, ver, .. } = news;
            Ok(Some(OutboxBatch { entries, behind, incarnation, ver }))
        })
    }

    fn acknowledge<'a>(&'a self, pool: &'a PoolAddress, entries: &'a [String]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let foreign = |_| StoreError::Refused("this is no name of an entry".to_owned());
            let indexes: Vec<u64> =
                entries.iter().map(|name| name.parse().map_err(foreign)).collect::<Result<_, _>>()?;
            let text = format::pool_text(pool);
            let Some(cell) = self.committer.pools().get(&text) else { return Ok(()) };
            let acknowledge = |state: &mut PoolState| {
                state.sound(&text)?;
                Ok(((), state.acknowledge(&indexes)))
            };
            self.committer.write_pool(&cell, acknowledge).await
        })
    }

    /// Of entries whose time is not known, none has waited.
    fn lag<'a>(&'a self, pool: &'a PoolAddress) -> StoreFuture<'a, Option<OutboxLag>> {
        Box::pin(async move {
            let Some((news, rows)) = self.kept(&format::pool_text(pool), 0, 1)? else { return Ok(None) };
            let mut since_ms = None;
            if let Some((_, key, value)) = rows.first() {
                let entry = pool_log::entry_of(value).map_err(|fault| corrupt(key, fault))?;
                since_ms = Some(entry.at_ms).filter(|at_ms| *at_ms > 0);
            }
            let age_ms = since_ms.map_or(0, |since_ms| (self.now_us() / 1000 - since_ms).try_into().unwrap_or(0));
            Ok(Some(OutboxLag { entries: news.log.len(), age_ms }))
        })
    }

    fn rename<'a>(&'a self, pool: &'a PoolAddress, user: &'a str, alias: &'a str) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            let text = format::pool_text(pool);
            let Some(cell) = self.committer.pools().get(&text) else { return Ok(0) };
            // All entries of before are on disk then.
            self.committer.write_pool(&cell, |state| Ok(((), state.seen()))).await?;
            let (mut from, mut renamed) = (0, 0);
            while let Some((_, rows)) = self.kept(&text, from, READ_MAX)? {
                let Some((last, ..)) = rows.last() else { break };
                from = last + 1;
                let mut changed = Vec::new();
                for (index, key, value) in &rows {
                    let row = pool_log::renamed(value, user, alias).map_err(|fault| corrupt(key, fault))?;
                    changed.extend(row.map(|value| (*index, value)));
                }
                if !changed.is_empty() {
                    let rewrite = |state: &mut PoolState| {
                        state.sound(&text)?;
                        Ok(state.rewrite(changed))
                    };
                    renamed += self.committer.write_pool(&cell, rewrite).await?;
                }
                tokio::task::yield_now().await;
            }
            Ok(renamed)
        })
    }
}

/// An entry that is not acknowledged: index and row.
type Kept = (u64, Key, Bytes);

impl EmbeddedStore {
    /// The first entries from an index on, and the pool's place: both of one commit. None: there is no such pool.
    fn kept(&self, text: &str, from: u64, limit: usize) -> Result<Option<(News, Vec<Kept>)>, StoreError> {
        let Some(cell) = self.committer.pools().get(text) else { return Ok(None) };
        cell.lock().sound(text)?;
        let read = self.committer.read(|snapshot| rows(snapshot, text, from, limit))?;
        read.transpose().map_err(|fault| corrupt(&Key::pool(text), fault))
    }
}

type Found = Option<Result<(News, Vec<Kept>), String>>;

fn rows(snapshot: &Snapshot, text: &str, from: u64, limit: usize) -> Result<Found, redb::Error> {
    let Some(head) = snapshot.row(&Key::pool(text))? else { return Ok(None) };
    let news = match pool_head::news_of(&head) {
        Ok(Some(news)) => news,
        Ok(None) => return Ok(None),
        Err(fault) => return Ok(Some(Err(fault))),
    };
    let first = Key::pool_log(text, from.max(news.log.first()));
    let rows = snapshot.rows(&first, &format::pool_range(text).end, limit)?;
    let expected = (limit as u64).min(news.log.len());
    if from == 0 && (rows.len() as u64) != expected {
        return Ok(Some(Err(format!("{} entries where {expected} should be", rows.len()))));
    }
    let kept = |(key, value): (Key, Bytes)| {
        let index = format::log_index(&key.text).ok_or_else(|| format!("{}: not an entry", key.describe()))?;
        Ok((index, key, value))
    };
    Ok(Some(rows.into_iter().map(kept).collect::<Result<_, _>>().map(|rows| (news, rows))))
}
