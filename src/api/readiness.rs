//! Whether this process wants traffic, and what it knows of its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::deployment::{Deployment, Health};

/// Two switches and a look at the store.
///
/// Ready means: the store was reached once since the start, and the process is not stopping. A later outage of the
/// store does not count, because all pods share it: were they all unready together, the ingress would have nobody to
/// send visits to, though every pod could buffer them.
pub struct Readiness {
    contacted: AtomicBool,
    draining: AtomicBool,
    store: Arc<dyn Deployment>,
    ledger: Option<String>,
}

impl Readiness {
    /// `ledger`: where it is, without secrets; None: there is none.
    pub fn new(store: Arc<dyn Deployment>, ledger: Option<String>) -> Self {
        Self { contacted: AtomicBool::new(false), draining: AtomicBool::new(false), store, ledger }
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

    /// What the last calls to the store showed; asks nothing.
    pub fn health(&self) -> Health {
        self.store.health()
    }

    /// Where the ledger is, if there is one.
    pub fn ledger(&self) -> &str {
        self.ledger.as_deref().unwrap_or("none: news of hard campaigns stay in the store")
    }

    /// Where the store is, without secrets.
    pub fn store(&self) -> String {
        self.store.describe()
    }
}
