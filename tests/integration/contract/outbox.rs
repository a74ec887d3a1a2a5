//! Promises about outboxes: the ledger hears each piece of news in order, at least once, and no more once it has it.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use headcount::domain::ledger::entry::{Entry, Subject};
use headcount::domain::quota::claim::{ClaimRecord, ClaimState, Wish};
use headcount::domain::quota::marks::{OpMark, STEP_MAX};
use headcount::domain::quota::mend::Mend;
use headcount::domain::quota::pool::LogKind;
use headcount::domain::quota::step::{Answer, ReleasedBy, Step};
use headcount::domain::quota::unit::Unit;
use headcount::store::Stores;
use headcount::store::outbox::{OutboxBatch, OutboxLag};
use headcount::store::pools::PoolAddress;

use super::pools::{blank, claimed, create, fresh_pool, stocked, take, user, wish};
use super::{now_ms, told};

/// Runs every promise.
pub async fn upholds_the_promises_of_outboxes(stores: &Stores) {
    told("an absent pool has no outbox", an_absent_pool_has_no_outbox(stores)).await;
    told("entries stay until acknowledged", entries_stay_until_acknowledged(stores)).await;
    told("entries say what happened", entries_say_what_happened(stores)).await;
    told("a pool that serves nobody is read", a_pool_that_serves_nobody_is_read(stores)).await;
    told("two readers do no harm", two_readers_do_no_harm(stores)).await;
    told("a name gives way to an alias", a_name_gives_way_to_an_alias(stores)).await;
    told("a crowd is written down", a_crowd_is_written_down(stores)).await;
}

async fn an_absent_pool_has_no_outbox(stores: &Stores) {
    let pool = fresh_pool();
    assert_eq!(stores.outbox.read(&pool, 10).await, Ok(None));
    assert_eq!(stores.outbox.lag(&pool).await, Ok(None));
    assert_eq!(stores.outbox.acknowledge(&pool, &[]).await, Ok(()));
    assert_eq!(stores.outbox.rename(&pool, "ada", "nobody").await, Ok(0));
    take(&stores.pools, &pool, create(1)).await;
    let made = OutboxBatch { incarnation: 1, ver: 1, ..OutboxBatch::default() };
    assert_eq!(stores.outbox.read(&pool, 10).await, Ok(Some(made)));
    assert_eq!(stores.outbox.lag(&pool).await, Ok(Some(OutboxLag::default())));
    stores.pools.remove(&pool).await.unwrap();
    assert_eq!(stores.outbox.read(&pool, 10).await, Ok(None));
}

async fn entries_stay_until_acknowledged(stores: &Stores) {
    let pool = stocked(&stores.pools, 20).await;
    for number in 0..10 {
        claimed(&stores.pools, &pool, wish(number, "a")).await;
    }
    let begun = now_ms(stores).await;
    let users = |batch: &OutboxBatch| -> Vec<u64> {
        let of = |entry: &Entry| (0..20).find(|number| entry.claim() == Some((user(*number), 1))).expect("a claim");
        batch.entries.iter().map(|(_, entry)| of(entry)).collect()
    };
    let first = read(stores, &pool, 4).await;
    assert_eq!((users(&first), first.behind), (vec![0, 1, 2, 3], 6));
    // Its reader died: the next one gets the same, and more if it wants more.
    assert_eq!(read(stores, &pool, 4).await, first);
    let second = read(stores, &pool, 6).await;
    assert_eq!((users(&second), second.behind), (vec![0, 1, 2, 3, 4, 5], 4));
    acknowledge(stores, &pool, &second, |place| place == 1 || place == 4).await;
    let third = read(stores, &pool, 5).await;
    assert_eq!((users(&third), third.behind), (vec![0, 2, 3, 5, 6], 3));
    assert_eq!(read(stores, &pool, 0).await.behind, 8);
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let lag = stores.outbox.lag(&pool).await.unwrap().unwrap();
    let most = now_ms(stores).await - begun + 2_000;
    assert!(lag.entries == 8 && lag.age_ms >= 20 && lag.age_ms <= most as u64, "{lag:?}");
    acknowledge(stores, &pool, &third, |_| true).await;
    acknowledge(stores, &pool, &third, |_| true).await;
    let rest = read(stores, &pool, 2000).await;
    assert_eq!((users(&rest), rest.behind), (vec![7, 8, 9], 0));
    let Answer::Reading(_) = take(&stores.pools, &pool, Step::Collect { entries: false }).await.answer else {
        panic!()
    };
    let at = take(&stores.pools, &pool, Step::Finish).await.at;
    assert_eq!((rest.incarnation, rest.ver), (at.incarnation, at.ver), "with nothing behind, all is known up to here");
    acknowledge(stores, &pool, &rest, |_| true).await;
    let nothing = read(stores, &pool, 10).await;
    assert_eq!((nothing.entries.len(), nothing.behind), (0, 0));
    assert_eq!(stores.outbox.lag(&pool).await, Ok(Some(OutboxLag::default())));
    claimed(&stores.pools, &pool, wish(10, "a")).await;
    assert_eq!(stores.outbox.lag(&pool).await.unwrap().unwrap().entries, 1);
    assert_eq!(users(&read(stores, &pool, 10).await), vec![10]);
}

