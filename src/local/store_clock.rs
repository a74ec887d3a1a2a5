//! The store's clock as this process knows it: opening hours are judged by one clock for all processes.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

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

    /// The store said what time it was, in answer to a question asked so long ago: about the middle of it.
    pub fn heard(&self, store_ms: i64, asked_ago: Duration) {
        let now_there = store_ms.saturating_add((asked_ago / 2).as_millis() as i64);
        self.ahead_ms.store(now_there.saturating_sub(self.clock.now().as_millisecond()), Ordering::Relaxed);
    }

    pub fn now(&self) -> Timestamp {
        let ms = self.clock.now().as_millisecond().saturating_add(self.ahead_ms.load(Ordering::Relaxed));
        Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_the_store_would_say() {
        let clock = Clock::settable("2026-01-01T00:00:10Z".parse().unwrap());
        let store = StoreClock::new(clock.clone());
        let ahead = "2026-01-01T00:00:12Z".parse::<Timestamp>().unwrap();
        store.heard(ahead.as_millisecond(), Duration::from_millis(100));
        clock.advance(Duration::from_secs(1));
        assert_eq!(store.now().to_string(), "2026-01-01T00:00:13.05Z");
    }
}
