//! A pool's rows: the head, which says everything but the claims, and the entries of its outbox.
//!
//! Both are JSON, so that they can be read without this program, and carry the number of their form. A form that this
//! program does not know is foreign: better no answer than one that forgot a field.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::format;
use super::pool_runs::{cooling_of, cooling_runs, runs, units_of};
use crate::domain::quota::claim::{ClaimRecord, ClaimState, UserKey};
use crate::domain::quota::marks::{OpMark, Parcel};
use crate::domain::quota::pool::{LogEntry, Pool};
use crate::domain::quota::terms::{PoolRules, PoolSchedule, PoolStatus};

const FORM: u32 = 1;

/// The head of a pool that is going: it is absent for everybody, and its other rows are being deleted.
pub const GOING: &[u8] = br#"{"form":1,"going":true}"#;

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
    frozen_until_ms: i64,
    mender: u64,
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
    refunded_cents: i64,
    confirmed: u64,
    taken_cents: i64,
    /// How many rows of claims there are: one that is missing must be noticed.
    claims: u64,
    out: BTreeMap<u16, (u64, String)>,
    came: BTreeMap<u16, (u64, u64)>,
    op: (u64, u64),
    op_chunk: u32,
    op_total: u64,
    /// The index of the next entry of the outbox.
    log_next: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Open,
    Closing,
    Closed,
}

pub fn head_value(pool: &Pool, log_next: u64) -> Bytes {
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
        log_next,
    };
    json(&head)
}

/// The pool that a head and its claims make, and the next index of its outbox; or what is wrong with them.
pub fn pool_of(value: &[u8], claims: BTreeMap<UserKey, ClaimRecord>) -> Result<(Pool, u64), String> {
    let head: Head = serde_json::from_slice(value).map_err(|error| format!("not the head of a pool: {error}"))?;
    if head.form != FORM {
        return Err(format!("a head of form {}, and this program knows {FORM}", head.form));
    }
    let held = claims.iter().filter(|(_, claim)| claim.state == ClaimState::Held);
    let deadlines: BTreeSet<(i64, UserKey)> = held.map(|(user, claim)| (claim.deadline_ms, *user)).collect();
    let confirmed = claims.values().filter(|claim| claim.state == ClaimState::Confirmed).count() as u64;
    if (claims.len() as u64, confirmed) != (head.claims, head.confirmed) {
        let (found, told, of_head) = (claims.len(), head.claims, head.confirmed);
        return Err(format!("{found} claims, {confirmed} of them confirmed, where {told} and {of_head} should be"));
    }
    if let Some(claim) = claims.values().find(|claim| claim.ver > head.ver) {
        return Err(format!("a claim of version {} in a pool of version {}", claim.ver, head.ver));
    }
    let units = |what, text: &str| units_of(text).ok_or_else(|| format!("{what} are not units"));
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
        cooling: cooling_of(&head.cooling).ok_or("those that cool are not units")?,
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
    Ok((pool, head.log_next))
}

/// An entry of the outbox, for whoever brings it to the ledger.
#[derive(Serialize)]
struct Entry<'a> {
    form: u32,
    /// With `ver` it orders the news of a claim.
    incarnation: u64,
    ver: u64,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_raw: Option<&'a str>,
    text: &'a str,
}

pub fn entry_value(incarnation: u64, entry: &LogEntry) -> Bytes {
    let LogEntry { ver, kind, user, user_raw, text } = entry;
    let user = user.map(format::user_text);
    json(&Entry { form: FORM, incarnation, ver: *ver, kind: kind.as_str(), user, user_raw: user_raw.as_deref(), text })
}

fn json(value: &impl Serialize) -> Bytes {
    // Plain structs with keys that are numbers or names: nothing that JSON lacks.
    serde_json::to_vec(value).expect("structs of numbers and texts are JSON").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::quota::pool::LogKind;
    use crate::domain::quota::unit::{Cooling, Unit};

    fn full() -> Pool {
        let rules = PoolRules { hold_ms: 600_000, interval_ms: 1000 };
        let schedule = PoolSchedule { version: 3, opens_ms: 1, closes_ms: i64::MAX, paused: true };
        let mut pool = Pool::new(rules, schedule, "embedded");
        pool.status = PoolStatus::Closing;
        (pool.fenced, pool.seen, pool.admitting_until_ms, pool.incarnation) = (true, 99, 8, 2);
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

    #[test]
    fn pools_are_read_as_they_are_written() {
        let pool = full();
        assert_eq!(pool_of(&head_value(&pool, 12), pool.claims.clone()), Ok((pool, 12)));
    }

    /// The file format of every installation: a change here needs a new form, and this one must still be read.
    #[test]
    fn the_forms_are_frozen() {
        let text = r#"{"form":1,"hold_ms":600000,"interval_ms":1000,"schedule_version":3,"opens_ms":1,"closes_ms":9223372036854775807,"paused":true,"status":"closing","fenced":true,"seen":99,"run":"embedded","admitting_until_ms":8,"incarnation":2,"ver":40,"sver":30,"seq":18446744073709551615,"avail":"1-2#0,9#3","cooling":"77:4#0","retired":"7#0","refunded":5,"confirmed":1,"claims":3,"out":{"3":[1,"20-21#0"]},"came":{"5":[6,18446744073709551615]},"op":[1,2],"op_chunk":3,"op_total":4,"log_next":12}"#;
        assert_eq!(std::str::from_utf8(&head_value(&full(), 12)).unwrap(), text);
        let (user, user_raw) = (Some(UserKey([1; 16])), Some("a \"b\"".to_owned()));
        let entry = LogEntry { ver: 7, kind: LogKind::Grant, user, user_raw, text: "t".to_owned() };
        let text = r#"{"form":1,"incarnation":2,"ver":7,"kind":"grant","user":"01010101010101010101010101010101","user_raw":"a \"b\"","text":"t"}"#;
        assert_eq!(std::str::from_utf8(&entry_value(2, &entry)).unwrap(), text);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let pool = full();
        let head = head_value(&pool, 12);
        let wrong = |head: &[u8], claims| pool_of(head, claims).map(drop).unwrap_err();
        let changed = |from: &str, to: &str| std::str::from_utf8(&head).unwrap().replace(from, to).into_bytes();
        let claims = || pool.claims.clone();
        assert!(wrong(b"x", claims()).contains("not the head of a pool"));
        assert!(wrong(GOING, claims()).contains("not the head of a pool"));
        assert!(wrong(&changed("\"form\":1", "\"form\":2"), claims()).contains("a head of form 2"));
        assert!(wrong(&changed("\"op\":", "\"new\":1,\"op\":"), claims()).contains("unknown field `new`"));
        assert!(wrong(&changed("1-2#0", "2-1#0"), claims()).contains("those in stock are not units"));
        assert!(wrong(&changed("20-21#0", "x"), claims()).contains("those on their way are not units"));
        assert!(wrong(&changed("\"ver\":40", "\"ver\":39"), claims()).contains("a claim of version 40"));
        assert!(wrong(&changed("\"confirmed\":1", "\"confirmed\":2"), claims()).contains("1 of them confirmed"));
        let mut fewer = claims();
        fewer.remove(&UserKey([2; 16]));
        assert!(wrong(&head, fewer).contains("2 claims"));
    }
}
