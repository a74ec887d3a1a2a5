//! Campaigns: created once, changed by version, closed for good.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::campaign_view::{CampaignView, OnStale};
use super::packets::{NewPackets, packets_document, same_packets};
use super::records::{IdPage, change_record, list, put_record, read};
use crate::domain::id::CampaignId;
use crate::domain::ring::Shards;
use crate::local::store_clock::StoreClock;
use crate::service::book::Book;
use crate::service::error::ServiceError;
use crate::service::quota::operations::Operations;
use crate::service::quota::packets::{Part, with_part};
use crate::service::quota::plan;
use crate::store::documents::{CampaignDocument, Document, HardDocument, PacketsDocument, Phase};
use crate::store::records::{Put, RecordKind, Records};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewCampaign {
    pub quota: u64,
    /// None: at once.
    pub opens_at: Option<Timestamp>,
    /// None: when closed by hand.
    pub closes_at: Option<Timestamp>,
    pub shards: Option<Shards>,
    pub admission: NewAdmission,
}

/// How a new campaign admits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NewAdmission {
    Soft {
        on_stale: OnStale,
    },
    /// `hold_s` 0: claims are confirmed at once.
    Hard {
        hold_s: u64,
    },
    Packets {
        hold_s: u64,
        packets: NewPackets,
    },
}

/// What changes; None stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CampaignPatch {
    pub quota: Option<u64>,
    pub opens_at: Option<Timestamp>,
    /// Some(None): no end any more.
    pub closes_at: Option<Option<Timestamp>>,
    pub paused: Option<bool>,
}

/// How far processes' ideas of the store's clock may differ: half of a slow round trip each.
const CLOCK_LAG_MAX: Duration = Duration::from_secs(1);

/// Campaigns.
pub struct Campaigns {
    pub book: Arc<Book>,
    pub records: Arc<dyn Records>,
    pub store_clock: Arc<StoreClock>,
    pub operations: Arc<Operations>,
    /// How long processes may say "sold out" from memory, frozen in each hard campaign.
    pub sold_out_interval: Duration,
}

/// Others change a campaign that is being filled only by adding the same part.
const PART_TRIES: usize = 8;

/// A shard for each so many units, up to the default: fewer than that are soon moved to where the users are
/// (docs/FAULTS.md A17).
const UNITS_PER_SHARD: u64 = 64;
const HARD_SHARDS_MAX: u64 = 16;

impl Campaigns {
    pub async fn get(&self, campaign: &CampaignId) -> Result<CampaignView, ServiceError> {
        let (document, version) = read::<CampaignDocument>(&*self.records, campaign.as_str()).await?;
        let document = document.ok_or(ServiceError::NoCampaign)?;
        self.book.check_fingerprint(&document)?;
        Ok(self.view(campaign, &document, version))
    }

    /// True: created now. The same body again is a no-op (it compares with the present record), another one a Conflict.
    /// A hard campaign is answered when its stock is laid out.
    pub async fn put(&self, campaign: &CampaignId, new: NewCampaign) -> Result<(CampaignView, bool), ServiceError> {
        let document = self.document(&new).await?;
        let (standing, version, created) =
            match self.records.put(RecordKind::Campaign, campaign.as_str(), 0, document.encode()).await? {
                Put::Written { version } => (document, version, true),
                Put::Conflict(Some(record)) => {
                    let standing = CampaignDocument::decode(&record)?;
                    self.book.check_fingerprint(&standing)?;
                    if !says_the_same(&new, &document, &standing) {
                        return Err(ServiceError::Conflict(
                            "a campaign with this id and another body exists: PATCH it, or choose another id".into(),
                        ));
                    }
                    (standing, record.version, false)
                }
                Put::Conflict(None) => {
                    return Err(ServiceError::Conflict("the campaign was changed meanwhile: try again".into()));
                }
            };
        let view = match &new.admission {
            NewAdmission::Packets { packets: NewPackets::List { amounts: Some(amounts), .. }, .. } => {
                self.book.campaigns.put(&self.book.campaigns.slot(campaign.as_str()), standing, version);
                self.add_packets(campaign, &Part { first: 1, cents: amounts.clone() }).await?
            }
            _ => self.settled(campaign, standing, version).await?,
        };
        Ok((view, created))
    }

    /// Adds a part to a campaign whose packets come as a list; with the last one it opens. The same part again goes on
    /// where it stopped, or changes nothing.
    pub async fn add_packets(&self, campaign: &CampaignId, part: &Part) -> Result<CampaignView, ServiceError> {
        for _ in 0..PART_TRIES {
            let (document, version) = read::<CampaignDocument>(&*self.records, campaign.as_str()).await?;
            let document = document.ok_or(ServiceError::NoCampaign)?;
            self.book.check_fingerprint(&document)?;
            if let Some(begun) = with_part(&document, part)?
                && !put_record(&self.book, &*self.records, campaign, version, &begun).await?
            {
                continue;
            }
            let (document, version) = self.operations.advance_with(campaign, Some(part)).await?;
            return Ok(self.view(campaign, &document, version));
        }
        Err(ServiceError::Conflict("the campaign was changed meanwhile: send the part again".into()))
    }

