//! How a step of a pool is asked for: its script and the script's arguments.

use bytes::Bytes;

use super::keys::Key;
use super::reply::Command;
use super::scripts::{self, Script};
use crate::domain::quota::claim::{ClaimRecord, UserKey, Wish};
use crate::domain::quota::marks::{Floor, OpMark, Parcel};
use crate::domain::quota::mend::{Blank, CLOCKS_DIFFER_US, Mend};
use crate::domain::quota::step::{ReleasedBy, Step};
use crate::domain::quota::terms::{PoolSchedule, PoolStatus};
use crate::domain::quota::unit::joined;
use crate::store::error::StoreError;

/// Lua counts exactly up to 2^53; times beyond this are as good as never.
const EXACT_MAX: u64 = 9_000_000_000_000_000;

/// The command that takes a step.
///
/// Every step may be sent twice without harm: a claim's second try finds the user's record with the same secret;
/// operations on stock carry a mark, parcels a number, schedules a version, and each is taken once; a debit's second try
/// gets the parcel of the first as `Open`; confirming, releasing, expiring and closing find what is done already; a freeze
/// is as long as the longest that was asked for, and of a pool that is rebuilt each part is taken once.
pub fn command(keys: &[Key; 7], floor: Floor, step: &Step) -> Result<Command, StoreError> {
    let call = script(step).call(keys.iter()).number(exact(floor.incarnation)?).number(exact(floor.ver)?);
    Ok(match step {
        Step::Create { rules, schedule } => {
            let call = call.number(time(rules.hold_ms)).number(time(rules.interval_ms));
            scheduled(call, schedule)?
        }
        Step::Reschedule(schedule) => scheduled(call, schedule)?,
        Step::Restock { op, unretire, units, cool } => {
            let call = marked(call, op)?.number(unretire).number(u8::from(*cool));
            units.iter().fold(call, Command::number)
        }
        Step::Retire { op, count } => marked(call, op)?.number(count),
        Step::Close { limit } | Step::Reap { limit } => call.number(limit),
        Step::Finish => call,
        Step::Claim { wishes } => wished(call, wishes)?,
        Step::Look { user } => call.arg(Bytes::copy_from_slice(&user.0)),
        Step::Confirm { user, secret } => call.arg(Bytes::copy_from_slice(&user.0)).arg(secret.clone()),
        Step::Release { user, secret, by } => {
            let by = match by {
                ReleasedBy::User => "r",
                ReleasedBy::Operator => "v",
            };
            call.arg(Bytes::copy_from_slice(&user.0)).arg(secret.clone()).arg(by)
        }
        Step::Debit { home, want } => call.number(home).number(want),
        Step::Credit { donor, parcel, wishes } => {
            let call = call.number(donor).number(exact(parcel.seq)?).arg(joined(&parcel.units));
            wished(call, wishes)?
        }
        Step::Ack { home, parcel } => call.number(home).arg(parcel_text(parcel)),
        Step::Collect { entries } => call.number(u8::from(*entries)),
        Step::Mend(mend) => mended(call, mend)?,
    })
}

fn mended(call: Command, mend: &Mend) -> Result<Command, StoreError> {
    Ok(match mend {
        Mend::Freeze { for_ms, lost } => {
            lost.iter().fold(call.number(time(*for_ms)).number(CLOCKS_DIFFER_US), Command::number)
        }
        Mend::Thaw | Mend::Fence => call,
        Mend::Empty(blank) => {
            let Blank { rules, schedule, came, .. } = &**blank;
            let call = call.number(exact(blank.mender)?).arg(status_word(blank.status));
            let call = call.number(exact(blank.incarnation)?).number(exact(blank.ver)?).number(exact(blank.seq)?);
            let call = call.number(exact(blank.refunded)?).number(blank.refunded_cents);
            let call = scheduled(call.number(time(rules.hold_ms)).number(time(rules.interval_ms)), schedule)?;
            came.iter()
                .try_fold(call, |call, (donor, seq)| Ok::<_, StoreError>(call.number(donor).number(exact(*seq)?)))?
        }
        Mend::Fill { mender, part, claims, stock, retired } => {
            let call = call.number(exact(*mender)?).number(exact(*part)?).number(claims.len()).number(stock.len());
            let claimed = |call: Command, (user, record): &(UserKey, ClaimRecord)| {
                call.arg(Bytes::copy_from_slice(&user.0)).number(record)
            };
            stock.iter().chain(retired).fold(claims.iter().fold(call, claimed), Command::number)
        }
        Mend::Reopen { mender } => call.number(exact(*mender)?),
    })
}

