//! The drain's rounds: news go to the ledger, and how far it is behind is told.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::rounds::{CampaignDuty, DutyFuture, IDLE};
use crate::domain::id::CampaignId;
use crate::service::ledger::drain::{Drain, Drained};
use crate::store::documents::Phase;
use crate::store::outbox::OutboxLag;
use crate::store::pools::Duty;

/// While there are news: about how old they are when the ledger has them.
const ROUND: Duration = Duration::from_millis(100);
/// Where there were none, a campaign is looked at after twice as long each time, up to this: each look is a script and a
/// WAIT for each of its pools.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// Longer than a go and a slow transaction.
const LEASE: Duration = Duration::from_secs(5);
/// Between two tries while the ledger does not answer.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

pub struct DrainDuty {
    drain: Arc<Drain>,
    /// A lag this old is an alarm.
    alarm: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the campaigns that this process drains.
    lags: HashMap<CampaignId, OutboxLag>,
    /// Closed, and drained to the end.
    over: HashSet<CampaignId>,
    /// After how long campaigns without news are looked at next.
    quiet: HashMap<CampaignId, Duration>,
    failing: bool,
    alarmed: bool,
}

impl DrainDuty {
    pub fn new(drain: Arc<Drain>, alarm: Duration) -> Self {
        Self { drain, alarm, state: Mutex::default() }
    }

    /// `was_closed`: before it was drained. One that closed meanwhile may have said something since.
    async fn drained(&self, campaign: &CampaignId, was_closed: bool, drained: Drained) -> Duration {
        if std::mem::take(&mut self.state().failing) {
            tracing::info!("the ledger answers again");
        }
        if was_closed && drained == Drained::default() {
            {
                let mut state = self.state();
                state.over.insert(campaign.clone());
                state.quiet.remove(campaign);
            }
            self.drain.told.forget(campaign);
            self.tell(campaign, None);
            return IDLE;
        }
        if drained.left > 0 {
            // What is left has an age; the store knows it.
            self.measure(campaign).await;
            return Duration::ZERO;
        }
        self.tell(campaign, Some(OutboxLag::default()));
        self.next_look(campaign, drained.fresh > 0)
    }

    fn next_look(&self, campaign: &CampaignId, had_news: bool) -> Duration {
        let mut state = self.state();
        let wait = state.quiet.entry(campaign.clone()).or_insert(ROUND);
        *wait = if had_news { ROUND } else { (2 * *wait).min(QUIET_MAX) };
        *wait
    }

    async fn measure(&self, campaign: &CampaignId) {
        if let Ok(lag) = self.drain.lag(campaign).await {
            self.tell(campaign, Some(lag));
        }
    }

    /// None: others drain it.
    fn tell(&self, campaign: &CampaignId, lag: Option<OutboxLag>) {
        let mut state = self.state();
        match lag {
            Some(lag) => state.lags.insert(campaign.clone(), lag),
            None => state.lags.remove(campaign),
        };
        let entries: u64 = state.lags.values().map(|lag| lag.entries).sum();
        let age = Duration::from_millis(state.lags.values().map(|lag| lag.age_ms).max().unwrap_or(0));
        metrics::gauge!("headcount_ledger_lag_entries").set(entries as f64);
        metrics::gauge!("headcount_ledger_lag_seconds").set(age.as_secs_f64());
        let alarmed = age >= self.alarm;
        if alarmed && !state.alarmed {
            tracing::error!(
                entries,
                age_s = age.as_secs(),
                "the ledger is far behind; claims go on, and the store keeps their news until it answers"
            );
        } else if state.alarmed && !alarmed {
            tracing::info!(entries, "the ledger is no longer far behind");
        }
        state.alarmed = alarmed;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CampaignDuty for DrainDuty {
    fn duty(&self) -> Duty {
        Duty::Drain
    }

    fn round(&self) -> Duration {
        ROUND
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn known(&self) -> Vec<CampaignId> {
        self.drain.offers.campaigns()
    }

    fn is_wanted<'a>(&'a self, campaign: &'a CampaignId) -> DutyFuture<'a, bool> {
        Box::pin(async move {
            match self.drain.phase(campaign).await {
                None | Some(Phase::Removed) => false,
                Some(Phase::Closed) => !self.state().over.contains(campaign),
                // Also one that was closed, lost, and put back from the ledger.
                Some(_) => {
                    self.state().over.remove(campaign);
                    true
                }
            }
        })
    }

    fn tend<'a>(&'a self, campaign: &'a CampaignId) -> DutyFuture<'a, Duration> {
        Box::pin(async move {
            let was_closed = self.drain.phase(campaign).await == Some(Phase::Closed);
            match self.drain.drain(campaign).await {
                Ok(drained) => self.drained(campaign, was_closed, drained).await,
                Err(error) => {
                    metrics::counter!("headcount_ledger_failures_total").increment(1);
                    if !std::mem::replace(&mut self.state().failing, true) {
                        tracing::warn!(campaign = campaign.as_str(), %error, "news wait for the ledger");
                    }
                    self.measure(campaign).await;
                    AFTER_FAILURE
                }
            }
        })
    }

    fn left_to_others(&self, campaign: &CampaignId) {
        self.tell(campaign, None);
    }
}
