//! The audit: every unit of a campaign accounted for, pool by pool.

use futures_util::future::join_all;

use super::claims::{Claim, HardClaims, claim_id};
use super::offer::Offer;
use super::reading::Survey;
use super::survey::take;
use crate::domain::id::CampaignId;
use crate::domain::quota::terms::PoolReading;
use crate::domain::quota::unit::{Unit, ranges};
use crate::service::error::ServiceError;
use crate::store::documents::CampaignDocument;
use crate::store::pools::Safety;

/// Readings tried before an audit says that it saw the campaign move.
const TRIES: usize = 3;

/// A campaign's books.
#[derive(Clone, Debug)]
pub struct Audit {
    pub campaign: CampaignId,
    pub quota: u64,
    pub quota_target: u64,
    /// Numbers ever issued: one side of the invariant.
    pub issued: u64,
    /// Where they are: the other side.
    pub found: u64,
    pub in_flight: u64,
    pub shards: Vec<ShardAudit>,
    /// Numbers of units that live claims have.
    pub granted: Vec<(u64, u64)>,
    /// Numbers that two live claims have: never, unless something is badly wrong.
    pub duplicates: Vec<u64>,
    /// Nothing moved while it was read. If false, differences may be due to that.
    pub settled: bool,
    /// Stock is being laid out, raised or lowered: `issued` is ahead of the pools.
    pub operation_under_way: bool,
}

impl Audit {
    /// Both sides agree, nobody's unit is anybody else's, and no more is granted than there is.
    pub fn balances(&self) -> bool {
        self.issued == self.found && self.duplicates.is_empty() && self.taken() <= self.quota
    }

    pub fn taken(&self) -> u64 {
        self.shards.iter().map(|shard| shard.reading.taken()).sum()
    }
}

/// One pool's part.
#[derive(Clone, Debug)]
pub struct ShardAudit {
    pub shard: u16,
    pub reading: PoolReading,
    /// Units sent that have not come in.
    pub in_flight: u64,
    pub ver: u64,
    pub incarnation: u64,
    pub safety: Safety,
}

impl HardClaims {
    /// Reads everything, until nothing moved meanwhile or the tries are used up.
    pub async fn audit(&self, campaign: &CampaignId) -> Result<Audit, ServiceError> {
        let offer = self.offer(campaign).await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let record = self.book.campaign_document(campaign).await?;
            let before = take(&offer, true).await;
            let live = live_units(&offer).await?;
            let after = take(&offer, true).await;
            let settled = is_untouched(&before, &after)?;
            if settled || tries == TRIES {
                return books(&offer, &record, &after, live, settled);
            }
        }
    }

    /// One page of claims, in the store's own order. The cursor is opaque.
    pub async fn list(
        &self,
        campaign: &CampaignId,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Claim>, Option<String>), ServiceError> {
        let offer = self.offer(campaign).await?;
        let bad_cursor =
            || ServiceError::Invalid { field: "cursor", rule: "must be `next` of the page before".to_owned() };
        let (mut shard, mut inner) = match cursor {
            None => (0, None),
            Some(cursor) => {
                let (shard, inner) = cursor.split_once('.').ok_or_else(bad_cursor)?;
                let shard = shard.parse::<usize>().ok().filter(|shard| *shard < offer.pools.len());
                (shard.ok_or_else(bad_cursor)?, Some(inner.to_owned()).filter(|inner| !inner.is_empty()))
            }
        };
        let mut claims = Vec::new();
        while shard < offer.pools.len() && claims.len() < limit {
            let pool = &offer.pools[shard];
            let page = pool.store().claims(&pool.address, inner.as_deref(), limit - claims.len()).await?;
            claims.extend(
                page.claims
                    .into_iter()
                    .map(|(user, record)| Claim { claim_id: claim_id(shard, user, &record), record }),
            );
            inner = page.next;
            shard += usize::from(inner.is_none());
        }
        let more = shard < offer.pools.len();
        Ok((claims, more.then(|| format!("{shard}.{}", inner.unwrap_or_default()))))
    }
}

/// Units of live claims, sorted.
async fn live_units(offer: &Offer) -> Result<Vec<Unit>, ServiceError> {
    let of_pools = offer.pools.iter().map(async |pool| {
        let mut live = std::collections::HashMap::new();
        // A claim may come twice: the user's last record counts.
        pool.each_claim(|user, record| {
            live.insert(user, record.state.is_live().then_some(record.unit));
        })
        .await?;
        Ok::<_, ServiceError>(live.into_values().flatten().collect::<Vec<Unit>>())
    });
    let mut units = Vec::new();
    for of_pool in join_all(of_pools).await {
        units.extend(of_pool?);
    }
    units.sort_unstable_by_key(|unit| unit.number);
    Ok(units)
}

fn is_untouched(before: &Survey, after: &Survey) -> Result<bool, ServiceError> {
    let versions =
        |survey: &Survey| Ok::<_, ServiceError>(survey.complete()?.iter().map(|pool| pool.at).collect::<Vec<_>>());
    Ok(versions(before)? == versions(after)?)
}

fn books(
    offer: &Offer,
    document: &CampaignDocument,
    survey: &Survey,
    live: Vec<Unit>,
    settled: bool,
) -> Result<Audit, ServiceError> {
    let pools = survey.complete()?;
    let has_come = |donor: usize, home: u16, seq: u64| {
        let came = pools.get(usize::from(home)).map(|pool| &pool.reading.came);
        came.is_some_and(|came| came.iter().any(|(from, last)| usize::from(*from) == donor && *last >= seq))
    };
    let shards: Vec<ShardAudit> = pools
        .iter()
        .enumerate()
        .map(|(donor, pool)| {
            let out = pool.reading.out.iter().filter(|(home, parcel)| !has_come(donor, *home, parcel.seq));
            ShardAudit {
                shard: offer.pools[donor].shard,
                in_flight: out.map(|(_, parcel)| parcel.units.len() as u64).sum(),
                reading: pool.reading.clone(),
                ver: pool.at.ver,
                incarnation: pool.at.incarnation,
                safety: offer.pools[donor].store().safety(&offer.pools[donor].address),
            }
        })
        .collect();
    let in_pool =
        |reading: &PoolReading| reading.avail + reading.cooling + reading.taken() + reading.retired + reading.refunded;
    let in_flight = shards.iter().map(|shard| shard.in_flight).sum();
    let found = shards.iter().map(|shard| in_pool(&shard.reading)).sum::<u64>() + in_flight;
    let numbers: Vec<u64> = live.iter().map(|unit| unit.number).collect();
    let mut duplicates: Vec<u64> = numbers.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    duplicates.dedup();
    let hard = document.hard.as_ref().ok_or(ServiceError::NotKeptBySoft)?;
    Ok(Audit {
        campaign: offer.campaign.clone(),
        quota: document.quota,
        quota_target: hard.quota_target,
        issued: hard.next_unit - 1,
        found,
        in_flight,
        shards,
        granted: ranges(numbers),
        duplicates,
        settled,
        operation_under_way: hard.running.is_some(),
    })
}
