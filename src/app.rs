//! The only file that knows all parts.

use std::time::Duration;

/// How the process ends after SIGTERM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopConfig {
    /// `/readyz` says no and requests are still served for so long: the time in which load balancers notice.
    pub drain: Duration,
    /// From then on: requests under way end, the buffer is flushed, the process exits, whatever is left.
    pub deadline: Duration,
}

impl Default for StopConfig {
    fn default() -> Self {
        Self { drain: Duration::from_secs(5), deadline: Duration::from_secs(20) }
    }
}
