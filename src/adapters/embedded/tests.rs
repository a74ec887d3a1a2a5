//! What only the embedded store promises, or what needs a clock or a disk of the test's own. What every store promises
//! is in `tests/integration/contract.rs`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::file::File;
use super::format::{Key, Table};
use super::test_disk::Disk;
use super::{EmbeddedConfig, EmbeddedStore, OpenError};
use crate::domain::counter::{Counter, SketchAddress, Subject};
use crate::domain::element::Element;
use crate::domain::id::EventId;
use crate::domain::period::Period;
use crate::domain::ring::{Position, Shards};
use crate::domain::sketch::wire;
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;
use crate::store::counters::Counters;
use crate::store::deployment::{Deployment, Facts, SCHEMA};
use crate::store::error::StoreError;
use crate::store::records::{Put, RecordKind, Records};

fn address(event: &str) -> SketchAddress {
    let subject = Subject::Event(EventId::new(event).unwrap());
    let counter = Arc::new(Counter { subject, generation: 1, period: Period::All });
    SketchAddress { counter, position: Position::FIRST }
}

fn elements(range: std::ops::Range<u64>) -> Vec<Element> {
    range.map(|i| Element::Keyed(i.to_le_bytes())).collect()
}

fn noon() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn open(dir: &std::path::Path, clock: &Clock) -> Arc<EmbeddedStore> {
    EmbeddedStore::open(EmbeddedConfig::new(dir), clock.clone(), Tasks::new()).unwrap()
}

async fn users(store: &EmbeddedStore, address: &SketchAddress) -> Option<u64> {
    let blob = store.read(std::slice::from_ref(address)).await.remove(0).unwrap()?;
    Some(wire::decode(&blob).unwrap().estimate().unwrap().round() as u64)
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::settable(noon());
    let site = address("site");
    let facts = Facts { schema: SCHEMA, zone: "UTC".to_owned(), fingerprint: 7 };
    {
        let store = open(dir.path(), &clock);
        store.add(&site, &elements(0..1000), None).await.unwrap();
        store.note_layout(&site.counter, Shards::new(8).unwrap(), None).await.unwrap();
        store.put(RecordKind::Event, "site", 0, Bytes::from_static(b"{}")).await.unwrap();
        store.hash_key([7; 16]).await.unwrap();
        store.agree(&facts).await.unwrap();
        store.close();
    }
    let store = open(dir.path(), &clock);
    let count = users(&store, &site).await.unwrap();
    assert!((980..=1020).contains(&count), "{count}");
    let layouts = store.layouts(std::slice::from_ref(&site.counter)).await.unwrap();
    assert_eq!(layouts[0].unwrap().coarsest.count(), 8);
    assert_eq!(store.get(RecordKind::Event, "site").await.unwrap().unwrap().version, 1);
    assert_eq!(store.hash_key([8; 16]).await.unwrap(), [7; 16]);
    assert_eq!(store.agree(&Facts { fingerprint: 8, ..facts.clone() }).await.unwrap(), facts);
}

#[tokio::test]
async fn expired_sketches_are_not_seen_and_leave_the_file() {
    let disk = Disk::default();
    let clock = Clock::settable(noon());
    let store = disk.store(&clock, 100);
    let site = address("site");
    let in_an_hour = Some(noon() + Duration::from_secs(3600));
    store.add(&site, &elements(0..10), in_an_hour).await.unwrap();
    store.note_layout(&site.counter, Shards::DEFAULT, in_an_hour).await.unwrap();
    assert_eq!(users(&store, &site).await, Some(10));

    clock.advance(Duration::from_secs(3600));
    assert_eq!(users(&store, &site).await, None);
    assert_eq!(store.layouts(std::slice::from_ref(&site.counter)).await.unwrap(), [None]);
    store.sweep();
    store.close();
    assert_eq!(disk.rows(), []);
}

