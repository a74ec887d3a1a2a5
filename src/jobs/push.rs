//! Anti-entropy: what this process knows and the store lacks is pushed again.

use std::time::Duration;

/// When and how fast registers are pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushConfig {
    /// Time between rounds where nothing has happened.
    pub interval: Duration,
    /// Sketches compared in a second. Higher: sooner whole after a failover, more load on the node that has just
    /// taken over.
    pub sketches_per_second: u32,
}

impl Default for PushConfig {
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), sketches_per_second: 1_000 }
    }
}