fn script(step: &Step) -> &'static Script {
    match step {
        Step::Create { .. } => &scripts::POOL_CREATE,
        Step::Reschedule(_) => &scripts::POOL_RESCHEDULE,
        Step::Restock { .. } => &scripts::POOL_RESTOCK,
        Step::Retire { .. } => &scripts::POOL_RETIRE,
        Step::Close { .. } => &scripts::POOL_CLOSE,
        Step::Finish => &scripts::POOL_FINISH,
        Step::Claim { .. } => &scripts::POOL_CLAIM,
        Step::Look { .. } => &scripts::POOL_LOOK,
        Step::Confirm { .. } => &scripts::POOL_CONFIRM,
        Step::Release { .. } => &scripts::POOL_RELEASE,
        Step::Reap { .. } => &scripts::POOL_REAP,
        Step::Debit { .. } => &scripts::POOL_DEBIT,
        Step::Credit { .. } => &scripts::POOL_CREDIT,
        Step::Ack { .. } => &scripts::POOL_ACK,
        Step::Collect { .. } => &scripts::POOL_COLLECT,
        Step::Mend(Mend::Freeze { .. }) => &scripts::POOL_FREEZE,
        Step::Mend(Mend::Thaw) => &scripts::POOL_THAW,
        Step::Mend(Mend::Fence) => &scripts::POOL_FENCE,
        Step::Mend(Mend::Empty(_)) => &scripts::POOL_EMPTY,
        Step::Mend(Mend::Fill { .. }) => &scripts::POOL_FILL,
        Step::Mend(Mend::Reopen { .. }) => &scripts::POOL_REOPEN,
    }
}

/// As a pool keeps it.
pub fn status_word(status: PoolStatus) -> &'static str {
    match status {
        PoolStatus::Open => "open",
        PoolStatus::Closing => "closing",
        PoolStatus::Closed => "closed",
    }
}

/// As a pool keeps it: `seq|unit,unit`.
pub fn parcel_text(parcel: &Parcel) -> String {
    format!("{}|{}", parcel.seq, joined(&parcel.units))
}

fn scheduled(call: Command, schedule: &PoolSchedule) -> Result<Command, StoreError> {
    let PoolSchedule { version, opens_ms, closes_ms, paused } = schedule;
    let call = call.number(exact(*version)?).number(time(*opens_ms)).number(time(*closes_ms));
    Ok(call.number(u8::from(*paused)))
}

fn marked(call: Command, op: &OpMark) -> Result<Command, StoreError> {
    Ok(call.number(exact(op.operation)?).number(exact(op.chunk)?))
}

fn wished(call: Command, wishes: &[Wish]) -> Result<Command, StoreError> {
    wishes.iter().try_fold(call, |call, wish| {
        // They become parts of the record, which this divides.
        if wish.secret.contains('|') || wish.idem.contains('|') {
            return Err(StoreError::Refused("a secret or an idempotency digest with a | in it".into()));
        }
        let call = call.arg(Bytes::copy_from_slice(&wish.user.0)).arg(wish.user_raw.clone());
        Ok(call.arg(wish.secret.clone()).arg(wish.idem.clone()))
    })
}

/// What Lua would round is refused.
fn exact(number: u64) -> Result<u64, StoreError> {
    if number <= EXACT_MAX { Ok(number) } else { Err(StoreError::Refused(format!("{number} is too large to be kept"))) }
}

fn time(ms: i64) -> i64 {
    ms.clamp(-(EXACT_MAX as i64), EXACT_MAX as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::redis::keys;
    use crate::domain::id::CampaignId;
    use crate::domain::quota::claim::UserKey;
    use crate::domain::ring::Position;
    use crate::store::pools::PoolAddress;

    fn of(step: Step) -> Result<Vec<Bytes>, StoreError> {
        let pool = PoolAddress { campaign: CampaignId::new("c").unwrap(), position: Position::FIRST };
        command(&keys::pool(&pool), Floor { incarnation: 2, ver: 7 }, &step).map(|command| command.arguments)
    }

    #[test]
    fn never_is_a_number_that_lua_counts_exactly() {
        let schedule = PoolSchedule { version: 1, opens_ms: i64::MIN, closes_ms: i64::MAX, paused: true };
        let arguments = of(Step::Reschedule(schedule)).unwrap();
        assert_eq!(&arguments[1], "7", "keys");
        assert_eq!(arguments[9..], ["2", "7", "1", "-9000000000000000", "9000000000000000", "1"].map(Bytes::from));
        let large = OpMark { operation: 1 << 53, chunk: 0 };
        assert!(matches!(of(Step::Retire { op: large, count: 1 }), Err(StoreError::Refused(_))));
    }

    #[test]
    fn a_secret_cannot_break_a_record() {
        let wish = Wish { user: UserKey([1; 16]), user_raw: "ada".into(), secret: "a|b".into(), idem: String::new() };
        assert!(matches!(of(Step::Claim { wishes: vec![wish] }), Err(StoreError::Refused(_))));
    }
}
