//! Every Redis key is built here, and nowhere else.
//!
//! ```text
//! hc:{4pw}:s:site␟0␟d2015-05-17␟
//! ── ───── ─ ──── ─ ─────────── ─
//!  │   │   │  │   │      │      └ dimensions (none in this version)
//!  │   │   │  │   │      └ period, or what was asked
//!  │   │   │  │   └ generation: a reset raises it
//!  │   │   │  └ event or campaign
//!  │   │   └ kind, see below
//!  │   └ hash tag: what Redis Cluster turns into a slot (tags.rs)
//!  └ so that a shared Redis shows whose it is
//! ```
//!
//! ␟ is the byte 0x1F, which ids cannot contain (they may contain `:`), so no two things share a key.
//!
//! | kind | type | at | what |
//! |---|---|---|---|
//! | `s` | string (HyperLogLog) | its position | sketch of an event |
//! | `m` | string | position 0 | `sharded`: the event's sketches count. A later version keeps small events as a set here |
//! | `l` | hash | position 0 | layout: `c` coarsest, `f` finest shard count |
//! | `p` | string | position 0 | published answer: `as_of_ms:body` |
//! | `q` | string | position 0 | lease of who computes the next answer: the holder's token |
//! | `a` | sorted set | position 0 | attendance: process → when it last admitted, server's milliseconds |
//! | `cs` `cm` `cl` `cp` `cq` `ca` | | | the same of a campaign's claimants: no public visit reaches them |
//! | `e` `k` | hash | position 0 | record of an event, of a campaign: `v` version, `b` body |
//! | `re` `rk` | sorted set | position 64·bucket | registry: ids that have a record, each behind a `=` |
//! | `rf` | hash | position 64·bucket | the deployment's facts, one copy per bucket |
//! | `h` | string | position 0 | the deployment's hash key, 32 hex digits |
//! | `xs` `xp` `xc` `xd` `xk` `xl` `xr` | | its position | a campaign's pool: state, pool, claims, deadlines, cooling, log, retired (lua/pool_prelude.lua) |
//! | `xg` | string | its position | published claimants of a pool: `incarnation/run/log id`, a line's end, 8 bytes a user |
//! | `xb` | string | its position | lease of who builds them |
//! | `xu` `xe` `xm` | string | position 0 | lease of a campaign's upkeep, of its drain, of its mending: the holder |
//! | `t` | string | any | inputs of a merge; gone when its script ends |
//!
//! All keys of one event and position share a slot, whatever the period.

use bytes::Bytes;

use super::tags::{Tag, tag};
use crate::domain::counter::{Counter, SketchAddress, Subject};
use crate::domain::id::CampaignId;
use crate::domain::ring::{POSITIONS, Position, phase};
use crate::store::counters::AnswerKey;
use crate::store::pools::{Duty, PoolAddress};
use crate::store::records::RecordKind;

/// Ends each part of a key; ids cannot contain it.
const SEPARATOR: char = '\x1f';
/// Buckets of the registry: enough that listing a hundred thousand ids is no hot key, few enough to ask all of them.
pub const REGISTRY_BUCKETS: u16 = 16;

/// A key, and the slot that owns it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub text: Bytes,
    pub slot: u16,
}

pub fn sketch(address: &SketchAddress) -> Key {
    of_counter("s", &address.counter, address.position)
}

pub fn marker(counter: &Counter) -> Key {
    of_counter("m", counter, Position::FIRST)
}

pub fn layout(counter: &Counter) -> Key {
    of_counter("l", counter, Position::FIRST)
}

pub fn published(key: &AnswerKey) -> Key {
    of_answer("p", key)
}

pub fn lease(key: &AnswerKey) -> Key {
    of_answer("q", key)
}

pub fn attendance(key: &AnswerKey) -> Key {
    of_answer("a", key)
}

pub fn record(kind: RecordKind, id: &str) -> Key {
    build(tag(Position::FIRST, phase(id)), record_kind(kind), id)
}

