//! Claims on a campaign, and what is left of it. Soft admission: quota minus estimated claimants.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use moka::sync::Cache;
use tokio::time::Instant;

use super::admissions::{Admissions, Permit};
use super::book::{Admission, Book, CampaignFacts};
use super::crowd::{Admitted, Crowd};
use super::error::{OpeningHours, ServiceError};
use super::identity::Identity;
use super::merge::{Merger, Question};
use crate::domain::campaign::{CampaignState, admissions_per_reading, overshoot_places};
use crate::domain::counter::{Counter, Subject};
use crate::domain::element::Element;
use crate::domain::estimate::{self, Estimate};
use crate::domain::id::{CampaignId, UserId};
use crate::domain::period::{Period, Retention};
use crate::domain::ring::{Layout, ring_point};
use crate::local::cells::CellsKey;
use crate::local::readings::{KnownReading, Readings, Served, Slot};
use crate::local::store_clock::StoreClock;
use crate::store::counters::AnswerKey;

/// Nobody is admitted on an older reading, unless the campaign says so (docs/FAULTS.md F10).
pub const ADMIT_AGE_MAX: Duration = Duration::from_secs(2);
/// A claim waits so long for readings that admit it before it is told to come back.
const CLAIM_WAIT_MAX: Duration = Duration::from_secs(1);
/// Campaigns whose readings and admissions this process keeps.
const CAMPAIGNS_MAX: u64 = 10_000;

/// The answer to a claim on a soft campaign. It has no claim id and no unit: a sketch keeps neither.
#[derive(Clone, PartialEq, Debug)]
pub enum SoftClaim {
    Granted { claimed_at: Timestamp, remaining: u64, stale: bool },
    SoldOut { stale: bool },
    NotOpen(OpeningHours),
    Paused(OpeningHours),
    Closed(OpeningHours),
}

/// What is left, with its error and age.
#[derive(Clone, PartialEq, Debug)]
pub struct Remaining {
    pub campaign: CampaignId,
    pub state: CampaignState,
    pub hours: OpeningHours,
    /// The store's clock.
    pub server_time: Timestamp,
    pub quota: u64,
    pub remaining: u64,
    pub exact: bool,
    /// Half the width of the 95 % interval of `remaining`, in places.
    pub error_95_places: u64,
    /// By how many places the quota may be overshot, from this reading on.
    pub overshoot_places: u64,
    pub as_of: Timestamp,
    pub age_ms: u64,
    pub stale: bool,
    pub partial: bool,
    pub sold_out: bool,
}

/// Admits claims and tells what is left.
pub struct Claims {
    book: Arc<Book>,
    crowd: Arc<Crowd>,
    merger: Arc<Merger>,
    readings: Arc<Readings>,
    store_clock: Arc<StoreClock>,
    identity: Arc<Identity>,
    kept: Cache<CellsKey, Arc<Kept>>,
}

/// What this process keeps of one campaign between calls, found by one look.
struct Kept {
    account: Arc<Admissions>,
    question: Arc<Question>,
    slot: Arc<Slot>,
}

/// A campaign at the instant of a call.
struct Now {
    facts: CampaignFacts,
    admit_on_stale: bool,
    kept: Arc<Kept>,
    state: CampaignState,
    hours: OpeningHours,
    at: Timestamp,
}

impl Claims {
    pub fn new(
        book: Arc<Book>,
        crowd: Arc<Crowd>,
        merger: Arc<Merger>,
        readings: Arc<Readings>,
        (store_clock, identity): (Arc<StoreClock>, Arc<Identity>),
    ) -> Self {
        let kept = Cache::builder().max_capacity(CAMPAIGNS_MAX).build();
        Self { book, crowd, merger, readings, store_clock, identity, kept }
    }

    /// Admits while the estimate and this process's own admissions since the reading stay under the quota. A user is
    /// counted before being told `granted`, and nobody is counted who is not admitted.
    pub async fn claim(&self, campaign: &CampaignId, user: UserId<'_>) -> Result<SoftClaim, ServiceError> {
        let now = self.now(campaign).await?;
        match now.state {
            CampaignState::Closed => return Ok(SoftClaim::Closed(now.hours)),
            CampaignState::Paused => return Ok(SoftClaim::Paused(now.hours)),
            CampaignState::NotOpen => return Ok(SoftClaim::NotOpen(now.hours)),
            CampaignState::Open => {}
        }
        let element = self.identity.hashing()?.element(user);
        let account = &now.kept.account;
        let deadline = Instant::now() + CLAIM_WAIT_MAX;
        loop {
            let served = self.reading(&now.kept).await?;
            if served.reading.age() > ADMIT_AGE_MAX && !now.admit_on_stale {
                return Err(ServiceError::ReadingTooOld { max_age_ms: ADMIT_AGE_MAX.as_millis() as u64 });
            }
            let left = places_left(now.facts.quota, &served.reading);
            let share = admissions_per_reading(left, served.reading.admitting);
            match account.ask(ring_point(&element), served.reading.taken_at, share) {
                Permit::Remembered => {}
                Permit::Place(place) => {
                    self.count(campaign, &now.facts, element).await?;
                    place.taken();
                }
                Permit::None if left == 0 => return Ok(SoftClaim::SoldOut { stale: served.stale }),
                Permit::None if Instant::now() < deadline && !served.stale => {
                    self.next_reading(&now.kept).await?;
                    continue;
                }
                Permit::None => return Err(ServiceError::NextReading { wait_ms: 200 }),
            }
            let remaining = left.saturating_sub(account.since(served.reading.taken_at));
            return Ok(SoftClaim::Granted { claimed_at: self.store_clock.now(), remaining, stale: served.stale });
        }
    }

