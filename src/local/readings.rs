//! Last readings: what was last known of every count, with one refresh at a time.
//!
//! A reading is served while it is within its bound, refreshed in the background once it is no longer fresh, waited for
//! past the bound, and served as stale where the refresh fails. Readings have no time to live: in an outage the last one
//! is all there is (docs/FAULTS.md B11). The refresh is a task of its own, so that a caller who hangs up neither stops it nor
//! blocks those who wait (a moka loader that is not polled does; docs/decisions/0004).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use moka::sync::Cache;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::runtime::tasks::Tasks;
use crate::store::counters::AnswerKey;
use crate::store::error::StoreError;

/// Answers remembered. Each costs about a kilobyte; beyond it the least used are forgotten.
const READINGS_MAX: u64 = 50_000;
/// After a failed refresh the next one starts no sooner, and nobody waits for it.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// An estimate of users, when it was true, and what the next refresh wants to know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownReading {
    pub users: f64,
    pub relative_standard_error: f64,
    pub partial: bool,
    /// Users in each range of the coarsest layout, estimated where a range was out of reach.
    pub shards: Vec<f64>,
    /// The store's clock, in milliseconds since 1970.
    pub as_of_ms: i64,
    /// The same instant on this process's monotonic clock, at the latest.
    pub taken_at: Instant,
    /// How long the merge took: it sets the next lease.
    pub merge: Duration,
    /// Processes that admit on this subject, this one included; 0 where nobody asked.
    pub admitting: u32,
}

impl KnownReading {
    pub fn age(&self) -> Duration {
        self.taken_at.elapsed()
    }
}

/// A reading as served.
#[derive(Clone, Debug)]
pub struct Served {
    pub reading: Arc<KnownReading>,
    /// Past its bound, because the store did not answer.
    pub stale: bool,
}

type Outcome = Option<Result<(), StoreError>>;

/// The last reading of one question.
pub struct Slot {
    latest: ArcSwapOption<KnownReading>,
    flight: Mutex<Flight>,
}

#[derive(Default)]
struct Flight {
    under_way: Option<watch::Receiver<Outcome>>,
    failed_at: Option<Instant>,
}

/// Until when a reading is used, and how.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Younger: served without a thought.
    pub fresh: Duration,
    /// Younger: served, and refreshed behind. Older: waited for.
    pub wait_past: Duration,
}

/// All last readings.
pub struct Readings {
    slots: Cache<AnswerKey, Arc<Slot>>,
    tasks: Tasks,
}

impl Readings {
    pub fn new(tasks: Tasks) -> Self {
        Self { slots: Cache::builder().max_capacity(READINGS_MAX).build(), tasks }
    }

    pub fn slot(&self, key: &AnswerKey) -> Arc<Slot> {
        if let Some(slot) = self.slots.get(key) {
            return slot;
        }
        let empty = || Arc::new(Slot { latest: ArcSwapOption::empty(), flight: Mutex::default() });
        self.slots.get_with(key.clone(), empty)
    }

    /// The reading of a question; `load` makes the next one from the last. An error only where none was ever known.
    pub async fn read<F, L>(&self, slot: &Arc<Slot>, bounds: Bounds, load: L) -> Result<Served, StoreError>
    where
        L: FnOnce(Option<Arc<KnownReading>>) -> F,
        F: Future<Output = Result<KnownReading, StoreError>> + Send + 'static,
    {
        let known = slot.latest.load_full();
        if let Some(reading) = &known {
            let age = reading.age();
            if age <= bounds.fresh {
                return Ok(Served { reading: reading.clone(), stale: false });
            }
            if age <= bounds.wait_past || slot.failed_lately() {
                let stale = age > bounds.wait_past;
                if !slot.failed_lately() {
                    self.start(slot, load);
                }
                return Ok(Served { reading: reading.clone(), stale });
            }
        }
        let outcome = self.join(slot, load).await;
        match (slot.latest.load_full(), outcome) {
            (Some(reading), Ok(())) => Ok(Served { reading, stale: false }),
            (Some(reading), Err(_)) => Ok(Served { stale: reading.age() > bounds.wait_past, reading }),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => Err(StoreError::Unavailable("the refresh left no reading".into())),
        }
    }

