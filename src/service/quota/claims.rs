//! Claims on hard campaigns: asking, looking up, confirming, giving back; and what is left.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};
use twox_hash::XxHash3_64;

use super::memory::Verdict;
use super::offer::{Offer, Offers};
use super::pools::foreign;
use super::queue;
use super::reading::Survey;
use super::sold_out;
use super::survey::survey;
use super::transfers;
use super::waiting::Brought;
use crate::domain::campaign::CampaignState;
use crate::domain::id::{CampaignId, UserId};
use crate::domain::quota::claim::{ClaimAnswer, ClaimRecord, UserKey, Wish};
use crate::domain::quota::claim_id::{ClaimId, secret_text};
use crate::domain::quota::step::{Answer, ConfirmAnswer, ReleaseAnswer, ReleasedBy, Step};
use crate::domain::ring::ring_point;
use crate::local::store_clock::StoreClock;
use crate::runtime::random::random_bytes;
use crate::runtime::tasks::Tasks;
use crate::service::book::{Admission, Book, CampaignFacts, HardFacts};
use crate::service::claim::Remaining;
use crate::service::error::{OpeningHours, ServiceError};
use crate::service::identity::Identity;
use crate::store::documents::Phase;

/// Claims, one user at a time.
pub struct HardClaims {
    pub book: Arc<Book>,
    pub offers: Arc<Offers>,
    pub identity: Arc<Identity>,
    pub store_clock: Arc<StoreClock>,
    pub tasks: Tasks,
}

/// A claim with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub claim_id: ClaimId,
    pub record: ClaimRecord,
}

/// The answer to a wish.
#[derive(Clone, Debug, PartialEq)]
pub enum HardClaim {
    /// Granted now, or by this very wish before (its Idempotency-Key says so).
    Granted {
        claim: Claim,
        remaining: Option<u64>,
    },
    /// The user has this claim.
    Already {
        claim: Claim,
        remaining: Option<u64>,
    },
    /// This very wish was granted once, and the claim has ended.
    Ended(Claim),
    Voided(Claim),
    SoldOut {
        may_return: bool,
    },
    NotOpen(OpeningHours),
    Paused(OpeningHours),
    Closed(OpeningHours),
}

/// What became of a wish to confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmed {
    Confirmed(Claim),
    Late(Claim),
}

/// What became of a wish to give back, or to void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    Released(Claim),
    /// It had ended before.
    Ended(Claim),
    /// Confirmed claims are not given back.
    Confirmed(Claim),
}

impl HardClaims {
    /// Asks for a unit, within `wait`. An error says that nothing is known: the same wish again finds what is true.
    pub async fn claim(
        &self,
        campaign: &CampaignId,
        user: UserId<'_>,
        idempotency_key: Option<&str>,
        wait: Duration,
    ) -> Result<HardClaim, ServiceError> {
        let deadline = Instant::now() + wait;
        let (facts, hard) = self.facts(campaign).await?;
        let hours = OpeningHours { opens_at: facts.schedule.opens_at, closes_at: facts.schedule.closes_at };
        match hard.phase {
            Phase::Filling => return Err(ServiceError::Preparing),
            Phase::Removing | Phase::Removed => return Ok(HardClaim::Closed(hours)),
            Phase::Ready | Phase::Closing | Phase::Closed => {}
        }
        let offer = self.offers.get(campaign, &facts, hard);
        let (shard, key) = self.home(&offer, user)?;
        // Most of a crowd comes too late: nothing is made for them, not even a timer.
        if let Some(known) = self.recall(&offer, shard, key) {
            return known;
        }
        let claimed = async {
            if let Some(may_return) = self.look_again(&offer).await?
                && !offer.claimants.may_contain(shard, key)
            {
                return Ok(HardClaim::SoldOut { may_return });
            }
            let wish = Wish {
                user: key,
                user_raw: user.as_str().to_owned(),
                secret: secret_text(random_bytes()),
                idem: idempotency_key.map(idem_digest).unwrap_or_default(),
            };
            self.serve(&offer, shard, &wish, hours, facts.quota).await
        };
        timeout_at(deadline, claimed).await.unwrap_or(Err(ServiceError::StockOnItsWay))
    }