/// Ids with a record of this kind that belong into a bucket.
pub fn registry(bucket: u16, kind: RecordKind) -> Key {
    build(registry_tag(bucket), if kind == RecordKind::Event { "re" } else { "rk" }, "")
}

pub fn facts(bucket: u16) -> Key {
    build(registry_tag(bucket), "rf", "")
}

/// The bucket of an id: the one whose position is nearest below the id's phase, so that a record and its entry in the
/// registry mostly lie on one node and fail together.
pub fn registry_bucket(id: &str) -> u16 {
    phase(id) / (POSITIONS / REGISTRY_BUCKETS)
}

pub fn hash_key() -> Key {
    build(tag(Position::FIRST, 0), "h", "")
}

/// The seven keys of a pool, in the order in which its scripts name them: the state first, the log at `LOG`.
pub fn pool(address: &PoolAddress) -> [Key; 7] {
    ["xs", "xp", "xc", "xd", "xk", "xl", "xr"].map(|kind| of_pool(kind, address))
}

/// Places in `pool`.
pub const STATE: usize = 0;
pub const STOCK: usize = 1;
pub const CLAIMS: usize = 2;
pub const COOLING: usize = 4;
pub const LOG: usize = 5;
pub const RETIRED: usize = 6;

pub fn pool_claimants(address: &PoolAddress) -> Key {
    of_pool("xg", address)
}

pub fn pool_claimants_lease(address: &PoolAddress) -> Key {
    of_pool("xb", address)
}

pub fn duty_lease(campaign: &CampaignId, duty: Duty) -> Key {
    let kind = match duty {
        Duty::Upkeep => "xu",
        Duty::Drain => "xe",
        Duty::Mend => "xm",
    };
    of_pool(kind, &PoolAddress { campaign: campaign.clone(), position: Position::FIRST })
}

/// Keys of one merge, all in one slot and used by nobody else. `place` (any number) chooses where on the cluster.
pub fn temporary(place: u64, nonce: u64, count: usize) -> Vec<Key> {
    // The remainder is below 1024, so it fits and is a position.
    let tag = tag(Position::FIRST, (place % u64::from(POSITIONS)) as u16);
    (0..count).map(|number| build(tag, "t", &format!("{nonce:016x}{SEPARATOR}{number}"))).collect()
}

/// A temporary key beside a sketch, in its slot.
pub fn temporary_beside(address: &SketchAddress, nonce: u64) -> Key {
    build(tag(address.position, address.counter.subject.phase()), "t", &format!("{nonce:016x}{SEPARATOR}"))
}

fn registry_tag(bucket: u16) -> Tag {
    tag(Position::new(bucket * (POSITIONS / REGISTRY_BUCKETS)).unwrap_or(Position::FIRST), 0)
}

fn record_kind(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Event => "e",
        RecordKind::Campaign => "k",
    }
}

fn of_counter(kind: &str, counter: &Counter, position: Position) -> Key {
    let Counter { subject, generation, period } = counter;
    of_subject(kind, subject, position, *generation, period)
}

fn of_answer(kind: &str, key: &AnswerKey) -> Key {
    of_subject(kind, &key.subject, Position::FIRST, key.generation, &key.question)
}

/// The tag tells the position: no two positions of a campaign share one.
fn of_pool(kind: &str, address: &PoolAddress) -> Key {
    let id = address.campaign.as_str();
    build(tag(address.position, phase(id)), kind, id)
}

fn of_subject(
    kind: &str,
    subject: &Subject,
    position: Position,
    generation: u64,
    middle: &dyn std::fmt::Display,
) -> Key {
    let prefix = match subject {
        Subject::Event(_) => "",
        Subject::Claimants(_) => "c",
    };
    let rest = format!("{}{SEPARATOR}{generation}{SEPARATOR}{middle}{SEPARATOR}", subject.id());
    build(tag(position, subject.phase()), &format!("{prefix}{kind}"), &rest)
}

