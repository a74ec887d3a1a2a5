//! Upkeep of hard campaigns: overdue holds expire, stuck parcels arrive, operations go on.

use std::time::Duration;

use super::rounds::{CampaignDuty, DutyFuture, IDLE};
use crate::domain::id::CampaignId;
use crate::service::error::ServiceError;
use crate::service::quota::upkeep::Upkeep;
use crate::store::pools::Duty;

/// A hold expires at most about this late.
const ROUND: Duration = Duration::from_millis(250);
const LEASE: Duration = Duration::from_secs(2);

pub struct UpkeepDuty {
    pub upkeep: Upkeep,
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
