//! Chance, for pauses and for names of temporary keys. No secrets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Up to `most`, at random.
pub fn jitter(most: Duration) -> Duration {
    most.mul_f64(f64::from(random() as u32) / f64::from(u32::MAX))
}

/// Random bits. The system always has some to give once it is up; a count is as good for what this is used for.
pub fn random() -> u64 {
    static FALLBACK: AtomicU64 = AtomicU64::new(0);
    getrandom::u64().unwrap_or_else(|_| FALLBACK.fetch_add(1, Ordering::Relaxed))
}
