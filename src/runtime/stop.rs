//! How the process ends.

use std::time::Duration;

/// What happens after SIGTERM, and how long it may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopConfig {
    /// `/readyz` says no and requests are still served for so long: the time in which load balancers notice. Shorter:
    /// requests hit a closed port; longer: roll-outs take longer.
    pub drain: Duration,
    /// From then on: requests under way end, the buffer is flushed, the process exits, whatever is left.
    pub deadline: Duration,
}

impl Default for StopConfig {
    fn default() -> Self {
        Self { drain: Duration::from_secs(5), deadline: Duration::from_secs(20) }
    }
}
