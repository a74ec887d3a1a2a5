//! Outboxes on a disk of the test's own: what is read again and what is not, also after a restart. What a kill or a power
//! cut leaves is in `pools_crash.rs`.

use std::time::Duration;

use bytes::Bytes;

use super::EmbeddedStore;
use super::format::{self, Key, Table};
use super::pools_tests::{address, answer, claims, create, filled, granted, noon, take, user};
use super::test_disk::Disk;
use crate::domain::quota::mend::Mend;
use crate::domain::quota::pool::LogKind;
use crate::domain::quota::step::{Answer, ReleasedBy, Step};
use crate::domain::quota::unit::Unit;
use crate::runtime::clock::Clock;
use crate::store::error::StoreError;
use crate::store::outbox::{Outbox, OutboxBatch, OutboxLag};
use crate::store::pools::{PoolAddress, Pools};

async fn read(store: &EmbeddedStore, pool: &PoolAddress, limit: usize) -> OutboxBatch {
    Outbox::read(store, pool, limit).await.unwrap().expect("a pool")
}

fn names(batch: &OutboxBatch) -> Vec<String> {
    batch.entries.iter().map(|(name, _)| name.clone()).collect()
}

fn numbers(batch: &OutboxBatch) -> Vec<u64> {
    batch.entries.iter().map(|(_, entry)| entry.unit().number).collect()
}

#[tokio::test]
async fn news_come_in_order_until_they_are_acknowledged() {
    let (disk, sale, clock) = (Disk::default(), address("sale", 0), Clock::settable(noon()));
    let store = disk.store(&clock, 100);
    filled(&store, &sale, 1..21).await;
    assert_eq!(read(&store, &sale, 5).await, OutboxBatch { incarnation: 1, ver: 2, ..OutboxBatch::default() });
    assert_eq!(Outbox::read(&*store, &address("none", 0), 5).await, Ok(None));
    answer(&store, &sale, claims(0..10)).await;
    clock.advance(Duration::from_secs(3));
    answer(&store, &sale, Step::Confirm { user: user(0), secret: "s".into() }).await;

    let batch = read(&store, &sale, 4).await;
    assert_eq!((numbers(&batch), batch.behind, batch.ver), (vec![1, 2, 3, 4], 7, 13));
    let entry = &batch.entries[0].1;
    assert_eq!((entry.kind, entry.ver, entry.at_ms), (LogKind::Grant, 3, noon().as_millisecond()));
    assert_eq!((entry.user_raw(), entry.claim()), (Some("user 0"), Some((user(0), 1))));
    assert_eq!(read(&store, &sale, 4).await, batch, "what is not acknowledged is read again");
    assert_eq!(store.lag(&sale).await, Ok(Some(OutboxLag { entries: 11, age_ms: 3000 })));

    store.acknowledge(&sale, &names(&batch)).await.unwrap();
    store.acknowledge(&sale, &names(&batch)).await.unwrap();
    let all = read(&store, &sale, 1000).await;
    assert_eq!((numbers(&all), all.behind), (vec![5, 6, 7, 8, 9, 10, 1], 0));
    assert_eq!(all.entries[6].1.at_ms, noon().as_millisecond() + 3000);
    // Out of order: what is before is read again, what was named is not.
    store.acknowledge(&sale, &names(&all)[2..4]).await.unwrap();
    let some = read(&store, &sale, 3).await;
    assert_eq!((numbers(&some), some.behind), (vec![5, 6, 9], 2));
    store.close();

    let store = disk.store(&clock, 100);
    assert_eq!(read(&store, &sale, 3).await, some, "also after a restart");
    assert_eq!(store.lag(&sale).await, Ok(Some(OutboxLag { entries: 5, age_ms: 3000 })));
    store.acknowledge(&sale, &names(&all)).await.unwrap();
    let (none, lag) = (read(&store, &sale, 3).await, store.lag(&sale).await);
    assert_eq!((none.entries, none.behind, none.ver), (Vec::new(), 0, 13));
    assert_eq!(lag, Ok(Some(OutboxLag::default())));
    store.close();
    assert_eq!(disk.rows_of(Table::PoolLog).len(), 0);
    let store = disk.store(&clock, 100);
    answer(&store, &sale, claims(10..11)).await;
    assert_eq!(numbers(&read(&store, &sale, 3).await), [11]);
}

