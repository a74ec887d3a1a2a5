//! Whose packet is the largest: found by reading all claims, and remembered.

use std::cmp::Reverse;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::pools::LocalPool;
use super::reading::Survey;
use crate::domain::quota::claim::{ClaimRecord, UserKey};
use crate::domain::quota::marks::Floor;
use crate::service::error::ServiceError;

/// Reading a million claims takes the store some seconds of its spare time.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// A claim: the shard that keeps it, whose it is, and its record.
pub type Found = (usize, UserKey, ClaimRecord);

/// What the last reading found. Locked while it is read again, so that all who ask share one.
#[derive(Default)]
pub struct LuckiestMemory(Mutex<Option<Known>>);

struct Known {
    at: Vec<Floor>,
    read: Instant,
    found: Option<Found>,
}

impl LuckiestMemory {
    /// The claim with the largest packet, read again only if the pools have changed, and once a second at most.
    pub async fn get<'a>(
        &self,
        survey: &Survey,
        pools: impl Iterator<Item = &'a LocalPool>,
    ) -> Result<Option<Found>, ServiceError> {
        let at: Vec<Floor> = survey.complete()?.iter().map(|pool| pool.at).collect();
        let mut known = self.0.lock().await;
        if let Some(known) = &*known
            && (known.at == at || known.read.elapsed() < READ_AGAIN)
        {
            return Ok(known.found.clone());
        }
        let read = Instant::now();
        let of_pools = try_join_all(pools.enumerate().map(|(shard, pool)| of_pool(shard, pool))).await?;
        let found = of_pools.into_iter().flatten().max_by_key(|(_, _, record)| luck(record));
        *known = Some(Known { at, read, found: found.clone() });
        Ok(found)
    }
}

async fn of_pool(shard: usize, pool: &LocalPool) -> Result<Option<Found>, ServiceError> {
    let mut best: Option<Found> = None;
    pool.each_claim(|user, record| {
        if record.state.is_live() && best.as_ref().is_none_or(|(_, _, best)| luck(&record) > luck(best)) {
            best = Some((shard, user, record));
        }
    })
    .await?;
    Ok(best)
}

/// Orders claims: more cents, then earlier, then the lower number.
fn luck(record: &ClaimRecord) -> (Option<i64>, Reverse<(i64, u64)>) {
    (record.unit.cents, Reverse((record.claimed_ms, record.unit.number)))
}
