//! Management: the settings of events, and campaigns.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::book::Book;
use super::error::ServiceError;
use crate::domain::campaign::{CampaignState, Schedule};
use crate::domain::id::{CampaignId, EventId};
use crate::domain::period::Retention;
use crate::domain::ring::Shards;
use crate::local::record_memory;
use crate::local::store_clock::StoreClock;
use crate::store::deployment::Deployment;
use crate::store::documents::{CampaignDocument, Document, EventDocument};
use crate::store::records::{Put, RecordKind, Records};

/// What an event may say of itself; None: the deployment's default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventSettings {
    pub shards: Option<Shards>,
    pub retention: Option<Retention>,
}

/// An event as it stands, defaults filled in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventView {
    pub event: EventId,
    pub shards: Shards,
    pub retention: Retention,
    pub generation: u64,
    /// 0: nothing was ever set; the event has the defaults.
    pub version: u64,
}

/// What a soft campaign does when its last reading is older than 2 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnStale {
    /// 503: nobody is admitted on it.
    #[default]
    Refuse,
    /// Admitted, flagged, without a bound on the overshoot.
    Admit,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewCampaign {
    pub quota: u64,
    /// None: at once.
    pub opens_at: Option<Timestamp>,
    /// None: when closed by hand.
    pub closes_at: Option<Timestamp>,
    pub shards: Option<Shards>,
    pub on_stale: OnStale,
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

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CampaignView {
    pub campaign: CampaignId,
    pub state: CampaignState,
    pub quota: u64,
    pub opens_at: Timestamp,
    pub closes_at: Option<Timestamp>,
    pub shards: Shards,
    pub on_stale: OnStale,
    pub paused: bool,
    pub created_at: Timestamp,
    pub version: u64,
}

/// One page of ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdPage {
    pub ids: Vec<String>,
    pub next: Option<String>,
}

/// How often a change is tried again when others change the same record.
const ATTEMPTS: usize = 8;

/// How far processes' ideas of the store's clock may differ: half of a slow round trip each.
const CLOCK_LAG_MAX: Duration = Duration::from_secs(1);

/// Settings of events.
pub struct Events {
    pub book: Arc<Book>,
    pub records: Arc<dyn Records>,
    pub deployment: Arc<dyn Deployment>,
}

impl Events {
    /// A missing record is not an error: an event needs none to be counted.
    pub async fn get(&self, event: &EventId) -> Result<EventView, ServiceError> {
        let (document, version) = read::<EventDocument>(&*self.records, event.as_str()).await?;
        self.view(event, document.as_ref(), version)
    }

    /// Sets all settings (absent ones to the defaults). True: the event had no record before.
    pub async fn put(
        &self,
        event: &EventId,
        settings: EventSettings,
        if_match: Option<u64>,
    ) -> Result<(EventView, bool), ServiceError> {
        let fingerprint = self.book.identity.fingerprint()?;
        let change = |old: Option<&EventDocument>| {
            Ok(EventDocument {
                shards: settings.shards.map(Shards::count),
                retention_days: settings.retention.map(Retention::get),
                generation: old.map_or(0, |old| old.generation),
                fingerprint: fingerprint.to_owned(),
            })
        };
        let (document, version) = self.change(event, if_match, change).await?;
        Ok((self.view(event, Some(&document), version)?, version == 1))
    }

    /// Starts a new generation: counts go, settings stay. Answers when no process writes the old one any more: a
    /// process acts on what it knows of a record for `record_memory::AGE_MAX` at most (docs/FAULTS.md B7).
    pub async fn reset(&self, event: &EventId, if_match: Option<u64>) -> Result<EventView, ServiceError> {
        let fingerprint = self.book.identity.fingerprint()?;
        let now_ms = u64::try_from(self.deployment.now_ms().await?).unwrap_or(0);
        let change = |old: Option<&EventDocument>| {
            let generation = old.map_or(0, |old| old.generation);
            Ok(EventDocument {
                shards: old.and_then(|old| old.shards),
                retention_days: old.and_then(|old| old.retention_days),
                generation: (generation + 1).max(now_ms),
                fingerprint: fingerprint.to_owned(),
            })
        };
        let (document, version) = self.change(event, if_match, change).await?;
        tokio::time::sleep(record_memory::AGE_MAX).await;
        self.view(event, Some(&document), version)
    }

    pub async fn list(&self, cursor: Option<&str>, limit: usize) -> Result<IdPage, ServiceError> {
        list(&*self.records, RecordKind::Event, cursor, limit).await
    }

