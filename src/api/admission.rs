//! How many requests are served at a time. Beyond that a caller is told to come back, at once and cheaply: a queue
//! would only make everybody's answer too late to be of use.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::{Counter, Gauge, counter, gauge};

/// Counts requests under way on one listener.
pub struct Admission {
    under_way: AtomicUsize,
    under_way_max: usize,
    shed: Counter,
    gauge: Gauge,
}

impl Admission {
    pub fn new(listener: &'static str, under_way_max: usize) -> Arc<Self> {
        Arc::new(Self {
            under_way: AtomicUsize::new(0),
            under_way_max,
            shed: counter!("headcount_http_shed_total", "listener" => listener),
            gauge: gauge!("headcount_http_requests_under_way", "listener" => listener),
        })
    }

    /// A place, given back when dropped (also when the client goes away); None when all are taken.
    pub fn enter(self: &Arc<Self>) -> Option<Place> {
        if self.under_way.fetch_add(1, Ordering::Relaxed) >= self.under_way_max {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            self.shed.increment(1);
            return None;
        }
        Some(Place(Arc::clone(self)))
    }

    /// Writes the gauge; called now and then rather than with every request.
    pub fn publish(&self) {
        self.gauge.set(self.under_way.load(Ordering::Relaxed) as f64);
    }
}

/// One request under way.
pub struct Place(Arc<Admission>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_house_sheds_and_a_place_comes_back() {
        let admission = Admission::new("test", 2);
        let (first, second) = (admission.enter(), admission.enter());
        assert!(first.is_some() && second.is_some());
        assert!(admission.enter().is_none());
        drop(first);
        assert!(admission.enter().is_some());
    }
}
