//! The merge read: from the sketches of a counter to one reading, by one process per interval.
//!
//! 1. Look at the published answer; a fresh one is taken as it is.
//! 2. Ask for the lease. Held by another: wait for what he publishes.
//! 3. Read the layouts, the sketches of every position of the finest, and the layouts again; repeat if they changed.
//! 4. Per range of the coarsest layout, merge by maximum and estimate; add the estimates up, unrounded.
//! 5. Compare with the union: if they differ too far, some writer puts users into several shards, and the union is
//!    served with its own error (an alarm only: it cannot see one process of fifty, docs/FAULTS.md B12).
//! 6. Publish, if the reading is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::sketches::{Ranges, read_ranges};
use crate::domain::counter::{Counter, Subject};
use crate::domain::estimate::{self, Estimate};
use crate::domain::ring::Layout;
use crate::domain::sketch::registers::Sketch;
use crate::domain::sketch::wire;
use crate::local::cells::{CellCache, CellsKey};
use crate::local::readings::{Bounds, KnownReading};
use crate::local::store_clock::StoreClock;
use crate::runtime::random::random_name;
use crate::store::counters::{AnswerKey, Counters, Lease, Published, PublishedView};
use crate::store::error::StoreError;

/// The longest lease: whoever holds it and dies keeps the others waiting so long.
const LEASE_MAX: Duration = Duration::from_secs(1);
/// How often a process that waits for another's answer looks.
const POLL: Duration = Duration::from_millis(15);
/// A process counts as admitting for so long after its last refresh: above the 2 s past which nobody admits.
const ADMITTING_WINDOW_MS: u64 = 3_000;

/// Where unions of sketches are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MergeWhere {
    /// The store for soft campaigns, this process for the checks of plain counts (docs/FAULTS.md B9).
    #[default]
    Auto,
    Store,
    Gateway,
}

/// How readings are kept fresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportConfig {
    /// A reading younger than this is served as it is. Shorter: more merges for every hot event.
    pub refresh: Duration,
    pub merge: MergeWhere,
    /// Merges this process starts in a second; under more hot events than that readings grow older, as `age_ms` says.
    pub merges_per_second: u32,
}

impl Default for ReportConfig {
    fn default() -> Self {
        Self { refresh: Duration::from_millis(200), merge: MergeWhere::Auto, merges_per_second: 200 }
    }
}

/// What is to be known: the counters whose union is asked for, all of one subject.
#[derive(Clone, Debug)]
pub struct Question {
    pub key: AnswerKey,
    pub counters: Vec<Counter>,
    /// This process's cells of the counter, where it is one: they learn from what is read.
    pub cells: Option<CellsKey>,
    /// The layout, where it cannot change: a campaign's shards are frozen when it is created.
    pub frozen: Option<Layout>,
}

/// Makes readings.
pub struct Merger {
    pub counters: Arc<dyn Counters>,
    pub cells: Arc<CellCache>,
    pub store_clock: Arc<StoreClock>,
    pub config: ReportConfig,
    /// This process's name among those that admit.
    pub pod: String,
    /// Rung when a sketch holds less than it acknowledged.
    pub push_soon: Arc<Notify>,
    started: Instant,
    next_merge_us: AtomicU64,
}

/// A published answer: what a `KnownReading` needs, in JSON.
#[derive(Serialize, Deserialize)]
struct Body {
    users: f64,
    relative_standard_error: f64,
    shards: Vec<f64>,
    merge_us: u64,
}

impl Question {
    fn is_soft(&self) -> bool {
        matches!(self.key.subject, Subject::Claimants(_))
    }
}

impl Merger {
    pub fn new(
        counters: Arc<dyn Counters>,
        cells: Arc<CellCache>,
        store_clock: Arc<StoreClock>,
        config: ReportConfig,
        (pod, push_soon): (String, Arc<Notify>),
    ) -> Self {
        let started = Instant::now();
        Self { counters, cells, store_clock, config, pod, push_soon, started, next_merge_us: AtomicU64::new(0) }
    }

