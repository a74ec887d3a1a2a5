//! What becomes of a claim: confirmed, released, expired, voided. Each is a compare-and-set, so that it happens once.

use super::claim::{ClaimRecord, ClaimState, UserKey};
use super::pool::{LogKind, Pool};
use super::step::{ConfirmAnswer, ReleaseAnswer, ReleasedBy};
use super::unit::{Cooling, Unit};

impl Pool {
    /// Also after the deadline, as long as nobody has expired the hold: whoever paid is not turned away for a late reaper.
    pub(super) fn confirm(&mut self, user: UserKey, secret: &str) -> ConfirmAnswer {
        let Some(record) = self.of(user, secret) else { return ConfirmAnswer::Unknown };
        match record.state {
            ClaimState::Confirmed => return ConfirmAnswer::Confirmed(record),
            ClaimState::Held => {}
            ClaimState::Released | ClaimState::Expired | ClaimState::Voided => return ConfirmAnswer::Late(record),
        }
        self.changed(false);
        self.deadlines.remove(&(record.deadline_ms, user));
        self.confirmed += 1;
        let record = ClaimRecord { state: ClaimState::Confirmed, deadline_ms: 0, ver: self.ver, ..record };
        self.keep(LogKind::Confirm, user, record.clone());
        ConfirmAnswer::Confirmed(record)
    }

    pub(super) fn release(&mut self, now_ms: i64, user: UserKey, secret: &str, by: ReleasedBy) -> ReleaseAnswer {
        let Some(record) = self.of(user, secret) else { return ReleaseAnswer::Unknown };
        if !record.state.is_live() {
            return ReleaseAnswer::Ended(record);
        }
        if record.state == ClaimState::Confirmed && by == ReleasedBy::User {
            return ReleaseAnswer::Confirmed(record);
        }
        let (state, kind) = match by {
            ReleasedBy::User => (ClaimState::Released, LogKind::Release),
            ReleasedBy::Operator => (ClaimState::Voided, LogKind::Void),
        };
        ReleaseAnswer::Released(self.end(now_ms, user, record, state, kind))
    }

    pub(super) fn reap(&mut self, now_ms: i64, limit: u32) -> u32 {
        let due = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now_ms);
        let users: Vec<UserKey> = due.take(limit as usize).map(|(_, user)| *user).collect();
        for user in &users {
            if let Some(record) = self.claims.get(user).cloned() {
                self.end(now_ms, *user, record, ClaimState::Expired, LogKind::Expire);
            }
        }
        users.len() as u32
    }

    fn of(&self, user: UserKey, secret: &str) -> Option<ClaimRecord> {
        self.claims.get(&user).filter(|record| record.secret == secret).cloned()
    }

    fn end(
        &mut self,
        now_ms: i64,
        user: UserKey,
        record: ClaimRecord,
        state: ClaimState,
        kind: LogKind,
    ) -> ClaimRecord {
        self.changed(false);
        if record.state == ClaimState::Held {
            self.deadlines.remove(&(record.deadline_ms, user));
        } else {
            self.confirmed -= 1;
        }
        let unit = record.unit;
        self.taken_cents -= unit.cents.unwrap_or(0);
        let record = ClaimRecord { state, ver: self.ver, ..record };
        self.keep(kind, user, record.clone());
        self.come_back(now_ms, unit);
        record
    }

    fn keep(&mut self, kind: LogKind, user: UserKey, record: ClaimRecord) {
        self.note(kind, Some(user), None, record.to_string());
        self.claims.insert(user, record);
    }

    /// A unit left its claim: it cools, or is a refund from closing on.
    fn come_back(&mut self, now_ms: i64, unit: Unit) {
        let unit = unit.returned();
        if self.is_over() {
            self.changed(false);
            self.refund([unit]);
        } else {
            self.cooling.insert(Cooling { ready_ms: self.ready_ms(now_ms), unit });
            self.sver += 1;
        }
    }
}
