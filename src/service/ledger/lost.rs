//! Which pools of a campaign are lost, and whether the ledger knows enough to rebuild them.

use std::sync::Arc;

use super::drain::Drain;
use crate::domain::id::CampaignId;
use crate::domain::quota::marks::Floor;
use crate::domain::quota::step::{Answer, Step};
use crate::local::store_clock::StoreClock;
use crate::service::error::ServiceError;
use crate::service::quota::offer::Offer;
use crate::service::quota::packets::drawn;
use crate::store::documents::{CampaignDocument, Document, HardDocument, PacketSource, Phase};
use crate::store::error::StoreError;
use crate::store::ledger::Progress;
use crate::store::pools::Pools;
use crate::store::records::{Put, RecordKind, Records};

/// Puts lost pools right; how: `mending.rs`.
pub struct Mending {
    pub drain: Arc<Drain>,
    pub records: Arc<dyn Records>,
    pub pools: Arc<dyn Pools>,
    pub store_clock: Arc<StoreClock>,
}

/// Packets read from the ledger at once.
const PACKETS: usize = 10_000;

/// Told as a long piece of work goes on.
pub type Progressing<'a> = &'a (dyn Fn(String) + Send + Sync);

/// With what losses mending goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Pools that went back to an older state: the ledger has what they lack, but for the last moment.
    WentBack,
    /// Pools that are gone, where the ledger had all that they had said.
    Nothing,
    /// Also what the ledger had not heard: users may lose their units to others.
    Accepted,
}

/// A pool that serves nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostPool {
    pub shard: u16,
    /// The highest that anybody may know.
    pub incarnation: u64,
}

impl Mending {
    /// The campaign's record; from the ledger, where the store has none. True: it was put back now.
    pub(super) async fn record(&self, campaign: &CampaignId) -> Result<(CampaignDocument, bool), ServiceError> {
        let book = &self.drain.book;
        if let Some(record) = self.records.get(RecordKind::Campaign, campaign.as_str()).await? {
            let document = CampaignDocument::decode(&record)?;
            book.check_fingerprint(&document)?;
            return Ok((document, false));
        }
        let known = self.drain.ledger.campaign(campaign).await.map_err(ServiceError::Ledger)?;
        let known = known.ok_or(ServiceError::NoCampaign)?;
        let mut document: CampaignDocument = serde_json::from_str(&known.document).map_err(|error| {
            ServiceError::Refused(StoreError::Corrupt(format!(
                "the ledger's copy of the record is unreadable: {error}"
            )))
        })?;
        book.check_fingerprint(&document)?;
        if let Some(hard) = &mut document.hard {
            // The ledger may have heard of units before it heard of the raise that issued them.
            let highest = self.highest_unit(campaign, document.shards).await?;
            hard.next_unit = hard.next_unit.max(highest + 1);
            hard.entered = false;
            if hard.phase == Phase::Closed {
                hard.phase = Phase::Closing;
            }
        }
        match self.records.put(RecordKind::Campaign, campaign.as_str(), 0, document.encode()).await? {
            Put::Written { version } => {
                book.campaigns.put(&book.campaigns.slot(campaign.as_str()), document.clone(), version);
                Ok((document, true))
            }
            Put::Conflict(_) => Err(ServiceError::Conflict("the campaign was created meanwhile: try again".into())),
        }
    }

    async fn highest_unit(&self, campaign: &CampaignId, shards: u16) -> Result<u64, ServiceError> {
        let mut highest = 0;
        for shard in 0..shards {
            let rows = self.drain.rows(campaign, shard).await?;
            highest = rows.iter().map(|row| row.unit().number).fold(highest, u64::max);
        }
        Ok(highest)
    }

    /// Pools that are gone or fenced; a Conflict where more may be lost than is accepted.
    pub(super) async fn lost_pools(&self, offer: &Offer, accept: Loss) -> Result<Vec<LostPool>, ServiceError> {
        let of_shards = self.drain.ledger.progress(&offer.campaign).await.map_err(ServiceError::Ledger)?;
        let mut lost = Vec::new();
        for pool in &offer.pools {
            // A pool that answers is not lost; only of others all units are read.
            let collect = Step::Collect { entries: false };
            let stepped = pool.store().step(&pool.address, Floor::default(), collect).await?;
            if !matches!(stepped.answer, Answer::Fenced | Answer::Absent) {
                continue;
            }
            let inventory = pool.store().inventory(&pool.address).await?;
            let of_shard = of_shards.iter().find(|(shard, _)| *shard == pool.shard);
            let progress = of_shard.map(|(_, progress)| *progress).unwrap_or_default();
            let floor = pool.floor();
            let known = floor.incarnation.max(progress.incarnation).max(1);
            let incarnation = match inventory {
                Some(inventory) if accept == Loss::WentBack && inventory.seen <= inventory.ver => {
                    return Err(ServiceError::Conflict(format!(
                        "shard {} was fenced because its news contradict the ledger: a person must look",
                        pool.shard
                    )));
                }
                Some(inventory) => inventory.incarnation.max(known),
                None if accept == Loss::WentBack => {
                    return Err(ServiceError::PoolLost { shard: pool.shard, fenced: false });
                }
                None => {
                    let behind = is_behind(progress, (floor.incarnation, floor.ver));
                    if behind && accept != Loss::Accepted {
                        return Err(not_drained(pool.shard, progress));
                    }
                    known
                }
            };
            lost.push(LostPool { shard: pool.shard, incarnation });
        }
        Ok(lost)
    }
}

/// Whether the pool had said more than the ledger has, as far as anybody here can tell.
fn is_behind(progress: Progress, floor: (u64, u64)) -> bool {
    progress.incarnation == 0 || progress.behind > 0 || floor > (progress.incarnation, progress.ver)
}

fn not_drained(shard: u16, progress: Progress) -> ServiceError {
    let what = match progress {
        Progress { incarnation: 0, .. } => "the ledger never heard of it".to_owned(),
        Progress { behind: 0, .. } => "this process knows of later steps than the ledger does".to_owned(),
        Progress { behind, .. } => format!("{behind} entries were still to be drained"),
    };
    ServiceError::Conflict(format!(
        "shard {shard} is gone, and the ledger may lack claims of it ({what}): users could lose their units to others. \
         Accept that loss (--accept-loss), or bring the store's data back"
    ))
}

impl Drain {
    /// What the packets of a campaign hold; None where its units are no packets.
    pub(super) async fn cents(
        &self,
        campaign: &CampaignId,
        hard: &HardDocument,
    ) -> Result<Option<Vec<i64>>, ServiceError> {
        let Some(packets) = &hard.packets else { return Ok(None) };
        if let PacketSource::Draw { .. } = packets.source {
            return drawn(packets).map(Some);
        }
        let mut cents = Vec::new();
        while (cents.len() as u64) < packets.loaded() {
            let page = self.ledger.packets(campaign, cents.len() as u64 + 1, PACKETS).await;
            let page = page.map_err(ServiceError::Ledger)?;
            if page.is_empty() {
                return Err(ServiceError::Conflict(format!(
                    "the ledger lacks the amounts of packets from {} on",
                    cents.len() + 1
                )));
            }
            cents.extend(page);
        }
        Ok(Some(cents))
    }
}