    pub async fn remaining(&self, campaign: &CampaignId) -> Result<Remaining, ServiceError> {
        let now = self.now(campaign).await?;
        let served = self.reading(&now.kept).await.map_err(ServiceError::no_reading)?;
        let reading = &*served.reading;
        let quota = now.facts.quota;
        let remaining = places_left(quota, reading);
        let estimate = Estimate { users: reading.users, relative_standard_error: reading.relative_standard_error };
        let at_quota = estimate::even(quota as f64, now.facts.shards.count()).relative_standard_error;
        Ok(Remaining {
            campaign: campaign.clone(),
            state: now.state,
            hours: now.hours,
            server_time: now.at,
            quota,
            remaining,
            exact: false,
            error_95_places: (estimate.error_95() * reading.users).ceil() as u64,
            overshoot_places: overshoot_places(quota, at_quota, remaining, reading.admitting),
            as_of: Timestamp::from_millisecond(reading.as_of_ms).unwrap_or(Timestamp::UNIX_EPOCH),
            age_ms: reading.age().as_millis() as u64,
            stale: served.stale,
            partial: reading.partial,
            sold_out: remaining == 0,
        })
    }

    async fn now(&self, campaign: &CampaignId) -> Result<Now, ServiceError> {
        let facts = self.book.campaign(campaign).await?;
        let Admission::Soft { admit_on_stale } = facts.admission else { return Err(ServiceError::NotSoft) };
        let at = self.store_clock.now();
        let hours = OpeningHours { opens_at: facts.schedule.opens_at, closes_at: facts.schedule.closes_at };
        Ok(Now { state: facts.schedule.state(at), hours, at, kept: self.kept(campaign, &facts), admit_on_stale, facts })
    }

    fn kept(&self, campaign: &CampaignId, facts: &CampaignFacts) -> Arc<Kept> {
        let key = cells_key(facts);
        if let Some(kept) = self.kept.get(&key) {
            return kept;
        }
        self.kept.get_with(key, || {
            let question = question(campaign, facts);
            let slot = self.readings.slot(&question.key);
            Arc::new(Kept { account: Arc::default(), question, slot })
        })
    }

    async fn reading(&self, kept: &Kept) -> Result<Served, ServiceError> {
        let bounds = self.merger.bounds(kept.slot.latest().as_deref());
        let refresh = |last| self.merger.clone().refresh(kept.question.clone(), last);
        Ok(self.readings.read(&kept.slot, bounds, refresh).await?)
    }

    async fn next_reading(&self, kept: &Kept) -> Result<(), ServiceError> {
        let refresh = |last| self.merger.clone().refresh(kept.question.clone(), last);
        Ok(self.readings.join(&kept.slot, refresh).await?)
    }

    /// Counts a claimant; Ok only when the store has acknowledged it.
    async fn count(&self, campaign: &CampaignId, facts: &CampaignFacts, element: Element) -> Result<(), ServiceError> {
        let cells = self.crowd.cells.get(cells_key(facts), || (counter(campaign), None));
        let mut admitted = Admitted::default();
        admitted.add(&cells, element);
        match self.crowd.settle(admitted).await?.failed {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

fn counter(campaign: &CampaignId) -> Counter {
    Counter { subject: Subject::Claimants(campaign.clone()), generation: 0, period: Period::All }
}

fn cells_key(facts: &CampaignFacts) -> CellsKey {
    CellsKey::new(facts.serial, 0, Period::All, facts.shards, Retention::DEFAULT)
}

fn question(campaign: &CampaignId, facts: &CampaignFacts) -> Arc<Question> {
    let counter = counter(campaign);
    let key = AnswerKey { subject: counter.subject.clone(), generation: 0, question: counter.period.to_string() };
    let frozen = Some(Layout::of(facts.shards));
    Arc::new(Question { key, counters: vec![counter], cells: Some(cells_key(facts)), frozen })
}

fn places_left(quota: u64, reading: &KnownReading) -> u64 {
    quota.saturating_sub(reading.users.round() as u64)
}