fn build(tag: Tag, kind: &str, rest: &str) -> Key {
    Key { text: Bytes::from(format!("hc:{{{}}}:{kind}:{rest}", tag.as_str())), slot: tag.slot }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::adapters::redis::tags::slot_of_tag;
    use crate::domain::id::{CampaignId, EventId};
    use crate::domain::period::Period;

    fn counter(subject: Subject) -> Counter {
        Counter { subject, generation: 7, period: Period::Day("2015-05-17".parse().unwrap()) }
    }

    fn text(key: &Key) -> String {
        let text = std::str::from_utf8(&key.text).unwrap().replace(SEPARATOR, "|");
        let tag = text.split(['{', '}']).nth(1).unwrap();
        assert_eq!(slot_of_tag(tag.as_bytes()), key.slot);
        text
    }

    #[test]
    fn key_texts_are_frozen() {
        let event = counter(Subject::Event(EventId::new("site").unwrap()));
        let claimants = counter(Subject::Claimants(CampaignId::new("site").unwrap()));
        let at = |counter: &Counter, position| SketchAddress {
            counter: Arc::new(counter.clone()),
            position: Position::new(position).unwrap(),
        };
        let answer = AnswerKey { subject: event.subject.clone(), generation: 7, question: "d2015-05-17".into() };
        let shard = PoolAddress { campaign: CampaignId::new("site").unwrap(), position: Position::new(960).unwrap() };
        let keys = [
            sketch(&at(&event, 0)),
            sketch(&at(&event, 960)),
            sketch(&at(&claimants, 64)),
            marker(&event),
            layout(&event),
            layout(&claimants),
            published(&answer),
            lease(&answer),
            attendance(&answer),
            record(RecordKind::Event, "site"),
            record(RecordKind::Campaign, "双十一"),
            registry(0, RecordKind::Event),
            registry(15, RecordKind::Campaign),
            facts(1),
            hash_key(),
            temporary(5, 255, 2)[1].clone(),
            pool(&shard)[STATE].clone(),
            pool(&shard)[LOG].clone(),
            pool_claimants(&shard),
            pool_claimants_lease(&shard),
            duty_lease(&shard.campaign, Duty::Upkeep),
            duty_lease(&shard.campaign, Duty::Drain),
            duty_lease(&shard.campaign, Duty::Mend),
        ];
        let texts: Vec<String> = keys.iter().map(text).collect();
        assert_eq!(
            texts,
            [
                "hc:{b3}:s:site|7|d2015-05-17|",
                "hc:{9}:s:site|7|d2015-05-17|",
                "hc:{fs}:cs:site|7|d2015-05-17|",
                "hc:{b3}:m:site|7|d2015-05-17|",
                "hc:{b3}:l:site|7|d2015-05-17|",
                "hc:{b3}:cl:site|7|d2015-05-17|",
                "hc:{b3}:p:site|7|d2015-05-17|",
                "hc:{b3}:q:site|7|d2015-05-17|",
                "hc:{b3}:a:site|7|d2015-05-17|",
                "hc:{b3}:e:site",
                "hc:{0c}:k:双十一",
                "hc:{ru}:re:",
                "hc:{e}:rk:",
                "hc:{nd}:rf:",
                "hc:{ru}:h:",
                "hc:{8f}:t:00000000000000ff|1",
                "hc:{9}:xs:site",
                "hc:{9}:xl:site",
                "hc:{9}:xg:site",
                "hc:{9}:xb:site",
                "hc:{b3}:xu:site",
                "hc:{b3}:xe:site",
                "hc:{b3}:xm:site",
            ]
        );
    }

    #[test]
    fn a_colon_in_an_id_cannot_imitate_another_key() {
        let event = |id: &str| {
            sketch(&SketchAddress {
                counter: Arc::new(counter(Subject::Event(EventId::new(id).unwrap()))),
                position: Position::FIRST,
            })
        };
        assert_ne!(event("a:7:d2015-05-17").text, event("a").text);
    }
}
