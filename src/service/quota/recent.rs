//! What a process remembers of the last claims of a pool: if the pool loses them, and with them what the ledger has not
//! heard yet, this is all that is left of them (docs/FAULTS.md A10).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::ledger::entry::{Entry, Subject};
use crate::domain::quota::claim::{ClaimAnswer, ClaimRecord, UserKey};
use crate::domain::quota::pool::LogKind;
use crate::domain::quota::step::{Answer, ConfirmAnswer, ReleaseAnswer, ReleasedBy, Step, Stepped};

/// The ledger is behind by less, unless it is away.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Of one pool: about 2 MB. A hot pool grants so many in some seconds.
const CLAIMS_MAX: usize = 10_000;

#[derive(Default)]
pub struct Recent(Mutex<VecDeque<(Instant, Entry)>>);

/// Whose claims a step is about, in the order in which it answers; taken before the step is sent.
pub enum About {
    Users(Vec<UserKey>),
    Confirm(UserKey),
    Release(UserKey, ReleasedBy),
    Nobody,
}

impl About {
    pub fn of(step: &Step) -> Self {
        match step {
            Step::Claim { wishes } | Step::Credit { wishes, .. } => {
                About::Users(wishes.iter().map(|wish| wish.user).collect())
            }
            Step::Confirm { user, .. } => About::Confirm(*user),
            Step::Release { user, by, .. } => About::Release(*user, *by),
            _ => About::Nobody,
        }
    }
}

impl Recent {
    /// Takes note of what a step was answered, which is replicated.
    pub fn note(&self, about: &About, stepped: &Stepped) {
        let entry = |kind, user, record: &ClaimRecord| Entry {
            incarnation: stepped.at.incarnation,
            ver: record.ver,
            kind,
            at_ms: stepped.now_ms(),
            subject: Subject::Claim { user, user_raw: None, record: record.clone() },
        };
        match (about, &stepped.answer) {
            (About::Users(users), Answer::Claims(answers) | Answer::Credit(_, answers)) => {
                let granted = users.iter().zip(answers).filter_map(|(user, answer)| match answer {
                    ClaimAnswer::Granted(record) => Some(entry(LogKind::Grant, *user, record)),
                    _ => None,
                });
                self.put(granted);
            }
            (About::Confirm(user), Answer::Confirm(ConfirmAnswer::Confirmed(record))) => {
                self.put([entry(LogKind::Confirm, *user, record)]);
            }
            (About::Release(user, by), Answer::Release(ReleaseAnswer::Released(record))) => {
                let kind = if *by == ReleasedBy::User { LogKind::Release } else { LogKind::Void };
                self.put([entry(kind, *user, record)]);
            }
            _ => {}
        }
    }

    /// What is remembered, oldest first; it stays.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().iter().filter(|(at, _)| at.elapsed() < AGE_MAX).map(|(_, entry)| entry.clone()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.lock().back().is_none_or(|(at, _)| at.elapsed() >= AGE_MAX)
    }

    fn put(&self, entries: impl IntoIterator<Item = Entry>) {
        let now = Instant::now();
        let mut recent = self.lock();
        recent.extend(entries.into_iter().map(|entry| (now, entry)));
        let old = recent.iter().take_while(|(at, _)| at.elapsed() >= AGE_MAX).count();
        let surplus = recent.len().saturating_sub(CLAIMS_MAX).max(old);
        recent.drain(..surplus);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, Entry)>> {
        // Each change is whole before the lock is given back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
