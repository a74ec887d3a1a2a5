//! This process's account of whom it admitted to one soft campaign.
//!
//! A reading knows claimants up to its instant. Between two readings a process may admit its share of the places left,
//! so it counts the places it has given since the reading was taken, those that are still on their way to the store
//! included. A user who comes back within this process's memory is admitted again and takes no place.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

/// Users remembered, so that an impatient crowd does not use up the share: 32 bytes each.
const REMEMBERED_MAX: usize = 100_000;

/// Who was admitted, and when.
#[derive(Default)]
pub struct Admissions {
    account: Mutex<Account>,
}

#[derive(Default)]
struct Account {
    /// Ring points of users whose claims the store has acknowledged.
    users: HashSet<u64>,
    /// The same, in the order of the acknowledgements.
    order: VecDeque<(Instant, u64)>,
    under_way: u64,
}

/// The answer to a wish for a place.
pub enum Permit {
    /// Admitted before, and acknowledged.
    Remembered,
    /// A place is set aside until this is dropped or taken.
    Place(Place),
    /// The share of this reading is used up.
    None,
}

/// A place set aside for a user whose claim is on its way to the store.
pub struct Place {
    admissions: Arc<Admissions>,
    user: u64,
    taken: bool,
}

impl Admissions {
    /// Asks for a place for a user (by ring point) on a reading of instant `as_of` that leaves this process `share`.
    pub fn ask(self: &Arc<Self>, user: u64, as_of: Instant, share: u64) -> Permit {
        let mut account = self.lock();
        if account.users.contains(&user) {
            return Permit::Remembered;
        }
        // A second try of a user under way takes a place of its own for a moment: the sketch counts the user once.
        // What is forgotten is not counted, so no share is larger than the memory.
        if account.since(as_of) >= share.min(REMEMBERED_MAX as u64) {
            return Permit::None;
        }
        account.under_way += 1;
        Permit::Place(Place { admissions: self.clone(), user, taken: false })
    }

    /// Places given since a reading was taken.
    pub fn since(&self, as_of: Instant) -> u64 {
        self.lock().since(as_of)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Account> {
        // A panic under this lock can only come from a failed allocation, which ends the process.
        self.account.lock().expect("no panic while the account is locked")
    }
}

impl Account {
    fn since(&self, as_of: Instant) -> u64 {
        let first = self.order.partition_point(|(at, _)| *at < as_of);
        (self.order.len() - first) as u64 + self.under_way
    }

    fn remember(&mut self, user: u64, at: Instant) {
        if self.users.insert(user) {
            self.order.push_back((at, user));
        }
        while self.order.len() > REMEMBERED_MAX {
            if let Some((_, forgotten)) = self.order.pop_front() {
                self.users.remove(&forgotten);
            }
        }
    }
}

impl Place {
    /// The store has acknowledged the claim.
    pub fn taken(mut self) {
        self.taken = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut account = self.admissions.lock();
        account.under_way -= 1;
        if self.taken {
            account.remember(self.user, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn place(permit: Permit) -> Place {
        match permit {
            Permit::Place(place) => place,
            Permit::Remembered => panic!("remembered"),
            Permit::None => panic!("no place"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_is_used_up_and_the_next_reading_brings_more() {
        let admissions = Arc::new(Admissions::default());
        let first = Instant::now();
        place(admissions.ask(1, first, 2)).taken();
        let second = place(admissions.ask(2, first, 2));
        assert!(matches!(admissions.ask(3, first, 2), Permit::None), "one taken, one under way");
        drop(second);
        assert!(matches!(admissions.ask(3, first, 2), Permit::Place(_)), "a failed claim gives its place back");
        place(admissions.ask(3, first, 2)).taken();
        assert!(matches!(admissions.ask(4, first, 2), Permit::None));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(matches!(admissions.ask(4, Instant::now(), 1), Permit::Place(_)), "the reading knows the first two");
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_back_takes_no_second_place() {
        let admissions = Arc::new(Admissions::default());
        let as_of = Instant::now();
        place(admissions.ask(1, as_of, 1)).taken();
        assert!(matches!(admissions.ask(1, as_of, 1), Permit::Remembered));
        assert!(matches!(admissions.ask(2, as_of, 1), Permit::None));
    }
}