#[tokio::test]
async fn a_write_after_the_expiry_begins_anew() {
    let store_clock = Clock::settable(noon());
    let store = Disk::default().store(&store_clock, 100);
    let site = address("site");
    store.add(&site, &elements(0..10), Some(noon() + Duration::from_secs(1))).await.unwrap();
    store_clock.advance(Duration::from_secs(2));
    store.add(&site, &elements(100..103), Some(noon() + Duration::from_secs(9))).await.unwrap();
    assert_eq!(users(&store, &site).await, Some(3));
}

#[tokio::test]
async fn an_expiry_is_lengthened_never_shortened() {
    let clock = Clock::settable(noon());
    let store = Disk::default().store(&clock, 100);
    let site = address("site");
    for seconds in [10, 30, 20] {
        store.add(&site, &elements(0..1), Some(noon() + Duration::from_secs(seconds))).await.unwrap();
    }
    store.add(&site, &elements(0..1), None).await.unwrap();
    clock.advance(Duration::from_secs(29));
    assert_eq!(users(&store, &site).await, Some(1));
    clock.advance(Duration::from_secs(1));
    assert_eq!(users(&store, &site).await, None);
}

#[tokio::test]
async fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let disk = Disk::default();
    let store = disk.store(&Clock::settable(noon()), 100);
    let site = address("site");
    store.add(&site, &elements(0..10), None).await.unwrap();

    disk.fill(true);
    let refused = StoreError::Refused("the disk is full".to_owned());
    assert_eq!(store.add(&site, &elements(10..20), None).await, Err(refused.clone()));
    // What is in memory only was promised to nobody, and is shown to nobody: also a write that finds nothing to do fails.
    assert_eq!(users(&store, &site).await, Some(10));
    assert_eq!(store.add(&site, &elements(10..20), None).await, Err(refused.clone()));
    assert_eq!(store.put(RecordKind::Event, "site", 0, Bytes::new()).await, Err(refused));
    assert_eq!(store.get(RecordKind::Event, "site").await, Ok(None));
    assert_eq!(store.list(RecordKind::Event, None, 10).await.unwrap().ids, [""; 0]);
    assert!(!store.health().nodes[0].up);

    disk.fill(false);
    store.add(&site, &elements(20..21), None).await.unwrap();
    assert!(store.health().nodes[0].up);
    assert_eq!(users(&store, &site).await, Some(21), "what was dirty went to disk with it");
    let conflict = store.put(RecordKind::Event, "site", 0, Bytes::new()).await.unwrap();
    assert!(matches!(conflict, Put::Conflict(Some(record)) if record.version == 1));
    store.close();
    assert_eq!(disk.rows().len(), 2);
}

#[tokio::test]
async fn while_the_disk_refuses_what_waits_for_it_is_bounded() {
    let disk = Disk::default();
    let store = disk.store(&Clock::settable(noon()), 3);
    disk.fill(true);
    let mut answers = Vec::new();
    for i in 0..10 {
        answers.push(store.add(&address(&format!("e{i}")), &elements(0..1), None).await.unwrap_err());
    }
    assert!(answers[..3].iter().all(|error| matches!(error, StoreError::Refused(_))), "{answers:?}");
    // A commit that has just failed leaves room for a moment; more than that nobody gets.
    let turned_away = answers[3..].iter().filter(|error| matches!(error, StoreError::Overloaded(_))).count();
    assert!(turned_away >= 4, "{answers:?}");

    disk.fill(false);
    let recovered = async {
        while store.add(&address("e0"), &elements(0..1), None).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), recovered).await.expect("a store that writes again");
}

#[tokio::test]
async fn a_closed_store_refuses_writes() {
    let store = Disk::default().store(&Clock::settable(noon()), 3);
    store.close();
    let refused = store.add(&address("site"), &elements(0..1), None).await;
    assert_eq!(refused, Err(StoreError::Refused("the embedded store is closed".to_owned())));
}

