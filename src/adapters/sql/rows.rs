//! Entries as rows of `ledger_claims`.

use std::fmt::Write;

use sqlx::Row;
use sqlx::any::AnyRow;

use super::error::Fault;
use super::statement::{Value, signed};
use crate::domain::ledger::entry::{Entry, Subject};
use crate::domain::quota::claim::{ClaimRecord, ClaimState, UserKey};
use crate::domain::quota::claim_id::ClaimId;
use crate::domain::quota::pool::LogKind;
use crate::domain::quota::unit::Unit;

/// What `read` wants, in its order.
pub(super) const COLUMNS: &str = "user_key, user_name, claim_no, unit, turn, cents, state, claim_id, idem, claimed_ms, \
                                  deadline_ms, changed_ms, kind, incarnation, ver";

const REFUNDED: &str = "refunded";
const STATES: [ClaimState; 5] =
    [ClaimState::Held, ClaimState::Confirmed, ClaimState::Released, ClaimState::Expired, ClaimState::Voided];

pub(super) fn hex(user: UserKey) -> String {
    format!("{user:?}")
}

/// The state's word.
pub(super) fn state(entry: &Entry) -> &'static str {
    match &entry.subject {
        Subject::Claim { record, .. } => record.state.as_str(),
        Subject::Refund(_) => REFUNDED,
    }
}

/// None: there is no hold.
pub(super) fn deadline_ms(entry: &Entry) -> Option<i64> {
    match &entry.subject {
        Subject::Claim { record, .. } => Some(record.deadline_ms).filter(|deadline| *deadline != 0),
        Subject::Refund(_) => None,
    }
}

pub(super) fn claimed_ms(entry: &Entry) -> Option<i64> {
    match &entry.subject {
        Subject::Claim { record, .. } => Some(record.claimed_ms),
        Subject::Refund(_) => None,
    }
}

/// None: there was no Idempotency-Key.
pub(super) fn idem(entry: &Entry) -> Option<String> {
    match &entry.subject {
        Subject::Claim { record, .. } => Some(record.idem.clone()).filter(|idem| !idem.is_empty()),
        Subject::Refund(_) => None,
    }
}

/// What its holder shows to confirm or release. None for refunds.
pub(super) fn claim_id(entry: &Entry, home: u16) -> Result<Option<String>, Fault> {
    let Subject::Claim { user, record, .. } = &entry.subject else { return Ok(None) };
    let id = ClaimId { home, user: *user, secret: record.secret.clone() };
    let mut text = String::new();
    // Reading it again proves that nothing was lost: an id has room for 16 bytes of secret, no more and no less.
    match write!(text, "{id}") {
        Ok(()) if text.parse::<ClaimId>().is_ok_and(|read| read == id) => Ok(Some(text)),
        _ => Err(Fault::Corrupt(format!("the claim of unit {} has a secret that fits no claim id", record.unit))),
    }
}

/// The values of `COLUMNS`.
pub(super) fn values(entry: &Entry, shard: u16) -> Result<Vec<Value>, Fault> {
    let (unit, claim) = (entry.unit(), entry.claim());
    Ok(vec![
        claim.map(|(user, _)| hex(user)).into(),
        entry.user_raw().map(str::to_owned).into(),
        claim.map(|(_, number)| i64::from(number)).into(),
        signed(unit.number)?.into(),
        unit.turn.into(),
        unit.cents.into(),
        state(entry).into(),
        claim_id(entry, shard)?.into(),
        idem(entry).into(),
        claimed_ms(entry).into(),
        deadline_ms(entry).into(),
        entry.at_ms.into(),
        entry.kind.as_str().into(),
        signed(entry.incarnation)?.into(),
        signed(entry.ver)?.into(),
    ])
}

/// The entry that was written.
pub(super) fn read(row: &AnyRow) -> Result<Entry, Fault> {
    let unit = Unit { number: unsigned(row, 3)?, turn: small(row, 4)?, cents: row.try_get(5)? };
    let foreign = || Fault::Corrupt(format!("the row of unit {unit} is not as Headcount writes it"));
    let word: String = row.try_get(6)?;
    let kind: String = row.try_get(12)?;
    let ver = unsigned(row, 14)?;
    let subject = if word == REFUNDED {
        Subject::Refund(unit)
    } else {
        let state = STATES.into_iter().find(|state| state.as_str() == word).ok_or_else(foreign)?;
        let id: Option<String> = row.try_get(7)?;
        let id: ClaimId = id.and_then(|id| id.parse().ok()).ok_or_else(foreign)?;
        let record = ClaimRecord {
            state,
            unit,
            secret: id.secret,
            claim_no: small(row, 2)?,
            claimed_ms: row.try_get(9)?,
            deadline_ms: row.try_get::<Option<i64>, _>(10)?.unwrap_or(0),
            ver,
            idem: row.try_get::<Option<String>, _>(8)?.unwrap_or_default(),
        };
        Subject::Claim { user: id.user, user_raw: row.try_get(1)?, record }
    };
    Ok(Entry {
        incarnation: unsigned(row, 13)?,
        ver,
        kind: LogKind::of(&kind).ok_or_else(foreign)?,
        at_ms: row.try_get(11)?,
        subject,
    })
}

pub(super) fn unsigned(row: &AnyRow, column: usize) -> Result<u64, Fault> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|_| Fault::Corrupt(format!("a row of the ledger says {number}")))
}

fn small(row: &AnyRow, column: usize) -> Result<u32, Fault> {
    let number: i64 = row.try_get(column)?;
    u32::try_from(number).map_err(|_| Fault::Corrupt(format!("a row of the ledger says {number}")))
}