async fn entries_say_what_happened(stores: &Stores) {
    let (pools, pool) = (&stores.pools, stocked(&stores.pools, 0).await);
    let units = vec![Unit::packet(1, 500), Unit::new(2), Unit::packet(3, 9)];
    let op = OpMark { operation: 2, chunk: 0 };
    take(pools, &pool, Step::Restock { op, unretire: 0, units, cool: false }).await;
    let begun = now_ms(stores).await;
    let mut expected: Vec<(LogKind, u64, ClaimRecord)> = Vec::new();
    let mut note = |kind, number, record: ClaimRecord| expected.push((kind, number, record));
    for number in 1..=2 {
        let Answer::Claims(said) = take(pools, &pool, Step::Claim { wishes: vec![wish(number, "a")] }).await.answer
        else {
            panic!()
        };
        let headcount::domain::quota::claim::ClaimAnswer::Granted(record) = &said[0] else { panic!("{said:?}") };
        note(LogKind::Grant, number, record.clone());
    }
    let secret = || "a".to_owned();
    let look = async |number| match take(pools, &pool, Step::Look { user: user(number) }).await.answer {
        Answer::Record(Some(record)) => record,
        other => panic!("{other:?}"),
    };
    take(pools, &pool, Step::Confirm { user: user(1), secret: secret() }).await;
    note(LogKind::Confirm, 1, look(1).await);
    take(pools, &pool, Step::Release { user: user(2), secret: secret(), by: ReleasedBy::User }).await;
    note(LogKind::Release, 2, look(2).await);
    take(pools, &pool, Step::Close { limit: 5 }).await;
    take(pools, &pool, Step::Release { user: user(1), secret: secret(), by: ReleasedBy::Operator }).await;
    let voided = look(1).await;
    let batch = read(stores, &pool, 100).await;
    let ended = now_ms(stores).await;
    let entries: Vec<&Entry> = batch.entries.iter().map(|(_, entry)| entry).collect();
    for ((kind, number, record), entry) in expected.iter().zip(&entries) {
        let user_raw = (*kind == LogKind::Grant).then(|| wish(*number, "").user_raw);
        assert_eq!(entry.subject, Subject::Claim { user: user(*number), user_raw, record: record.clone() });
        assert_eq!((entry.kind, entry.ver, entry.incarnation), (*kind, record.ver, 1));
    }
    assert_eq!(entries[..2].iter().map(|entry| entry.unit().cents).collect::<Vec<_>>(), [Some(500), None]);
    let rest = &entries[expected.len()..];
    let refunds: BTreeSet<String> =
        rest.iter().filter(|entry| entry.kind == LogKind::Refund).map(|entry| entry.unit().to_string()).collect();
    assert_eq!(refunds, ["1#1:500", "2#1", "3#0:9"].map(str::to_owned).into());
    assert!(rest.iter().any(|entry| matches!(&entry.subject, Subject::Claim { record, .. } if *record == voided)));
    assert_eq!((rest.len(), voided.state), (4, ClaimState::Voided));
    assert!(entries.iter().all(|entry| (begun - 1..=ended + 1).contains(&entry.at_ms)), "{begun} to {ended}");
    assert!(entries.is_sorted_by_key(|entry| entry.ver));
}

