//! Surveys: the numbers of all pools of a campaign, read side by side.
//!
//! A survey is no snapshot, for the pools are read one after the other. But what is *taken* only grows unless something
//! is released, and transfers do not move it, so that its sum is true at some instant of the reading (docs/FAULTS.md A13).
//! And two surveys between which no pool's `sver` moved show every instant between them (A12).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::offer::Offer;
use super::pools::foreign;
use super::reading::{Survey, Surveyed};
use crate::domain::quota::step::{Answer, Step};

/// A survey that began at most `age` ago: the last one, or a new one that all who ask now share.
pub async fn survey(offer: &Arc<Offer>, age: Duration) -> Arc<Survey> {
    let asked = Instant::now();
    let young = |survey: &Arc<Survey>| survey.began + age >= asked;
    if let Some(last) = offer.surveys.last().filter(young) {
        return last;
    }
    let _under_way = offer.surveys.under_way.lock().await;
    // Whoever waited here finds what the one before has read.
    if let Some(last) = offer.surveys.last().filter(young) {
        return last;
    }
    let survey = Arc::new(take(offer, false).await);
    if survey.complete().is_ok() {
        offer.surveys.last_complete.store(Some(survey.clone()));
    }
    offer.surveys.last.store(Some(survey.clone()));
    survey
}

/// Reads all pools, with all their entries if asked.
pub async fn take(offer: &Offer, entries: bool) -> Survey {
    let (began, granted_before) = (Instant::now(), offer.granted());
    let pools = offer.pools.iter().map(async |pool| {
        let stepped = pool.step(Step::Collect { entries }).await?;
        match stepped.answer {
            Answer::Reading(reading) => {
                Ok(Surveyed { now_ms: stepped.now_us / 1000, at: stepped.at, reading: *reading })
            }
            other => Err(foreign(&other)),
        }
    });
    let pools = join_all(pools).await;
    metrics::counter!("headcount_campaign_surveys_total").increment(1);
    Survey { began, took: began.elapsed(), pools, granted_before }
}
