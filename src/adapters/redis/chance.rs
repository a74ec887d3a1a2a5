//! Chance, for pauses and for names of temporary keys. No secrets.

use std::time::Duration;

use crate::runtime::random::random_bytes;

/// Up to `most`, at random.
pub fn jitter(most: Duration) -> Duration {
    most.mul_f64(f64::from(random() as u32) / f64::from(u32::MAX))
}

/// Random bits.
pub fn random() -> u64 {
    u64::from_le_bytes(random_bytes())
}