/// Fenced, emptied, frozen: the ledger is behind as ever.
async fn a_pool_that_serves_nobody_is_read(stores: &Stores) {
    let (pools, pool) = (&stores.pools, stocked(&stores.pools, 5).await);
    claimed(pools, &pool, wish(1, "a")).await;
    claimed(pools, &pool, wish(2, "a")).await;
    let lives = async || -> Vec<(u64, Option<u64>)> {
        let batch = read(stores, &pool, 10).await;
        let number = |entry: &Entry| (0..10).find(|number| entry.claim().is_some_and(|(key, _)| key == user(*number)));
        batch.entries.iter().map(|(_, entry)| (entry.incarnation, number(entry))).collect()
    };
    take(pools, &pool, Step::Mend(Mend::Fence)).await;
    assert_eq!(lives().await, [(1, Some(1)), (1, Some(2))]);
    take(pools, &pool, Step::Mend(Mend::Empty(Box::new(blank(1))))).await;
    assert_eq!(lives().await, [(1, Some(1)), (1, Some(2))], "what was not read before the loss stays");
    let stock = vec![Unit::new(9)];
    take(pools, &pool, Step::Mend(Mend::Fill { mender: 1, part: 1, claims: vec![], stock, retired: vec![] })).await;
    take(pools, &pool, Step::Mend(Mend::Reopen { mender: 1 })).await;
    claimed(pools, &pool, wish(3, "a")).await;
    take(pools, &pool, Step::Mend(Mend::Freeze { for_ms: 600_000, lost: vec![] })).await;
    assert_eq!(take(pools, &pool, Step::Finish).await.answer, Answer::Frozen);
    assert_eq!(lives().await, [(1, Some(1)), (1, Some(2)), (5, Some(3))]);
    let batch = read(stores, &pool, 10).await;
    assert_eq!((batch.incarnation, batch.ver), (5, 1002));
    acknowledge(stores, &pool, &batch, |_| true).await;
    assert_eq!(lives().await, []);
}

async fn two_readers_do_no_harm(stores: &Stores) {
    let pool = stocked(&stores.pools, 20).await;
    for number in 0..8 {
        claimed(&stores.pools, &pool, wish(number, "a")).await;
    }
    let (one, other) = tokio::join!(read(stores, &pool, 5), read(stores, &pool, 5));
    assert_eq!(one.entries, other.entries);
    join_all([&one, &other].map(|batch| acknowledge(stores, &pool, batch, |_| true))).await;
    let rest = read(stores, &pool, 5).await;
    assert_eq!((rest.entries.len(), rest.behind), (3, 0));
}

async fn a_name_gives_way_to_an_alias(stores: &Stores) {
    let pool = stocked(&stores.pools, 20).await;
    let claim = async |number, name: &str| {
        claimed(&stores.pools, &pool, Wish { user_raw: name.to_owned(), ..wish(number, "a") }).await;
    };
    claim(1, "ada").await;
    acknowledge(stores, &pool, &read(stores, &pool, 10).await, |_| true).await;
    claim(2, "ada").await;
    claim(3, "bob").await;
    let pending = read(stores, &pool, 10).await;
    for number in 4..=6 {
        claim(number, if number == 5 { "ada" } else { "carl" }).await;
    }
    // So that the time of the change cannot be taken for the time of the claim.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let renamed = stores.outbox.rename(&pool, "ada", "nobody").await.unwrap();
    // One that the ledger has may be gone by now.
    assert!(renamed == 2 || renamed == 3, "{renamed}");
    assert_eq!(stores.outbox.lag(&pool).await.unwrap().unwrap().entries, 5);
    let batch = read(stores, &pool, 10).await;
    assert_eq!(batch.behind, 0);
    let names: BTreeMap<u64, (Option<&str>, Entry)> = batch
        .entries
        .iter()
        .map(|(_, entry)| {
            let number = (0..10).find(|number| entry.claim() == Some((user(*number), 1))).expect("a claim");
            (number, (entry.user_raw(), entry.clone()))
        })
        .collect();
    let expected = [(2, "nobody"), (3, "bob"), (4, "carl"), (5, "nobody"), (6, "carl")];
    assert_eq!(names.len(), batch.entries.len());
    assert_eq!(names.iter().map(|(number, (name, _))| (*number, name.unwrap())).collect::<Vec<_>>(), expected);
    let (_, before) = &pending.entries[0];
    let (_, after) = &names[&2];
    let facts = |entry: &Entry| (entry.incarnation, entry.ver, entry.kind, entry.at_ms, entry.claim(), entry.unit());
    assert_eq!(facts(after), facts(before), "nothing but the name");
    assert_eq!(stores.outbox.rename(&pool, "ada", "nobody").await, Ok(0));
    // Whoever read the entries before may acknowledge them; the ledger hears of the alias all the same.
    acknowledge(stores, &pool, &pending, |_| true).await;
    assert!(read(stores, &pool, 10).await.entries.iter().any(|(_, entry)| entry.user_raw() == Some("nobody")));
    acknowledge(stores, &pool, &batch, |_| true).await;
    assert_eq!(stores.outbox.rename(&pool, "nobody", "nobody").await, Ok(0));
    assert_eq!(stores.outbox.lag(&pool).await.unwrap().unwrap().entries, 0);
}

