//! Sold out: when it may be said, and for how long from memory.
//!
//! It is said after two surveys between which no pool's stock moved, the second one without stock or parcels. Cooling
//! units are no stock, but the memory ends before the first of them can be claimed, and at the latest an interval after
//! the second survey began; units that come back cool for two intervals. So nobody is granted a unit while any process
//! still says sold out from memory (docs/FAULTS.md A11, F9).

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::claimants;
use super::offer::Offer;
use super::survey::{Survey, survey};
use crate::runtime::tasks::Tasks;
use crate::service::error::ServiceError;

/// What the last check found.
#[derive(Clone, Debug)]
pub struct Check {
    pub verdict: Verdict,
    began: Instant,
    valid_until: Instant,
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
    last: ArcSwapOption<Check>,
    checking: Mutex<()>,
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

/// Checks whether nothing is left, one check at a time; all who ask meanwhile hear its verdict. `spacing`: a verdict so
/// young that it is "not sold out" need not be found again.
pub async fn check(offer: &Arc<Offer>, spacing: Duration) -> Verdict {
    let asked = Instant::now();
    let memory = &offer.sold_out;
    let _checking = memory.checking.lock().await;
    if let Some(last) = memory.last.load_full()
        && (last.began >= asked || last.began + spacing > asked)
        && Instant::now() < last.valid_until
    {
        return last.verdict.clone();
    }
    let began = Instant::now();
    let (verdict, valid_for) = judge(offer).await;
    let check = Check { verdict: verdict.clone(), began, valid_until: began + valid_for };
    memory.last.store(Some(Arc::new(check)));
    verdict
}

/// Checks in the background, so that late callers go on hearing the memory meanwhile.
pub fn check_behind(offer: &Arc<Offer>, tasks: &Tasks) {
    if offer.sold_out.checking.try_lock().is_err() {
        return;
    }
    let offer = offer.clone();
    tasks.spawn("check sold out", async move {
        check(&offer, Duration::ZERO).await;
    });
}

/// The verdict, and how long it holds from before the call.
async fn judge(offer: &Arc<Offer>) -> (Verdict, Duration) {
    let interval = offer.interval;
    let first = match offer.surveys.last() {
        Some(last) if last.complete().is_ok() && !last.has_stock() => last,
        _ => survey(offer, Duration::ZERO).await,
    };
    if let Err(error) = first.complete() {
        return (Verdict::Unknown(error), interval);
    }
    if first.has_stock() {
        return (Verdict::NotSoldOut, interval);
    }
    let second = survey(offer, Duration::ZERO).await;
    match second.complete() {
        Err(error) => return (Verdict::Unknown(error), interval),
        Ok(_) if second.has_stock() || !second.is_unmoved_since(&first) => return (Verdict::NotSoldOut, interval),
        Ok(_) => {}
    }
    // Whoever has a unit was granted it before now, and is found by this reading.
    if let Err(error) = claimants::catch_up(offer).await {
        return (Verdict::Unknown(error), interval);
    }
    (
        Verdict::SoldOut { may_return: may_return(&second) },
        second.until_ready().map_or(interval, |wait| wait.min(interval)),
    )
}

fn may_return(survey: &Survey) -> bool {
    survey.known().any(|pool| pool.reading.held + pool.reading.cooling > 0)
}
