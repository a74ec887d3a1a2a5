//! The cells this process must not forget.
//!
//! Cells with visits that are not stored are pinned; so are cells acknowledged in the last minute,
//! for a failover may lose what it acknowledged and only this process can push it again (docs/FAULTS.md F11). When room is
//! short the acknowledged ones go first: forgetting those risks a loss, forgetting the others would be one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::budget::Budget;
use super::cell::Cell;

/// How long an acknowledged cell stays pinned: longer than any failover takes to be noticed and pushed after.
pub const ACKED_PIN: Duration = Duration::from_secs(60);

/// Pinned cells, and the room they may take.
pub struct Buffer {
    budget: Arc<Budget>,
    pins: Mutex<Vec<Arc<Cell>>>,
}

impl Buffer {
    pub fn new(limit_bytes: usize) -> Self {
        Self { budget: Arc::new(Budget::new(limit_bytes)), pins: Mutex::default() }
    }

    /// The room that the pinned cells' pending visits take.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Keeps a cell alive until `sweep` finds nothing more to keep it for.
    pub fn pin(&self, cell: &Arc<Cell>) {
        if !cell.pinned.swap(true, Ordering::AcqRel) {
            self.lock().push(cell.clone());
        }
    }

    /// The pinned cells.
    pub fn pinned(&self) -> Vec<Arc<Cell>> {
        self.lock().clone()
    }

    /// Visits taken and not stored.
    pub fn buffered_visits(&self) -> u64 {
        self.lock().iter().map(|cell| cell.buffered_visits()).sum()
    }

    /// Unpins cells with nothing pending that were acknowledged long enough ago; under pressure also younger ones,
    /// oldest first. `now_ms` is on the cell clock. Answers how many were unpinned too young.
    pub fn sweep(&self, now_ms: u64) -> usize {
        let pin_ms = ACKED_PIN.as_millis() as u64;
        let mut pins = self.lock();
        pins.retain(|cell| {
            let keep = cell.has_pending() || now_ms.saturating_sub(cell.acked_at_ms()) < pin_ms;
            if !keep {
                cell.pinned.store(false, Ordering::Release);
            }
            keep
        });
        let room = self.budget.limit_bytes().saturating_sub(self.budget.used_bytes());
        let mut acked: usize = pins.iter().map(|cell| cell.acked_bytes()).sum();
        if acked <= room {
            return 0;
        }
        pins.sort_by_key(|cell| cell.acked_at_ms());
        let before = pins.len();
        pins.retain(|cell| {
            let keep = acked <= room || cell.has_pending();
            if !keep {
                acked -= cell.acked_bytes();
                cell.pinned.store(false, Ordering::Release);
            }
            keep
        });
        before - pins.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Cell>>> {
        // A panic under this lock can only come from a failed allocation, which ends the process.
        self.pins.lock().expect("no panic while pins are locked")
    }
}