    async fn serve(
        &self,
        offer: &Arc<Offer>,
        shard: usize,
        wish: &Wish,
        hours: OpeningHours,
        quota: u64,
    ) -> Result<HardClaim, ServiceError> {
        let mut answer = queue::ask(offer, shard, wish.clone(), &self.tasks).await?;
        if answer == ClaimAnswer::Dry {
            answer = match transfers::wait(offer, shard, wish.clone(), &self.tasks).await {
                Brought::Answer(answer) => answer,
                Brought::SoldOut { may_return } => return Ok(HardClaim::SoldOut { may_return }),
                Brought::Failed(error) => return Err(error),
            };
        }
        let claim = |record| Claim { claim_id: claim_id(shard, wish.user, &record), record };
        let remaining = self.remaining_now(offer, quota);
        Ok(match answer {
            ClaimAnswer::Granted(record) => HardClaim::Granted { claim: claim(record), remaining },
            ClaimAnswer::Already(record) if is_same_wish(&record, wish) => {
                HardClaim::Granted { claim: claim(record), remaining }
            }
            ClaimAnswer::Already(record) => HardClaim::Already { claim: claim(record), remaining },
            ClaimAnswer::Ended(record) => HardClaim::Ended(claim(record)),
            ClaimAnswer::Voided(record) => HardClaim::Voided(claim(record)),
            ClaimAnswer::NotOpen => HardClaim::NotOpen(hours),
            ClaimAnswer::Paused => HardClaim::Paused(hours),
            ClaimAnswer::Closed => HardClaim::Closed(hours),
            // `wait` never brings it.
            ClaimAnswer::Dry => return Err(ServiceError::StockOnItsWay),
        })
    }

    /// What this process may say without asking anybody. Where a pool did not answer a moment ago, late callers are told
    /// so from memory too (docs/FAULTS.md A18).
    fn recall(&self, offer: &Arc<Offer>, shard: usize, user: UserKey) -> Option<Result<HardClaim, ServiceError>> {
        let (verdict, again) = offer.sold_out.recall()?;
        match verdict {
            Verdict::NotSoldOut => None,
            _ if offer.claimants.may_contain(shard, user) => None,
            Verdict::Unknown(error) => Some(Err(error)),
            Verdict::SoldOut { may_return } => {
                if again {
                    sold_out::check_behind(offer, &self.tasks);
                }
                Some(Ok(HardClaim::SoldOut { may_return }))
            }
        }
    }

    /// Where nothing was left a moment ago: looks once more, together with all who ask now, before a crowd asks the
    /// pools. Some: nothing is left, and whether units may return.
    async fn look_again(&self, offer: &Arc<Offer>) -> Result<Option<bool>, ServiceError> {
        if offer.sold_out.recall().is_some() || !offer.sold_out.was_sold_out() {
            return Ok(None);
        }
        match sold_out::check(offer, Duration::ZERO).await {
            Verdict::SoldOut { may_return } => Ok(Some(may_return)),
            Verdict::Unknown(error) => Err(error),
            Verdict::NotSoldOut => Ok(None),
        }
    }

    /// The user's last claim; None if there never was one.
    pub async fn lookup(&self, campaign: &CampaignId, user: UserId<'_>) -> Result<Option<Claim>, ServiceError> {
        let offer = self.offer(campaign).await?;
        let (shard, key) = self.home(&offer, user)?;
        let record = look(&offer, shard, key).await?;
        Ok(record.map(|record| Claim { claim_id: claim_id(shard, key, &record), record }))
    }

