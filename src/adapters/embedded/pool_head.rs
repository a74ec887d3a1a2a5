//! A pool's head, which says everything but the claims and what packets hold.
//!
//! It is JSON, so that it can be read without this program, and carries the number of its form. A form that this program
//! does not know is foreign: better no answer than one that forgot a field.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::format;
use super::pool_log::Log;
use super::pool_runs::{Amounts, cooling_of, cooling_runs, runs, units_of};
use crate::domain::quota::claim::{ClaimRecord, ClaimState, UserKey};
use crate::domain::quota::marks::{OpMark, Parcel};
use crate::domain::quota::pool::Pool;
use crate::domain::quota::terms::{PoolRules, PoolSchedule, PoolStatus};

const FORM: u32 = 1;

/// The head of a pool that is going: it is absent for everybody, and its other rows are being deleted.
pub const GOING: &[u8] = br#"{"form":1,"going":true}"#;

/// Fields with a default came later: files without them are still read.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    form: u32,
    hold_ms: i64,
    interval_ms: i64,
    schedule_version: u64,
    opens_ms: i64,
    closes_ms: i64,
    paused: bool,
    status: Status,
    fenced: bool,
    seen: u64,
    run: String,
    admitting_until_ms: i64,
    #[serde(default)]
    frozen_until_ms: i64,
    #[serde(default)]
    mender: u64,
    #[serde(default)]
    mended: u64,
    incarnation: u64,
    ver: u64,
    sver: u64,
    seq: u64,
    /// Units are runs (`pool_runs.rs`).
    avail: String,
    cooling: String,
    retired: String,
    refunded: u64,
    #[serde(default)]
    refunded_cents: i64,
    confirmed: u64,
    #[serde(default)]
    taken_cents: i64,
    /// How many rows of claims there are: one that is missing must be noticed.
    claims: u64,
    out: BTreeMap<u16, (u64, String)>,
    came: BTreeMap<u16, (u64, u64)>,
    op: (u64, u64),
    op_chunk: u32,
    op_total: u64,
    /// Which entries of the outbox are kept: see `pool_log.rs`.
    log_next: u64,
    #[serde(default)]
    log_first: u64,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    log_gaps: BTreeSet<u64>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Open,
    Closing,
    Closed,
}

pub fn head_value(pool: &Pool, log: &Log) -> Bytes {
    let head = Head {
        form: FORM,
        hold_ms: pool.rules.hold_ms,
        interval_ms: pool.rules.interval_ms,
        schedule_version: pool.schedule.version,
        opens_ms: pool.schedule.opens_ms,
        closes_ms: pool.schedule.closes_ms,
        paused: pool.schedule.paused,
        status: match pool.status {
            PoolStatus::Open => Status::Open,
            PoolStatus::Closing => Status::Closing,
            PoolStatus::Closed => Status::Closed,
        },
        fenced: pool.fenced,
        seen: pool.seen,
        run: pool.run.clone(),
        admitting_until_ms: pool.admitting_until_ms,
        frozen_until_ms: pool.frozen_until_ms,
        mender: pool.mender,
        mended: pool.mended,
        incarnation: pool.incarnation,
        ver: pool.ver,
        sver: pool.sver,
        seq: pool.seq,
        avail: runs(&pool.avail),
        cooling: cooling_runs(&pool.cooling),
        retired: runs(&pool.retired),
        refunded: pool.refunded,
        refunded_cents: pool.refunded_cents,
        confirmed: pool.confirmed,
        taken_cents: pool.taken_cents,
        claims: pool.claims.len() as u64,
        out: pool.out.iter().map(|(home, parcel)| (*home, (parcel.seq, runs(&parcel.units)))).collect(),
        came: pool.came.clone(),
        op: (pool.op.operation, pool.op.chunk),
        op_chunk: pool.op_chunk,
        op_total: pool.op_total,
        log_next: log.next(),
        log_first: log.first(),
        log_gaps: log.gaps().clone(),
    };
    format::json(&head)
}

