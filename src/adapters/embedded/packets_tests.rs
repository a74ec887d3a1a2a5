//! Packets, and pools that are rebuilt, on a disk of the test's own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::EmbeddedStore;
use super::format::{self, Key, Table};
use super::pools_tests::{address, answer, claims, create, filled, granted, noon, pool_of, take, user};
use super::test_disk::Disk;
use crate::domain::quota::claim::{ClaimRecord, UserKey};
use crate::domain::quota::inventory::Inventory;
use crate::domain::quota::marks::{Floor, OpMark, Parcel, STEP_MAX};
use crate::domain::quota::mend::{Blank, Mend};
use crate::domain::quota::step::{Answer, CreditAnswer, DebitAnswer, ReleasedBy, Step};
use crate::domain::quota::terms::{PoolRules, PoolSchedule, PoolStatus};
use crate::domain::quota::unit::Unit;
use crate::runtime::clock::Clock;
use crate::store::error::StoreError;
use crate::store::outbox::Outbox;
use crate::store::pools::{PoolAddress, Pools};

fn packet(number: u64) -> Unit {
    Unit::packet(number, 1 + (number * 7919 % 20_000) as i64)
}

async fn packed(store: &EmbeddedStore, pool: &PoolAddress, numbers: std::ops::Range<u64>) {
    assert_eq!(answer(store, pool, create(60_000)).await, Answer::Done(true));
    let units: Vec<Unit> = numbers.map(packet).collect();
    for (chunk, units) in (1..).zip(units.chunks(STEP_MAX)) {
        let (op, units) = (OpMark { operation: 1, chunk }, units.to_vec());
        let restock = Step::Restock { op, unretire: 0, units, cool: false };
        assert_eq!(answer(store, pool, restock).await, Answer::Done(true));
    }
}

/// Closes the store and opens it again; all pools must be the same.
fn reopened(store: Arc<EmbeddedStore>, disk: &Disk, clock: &Clock, pools: &[&PoolAddress]) -> Arc<EmbeddedStore> {
    let of =
        |store: &EmbeddedStore| -> Vec<_> { pools.iter().map(|pool| pool_of(store.committer.pools(), pool)).collect() };
    store.close();
    let again = disk.store(clock, 100_000);
    assert_eq!(of(&again), of(&store));
    again
}

fn mend(mend: Mend) -> Step {
    Step::Mend(mend)
}

fn blank(mender: u64, incarnation: u64) -> Step {
    let schedule = PoolSchedule { version: 1, opens_ms: 0, closes_ms: i64::MAX, paused: false };
    mend(Mend::Empty(Box::new(Blank {
        mender,
        rules: PoolRules { hold_ms: 60_000, interval_ms: 500 },
        schedule,
        status: PoolStatus::Open,
        incarnation,
        ver: 1,
        seq: 7,
        refunded: 1,
        refunded_cents: 10,
        came: vec![(3, 4)],
    })))
}

fn fill(mender: u64, part: u64, claims: Vec<(UserKey, ClaimRecord)>, numbers: std::ops::Range<u64>) -> Step {
    let stock = numbers.map(packet).collect();
    mend(Mend::Fill { mender, part, claims, stock, retired: vec![packet(900 + part)] })
}

