//! Operations: bringing the pools of a campaign to where its record says they should be.
//!
//! The record says what is wished, and what is under way; `advance` does the next thing until nothing is left to do.
//! Every thing is planned in the record, done to the pools by steps that can be repeated, and struck from the record. So
//! whoever calls `advance`, after whatever crash, goes on with what the last one began.
//!
//! The order that keeps *granted ≤ quota* at every instant: a raise changes the record first and the stock second, a
//! lowering the stock first and the record second (docs/FAULTS.md A3).

use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};

use super::offer::{Offer, Offers};
use super::packets::{Holdings, Part, holdings};
use super::plan;
use super::pools::{LocalPool, foreign};
use super::reading::Survey;
use super::survey;
use super::transfers;
use crate::domain::id::CampaignId;
use crate::domain::quota::step::{Answer, Step};
use crate::domain::quota::terms::{PoolRules, PoolSchedule, PoolStatus};
use crate::service::book::{Book, HardFacts};
use crate::service::error::ServiceError;
use crate::service::ledger::drain::Drain;
use crate::service::ledger::entering::ledger_campaign;
use crate::service::manage::records::put_record;
use crate::store::documents::{CampaignDocument, Document, HardDocument, Operation, OperationKind, Phase};
use crate::store::ledger::Ledger;
use crate::store::records::{RecordKind, Records};

/// Units that a closing pool turns into refunds per step (docs/FAULTS.md F19).
const CLOSE_MAX: u32 = 64;
/// A campaign's record has been brought up to date after a few things; more are a fault.
const THINGS_MAX: usize = 1000;

/// Does what records say.
pub struct Operations {
    pub book: Arc<Book>,
    pub records: Arc<dyn Records>,
    pub offers: Arc<Offers>,
    /// What brings news to the ledger; None: there is none.
    pub drain: Option<Arc<Drain>>,
}

/// Whether there is more to do at once, later, or not.
#[derive(PartialEq, Eq, Debug)]
enum Progress {
    More,
    /// Something must happen first: live holds end, an unreachable pool comes back.
    Later,
    Finished,
}

impl Operations {
    /// Refuses where the store may forget claims (docs/FAULTS.md A20).
    pub async fn refuse_where_claims_could_be_lost(&self) -> Result<(), ServiceError> {
        match self.offers.store().obstacle().await? {
            None => Ok(()),
            Some(reason) => Err(ServiceError::Conflict(reason)),
        }
    }

    /// Brings a campaign up to date as far as possible now; the record as it then stands.
    pub async fn advance(&self, campaign: &CampaignId) -> Result<(CampaignDocument, u64), ServiceError> {
        self.advance_with(campaign, None).await
    }

    /// The same with a part of its packets in hand.
    pub async fn advance_with(
        &self,
        campaign: &CampaignId,
        part: Option<&Part>,
    ) -> Result<(CampaignDocument, u64), ServiceError> {
        for _ in 0..THINGS_MAX {
            let record = self.records.get(RecordKind::Campaign, campaign.as_str()).await?;
            let record = record.ok_or(ServiceError::NoCampaign)?;
            let document = CampaignDocument::decode(&record)?;
            self.book.check_fingerprint(&document)?;
            let progress = match &document.hard {
                Some(hard) => self.next_thing(campaign, (&document, record.version), (hard, part)).await?,
                None => Progress::Finished,
            };
            if progress != Progress::More {
                // It may be another task of this process that wrote it, and has yet to say so.
                let slot = self.book.campaigns.slot(campaign.as_str());
                self.book.campaigns.put(&slot, document.clone(), record.version);
                return Ok((document, record.version));
            }
        }
        Err(ServiceError::Conflict("the campaign keeps changing: read it and try again".into()))
    }

