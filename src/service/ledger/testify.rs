//! Testifying: when a pool has gone back to an older state, every process brings the ledger what it remembers of the
//! pool's last claims. Whoever mends the pool waits for that (docs/FAULTS.md A10).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::drain::Drain;
use crate::domain::quota::marks::Floor;
use crate::service::error::ServiceError;
use crate::service::quota::offer::Offer;
use crate::service::quota::pools::LocalPool;
use crate::service::quota::survey::survey;
use crate::store::pools::PoolAddress;

/// A process looks at the pools that it granted from about so often; whoever mends waits longer.
pub const LOOK: Duration = Duration::from_secs(1);

pub struct Testimony {
    pub drain: Arc<Drain>,
    /// What was brought, and when the process knew no more than that.
    pub brought: Mutex<HashSet<(PoolAddress, Floor)>>,
}

impl Testimony {
    /// Looks at every campaign that this process has granted from in the last minute.
    pub async fn look(&self) {
        for offer in self.drain.offers.all() {
            let remembers = |pool: &LocalPool| pool.recent.as_ref().is_some_and(|recent| !recent.is_empty());
            if !offer.pools.iter().any(|pool| remembers(pool)) {
                continue;
            }
            let survey = survey(&offer, LOOK).await;
            for (pool, reading) in offer.pools.iter().zip(&survey.pools) {
                if matches!(reading, Err(ServiceError::PoolLost { fenced: true, .. })) {
                    self.bring(&offer, pool).await;
                }
            }
        }
    }

    async fn bring(&self, offer: &Offer, pool: &LocalPool) {
        let what = (pool.address.clone(), pool.floor());
        let known =
            |brought: &Mutex<HashSet<_>>| brought.lock().unwrap_or_else(PoisonError::into_inner).contains(&what);
        let Some(recent) = pool.recent.as_ref().filter(|_| !known(&self.brought)) else { return };
        let entries = recent.entries();
        let count = entries.len();
        let brought = async {
            let progress = self.drain.progress_of(&offer.campaign, pool.shard).await?;
            self.drain.bring(&offer.campaign, pool.shard, entries, progress).await
        };
        match brought.await {
            Ok((fresh, _)) => {
                tracing::warn!(
                    campaign = offer.campaign.as_str(),
                    shard = pool.shard,
                    remembered = count,
                    fresh,
                    "a shard went back in time: what this process remembers of it is in the ledger"
                );
                self.brought.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
            }
            Err(error) => tracing::debug!(campaign = offer.campaign.as_str(), %error, "tried again"),
        }
    }
}
