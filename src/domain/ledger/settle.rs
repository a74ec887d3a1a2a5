//! Settling: entries meet what the ledger has.
//!
//! The ledger keeps the newest entry of each claim, by two keys that no two rows share: (user, claim number) and (unit
//! number, turn). An entry
//!
//! - (a) of a claim that is not there, with a unit that is not there, is a new row;
//! - (b) of a claim that is there with the same unit replaces it if it is newer, or as new and of another state, as after
//!   somebody has changed the row; else it changes nothing. Either way the row learns the user's name if it had none, since
//!   only grants bring it;
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
        let newer = entry.is_newer(&self.entry) || entry.says_otherwise(&self.entry);
        self.changed |= newer || name.as_deref() != self.entry.user_raw();
        if newer {
            self.entry = entry.clone();
        }
        if let Subject::Claim { user_raw, .. } = &mut self.entry.subject {
            *user_raw = name;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::quota::claim::{ClaimRecord, ClaimState};
    use crate::domain::quota::pool::LogKind;
    use crate::domain::quota::unit::Unit;

    const ALICE: UserKey = UserKey([1; 16]);
    const BOB: UserKey = UserKey([2; 16]);

    fn entry(user: UserKey, claim_no: u32, unit: Unit, ver: u64, kind: LogKind) -> Entry {
        let state = if kind == LogKind::Grant { ClaimState::Held } else { ClaimState::Confirmed };
        let (secret, idem) = (format!("{user:?}{claim_no}"), String::new());
        let record = ClaimRecord { state, unit, secret, claim_no, claimed_ms: 1, deadline_ms: 0, ver, idem };
        let user_raw = (kind == LogKind::Grant).then(|| "name".to_owned());
        Entry { incarnation: 1, ver, kind, at_ms: 1, subject: Subject::Claim { user, user_raw, record } }
    }

    fn refund(unit: Unit, ver: u64) -> Entry {
        Entry { incarnation: 1, ver, kind: LogKind::Refund, at_ms: 1, subject: Subject::Refund(unit) }
    }

    fn renamed(mut entry: Entry, name: &str) -> Entry {
        if let Subject::Claim { user_raw, .. } = &mut entry.subject {
            *user_raw = Some(name.to_owned());
        }
        entry
    }

    #[test]
    fn news_of_nobody_known_are_new_rows() {
        let (one, two) = (entry(ALICE, 1, Unit::new(1), 5, LogKind::Grant), refund(Unit::new(2), 6));
        let settled = settle(vec![], &[one.clone(), two.clone(), one.clone(), two.clone()]);
        assert_eq!(settled, Settled { insert: vec![one, two], ..Settled::default() });
        // The same unit one turn later is another key, and so is a user's next claim.
        let (before, after) = (
            entry(ALICE, 1, Unit::new(1), 5, LogKind::Grant),
            entry(ALICE, 2, Unit::new(1).returned(), 9, LogKind::Grant),
        );
        let settled = settle(vec![before], std::slice::from_ref(&after));
        assert_eq!(settled, Settled { insert: vec![after], ..Settled::default() });
    }

    #[test]
    fn the_newest_stands_whatever_the_order() {
        let grant = entry(ALICE, 1, Unit::new(1), 5, LogKind::Grant);
        let confirm = entry(ALICE, 1, Unit::new(1), 6, LogKind::Confirm);
        let named = renamed(confirm.clone(), "name");
        for order in [[&grant, &confirm], [&confirm, &grant]] {
            let settled = settle(vec![], &order.map(Clone::clone));
            assert_eq!(settled, Settled { insert: vec![named.clone()], ..Settled::default() });
            // In two batches.
            let settled = settle(vec![order[0].clone()], std::slice::from_ref(order[1]));
            assert_eq!(settled, Settled { update: vec![named.clone()], ..Settled::default() });
        }
        assert_eq!(settle(vec![named], &[grant, confirm]), Settled::default(), "known news change nothing");
    }

    #[test]
    fn a_row_that_was_changed_is_put_right_by_its_own_news() {
        let confirm = entry(ALICE, 1, Unit::new(1), 6, LogKind::Confirm);
        let mut changed = confirm.clone();
        if let Subject::Claim { record, .. } = &mut changed.subject {
            record.state = ClaimState::Released;
        }
        let settled = settle(vec![changed.clone()], std::slice::from_ref(&confirm));
        assert_eq!(settled.update, [confirm]);
        let older = entry(ALICE, 1, Unit::new(1), 5, LogKind::Grant);
        assert_eq!(settle(vec![changed], &[older]).update[0].ver, 6, "older news change no state");
    }

    #[test]
    fn a_higher_incarnation_is_newer() {
        let grant = entry(ALICE, 1, Unit::new(1), 50, LogKind::Grant);
        let later = Entry { incarnation: 2, ..entry(ALICE, 1, Unit::new(1), 7, LogKind::Confirm) };
        let settled = settle(vec![grant.clone()], std::slice::from_ref(&later));
        assert_eq!(settled.update, [renamed(later.clone(), "name")]);
        assert_eq!(settle(vec![renamed(later, "name")], &[grant]), Settled::default());
    }

    #[test]
    fn a_name_that_stands_stays() {
        let grant = entry(ALICE, 1, Unit::new(1), 5, LogKind::Grant);
        let alias = renamed(grant.clone(), "alias");
        assert_eq!(settle(vec![alias.clone()], &[grant]), Settled::default());
        let confirm = entry(ALICE, 1, Unit::new(1), 6, LogKind::Confirm);
        assert_eq!(settle(vec![alias], std::slice::from_ref(&confirm)).update, [renamed(confirm, "alias")]);
    }

    #[test]
    fn contradictions_change_no_row() {
        let mine = entry(ALICE, 1, Unit::new(1), 5, LogKind::Grant);
        let mut other_secret = entry(ALICE, 1, Unit::new(1), 6, LogKind::Grant);
        if let Subject::Claim { record, .. } = &mut other_secret.subject {
            record.secret = "another".to_owned();
        }
        let contradicting = [
            entry(BOB, 1, Unit::new(1), 6, LogKind::Grant),
            entry(ALICE, 1, Unit::new(2), 6, LogKind::Grant),
            entry(ALICE, 2, Unit::new(1), 6, LogKind::Grant),
            entry(ALICE, 1, Unit::packet(1, 500), 6, LogKind::Grant),
            other_secret,
            refund(Unit::new(1), 6),
        ];
        let good = entry(BOB, 1, Unit::new(7), 7, LogKind::Grant);
        for entry in contradicting {
            let settled = settle(vec![mine.clone()], &[entry.clone(), good.clone()]);
            let conflicts = vec![Conflict { entry: entry.clone(), standing: mine.clone() }];
            assert_eq!(settled, Settled { insert: vec![good.clone()], update: vec![], conflicts });
            // Both within one batch: the first one stands.
            let settled = settle(vec![], &[mine.clone(), entry]);
            assert_eq!((settled.insert.len(), settled.conflicts.len()), (1, 1));
        }
        let settled = settle(vec![refund(Unit::new(1), 3)], std::slice::from_ref(&mine));
        assert_eq!(settled.conflicts.len(), 1, "a refunded unit is nobody's");
    }

    #[test]
    fn an_entry_between_two_rows_contradicts() {
        let (mine, its) =
            (entry(ALICE, 1, Unit::new(1), 5, LogKind::Grant), entry(BOB, 1, Unit::new(2), 6, LogKind::Grant));
        let entry = entry(ALICE, 1, Unit::new(2), 9, LogKind::Grant);
        let settled = settle(vec![mine.clone(), its], std::slice::from_ref(&entry));
        assert_eq!(settled, Settled { conflicts: vec![Conflict { entry, standing: mine }], ..Settled::default() });
    }
}
