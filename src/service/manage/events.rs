//! The settings of events.

use std::sync::Arc;

use super::records::{IdPage, change_record, list, read};
use crate::domain::id::EventId;
use crate::domain::period::Retention;
use crate::domain::ring::Shards;
use crate::local::record_memory;
use crate::service::book::Book;
use crate::service::error::ServiceError;
use crate::store::deployment::Deployment;
use crate::store::documents::EventDocument;
use crate::store::records::{RecordKind, Records};

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