    async fn document(&self, new: &NewCampaign) -> Result<CampaignDocument, ServiceError> {
        let now = self.store_clock.now();
        let opens_at = new.opens_at.unwrap_or_else(|| at_once(now));
        if new.closes_at.is_some_and(|closes_at| closes_at <= opens_at) {
            return Err(closes_before_opening(opens_at));
        }
        let is_exact = !matches!(new.admission, NewAdmission::Soft { .. });
        let default_shards = if is_exact { hard_shards(new.quota) } else { self.book.defaults.shards };
        let shards = new.shards.unwrap_or(default_shards);
        if is_exact {
            self.operations.refuse_where_claims_could_be_lost().await?;
        }
        let (admission, hard) = match &new.admission {
            NewAdmission::Soft { .. } => ("soft", None),
            NewAdmission::Hard { hold_s } => ("hard", Some(self.exact(new.quota, shards, *hold_s, None))),
            NewAdmission::Packets { hold_s, packets } => {
                ("packets", Some(self.exact(new.quota, shards, *hold_s, Some(packets_document(packets)))))
            }
        };
        Ok(CampaignDocument {
            admission: admission.to_owned(),
            quota: new.quota,
            opens_at,
            closes_at: new.closes_at,
            shards: shards.count(),
            admit_on_stale: matches!(new.admission, NewAdmission::Soft { on_stale: OnStale::Admit }),
            paused: false,
            closed: false,
            created_at: now,
            fingerprint: self.book.identity.fingerprint()?.to_owned(),
            hard,
        })
    }

    /// A campaign whose stock is still to be laid out; a list of packets comes in parts.
    fn exact(&self, quota: u64, shards: Shards, hold_s: u64, packets: Option<PacketsDocument>) -> HardDocument {
        let comes_later = packets.as_ref().is_some_and(|packets| packets.loaded() == 0);
        HardDocument {
            phase: Phase::Filling,
            hold_s,
            interval_ms: self.sold_out_interval.as_millis() as u64,
            next_unit: if comes_later { 1 } else { quota + 1 },
            quota_target: quota,
            operations: u64::from(!comes_later),
            running: (!comes_later).then(|| plan::fill(usize::from(shards.count()), quota)),
            schedule: 1,
            schedule_told: 1,
            entered: false,
            packets,
        }
    }

    /// Remembers a record that was just written, and brings a hard campaign to where it says.
    async fn settled(
        &self,
        campaign: &CampaignId,
        document: CampaignDocument,
        version: u64,
    ) -> Result<CampaignView, ServiceError> {
        self.book.campaigns.put(&self.book.campaigns.slot(campaign.as_str()), document.clone(), version);
        if document.hard.is_none() {
            return Ok(self.view(campaign, &document, version));
        }
        let (document, version) = self.operations.advance(campaign).await?;
        Ok(self.view(campaign, &document, version))
    }

    pub async fn patch(
        &self,
        campaign: &CampaignId,
        patch: CampaignPatch,
        if_match: Option<u64>,
    ) -> Result<CampaignView, ServiceError> {
        self.change(campaign, if_match, |old| patched(old, &patch)).await
    }

    /// For good; closing again is a no-op. A hard campaign's stock becomes refunds; holds live to their deadlines.
    pub async fn close(&self, campaign: &CampaignId, if_match: Option<u64>) -> Result<CampaignView, ServiceError> {
        let close = |old: &CampaignDocument| {
            let mut new = CampaignDocument { closed: true, ..old.clone() };
            if let Some(hard) = &mut new.hard
                && matches!(hard.phase, Phase::Filling | Phase::Ready)
            {
                hard.phase = match hard.phase {
                    // A list that nobody completes: what came in is refunded. If nothing did, there are no pools.
                    Phase::Filling if hard.running.is_some() => return Err(being_changed()),
                    Phase::Filling if hard.operations == 0 => Phase::Removed,
                    _ => Phase::Closing,
                };
                hard.entered = false;
            }
            Ok(new)
        };
        self.change(campaign, if_match, close).await
    }

    /// Forgets a closed hard campaign's claims; its record stays, so that its id is not used again.
    pub async fn remove(&self, campaign: &CampaignId, if_match: Option<u64>) -> Result<CampaignView, ServiceError> {
        let remove = |old: &CampaignDocument| {
            let mut new = old.clone();
            match &mut new.hard {
                None => return Err(ServiceError::NotKeptBySoft),
                Some(hard) => match hard.phase {
                    Phase::Closed | Phase::Removing => hard.phase = Phase::Removing,
                    Phase::Removed => {}
                    Phase::Filling | Phase::Ready | Phase::Closing => {
                        return Err(ServiceError::Conflict(
                            "only a closed campaign can be removed: POST …/close first, and wait until its holds have \
                             ended"
                                .into(),
                        ));
                    }
                },
            }
            Ok(new)
        };
        self.change(campaign, if_match, remove).await
    }