#[tokio::test]
async fn foreign_bytes_spoil_their_own_row_only() {
    let dir = tempfile::tempdir().unwrap();
    let (bad, short, good) = (address("bad"), address("short"), address("good"));
    let clock = Clock::settable(noon());
    {
        let store = open(dir.path(), &clock);
        store.add(&good, &elements(0..3), None).await.unwrap();
        store.close();
        let (mut file, _) = File::open(super::Folder::lock(dir.path()).unwrap()).unwrap();
        let mut garbage = i64::MAX.to_le_bytes().to_vec();
        garbage.extend(b"HYLL but not a sketch");
        let rows = [
            (Key::sketch(&bad), Some(garbage.into())),
            (Key::sketch(&short), Some(Bytes::from_static(b"x"))),
            (Key::layout(&bad.counter), Some(Bytes::from_static(b"12345678nonsense"))),
            (Key::record(RecordKind::Event, "bad"), Some(Bytes::from_static(b"x"))),
        ];
        file.write(&rows).unwrap();
    }
    let store = open(dir.path(), &clock);
    let mut read = store.read(&[bad.clone(), short.clone(), good.clone()]).await;
    assert!(wire::decode(&read[0].as_ref().unwrap().clone().unwrap()).is_err(), "bytes come as they are stored");
    assert!(matches!(read[1], Err(StoreError::Corrupt(_))));
    assert!(read.remove(2).unwrap().is_some());
    for address in [&bad, &short] {
        let added = store.add(address, &elements(0..1), None).await;
        assert!(matches!(added, Err(StoreError::Corrupt(_))), "{added:?}");
    }
    let note = store.note_layout(&bad.counter, Shards::DEFAULT, None).await.unwrap_err();
    assert_eq!(note, StoreError::Corrupt("row layouts: e|bad|1|all: not a layout".to_owned()));
    assert!(matches!(store.get(RecordKind::Event, "bad").await, Err(StoreError::Corrupt(_))));
    assert_eq!(users(&store, &good).await, Some(3));
}

#[tokio::test]
async fn a_folder_is_opened_once_and_only_by_a_program_that_knows_it() {
    let dir = tempfile::tempdir().unwrap();
    let open = || EmbeddedStore::open(EmbeddedConfig::new(dir.path()), Clock::settable(noon()), Tasks::new());
    let path = dir.path().join("headcount.redb");
    {
        let _first = open().unwrap();
        let text = open().map(drop).unwrap_err().to_string();
        assert!(text.contains(&format!("in use by another Headcount process (pid {})", std::process::id())), "{text}");
        assert!(text.contains("stop that one first"), "{text}");
    }
    {
        let (mut file, _) = File::open(super::Folder::lock(dir.path()).unwrap()).unwrap();
        let schema = Key { table: Table::Deployment, text: super::format::SCHEMA_ROW.into() };
        file.write(&[(schema, Some(Bytes::copy_from_slice(&(SCHEMA + 1).to_le_bytes())))]).unwrap();
    }
    let text = open().map(drop).unwrap_err().to_string();
    assert!(text.contains("was written by a newer Headcount (schema 2"), "{text}");

    std::fs::write(&path, "this is not a database, whatever its name says").unwrap();
    let error = open().map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Unreadable { .. }), "{error}");
}

#[tokio::test]
async fn a_lost_hash_key_is_not_replaced_by_a_new_one() {
    use crate::domain::element::{HashKey, UserHashing};
    let disk = Disk::default();
    let store = disk.store(&Clock::settable(noon()), 100);
    let fingerprint = UserHashing::Keyed(HashKey::from_bytes([7; 16])).fingerprint().0;
    store.agree(&Facts { schema: SCHEMA, zone: "UTC".to_owned(), fingerprint }).await.unwrap();
    assert!(matches!(store.hash_key([8; 16]).await, Err(StoreError::Refused(_))));
    assert_eq!(store.hash_key([7; 16]).await, Ok([7; 16]), "whoever still holds it may write it back");
}
