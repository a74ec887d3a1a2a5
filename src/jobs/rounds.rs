//! Rounds: what every process does to all campaigns, each campaign by one process at a time.
//!
//! A process looks at the list of campaigns now and then, and takes a lease on each that needs the duty; whoever has it
//! does the work. A process that dies leaves its lease to run out. The job looks at the state, not at messages, so that
//! nothing is missed, and whatever is left undone the next round finds.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::domain::id::CampaignId;
use crate::runtime::random::random_name;
use crate::store::pools::{Duty, Pools};
use crate::store::records::{RecordKind, Records};

/// Campaigns that only other processes sell are noticed this late; they look after them meanwhile.
const LIST_EVERY: Duration = Duration::from_secs(5);
/// A campaign with nothing to do is looked at again after this.
pub const IDLE: Duration = Duration::from_secs(5);
/// Campaigns tended at once.
const AT_ONCE: usize = 8;
const PAGE: usize = 1000;

/// An answer to come. Boxed, because duties are trait objects.
pub type DutyFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A duty to campaigns.
pub trait CampaignDuty: Send + Sync {
    fn duty(&self) -> Duty;

    /// Between two rounds.
    fn round(&self) -> Duration;

    /// A process that died is replaced after this.
    fn lease(&self) -> Duration;

    /// Campaigns that this process knows without the list.
    fn known(&self) -> Vec<CampaignId>;

    /// Whether the campaign needs anything; asks no store.
    fn is_wanted<'a>(&'a self, campaign: &'a CampaignId) -> DutyFuture<'a, bool>;

    /// Does what is due; how long until the campaign is looked at again.
    fn tend<'a>(&'a self, campaign: &'a CampaignId) -> DutyFuture<'a, Duration>;

    /// Another process has the lease.
    fn left_to_others(&self, campaign: &CampaignId);
}

pub struct Rounds {
    pub duty: Arc<dyn CampaignDuty>,
    pub records: Arc<dyn Records>,
    pub pools: Arc<dyn Pools>,
}

impl Rounds {
    pub async fn run(self, stop: CancellationToken) {
        let me = random_name();
        // When each campaign is due.
        let mut due: HashMap<CampaignId, Instant> = HashMap::new();
        let mut listed: Option<Instant> = None;
        while stop.run_until_cancelled(tokio::time::sleep(self.duty.round())).await.is_some() {
            if listed.is_none_or(|at| at.elapsed() > LIST_EVERY) {
                listed = Some(Instant::now());
                self.list(&mut due).await;
            }
            for campaign in self.duty.known() {
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
        if !self.duty.is_wanted(campaign).await {
            return IDLE;
        }
        let lease = self.duty.lease();
        match self.pools.lease(campaign, self.duty.duty(), me, lease).await {
            Ok(true) => self.duty.tend(campaign).await,
            Ok(false) => {
                self.duty.left_to_others(campaign);
                lease
            }
            Err(_) => lease / 2,
        }
    }
}