    /// The claim of this id, while it is the user's last one.
    pub async fn get(&self, campaign: &CampaignId, claim_id: &ClaimId) -> Result<Claim, ServiceError> {
        let offer = self.offer(campaign).await?;
        let shard = known_home(&offer, claim_id)?;
        match look(&offer, shard, claim_id.user).await? {
            Some(record) if record.secret == claim_id.secret => Ok(Claim { claim_id: claim_id.clone(), record }),
            _ => Err(ServiceError::NoClaim),
        }
    }

    pub async fn confirm(&self, campaign: &CampaignId, claim_id: &ClaimId) -> Result<Confirmed, ServiceError> {
        let offer = self.offer(campaign).await?;
        let shard = known_home(&offer, claim_id)?;
        let step = Step::Confirm { user: claim_id.user, secret: claim_id.secret.clone() };
        let claim = |record| Claim { claim_id: claim_id.clone(), record };
        match offer.pools[shard].step(step).await?.answer {
            Answer::Confirm(ConfirmAnswer::Confirmed(record)) => Ok(Confirmed::Confirmed(claim(record))),
            Answer::Confirm(ConfirmAnswer::Late(record)) => Ok(Confirmed::Late(claim(record))),
            Answer::Confirm(ConfirmAnswer::Unknown) => Err(ServiceError::NoClaim),
            other => Err(foreign(&other)),
        }
    }

    pub async fn release(
        &self,
        campaign: &CampaignId,
        claim_id: &ClaimId,
        by: ReleasedBy,
    ) -> Result<Released, ServiceError> {
        let offer = self.offer(campaign).await?;
        let shard = known_home(&offer, claim_id)?;
        let step = Step::Release { user: claim_id.user, secret: claim_id.secret.clone(), by };
        let claim = |record| Claim { claim_id: claim_id.clone(), record };
        match offer.pools[shard].step(step).await?.answer {
            Answer::Release(ReleaseAnswer::Released(record)) => Ok(Released::Released(claim(record))),
            Answer::Release(ReleaseAnswer::Ended(record)) => Ok(Released::Ended(claim(record))),
            Answer::Release(ReleaseAnswer::Confirmed(record)) => Ok(Released::Confirmed(claim(record))),
            Answer::Release(ReleaseAnswer::Unknown) => Err(ServiceError::NoClaim),
            other => Err(foreign(&other)),
        }
    }

    /// What is left: the quota less what is held and confirmed.
    pub async fn remaining(&self, campaign: &CampaignId) -> Result<Remaining, ServiceError> {
        let (facts, hard) = self.facts(campaign).await?;
        let offer = self.offers.get(campaign, &facts, hard);
        let survey = match hard.phase {
            Phase::Filling => return Err(ServiceError::Preparing),
            Phase::Removing | Phase::Removed => None,
            Phase::Ready | Phase::Closing | Phase::Closed => Some(self.reading(&offer).await?),
        };
        let at = self.store_clock.now();
        let taken = survey.as_ref().map_or(Ok(facts.quota), |survey| survey.taken())?;
        let remaining = facts.quota.saturating_sub(taken);
        let age = survey.as_ref().map_or(Duration::ZERO, |survey| survey.age());
        Ok(Remaining {
            campaign: campaign.clone(),
            state: match hard.phase {
                Phase::Ready => facts.schedule.state(at),
                _ => CampaignState::Closed,
            },
            hours: OpeningHours { opens_at: facts.schedule.opens_at, closes_at: facts.schedule.closes_at },
            server_time: at,
            quota: facts.quota,
            remaining,
            exact: true,
            error_95_places: 0,
            overshoot_places: 0,
            as_of: survey.and_then(|survey| Timestamp::from_millisecond(survey.as_of_ms()).ok()).unwrap_or(at),
            age_ms: age.as_millis() as u64,
            stale: age > offer.interval + STALE_AFTER,
            partial: false,
            sold_out: remaining == 0,
        })
    }

