//! Records of events and campaigns as this process knows them, never older than a second while the store answers.
//!
//! Visits must not read a record each, and a reset or a patch must be seen by every process within a known time
//! (docs/FAULTS.md P3): a record younger than half a second is used as it is, a younger one than a second is used while it
//! is read again, an older one is waited for. While the store does not answer, the last one known is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use moka::sync::Cache;
use tokio::time::Instant;

use crate::runtime::tasks::Tasks;
use crate::store::documents::Document;
use crate::store::error::StoreError;
use crate::store::records::{Record, Records};

/// No process acts on a record that is older, unless the store does not answer.
pub const AGE_MAX: Duration = Duration::from_secs(1);
/// From here on a record is read again in the background: half of the above leaves time for the reading.
const AGE_REFRESH: Duration = Duration::from_millis(500);
/// Names remembered. Each costs about 300 bytes; a forgotten one costs a read.
const NAMES_MAX: u64 = 200_000;

/// A record as last read.
#[derive(Clone, Debug)]
pub struct Known<D> {
    /// None: the store has no record of this name.
    pub document: Option<D>,
    /// 0 where there is none.
    pub version: u64,
    /// False: the store never answered, and `document` is None for lack of knowledge.
    pub confirmed: bool,
    checked_at: Instant,
}

/// One name's record.
pub struct Slot<D> {
    /// A number that stands for the name in keys of other caches.
    pub serial: u64,
    latest: ArcSwapOption<Known<D>>,
    reading: Arc<tokio::sync::Mutex<()>>,
}

/// The records of one kind.
pub struct RecordMemory<D: Document> {
    records: Arc<dyn Records>,
    slots: Cache<String, Arc<Slot<D>>>,
    serials: AtomicU64,
    tasks: Tasks,
}

impl<D: Document> RecordMemory<D> {
    /// `first_serial`: two memories whose serial numbers name cells in one cache start far apart.
    pub fn new(records: Arc<dyn Records>, first_serial: u64, tasks: Tasks) -> Self {
        let slots = Cache::builder().max_capacity(NAMES_MAX).build();
        Self { records, slots, serials: AtomicU64::new(first_serial), tasks }
    }

    pub fn slot(&self, id: &str) -> Arc<Slot<D>> {
        if let Some(slot) = self.slots.get(id) {
            return slot;
        }
        self.slots.get_with(id.to_owned(), || {
            Arc::new(Slot {
                serial: self.serials.fetch_add(1, Ordering::Relaxed),
                latest: ArcSwapOption::empty(),
                reading: Arc::default(),
            })
        })
    }

    /// The record, at most `AGE_MAX` old, or the last known where the store does not answer. An error only where
    /// nothing was ever known: callers decide whether they can do without.
    pub async fn get(self: &Arc<Self>, id: &str, slot: &Arc<Slot<D>>) -> Result<Arc<Known<D>>, StoreError> {
        let known = slot.latest.load_full();
        if let Some(known) = known {
            let age = known.checked_at.elapsed();
            if age < AGE_MAX {
                if age > AGE_REFRESH {
                    self.refresh_behind(id, slot);
                }
                return usable(known);
            }
        }
        let _reading = slot.reading.lock().await;
        // Whoever waited here finds what the one before has read.
        match slot.latest.load_full() {
            Some(known) if known.checked_at.elapsed() < AGE_MAX => usable(known),
            _ => usable(self.read(id, slot).await),
        }
    }

    /// Puts in what this process has just written or read, so that it sees its own change at once.
    pub fn put(&self, slot: &Slot<D>, document: D, version: u64) {
        if slot.latest.load().as_ref().is_some_and(|known| known.version > version) {
            return;
        }
        let known = Known { document: Some(document), version, confirmed: true, checked_at: Instant::now() };
        slot.latest.store(Some(Arc::new(known)));
    }

    fn refresh_behind(self: &Arc<Self>, id: &str, slot: &Arc<Slot<D>>) {
        let Ok(reading) = slot.reading.clone().try_lock_owned() else { return };
        let (memory, id, slot) = (self.clone(), id.to_owned(), slot.clone());
        self.tasks.spawn("read a record again", async move {
            memory.read(&id, &slot).await;
            drop(reading);
        });
    }

    async fn read(&self, id: &str, slot: &Slot<D>) -> Arc<Known<D>> {
        let checked_at = Instant::now();
        let fresh = match self.records.get(D::KIND, id).await.and_then(decode) {
            Ok((document, version)) => Known { document, version, confirmed: true, checked_at },
            Err(error) => {
                tracing::debug!(%error, "a record could not be read; the last one known is used");
                let last = slot.latest.load_full();
                match last {
                    Some(last) => Known { checked_at, ..(*last).clone() },
                    None => Known { document: None, version: 0, confirmed: false, checked_at },
                }
            }
        };
        let fresh = Arc::new(fresh);
        // A write of this process may have come between; versions tell which is newer.
        let newer_stands =
            slot.latest.load().as_ref().is_some_and(|now| now.version > fresh.version && fresh.version > 0);
        if !newer_stands {
            slot.latest.store(Some(fresh.clone()));
        }
        fresh
    }
}

fn usable<D>(known: Arc<Known<D>>) -> Result<Arc<Known<D>>, StoreError> {
    if known.confirmed { Ok(known) } else { Err(StoreError::Unavailable("the record was never read".into())) }
}

fn decode<D: Document>(record: Option<Record>) -> Result<(Option<D>, u64), StoreError> {
    match record {
        None => Ok((None, 0)),
        Some(record) => D::decode(&record).map(|document| (Some(document), record.version)),
    }
}
