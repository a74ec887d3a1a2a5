//! An offer: a hard campaign as this process sells it, between the calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moka::sync::Cache;

use super::claimants::ClaimantSet;
use super::luckiest::LuckiestMemory;
use super::memory::SoldOutMemory;
use super::pools::LocalPool;
use super::reading::Surveys;
use super::waiting::Waiting;
use super::wishes::{self, ClaimQueue};
use crate::domain::id::CampaignId;
use crate::domain::ring::Shards;
use crate::service::book::{Admission, Book, CampaignFacts, HardFacts};
use crate::service::error::ServiceError;
use crate::store::pools::{PoolAddress, Pools};

/// Campaigns kept between calls. Beyond it the least used are forgotten; what is under way ends all the same.
const OFFERS_MAX: u64 = 10_000;

/// What this process knows of a hard campaign.
pub struct Offer {
    pub campaign: CampaignId,
    pub shards: Shards,
    /// How long "sold out" may be said from memory.
    pub interval: Duration,
    pub holds: bool,
    pub pools: Vec<Arc<LocalPool>>,
    pub queues: Vec<Arc<ClaimQueue>>,
    pub waiting: Vec<Waiting>,
    pub surveys: Surveys,
    pub sold_out: SoldOutMemory,
    pub claimants: ClaimantSet,
    pub luckiest: LuckiestMemory,
    /// Units this process granted, ever: tells how many since the last survey.
    pub granted: AtomicU64,
}

impl Offer {
    pub fn new(
        campaign: &CampaignId,
        shards: Shards,
        facts: HardFacts,
        (store, remembers): (&Arc<dyn Pools>, bool),
    ) -> Self {
        let address = |position| PoolAddress { campaign: campaign.clone(), position };
        let pools: Vec<Arc<LocalPool>> = shards
            .positions()
            .zip(0u16..)
            .map(|(position, shard)| Arc::new(LocalPool::new(address(position), shard, store.clone(), remembers)))
            .collect();
        let count = pools.len();
        Self {
            campaign: campaign.clone(),
            shards,
            interval: Duration::from_millis(facts.interval_ms),
            holds: facts.hold_s > 0,
            queues: (0..count).map(|_| Arc::new(ClaimQueue::new(wishes::PACE))).collect(),
            waiting: (0..count).map(|_| Waiting::default()).collect(),
            surveys: Surveys::default(),
            sold_out: SoldOutMemory::default(),
            claimants: ClaimantSet::new(count),
            luckiest: LuckiestMemory::default(),
            granted: AtomicU64::new(0),
            pools,
        }
    }

    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }
}

/// All offers of this process.
pub struct Offers {
    store: Arc<dyn Pools>,
    /// There is a ledger that can be told what a pool has lost.
    remembers: bool,
    /// By the campaign's serial number and its creation.
    kept: Cache<(u64, i64), Arc<Offer>>,
}

impl Offers {
    pub fn new(store: Arc<dyn Pools>, remembers: bool) -> Self {
        Self { store, remembers, kept: Cache::builder().max_capacity(OFFERS_MAX).build() }
    }

    /// The offer of a campaign. One that was made anew under the same id (another creation) is another offer.
    pub fn get(&self, campaign: &CampaignId, facts: &CampaignFacts, hard: HardFacts) -> Arc<Offer> {
        let key = (facts.serial, facts.created_at.as_microsecond());
        if let Some(offer) = self.kept.get(&key) {
            return offer;
        }
        self.kept.get_with(key, || Arc::new(Offer::new(campaign, facts.shards, hard, (&self.store, self.remembers))))
    }

    /// The offer of a campaign that is not soft.
    pub async fn of(&self, book: &Book, campaign: &CampaignId) -> Result<Arc<Offer>, ServiceError> {
        let facts = book.campaign(campaign).await?;
        match facts.admission {
            Admission::Hard(hard) => Ok(self.get(campaign, &facts, hard)),
            Admission::Soft { .. } => Err(ServiceError::NotKeptBySoft),
        }
    }

    pub fn all(&self) -> Vec<Arc<Offer>> {
        self.kept.iter().map(|(_, offer)| offer).collect()
    }

    /// Campaigns that this process sells.
    pub fn campaigns(&self) -> Vec<CampaignId> {
        self.kept.iter().map(|(_, offer)| offer.campaign.clone()).collect()
    }

    pub fn store(&self) -> &Arc<dyn Pools> {
        &self.store
    }
}
