//! Upkeep of hard campaigns: overdue holds expire, stuck parcels arrive, operations go on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::rounds::{CampaignDuty, DutyFuture, IDLE};
use crate::domain::id::CampaignId;
use crate::service::error::ServiceError;
use crate::service::ledger::lost::{Loss, Mending};
use crate::service::quota::upkeep::Upkeep;
use crate::store::pools::Duty;

/// A hold expires at most about this late.
const ROUND: Duration = Duration::from_millis(250);
const LEASE: Duration = Duration::from_secs(2);
/// Between two tries to put a campaign right, and between two lines of the log about it.
const MEND_AGAIN: Duration = Duration::from_secs(5);
const TELL_AGAIN: Duration = Duration::from_secs(60);

pub struct UpkeepDuty {
    pub upkeep: Upkeep,
    /// None: there is no ledger that lost pools could be rebuilt from.
    pub mending: Option<Arc<Mending>>,
    /// Campaigns that could not be put right, and when that is tried next.
    pub unmended: Unmended,
}

/// When each is tried next, and when its failure was last told.
#[derive(Default)]
pub struct Unmended(Mutex<HashMap<CampaignId, (Instant, Instant)>>);

impl Unmended {
    fn is_due(&self, campaign: &CampaignId) -> bool {
        self.lock().get(campaign).is_none_or(|(next, _)| *next <= Instant::now())
    }

    /// Whether this failure is to be told.
    fn failed(&self, campaign: &CampaignId) -> bool {
        let now = Instant::now();
        let mut unmended = self.lock();
        let told = unmended.get(campaign).map(|(_, told)| *told).filter(|told| told.elapsed() < TELL_AGAIN);
        unmended.insert(campaign.clone(), (now + MEND_AGAIN, told.unwrap_or(now)));
        told.is_none()
    }

    fn mended(&self, campaign: &CampaignId) {
        self.lock().remove(campaign);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CampaignId, (Instant, Instant)>> {
        // Each change is whole before the lock is given back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UpkeepDuty {
    /// Puts pools right that have gone back in time.
    async fn mend(&self, campaign: &CampaignId) {
        let Some(mending) = &self.mending else { return };
        if !self.unmended.is_due(campaign) || !self.upkeep.is_fenced(campaign).await {
            return;
        }
        let tell = |progress: String| tracing::info!(campaign = campaign.as_str(), "{progress}");
        match mending.mend(campaign, Loss::WentBack, &tell).await {
            Ok(mended) if mended.pools.is_empty() => {}
            Ok(mended) => {
                self.unmended.mended(campaign);
                metrics::counter!("headcount_pools_mended_total").increment(mended.pools.len() as u64);
                for pool in mended.pools {
                    tracing::warn!(
                        campaign = campaign.as_str(),
                        shard = pool.shard,
                        claims = pool.claims,
                        stock = pool.stock,
                        "a shard had gone back in time; it is rebuilt from the ledger, and serves again"
                    );
                }
            }
            Err(error) => {
                if self.unmended.failed(campaign) {
                    tracing::warn!(campaign = campaign.as_str(), %error, "a fenced shard cannot be put right yet");
                }
            }
        }
    }
}

impl CampaignDuty for UpkeepDuty {
    fn duty(&self) -> Duty {
        Duty::Upkeep
    }

    fn round(&self) -> Duration {
        ROUND
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn known(&self) -> Vec<CampaignId> {
        self.upkeep.offers.campaigns()
    }

    fn is_wanted<'a>(&'a self, campaign: &'a CampaignId) -> DutyFuture<'a, bool> {
        Box::pin(self.upkeep.is_wanted(campaign))
    }

    fn tend<'a>(&'a self, campaign: &'a CampaignId) -> DutyFuture<'a, Duration> {
        Box::pin(async move {
            self.mend(campaign).await;
            match self.upkeep.tend(campaign).await {
                Ok(true) => ROUND,
                Ok(false) => IDLE,
                Err(error) => {
                    metrics::counter!("headcount_upkeep_failures_total").increment(1);
                    // A lost shard says so itself, loudly; everything else passes, or is met by callers too.
                    if !matches!(error, ServiceError::PoolLost { .. }) {
                        tracing::debug!(campaign = campaign.as_str(), %error, "upkeep is tried again");
                    }
                    LEASE / 2
                }
            }
        })
    }

    fn left_to_others(&self, _: &CampaignId) {}
}
