//! Changing records: read, change, write, and again where somebody came between.

use crate::domain::id::CampaignId;
use crate::service::book::Book;
use crate::service::error::ServiceError;
use crate::store::documents::{CampaignDocument, Document};
use crate::store::records::{Put, RecordKind, Records};

/// One page of ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdPage {
    pub ids: Vec<String>,
    pub next: Option<String>,
}

/// How often a change is tried again when others change the same record.
const ATTEMPTS: usize = 8;

/// Reads, changes and writes a record until nobody comes between, or `if_match` names another version.
pub async fn change_record<D: Document + PartialEq>(
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

pub async fn read<D: Document>(records: &dyn Records, id: &str) -> Result<(Option<D>, u64), ServiceError> {
    match records.get(D::KIND, id).await? {
        None => Ok((None, 0)),
        Some(record) => Ok((Some(D::decode(&record)?), record.version)),
    }
}

pub async fn list(
    records: &dyn Records,
    kind: RecordKind,
    cursor: Option<&str>,
    limit: usize,
) -> Result<IdPage, ServiceError> {
    let page = records.list(kind, cursor, limit).await?;
    Ok(IdPage { ids: page.ids, next: page.next })
}

/// Writes a campaign's record over the version that was read. False: somebody else was first.
pub async fn put_record(
    book: &Book,
    records: &dyn Records,
    campaign: &CampaignId,
    version: u64,
    document: &CampaignDocument,
) -> Result<bool, ServiceError> {
    match records.put(RecordKind::Campaign, campaign.as_str(), version, document.encode()).await? {
        Put::Written { version } => {
            book.campaigns.put(&book.campaigns.slot(campaign.as_str()), document.clone(), version);
            Ok(true)
        }
        Put::Conflict(_) => Ok(false),
    }
}