#[tokio::test]
async fn packets_keep_their_amounts_wherever_they_go() {
    let (disk, clock) = (Disk::default(), Clock::settable(noon()));
    let (one, two) = (address("sale", 0), address("sale", 512));
    let both = [&one, &two];
    let store = disk.store(&clock, 100_000);
    packed(&store, &one, 1..101).await;
    assert_eq!(answer(&store, &two, create(60_000)).await, Answer::Done(true));
    let records = granted(answer(&store, &one, claims(0..10)).await);
    assert_eq!(records.iter().map(|record| record.unit).collect::<Vec<_>>(), (1..11).map(packet).collect::<Vec<_>>());
    let store = reopened(store, &disk, &clock, &both);

    let release = |index, by| Step::Release { user: user(index), secret: "s".into(), by };
    answer(&store, &one, release(3, ReleasedBy::User)).await;
    answer(&store, &one, release(4, ReleasedBy::Operator)).await;
    answer(&store, &one, Step::Retire { op: OpMark { operation: 2, chunk: 1 }, count: 5 }).await;
    let Answer::Debit(DebitAnswer::New(parcel)) = answer(&store, &one, Step::Debit { home: 1, want: 8 }).await else {
        panic!("no parcel")
    };
    let store = reopened(store, &disk, &clock, &both);
    let credit = Step::Credit { donor: 0, parcel: parcel.clone(), wishes: vec![super::pools_tests::wish(50, "s")] };
    let Answer::Credit(CreditAnswer::Credited, _) = answer(&store, &two, credit).await else { panic!("no credit") };
    let store = reopened(store, &disk, &clock, &both);
    answer(&store, &one, Step::Ack { home: 1, parcel: parcel.clone() }).await;
    answer(&store, &two, release(50, ReleasedBy::User)).await;
    clock.advance(Duration::from_secs(2));
    answer(&store, &two, claims(60..70)).await;
    let store = reopened(store, &disk, &clock, &both);

    let pool = pool_of(store.committer.pools(), &two).unwrap();
    let mut sent: Vec<_> = pool.claims.values().filter(|claim| claim.state.is_live()).map(|claim| claim.unit).collect();
    sent.sort_by_key(|unit| unit.number);
    let back = |unit: &Unit| if *unit == parcel.units[0] { unit.returned() } else { *unit };
    assert_eq!(sent, parcel.units.iter().map(back).collect::<Vec<_>>());
    assert_eq!(pool.taken_cents, sent.iter().filter_map(|unit| unit.cents).sum::<i64>());
    let left = pool_of(store.committer.pools(), &one).unwrap();
    assert_eq!(store.inventory(&one).await, Ok(Some(Inventory::from(&left))));
    assert_eq!(store.inventory(&address("none", 0)).await, Ok(None));

    store.remove(&one).await.unwrap();
    store.close();
    assert_eq!(disk.rows_of(Table::Packets).len(), 8, "those of the other pool");
    let text = format::pool_text(&two);
    let lost = Key::packet(&text, parcel.units[7].number);
    // Only a packet that is somebody's may do without: its claim says what it holds.
    disk.file().write(&[(lost.clone(), None)]).unwrap();
    assert_eq!(pool_of(&super::batch::Content::new(disk.rows()).pools, &two), Some(pool));
    disk.file().write(&[(lost, Some(Bytes::from_static(b"x")))]).unwrap();
    let spoilt = disk.store(&clock, 100);
    assert!(matches!(take(&spoilt, &two, create(0)).await, Err(StoreError::Corrupt(_))));
    assert!(matches!(spoilt.inventory(&two).await, Err(StoreError::Corrupt(_))));
}

#[tokio::test]
async fn the_head_of_many_packets_is_small() {
    let (disk, clock, sale) = (Disk::default(), Clock::settable(noon()), address("sale", 0));
    let store = disk.store(&clock, 100_000);
    packed(&store, &sale, 1..62_501).await;
    let written = disk.work().1;
    for batch in 0..10 {
        assert_eq!(granted(answer(&store, &sale, claims(batch * 64..(batch + 1) * 64)).await).len(), 64);
    }
    let written = disk.work().1 - written;
    let store = reopened(store, &disk, &clock, &[&sale]);
    store.close();
    let head = disk.rows_of(Table::Pools)[0].1.len();
    assert!(head < 1000, "{head} bytes");
    assert!(written < 2_000_000, "{written} bytes for 10 batches");
    assert_eq!(disk.rows_of(Table::Packets).len(), 62_500);
}

