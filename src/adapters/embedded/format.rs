//! What stands in the file: every key and value, on one page.
//!
//! | table | key (text) | value (bytes, integers little-endian) |
//! |---|---|---|
//! | `sketches` | `<subject>␟<id>␟<generation>␟<period>␟<position>` | i64 expiry, then the sketch as Redis would store it |
//! | `layouts` | `<subject>␟<id>␟<generation>␟<period>` | i64 expiry, u16 coarsest, u16 finest shard count |
//! | `records` | `event␟<id>` or `campaign␟<id>` | u64 version, then the document |
//! | `pools` | `<campaign>␟<position>` | the pool's head: JSON, see `pool_head.rs` |
//! | `claims` | `<campaign>␟<position>␟<user key, hex>` | the claim's text, see `ClaimRecord` |
//! | `packets` | `<campaign>␟<position>␟<number, 16 hex digits>` | what a packet holds: cents, decimal |
//! | `pool_log` | `<campaign>␟<position>␟<index, 16 hex digits>` | an entry of the outbox: JSON, see `pool_log.rs` |
//! | `deployment` | `schema`, `hash_key`, `facts` | u32; 16 bytes; u32 schema, u64 fingerprint, zone |
//!
//! `<subject>` is `e` for an event, `c` for the claimants of a campaign; ␟ is 0x1F, which ids cannot contain.
//! The user key is 32 hex digits. A row of `packets` is written when the packet comes into the pool, and stays when it
//! moves on. A row of `pool_log` goes when it is acknowledged.
//! An expiry is in milliseconds since 1970; `i64::MAX` says never.
//!
//! Example: `e␟site␟1␟d2015-05-17␟64` is the shard that starts at position 64 of event `site` on that day.

use std::ops::Range;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;

use crate::domain::counter::{Counter, SketchAddress, Subject};
use crate::domain::quota::claim::UserKey;
use crate::domain::ring::{Layout, Shards};
use crate::store::deployment::Facts;
use crate::store::pools::PoolAddress;
use crate::store::records::{Record, RecordKind};

/// The tables of the file. The order is also that of rows in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Table {
    Sketches,
    Layouts,
    Records,
    Deployment,
    Pools,
    Claims,
    Packets,
    PoolLog,
}

impl Table {
    pub const ALL: [Table; 8] = [
        Table::Sketches,
        Table::Layouts,
        Table::Records,
        Table::Deployment,
        Table::Pools,
        Table::Claims,
        Table::Packets,
        Table::PoolLog,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Table::Sketches => "sketches",
            Table::Layouts => "layouts",
            Table::Records => "records",
            Table::Deployment => "deployment",
            Table::Pools => "pools",
            Table::Claims => "claims",
            Table::Packets => "packets",
            Table::PoolLog => "pool_log",
        }
    }

    /// Whether its rows begin with an expiry.
    fn expires(self) -> bool {
        matches!(self, Table::Sketches | Table::Layouts)
    }

    /// Whether its rows are parts of pools, which are in memory as a whole and not row by row.
    pub fn is_of_pools(self) -> bool {
        matches!(self, Table::Pools | Table::Claims | Table::Packets | Table::PoolLog)
    }
}

/// Where a row lies.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    pub table: Table,
    pub text: Box<str>,
}

pub const SCHEMA_ROW: &str = "schema";
const SEPARATOR: char = '\u{1f}';
/// "Never", as an expiry.
pub const NEVER_MS: i64 = i64::MAX;

impl Key {
    pub fn sketch(address: &SketchAddress) -> Self {
        let text = format!("{}{SEPARATOR}{}", counter_text(&address.counter), address.position.get());
        Self { table: Table::Sketches, text: text.into() }
    }

    pub fn layout(counter: &Counter) -> Self {
        Self { table: Table::Layouts, text: counter_text(counter).into() }
    }

