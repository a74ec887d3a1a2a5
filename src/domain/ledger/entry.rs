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
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not an entry of an outbox")]
pub struct NotAnEntry;