/// Every part is on disk when it is answered, also what no entry of the outbox tells of.
#[tokio::test]
async fn a_missing_pool_is_rebuilt_part_by_part() {
    let (disk, clock, sale) = (Disk::default(), Clock::settable(noon()), address("sale", 0));
    let mut store = disk.store(&clock, 100);
    let record = |text: &str| text.parse::<ClaimRecord>().unwrap();
    let first = vec![(user(1), record("h|1#0:500|s|1|5|900|39|")), (user(2), record("c|2#0:700|s|1|5|0|40|"))];
    let second = vec![(user(3), record("r|3#0:800|s|1|5|900|41|"))];
    assert_eq!(answer(&store, &sale, fill(1, 1, first.clone(), 10..20)).await, Answer::Absent);
    let steps = [
        (blank(11, 2), Answer::Done(true)),
        (fill(11, 1, first.clone(), 10..20), Answer::Done(true)),
        (fill(11, 1, first, 10..20), Answer::Done(true)),
        (claims(5..6), Answer::Fenced),
        (fill(12, 2, Vec::new(), 20..30), Answer::Done(false)),
        (fill(11, 2, second, 20..30), Answer::Done(true)),
        (mend(Mend::Reopen { mender: 11 }), Answer::Done(true)),
        (mend(Mend::Reopen { mender: 11 }), Answer::Done(true)),
    ];
    for (step, expected) in steps {
        let name = step.name();
        assert_eq!(answer(&store, &sale, step).await, expected, "{name}");
        let live = pool_of(store.committer.pools(), &sale);
        // As after a kill, not after a close that would write what was forgotten.
        let image = disk.after_power_cut(|| false);
        assert_eq!(pool_of(&super::batch::Content::new(image.rows()).pools, &sale), live, "{name}");
        store = reopened(store, &disk, &clock, &[&sale]);
    }
    let pool = pool_of(store.committer.pools(), &sale).unwrap();
    assert_eq!((pool.claims.len(), pool.confirmed, pool.deadlines.len(), pool.taken_cents), (3, 1, 1, 1200));
    assert_eq!(pool.avail, (10..30).map(packet).collect::<Vec<_>>());
    // What came with a claim comes back with its amount.
    let release = Step::Release { user: user(1), secret: "s".into(), by: ReleasedBy::User };
    answer(&store, &sale, release).await;
    let store = reopened(store, &disk, &clock, &[&sale]);
    assert_eq!(granted(answer(&store, &sale, claims(5..6)).await)[0].unit, packet(10));
    let news = Outbox::read(&*store, &sale, 10).await.unwrap().unwrap();
    assert_eq!((news.entries.len(), news.incarnation, news.ver), (2, 2, pool.ver + 2));
}

