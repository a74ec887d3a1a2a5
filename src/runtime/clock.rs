//! The wall clock, passed as a plain value: real in production, settable in tests.
//!
//! For elapsed time use tokio's `Instant`, which tests can pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

/// Tells the time of day.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Real,
    Settable(Arc<AtomicI64>),
}

impl Clock {
    pub fn real() -> Self {
        Self(Source::Real)
    }

    /// A clock that stands still until it is advanced.
    pub fn settable(start: Timestamp) -> Self {
        Self(Source::Settable(Arc::new(AtomicI64::new(start.as_millisecond()))))
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            #[allow(clippy::disallowed_methods, reason = "the one place that reads the clock")]
            Source::Real => Timestamp::now(),
            // Only values that came from a Timestamp, or moved on from one by `advance`, are stored.
            Source::Settable(ms) => Timestamp::from_millisecond(ms.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX),
        }
    }

    /// Moves a settable clock on; does nothing to the real one.
    pub fn advance(&self, by: Duration) {
        if let Source::Settable(ms) = &self.0 {
            ms.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
        }
    }
}