    pub async fn list(&self, cursor: Option<&str>, limit: usize) -> Result<IdPage, ServiceError> {
        list(&*self.records, RecordKind::Campaign, cursor, limit).await
    }

    async fn change(
        &self,
        campaign: &CampaignId,
        if_match: Option<u64>,
        change: impl Fn(&CampaignDocument) -> Result<CampaignDocument, ServiceError>,
    ) -> Result<CampaignView, ServiceError> {
        let apply = |old: Option<&CampaignDocument>| change(old.ok_or(ServiceError::NoCampaign)?);
        let (document, version) = change_record(&self.book, &*self.records, campaign.as_str(), if_match, apply).await?;
        self.settled(campaign, document, version).await
    }

    fn view(&self, campaign: &CampaignId, document: &CampaignDocument, version: u64) -> CampaignView {
        CampaignView::of(campaign, (document, version), self.store_clock.now(), self.book.defaults.shards)
    }
}

/// Compares a wish with the present record (docs/FAULTS.md P20): what the wish leaves open agrees with anything.
fn says_the_same(new: &NewCampaign, wish: &CampaignDocument, standing: &CampaignDocument) -> bool {
    let hold_s = |document: &CampaignDocument| document.hard.as_ref().map(|hard| hard.hold_s);
    let quota = |document: &CampaignDocument| document.hard.as_ref().map_or(document.quota, |hard| hard.quota_target);
    standing.admission == wish.admission
        && quota(standing) == quota(wish)
        && same_packets(packets_of(new), standing.hard.as_ref().and_then(|hard| hard.packets.as_ref()))
        && hold_s(standing) == hold_s(wish)
        && standing.admit_on_stale == wish.admit_on_stale
        && new.opens_at.is_none_or(|opens_at| opens_at == standing.opens_at)
        && standing.closes_at == wish.closes_at
        && new.shards.is_none_or(|shards| shards.count() == standing.shards)
}

fn packets_of(new: &NewCampaign) -> Option<&NewPackets> {
    match &new.admission {
        NewAdmission::Packets { packets, .. } => Some(packets),
        _ => None,
    }
}

/// The record after a patch.
fn patched(old: &CampaignDocument, patch: &CampaignPatch) -> Result<CampaignDocument, ServiceError> {
    if old.closed {
        return Err(ServiceError::Conflict("the campaign is closed for good: create another one".into()));
    }
    let mut new = CampaignDocument {
        opens_at: patch.opens_at.unwrap_or(old.opens_at),
        closes_at: patch.closes_at.unwrap_or(old.closes_at),
        paused: patch.paused.unwrap_or(old.paused),
        ..old.clone()
    };
    let rescheduled = (new.opens_at, new.closes_at, new.paused) != (old.opens_at, old.closes_at, old.paused);
    match &mut new.hard {
        None => new.quota = patch.quota.unwrap_or(old.quota),
        Some(hard) => {
            if hard.phase == Phase::Filling {
                return Err(being_changed());
            }
            if let Some(quota) = patch.quota {
                if hard.packets.is_some() {
                    return Err(ServiceError::Invalid {
                        field: "quota",
                        rule: "is the number of packets for good".into(),
                    });
                }
                if hard.running.is_some() || hard.quota_target != old.quota {
                    return Err(being_changed());
                }
                hard.quota_target = quota;
            }
            hard.schedule += u64::from(rescheduled);
            hard.entered = false;
        }
    }
    match new.closes_at {
        Some(closes_at) if closes_at <= new.opens_at => Err(closes_before_opening(new.opens_at)),
        _ => Ok(new),
    }
}

/// A shard for every 64 units, 16 at most: a power of two.
fn hard_shards(quota: u64) -> Shards {
    let shards = quota.div_ceil(UNITS_PER_SHARD).clamp(1, HARD_SHARDS_MAX).next_power_of_two();
    Shards::new(shards).unwrap_or(Shards::DEFAULT)
}

fn being_changed() -> ServiceError {
    ServiceError::Conflict("the campaign's stock is being changed: try again in a moment".into())
}

/// An opening that no process takes for the future, though its idea of the store's clock lags.
fn at_once(now: Timestamp) -> Timestamp {
    now.checked_sub(CLOCK_LAG_MAX).unwrap_or(now)
}

fn closes_before_opening(opens_at: Timestamp) -> ServiceError {
    ServiceError::Invalid { field: "closes_at", rule: format!("must be after opens_at ({opens_at})") }
}
