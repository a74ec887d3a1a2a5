//! The bound on what this process holds for the store, and the cells it must not forget.
//!
//! Room is reserved for a whole request before its first write, so that a request is taken whole or refused whole
//! (open-points 14). Cells with visits that are not stored are pinned; so are cells acknowledged in the last minute,
//! for a failover may lose what it acknowledged and only this process can push it again (red-team F11). When room is
//! short the acknowledged ones go first: forgetting those risks a loss, forgetting the others would be one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::cell::Cell;

/// How long an acknowledged cell stays pinned: longer than any failover takes to be noticed and pushed after.
pub const ACKED_PIN: Duration = Duration::from_secs(60);

/// Room for visits that the store does not have.
pub struct Buffer {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    pins: Mutex<Vec<Arc<Cell>>>,
}

/// Room set aside for one request; given back when dropped.
pub struct Reservation {
    buffer: Arc<Buffer>,
    bytes: usize,
}

impl Buffer {
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, used_bytes: AtomicUsize::new(0), pins: Mutex::default() }
    }

    /// Sets room aside; None if that would pass the limit.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        self.used_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes)
            })
            .ok()?;
        Some(Reservation { buffer: self.clone(), bytes })
    }

    /// Takes room for what a cell has grown by; the reservation under which it grew has left room for it.
    pub fn charge(&self, bytes: usize) {
        self.used_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Gives back what a push has emptied.
    pub fn release(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Acquire)
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
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
        let room = self.limit_bytes.saturating_sub(self.used_bytes());
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

impl Drop for Reservation {
    fn drop(&mut self) {
        self.buffer.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_never_pass_the_limit_and_are_given_back() {
        let buffer = Arc::new(Buffer::new(100));
        let first = buffer.reserve(60).unwrap();
        assert!(buffer.reserve(41).is_none());
        let second = buffer.reserve(40).unwrap();
        drop(first);
        buffer.charge(50);
        assert!(buffer.reserve(11).is_none());
        drop(second);
        buffer.release(50);
        assert_eq!(buffer.used_bytes(), 0);
    }
}
