//! Surveys as this process keeps them: the numbers of all pools of a campaign, read side by side.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::domain::quota::marks::Floor;
use crate::domain::quota::terms::PoolReading;
use crate::service::error::ServiceError;

/// One pool's part of a survey.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// The store's clock.
    pub now_ms: i64,
    pub at: Floor,
    pub reading: PoolReading,
}

/// What all pools said, by shard.
#[derive(Debug)]
pub struct Survey {
    /// Before the first pool was asked.
    pub began: Instant,
    pub took: Duration,
    pub pools: Vec<Result<Surveyed, ServiceError>>,
    /// Units this process had granted when it began.
    pub granted_before: u64,
}

impl Survey {
    /// All pools, or why one did not answer.
    pub fn complete(&self) -> Result<Vec<&Surveyed>, ServiceError> {
        self.pools.iter().map(|pool| pool.as_ref().map_err(Clone::clone)).collect()
    }

    pub fn known(&self) -> impl Iterator<Item = &Surveyed> {
        self.pools.iter().filter_map(|pool| pool.as_ref().ok())
    }

    /// Units that are somebody's; an error where a pool did not answer.
    pub fn taken(&self) -> Result<u64, ServiceError> {
        Ok(self.complete()?.iter().map(|pool| pool.reading.taken()).sum())
    }

    /// Whether a unit can be claimed, now or when a parcel arrives, as far as the pools answered.
    pub fn has_stock(&self) -> bool {
        self.known().any(|pool| pool.reading.avail > 0 || !pool.reading.out.is_empty())
    }

    /// Whether no pool's stock moved since an earlier survey: same server, same incarnation, same `sver`.
    pub fn is_unmoved_since(&self, earlier: &Survey) -> bool {
        let stamp = |pool: &Surveyed| (pool.reading.run.clone(), pool.at.incarnation, pool.reading.sver);
        match (self.complete(), earlier.complete()) {
            (Ok(now), Ok(then)) => now.iter().map(|pool| stamp(pool)).eq(then.iter().map(|pool| stamp(pool))),
            _ => false,
        }
    }

    /// The time until the first cooling unit is claimable.
    pub fn until_ready(&self) -> Option<Duration> {
        let wait = |pool: &Surveyed| Some(pool.reading.ready_ms? - pool.now_ms);
        self.known().filter_map(wait).min().map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
    }

    /// The store's clock at the survey, at the earliest.
    pub fn as_of_ms(&self) -> i64 {
        self.known().map(|pool| pool.now_ms).min().unwrap_or(0)
    }

    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }
}

/// The surveys of one campaign: the last one, and one at a time.
#[derive(Default)]
pub struct Surveys {
    pub last: ArcSwapOption<Survey>,
    /// The last one to which every pool answered: what is left when they no longer do.
    pub last_complete: ArcSwapOption<Survey>,
    pub under_way: Mutex<()>,
}

impl Surveys {
    pub fn last(&self) -> Option<Arc<Survey>> {
        self.last.load_full()
    }

    pub fn is_busy(&self) -> bool {
        self.under_way.try_lock().is_err()
    }

    pub fn last_complete(&self) -> Option<Arc<Survey>> {
        self.last_complete.load_full()
    }
}
