//! Management: the settings of events, and campaigns.

use jiff::Timestamp;

use super::error::ServiceError;
use crate::domain::campaign::CampaignState;
use crate::domain::id::{CampaignId, EventId};
use crate::domain::period::Retention;
use crate::domain::ring::Shards;

/// What an event may say of itself; None: the deployment's default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventSettings {
    pub shards: Option<Shards>,
    pub retention: Option<Retention>,
}

/// What holds where an event or campaign says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Defaults {
    pub shards: Shards,
    pub retention: Retention,
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

pub struct Events {}

impl Events {
    /// A missing record is not an error: an event needs none to be counted.
    pub async fn get(&self, event: &EventId) -> Result<EventView, ServiceError> {
        let _ = event;
        unimplemented!()
    }

    /// Sets all settings (absent ones to the defaults). True: the event had no record before.
    pub async fn put(
        &self,
        event: &EventId,
        settings: EventSettings,
        if_match: Option<u64>,
    ) -> Result<(EventView, bool), ServiceError> {
        let _ = (event, settings, if_match);
        unimplemented!()
    }

    /// Starts a new generation: counts go, settings stay. Answers when no process writes the old one any more.
    pub async fn reset(&self, event: &EventId, if_match: Option<u64>) -> Result<EventView, ServiceError> {
        let _ = (event, if_match);
        unimplemented!()
    }

    pub async fn list(&self, cursor: Option<&str>, limit: usize) -> Result<IdPage, ServiceError> {
        let _ = (cursor, limit);
        unimplemented!()
    }
}

pub struct Campaigns {}

impl Campaigns {
    pub async fn get(&self, campaign: &CampaignId) -> Result<CampaignView, ServiceError> {
        let _ = campaign;
        unimplemented!()
    }

    /// True: created now. The same body again is a no-op (it compares with the present record), another one a Conflict.
    pub async fn put(&self, campaign: &CampaignId, new: NewCampaign) -> Result<(CampaignView, bool), ServiceError> {
        let _ = (campaign, new);
        unimplemented!()
    }

    pub async fn patch(
        &self,
        campaign: &CampaignId,
        patch: CampaignPatch,
        if_match: Option<u64>,
    ) -> Result<CampaignView, ServiceError> {
        let _ = (campaign, patch, if_match);
        unimplemented!()
    }

    /// For good; closing again is a no-op.
    pub async fn close(&self, campaign: &CampaignId, if_match: Option<u64>) -> Result<CampaignView, ServiceError> {
        let _ = (campaign, if_match);
        unimplemented!()
    }

    pub async fn list(&self, cursor: Option<&str>, limit: usize) -> Result<IdPage, ServiceError> {
        let _ = (cursor, limit);
        unimplemented!()
    }
}
