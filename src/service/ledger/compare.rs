//! Comparing: the claims that a store keeps against the ledger's rows, unit by unit.
//!
//! The outbox is drained first, then the ledger is read, then the store. So whatever the store has and the ledger lacks
//! is either newer than what was drained, and left out, or a difference.

use std::collections::HashMap;

use tokio::time::{Duration, Instant};

use super::drain::Drain;
use crate::domain::id::CampaignId;
use crate::domain::ledger::entry::{Entry, Subject};
use crate::domain::quota::claim::{ClaimRecord, ClaimState, UserKey};
use crate::domain::quota::marks::Floor;
use crate::domain::quota::pool::LogKind;
use crate::domain::quota::step::{Answer, Step};
use crate::domain::quota::unit::Unit;
use crate::service::error::ServiceError;
use crate::service::quota::offer::Offer;
use crate::service::quota::pools::{LocalPool, foreign};
use crate::store::ledger::{LedgerBatch, Progress};

/// Rows read at once, and entries written at once.
const PAGE: usize = 500;
/// A pool is drained for so long before it is compared.
const DRAIN: Duration = Duration::from_secs(30);
/// Differences that are told one by one; all are counted.
const TOLD_MAX: usize = 1000;

/// What a comparison found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Comparison {
    /// Claims that were compared.
    pub claims: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
    pub missing_in_ledger: u64,
    pub missing_in_store: u64,
    pub different: u64,
    /// Units refunded, as each has it.
    pub refunded_in_store: u64,
    pub refunded_in_ledger: u64,
    /// Claims that changed while they were compared, and were left out.
    pub too_new: u64,
    /// Rows written to the ledger.
    pub repaired: u64,
    /// Of those, rows that contradict others (table ledger_conflicts).
    pub conflicts: u64,
}

/// One claim that store and ledger see differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    pub shard: u16,
    pub unit: Unit,
    /// None: it is not there.
    pub store: Option<(Unit, ClaimState)>,
    pub ledger: Option<(Unit, ClaimState)>,
}

impl Comparison {
    pub fn agrees(&self) -> bool {
        self.missing_in_ledger + self.missing_in_store + self.different == 0
            && self.refunded_in_store == self.refunded_in_ledger
    }

    fn note(&mut self, difference: Difference) {
        match (&difference.store, &difference.ledger) {
            (Some(_), None) => self.missing_in_ledger += 1,
            (None, Some(_)) => self.missing_in_store += 1,
            _ => self.different += 1,
        }
        if self.differences.len() < TOLD_MAX {
            self.differences.push(difference);
        }
    }
}

/// A shard's rows: the newest claim of each user, and how many units were refunded.
struct Rows {
    newest: HashMap<UserKey, Entry>,
    refunded: u64,
}

impl Drain {
    /// Compares one shard, and brings the ledger what it lacks if asked.
    pub async fn compare(
        &self,
        offer: &Offer,
        pool: &LocalPool,
        repair: bool,
        found: &mut Comparison,
    ) -> Result<(), ServiceError> {
        self.drain_pool(offer, pool, Instant::now() + DRAIN).await?;
        let drained = self.progress_of(&offer.campaign, pool.shard).await?;
        let mut rows = self.rows_by_user(&offer.campaign, pool.shard).await?;
        let mut lacking = Vec::new();
        let at_ms = self.clock.now().as_millisecond();
        pool.each_claim(|user, record| {
            let row = rows.newest.remove(&user);
            found.claims += 1;
            if record.ver > drained.ver {
                found.too_new += 1;
            } else if !row.as_ref().is_some_and(|row| says(row, &record)) {
                found.note(Difference {
                    shard: pool.shard,
                    unit: record.unit,
                    store: Some((record.unit, record.state)),
                    ledger: row.as_ref().and_then(standing),
                });
                // At least as new as what stands there, so that it is replaced.
                let stands = row.map_or((0, 0), |row| (row.incarnation, row.ver));
                let (incarnation, ver) = (drained.incarnation.max(stands.0), record.ver.max(stands.1));
                lacking.push(entry_of(user, ClaimRecord { ver, ..record }, incarnation, at_ms));
            }
        })
        .await?;
        for row in rows.newest.into_values() {
            let (unit, ledger) = (row.unit(), standing(&row));
            found.note(Difference { shard: pool.shard, unit, store: None, ledger });
        }
        found.refunded_in_ledger += rows.refunded;
        found.refunded_in_store += refunded(pool).await?;
        if repair {
            let (rows, conflicts) = self.bring(&offer.campaign, pool.shard, lacking, drained).await?;
            (found.repaired, found.conflicts) = (found.repaired + rows, found.conflicts + conflicts);
        }
        Ok(())
    }