/// What a head says of the outbox.
#[derive(Deserialize)]
struct NewsHead {
    form: u32,
    incarnation: u64,
    ver: u64,
    log_next: u64,
    #[serde(default)]
    log_first: u64,
    #[serde(default)]
    log_gaps: BTreeSet<u64>,
}

/// Where a pool stood when its head was written, and which entries of its outbox were kept.
#[derive(Debug, PartialEq, Eq)]
pub struct News {
    pub incarnation: u64,
    pub ver: u64,
    pub log: Log,
}

/// The part of a head that readers of the outbox need. None: the pool is going.
pub fn news_of(value: &[u8]) -> Result<Option<News>, String> {
    if value == GOING {
        return Ok(None);
    }
    let head: NewsHead = serde_json::from_slice(value).map_err(|error| foreign(&error))?;
    let NewsHead { form, incarnation, ver, log_next, log_first, log_gaps } = head;
    known(form)?;
    Ok(Some(News { incarnation, ver, log: log_of(log_first, log_next, log_gaps)? }))
}

fn log_of(first: u64, next: u64, gaps: BTreeSet<u64>) -> Result<Log, String> {
    let inside = gaps.iter().all(|gap| (first..next).contains(gap));
    if first <= next && inside {
        return Ok(Log::new(first, next, gaps));
    }
    Err(format!("an outbox from {first} to {next} with gaps {gaps:?}"))
}

fn foreign(error: &serde_json::Error) -> String {
    format!("not the head of a pool: {error}")
}

fn known(form: u32) -> Result<(), String> {
    if form == FORM { Ok(()) } else { Err(format!("a head of form {form}, and this program knows {FORM}")) }
}

/// The pool that a head, its claims and the amounts of its packets make, and its outbox; or what is wrong with them.
pub fn pool_of(value: &[u8], claims: BTreeMap<UserKey, ClaimRecord>, amounts: &Amounts) -> Result<(Pool, Log), String> {
    let head: Head = serde_json::from_slice(value).map_err(|error| foreign(&error))?;
    known(head.form)?;
    let (deadlines, confirmed) = fitting(&head, &claims)?;
    let units = |what, text: &str| {
        units_of(text, amounts).ok_or_else(|| format!("{what} are not units, or an amount is missing"))
    };
    let log = log_of(head.log_first, head.log_next, head.log_gaps)?;
    let parcel = |(home, (seq, text)): (u16, (u64, String))| {
        Ok((home, Parcel { seq, units: units("those on their way", &text)?.into() }))
    };
    let pool = Pool {
        rules: PoolRules { hold_ms: head.hold_ms, interval_ms: head.interval_ms },
        schedule: PoolSchedule {
            version: head.schedule_version,
            opens_ms: head.opens_ms,
            closes_ms: head.closes_ms,
            paused: head.paused,
        },
        status: match head.status {
            Status::Open => PoolStatus::Open,
            Status::Closing => PoolStatus::Closing,
            Status::Closed => PoolStatus::Closed,
        },
        fenced: head.fenced,
        seen: head.seen,
        run: head.run,
        admitting_until_ms: head.admitting_until_ms,
        frozen_until_ms: head.frozen_until_ms,
        mender: head.mender,
        mended: head.mended,
        incarnation: head.incarnation,
        ver: head.ver,
        sver: head.sver,
        seq: head.seq,
        avail: units("those in stock", &head.avail)?,
        cooling: cooling_of(&head.cooling, amounts).ok_or("those that cool are not units, or an amount is missing")?,
        retired: units("those retired", &head.retired)?,
        refunded: head.refunded,
        refunded_cents: head.refunded_cents,
        claims,
        deadlines,
        confirmed,
        taken_cents: head.taken_cents,
        out: head.out.into_iter().map(parcel).collect::<Result<_, String>>()?,
        came: head.came,
        op: OpMark { operation: head.op.0, chunk: head.op.1 },
        op_chunk: head.op_chunk,
        op_total: head.op_total,
        log: Vec::new(),
    };
    Ok((pool, log))
}

