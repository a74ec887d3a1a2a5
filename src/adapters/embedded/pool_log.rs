//! A pool's outbox: which entries are kept, and what stands in the row of one.
//!
//! Entries are numbered as they come. An entry is kept until it is acknowledged; its row goes with that commit.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::format;
use crate::domain::ledger::entry::Entry;
use crate::domain::quota::pool::LogEntry;

const FORM: u32 = 1;

/// Which entries of an outbox are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    /// All before it are acknowledged.
    first: u64,
    /// The index of the next entry.
    next: u64,
    /// Those between that are acknowledged too; usually none.
    gaps: BTreeSet<u64>,
}

impl Log {
    pub fn new(first: u64, next: u64, gaps: BTreeSet<u64>) -> Self {
        Self { first, next, gaps }
    }

    /// The outbox of a new pool. Its entries must not have the indexes of an earlier pool of this name, or whoever read
    /// those would acknowledge these. So they begin at the time, in microseconds, which no pool's entries outrun.
    pub fn begin(now_us: i64) -> Self {
        let first = u64::try_from(now_us).unwrap_or(0);
        Self { first, next: first, gaps: BTreeSet::new() }
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn gaps(&self) -> &BTreeSet<u64> {
        &self.gaps
    }

    /// How many entries are kept.
    pub fn len(&self) -> u64 {
        (self.next - self.first).saturating_sub(self.gaps.len() as u64)
    }

    pub fn append(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    pub fn keeps(&self, index: u64) -> bool {
        (self.first..self.next).contains(&index) && !self.gaps.contains(&index)
    }

    /// False where this entry is not kept, or never was.
    pub fn acknowledge(&mut self, index: u64) -> bool {
        if !self.keeps(index) {
            return false;
        }
        self.gaps.insert(index);
        while self.gaps.remove(&self.first) {
            self.first += 1;
        }
        true
    }
}

/// The row of an entry, for whoever brings it to the ledger.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryRow {
    form: u32,
    /// With `ver` it orders the news of a pool.
    incarnation: u64,
    ver: u64,
    /// 0: written before entries had a time.
    #[serde(default)]
    at_ms: i64,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_raw: Option<String>,
    text: String,
}

impl EntryRow {
    fn of(value: &[u8]) -> Result<Self, String> {
        let row: Self = serde_json::from_slice(value).map_err(|error| format!("not an entry: {error}"))?;
        let form = row.form;
        if form == FORM { Ok(row) } else { Err(format!("an entry of form {form}, and this program knows {FORM}")) }
    }
}

pub fn entry_value(incarnation: u64, at_ms: i64, entry: LogEntry) -> Bytes {
    let LogEntry { ver, kind, user, user_raw, text } = entry;
    let (kind, user) = (kind.as_str().to_owned(), user.map(format::user_text));
    format::json(&EntryRow { form: FORM, incarnation, ver, at_ms, kind, user, user_raw, text })
}

pub fn entry_of(value: &[u8]) -> Result<Entry, String> {
    let row = EntryRow::of(value)?;
    let user = row.user.as_deref().map(|text| format::user_of(text).ok_or("the user is no key")).transpose()?;
    let entry = Entry::read((row.incarnation, row.ver), &row.kind, row.at_ms, (user, row.user_raw), &row.text);
    entry.map_err(|error| error.to_string())
}

/// The row with `alias` in the place of this user's name; None where it is not this user's.
pub fn renamed(value: &[u8], user: &str, alias: &str) -> Result<Option<Bytes>, String> {
    let mut row = EntryRow::of(value)?;
    if row.user_raw.as_deref() != Some(user) {
        return Ok(None);
    }
    row.user_raw = Some(alias.to_owned());
    Ok(Some(format::json(&row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ledger::entry::Subject;
    use crate::domain::quota::claim::UserKey;
    use crate::domain::quota::pool::LogKind;
    use crate::domain::quota::unit::Unit;

    #[test]
    fn what_is_acknowledged_out_of_order_is_not_kept() {
        let mut log = Log::begin(10);
        assert_eq!([(); 5].map(|()| log.append()), [10, 11, 12, 13, 14]);
        assert!(log.acknowledge(12) && log.acknowledge(11));
        assert_eq!((log.first(), log.len(), log.gaps().len()), (10, 3, 2));
        assert!(!log.acknowledge(12) && !log.acknowledge(9) && !log.acknowledge(15));
        assert!(log.acknowledge(10));
        assert_eq!(log, Log::new(13, 15, BTreeSet::new()));
        assert_eq!([12, 13, 14, 15].map(|index| log.keeps(index)), [false, true, true, false]);
    }

    /// The file format of every installation: a change here needs a new form, and this one must still be read.
    #[test]
    fn the_form_is_frozen() {
        let (user, user_raw) = (Some(UserKey([1; 16])), Some("a \"b\"".to_owned()));
        let record = "h|10#0:5|a|1|5|900|39|";
        let entry = LogEntry { ver: 7, kind: LogKind::Grant, user, user_raw, text: record.to_owned() };
        let text = r#"{"form":1,"incarnation":2,"ver":7,"at_ms":9,"kind":"grant","user":"01010101010101010101010101010101","user_raw":"a \"b\"","text":"h|10#0:5|a|1|5|900|39|"}"#;
        let value = entry_value(2, 9, entry);
        assert_eq!(std::str::from_utf8(&value).unwrap(), text);
        let subject = Subject::Claim {
            user: UserKey([1; 16]),
            user_raw: Some("a \"b\"".to_owned()),
            record: record.parse().unwrap(),
        };
        let read = Entry { incarnation: 2, ver: 7, kind: LogKind::Grant, at_ms: 9, subject };
        assert_eq!(entry_of(&value), Ok(read.clone()));
        let without_time = text.replace("\"at_ms\":9,", "");
        assert_eq!(entry_of(without_time.as_bytes()), Ok(Entry { at_ms: 0, ..read }));

        let refund = r#"{"form":1,"incarnation":2,"ver":7,"kind":"refund","text":"10#1:5"}"#;
        let unit = Unit { turn: 1, ..Unit::packet(10, 5) };
        assert_eq!(entry_of(refund.as_bytes()).unwrap().subject, Subject::Refund(unit));
    }

    #[test]
    fn foreign_rows_are_no_entries() {
        let row = r#"{"form":1,"incarnation":2,"ver":7,"kind":"refund","text":"10#1"}"#;
        for (from, to) in [("1,", "2,"), ("refund", "x"), ("refund", "grant"), ("10#1", "10"), ("\"kind\"", "\"x\"")] {
            assert!(entry_of(row.replacen(from, to, 1).as_bytes()).is_err(), "{from} {to}");
        }
    }

    #[test]
    fn a_name_is_replaced_in_its_own_rows_only() {
        let row = r#"{"form":1,"incarnation":2,"ver":7,"kind":"grant","user":"01010101010101010101010101010101","user_raw":"ann","text":"h|10#0|a|1|5|900|39|"}"#;
        let alias = renamed(row.as_bytes(), "ann", "x1").unwrap().unwrap();
        assert_eq!(entry_of(&alias).unwrap().user_raw(), Some("x1"));
        assert_eq!(renamed(&alias, "ann", "x1"), Ok(None));
        assert_eq!(renamed(row.as_bytes(), "an", "x1"), Ok(None));
    }
}
