//! The store's clock as this process knows it: opening hours are judged by one clock for all processes.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

use crate::runtime::clock::Clock;

/// This process's clock, plus how far the store's was ahead when it was last heard.
pub struct StoreClock {
    clock: Clock,
    ahead_ms: AtomicI64,
}

impl StoreClock {
    pub fn new(clock: Clock) -> Self {
        Self { clock, ahead_ms: AtomicI64::new(0) }
    }

    /// The store has just said what time it is.
    pub fn heard(&self, store_ms: i64) {
        self.ahead_ms.store(store_ms.saturating_sub(self.clock.now().as_millisecond()), Ordering::Relaxed);
    }

    pub fn now(&self) -> Timestamp {
        let ms = self.clock.now().as_millisecond().saturating_add(self.ahead_ms.load(Ordering::Relaxed));
        Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
    }
}
