//! Claims on a campaign, and what is left of it. Soft admission: quota minus estimated claimants.

use jiff::Timestamp;

use super::error::{OpeningHours, ServiceError};
use crate::domain::campaign::CampaignState;
use crate::domain::id::{CampaignId, UserId};

/// The answer to a claim on a soft campaign. It has no claim id and no unit: a sketch keeps neither.
#[derive(Clone, PartialEq, Debug)]
pub enum SoftClaim {
    Granted { claimed_at: Timestamp, remaining: u64, stale: bool },
    SoldOut { stale: bool },
    NotOpen(OpeningHours),
    Paused(OpeningHours),
    Closed(OpeningHours),
}

/// What is left, with its error and age.
#[derive(Clone, PartialEq, Debug)]
pub struct Remaining {
    pub campaign: CampaignId,
    pub state: CampaignState,
    pub hours: OpeningHours,
    /// The store's clock.
    pub server_time: Timestamp,
    pub quota: u64,
    pub remaining: u64,
    pub exact: bool,
    /// Half the width of the 95 % interval of `remaining`, in places.
    pub error_95_places: u64,
    /// By how many places the quota may be overshot, from this reading on.
    pub overshoot_places: u64,
    pub as_of: Timestamp,
    pub age_ms: u64,
    pub stale: bool,
    pub partial: bool,
    pub sold_out: bool,
}

pub struct Claims {}

impl Claims {
    pub async fn claim(&self, campaign: &CampaignId, user: UserId<'_>) -> Result<SoftClaim, ServiceError> {
        let _ = (campaign, user);
        unimplemented!()
    }

    pub async fn remaining(&self, campaign: &CampaignId) -> Result<Remaining, ServiceError> {
        let _ = campaign;
        unimplemented!()
    }
}