    /// Until when a reading is served: age at most the interval, the lease and one merge (README, promises).
    pub fn bounds(&self, last: Option<&KnownReading>) -> Bounds {
        let merge = last.map_or(Duration::ZERO, |last| last.merge);
        let fresh = self.config.refresh;
        Bounds { fresh, wait_past: fresh + self.lease(merge) + merge }
    }

    fn lease(&self, last_merge: Duration) -> Duration {
        self.config.refresh.max(2 * last_merge).min(LEASE_MAX)
    }

    /// The next reading: adopted from another process, or merged here.
    pub async fn refresh(
        self: Arc<Self>,
        question: Arc<Question>,
        last: Option<Arc<KnownReading>>,
    ) -> Result<KnownReading, StoreError> {
        // Side by side: where the node of both is away, each takes as long as a call may.
        let attend = async { if question.is_soft() { self.attend(&question, last.as_deref()).await } else { 0 } };
        let (admitting, next) = futures_util::future::join(attend, self.next(&question, last.as_deref())).await;
        let reading = match next {
            // One shard's node is away: a soft campaign goes on with what the others say, everything else is stale.
            Err(error) if question.is_soft() && error.retry_may_help() => {
                tracing::debug!(%error, "no lease; a soft campaign is merged without one");
                let now_ms = self.store_clock.now().as_millisecond();
                self.merge(&question, now_ms, Instant::now(), last.as_deref()).await
            }
            other => other,
        };
        reading.map(|reading| KnownReading { admitting, ..reading })
    }

    async fn next(&self, question: &Question, last: Option<&KnownReading>) -> Result<KnownReading, StoreError> {
        let lease = self.lease(last.map_or(Duration::ZERO, |last| last.merge));
        let token = random_name();
        let deadline = Instant::now() + 2 * LEASE_MAX;
        loop {
            let sent = Instant::now();
            let view = self.counters.published(&question.key).await?;
            self.store_clock.heard(view.now_ms, sent.elapsed());
            if let Some(adopted) = adopt(&view, sent, lease, last) {
                return Ok(adopted);
            }
            let asked = Instant::now();
            match self.counters.lease(&question.key, &token, lease.as_millis() as u64).await? {
                Lease::Granted { now_ms } => {
                    return self.merge_and_publish(question, &token, (now_ms, asked), last).await;
                }
                Lease::Held { .. } if Instant::now() >= deadline => {
                    return Err(StoreError::Unavailable(
                        "another process holds the lease and publishes nothing".into(),
                    ));
                }
                Lease::Held { left_ms, .. } => {
                    tokio::time::sleep(POLL.min(Duration::from_millis(left_ms.max(1)))).await;
                }
            }
        }
    }

    async fn merge_and_publish(
        &self,
        question: &Question,
        token: &str,
        (now_ms, asked): (i64, Instant),
        last: Option<&KnownReading>,
    ) -> Result<KnownReading, StoreError> {
        if !question.is_soft() {
            self.wait_for_budget().await;
        }
        let merged = self.merge(question, now_ms, asked, last).await;
        match &merged {
            Ok(reading) if !reading.partial => {
                let answer = Published { as_of_ms: now_ms, body: body_of(reading) };
                if let Err(error) = self.counters.publish(&question.key, answer).await {
                    tracing::debug!(%error, "an answer could not be published");
                }
            }
            Ok(_) => {}
            Err(_) => {
                // The lease runs out by itself; giving it back only lets the next one try sooner.
                let _ = self.counters.give_back_lease(&question.key, token).await;
            }
        }
        merged
    }

