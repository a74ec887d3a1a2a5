//! Upkeep of one campaign: overdue holds expire, parcels that got stuck are delivered, operations go on.
//!
//! Any process may do it at any time; a lease keeps most of them from doing it at once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::offer::{Offer, Offers};
use super::operations::Operations;
use super::pools::foreign;
use super::survey::survey;
use super::transfers;
use crate::domain::id::CampaignId;
use crate::domain::quota::step::{Answer, Step};
use crate::service::book::{Admission, Book};
use crate::service::error::ServiceError;
use crate::store::documents::Phase;

/// Holds that expire in one step: 256 blocked the server for 4.4 ms (docs/FAULTS.md F19).
const REAP_MAX: u32 = 64;
/// A parcel this old was left behind by whoever sent it: a transfer takes milliseconds.
const STUCK_AFTER_MS: i64 = 500;
/// Where nothing is due the pools are looked at this often.
const LOOK: Duration = Duration::from_millis(250);

pub struct Upkeep {
    pub book: Arc<Book>,
    pub offers: Arc<Offers>,
    pub operations: Arc<Operations>,
}

impl Upkeep {
    /// Whether a campaign can need anything: soft ones, and those that are over, do not.
    pub async fn is_wanted(&self, campaign: &CampaignId) -> bool {
        match self.book.campaign(campaign).await.map(|facts| facts.admission) {
            Ok(Admission::Hard(hard)) => {
                self.operations.is_unfinished(&hard) || matches!(hard.phase, Phase::Ready | Phase::Closing)
            }
            Ok(Admission::Soft { .. }) | Err(_) => false,
        }
    }

    /// Whether a pool of it has gone back in time, as of a moment ago.
    pub async fn is_fenced(&self, campaign: &CampaignId) -> bool {
        let Ok(facts) = self.book.campaign(campaign).await else { return false };
        let Admission::Hard(hard) = facts.admission else { return false };
        let survey = survey(&self.offers.get(campaign, &facts, hard), LOOK).await;
        survey.pools.iter().any(|pool| matches!(pool, Err(ServiceError::PoolLost { fenced: true, .. })))
    }

    /// Does what is due. True: the campaign may need it again (it has holds, parcels, or something unfinished).
    pub async fn tend(&self, campaign: &CampaignId) -> Result<bool, ServiceError> {
        let facts = self.book.campaign(campaign).await?;
        let Admission::Hard(hard) = facts.admission else { return Ok(false) };
        let unfinished = self.operations.is_unfinished(&hard);
        if unfinished {
            self.operations.advance(campaign).await?;
        }
        if matches!(hard.phase, Phase::Filling | Phase::Closed | Phase::Removing | Phase::Removed) {
            return Ok(unfinished);
        }
        let offer = self.offers.get(campaign, &facts, hard);
        let survey = survey(&offer, LOOK).await;
        let pools = survey.pools.iter().enumerate().filter_map(|(shard, pool)| Some((shard, pool.as_ref().ok()?)));
        let mut due = Vec::new();
        for (shard, pool) in pools.clone() {
            if pool.reading.deadline_ms.is_some_and(|deadline| deadline <= pool.now_ms) {
                due.push(shard);
            }
        }
        let reaped = join_all(due.into_iter().map(|shard| reap(&offer, shard))).await;
        for (donor, pool) in pools {
            for (home, parcel) in &pool.reading.out {
                // A parcel's number is the time it was sent, in microseconds.
                let sent_ms = i64::try_from(parcel.seq / 1000).unwrap_or(i64::MAX);
                if pool.now_ms.saturating_sub(sent_ms) >= STUCK_AFTER_MS {
                    let home = usize::from(*home);
                    tracing::debug!(
                        campaign = campaign.as_str(),
                        donor,
                        home,
                        "a parcel was left behind; it is delivered"
                    );
                    transfers::deliver(&offer, donor, home, parcel.clone(), &[]).await?;
                    metrics::counter!("headcount_parcels_swept_total").increment(1);
                }
            }
        }
        reaped.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(hard.hold_s > 0 || unfinished || survey.known().any(|pool| !pool.reading.out.is_empty()))
    }
}

async fn reap(offer: &Offer, shard: usize) -> Result<(), ServiceError> {
    loop {
        match offer.pools[shard].step(Step::Reap { limit: REAP_MAX }).await?.answer {
            Answer::Reaped(count) => {
                metrics::counter!("headcount_holds_expired_total").increment(count.into());
                if count < REAP_MAX {
                    return Ok(());
                }
            }
            other => return Err(foreign(&other)),
        }
    }
}