/// The deadlines of held claims and the number of confirmed ones, if claims and head are of one instant.
fn fitting(head: &Head, claims: &BTreeMap<UserKey, ClaimRecord>) -> Result<(BTreeSet<(i64, UserKey)>, u64), String> {
    let held = claims.iter().filter(|(_, claim)| claim.state == ClaimState::Held);
    let deadlines = held.map(|(user, claim)| (claim.deadline_ms, *user)).collect();
    let confirmed = claims.values().filter(|claim| claim.state == ClaimState::Confirmed).count() as u64;
    if (claims.len() as u64, confirmed) != (head.claims, head.confirmed) {
        let (found, told, of_head) = (claims.len(), head.claims, head.confirmed);
        return Err(format!("{found} claims, {confirmed} of them confirmed, where {told} and {of_head} should be"));
    }
    // A rebuilt pool has claims of an earlier incarnation, whose versions mean nothing here.
    let newer = claims.values().find(|claim| head.incarnation == 1 && claim.ver > head.ver);
    newer.map_or(Ok((deadlines, confirmed)), |claim| {
        Err(format!("a claim of version {} in a pool of version {}", claim.ver, head.ver))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::quota::unit::{Cooling, Unit};

    fn full() -> Pool {
        let rules = PoolRules { hold_ms: 600_000, interval_ms: 1000 };
        let schedule = PoolSchedule { version: 3, opens_ms: 1, closes_ms: i64::MAX, paused: true };
        let mut pool = Pool::new(rules, schedule, "embedded");
        pool.status = PoolStatus::Closing;
        (pool.fenced, pool.seen, pool.admitting_until_ms) = (true, 99, 8);
        (pool.frozen_until_ms, pool.mender, pool.mended) = (9, 10, 11);
        (pool.refunded_cents, pool.taken_cents) = (12, 13);
        (pool.ver, pool.sver, pool.seq, pool.refunded) = (40, 30, u64::MAX, 5);
        pool.avail = [Unit::new(1), Unit::new(2), Unit { number: 9, turn: 3, cents: None }].into();
        pool.retired = [Unit::new(7)].into();
        pool.cooling = [Cooling { ready_ms: 77, unit: Unit::new(4) }].into();
        let claim = |text: &str| text.parse::<ClaimRecord>().unwrap();
        let claims = [claim("h|10#0|a|1|5|900|39|"), claim("c|11#0|b|2|5|0|40|x"), claim("r|12#0|c|1|5|6|38|")];
        pool.claims = (0u8..).map(|user| UserKey([user; 16])).zip(claims).collect();
        pool.deadlines = [(900, UserKey([0; 16]))].into();
        pool.confirmed = 1;
        pool.out = [(3, Parcel { seq: 1, units: vec![Unit::new(20), Unit::new(21)] })].into();
        pool.came = [(5, (6, u64::MAX))].into();
        (pool.op, pool.op_chunk, pool.op_total) = (OpMark { operation: 1, chunk: 2 }, 3, 4);
        pool
    }

    fn log() -> Log {
        Log::new(9, 12, [10].into())
    }

    fn none() -> Amounts {
        Amounts::new()
    }

    #[test]
    fn pools_are_read_as_they_are_written() {
        let pool = full();
        let head = head_value(&pool, &log());
        assert_eq!(pool_of(&head, pool.claims.clone(), &none()), Ok((pool.clone(), log())));
        assert_eq!(news_of(&head), Ok(Some(News { incarnation: 1, ver: 40, log: log() })));
        assert_eq!(news_of(GOING), Ok(None));

        let mut rebuilt = pool;
        (rebuilt.incarnation, rebuilt.ver) = (2, 1);
        let head = head_value(&rebuilt, &log());
        assert_eq!(pool_of(&head, rebuilt.claims.clone(), &none()), Ok((rebuilt, log())));
    }

    /// The file format of every installation: a change here needs a new form, and this one must still be read.
    #[test]
    fn the_forms_are_frozen() {
        let text = r#"{"form":1,"hold_ms":600000,"interval_ms":1000,"schedule_version":3,"opens_ms":1,"closes_ms":9223372036854775807,"paused":true,"status":"closing","fenced":true,"seen":99,"run":"embedded","admitting_until_ms":8,"frozen_until_ms":9,"mender":10,"mended":11,"incarnation":1,"ver":40,"sver":30,"seq":18446744073709551615,"avail":"1-2#0,9#3","cooling":"77:4#0","retired":"7#0","refunded":5,"refunded_cents":12,"confirmed":1,"taken_cents":13,"claims":3,"out":{"3":[1,"20-21#0"]},"came":{"5":[6,18446744073709551615]},"op":[1,2],"op_chunk":3,"op_total":4,"log_next":12,"log_first":9,"log_gaps":[10]}"#;
        assert_eq!(std::str::from_utf8(&head_value(&full(), &log())).unwrap(), text);
    }

    /// Of a file from before there were packets, mending, and readers of outboxes.
    #[test]
    fn older_heads_are_read() {
        let text = r#"{"form":1,"hold_ms":600000,"interval_ms":1000,"schedule_version":3,"opens_ms":1,"closes_ms":9223372036854775807,"paused":true,"status":"closing","fenced":true,"seen":99,"run":"embedded","admitting_until_ms":8,"incarnation":1,"ver":40,"sver":30,"seq":18446744073709551615,"avail":"1-2#0,9#3","cooling":"77:4#0","retired":"7#0","refunded":5,"confirmed":1,"claims":3,"out":{"3":[1,"20-21#0"]},"came":{"5":[6,18446744073709551615]},"op":[1,2],"op_chunk":3,"op_total":4,"log_next":12}"#;
        let mut pool = full();
        (pool.frozen_until_ms, pool.mender, pool.mended) = (0, 0, 0);
        (pool.refunded_cents, pool.taken_cents) = (0, 0);
        let log = Log::new(0, 12, BTreeSet::new());
        assert_eq!(pool_of(text.as_bytes(), pool.claims.clone(), &none()), Ok((pool, log)));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let pool = full();
        let head = head_value(&pool, &log());
        let wrong = |head: &[u8], claims| pool_of(head, claims, &none()).map(drop).unwrap_err();
        let changed = |from: &str, to: &str| std::str::from_utf8(&head).unwrap().replace(from, to).into_bytes();
        let claims = || pool.claims.clone();
        assert!(wrong(b"x", claims()).contains("not the head of a pool"));
        assert!(wrong(GOING, claims()).contains("not the head of a pool"));
        assert!(wrong(&changed("\"form\":1", "\"form\":2"), claims()).contains("a head of form 2"));
        assert!(wrong(&changed("\"op\":", "\"new\":1,\"op\":"), claims()).contains("unknown field `new`"));
        assert!(wrong(&changed("1-2#0", "2-1#0"), claims()).contains("those in stock are not units"));
        assert!(wrong(&changed("20-21#0", "x"), claims()).contains("those on their way are not units"));
        assert!(wrong(&changed("1-2#0", "1-2#0:"), claims()).contains("an amount is missing"));
        assert!(wrong(&changed("\"log_first\":9", "\"log_first\":13"), claims()).contains("an outbox from 13"));
        assert!(wrong(&changed("[10]", "[12]"), claims()).contains("with gaps {12}"));
        assert!(wrong(&changed("\"ver\":40", "\"ver\":39"), claims()).contains("a claim of version 40"));
        assert!(wrong(&changed("\"confirmed\":1", "\"confirmed\":2"), claims()).contains("1 of them confirmed"));
        let mut fewer = claims();
        fewer.remove(&UserKey([2; 16]));
        assert!(wrong(&head, fewer).contains("2 claims"));
    }
}