    /// Reads and merges; `as_of_ms` and `asked` are one instant on the store's clock and on ours.
    async fn merge(
        &self,
        question: &Question,
        as_of_ms: i64,
        asked: Instant,
        last: Option<&KnownReading>,
    ) -> Result<KnownReading, StoreError> {
        let own = question.cells.and_then(|key| self.cells.find(&key));
        let ranges =
            read_ranges(&*self.counters, &question.counters, question.frozen, (own.as_deref(), self.cells.now_ms()))
                .await?;
        if ranges.store_is_behind {
            self.push_soon.notify_one();
        }
        // A soft campaign goes on with what the others say, where there are others: a reading made of last readings would
        // be as old as they are, and look new.
        if ranges.unreachable() && (!question.is_soft() || ranges.all_unreachable()) {
            return Err(StoreError::Unavailable("a shard is out of reach".into()));
        }
        let shards = fill_gaps(&ranges.users()?, last);
        let sum = estimate::sum(&shards);
        let served = self.check_union(question, &ranges, sum).await;
        let merge = asked.elapsed();
        metrics::counter!("headcount_merges_total").increment(1);
        metrics::histogram!("headcount_merge_seconds").record(merge.as_secs_f64());
        Ok(KnownReading {
            users: served.users,
            relative_standard_error: served.relative_standard_error,
            partial: ranges.unreachable() || ranges.corrupt > 0,
            shards,
            as_of_ms,
            taken_at: asked,
            merge,
            admitting: 0,
        })
    }

    /// The sum, unless the union says that shards overlap.
    async fn check_union(&self, question: &Question, ranges: &Ranges, sum: Estimate) -> Estimate {
        if ranges.unreachable() {
            // The union of what is left says nothing of the whole.
            return sum;
        }
        let sketches = ranges.merged();
        let users = match (self.config.merge, question.is_soft()) {
            (MergeWhere::Store, _) | (MergeWhere::Auto, true) if sketches.len() > 1 => {
                let blobs = sketches.iter().map(|sketch| Bytes::from(wire::encode(sketch))).collect();
                self.counters.union(blobs).await.map(|users| users as f64)
            }
            _ => union_here(&sketches),
        };
        match users {
            Ok(users) if estimate::disagree(&sum, users) => {
                metrics::counter!("headcount_union_disagreements_total").increment(1);
                tracing::error!(
                    subject = question.key.subject.id(),
                    sum = sum.users,
                    union = users,
                    "the sum of the shards and their union disagree: some process puts users into several shards; the union is served"
                );
                estimate::union(users)
            }
            Ok(_) => sum,
            Err(error) => {
                tracing::debug!(%error, "the union could not be computed; the sum is served unchecked");
                sum
            }
        }
    }

    /// How many processes admit; unreachable: as many as last time, at least this one.
    async fn attend(&self, question: &Question, last: Option<&KnownReading>) -> u32 {
        match self.counters.attend(&question.key, &self.pod, ADMITTING_WINDOW_MS).await {
            Ok(admitting) => admitting.max(1),
            Err(_) => last.map_or(1, |last| last.admitting.max(1)),
        }
    }

    /// Waits until the budget of merges allows another one, at most a second: the interval stretches instead of the load.
    async fn wait_for_budget(&self) {
        let step_us = 1_000_000 / u64::from(self.config.merges_per_second.max(1));
        let now_us = self.started.elapsed().as_micros() as u64;
        let slot = |next: u64| next.max(now_us.saturating_sub(1_000_000)) + step_us;
        let mine = self
            .next_merge_us
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |next| Some(slot(next)))
            .unwrap_or(now_us);
        let wait_us = mine.saturating_sub(now_us).min(1_000_000);
        if wait_us > 0 {
            tokio::time::sleep(Duration::from_micros(wait_us)).await;
        }
    }
}

