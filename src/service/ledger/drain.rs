//! The drain: news of a campaign's pools go from their outboxes to the ledger.
//!
//! ```text
//! outbox.read ──▶ ledger.write (one transaction, unique keys) ──▶ outbox.acknowledge
//!  replicated                  committed                            at once
//! ```
//!
//! It may stop anywhere: what was not acknowledged is read again, and what was written already is not written twice
//! (docs/FAULTS.md A5, A6). A ledger that is slow or away costs claims nothing; the outboxes keep what it has yet to hear.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::time::Instant;

use crate::domain::id::CampaignId;
use crate::domain::ledger::settle::Conflict;
use crate::domain::quota::marks::Floor;
use crate::domain::quota::mend::Mend;
use crate::domain::quota::step::Step;
use crate::runtime::clock::Clock;
use crate::service::book::{Admission, Book};
use crate::service::error::ServiceError;
use crate::service::quota::offer::{Offer, Offers};
use crate::service::quota::pools::LocalPool;
use crate::store::documents::Phase;
use crate::store::ledger::{Ledger, LedgerBatch, Progress};
use crate::store::outbox::{Outbox, OutboxLag};
use crate::store::pools::PoolAddress;

/// Entries of one transaction. Fewer: commits cost more than rows; more: a transaction holds its locks longer.
pub const BATCH: usize = 500;
/// Pools drained at once: more than the ledger has connections only wait.
const POOLS_AT_ONCE: usize = 4;
/// A campaign is drained for so long in one go; then the lease is renewed.
const GO: Duration = Duration::from_secs(1);

pub struct Drain {
    pub book: Arc<Book>,
    pub offers: Arc<Offers>,
    pub outbox: Arc<dyn Outbox>,
    pub ledger: Arc<dyn Ledger>,
    pub clock: Clock,
    /// Where each pool stood when this process last told the ledger.
    pub told: Told,
}

#[derive(Default)]
pub struct Told(Mutex<HashMap<PoolAddress, Floor>>);

/// What one go came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drained {
    /// Entries that the ledger did not have.
    pub fresh: u64,
    /// Entries that were left when the time was over.
    pub left: u64,
}

impl Drain {
    /// Where a campaign is in its life; None: it is soft, or not known.
    pub async fn phase(&self, campaign: &CampaignId) -> Option<Phase> {
        match self.book.campaign(campaign).await.ok()?.admission {
            Admission::Hard(hard) => Some(hard.phase),
            Admission::Soft { .. } => None,
        }
    }

    /// Drains a campaign for a while, or to the end.
    pub async fn drain(&self, campaign: &CampaignId) -> Result<Drained, ServiceError> {
        let offer = self.offer(campaign).await?;
        let until = Instant::now() + GO;
        let of_pools = stream::iter(offer.pools.clone()).map(|pool| {
            let offer = offer.clone();
            async move { self.drain_pool(&offer, &pool, until).await }
        });
        of_pools
            .buffer_unordered(POOLS_AT_ONCE)
            .try_fold(Drained::default(), |sum, of_pool| async move {
                Ok(Drained { fresh: sum.fresh + of_pool.fresh, left: sum.left + of_pool.left })
            })
            .await
    }

    /// Drains one pool until nothing is left or the time is over.
    pub async fn drain_pool(&self, offer: &Offer, pool: &LocalPool, until: Instant) -> Result<Drained, ServiceError> {
        let mut drained = Drained::default();
        loop {
            let Some(batch) = self.outbox.read(&pool.address, BATCH).await? else { return Ok(drained) };
            let at = Floor { incarnation: batch.incarnation, ver: batch.ver };
            if batch.entries.is_empty() && self.told.get(&pool.address) == Some(at) {
                return Ok(drained);
            }
            let (ids, entries): (Vec<String>, Vec<_>) = batch.entries.into_iter().unzip();
            let at_ms = self.clock.now().as_millisecond();
            let progress = Progress { incarnation: at.incarnation, ver: at.ver, behind: batch.behind, at_ms };
            let written = LedgerBatch { campaign: offer.campaign.clone(), shard: pool.shard, entries, progress };
            let written = self.ledger.write(&written).await.map_err(ServiceError::Ledger)?;
            metrics::counter!("headcount_ledger_entries_total").increment(written.fresh);
            drained.fresh += written.fresh;
            if !written.conflicts.is_empty() {
                self.stop(offer, pool, &written.conflicts).await?;
            }
            self.outbox.acknowledge(&pool.address, &ids).await?;
            drained.left = batch.behind;
            if batch.behind == 0 {
                self.told.put(&pool.address, at);
                return Ok(drained);
            }
            if Instant::now() >= until {
                return Ok(drained);
            }
        }
    }

    /// How far the ledger is behind a campaign.
    pub async fn lag(&self, campaign: &CampaignId) -> Result<OutboxLag, ServiceError> {
        let offer = self.offer(campaign).await?;
        let mut sum = OutboxLag::default();
        for pool in &offer.pools {
            let lag = self.outbox.lag(&pool.address).await?.unwrap_or_default();
            sum = OutboxLag { entries: sum.entries + lag.entries, age_ms: sum.age_ms.max(lag.age_ms) };
        }
        Ok(sum)
    }

    /// A pool whose news contradict the ledger has told somebody what cannot be: it serves nobody until a person has
    /// looked (docs/FAULTS.md F5).
    async fn stop(&self, offer: &Offer, pool: &LocalPool, conflicts: &[Conflict]) -> Result<(), ServiceError> {
        metrics::counter!("headcount_ledger_conflicts_total").increment(conflicts.len() as u64);
        let first = conflicts.first().map(|conflict| conflict.entry.unit().to_string());
        tracing::error!(
            campaign = offer.campaign.as_str(),
            shard = pool.shard,
            conflicts = conflicts.len(),
            unit = first.unwrap_or_default(),
            "news of this shard contradict the ledger (table ledger_conflicts): it is fenced; see docs/OPERATIONS.md"
        );
        pool.store().step(&pool.address, Floor::default(), Step::Mend(Mend::Fence)).await?;
        Ok(())
    }

    pub async fn offer(&self, campaign: &CampaignId) -> Result<Arc<Offer>, ServiceError> {
        self.offers.of(&self.book, campaign).await
    }
}

impl Told {
    fn get(&self, pool: &PoolAddress) -> Option<Floor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(pool).copied()
    }

    fn put(&self, pool: &PoolAddress, at: Floor) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(pool.clone(), at);
    }

    /// Of a campaign that is over.
    pub fn forget(&self, campaign: &CampaignId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|pool, _| pool.campaign != *campaign);
    }
}
