//! What this process remembers of a campaign's being sold out.

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::service::error::ServiceError;

/// What the last check found.
#[derive(Clone, Debug)]
pub struct Check {
    pub verdict: Verdict,
    pub began: Instant,
    pub valid_until: Instant,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing is left. `may_return`: units are held or cooling.
    SoldOut { may_return: bool },
    /// Stock, or a parcel, or something moved.
    NotSoldOut,
    /// Some pool did not answer, so that nobody can know.
    Unknown(ServiceError),
}

/// The last check of a campaign.
#[derive(Default)]
pub struct SoldOutMemory {
    pub last: ArcSwapOption<Check>,
    pub checking: Mutex<()>,
}

impl SoldOutMemory {
    /// What may be said now without asking; and whether it should be checked again soon.
    pub fn recall(&self) -> Option<(Verdict, bool)> {
        let check = self.last.load();
        let check = check.as_ref()?;
        let now = Instant::now();
        let lifetime = check.valid_until.saturating_duration_since(check.began);
        (now < check.valid_until).then(|| (check.verdict.clone(), now > check.began + lifetime / 2))
    }

    /// True where the last check, however old, found nothing left.
    pub fn was_sold_out(&self) -> bool {
        self.last.load().as_ref().is_some_and(|check| matches!(check.verdict, Verdict::SoldOut { .. }))
    }
}