#[tokio::test]
async fn a_fenced_pool_is_emptied_and_its_news_stay() {
    let (disk, clock, sale) = (Disk::default(), Clock::settable(noon()), address("sale", 0));
    let store = disk.store(&clock, 100_000);
    packed(&store, &sale, 1..301).await;
    answer(&store, &sale, claims(0..250)).await;
    let before = Outbox::read(&*store, &sale, 1000).await.unwrap().unwrap();
    let marked = store.claimants(&sale, None).await.unwrap().mark;
    assert_eq!(answer(&store, &sale, blank(11, 2)).await, Answer::Done(false), "it serves");
    assert_eq!(answer(&store, &sale, mend(Mend::Fence)).await, Answer::Done(true));
    let store = reopened(store, &disk, &clock, &[&sale]);
    // The disk refuses at first: the pool is emptied with what is written later, and with nothing of before.
    disk.fill(true);
    assert!(take(&store, &sale, blank(11, 2)).await.is_err());
    let record = |index: u64| format!("c|{}#0:500|s|1|5|0|1|", index + 1).parse::<ClaimRecord>().unwrap();
    let some: Vec<_> = (0..3).map(|index| (user(index), record(index))).collect();
    assert!(take(&store, &sale, fill(11, 1, some.clone(), 500..510)).await.is_err());
    disk.fill(false);
    let while_mended = store.claimants(&sale, Some(&marked)).await.unwrap();
    assert_eq!((while_mended.users.len(), while_mended.all), (3, true));
    let store = reopened(store, &disk, &clock, &[&sale]);
    assert_eq!([Table::Claims, Table::Packets].map(|table| disk.after_kill().rows_of(table).len()), [3, 14]);
    let after = Outbox::read(&*store, &sale, 1000).await.unwrap().unwrap();
    assert_eq!((after.entries, after.incarnation), (before.entries, 2));

    // Another mender begins again.
    assert_eq!(answer(&store, &sale, blank(12, 3)).await, Answer::Done(true));
    let store = reopened(store, &disk, &clock, &[&sale]);
    assert_eq!([Table::Claims, Table::Packets].map(|table| disk.after_kill().rows_of(table).len()), [0, 0]);
    answer(&store, &sale, fill(12, 1, some[..1].to_vec(), 500..510)).await;
    answer(&store, &sale, mend(Mend::Reopen { mender: 12 })).await;
    let new = store.claimants(&sale, Some(&while_mended.mark)).await.unwrap();
    assert!(new.all);
    assert_eq!(granted(answer(&store, &sale, claims(5..7)).await).len(), 2);
    let newer = store.claimants(&sale, Some(&new.mark)).await.unwrap();
    assert_eq!((newer.users.len(), newer.all), (2, false));
    let store = reopened(store, &disk, &clock, &[&sale]);
    assert_eq!(Outbox::read(&*store, &sale, 1000).await.unwrap().unwrap().entries.len(), 252);
}

/// A mark that was read while claims were still coming in must not hide those of later parts.
#[tokio::test]
async fn claimants_of_a_pool_that_is_rebuilt_are_all_read_again() {
    let (disk, sale) = (Disk::default(), address("sale", 0));
    let store = disk.store(&Clock::settable(noon()), 100);
    answer(&store, &sale, blank(11, 2)).await;
    let mark = store.claimants(&sale, None).await.unwrap().mark;
    let record = "c|2#0:700|s|1|5|0|1|".parse().unwrap();
    answer(&store, &sale, fill(11, 1, vec![(user(2), record)], 0..0)).await;
    answer(&store, &sale, mend(Mend::Reopen { mender: 11 })).await;
    let read = store.claimants(&sale, Some(&mark)).await.unwrap();
    assert!(read.users.contains(&user(2).short()));
}

#[tokio::test]
async fn a_freeze_is_on_disk() {
    let (disk, clock, sale) = (Disk::default(), Clock::settable(noon()), address("sale", 0));
    let store = disk.store(&clock, 100);
    filled(&store, &sale, 1..11).await;
    let freeze = |lost: &[u16]| mend(Mend::Freeze { for_ms: 5000, lost: lost.to_vec() });
    for step in [freeze(&[]), freeze(&[4])] {
        assert_eq!(answer(&store, &sale, step).await, Answer::Done(true));
        let live = pool_of(store.committer.pools(), &sale);
        let image = disk.after_power_cut(|| false);
        assert_eq!(pool_of(&super::batch::Content::new(image.rows()).pools, &sale), live);
    }
    let store = reopened(store, &disk, &clock, &[&sale]);
    assert_eq!(answer(&store, &sale, claims(0..1)).await, Answer::Frozen);
    // What the lost shard sent does not come in any more.
    assert_eq!(answer(&store, &sale, mend(Mend::Thaw)).await, Answer::Done(true));
    let store = reopened(store, &disk, &clock, &[&sale]);
    let parcel = Parcel { seq: clock.now().as_microsecond() as u64, units: vec![Unit::new(99)] };
    let credit = Step::Credit { donor: 4, parcel, wishes: Vec::new() };
    assert_eq!(answer(&store, &sale, credit).await, Answer::Credit(CreditAnswer::Known, Vec::new()));
    let stepped = store.step(&sale, Floor::default(), claims(0..1)).await.unwrap();
    assert_eq!(granted(stepped.answer).len(), 1);
}