#[tokio::test]
async fn a_read_has_a_thousand_entries_at_most_and_refunds_too() {
    let (disk, sale) = (Disk::default(), address("sale", 0));
    let store = disk.store(&Clock::settable(noon()), 100);
    filled(&store, &sale, 1..1201).await;
    for _ in 0..5 {
        answer(&store, &sale, Step::Close { limit: 256 }).await;
    }
    let batch = read(&store, &sale, usize::MAX).await;
    assert_eq!((batch.entries.len(), batch.behind), (1000, 200));
    assert_eq!((batch.entries[999].1.kind, batch.entries[999].1.unit()), (LogKind::Refund, Unit::new(1000)));
    let none = read(&store, &sale, 0).await;
    assert_eq!((none.entries.len(), none.behind), (0, 1200));
}

#[tokio::test]
async fn news_are_read_from_pools_that_stand_still() {
    let (disk, sale) = (Disk::default(), address("sale", 0));
    let store = disk.store(&Clock::settable(noon()), 100);
    filled(&store, &sale, 1..11).await;
    answer(&store, &sale, claims(0..2)).await;
    answer(&store, &sale, Step::Mend(Mend::Fence)).await;
    assert_eq!(answer(&store, &sale, claims(2..3)).await, Answer::Fenced);
    let batch = read(&store, &sale, 10).await;
    assert_eq!(numbers(&batch), [1, 2]);
    store.acknowledge(&sale, &names(&batch)).await.unwrap();
    assert_eq!(store.lag(&sale).await, Ok(Some(OutboxLag::default())));
}