    async fn change(
        &self,
        event: &EventId,
        if_match: Option<u64>,
        change: impl Fn(Option<&EventDocument>) -> Result<EventDocument, ServiceError>,
    ) -> Result<(EventDocument, u64), ServiceError> {
        let (document, version) = change_record(&self.book, &*self.records, event.as_str(), if_match, change).await?;
        self.book.events.put(&self.book.events.slot(event.as_str()), document.clone(), version);
        Ok((document, version))
    }

    fn view(&self, event: &EventId, document: Option<&EventDocument>, version: u64) -> Result<EventView, ServiceError> {
        if let Some(document) = document {
            self.book.check_fingerprint(document)?;
        }
        let shards = document.and_then(|document| document.shards).and_then(|count| Shards::new(count.into()));
        let retention = document.and_then(|document| document.retention_days).and_then(Retention::days);
        Ok(EventView {
            event: event.clone(),
            shards: shards.unwrap_or(self.book.defaults.shards),
            retention: retention.unwrap_or(self.book.defaults.retention),
            generation: document.map_or(0, |document| document.generation),
            version,
        })
    }
}

/// Campaigns.
pub struct Campaigns {
    pub book: Arc<Book>,
    pub records: Arc<dyn Records>,
    pub store_clock: Arc<StoreClock>,
}

impl Campaigns {
    pub async fn get(&self, campaign: &CampaignId) -> Result<CampaignView, ServiceError> {
        let (document, version) = read::<CampaignDocument>(&*self.records, campaign.as_str()).await?;
        let document = document.ok_or(ServiceError::NoCampaign)?;
        self.book.check_fingerprint(&document)?;
        Ok(self.view(campaign, &document, version))
    }

    /// True: created now. The same body again is a no-op (it compares with the present record), another one a Conflict.
    pub async fn put(&self, campaign: &CampaignId, new: NewCampaign) -> Result<(CampaignView, bool), ServiceError> {
        let now = self.store_clock.now();
        let opens_at = new.opens_at.unwrap_or_else(|| at_once(now));
        if new.closes_at.is_some_and(|closes_at| closes_at <= opens_at) {
            return Err(closes_before_opening(opens_at));
        }
        let document = CampaignDocument {
            admission: "soft".to_owned(),
            quota: new.quota,
            opens_at,
            closes_at: new.closes_at,
            shards: new.shards.unwrap_or(self.book.defaults.shards).count(),
            admit_on_stale: new.on_stale == OnStale::Admit,
            paused: false,
            closed: false,
            created_at: now,
            fingerprint: self.book.identity.fingerprint()?.to_owned(),
        };
        match self.records.put(RecordKind::Campaign, campaign.as_str(), 0, document.encode()).await? {
            Put::Written { version } => {
                self.remember(campaign, &document, version);
                Ok((self.view(campaign, &document, version), true))
            }
            Put::Conflict(Some(record)) => {
                let standing = CampaignDocument::decode(&record)?;
                self.book.check_fingerprint(&standing)?;
                if !says_the_same(&new, &document, &standing) {
                    return Err(ServiceError::Conflict(
                        "a campaign with this id and another body exists: PATCH it, or choose another id".into(),
                    ));
                }
                Ok((self.view(campaign, &standing, record.version), false))
            }
            Put::Conflict(None) => Err(ServiceError::Conflict("the campaign was changed meanwhile: try again".into())),
        }
    }

    pub async fn patch(
        &self,
        campaign: &CampaignId,
        patch: CampaignPatch,
        if_match: Option<u64>,
    ) -> Result<CampaignView, ServiceError> {
        let apply = |old: Option<&CampaignDocument>| {
            let old = old.ok_or(ServiceError::NoCampaign)?;
            if old.closed {
                return Err(ServiceError::Conflict("the campaign is closed for good: create another one".into()));
            }
            let new = CampaignDocument {
                quota: patch.quota.unwrap_or(old.quota),
                opens_at: patch.opens_at.unwrap_or(old.opens_at),
                closes_at: patch.closes_at.unwrap_or(old.closes_at),
                paused: patch.paused.unwrap_or(old.paused),
                ..old.clone()
            };
            match new.closes_at {
                Some(closes_at) if closes_at <= new.opens_at => Err(closes_before_opening(new.opens_at)),
                _ => Ok(new),
            }
        };
        self.change(campaign, if_match, apply).await
    }

