//! Published answers, leases and attendance: short-lived, so in memory only. A restart begins with none.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use super::rows::lock;
use crate::domain::id::CampaignId;
use crate::store::counters::{AnswerKey, Lease, Published, PublishedView};
use crate::store::pools::Duty;

/// How long an answer stands unless a newer one comes.
const PUBLISHED_MS: i64 = 60_000;
/// From this age on an answer gives way to any other one: whoever published it may have had a clock that was ahead.
const OUTDATED_MS: i64 = 2_000;
/// How long an unused entry about attendance is kept: longer than any window that is asked for.
const ATTENDANCE_MS: i64 = 60_000;

#[derive(Default)]
pub struct Answers {
    entries: Mutex<HashMap<AnswerKey, Entry>>,
    /// Who has which duty to a campaign, and until when.
    duties: Mutex<HashMap<(CampaignId, Duty), (String, i64)>>,
}

#[derive(Default)]
struct Entry {
    published: Option<(Published, i64)>,
    lease: Option<(String, i64)>,
    /// Who said when that it admits.
    attending: HashMap<String, i64>,
}

impl Answers {
    pub fn published(&self, key: &AnswerKey, now_ms: i64) -> PublishedView {
        let entries = lock(&self.entries);
        let standing = entries.get(key).and_then(|entry| entry.standing(now_ms));
        PublishedView { now_ms, answer: standing.cloned() }
    }

    pub fn lease(&self, key: &AnswerKey, token: &str, lease_ms: u64, now_ms: i64) -> Lease {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(key.clone()).or_default();
        if let Some((_, until_ms)) = &entry.lease
            && *until_ms > now_ms
        {
            return Lease::Held { now_ms, left_ms: until_ms.abs_diff(now_ms) };
        }
        entry.lease = Some((token.to_owned(), now_ms.saturating_add_unsigned(lease_ms)));
        Lease::Granted { now_ms }
    }

    pub fn give_back(&self, key: &AnswerKey, token: &str) {
        if let Some(entry) = lock(&self.entries).get_mut(key) {
            entry.lease.take_if(|(holder, _)| holder == token);
        }
    }

    /// The rule is in the port. An answer of another run of this process cannot stand here.
    pub fn publish(&self, key: &AnswerKey, answer: Published, now_ms: i64) -> bool {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(key.clone()).or_default();
        let stands = entry.standing(now_ms).is_some_and(|standing| {
            let age_ms = now_ms.saturating_sub(standing.as_of_ms);
            answer.as_of_ms <= standing.as_of_ms && (0..=OUTDATED_MS).contains(&age_ms)
        });
        if !stands {
            entry.published = Some((answer, now_ms.saturating_add(PUBLISHED_MS)));
        }
        !stands
    }

    pub fn attend(&self, key: &AnswerKey, pod: &str, window_ms: u64, now_ms: i64) -> u32 {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(key.clone()).or_default();
        entry.attending.insert(pod.to_owned(), now_ms);
        let since_ms = now_ms.saturating_sub_unsigned(window_ms);
        entry.attending.retain(|_, at_ms| *at_ms > since_ms);
        u32::try_from(entry.attending.len()).unwrap_or(u32::MAX)
    }

    /// Whether a holder may do a duty to a campaign for a while.
    pub fn hold_duty(&self, campaign: &CampaignId, duty: Duty, holder: &str, now_ms: i64, hold: Duration) -> bool {
        let mut duties = lock(&self.duties);
        let duty = (campaign.clone(), duty);
        if duties.get(&duty).is_some_and(|(other, until_ms)| other != holder && *until_ms > now_ms) {
            return false;
        }
        let until_ms = now_ms.saturating_add(hold.as_millis() as i64);
        duties.insert(duty, (holder.to_owned(), until_ms));
        true
    }

    /// Drops what has run out.
    pub fn sweep(&self, now_ms: i64) {
        lock(&self.duties).retain(|_, (_, until_ms)| *until_ms > now_ms);
        lock(&self.entries).retain(|_, entry| {
            entry.published.take_if(|(_, until_ms)| *until_ms <= now_ms);
            entry.lease.take_if(|(_, until_ms)| *until_ms <= now_ms);
            entry.attending.retain(|_, at_ms| *at_ms > now_ms.saturating_sub(ATTENDANCE_MS));
            entry.published.is_some() || entry.lease.is_some() || !entry.attending.is_empty()
        });
    }
}

impl Entry {
    fn standing(&self, now_ms: i64) -> Option<&Published> {
        self.published.as_ref().filter(|(_, until_ms)| *until_ms > now_ms).map(|(answer, _)| answer)
    }
}