#[tokio::test]
async fn only_what_is_on_disk_is_read() {
    let (disk, sale) = (Disk::default(), address("sale", 0));
    let store = disk.store(&Clock::settable(noon()), 100);
    filled(&store, &sale, 1..11).await;
    answer(&store, &sale, claims(0..2)).await;
    let before = read(&store, &sale, 10).await;
    // The first sweep is over then: it too would have all written that is dirty.
    tokio::time::sleep(Duration::from_millis(20)).await;
    disk.fill(true);
    assert!(take(&store, &sale, claims(2..3)).await.is_err());
    assert!(store.acknowledge(&sale, &names(&before)).await.is_err());
    let meanwhile = Outbox::read(&*store, &sale, 10).await;
    assert!(matches!(meanwhile, Err(StoreError::Unavailable(_))), "{meanwhile:?}");
    disk.fill(false);
    // A reader is enough for the file to be opened again, and what was refused is written then.
    let again = async {
        loop {
            match Outbox::read(&*store, &sale, 10).await {
                Ok(batch) => break batch.unwrap(),
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    };
    let again = tokio::time::timeout(Duration::from_secs(10), again).await.expect("a file that is open");
    assert_eq!((numbers(&again), again.ver), (vec![3], 5));
    store.close();
    assert!(matches!(Outbox::read(&*store, &sale, 10).await, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn a_name_is_replaced_in_all_that_is_kept() {
    let (disk, sale, clock) = (Disk::default(), address("sale", 0), Clock::settable(noon()));
    let store = disk.store(&clock, 100_000);
    filled(&store, &sale, 1..2001).await;
    // The user's second claim is far behind the first one.
    let release = || Step::Release { user: user(7), secret: "s".into(), by: ReleasedBy::User };
    for batch in 0..6 {
        answer(&store, &sale, claims(batch * 250..(batch + 1) * 250)).await;
    }
    answer(&store, &sale, release()).await;
    let wish = crate::domain::quota::claim::Wish { secret: "t".into(), ..super::pools_tests::wish(7, "t") };
    assert_eq!(granted(answer(&store, &sale, Step::Claim { wishes: vec![wish] }).await).len(), 1);

    assert_eq!(store.rename(&sale, "user 7", "gone-1").await, Ok(2));
    assert_eq!(store.rename(&sale, "user 7", "gone-2").await, Ok(0));
    assert_eq!(store.rename(&address("none", 0), "user 7", "gone-1").await, Ok(0));
    store.close();
    let store = disk.store(&clock, 100_000);
    let rows = disk.after_kill().rows_of(Table::PoolLog);
    assert_eq!(rows.len(), 1502);
    let with = |name: &str| rows.iter().filter(|(_, value)| String::from_utf8_lossy(value).contains(name)).count();
    assert_eq!((with("\"user 7\""), with("\"gone-1\""), with("\"user 77\"")), (0, 2, 1));
    let batch = read(&store, &sale, 1000).await;
    assert_eq!(batch.entries[7].1.user_raw(), Some("gone-1"));
    store.acknowledge(&sale, &names(&batch)).await.unwrap();
    assert_eq!(store.rename(&sale, "gone-1", "gone-3").await, Ok(1), "the others are gone");
    store.close();
    assert_eq!(disk.rows_of(Table::PoolLog).len(), 502);
}

#[tokio::test]
async fn a_removed_pools_news_are_gone_and_their_names_mean_nothing_later() {
    let (disk, sale, clock) = (Disk::default(), address("sale", 0), Clock::settable(noon()));
    let store = disk.store(&clock, 100);
    filled(&store, &sale, 1..11).await;
    answer(&store, &sale, claims(0..3)).await;
    let before = read(&store, &sale, 10).await;
    store.remove(&sale).await.unwrap();
    assert_eq!(Outbox::read(&*store, &sale, 10).await, Ok(None));
    assert_eq!(store.lag(&sale).await, Ok(None));
    assert_eq!(store.acknowledge(&sale, &names(&before)).await, Ok(()));
    clock.advance(Duration::from_millis(1));
    filled(&store, &sale, 1..11).await;
    answer(&store, &sale, claims(0..3)).await;
    store.acknowledge(&sale, &names(&before)).await.unwrap();
    assert_eq!(numbers(&read(&store, &sale, 10).await), [1, 2, 3]);
    assert!(matches!(store.acknowledge(&sale, &["x".to_owned()]).await, Err(StoreError::Refused(_))));
}

/// As programs without readers left them.
#[tokio::test]
async fn entries_without_a_time_are_read() {
    let (disk, sale) = (Disk::default(), address("sale", 0));
    {
        let store = disk.store(&Clock::settable(noon()), 100);
        assert_eq!(answer(&store, &sale, create(0)).await, Answer::Done(true));
        store.close();
    }
    let text = format::pool_text(&sale);
    let head = String::from_utf8(disk.rows_of(Table::Pools)[0].1.to_vec()).unwrap();
    let (head, _) = head.split_once(",\"log_next\"").unwrap();
    let entry = r#"{"form":1,"incarnation":1,"ver":1,"kind":"refund","text":"9#1"}"#;
    let rows = [
        (Key::pool(&text), Some(Bytes::from(format!("{head},\"log_next\":2}}")))),
        (Key::pool_log(&text, 0), Some(Bytes::from(entry))),
        (Key::pool_log(&text, 1), Some(Bytes::from(entry.replace("9#1", "8#1")))),
    ];
    disk.file().write(&rows).unwrap();
    let store = disk.store(&Clock::settable(noon()), 100);
    let batch = read(&store, &sale, 10).await;
    assert_eq!((numbers(&batch), batch.entries[0].1.at_ms), (vec![9, 8], 0));
    assert_eq!(store.lag(&sale).await, Ok(Some(OutboxLag { entries: 2, age_ms: 0 })));
    store.acknowledge(&sale, &names(&batch)[..1]).await.unwrap();
    store.close();
    disk.file().write(&[(Key::pool_log(&text, 1), Some(Bytes::from_static(b"x")))]).unwrap();
    let store = disk.store(&Clock::settable(noon()), 100);
    assert!(matches!(Outbox::read(&*store, &sale, 10).await, Err(StoreError::Corrupt(_))));
    store.close();
    disk.file().write(&[(Key::pool_log(&text, 1), None)]).unwrap();
    let store = disk.store(&Clock::settable(noon()), 100);
    let missing = Outbox::read(&*store, &sale, 10).await;
    assert!(matches!(&missing, Err(StoreError::Corrupt(why)) if why.contains("0 entries where 1")), "{missing:?}");
}