/// Readers that come and go, some of them dying before they acknowledge, while many claim.
async fn a_crowd_is_written_down(stores: &Stores) {
    const CROWDS: u64 = 6;
    const EACH: u64 = 400;
    let pool = stocked(&stores.pools, CROWDS * EACH).await;
    let crowds = join_all((0..CROWDS).map(async |crowd| {
        let users: Vec<u64> = (crowd * EACH..(crowd + 1) * EACH).collect();
        for some in users.chunks(23) {
            let wishes = some.iter().map(|number| wish(*number, "a")).collect();
            take(&stores.pools, &pool, Step::Claim { wishes }).await;
        }
    }));
    let mut ledger: BTreeMap<u64, Entry> = BTreeMap::new();
    let mut acknowledged: BTreeSet<String> = BTreeSet::new();
    let mut last = 0;
    let mut readers = 0u64;
    let mut write = async |limit| {
        let batch = read(stores, &pool, limit).await;
        readers += 1;
        assert!(batch.entries.len() <= limit && batch.entries.is_sorted_by_key(|(_, entry)| entry.ver));
        for (name, entry) in &batch.entries {
            assert!(!acknowledged.contains(name), "read again after it was acknowledged");
            if ledger.insert(entry.ver, entry.clone()).is_none() {
                assert!(entry.ver > last, "in their order");
                last = entry.ver;
            }
        }
        let is_written = !readers.is_multiple_of(3);
        if is_written {
            acknowledge(stores, &pool, &batch, |_| true).await;
            acknowledged.extend(batch.entries.iter().map(|(name, _)| name.clone()));
        }
        (batch, is_written)
    };
    let mut crowds = std::pin::pin!(crowds);
    let mut is_over = false;
    loop {
        let (batch, was_written) = if is_over {
            write(STEP_MAX * 4).await
        } else {
            tokio::select! {
                biased;
                _ = &mut crowds => { is_over = true; continue; }
                written = write(97) => written,
            }
        };
        if is_over && was_written && batch.behind == 0 && batch.entries.is_empty() {
            break;
        }
    }
    let users: BTreeSet<_> = ledger.values().filter_map(Entry::claim).collect();
    assert_eq!((ledger.len() as u64, users.len() as u64), (CROWDS * EACH, CROWDS * EACH));
    assert_eq!(stores.outbox.lag(&pool).await, Ok(Some(OutboxLag::default())));
}

pub async fn read(stores: &Stores, pool: &PoolAddress, limit: usize) -> OutboxBatch {
    stores.outbox.read(pool, limit).await.unwrap().expect("a pool")
}

/// Acknowledges the entries in some places of a batch.
pub async fn acknowledge(stores: &Stores, pool: &PoolAddress, batch: &OutboxBatch, which: impl Fn(usize) -> bool) {
    let places = batch.entries.iter().enumerate();
    let names: Vec<String> = places.filter(|(place, _)| which(*place)).map(|(_, (name, _))| name.clone()).collect();
    stores.outbox.acknowledge(pool, &names).await.unwrap();
}