    async fn next_thing(
        &self,
        campaign: &CampaignId,
        (document, version): (&CampaignDocument, u64),
        (hard, part): (&HardDocument, Option<&Part>),
    ) -> Result<Progress, ServiceError> {
        if matches!(hard.phase, Phase::Closed | Phase::Removed) {
            return self.enter(campaign, (document, version), hard).await;
        }
        let offer = self.offers.of(&self.book, campaign).await?;
        let new = if let Some(operation) = &hard.running {
            match holdings(hard, operation, part)? {
                Holdings::Unknown => return Ok(Progress::Later),
                Holdings::Nothing => self.carry_out(&offer, (document, version), hard, (operation, None)).await?,
                Holdings::Cents(cents) => {
                    self.carry_out(&offer, (document, version), hard, (operation, Some(&cents))).await?
                }
            }
        } else if hard.phase == Phase::Filling {
            return Ok(Progress::Later);
        } else if hard.schedule_told < hard.schedule {
            tell_schedule(&offer, schedule(document, hard)).await?;
            with(document, HardDocument { schedule_told: hard.schedule, ..hard.clone() })
        } else if hard.phase == Phase::Removing {
            if !self.is_drained(&offer).await? {
                return Ok(Progress::Later);
            }
            try_join_all(offer.pools.iter().map(|pool| pool.store().remove(&pool.address))).await?;
            with(document, HardDocument { phase: Phase::Removed, entered: false, ..hard.clone() })
        } else if hard.phase == Phase::Closing {
            if !close(&offer).await? {
                return Ok(Progress::Later);
            }
            with(document, HardDocument { phase: Phase::Closed, entered: false, ..hard.clone() })
        } else if hard.quota_target != document.quota {
            let survey = survey::take(&offer, false).await;
            let (free, retired) = free_and_retired(&survey)?;
            let settled = || with(document, HardDocument { quota_target: document.quota, ..hard.clone() });
            plan::next(document, hard, &free, &retired).unwrap_or_else(settled)
        } else {
            return self.enter(campaign, (document, version), hard).await;
        };
        // Somebody else's write only means that there is another record to go on with.
        put_record(&self.book, &*self.records, campaign, version, &new).await?;
        Ok(Progress::More)
    }

    /// Does an operation to all pools; the record that strikes it out.
    async fn carry_out(
        &self,
        offer: &Arc<Offer>,
        (document, version): (&CampaignDocument, u64),
        hard: &HardDocument,
        (operation, cents): (&Operation, Option<&[i64]>),
    ) -> Result<CampaignDocument, ServiceError> {
        // Once: a pool that is missing later is lost, and making it anew would lose its units.
        if operation.kind == OperationKind::Fill && operation.number == 1 {
            let create = Step::Create { rules: rules(hard), schedule: schedule(document, hard) };
            try_join_all(offer.pools.iter().map(|pool| pool.step(create.clone()))).await?;
        }
        let parts = offer.pools.iter().map(async |pool| {
            for step in plan::steps(operation, usize::from(pool.shard), cents) {
                pool.step(step).await?;
            }
            Ok::<(), ServiceError>(())
        });
        try_join_all(parts).await?;
        let new = HardDocument { running: None, entered: false, ..hard.clone() };
        let mut quota = document.quota;
        match operation.kind {
            OperationKind::Fill => return self.opened((document, version), new, offer, (operation, cents)).await,
            OperationKind::Raise => {}
            OperationKind::Lower => {
                let survey = survey::take(offer, false).await;
                let of_this =
                    survey.complete()?.into_iter().filter(|pool| pool.reading.op.operation == operation.number);
                quota -= of_this.map(|pool| pool.reading.op_total).sum::<u64>();
            }
        }
        Ok(CampaignDocument { quota, ..with(document, new) })
    }

    /// The record of a campaign that was filled: ready if that was all of it. The ledger has it first, with what its
    /// packets hold, so that no claim can be drained that belongs to nothing.
    async fn opened(
        &self,
        (document, version): (&CampaignDocument, u64),
        mut hard: HardDocument,
        offer: &Offer,
        (operation, cents): (&Operation, Option<&[i64]>),
    ) -> Result<CampaignDocument, ServiceError> {
        if hard.packets.as_ref().is_none_or(|packets| packets.loaded() == packets.count) {
            hard.phase = Phase::Ready;
        }
        let Some(ledger) = self.ledger() else { return Ok(with(document, hard)) };
        let entered = async {
            if let Some(cents) = cents {
                ledger.add_packets(&offer.campaign, operation.first, cents).await?;
            }
            hard.entered = true;
            ledger.enter(&ledger_campaign(&offer.campaign, &with(document, hard.clone()), &hard, version + 1)).await?;
            Ok(hard)
        };
        Ok(with(document, entered.await.map_err(ServiceError::Ledger)?))
    }

