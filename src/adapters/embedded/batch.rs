//! What one commit writes: rows as they are now, and all that has changed of each dirty pool together.

use std::sync::Arc;

use bytes::Bytes;

use super::file::File;
use super::format::Key;
use super::pool_cells::{PoolCell, PoolCells, Taken};
use super::rows::{Row, Rows};
use crate::store::error::StoreError;

/// Something that the next commit must write.
pub enum Dirty {
    Row(Key),
    Pool(Arc<PoolCell>),
}

#[derive(Default)]
pub struct Batch {
    values: Vec<(Key, Option<Bytes>)>,
    /// So many of the values are rows of their own; the others are parts of pools.
    rows: usize,
    pools: Vec<Arc<PoolCell>>,
    /// Those of `pools` that were emptied: their claims and packets are deleted before anything is written.
    emptied: Vec<Box<str>>,
    /// Pools that are going: some of their rows are deleted too.
    going: Vec<Arc<PoolCell>>,
    /// Why those who wait for this batch cannot be told that all they saw is on disk.
    pub broken: Option<StoreError>,
}

/// What became of a batch.
#[derive(Default)]
pub struct Settled {
    /// To be put in the queue again.
    pub again: Vec<Dirty>,
    /// Entries of outboxes that are on disk now.
    pub entries: usize,
}

impl Batch {
    /// The bytes of all that is dirty, as they are now.
    pub fn take(rows: &Rows, dirty: Vec<Dirty>) -> Self {
        let mut batch = Self::default();
        let mut pools = Vec::new();
        for one in dirty {
            match one {
                Dirty::Row(key) => {
                    let value = rows.shard(&key).get_mut(&key).map(Row::snapshot);
                    batch.values.extend(value.map(|value| (key, value)));
                }
                Dirty::Pool(cell) => pools.push(cell),
            }
        }
        batch.rows = batch.values.len();
        for cell in pools {
            let taken = cell.lock().take(&cell.text, &mut batch.values);
            match taken {
                Taken::Broken(error) => batch.broken = Some(error),
                Taken::Going => batch.going.push(cell),
                Taken::Rows => batch.pools.push(cell),
                Taken::Emptied => {
                    batch.emptied.push(cell.text.clone());
                    batch.pools.push(cell);
                }
            }
        }
        batch
    }

    /// Writes all of it or nothing. Answers for each pool that is going whether nothing is left of it.
    pub fn write(&self, file: &mut File) -> Result<Vec<bool>, redb::Error> {
        if self.values.is_empty() {
            return Ok(Vec::new());
        }
        let going: Vec<&str> = self.going.iter().map(|cell| &*cell.text).collect();
        file.write_and_clear(&self.values, &self.emptied, &going)
    }

    pub fn settle(self, rows: &Rows, gone: Vec<bool>) -> Settled {
        for (key, value) in self.values.into_iter().take(self.rows) {
            let mut shard = rows.shard(&key);
            if shard.get_mut(&key).is_some_and(|row| row.settle(value)) {
                shard.remove(&key);
            }
        }
        let mut settled = Settled::default();
        let staying = self.pools.into_iter().map(|cell| (cell, false));
        for (cell, gone) in staying.chain(self.going.into_iter().zip(gone)) {
            let (entries, again) = cell.lock().settle(gone);
            settled.entries += entries;
            settled.again.extend(again.then_some(Dirty::Pool(cell)));
        }
        settled
    }

    /// After a failed commit: what was in flight is dirty again, and is answered to be queued.
    pub fn unsettle(self, rows: &Rows) -> Vec<Dirty> {
        let in_flight = |key: &Key| rows.shard(key).get_mut(key).is_some_and(Row::unsettle);
        let keys = self.values.into_iter().take(self.rows).map(|(key, _)| key);
        let mut again: Vec<Dirty> = keys.filter(in_flight).map(Dirty::Row).collect();
        let pools = self.pools.into_iter().chain(self.going);
        again.extend(pools.filter(|cell| cell.lock().unsettle()).map(Dirty::Pool));
        again
    }
}

/// Everything that is kept in memory.
pub struct Content {
    pub rows: Rows,
    pub pools: PoolCells,
}

impl Content {
    pub fn new(of_file: Vec<(Key, Bytes)>) -> Self {
        let (of_pools, rows): (Vec<_>, Vec<_>) = of_file.into_iter().partition(|(key, _)| key.table.is_of_pools());
        Self { rows: Rows::new(rows), pools: PoolCells::new(of_pools) }
    }
}