    pub fn record(kind: RecordKind, id: &str) -> Self {
        let prefix = record_prefix(kind);
        Self { table: Table::Records, text: format!("{prefix}{SEPARATOR}{id}").into() }
    }

    pub fn hash_key() -> Self {
        Self { table: Table::Deployment, text: "hash_key".into() }
    }

    pub fn facts() -> Self {
        Self { table: Table::Deployment, text: "facts".into() }
    }

    /// The head of a pool, whose text `pool_text` gives.
    pub fn pool(pool: &str) -> Self {
        Self { table: Table::Pools, text: pool.into() }
    }

    pub fn claim(pool: &str, user: UserKey) -> Self {
        Self { table: Table::Claims, text: format!("{pool}{SEPARATOR}{}", user_text(user)).into() }
    }

    pub fn packet(pool: &str, number: u64) -> Self {
        Self { table: Table::Packets, text: format!("{pool}{SEPARATOR}{number:016x}").into() }
    }

    /// Padded, so that the order of texts is that of indexes.
    pub fn pool_log(pool: &str, index: u64) -> Self {
        Self { table: Table::PoolLog, text: format!("{pool}{SEPARATOR}{index:016x}").into() }
    }

    /// The pool and the user of a claim; None for any other row.
    pub fn claim_parts(&self) -> Option<(&str, UserKey)> {
        let (pool, user) = self.text.rsplit_once(SEPARATOR)?;
        (self.table == Table::Claims).then_some((pool, user_of(user)?))
    }

    /// The pool and the number of a packet; None for any other row.
    pub fn packet_parts(&self) -> Option<(&str, u64)> {
        let (pool, number) = self.text.rsplit_once(SEPARATOR)?;
        (self.table == Table::Packets).then_some((pool, number_of(number)?))
    }

    /// The id of a record of this kind; None for any other row.
    pub fn record_id(&self, kind: RecordKind) -> Option<&str> {
        let (prefix, id) = self.text.split_once(SEPARATOR)?;
        (self.table == Table::Records && prefix == record_prefix(kind)).then_some(id)
    }

    /// For logs and errors: `sketches: e|site|1|d2015-05-17|64`.
    pub fn describe(&self) -> String {
        format!("{}: {}", self.table.name(), self.text.replace(SEPARATOR, "|"))
    }
}

/// How a pool's rows begin, and what it is called in memory.
pub fn pool_text(address: &PoolAddress) -> Box<str> {
    format!("{}{SEPARATOR}{}", address.campaign.as_str(), address.position.get()).into()
}

/// All texts of claims, packets or log entries of a pool lie between these.
pub fn pool_range(pool: &str) -> Range<String> {
    // The character after the separator, which no id contains either.
    format!("{pool}{SEPARATOR}")..format!("{pool}\u{20}")
}

/// The index in the text of a log entry's key.
pub fn log_index(text: &str) -> Option<u64> {
    number_of(text.rsplit_once(SEPARATOR)?.1)
}

fn number_of(text: &str) -> Option<u64> {
    is_hex(text, 16).then(|| u64::from_str_radix(text, 16).ok())?
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub fn user_text(user: UserKey) -> String {
    format!("{:032x}", u128::from_be_bytes(user.0))
}

pub fn user_of(text: &str) -> Option<UserKey> {
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex(text, 32))?;
    Some(UserKey(number.to_be_bytes()))
}

fn counter_text(counter: &Counter) -> String {
    let kind = match counter.subject {
        Subject::Event(_) => 'e',
        Subject::Claimants(_) => 'c',
    };
    let (id, generation, period) = (counter.subject.id(), counter.generation, counter.period);
    format!("{kind}{SEPARATOR}{id}{SEPARATOR}{generation}{SEPARATOR}{period}")
}

fn record_prefix(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Event => "event",
        RecordKind::Campaign => "campaign",
    }
}

