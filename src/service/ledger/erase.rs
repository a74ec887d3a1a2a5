//! Erasing: a user's name is replaced everywhere by the element that stands for it.
//!
//! Names stand in two places only: in the outboxes, until the ledger has the news and a minute longer, and in the ledger.
//! Claims stay, under the user's key, which does not lead back to the name: so the books still balance, and the user
//! cannot claim a second time.

use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::domain::element::Element;
use crate::domain::id::{CampaignId, UserId};
use crate::domain::quota::claim::UserKey;
use crate::domain::ring::ring_point;
use crate::service::book::{Admission, Book};
use crate::service::error::ServiceError;
use crate::service::identity::Identity;
use crate::store::documents::Phase;
use crate::store::ledger::Ledger;
use crate::store::outbox::Outbox;
use crate::store::pools::PoolAddress;
use crate::store::records::{RecordKind, Records};

/// Campaigns read at once.
const PAGE: usize = 100;

pub struct Erase {
    pub book: Arc<Book>,
    pub identity: Arc<Identity>,
    pub records: Arc<dyn Records>,
    pub outbox: Arc<dyn Outbox>,
    /// None: there is none, and only outboxes are looked through.
    pub ledger: Option<Arc<dyn Ledger>>,
}

/// Where the name stood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Erased {
    /// Entries of outboxes.
    pub entries: u64,
    /// Rows of the ledger that are the user's.
    pub rows: u64,
}

impl Erase {
    /// Replaces the name in all campaigns. Again is fine, and finds no entries.
    pub async fn run(&self, user: UserId<'_>) -> Result<Erased, ServiceError> {
        let hashing = self.identity.hashing()?;
        let element = hashing.element(user);
        let point = ring_point(&element);
        let alias = match &element {
            Element::Keyed(bytes) => format!("element:{}", data_encoding::HEXLOWER.encode(bytes)),
            // Under plain hashing the element is the name itself.
            Element::Plain(_) => format!("element:{point:016x}"),
        };
        let mut erased = Erased::default();
        let mut cursor: Option<String> = None;
        loop {
            let page = self.records.list(RecordKind::Campaign, cursor.as_deref(), PAGE).await?;
            let campaigns = page.ids.iter().filter_map(|id| CampaignId::new(id).ok());
            let in_outboxes = campaigns.map(|campaign| self.in_outbox(campaign, user, point, &alias));
            erased.entries += try_join_all(in_outboxes).await?.into_iter().sum::<u64>();
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        // Last, so that what was drained meanwhile is found here.
        if let Some(ledger) = &self.ledger {
            let key = UserKey::of(&hashing, user);
            erased.rows = ledger.rename(key, &alias).await.map_err(ServiceError::Ledger)?;
        }
        Ok(erased)
    }

    async fn in_outbox(
        &self,
        campaign: CampaignId,
        user: UserId<'_>,
        point: u64,
        alias: &str,
    ) -> Result<u64, ServiceError> {
        let facts = self.book.campaign(&campaign).await?;
        match facts.admission {
            Admission::Hard(hard) if !matches!(hard.phase, Phase::Filling | Phase::Removed) => {}
            _ => return Ok(0),
        }
        let position = facts.shards.position_of(point);
        Ok(self.outbox.rename(&PoolAddress { campaign, position }, user.as_str(), alias).await?)
    }
}
