//! What this process remembers or defers: the filter of known visits, visits not yet stored, and last readings.

pub mod batch;
pub mod budget;
pub mod buffer;
pub mod cell;
pub mod cells;
pub mod coalescer;
pub mod readings;
pub mod record_memory;
pub mod store_clock;

use std::time::Duration;

/// Bounds of what is remembered and deferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalConfig {
    /// Memory for registers known to be in the store. Smaller: more visits go to the store.
    pub sketch_cache_bytes: usize,
    /// Memory for visits that the store does not have yet, and for registers acknowledged in the last minute.
    /// Full: visits get 503.
    pub buffer_bytes: usize,
    /// How long a visit that the filter does not know waits for others to the same sketch. Longer: fewer commands to
    /// the store, slower first visits.
    pub coalesce_linger: Duration,
    /// Elements in one batch; the first batch that is full goes at once.
    pub coalesce_elements_max: usize,
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            sketch_cache_bytes: 256 << 20,
            buffer_bytes: 128 << 20,
            coalesce_linger: Duration::ZERO,
            coalesce_elements_max: 512,
        }
    }
}