/// The expiry a row carries; `NEVER_MS` where its table has none, None where the bytes are too short.
pub fn expiry_ms(table: Table, value: &[u8]) -> Option<i64> {
    if !table.expires() {
        return Some(NEVER_MS);
    }
    value.first_chunk().map(|bytes| i64::from_le_bytes(*bytes))
}

/// An absolute time as a row has it.
pub fn expiry_of(at: Option<Timestamp>) -> i64 {
    at.map_or(NEVER_MS, Timestamp::as_millisecond)
}

/// The expiry after a write. It is only ever lengthened: were it also shortened, a process with an older retention
/// setting would take days away from one with a newer. A write that brings none leaves what stands.
pub fn longer(standing_ms: i64, written_ms: i64) -> i64 {
    match (standing_ms, written_ms) {
        (_, NEVER_MS) => standing_ms,
        (NEVER_MS, _) => written_ms,
        _ => standing_ms.max(written_ms),
    }
}

pub fn sketch_value(expires_ms: i64, blob: &[u8]) -> Bytes {
    [&expires_ms.to_le_bytes(), blob].concat().into()
}

/// The sketch of a row, not yet decoded, without a copy.
pub fn sketch_blob(value: &Bytes) -> Option<Bytes> {
    (value.len() >= 8).then(|| value.slice(8..))
}

pub fn layout_value(expires_ms: i64, layout: Layout) -> Bytes {
    let mut value = expires_ms.to_le_bytes().to_vec();
    value.extend(layout.coarsest.count().to_le_bytes());
    value.extend(layout.finest.count().to_le_bytes());
    value.into()
}

pub fn layout_of(value: &[u8]) -> Option<Layout> {
    let rest: &[u8; 4] = value.get(8..)?.try_into().ok()?;
    let shards = |low, high| Shards::new(u16::from_le_bytes([low, high]).into());
    Some(Layout { coarsest: shards(rest[0], rest[1])?, finest: shards(rest[2], rest[3])? })
}

pub fn record_value(version: u64, body: &[u8]) -> Bytes {
    [&version.to_le_bytes(), body].concat().into()
}

pub fn record_of(value: &Bytes) -> Option<Record> {
    let version = value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
    Some(Record { version, body: value.slice(8..) })
}

pub fn amount_value(cents: i64) -> Bytes {
    cents.to_string().into()
}

pub fn amount_of(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// For structs of numbers, texts, and maps by number or text: JSON has all of it.
pub fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("structs of numbers and texts are JSON").into()
}

pub fn facts_value(facts: &Facts) -> Bytes {
    let mut value = facts.schema.to_le_bytes().to_vec();
    value.extend(facts.fingerprint.to_le_bytes());
    value.extend(facts.zone.as_bytes());
    value.into()
}

