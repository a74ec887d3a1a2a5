//! Upkeep of hard campaigns: overdue holds expire, stuck parcels arrive, operations go on.
//!
//! Every process looks at the list of campaigns now and then, and takes a lease on each that needs something; whoever
//! has it does the work. A process that dies leaves its lease to run out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::domain::id::CampaignId;
use crate::runtime::random::random_name;
use crate::service::error::ServiceError;
use crate::service::quota::upkeep::Upkeep;
use crate::store::pools::{Duty, Pools};
use crate::store::records::{RecordKind, Records};

/// A hold expires at most about this late.
const ROUND: Duration = Duration::from_millis(250);
/// A process that died is replaced after this.
const LEASE: Duration = Duration::from_secs(2);
/// Campaigns that only other processes sell are noticed this late; they look after them meanwhile.
const LIST_EVERY: Duration = Duration::from_secs(5);
/// A campaign with nothing to do is looked at again after this.
const IDLE: Duration = Duration::from_secs(5);
/// Campaigns tended at once.
const AT_ONCE: usize = 8;
const PAGE: usize = 1000;

pub struct UpkeepJob {
    pub upkeep: Upkeep,
    pub records: Arc<dyn Records>,
    pub pools: Arc<dyn Pools>,
}

impl UpkeepJob {
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let me = random_name();
        // When each campaign is due.
        let mut due: HashMap<CampaignId, Instant> = HashMap::new();
        let mut listed: Option<Instant> = None;
        while stop.run_until_cancelled(tokio::time::sleep(ROUND)).await.is_some() {
            if listed.is_none_or(|at| at.elapsed() > LIST_EVERY) {
                listed = Some(Instant::now());
                self.list(&mut due).await;
            }
            for campaign in self.upkeep.offers.campaigns() {
                due.entry(campaign).or_insert_with(Instant::now);
            }
            let now = Instant::now();
            let ripe: Vec<CampaignId> =
                due.iter().filter(|(_, at)| **at <= now).map(|(campaign, _)| campaign.clone()).collect();
            let tended = stream::iter(ripe)
                .map(|campaign| async {
                    let next = self.tend(&campaign, &me).await;
                    (campaign, next)
                })
                .buffer_unordered(AT_ONCE)
                .collect::<Vec<_>>();
            // What is left undone when the process stops the next holder of the lease goes on with.
            let Some(tended) = stop.run_until_cancelled(tended).await else { return };
            for (campaign, wait) in tended {
                due.insert(campaign, Instant::now() + wait);
            }
        }
    }

    /// Enters campaigns that were not known yet.
    async fn list(&self, due: &mut HashMap<CampaignId, Instant>) {
        let mut cursor: Option<String> = None;
        loop {
            match self.records.list(RecordKind::Campaign, cursor.as_deref(), PAGE).await {
                Ok(page) => {
                    let campaigns = page.ids.iter().filter_map(|id| CampaignId::new(id).ok());
                    campaigns.for_each(|campaign| {
                        due.entry(campaign).or_insert_with(Instant::now);
                    });
                    cursor = page.next;
                }
                Err(error) => {
                    tracing::debug!(%error, "the campaigns cannot be listed now");
                    return;
                }
            }
            if cursor.is_none() {
                return;
            }
        }
    }

    /// Tends a campaign if the lease is to be had; how long until it is looked at again.
    async fn tend(&self, campaign: &CampaignId, me: &str) -> Duration {
        if !self.upkeep.is_wanted(campaign).await {
            return IDLE;
        }
        match self.pools.lease(campaign, Duty::Upkeep, me, LEASE).await {
            Ok(true) => {}
            Ok(false) => return LEASE,
            Err(_) => return LEASE / 2,
        }
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
    }
}
