//! A breaker per node: after a few calls in a row without an answer a node is left alone for a moment, so that its callers fail at once
//! instead of each waiting for the time to run out.
//!
//! ```text
//!            3 failures in a row                 time is over: one call may try
//!  Closed ───────────────────────▶ Open ────────────────────────────────▶ Probing
//!    ▲                              ▲                                        │
//!    │            any success       │  failure, or the probe never reported  │
//!    └──────────────────────────────┴────────────────────────────────────────┘
//! ```
//!
//! Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// One timeout is a lost packet, two are bad luck; with three a healthy node is rarely left alone, and a dead one costs
/// at most three timeouts.
const FAILURES: u32 = 3;
/// Shorter, and a stopped node is asked so often that callers wait for it; longer, and a node that is back idles.
const OPEN_FOR: Duration = Duration::from_millis(200);

/// What a node's last calls say about the next one.
#[derive(Debug, Default)]
pub struct Breaker {
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed {
        failures: u32,
    },
    /// Nobody may call until then. Also while a probe is under way: whoever made it may have been cancelled.
    Open {
        until: Instant,
    },
}

impl Default for State {
    fn default() -> Self {
        State::Closed { failures: 0 }
    }
}

impl Breaker {
    /// Whether a call may be made. Every call that may must report back by `succeeded` or `failed`.
    pub fn admit(&mut self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } if now < until => false,
            State::Open { .. } => {
                // This one is the probe; the others wait for what it says.
                self.state = State::Open { until: now + OPEN_FOR };
                true
            }
        }
    }

    pub fn succeeded(&mut self) {
        self.state = State::default();
    }

    /// True when this failure opens the breaker.
    pub fn failed(&mut self, now: Instant) -> bool {
        match &mut self.state {
            State::Closed { failures } if *failures + 1 < FAILURES => {
                *failures += 1;
                false
            }
            State::Closed { .. } => {
                self.state = State::Open { until: now + OPEN_FOR };
                true
            }
            // Late reports of calls from before it opened, or the probe's: neither gives anybody a new chance.
            State::Open { .. } => false,
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_open_it_and_one_probe_closes_it() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        assert!(!breaker.failed(start) && !breaker.failed(start));
        breaker.succeeded();
        assert!(!breaker.failed(start) && !breaker.failed(start));
        assert!(breaker.admit(start) && !breaker.is_open());
        assert!(breaker.failed(start), "the third opens it");
        assert!(!breaker.admit(start + OPEN_FOR / 2));

        let later = start + OPEN_FOR;
        assert!(breaker.admit(later), "one probe");
        assert!(!breaker.admit(later), "one only");
        assert!(!breaker.failed(later), "it was open already");
        assert!(!breaker.admit(later));

        assert!(breaker.admit(later + OPEN_FOR), "a probe that never reported is not waited for");
        breaker.succeeded();
        assert!(breaker.admit(later + OPEN_FOR) && !breaker.is_open());
    }
}
