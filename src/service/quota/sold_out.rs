//! Sold out: when it may be said, and for how long from memory.
//!
//! It is said after two surveys between which no pool's stock moved, the second one without stock or parcels. Cooling
//! units are no stock, but the memory ends before the first of them can be claimed, and at the latest an interval after
//! the second survey began; units that come back cool for two intervals. So nobody is granted a unit while any process
//! still says sold out from memory (docs/FAULTS.md A11, F9).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::memory::{Check, Verdict};
use super::offer::Offer;
use super::reading::Survey;
use super::survey::survey;
use crate::runtime::tasks::Tasks;
use crate::service::error::ServiceError;

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
    if let Err(error) = catch_up(offer).await {
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

/// Reads who has been granted a unit since the last time. On return everybody is in who was granted one before the call.
async fn catch_up(offer: &Offer) -> Result<(), ServiceError> {
    let parts = offer.pools.iter().zip(&offer.claimants.pools).map(async |(pool, part)| {
        let since = part.mark();
        part.take_in(pool.store().claimants(&pool.address, since.as_ref()).await?);
        Ok::<(), ServiceError>(())
    });
    try_join_all(parts).await.map(|_| ())
}
