//! Mending: lost pools are rebuilt from the ledger, and serve again.
//!
//! 1. The record comes back from the ledger, if the store has lost that too.
//! 2. Healthy pools keep still; all outboxes that are there are drained.
//! 3. What every pool has is read, and what the lost ones must hold is worked out (`domain/quota/rebuild.rs`).
//! 4. The lost pools are emptied and filled. Nothing of it counts before
//! 5. it is seen that no healthy pool has moved meanwhile, and the last "sold out" that anybody remembers has run out:
//!    then the lost pools reopen, and the others thaw.
//!
//! It may stop anywhere and be begun again. The lease keeps two processes from it; if both go on all the same, the lost
//! pools take the parts of one of them only.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::compare::entry_of;
use super::lost::{Loss, LostPool, Mending, Progressing};
use crate::domain::id::CampaignId;
use crate::domain::ledger::entry::{Entry, Subject};
use crate::domain::quota::claim::{ClaimRecord, ClaimState, UserKey};
use crate::domain::quota::marks::{Floor, STEP_MAX};
use crate::domain::quota::mend::{Blank, CLOCKS_DIFFER_US, Mend};
use crate::domain::quota::rebuild::{Rebuilt, Scene, Shard, rebuild};
use crate::domain::quota::step::{Answer, Step, Stepped};
use crate::domain::quota::terms::PoolStatus;
use crate::runtime::random::{random_bytes, random_name};
use crate::service::error::ServiceError;
use crate::service::quota::offer::Offer;
use crate::service::quota::operations::{rules, schedule};
use crate::service::quota::pools::{LocalPool, foreign};
use crate::store::documents::{CampaignDocument, HardDocument, Phase};
use crate::store::ledger::Progress;
use crate::store::pools::Duty;

/// Healthy pools keep still for so long at most; longer than reading a million claims takes.
const FREEZE: Duration = Duration::from_secs(60);
/// Whoever mends a campaign and dies is replaced after this.
const LEASE: Duration = Duration::from_secs(90);
/// Three times as long as processes take to notice.
const TESTIMONY: Duration = Duration::from_secs(3);
/// A pool's outbox is drained for so long at most.
const DRAIN: Duration = Duration::from_secs(30);

/// What mending came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mended {
    pub record_restored: bool,
    /// None of them: nothing was lost.
    pub pools: Vec<MendedPool>,
}

/// A pool that was rebuilt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MendedPool {
    pub shard: u16,
    pub claims: u64,
    pub stock: u64,
    pub retired: u64,
    pub refunded: u64,
    /// Claims whose end was lost.
    pub ended: u64,
    /// Rows that the ledger lacked.
    pub brought: u64,
}

impl Mending {
    /// Rebuilds what is lost. `accept`: losses with which it goes on all the same; others are a Conflict that says why.
    pub async fn mend(
        &self,
        campaign: &CampaignId,
        accept: Loss,
        tell: Progressing<'_>,
    ) -> Result<Mended, ServiceError> {
        let me = random_name();
        if !self.pools.lease(campaign, Duty::Mend, &me, LEASE).await? {
            return Err(ServiceError::Conflict("another process is putting this campaign right: wait for it".into()));
        }
        let mended = self.mend_alone(campaign, accept, tell).await;
        // Given back, so that it can be tried again at once.
        self.pools.lease(campaign, Duty::Mend, &me, Duration::ZERO).await?;
        mended
    }

    async fn mend_alone(
        &self,
        campaign: &CampaignId,
        accept: Loss,
        tell: Progressing<'_>,
    ) -> Result<Mended, ServiceError> {
        let (document, record_restored) = self.record(campaign).await?;
        let hard = document.hard.clone().ok_or(ServiceError::NotKeptBySoft)?;
        if matches!(hard.phase, Phase::Filling | Phase::Removing | Phase::Removed) || hard.running.is_some() {
            return Err(ServiceError::Conflict(
                "the campaign's stock is being laid out, changed or removed: that must end first".into(),
            ));
        }
        let offer = self.drain.offer(campaign).await?;
        let lost = self.lost_pools(&offer, accept).await?;
        if lost.is_empty() {
            tell("no shard is lost".to_owned());
            return Ok(Mended { record_restored, pools: Vec::new() });
        }
        // Every process brings the ledger what it remembers, and whether that was all: seen by the second look.
        tokio::time::sleep(TESTIMONY).await;
        let lost = self.lost_pools(&offer, accept).await?;
        if lost.is_empty() {
            return Ok(Mended { record_restored, pools: Vec::new() });
        }
        tell(format!("{} of {} shards are lost; the others keep still", lost.len(), offer.pools.len()));
        let began = Instant::now();
        let outcome = self.rebuild_all(&offer, &document, &hard, &lost, (began, tell)).await;
        // Whatever came of it, the others need not wait for their time to run out.
        for pool in offer.pools.iter().filter(|pool| !is_lost(&lost, pool)) {
            if let Err(error) = mend_step(pool, Mend::Thaw).await {
                tracing::warn!(campaign = campaign.as_str(), shard = pool.shard, %error, "a shard thaws by itself");
            }
        }
        Ok(Mended { record_restored, pools: outcome? })
    }