    /// Writes entries that the ledger lacks; how many rows that made or changed, and how many contradict it.
    pub async fn bring(
        &self,
        campaign: &CampaignId,
        shard: u16,
        entries: Vec<Entry>,
        progress: Progress,
    ) -> Result<(u64, u64), ServiceError> {
        let (mut rows, mut conflicts) = (0, 0);
        for part in entries.chunks(PAGE) {
            let batch = LedgerBatch { campaign: campaign.clone(), shard, entries: part.to_vec(), progress };
            let written = self.ledger.write(&batch).await.map_err(ServiceError::Ledger)?;
            (rows, conflicts) = (rows + written.rows, conflicts + written.conflicts.len() as u64);
        }
        Ok((rows, conflicts))
    }

    pub async fn progress_of(&self, campaign: &CampaignId, shard: u16) -> Result<Progress, ServiceError> {
        let progress = self.ledger.progress(campaign).await.map_err(ServiceError::Ledger)?;
        Ok(progress.into_iter().find(|(of, _)| *of == shard).map(|(_, progress)| progress).unwrap_or_default())
    }

    /// All rows of a shard.
    pub async fn rows(&self, campaign: &CampaignId, shard: u16) -> Result<Vec<Entry>, ServiceError> {
        let mut rows = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = self.ledger.rows(campaign, shard, cursor.as_deref(), PAGE).await;
            let page = page.map_err(ServiceError::Ledger)?;
            rows.extend(page.rows);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(rows);
            }
        }
    }

    async fn rows_by_user(&self, campaign: &CampaignId, shard: u16) -> Result<Rows, ServiceError> {
        let mut rows = Rows { newest: HashMap::new(), refunded: 0 };
        for row in self.rows(campaign, shard).await? {
            match row.claim() {
                None => rows.refunded += 1,
                Some((user, claim_no)) => {
                    let standing = rows.newest.get(&user).and_then(Entry::claim);
                    if standing.is_none_or(|(_, standing)| standing < claim_no) {
                        rows.newest.insert(user, row);
                    }
                }
            }
        }
        Ok(rows)
    }
}

/// The news that a claim stands as it does; told anew, because the ones of then are not there.
pub fn entry_of(user: UserKey, record: ClaimRecord, incarnation: u64, at_ms: i64) -> Entry {
    let kind = match record.state {
        ClaimState::Held => LogKind::Grant,
        ClaimState::Confirmed => LogKind::Confirm,
        ClaimState::Released => LogKind::Release,
        ClaimState::Expired => LogKind::Expire,
        ClaimState::Voided => LogKind::Void,
    };
    Entry { incarnation, ver: record.ver, kind, at_ms, subject: Subject::Claim { user, user_raw: None, record } }
}

async fn refunded(pool: &LocalPool) -> Result<u64, ServiceError> {
    let stepped = pool.store().step(&pool.address, Floor::default(), Step::Collect { entries: false }).await?;
    match stepped.answer {
        Answer::Reading(reading) => Ok(reading.refunded),
        Answer::Absent => Ok(0),
        Answer::Fenced => Err(ServiceError::PoolLost { shard: pool.shard, fenced: true }),
        other => Err(foreign(&other)),
    }
}

fn says(row: &Entry, record: &ClaimRecord) -> bool {
    let Subject::Claim { record: row, .. } = &row.subject else { return false };
    (row.state, row.unit, row.claim_no, &row.secret) == (record.state, record.unit, record.claim_no, &record.secret)
}

fn standing(row: &Entry) -> Option<(Unit, ClaimState)> {
    match &row.subject {
        Subject::Claim { record, .. } => Some((record.unit, record.state)),
        Subject::Refund(_) => None,
    }
}