    /// Waits for a new reading, whatever the age of the one that is known.
    pub async fn join<F, L>(&self, slot: &Arc<Slot>, load: L) -> Result<(), StoreError>
    where
        L: FnOnce(Option<Arc<KnownReading>>) -> F,
        F: Future<Output = Result<KnownReading, StoreError>> + Send + 'static,
    {
        let mut done = self.start(slot, load);
        let dropped = || StoreError::Unavailable("the refresh was dropped".into());
        match done.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(dropped())),
            Err(_) => Err(dropped()),
        }
    }

    fn start<F, L>(&self, slot: &Arc<Slot>, load: L) -> watch::Receiver<Outcome>
    where
        L: FnOnce(Option<Arc<KnownReading>>) -> F,
        F: Future<Output = Result<KnownReading, StoreError>> + Send + 'static,
    {
        let mut flight = slot.lock_flight();
        if let Some(under_way) = &flight.under_way
            && under_way.borrow().is_none()
            && under_way.has_changed().is_ok()
        {
            return under_way.clone();
        }
        let (sender, receiver) = watch::channel(None);
        flight.under_way = Some(receiver.clone());
        drop(flight);
        let (slot, loading) = (slot.clone(), load(slot.latest.load_full()));
        self.tasks.spawn("refresh a reading", async move {
            let outcome = match loading.await {
                Ok(reading) => {
                    slot.latest.store(Some(Arc::new(reading)));
                    slot.lock_flight().failed_at = None;
                    Ok(())
                }
                Err(error) => {
                    slot.lock_flight().failed_at = Some(Instant::now());
                    Err(error)
                }
            };
            sender.send_replace(Some(outcome));
        });
        receiver
    }
}

impl Slot {
    /// The last reading, whatever its age.
    pub fn latest(&self) -> Option<Arc<KnownReading>> {
        self.latest.load_full()
    }

    fn failed_lately(&self) -> bool {
        self.lock_flight().failed_at.is_some_and(|at| at.elapsed() < RETRY_AFTER)
    }

    fn lock_flight(&self) -> std::sync::MutexGuard<'_, Flight> {
        // Nothing under this lock can panic.
        self.flight.lock().expect("nothing panics while the flight is locked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::counter::Subject;
    use crate::domain::id::EventId;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const BOUNDS: Bounds = Bounds { fresh: Duration::from_millis(200), wait_past: Duration::from_millis(400) };

    fn key() -> AnswerKey {
        AnswerKey { subject: Subject::Event(EventId::new("e").unwrap()), generation: 0, question: "all".into() }
    }

    fn reading(users: f64) -> KnownReading {
        KnownReading {
            users,
            relative_standard_error: 0.0,
            partial: false,
            shards: vec![],
            as_of_ms: 0,
            taken_at: Instant::now(),
            merge: Duration::ZERO,
            admitting: 0,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_readers_make_one_refresh() {
        let readings = Arc::new(Readings::new(Tasks::new()));
        let slot = readings.slot(&key());
        let loads = Arc::new(AtomicUsize::new(0));
        let readers = (0..1000).map(|_| {
            let (readings, slot, loads) = (readings.clone(), slot.clone(), loads.clone());
            async move {
                let load = |_| async move {
                    loads.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    Ok(reading(7.0))
                };
                readings.read(&slot, BOUNDS, load).await.unwrap().reading.users
            }
        });
        let answers = futures_util::future::join_all(readers).await;
        assert!(answers.iter().all(|users| *users == 7.0));
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn between_fresh_and_bound_nobody_waits_and_past_it_everybody_does() {
        let readings = Readings::new(Tasks::new());
        let slot = readings.slot(&key());
        readings.read(&slot, BOUNDS, |_| async { Ok(reading(1.0)) }).await.unwrap();
        tokio::time::advance(Duration::from_millis(300)).await;
        let slow = |_| async {
            tokio::time::sleep(Duration::from_millis(250)).await;
            Ok(reading(2.0))
        };
        let served = readings.read(&slot, BOUNDS, slow).await.unwrap();
        assert_eq!((served.reading.users, served.stale), (1.0, false));
        tokio::time::advance(Duration::from_millis(150)).await;
        let served = readings.read(&slot, BOUNDS, |_| async { Ok(reading(3.0)) }).await.unwrap();
        assert_eq!((served.reading.users, served.stale), (2.0, false), "joined the refresh under way");
    }

    #[tokio::test(start_paused = true)]
    async fn in_an_outage_the_last_reading_is_served_as_stale_and_none_is_an_error() {
        let readings = Readings::new(Tasks::new());
        let slot = readings.slot(&key());
        let down = |_| async { Err(StoreError::Unavailable("down".into())) };
        assert!(readings.read(&slot, BOUNDS, down).await.is_err(), "never 0");
        readings.join(&slot, |_| async { Ok(reading(5.0)) }).await.unwrap();
        tokio::time::advance(Duration::from_secs(3600)).await;
        let served = readings.read(&slot, BOUNDS, down).await.unwrap();
        assert_eq!((served.reading.users, served.stale), (5.0, true));
    }
}
