//! The bound on what this process holds for the store.
//!
//! Room is reserved for a whole request before its first write, so that a request is taken whole or refused whole
//! (docs/FAULTS.md P14).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Room in bytes, taken and given back.
pub struct Budget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

/// Room set aside for one request; given back when dropped.
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, used_bytes: AtomicUsize::new(0) }
    }

    /// Sets room aside; None if that would pass the limit.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        self.used_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes)
            })
            .ok()?;
        Some(Reservation { budget: self.clone(), bytes })
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
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_never_pass_the_limit_and_are_given_back() {
        let budget = Arc::new(Budget::new(100));
        let first = budget.reserve(60).unwrap();
        assert!(budget.reserve(41).is_none());
        let second = budget.reserve(40).unwrap();
        drop(first);
        budget.charge(50);
        assert!(budget.reserve(11).is_none());
        drop(second);
        budget.release(50);
        assert_eq!(budget.used_bytes(), 0);
    }
}
