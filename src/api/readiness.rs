//! Whether this process wants traffic, and what it knows of its store.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::deployment::Health;

/// Two switches and a look at the store.
///
/// Ready means: the store was reached once since the start, and the process is not stopping. A later outage of the
/// store does not count, because all pods share it: were they all unready together, the ingress would have nobody to
/// send visits to, though every pod could buffer them (DESIGN section 8).
pub struct Readiness {
    contacted: AtomicBool,
    draining: AtomicBool,
    health: Box<dyn Fn() -> Health + Send + Sync>,
    store: String,
}

impl Readiness {
    /// `store`: where the store is, without secrets. `health`: what the last calls to it showed; must not ask it.
    pub fn new(store: String, health: impl Fn() -> Health + Send + Sync + 'static) -> Self {
        Self { contacted: AtomicBool::new(false), draining: AtomicBool::new(false), health: Box::new(health), store }
    }

    /// The store was reached: latches.
    pub fn contacted(&self) {
        self.contacted.store(true, Ordering::Relaxed);
    }

    /// The process is stopping: latches.
    pub fn draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub fn is_contacted(&self) -> bool {
        self.contacted.load(Ordering::Relaxed)
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub fn is_ready(&self) -> bool {
        self.is_contacted() && !self.is_draining()
    }

    pub fn health(&self) -> Health {
        (self.health)()
    }

    pub fn store(&self) -> &str {
        &self.store
    }
}
