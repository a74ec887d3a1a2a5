//! How many replicas of a primary must have a step before it is told.
//!
//! All that can be promoted: Redis may promote any of them. Where some have acknowledged for three seconds and others
//! have not, the number falls to those that do, at least one, and rises again when all have acknowledged for a second
//! (docs/FAULTS.md F17). Three seconds are longer than the gossip of replication offsets takes, and the replica with the
//! best offset is elected first. It never falls by the state of links, and never to nothing (docs/FAULTS.md A4).
//!
//! ```text
//!             some, not all, for 3 s
//!   Whole ─────────────────────────────▶ Fallen (asks now and then for all)
//!     ▲                                     │
//!     └─────────────────────────────────────┘
//!          all for 1 s, or fewer listed
//! ```
//!
//! A replica that comes newly into the list is not waited for at once: it may still be loading. The number rises to it
//! as from a fall.
//!
//! Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::pools::Safety;

const FALL_AFTER: Duration = Duration::from_secs(3);
const RISE_AFTER: Duration = Duration::from_secs(1);
/// Between two questions whether all acknowledge again.
const PROBE_EVERY: Duration = Duration::from_millis(200);

/// What the operator wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClaimReplicas {
    /// All that can be promoted, with the fall.
    Auto,
    /// All that can be promoted, whatever that costs.
    All,
    /// So many, however many there are.
    Count(u32),
}

/// One primary's replicas.
#[derive(Debug)]
pub struct Replicas {
    wanted: ClaimReplicas,
    listed: u32,
    needed: u32,
    /// Since when some, but not all that are needed, acknowledge; and the fewest that did.
    short: Option<(Instant, u32)>,
    /// While fallen: since when all acknowledge.
    whole: Option<Instant>,
    probed: Option<Instant>,
}

/// What an acknowledgement changed, for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Fell { to: u32, of: u32 },
    Rose { to: u32 },
}

impl Replicas {
    pub fn new(wanted: ClaimReplicas, listed: u32) -> Self {
        let mut replicas = Self { wanted, listed, needed: 0, short: None, whole: None, probed: None };
        replicas.needed = replicas.full();
        replicas
    }

    /// How many must acknowledge.
    pub fn needed(&self) -> u32 {
        self.needed
    }

    pub fn listed(&self) -> u32 {
        self.listed
    }

    /// So many are listed now.
    pub fn follow(&mut self, listed: u32) {
        if listed != self.listed {
            let grew = listed > self.listed;
            (self.listed, self.short, self.whole) = (listed, None, None);
            self.needed = match self.wanted {
                ClaimReplicas::Auto if grew => self.needed.max(1),
                ClaimReplicas::Auto => self.needed.min(listed),
                _ => self.full(),
            };
        }
    }

    /// So many have acknowledged a write, of `asked` that were waited for. With `asked` below all, the others were not
    /// given the time.
    pub fn heard(&mut self, now: Instant, asked: u32, count: u32) -> Option<Change> {
        if self.wanted != ClaimReplicas::Auto {
            return None;
        }
        if self.needed < self.listed && (asked >= self.listed || count >= self.listed) {
            return self.heard_of_all(now, count);
        }
        if asked != self.needed {
            return None;
        }
        if count >= self.needed || count == 0 {
            self.short = None;
            return None;
        }
        let (since, fewest) = self.short.map_or((now, count), |(since, fewest)| (since, fewest.min(count)));
        self.short = Some((since, fewest));
        if now - since < FALL_AFTER {
            return None;
        }
        (self.needed, self.short, self.whole) = (fewest, None, None);
        Some(Change::Fell { to: fewest, of: self.listed })
    }

    fn heard_of_all(&mut self, now: Instant, count: u32) -> Option<Change> {
        if count < self.listed {
            self.whole = None;
            return None;
        }
        let since = *self.whole.get_or_insert(now);
        if now - since < RISE_AFTER {
            return None;
        }
        (self.needed, self.short, self.whole) = (self.listed, None, None);
        Some(Change::Rose { to: self.listed })
    }

    /// While fallen, now and then: how many to ask for, to see whether all acknowledge again.
    pub fn probe(&mut self, now: Instant) -> Option<u32> {
        let is_due = self.probed.is_none_or(|last| now - last >= PROBE_EVERY);
        if self.wanted != ClaimReplicas::Auto || self.needed >= self.listed || !is_due {
            return None;
        }
        self.probed = Some(now);
        Some(self.listed)
    }

    pub fn is_degraded(&self) -> bool {
        self.needed < self.listed
    }