    /// A survey at most an interval old; where pools do not answer, the last one that was complete.
    async fn reading(&self, offer: &Arc<Offer>) -> Result<Arc<Survey>, ServiceError> {
        let fresh = survey(offer, offer.interval).await;
        match fresh.complete() {
            Ok(_) => Ok(fresh),
            Err(error) => offer.surveys.last_complete().ok_or(error.no_reading()),
        }
    }

    /// Whether exact admission is this campaign's; soft ones are `service/claim.rs`'s.
    pub async fn is_hard(&self, campaign: &CampaignId) -> Result<bool, ServiceError> {
        Ok(matches!(self.book.campaign(campaign).await?.admission, Admission::Hard(_)))
    }

    pub async fn offer(&self, campaign: &CampaignId) -> Result<Arc<Offer>, ServiceError> {
        let (facts, hard) = self.facts(campaign).await?;
        match hard.phase {
            Phase::Filling => Err(ServiceError::Preparing),
            Phase::Removing | Phase::Removed => Err(ServiceError::NoClaim),
            Phase::Ready | Phase::Closing | Phase::Closed => Ok(self.offers.get(campaign, &facts, hard)),
        }
    }

    async fn facts(&self, campaign: &CampaignId) -> Result<(CampaignFacts, HardFacts), ServiceError> {
        let facts = self.book.campaign(campaign).await?;
        match facts.admission {
            Admission::Hard(hard) => Ok((facts, hard)),
            Admission::Soft { .. } => Err(ServiceError::NotKeptBySoft),
        }
    }

    /// What is left as this process knows it: the last survey, less what it has granted since. None before the first.
    fn remaining_now(&self, offer: &Arc<Offer>, quota: u64) -> Option<u64> {
        let survey = offer.surveys.last_complete();
        if survey.as_ref().is_none_or(|survey| survey.age() > offer.interval) && !offer.surveys.is_busy() {
            let offer = offer.clone();
            self.tasks.spawn("survey behind claims", async move {
                super::survey::survey(&offer, offer.interval).await;
            });
        }
        let survey = survey?;
        let since = offer.granted().saturating_sub(survey.granted_before);
        Some(quota.saturating_sub(survey.taken().ok()?).saturating_sub(since))
    }

    fn home(&self, offer: &Offer, user: UserId<'_>) -> Result<(usize, UserKey), ServiceError> {
        let hashing = self.identity.hashing()?;
        let shard = offer.shards.index_of(ring_point(&hashing.element(user)));
        Ok((shard, UserKey::of(&hashing, user)))
    }
}

/// A reading is flagged stale once it is this much older than the interval: a survey takes some milliseconds.
const STALE_AFTER: Duration = Duration::from_secs(1);

async fn look(offer: &Offer, shard: usize, user: UserKey) -> Result<Option<ClaimRecord>, ServiceError> {
    match offer.pools[shard].step(Step::Look { user }).await?.answer {
        Answer::Record(record) => Ok(record),
        other => Err(foreign(&other)),
    }
}

pub fn claim_id(shard: usize, user: UserKey, record: &ClaimRecord) -> ClaimId {
    ClaimId { home: shard as u16, user, secret: record.secret.clone() }
}

/// The shard a claim id names, if the campaign has it.
fn known_home(offer: &Offer, claim_id: &ClaimId) -> Result<usize, ServiceError> {
    let shard = usize::from(claim_id.home);
    if shard < offer.pools.len() { Ok(shard) } else { Err(ServiceError::NoClaim) }
}

fn is_same_wish(record: &ClaimRecord, wish: &Wish) -> bool {
    record.secret == wish.secret || (!wish.idem.is_empty() && record.idem == wish.idem)
}

/// 16 hex digits that stand for an Idempotency-Key: it is compared within one user's claims of one campaign only.
fn idem_digest(key: &str) -> String {
    format!("{:016x}", XxHash3_64::oneshot(key.as_bytes()))
}
