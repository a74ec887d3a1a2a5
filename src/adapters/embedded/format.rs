//! What stands in the file: every key and value, on one page.
//!
//! | table | key (text) | value (bytes, integers little-endian) |
//! |---|---|---|
//! | `sketches` | `<subject>␟<id>␟<generation>␟<period>␟<position>` | i64 expiry, then the sketch as Redis would store it |
//! | `layouts` | `<subject>␟<id>␟<generation>␟<period>` | i64 expiry, u16 coarsest, u16 finest shard count |
//! | `records` | `event␟<id>` or `campaign␟<id>` | u64 version, then the document |
//! | `deployment` | `schema`, `hash_key`, `facts` | u32; 16 bytes; u32 schema, u64 fingerprint, zone |
//!
//! `<subject>` is `e` for an event, `c` for the claimants of a campaign; ␟ is 0x1F, which ids cannot contain.
//! An expiry is in milliseconds since 1970; `i64::MAX` says never.
//!
//! Example: `e␟site␟1␟d2015-05-17␟64` is the shard that starts at position 64 of event `site` on that day.

use bytes::Bytes;
use jiff::Timestamp;

use crate::domain::counter::{Counter, SketchAddress, Subject};
use crate::domain::ring::{Layout, Shards};
use crate::store::deployment::Facts;
use crate::store::records::{Record, RecordKind};

/// The tables of the file. The order is also that of rows in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Table {
    Sketches,
    Layouts,
    Records,
    Deployment,
}

impl Table {
    pub const ALL: [Table; 4] = [Table::Sketches, Table::Layouts, Table::Records, Table::Deployment];

    pub fn name(self) -> &'static str {
        match self {
            Table::Sketches => "sketches",
            Table::Layouts => "layouts",
            Table::Records => "records",
            Table::Deployment => "deployment",
        }
    }

    /// Whether its rows begin with an expiry.
    fn expires(self) -> bool {
        matches!(self, Table::Sketches | Table::Layouts)
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
    }

    #[test]
    fn values_come_back_as_they_were_written() {
        let layout = Layout { coarsest: Shards::new(8).unwrap(), finest: Shards::new(1024).unwrap() };
        let value = layout_value(5, layout);
        assert_eq!(&value[..], &[5, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 4]);
        assert_eq!((expiry_ms(Table::Layouts, &value), layout_of(&value)), (Some(5), Some(layout)));

        let record = Record { version: 7, body: Bytes::from_static(b"{}") };
        assert_eq!(record_of(&record_value(7, b"{}")), Some(record));

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
