//! Entries: one piece of news of a pool each.

use crate::domain::quota::claim::{ClaimRecord, UserKey};
use crate::domain::quota::pool::LogKind;
use crate::domain::quota::unit::Unit;

/// One piece of news. `(incarnation, ver)` orders those of one pool; together with the unit it names an entry, because
/// closing refunds several units at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub incarnation: u64,
    pub ver: u64,
    pub kind: LogKind,
    /// The store's clock, in milliseconds since 1970.
    pub at_ms: i64,
    pub subject: Subject,
}

/// What the news is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    Claim {
        user: UserKey,
        /// The user as sent; of grants only.
        user_raw: Option<String>,
        /// As it stood after the change.
        record: ClaimRecord,
    },
    /// A unit that nobody will get.
    Refund(Unit),
}

impl Entry {
    /// Reads an entry from the parts that an outbox keeps. `text` is a claim's record, or a unit where it is refunded.
    pub fn read(
        (incarnation, ver): (u64, u64),
        kind: &str,
        at_ms: i64,
        (user, user_raw): (Option<UserKey>, Option<String>),
        text: &str,
    ) -> Result<Self, NotAnEntry> {
        let kind = LogKind::of(kind).ok_or(NotAnEntry)?;
        let subject = match (kind, user) {
            (LogKind::Refund, _) => Subject::Refund(text.parse().map_err(|_| NotAnEntry)?),
            (_, Some(user)) => Subject::Claim { user, user_raw, record: text.parse().map_err(|_| NotAnEntry)? },
            (_, None) => return Err(NotAnEntry),
        };
        Ok(Self { incarnation, ver, kind, at_ms, subject })
    }

    pub fn unit(&self) -> Unit {
        match &self.subject {
            Subject::Claim { record, .. } => record.unit,
            Subject::Refund(unit) => *unit,
        }
    }

    /// The claim it is about: whose, and which of theirs.
    pub fn claim(&self) -> Option<(UserKey, u32)> {
        match &self.subject {
            Subject::Claim { user, record, .. } => Some((*user, record.claim_no)),
            Subject::Refund(_) => None,
        }
    }

    pub fn user_raw(&self) -> Option<&str> {
        match &self.subject {
            Subject::Claim { user_raw, .. } => user_raw.as_deref(),
            Subject::Refund(_) => None,
        }
    }

    /// Whether it is newer than another one of the same pool.
    pub fn is_newer(&self, than: &Entry) -> bool {
        (self.incarnation, self.ver) > (than.incarnation, than.ver)
    }

    /// Whether it is another one's equal, and has another state: one of them was not written by a pool.
    pub fn says_otherwise(&self, than: &Entry) -> bool {
        let state = |entry: &Entry| match &entry.subject {
            Subject::Claim { record, .. } => Some(record.state),
            Subject::Refund(_) => None,
        };
        (self.incarnation, self.ver) == (than.incarnation, than.ver) && state(self) != state(than)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not an entry of an outbox")]
pub struct NotAnEntry;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_from_their_parts() {
        let user = UserKey([3; 16]);
        let claim = "c|17#2:500|abc|1|5|0|9|key";
        let grant = Entry::read((1, 9), "grant", 7, (Some(user), Some("ada".to_owned())), claim).unwrap();
        assert_eq!((grant.incarnation, grant.ver, grant.kind, grant.at_ms), (1, 9, LogKind::Grant, 7));
        assert_eq!(grant.unit(), Unit { number: 17, turn: 2, cents: Some(500) });
        assert_eq!((grant.claim(), grant.user_raw()), (Some((user, 1)), Some("ada")));

        let refund = Entry::read((1, 10), "refund", 8, (None, None), "18#0").unwrap();
        assert_eq!(refund.subject, Subject::Refund(Unit::new(18)));
        assert_eq!((refund.unit(), refund.claim(), refund.user_raw()), (Unit::new(18), None, None));

        for (kind, whose, text) in [
            ("grunt", Some(user), claim),
            ("grant", None, claim),
            ("grant", Some(user), "17#2"),
            ("refund", None, claim),
        ] {
            assert_eq!(Entry::read((1, 9), kind, 7, (whose, None), text), Err(NotAnEntry), "{kind} {text}");
        }
    }

    #[test]
    fn incarnations_come_before_versions() {
        let at = |incarnation, ver| Entry::read((incarnation, ver), "refund", 8, (None, None), "18#0").unwrap();
        assert!(at(1, 2).is_newer(&at(1, 1)) && at(2, 1).is_newer(&at(1, 9)));
        assert!(!at(1, 1).is_newer(&at(1, 1)) && !at(1, 9).is_newer(&at(2, 1)));
    }
}