fn adopt(view: &PublishedView, sent: Instant, lease: Duration, last: Option<&KnownReading>) -> Option<KnownReading> {
    let answer = view.answer.as_ref()?;
    let age = Duration::from_millis(u64::try_from(view.now_ms - answer.as_of_ms).ok()?);
    if age > lease || last.is_some_and(|last| answer.as_of_ms <= last.as_of_ms) {
        return None;
    }
    let body: Body = serde_json::from_slice(&answer.body).ok()?;
    metrics::counter!("headcount_readings_adopted_total").increment(1);
    Some(KnownReading {
        users: body.users,
        relative_standard_error: body.relative_standard_error,
        partial: false,
        shards: body.shards,
        as_of_ms: answer.as_of_ms,
        taken_at: sent.checked_sub(age).unwrap_or(sent),
        merge: Duration::from_micros(body.merge_us),
        admitting: 0,
    })
}

fn body_of(reading: &KnownReading) -> Bytes {
    let body = Body {
        users: reading.users,
        relative_standard_error: reading.relative_standard_error,
        shards: reading.shards.clone(),
        merge_us: reading.merge.as_micros() as u64,
    };
    // Numbers and lists of numbers always serialise.
    serde_json::to_vec(&body).expect("numbers serialise").into()
}

/// Users per range: where a range is out of reach, as many as the others have on average, and at least its last known.
/// Crowds spread evenly over ranges, so this is close, and it errs to the safe side: its users are turned away meanwhile.
/// (Scaling the last known by the growth of the others, as first designed, says nothing where the last reading was
/// taken when the sale had just begun: 529 were admitted of 500.)
fn fill_gaps(users: &[Option<f64>], last: Option<&KnownReading>) -> Vec<f64> {
    let known: Vec<f64> = users.iter().flatten().copied().collect();
    let mean = if known.is_empty() { 0.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
    let before = last.filter(|last| last.shards.len() == users.len());
    let fill = |i: usize| before.map_or(mean, |last| last.shards[i].max(mean));
    users.iter().enumerate().map(|(i, now)| now.unwrap_or_else(|| fill(i))).collect()
}

fn union_here(sketches: &[&Sketch]) -> Result<f64, StoreError> {
    let mut all = Sketch::new();
    for sketch in sketches {
        all.merge(sketch);
    }
    all.estimate().map_err(|_| StoreError::Corrupt("the union is saturated".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(shards: &[f64]) -> KnownReading {
        KnownReading {
            users: shards.iter().sum(),
            relative_standard_error: 0.0,
            partial: false,
            shards: shards.to_vec(),
            as_of_ms: 1_000,
            taken_at: Instant::now(),
            merge: Duration::ZERO,
            admitting: 1,
        }
    }

    #[test]
    fn a_range_out_of_reach_is_taken_for_full_as_the_others_and_never_shrinks() {
        assert_eq!(fill_gaps(&[Some(20.0), None, Some(40.0)], None), [20.0, 30.0, 40.0]);
        assert_eq!(fill_gaps(&[Some(20.0), None], Some(&reading(&[10.0, 12.0]))), [20.0, 20.0]);
        assert_eq!(fill_gaps(&[Some(20.0), None], Some(&reading(&[19.0, 25.0]))), [20.0, 25.0]);
        assert_eq!(fill_gaps(&[None], None), [0.0]);
    }

    #[test]
    fn only_a_newer_and_fresh_answer_is_adopted() {
        let answer = |as_of_ms| Published { as_of_ms, body: body_of(&reading(&[1.0])) };
        let view = |now_ms, as_of_ms| PublishedView { now_ms, answer: Some(answer(as_of_ms)) };
        let lease = Duration::from_millis(200);
        let now = Instant::now();
        let known = reading(&[1.0]);
        assert!(adopt(&view(2_000, 1_900), now, lease, None).is_some());
        assert!(adopt(&view(2_000, 1_799), now, lease, None).is_none(), "too old");
        assert!(adopt(&view(1_100, 1_000), now, lease, Some(&known)).is_none(), "not newer");
        assert!(adopt(&view(1_000, 1_001), now, lease, None).is_none(), "from the future");
    }
}
