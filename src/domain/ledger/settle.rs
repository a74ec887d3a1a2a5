//! Settling: entries meet what the ledger has.
//!
//! The ledger keeps the newest entry of each claim, by two keys that no two rows share: (user, claim number) and (unit
//! number, turn). An entry
//!
//! - (a) of a claim that is not there, with a unit that is not there, is a new row;
//! - (b) of a claim that is there with the same unit replaces it if it is newer, else changes nothing; either way the row
//!   learns the user's name if it had none, since only grants bring it;
//! - (c) of anything else contradicts the ledger: somebody has been told something that cannot be. It is kept apart, for
//!   a person (docs/FAULTS.md F5).

use std::collections::{BTreeMap, HashMap};

use super::entry::{Entry, Subject};
use crate::domain::quota::claim::UserKey;

/// What is to be written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settled {
    pub insert: Vec<Entry>,
    pub update: Vec<Entry>,
    pub conflicts: Vec<Conflict>,
}

/// An entry that contradicts a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    pub entry: Entry,
    pub standing: Entry,
}

/// A row, before it is written.
struct Row {
    entry: Entry,
    stands: bool,
    changed: bool,
}

/// Settles entries in their order. `standing` are all rows that have a key of any of them.
pub fn settle(standing: Vec<Entry>, entries: &[Entry]) -> Settled {
    let mut book = Book::default();
    for entry in standing {
        book.add(Row { entry, stands: true, changed: false });
    }
    let mut conflicts = Vec::new();
    for entry in entries {
        match book.find(entry) {
            Found::Nothing => book.add(Row { entry: entry.clone(), stands: false, changed: true }),
            Found::Same(place) => book.rows[place].take(entry),
            Found::Other(place) => {
                conflicts.push(Conflict { entry: entry.clone(), standing: book.rows[place].entry.clone() });
            }
        }
    }
    let changed = book.rows.into_iter().filter(|row| row.changed);
    let (update, insert): (Vec<Row>, Vec<Row>) = changed.partition(|row| row.stands);
    let entries = |rows: Vec<Row>| rows.into_iter().map(|row| row.entry).collect();
    Settled { insert: entries(insert), update: entries(update), conflicts }
}

#[derive(Default)]
struct Book {
    rows: Vec<Row>,
    by_claim: HashMap<(UserKey, u32), usize>,
    by_unit: BTreeMap<(u64, u32), usize>,
}

enum Found {
    Nothing,
    Same(usize),
    Other(usize),
}

impl Book {
    fn add(&mut self, row: Row) {
        let place = self.rows.len();
        let unit = row.entry.unit();
        self.by_unit.insert((unit.number, unit.turn), place);
        self.by_claim.extend(row.entry.claim().map(|claim| (claim, place)));
        self.rows.push(row);
    }

    fn find(&self, entry: &Entry) -> Found {
        let unit = entry.unit();
        let by_claim = entry.claim().and_then(|claim| self.by_claim.get(&claim));
        match (by_claim, self.by_unit.get(&(unit.number, unit.turn))) {
            (None, None) => Found::Nothing,
            (Some(&place), _) | (None, Some(&place)) if self.rows[place].is_of(entry) => Found::Same(place),
            (Some(&place), _) | (None, Some(&place)) => Found::Other(place),
        }
    }
}

impl Row {
    /// The same claim, or the same refund: not only the same key.
    fn is_of(&self, entry: &Entry) -> bool {
        match (&self.entry.subject, &entry.subject) {
            (Subject::Claim { record: mine, .. }, Subject::Claim { record: its, .. }) => {
                self.entry.claim() == entry.claim() && mine.unit == its.unit && mine.secret == its.secret
            }
            (Subject::Refund(mine), Subject::Refund(its)) => mine == its,
            _ => false,
        }
    }

    fn take(&mut self, entry: &Entry) {
        let name = self.entry.user_raw().or(entry.user_raw()).map(str::to_owned);
        let newer = entry.is_newer(&self.entry);
        self.changed |= newer || name.as_deref() != self.entry.user_raw();
        if newer {
            self.entry = entry.clone();
        }
        if let Subject::Claim { user_raw, .. } = &mut self.entry.subject {
            *user_raw = name;
        }
    }
}