    /// Tells the ledger of a change; the campaign goes on without it.
    async fn enter(
        &self,
        campaign: &CampaignId,
        (document, version): (&CampaignDocument, u64),
        hard: &HardDocument,
    ) -> Result<Progress, ServiceError> {
        let Some(ledger) = self.ledger().filter(|_| !hard.entered) else { return Ok(Progress::Finished) };
        let hard = HardDocument { entered: true, ..hard.clone() };
        let new = with(document, hard.clone());
        if let Err(error) = ledger.enter(&ledger_campaign(campaign, &new, &hard, version + 1)).await {
            tracing::debug!(campaign = campaign.as_str(), %error, "the ledger learns of a change later");
            return Ok(Progress::Later);
        }
        put_record(&self.book, &*self.records, campaign, version, &new).await?;
        Ok(Progress::More)
    }

    /// Brings the ledger the last news of a campaign; whether it has them all. Where there is none, nobody waits for them.
    async fn is_drained(&self, offer: &Offer) -> Result<bool, ServiceError> {
        let Some(drain) = &self.drain else { return Ok(true) };
        match drain.drain(&offer.campaign).await {
            Ok(drained) => Ok(drained.left == 0),
            Err(ServiceError::Ledger(error)) => {
                tracing::debug!(campaign = offer.campaign.as_str(), %error, "a removal waits for the ledger");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn ledger(&self) -> Option<&Arc<dyn Ledger>> {
        self.drain.as_ref().map(|drain| &drain.ledger)
    }

    /// Whether something is to be done to a campaign.
    pub fn is_unfinished(&self, hard: &HardFacts) -> bool {
        hard.unfinished || (self.drain.is_some() && !hard.entered && hard.phase != Phase::Filling)
    }
}

/// The record with this in it.
fn with(document: &CampaignDocument, hard: HardDocument) -> CampaignDocument {
    CampaignDocument { hard: Some(hard), ..document.clone() }
}

/// What the pools of a campaign go by.
pub fn rules(hard: &HardDocument) -> PoolRules {
    PoolRules { hold_ms: ms(hard.hold_s.saturating_mul(1000)), interval_ms: ms(hard.interval_ms) }
}

pub fn schedule(document: &CampaignDocument, hard: &HardDocument) -> PoolSchedule {
    PoolSchedule {
        version: hard.schedule,
        opens_ms: document.opens_at.as_millisecond(),
        closes_ms: document.closes_at.map_or(i64::MAX, |at| at.as_millisecond()),
        paused: document.paused,
    }
}

fn ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

async fn tell_schedule(offer: &Offer, schedule: PoolSchedule) -> Result<(), ServiceError> {
    try_join_all(offer.pools.iter().map(|pool| pool.step(Step::Reschedule(schedule)))).await?;
    Ok(())
}

fn free_and_retired(survey: &Survey) -> Result<(Vec<u64>, Vec<u64>), ServiceError> {
    Ok(survey.complete()?.iter().map(|pool| (pool.reading.avail, pool.reading.retired)).unzip())
}

/// Closes all pools as far as they can be; true when all are closed for good.
async fn close(offer: &Arc<Offer>) -> Result<bool, ServiceError> {
    try_join_all(offer.pools.iter().map(|pool| empty(pool))).await?;
    let survey = survey::take(offer, false).await;
    let mut parcels = Vec::new();
    for (donor, pool) in survey.complete()?.iter().enumerate() {
        parcels.extend(pool.reading.out.iter().map(|(home, parcel)| (donor, usize::from(*home), parcel.clone())));
    }
    // A parcel that comes in now becomes refunds.
    let delivered =
        parcels.into_iter().map(|(donor, home, parcel)| transfers::deliver(offer, donor, home, parcel, &[]));
    join_all(delivered).await.into_iter().collect::<Result<Vec<()>, _>>()?;
    let finished = offer.pools.iter().map(async |pool| match pool.step(Step::Finish).await?.answer {
        Answer::Done(finished) => Ok::<bool, ServiceError>(finished),
        other => Err(foreign(&other)),
    });
    Ok(try_join_all(finished).await?.into_iter().all(|finished| finished))
}

/// Turns a pool's stock into refunds.
async fn empty(pool: &LocalPool) -> Result<(), ServiceError> {
    loop {
        match pool.step(Step::Close { limit: CLOSE_MAX }).await?.answer {
            Answer::Left(0) => return Ok(()),
            Answer::Left(_) => {}
            other => return Err(foreign(&other)),
        }
    }
}

/// The word of a pool's status in answers.
pub fn status_word(status: PoolStatus) -> &'static str {
    match status {
        PoolStatus::Open => "open",
        PoolStatus::Closing => "closing",
        PoolStatus::Closed => "closed",
    }
}
