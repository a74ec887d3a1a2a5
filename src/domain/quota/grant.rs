//! Granting: wishes meet the stock.

use std::collections::{HashMap, HashSet};

use super::claim::{ClaimAnswer, ClaimRecord, ClaimState, UserKey, Wish};
use super::pool::{LogKind, Pool};

impl Pool {
    /// Serves wishes in their order. The user's record comes first, so that `already` is said also while the campaign is
    /// paused or closed; then the hours; then the stock.
    pub(super) fn grant(&mut self, now_ms: i64, wishes: &[Wish]) -> Vec<ClaimAnswer> {
        let mut answers: Vec<Option<ClaimAnswer>> = wishes.iter().map(|wish| self.known(now_ms, wish)).collect();
        let mut first = HashSet::new();
        let open: Vec<usize> =
            (0..wishes.len()).filter(|&index| answers[index].is_none() && first.insert(wishes[index].user)).collect();
        if !open.is_empty() {
            self.mature(now_ms);
        }
        let mut served: HashMap<UserKey, ClaimRecord> = HashMap::new();
        for index in open {
            let wish = &wishes[index];
            if let Some(record) = self.take(now_ms, wish) {
                served.insert(wish.user, record.clone());
                answers[index] = Some(ClaimAnswer::Granted(record));
            } else {
                answers[index] = Some(ClaimAnswer::Dry);
            }
        }
        // A second wish of a user in the same step hears what the first one got.
        let repeated = |wish: &Wish| served.get(&wish.user).cloned().map_or(ClaimAnswer::Dry, ClaimAnswer::Already);
        answers.into_iter().zip(wishes).map(|(answer, wish)| answer.unwrap_or_else(|| repeated(wish))).collect()
    }

    /// What the user's record or the hours say; None: it depends on the stock.
    fn known(&self, now_ms: i64, wish: &Wish) -> Option<ClaimAnswer> {
        if let Some(record) = self.claims.get(&wish.user) {
            let same_wish = record.secret == wish.secret || (!wish.idem.is_empty() && record.idem == wish.idem);
            match record.state {
                ClaimState::Held | ClaimState::Confirmed => return Some(ClaimAnswer::Already(record.clone())),
                ClaimState::Voided => return Some(ClaimAnswer::Voided(record.clone())),
                // Else a delayed first try would get a second unit after the first was given back (docs/FAULTS.md A19).
                ClaimState::Released | ClaimState::Expired if same_wish => {
                    return Some(ClaimAnswer::Ended(record.clone()));
                }
                ClaimState::Released | ClaimState::Expired => {}
            }
        }
        if self.is_over() || now_ms >= self.schedule.closes_ms {
            return Some(ClaimAnswer::Closed);
        }
        if self.schedule.paused {
            return Some(ClaimAnswer::Paused);
        }
        (now_ms < self.schedule.opens_ms).then_some(ClaimAnswer::NotOpen)
    }

    fn take(&mut self, now_ms: i64, wish: &Wish) -> Option<ClaimRecord> {
        let unit = self.avail.pop_front()?;
        self.changed(false);
        let holds = self.rules.hold_ms > 0;
        let record = ClaimRecord {
            state: if holds { ClaimState::Held } else { ClaimState::Confirmed },
            unit,
            secret: wish.secret.clone(),
            claim_no: self.claims.get(&wish.user).map_or(1, |before| before.claim_no + 1),
            claimed_ms: now_ms,
            deadline_ms: if holds { now_ms + self.rules.hold_ms } else { 0 },
            ver: self.ver,
            idem: wish.idem.clone(),
        };
        if holds {
            self.deadlines.insert((record.deadline_ms, wish.user));
        } else {
            self.confirmed += 1;
        }
        self.taken_cents += unit.cents.unwrap_or(0);
        self.note(LogKind::Grant, Some(wish.user), Some(&wish.user_raw), record.to_string());
        self.claims.insert(wish.user, record.clone());
        Some(record)
    }
}