    async fn rebuild_all(
        &self,
        offer: &Arc<Offer>,
        document: &CampaignDocument,
        hard: &HardDocument,
        lost: &[LostPool],
        (began, tell): (Instant, Progressing<'_>),
    ) -> Result<Vec<MendedPool>, ServiceError> {
        let numbers: Vec<u16> = lost.iter().map(|lost| lost.shard).collect();
        freeze(offer, lost, &numbers).await?;
        let cents = self.drain.cents(&offer.campaign, hard).await?;
        let mut shards = Vec::new();
        for pool in &offer.pools {
            tell(format!("reading shard {} of {}", pool.shard + 1, offer.pools.len()));
            let inventory = pool.store().inventory(&pool.address).await?;
            if inventory.is_some() {
                self.drain.drain_pool(offer, pool, Instant::now() + DRAIN).await?;
            }
            let claims = all_claims(pool).await?;
            let rows = self.drain.rows(&offer.campaign, pool.shard).await?;
            shards.push(Shard { rows, claims, inventory, is_lost: is_lost(lost, pool) });
        }
        let now_us = u64::try_from(self.store_clock.now().as_microsecond()).unwrap_or(0);
        let scene = Scene {
            issued: hard.next_unit - 1,
            quota: document.quota,
            cents: cents.as_deref(),
            shards,
            incarnation: lost.iter().map(|lost| lost.incarnation).max().unwrap_or(1),
            seq: now_us + 2 * CLOCKS_DIFFER_US as u64,
        };
        let rebuilt = rebuild(&scene).map_err(|contradiction| ServiceError::Conflict(contradiction.to_string()))?;
        let mender = u64::from_le_bytes(random_bytes()) >> 12 | 1;
        let mut mended = Vec::new();
        for of_pool in &rebuilt {
            tell(format!("filling shard {} of {}", of_pool.shard + 1, offer.pools.len()));
            let blank = blank(document, hard, of_pool, (mender, scene.seq));
            fill(&offer.pools[usize::from(of_pool.shard)], blank, of_pool).await?;
            mended.push(self.account(offer, of_pool, &scene).await?);
        }
        self.reopen(offer, lost, (&scene, &rebuilt), (mender, began)).await?;
        Ok(mended)
    }

    /// Writes what the ledger lacks of a rebuilt pool: what only the pool or a process knew, and lost ends.
    async fn account(&self, offer: &Offer, rebuilt: &Rebuilt, scene: &Scene<'_>) -> Result<MendedPool, ServiceError> {
        let rows = &scene.shards[usize::from(rebuilt.shard)].rows;
        let states: HashMap<(UserKey, u32), ClaimState> = rows
            .iter()
            .filter_map(|row| match &row.subject {
                Subject::Claim { user, record, .. } => Some(((*user, record.claim_no), record.state)),
                Subject::Refund(_) => None,
            })
            .collect();
        let at_ms = self.drain.clock.now().as_millisecond();
        // Newer than anything that the ledger has of these claims, and older than anything to come.
        let versions = rebuilt.ver..;
        let lacking: Vec<Entry> = rebuilt
            .claims
            .iter()
            .zip(versions)
            .filter(|((user, record), _)| states.get(&(*user, record.claim_no)) != Some(&record.state))
            .map(|((user, record), ver)| {
                entry_of(*user, ClaimRecord { ver, ..record.clone() }, rebuilt.incarnation, at_ms)
            })
            .collect();
        let at = Progress { incarnation: rebuilt.incarnation, ver: rebuilt.ver, behind: 0, at_ms };
        let (brought, conflicts) = self.drain.bring(&offer.campaign, rebuilt.shard, lacking, at).await?;
        if conflicts > 0 {
            return Err(ServiceError::Conflict(format!(
                "{conflicts} claims of shard {} contradict the ledger: see its table ledger_conflicts",
                rebuilt.shard
            )));
        }
        Ok(MendedPool {
            shard: rebuilt.shard,
            claims: rebuilt.claims.len() as u64,
            stock: rebuilt.stock.len() as u64,
            retired: rebuilt.retired.len() as u64,
            refunded: rebuilt.refunded,
            ended: rebuilt.ended,
            brought,
        })
    }

    /// Reopens the rebuilt pools, if what they were worked out from still holds.
    async fn reopen(
        &self,
        offer: &Offer,
        lost: &[LostPool],
        (scene, rebuilt): (&Scene<'_>, &[Rebuilt]),
        (mender, began): (u64, Instant),
    ) -> Result<(), ServiceError> {
        for (shard, ver) in freeze(offer, lost, &[]).await? {
            if scene.shards[usize::from(shard)].inventory.as_ref().map(|read| read.ver) != Some(ver) {
                return Err(ServiceError::Conflict("a shard moved while others were put right: try again".into()));
            }
        }
        // What anybody remembers of being sold out is from before the loss, and must run out first.
        tokio::time::sleep_until(began + 2 * offer.interval).await;
        for of_pool in rebuilt {
            let pool = &offer.pools[usize::from(of_pool.shard)];
            if mend_step(pool, Mend::Reopen { mender }).await?.answer != Answer::Done(true) {
                return Err(meanwhile(pool));
            }
        }
        Ok(())
    }
}

fn blank(document: &CampaignDocument, hard: &HardDocument, rebuilt: &Rebuilt, (mender, seq): (u64, u64)) -> Box<Blank> {
    Box::new(Blank {
        mender,
        rules: rules(hard),
        schedule: schedule(document, hard),
        // A closed pool may have units to refund that the ledger never heard of.
        status: if hard.phase == Phase::Ready { PoolStatus::Open } else { PoolStatus::Closing },
        incarnation: rebuilt.incarnation,
        ver: rebuilt.ver + rebuilt.claims.len() as u64,
        seq,
        refunded: rebuilt.refunded,
        refunded_cents: rebuilt.refunded_cents,
        came: rebuilt.came.clone(),
    })
}

/// Empties a pool and gives it what it is to hold.
async fn fill(pool: &LocalPool, blank: Box<Blank>, rebuilt: &Rebuilt) -> Result<(), ServiceError> {
    let mender = blank.mender;
    mend_step(pool, Mend::Empty(blank)).await?;
    let claims = rebuilt.claims.chunks(STEP_MAX).map(|claims| (claims.to_vec(), Vec::new(), Vec::new()));
    let stock = rebuilt.stock.chunks(STEP_MAX).map(|units| (Vec::new(), units.to_vec(), Vec::new()));
    let retired = rebuilt.retired.chunks(STEP_MAX).map(|units| (Vec::new(), Vec::new(), units.to_vec()));
    for (part, (claims, stock, retired)) in (1..).zip(claims.chain(stock).chain(retired)) {
        let fill = Mend::Fill { mender, part, claims, stock, retired };
        if mend_step(pool, fill).await?.answer != Answer::Done(true) {
            return Err(meanwhile(pool));
        }
    }
    Ok(())
}

/// Holds healthy pools still, and tells them what will not come in any more. Their versions, by shard.
async fn freeze(offer: &Offer, lost: &[LostPool], numbers: &[u16]) -> Result<Vec<(u16, u64)>, ServiceError> {
    let mut versions = Vec::new();
    for pool in offer.pools.iter().filter(|pool| !is_lost(lost, pool)) {
        let freeze = Mend::Freeze { for_ms: FREEZE.as_millis() as i64, lost: numbers.to_vec() };
        let stepped = mend_step(pool, freeze).await?;
        match stepped.answer {
            Answer::Done(true) => versions.push((pool.shard, stepped.at.ver)),
            Answer::Admitting => return Err(ServiceError::PoolAdmitting),
            Answer::Fenced | Answer::Absent => return Err(ServiceError::PoolLost { shard: pool.shard, fenced: true }),
            other => return Err(foreign(&other)),
        }
    }
    Ok(versions)
}

/// Takes a step with nothing known, as mending overrules what is.
async fn mend_step(pool: &LocalPool, mend: Mend) -> Result<Stepped, ServiceError> {
    Ok(pool.store().step(&pool.address, Floor::default(), Step::Mend(mend)).await?)
}

async fn all_claims(pool: &LocalPool) -> Result<Vec<(UserKey, ClaimRecord)>, ServiceError> {
    let mut claims = HashMap::new();
    pool.each_claim(|user, record| drop(claims.insert(user, record))).await?;
    Ok(claims.into_iter().collect())
}

fn is_lost(lost: &[LostPool], pool: &LocalPool) -> bool {
    lost.iter().any(|lost| lost.shard == pool.shard)
}

fn meanwhile(pool: &LocalPool) -> ServiceError {
    ServiceError::Conflict(format!("shard {} is being put right by somebody else: wait, and try again", pool.shard))
}