    /// For good; closing again is a no-op.
    pub async fn close(&self, campaign: &CampaignId, if_match: Option<u64>) -> Result<CampaignView, ServiceError> {
        let close = |old: Option<&CampaignDocument>| {
            let old = old.ok_or(ServiceError::NoCampaign)?;
            Ok(CampaignDocument { closed: true, ..old.clone() })
        };
        self.change(campaign, if_match, close).await
    }

    pub async fn list(&self, cursor: Option<&str>, limit: usize) -> Result<IdPage, ServiceError> {
        list(&*self.records, RecordKind::Campaign, cursor, limit).await
    }

    async fn change(
        &self,
        campaign: &CampaignId,
        if_match: Option<u64>,
        change: impl Fn(Option<&CampaignDocument>) -> Result<CampaignDocument, ServiceError>,
    ) -> Result<CampaignView, ServiceError> {
        let (document, version) =
            change_record(&self.book, &*self.records, campaign.as_str(), if_match, change).await?;
        self.remember(campaign, &document, version);
        Ok(self.view(campaign, &document, version))
    }

    fn remember(&self, campaign: &CampaignId, document: &CampaignDocument, version: u64) {
        self.book.campaigns.put(&self.book.campaigns.slot(campaign.as_str()), document.clone(), version);
    }

    fn view(&self, campaign: &CampaignId, document: &CampaignDocument, version: u64) -> CampaignView {
        let CampaignDocument { opens_at, closes_at, paused, closed, .. } = *document;
        let schedule = Schedule { opens_at, closes_at, paused, closed };
        CampaignView {
            campaign: campaign.clone(),
            state: schedule.state(self.store_clock.now()),
            quota: document.quota,
            opens_at,
            closes_at,
            shards: Shards::new(document.shards.into()).unwrap_or(self.book.defaults.shards),
            on_stale: if document.admit_on_stale { OnStale::Admit } else { OnStale::Refuse },
            paused,
            created_at: document.created_at,
            version,
        }
    }
}

/// Reads, changes and writes a record until nobody comes between, or `if_match` names another version.
async fn change_record<D: Document + PartialEq>(
    book: &Book,
    records: &dyn Records,
    id: &str,
    if_match: Option<u64>,
    change: impl Fn(Option<&D>) -> Result<D, ServiceError>,
) -> Result<(D, u64), ServiceError> {
    for _ in 0..ATTEMPTS {
        let (old, version) = read::<D>(records, id).await?;
        if let Some(old) = &old {
            book.check_fingerprint(old)?;
        }
        let new = change(old.as_ref())?;
        if if_match.is_some_and(|expected| expected != version) {
            return Err(ServiceError::VersionMismatch { present: version });
        }
        if old.as_ref() == Some(&new) {
            return Ok((new, version));
        }
        if let Put::Written { version } = records.put(D::KIND, id, version, new.encode()).await? {
            return Ok((new, version));
        }
    }
    Err(ServiceError::Conflict("others keep changing the record: read it and try again".into()))
}

async fn read<D: Document>(records: &dyn Records, id: &str) -> Result<(Option<D>, u64), ServiceError> {
    match records.get(D::KIND, id).await? {
        None => Ok((None, 0)),
        Some(record) => Ok((Some(D::decode(&record)?), record.version)),
    }
}

async fn list(
    records: &dyn Records,
    kind: RecordKind,
    cursor: Option<&str>,
    limit: usize,
) -> Result<IdPage, ServiceError> {
    let page = records.list(kind, cursor, limit).await?;
    Ok(IdPage { ids: page.ids, next: page.next })
}

/// Compares a wish with the present record (docs/FAULTS.md P20): what the wish leaves open agrees with anything.
fn says_the_same(new: &NewCampaign, wish: &CampaignDocument, standing: &CampaignDocument) -> bool {
    standing.quota == wish.quota
        && standing.admit_on_stale == wish.admit_on_stale
        && new.opens_at.is_none_or(|opens_at| opens_at == standing.opens_at)
        && standing.closes_at == wish.closes_at
        && new.shards.is_none_or(|shards| shards.count() == standing.shards)
}

/// An opening that no process takes for the future, though its idea of the store's clock lags.
fn at_once(now: Timestamp) -> Timestamp {
    now.checked_sub(CLOCK_LAG_MAX).unwrap_or(now)
}

fn closes_before_opening(opens_at: Timestamp) -> ServiceError {
    ServiceError::Invalid { field: "closes_at", rule: format!("must be after opens_at ({opens_at})") }
}