pub fn facts_of(value: &[u8]) -> Option<Facts> {
    let (schema, rest) = value.split_first_chunk()?;
    let (fingerprint, zone) = rest.split_first_chunk()?;
    Some(Facts {
        schema: u32::from_le_bytes(*schema),
        zone: std::str::from_utf8(zone).ok()?.to_owned(),
        fingerprint: u64::from_le_bytes(*fingerprint),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::id::{CampaignId, EventId};
    use crate::domain::period::Period;
    use crate::domain::ring::Position;

    fn counter(subject: Subject) -> Counter {
        Counter { subject, generation: 1, period: Period::Day("2015-05-17".parse().unwrap()) }
    }

    /// The file format of every installation: a change here needs a new schema number and a migration.
    #[test]
    fn key_texts_are_frozen() {
        let site = Arc::new(counter(Subject::Event(EventId::new("site").unwrap())));
        let address = SketchAddress { counter: site.clone(), position: Position::new(64).unwrap() };
        assert_eq!(Key::sketch(&address).describe(), "sketches: e|site|1|d2015-05-17|64");
        let claimants = counter(Subject::Claimants(CampaignId::new("site").unwrap()));
        assert_eq!(Key::layout(&claimants).describe(), "layouts: c|site|1|d2015-05-17");
        assert_eq!(Key::record(RecordKind::Event, "site").describe(), "records: event|site");
        assert_eq!(Key::record(RecordKind::Event, "site").record_id(RecordKind::Event), Some("site"));
        assert_eq!(Key::record(RecordKind::Event, "site").record_id(RecordKind::Campaign), None);
        assert_eq!(Key::facts().describe(), "deployment: facts");

        let address = PoolAddress { campaign: CampaignId::new("sale").unwrap(), position: address.position };
        let (pool, user) = (pool_text(&address), UserKey([0xab; 16]));
        assert_eq!(Key::pool(&pool).describe(), "pools: sale|64");
        let claim = Key::claim(&pool, user);
        assert_eq!(claim.describe(), "claims: sale|64|abababababababababababababababab");
        assert_eq!(claim.claim_parts(), Some((&*pool, user)));
        assert_eq!(Key::pool_log(&pool, 255).describe(), "pool_log: sale|64|00000000000000ff");
        assert_eq!(log_index(&Key::pool_log(&pool, 255).text), Some(255));
        assert_eq!(Key::packet(&pool, 17).describe(), "packets: sale|64|0000000000000011");
        assert_eq!(Key::packet(&pool, 17).packet_parts(), Some((&*pool, 17)));
        assert_eq!(Key::pool_log(&pool, 17).packet_parts(), None);
    }

    #[test]
    fn a_pools_rows_are_found_and_no_others() {
        let address = |campaign: &str, position| PoolAddress {
            campaign: CampaignId::new(campaign).unwrap(),
            position: Position::new(position).unwrap(),
        };
        let pool = pool_text(&address("sale", 6));
        let range = pool_range(&pool);
        for inside in [Key::claim(&pool, UserKey([0; 16])), Key::claim(&pool, UserKey([0xff; 16]))] {
            assert!(range.contains(&inside.text.to_string()));
        }
        for (campaign, position) in [("sale", 64), ("sale", 5), ("sale2", 6), ("sal", 6)] {
            let other = Key::claim(&pool_text(&address(campaign, position)), UserKey([0; 16]));
            assert!(!range.contains(&other.text.to_string()), "{}", other.describe());
        }
        for foreign in ["", "+f", "ABABABABABABABABABABABABABABABAB", "+babababababababababababababababa"] {
            assert_eq!(user_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn values_come_back_as_they_were_written() {
        let layout = Layout { coarsest: Shards::new(8).unwrap(), finest: Shards::new(1024).unwrap() };
        let value = layout_value(5, layout);
        assert_eq!(&value[..], &[5, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 4]);
        assert_eq!((expiry_ms(Table::Layouts, &value), layout_of(&value)), (Some(5), Some(layout)));

        let record = Record { version: 7, body: Bytes::from_static(b"{}") };
        assert_eq!(record_of(&record_value(7, b"{}")), Some(record));

        assert_eq!(amount_of(&amount_value(1250)), Some(1250));

        let facts = Facts { schema: 1, zone: "Asia/Shanghai".to_owned(), fingerprint: u64::MAX };
        assert_eq!(facts_of(&facts_value(&facts)), Some(facts));
    }

    #[test]
    fn foreign_bytes_are_not_taken_for_values() {
        for length in 0..12 {
            assert_eq!(layout_of(&vec![0xff; length]), None);
        }
        assert_eq!(layout_of(&[0; 12]), None, "0 shards");
        assert_eq!(record_of(&Bytes::from_static(b"short")), None);
        assert_eq!(facts_of(&[1; 11]), None);
        assert_eq!(facts_of(&[0xff; 13]), None, "a zone that is not text");
        assert_eq!(expiry_ms(Table::Sketches, b"short"), None);
        assert_eq!(expiry_ms(Table::Records, b"short"), Some(NEVER_MS));
    }
}
