//! Testifying: when a pool has gone back to an older state, or is gone, every process brings the ledger what it remembers
//! of the pool's last claims, and how far the pool had come. Whoever mends the pool waits for that (docs/FAULTS.md A10).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::drain::Drain;
use crate::domain::quota::marks::Floor;
use crate::service::book::Admission;
use crate::service::error::ServiceError;
use crate::service::quota::offer::Offer;
use crate::service::quota::pools::LocalPool;
use crate::service::quota::survey::survey;
use crate::store::documents::Phase;
use crate::store::ledger::Progress;
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
                let is_lost = match reading {
                    Err(ServiceError::PoolLost { fenced, .. }) => *fenced || !self.is_removed(&offer).await,
                    _ => false,
                };
                if is_lost {
                    self.bring(&offer, pool).await;
                }
            }
        }
    }

    /// Whether pools are gone because they were removed.
    async fn is_removed(&self, offer: &Offer) -> bool {
        let facts = self.drain.book.campaign(&offer.campaign).await.map(|facts| facts.admission);
        matches!(facts, Ok(Admission::Hard(hard)) if matches!(hard.phase, Phase::Removing | Phase::Removed))
    }

    async fn bring(&self, offer: &Offer, pool: &LocalPool) {
        let what = (pool.address.clone(), pool.floor());
        let known =
            |brought: &Mutex<HashSet<_>>| brought.lock().unwrap_or_else(PoisonError::into_inner).contains(&what);
        let Some(recent) = pool.recent.as_ref().filter(|_| !known(&self.brought)) else { return };
        let entries = recent.entries();
        let count = entries.len();
        let brought = async {
            let mut progress = self.drain.progress_of(&offer.campaign, pool.shard).await?;
            let Floor { incarnation, ver } = what.1;
            if (incarnation, ver) > (progress.incarnation, progress.ver) {
                // Older steps than are remembered may be missing: it is for a person to go on all the same.
                let at_ms = self.drain.clock.now().as_millisecond();
                progress = Progress { incarnation, ver, behind: progress.behind.max(1), at_ms };
            }
            self.drain.bring(&offer.campaign, pool.shard, entries, progress).await
        };
        match brought.await {
            Ok((rows, _)) => {
                tracing::warn!(
                    campaign = offer.campaign.as_str(),
                    shard = pool.shard,
                    remembered = count,
                    rows,
                    "a shard went back in time or is gone: what this process remembers of it is in the ledger"
                );
                self.brought.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
            }
            Err(error) => tracing::debug!(campaign = offer.campaign.as_str(), %error, "tried again"),
        }
    }
}
