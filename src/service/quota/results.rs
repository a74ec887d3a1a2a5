//! How the packets of a campaign came out.

use jiff::Timestamp;

use super::claims::{Claim, HardClaims, claim_id};
use super::survey::survey;
use crate::domain::id::CampaignId;
use crate::domain::quota::terms::PoolReading;
use crate::service::error::ServiceError;

/// Sums to the cent, and who got most.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    pub count: u64,
    pub total_cents: i64,
    pub claimed: u64,
    pub claimed_cents: i64,
    pub refunded: u64,
    pub refunded_cents: i64,
    /// Of equal ones the earliest; None before the first claim.
    pub luckiest: Option<Claim>,
    pub as_of: Timestamp,
}

impl HardClaims {
    /// Results so far, at most an interval old.
    pub async fn results(&self, campaign: &CampaignId) -> Result<Results, ServiceError> {
        let document = self.book.campaign_document(campaign).await?;
        let packets = document.hard.and_then(|hard| hard.packets).ok_or(ServiceError::NotPackets)?;
        let offer = self.offer(campaign).await?;
        let survey = survey(&offer, offer.interval).await;
        let pools = survey.complete()?;
        let cents = |of: fn(&PoolReading) -> i64| pools.iter().map(|pool| of(&pool.reading)).sum();
        let luckiest = offer.luckiest.get(&survey, offer.pools.iter().map(|pool| &**pool)).await?;
        Ok(Results {
            count: packets.count,
            total_cents: packets.total_cents,
            claimed: survey.taken()?,
            claimed_cents: cents(|reading| reading.taken_cents),
            refunded: pools.iter().map(|pool| pool.reading.refunded).sum(),
            refunded_cents: cents(|reading| reading.refunded_cents),
            luckiest: luckiest.map(|(shard, user, record)| Claim { claim_id: claim_id(shard, user, &record), record }),
            as_of: Timestamp::from_millisecond(survey.as_of_ms()).unwrap_or(self.store_clock.now()),
        })
    }
}