    pub fn safety(&self) -> Safety {
        if self.needed == 0 {
            Safety::Single
        } else if self.is_degraded() {
            Safety::Degraded { replicas: self.needed, of: self.listed }
        } else {
            Safety::Safe { replicas: self.needed }
        }
    }

    fn full(&self) -> u32 {
        match self.wanted {
            ClaimReplicas::Auto | ClaimReplicas::All => self.listed,
            ClaimReplicas::Count(count) => count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(replicas: &mut Replicas, listed: u32) -> u32 {
        replicas.follow(listed);
        replicas.needed()
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn the_number_falls_after_three_seconds_and_rises_after_one() {
        let start = Instant::now();
        let mut replicas = Replicas::new(ClaimReplicas::Auto, 2);
        assert_eq!((needed(&mut replicas, 2), replicas.safety()), (2, Safety::Safe { replicas: 2 }));
        assert_eq!(replicas.heard(start, 2, 1), None);
        assert_eq!(replicas.heard(start + seconds(2.9), 2, 1), None);
        assert_eq!(replicas.probe(start), None, "nothing to ask while it has not fallen");
        assert_eq!(replicas.heard(start + seconds(3.0), 2, 1), Some(Change::Fell { to: 1, of: 2 }));
        assert_eq!((needed(&mut replicas, 2), replicas.safety()), (1, Safety::Degraded { replicas: 1, of: 2 }));

        let fallen = start + seconds(4.0);
        assert_eq!(replicas.probe(fallen), Some(2));
        assert_eq!(replicas.probe(fallen + seconds(0.1)), None, "now and then only");
        assert_eq!(replicas.heard(fallen, 1, 1), None, "a step's own WAIT says nothing of the other one");
        assert_eq!(replicas.heard(fallen, 2, 2), None);
        assert_eq!(replicas.heard(fallen + seconds(0.9), 2, 1), None, "not yet, after all");
        assert_eq!(replicas.heard(fallen + seconds(1.1), 2, 2), None);
        assert_eq!(replicas.heard(fallen + seconds(2.1), 2, 2), Some(Change::Rose { to: 2 }));
        assert_eq!(replicas.safety(), Safety::Safe { replicas: 2 });
    }

    #[test]
    fn it_neither_falls_to_nothing_nor_by_pieces() {
        let start = Instant::now();
        let mut replicas = Replicas::new(ClaimReplicas::Auto, 2);
        for second in 0..20 {
            assert_eq!(replicas.heard(start + seconds(second.into()), 2, 0), None, "nobody is not some");
        }
        assert_eq!(replicas.heard(start + seconds(20.0), 2, 1), None);
        assert_eq!(replicas.heard(start + seconds(21.0), 2, 2), None);
        assert_eq!(replicas.heard(start + seconds(23.5), 2, 1), None, "all had acknowledged in between");
        assert_eq!(needed(&mut replicas, 2), 2);
        let mut three = Replicas::new(ClaimReplicas::Auto, 3);
        assert_eq!(three.heard(start, 3, 1), None);
        assert_eq!(three.heard(start + seconds(3.0), 3, 2), Some(Change::Fell { to: 1, of: 3 }), "the fewest");
    }

    #[test]
    fn the_list_is_followed_down_at_once_and_up_slowly() {
        let start = Instant::now();
        let mut replicas = Replicas::new(ClaimReplicas::Auto, 2);
        assert_eq!(needed(&mut replicas, 1), 1, "one is failed, by a majority");
        assert_eq!(replicas.safety(), Safety::Safe { replicas: 1 });
        assert_eq!(needed(&mut replicas, 2), 1, "it is back, and may be loading");
        assert_eq!(replicas.heard(start, 2, 2), None);
        assert_eq!(replicas.heard(start + seconds(1.0), 2, 2), Some(Change::Rose { to: 2 }));
        assert_eq!(needed(&mut replicas, 0), 0);
        assert_eq!(replicas.safety(), Safety::Single);
        assert_eq!(needed(&mut replicas, 1), 1, "never nothing while there is one");
    }

    #[test]
    fn all_and_numbers_do_not_fall() {
        let start = Instant::now();
        for (wanted, number) in [(ClaimReplicas::All, 2), (ClaimReplicas::Count(2), 2), (ClaimReplicas::Count(3), 3)] {
            let mut replicas = Replicas::new(wanted, 2);
            for second in 0..10 {
                assert_eq!(replicas.heard(start + seconds(second.into()), number, 1), None);
            }
            assert_eq!((needed(&mut replicas, 2), replicas.probe(start)), (number, None), "{wanted:?}");
        }
        assert_eq!(Replicas::new(ClaimReplicas::Count(1), 2).safety(), Safety::Degraded { replicas: 1, of: 2 });
    }
}
