//! Steps on pools, with what this process knows of each: its floor, and why it may not answer.

use std::sync::{Arc, Mutex, PoisonError};

use super::recent::{About, Recent};
use crate::domain::quota::claim::{ClaimRecord, UserKey};
use crate::domain::quota::marks::Floor;
use crate::domain::quota::step::{Answer, Step, Stepped};
use crate::domain::ring::Position;
use crate::service::error::ServiceError;
use crate::store::error::StoreError;
use crate::store::pools::{PoolAddress, Pools};

const CLAIMS_AT_ONCE: usize = 1000;

/// One pool, as this process knows it.
pub struct LocalPool {
    pub address: PoolAddress,
    /// Which shard, from 0.
    pub shard: u16,
    store: Arc<dyn Pools>,
    floor: Mutex<Floor>,
    /// What was told last; None: no ledger could ever be told of it.
    pub recent: Option<Recent>,
}

impl LocalPool {
    pub fn new(address: PoolAddress, shard: u16, store: Arc<dyn Pools>, remembers: bool) -> Self {
        Self { address, shard, store, floor: Mutex::default(), recent: remembers.then(Recent::default) }
    }

    pub fn position(&self) -> Position {
        self.address.position
    }

    /// Takes a step; what it answered is replicated. A pool that serves nobody is an error.
    pub async fn step(&self, step: Step) -> Result<Stepped, ServiceError> {
        let name = step.name();
        // Read before sending: a floor of afterwards would accuse the pool of what came in between (docs/FAULTS.md A10).
        let floor = *self.lock();
        let about = self.recent.as_ref().map(|_| About::of(&step));
        let stepped = match self.store.step(&self.address, floor, step).await {
            Ok(stepped) => stepped,
            Err(error) => {
                let outcome = if matches!(error, StoreError::Unconfirmed(_)) { "unconfirmed" } else { "failed" };
                metrics::counter!("headcount_pool_steps_total", "step" => name, "outcome" => outcome).increment(1);
                return Err(error.into());
            }
        };
        let refusal = match stepped.answer {
            Answer::Absent => Some(ServiceError::PoolLost { shard: self.shard, fenced: false }),
            Answer::Fenced => Some(ServiceError::PoolLost { shard: self.shard, fenced: true }),
            Answer::Admitting => Some(ServiceError::PoolAdmitting),
            Answer::Frozen => Some(ServiceError::PoolFrozen),
            _ => None,
        };
        let outcome = if refusal.is_some() { "refused" } else { "ok" };
        metrics::counter!("headcount_pool_steps_total", "step" => name, "outcome" => outcome).increment(1);
        match refusal {
            Some(refusal) => Err(refusal),
            None => {
                let mut floor = self.lock();
                *floor = (*floor).max(stepped.at);
                drop(floor);
                if let (Some(recent), Some(about)) = (&self.recent, about) {
                    recent.note(&about, &stepped);
                }
                Ok(stepped)
            }
        }
    }

    /// Reads all claims, in pieces. One that changes meanwhile may come twice; the last time counts.
    pub async fn each_claim(&self, mut visit: impl FnMut(UserKey, ClaimRecord) + Send) -> Result<(), ServiceError> {
        let mut cursor: Option<String> = None;
        loop {
            let page = self.store.claims(&self.address, cursor.as_deref(), CLAIMS_AT_ONCE).await?;
            page.claims.into_iter().for_each(|(user, record)| visit(user, record));
            cursor = page.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// What this process knows to be replicated.
    pub fn floor(&self) -> Floor {
        *self.lock()
    }

    pub fn store(&self) -> &Arc<dyn Pools> {
        &self.store
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Floor> {
        // A floor is replaced whole.
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store answered a step with another step's answer.
pub fn foreign(answer: &Answer) -> ServiceError {
    ServiceError::Refused(StoreError::Corrupt(format!("another step's answer: {answer:?}")))
}
