//! What the next commit must write of a pool, besides its head.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::format::{self, Key};
use crate::domain::quota::claim::{ClaimRecord, UserKey};
use crate::domain::quota::mend::Mend;
use crate::domain::quota::step::{Answer, CreditAnswer, Step};
use crate::domain::quota::unit::Unit;

#[derive(Default)]
pub struct Changes {
    /// All rows of claims and packets go first: the pool was emptied.
    pub emptied: bool,
    pub claims: BTreeSet<UserKey>,
    /// What packets hold that came into the pool, by number.
    pub amounts: BTreeMap<u64, i64>,
    /// Entries of the outbox by index: new ones, and some that are written anew.
    pub entries: Vec<(u64, Bytes)>,
    /// Entries that go.
    pub acknowledged: BTreeSet<u64>,
}

impl Changes {
    /// Adds what was changed after these.
    pub fn follow(&mut self, later: Changes) {
        if later.emptied {
            // What came before is not in the pool any more. Its entries and acknowledgements stand.
            self.empty();
        }
        self.claims.extend(later.claims);
        self.amounts.extend(later.amounts);
        self.entries.extend(later.entries);
        self.acknowledged.extend(later.acknowledged);
    }

    fn empty(&mut self) {
        self.emptied = true;
        self.claims.clear();
        self.amounts.clear();
    }

    /// Adds what a step brought that was taken.
    pub fn bring(&mut self, brought: Brought) {
        if brought.empties {
            self.empty();
        }
        self.claims.extend(brought.claims);
        self.amounts.extend(brought.amounts);
    }

    /// The rows of a pool with these claims; a later row of a key counts.
    pub fn rows(
        &self,
        pool: &str,
        claims: &BTreeMap<UserKey, ClaimRecord>,
    ) -> impl Iterator<Item = (Key, Option<Bytes>)> {
        let claim = move |user: &UserKey| Some((Key::claim(pool, *user), claims.get(user)?.to_string()));
        let claims = self.claims.iter().filter_map(claim).map(|(key, text)| (key, Some(Bytes::from(text))));
        let amount = |(number, cents): (&u64, &i64)| (Key::packet(pool, *number), Some(format::amount_value(*cents)));
        let entry = |(index, value): &(u64, Bytes)| (Key::pool_log(pool, *index), Some(value.clone()));
        let gone = |index: &u64| (Key::pool_log(pool, *index), None);
        let entries = self.entries.iter().map(entry).chain(self.acknowledged.iter().map(gone));
        claims.chain(self.amounts.iter().map(amount)).chain(entries)
    }
}

/// What a step brings into a pool, if it is taken, of which no entry of the outbox tells.
#[derive(Default)]
pub struct Brought {
    empties: bool,
    claims: Vec<UserKey>,
    amounts: Vec<(u64, i64)>,
}

impl Brought {
    pub fn by(step: &Step) -> Self {
        match step {
            Step::Restock { units, .. } => Self { amounts: amounts(units).collect(), ..Self::default() },
            Step::Credit { parcel, .. } => Self { amounts: amounts(&parcel.units).collect(), ..Self::default() },
            Step::Mend(Mend::Empty(_)) => Self { empties: true, ..Self::default() },
            Step::Mend(Mend::Fill { claims, stock, retired, .. }) => Self {
                empties: false,
                claims: claims.iter().map(|(user, _)| *user).collect(),
                // Also of claims: their units may come back.
                amounts: amounts(stock)
                    .chain(amounts(retired))
                    .chain(claims.iter().flat_map(|(_, claim)| amounts([&claim.unit])))
                    .collect(),
            },
            _ => Self::default(),
        }
    }
}

/// Whether a step with this answer took in what it brought.
pub fn is_taken(answer: &Answer) -> bool {
    matches!(answer, Answer::Done(true) | Answer::Credit(CreditAnswer::Credited, _))
}

fn amounts<'a>(units: impl IntoIterator<Item = &'a Unit>) -> impl Iterator<Item = (u64, i64)> {
    units.into_iter().filter_map(|unit| Some((unit.number, unit.cents?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A commit fails while the pool is emptied: it is tried again without what is not in the pool any more.
    #[test]
    fn what_was_changed_before_a_pool_was_emptied_is_not_written() {
        let user = |byte| UserKey([byte; 16]);
        let mut changes = Changes {
            claims: [user(1)].into(),
            amounts: [(1, 100)].into(),
            entries: vec![(5, Bytes::from_static(b"{}"))],
            acknowledged: [4].into(),
            ..Changes::default()
        };
        let later =
            Changes { emptied: true, claims: [user(2)].into(), amounts: [(2, 200)].into(), ..Changes::default() };
        changes.follow(later);
        assert!(changes.emptied);
        assert_eq!((changes.claims, changes.amounts), ([user(2)].into(), [(2, 200)].into()));
        assert_eq!((changes.entries.len(), changes.acknowledged.len()), (1, 1));
    }
}
