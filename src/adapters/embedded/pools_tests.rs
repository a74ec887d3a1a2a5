//! Pools on a disk of the test's own: what is there after a restart, a full disk, foreign bytes. What a kill or a power
//! cut leaves is in `pools_crash.rs`; what every store promises of pools, in `tests/integration/contract`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::EmbeddedStore;
use super::batch::Content;
use super::format::{self, Key, Table};
use super::test_disk::Disk;
use crate::domain::id::CampaignId;
use crate::domain::quota::claim::{ClaimAnswer, ClaimRecord, UserKey, Wish};
use crate::domain::quota::marks::{Floor, OpMark, STEP_MAX};
use crate::domain::quota::pool::Pool;
use crate::domain::quota::step::{Answer, ConfirmAnswer, ReleasedBy, Step, Stepped};
use crate::domain::quota::terms::{PoolRules, PoolSchedule};
use crate::domain::quota::unit::Unit;
use crate::domain::ring::Position;
use crate::runtime::clock::Clock;
use crate::store::error::StoreError;
use crate::store::pools::{PoolAddress, Pools, Safety};

pub fn noon() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

pub fn address(campaign: &str, position: u16) -> PoolAddress {
    PoolAddress { campaign: CampaignId::new(campaign).unwrap(), position: Position::new(position).unwrap() }
}

pub fn create(hold_ms: i64) -> Step {
    let schedule = PoolSchedule { version: 1, opens_ms: 0, closes_ms: i64::MAX, paused: false };
    Step::Create { rules: PoolRules { hold_ms, interval_ms: 500 }, schedule }
}

pub fn user(index: u64) -> UserKey {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&index.to_be_bytes());
    UserKey(key)
}

pub fn wish(index: u64, secret: &str) -> Wish {
    Wish { user: user(index), user_raw: format!("user {index}"), secret: secret.into(), idem: String::new() }
}

pub fn claims(users: std::ops::Range<u64>) -> Step {
    Step::Claim { wishes: users.map(|index| wish(index, "s")).collect() }
}

/// The pool as it is in memory; None where there is none.
pub fn pool_of(content: &super::pool_cells::PoolCells, address: &PoolAddress) -> Option<Pool> {
    content.get(&format::pool_text(address))?.lock().pool.clone()
}

pub async fn take(store: &EmbeddedStore, address: &PoolAddress, step: Step) -> Result<Stepped, StoreError> {
    store.step(address, Floor::default(), step).await
}

pub async fn answer(store: &EmbeddedStore, address: &PoolAddress, step: Step) -> Answer {
    take(store, address, step).await.unwrap().answer
}

pub fn granted(answer: Answer) -> Vec<ClaimRecord> {
    let Answer::Claims(answers) = answer else { panic!("{answer:?}") };
    let record = |answer| if let ClaimAnswer::Granted(record) = answer { Some(record) } else { None };
    answers.into_iter().filter_map(record).collect()
}

/// A pool with holds and this stock.
pub async fn filled(store: &EmbeddedStore, address: &PoolAddress, numbers: std::ops::Range<u64>) {
    assert_eq!(answer(store, address, create(60_000)).await, Answer::Done(true));
    for (chunk, first) in numbers.clone().step_by(STEP_MAX).enumerate() {
        let units = (first..numbers.end.min(first + STEP_MAX as u64)).map(Unit::new).collect();
        let op = OpMark { operation: 1, chunk: chunk as u64 + 1 };
        let restock = Step::Restock { op, unretire: 0, units, cool: false };
        assert_eq!(answer(store, address, restock).await, Answer::Done(true));
    }
}

#[tokio::test]
async fn pools_are_the_same_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::settable(noon());
    let open =
        || super::EmbeddedStore::open(super::EmbeddedConfig::new(dir.path()), clock.clone(), super::Tasks::new());
    let (one, two) = (address("sale", 0), address("sale", 512));
    let live = {
        let store = open().unwrap();
        filled(&store, &one, 1..201).await;
        filled(&store, &two, 201..202).await;
        let records = granted(answer(&store, &one, claims(0..100)).await);
        let secret = || "s".to_owned();
        answer(&store, &one, Step::Confirm { user: user(1), secret: secret() }).await;
        answer(&store, &one, Step::Release { user: user(2), secret: secret(), by: ReleasedBy::User }).await;
        answer(&store, &one, Step::Release { user: user(3), secret: secret(), by: ReleasedBy::Operator }).await;
        answer(&store, &one, Step::Retire { op: OpMark { operation: 2, chunk: 1 }, count: 5 }).await;
        answer(&store, &one, Step::Debit { home: 1, want: 7 }).await;
        clock.advance(Duration::from_secs(61));
        assert_eq!(answer(&store, &one, Step::Reap { limit: 10 }).await, Answer::Reaped(10));
        let known = Floor { incarnation: 1, ver: u64::MAX };
        assert_eq!(store.step(&two, known, create(0)).await.unwrap().answer, Answer::Fenced);
        assert_eq!(records.len(), 100);
        store.close();
        [&one, &two].map(|address| pool_of(store.committer.pools(), address))
    };
    let store = open().unwrap();
    assert_eq!([&one, &two].map(|address| pool_of(store.committer.pools(), address)), live);
    assert!(live.iter().flatten().all(|pool| pool.log.is_empty()), "the outbox is not kept in memory");
    assert_eq!(answer(&store, &one, Step::Look { user: user(1) }).await, {
        Answer::Record(live[0].as_ref().unwrap().claims.get(&user(1)).cloned())
    });
    assert_eq!(answer(&store, &two, claims(0..1)).await, Answer::Fenced);
    assert_eq!(answer(&store, &address("other", 0), Step::Look { user: user(1) }).await, Answer::Absent);
    assert_eq!(store.safety(&one), Safety::Safe { replicas: 0 });
}

#[tokio::test]
async fn the_outbox_has_every_entry_in_order() {
    let (disk, sale) = (Disk::default(), address("sale", 0));
    {
        let store = disk.store(&Clock::settable(noon()), 100);
        filled(&store, &sale, 1..4).await;
        answer(&store, &sale, claims(0..2)).await;
        store.close();
    }
    let store = disk.store(&Clock::settable(noon()), 100);
    answer(&store, &sale, Step::Confirm { user: user(0), secret: "s".into() }).await;
    store.close();
    let log = disk.rows_of(Table::PoolLog);
    let said = |(key, value): &(Key, Bytes)| {
        let entry: serde_json::Value = serde_json::from_slice(value).unwrap();
        let text = |field: &str| entry[field].as_str().map(str::to_owned);
        (key.describe().rsplit('|').next().unwrap().to_owned(), text("kind").unwrap(), text("user_raw"))
    };
    let entry =
        |index: &str, kind: &str, raw: Option<&str>| (index.to_owned(), kind.to_owned(), raw.map(str::to_owned));
    let index = |place: u64| format!("{:016x}", noon().as_microsecond() as u64 + place);
    assert_eq!(
        log.iter().map(said).collect::<Vec<_>>(),
        [
            entry(&index(0), "grant", Some("user 0")),
            entry(&index(1), "grant", Some("user 1")),
            entry(&index(2), "confirm", None),
        ]
    );
}

#[tokio::test]
async fn a_million_units_are_a_few_bytes_and_a_claim_is_one_fsync() {
    let (disk, sale) = (Disk::default(), address("sale", 0));
    let store = disk.store(&Clock::settable(noon()), 100);
    filled(&store, &sale, 1..1_000_001).await;
    let (syncs, written) = disk.work();
    for batch in 0..10 {
        assert_eq!(granted(answer(&store, &sale, claims(batch * 64..(batch + 1) * 64)).await).len(), 64);
    }
    let (syncs, written) = (disk.work().0 - syncs, disk.work().1 - written);
    // A file that grows takes one more now and then.
    assert!((10..=13).contains(&syncs), "{syncs} syncs for 10 batches");
    assert!(written < 2_000_000, "{written} bytes for 10 batches");
    store.close();
    let heads = disk.rows_of(Table::Pools);
    assert!(heads[0].1.len() < 1000, "{} bytes", heads[0].1.len());
}

#[tokio::test]
async fn a_full_disk_fails_steps_halves_none_and_recovers() {
    let (disk, sale, clock) = (Disk::default(), address("sale", 0), Clock::settable(noon()));
    let store = disk.store(&clock, 100);
    filled(&store, &sale, 1..11).await;
    granted(answer(&store, &sale, claims(0..1)).await);
    let before = pool_of(store.committer.pools(), &sale);

    disk.fill(true);
    let refused = StoreError::Refused("the disk is full".to_owned());
    assert_eq!(take(&store, &sale, claims(1..3)).await, Err(refused.clone()));
    // What is only in memory is shown to nobody: also whoever merely looks waits for the disk.
    assert_eq!(take(&store, &sale, Step::Look { user: user(0) }).await, Err(refused.clone()));
    assert_eq!(store.claims(&sale, None, 10).await, Err(refused.clone()));
    assert_eq!(store.claimants(&sale, None).await, Err(refused));
    for image in [disk.after_kill(), disk.after_power_cut(|| false)] {
        assert_eq!(pool_of(&Content::new(image.rows()).pools, &sale), before);
    }

    disk.fill(false);
    assert_eq!(granted(answer(&store, &sale, claims(3..4)).await)[0].unit, Unit::new(4));
    let page = store.claims(&sale, None, 10).await.unwrap();
    assert_eq!(page.claims.len(), 4, "what was dirty went to disk with it");
    let after = pool_of(store.committer.pools(), &sale);
    store.close();
    assert_eq!(pool_of(&Content::new(disk.rows()).pools, &sale), after);
    assert_eq!(disk.rows_of(Table::PoolLog).len(), 4);
}

#[tokio::test]
async fn while_the_disk_refuses_a_pools_changes_are_bounded() {
    let (disk, sale) = (Disk::default(), address("sale", 0));
    let store = disk.store(&Clock::settable(noon()), 10);
    filled(&store, &sale, 1..100_001).await;
    disk.fill(true);
    let mut overloaded = 0;
    for batch in 0..10 {
        let users = batch * STEP_MAX as u64..(batch + 1) * STEP_MAX as u64;
        overloaded += u32::from(matches!(take(&store, &sale, claims(users)).await, Err(StoreError::Overloaded(_))));
    }
    assert_eq!(overloaded, 9, "160 entries are the most that wait");
    disk.fill(false);
    let recovered = async {
        while take(&store, &sale, claims(0..1)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), recovered).await.expect("a store that writes again");
    assert_eq!(granted(answer(&store, &sale, claims(9000..9256)).await).len(), STEP_MAX);
}

#[tokio::test]
async fn foreign_bytes_spoil_their_own_pool_only() {
    let (disk, clock) = (Disk::default(), Clock::settable(noon()));
    let names = ["good", "head", "claim", "missing", "headless"];
    let all = names.map(|name| address(name, 0));
    {
        let store = disk.store(&clock, 100);
        for pool in &all {
            filled(&store, pool, 1..11).await;
            answer(&store, pool, claims(0..2)).await;
        }
        store.close();
        let [_, head, claim, missing, headless] = all.each_ref().map(format::pool_text);
        let rows = [
            (Key::pool(&head), Some(Bytes::from_static(b"{\"form\":1}"))),
            (Key::claim(&claim, user(0)), Some(Bytes::from_static(b"h|1#0"))),
            (Key::claim(&missing, user(1)), None),
            (Key::pool(&headless), None),
        ];
        disk.file().write(&rows).unwrap();
    }
    let store = disk.store(&clock, 100);
    for spoilt in &all[1..] {
        for step in [create(0), Step::Look { user: user(0) }, claims(5..6)] {
            assert!(matches!(take(&store, spoilt, step).await, Err(StoreError::Corrupt(_))), "{spoilt:?}");
        }
        assert!(matches!(store.claims(spoilt, None, 10).await, Err(StoreError::Corrupt(_))));
        assert!(matches!(store.claimants(spoilt, None).await, Err(StoreError::Corrupt(_))));
    }
    assert_eq!(granted(answer(&store, &all[0], claims(5..6)).await).len(), 1);
    store.remove(&all[1]).await.unwrap();
    assert_eq!(answer(&store, &all[1], create(0)).await, Answer::Done(true), "removing it helps");
}

#[tokio::test]
async fn a_step_that_panics_stops_its_pool_and_is_not_written() {
    let (disk, sale, other) = (Disk::default(), address("sale", 0), address("other", 0));
    let store = disk.store(&Clock::settable(noon()), 100);
    filled(&store, &sale, 1..11).await;
    filled(&store, &other, 1..11).await;
    let before = pool_of(store.committer.pools(), &sale);
    // A turn that cannot rise: the release panics after it has changed the claim.
    let cell = store.committer.pools().get(&format::pool_text(&sale)).unwrap();
    cell.lock().pool.as_mut().unwrap().avail[0].turn = u32::MAX;
    drop(cell);
    disk.fill(true);
    assert!(take(&store, &sale, claims(0..1)).await.is_err(), "its change waits for a commit");
    let in_task = store.clone();
    let release = Step::Release { user: user(0), secret: "s".into(), by: ReleasedBy::User };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { take(&in_task, &address("sale", 0), release).await });
    assert!(tasks.join_next().await.unwrap().unwrap_err().is_panic());
    disk.fill(false);
    assert!(matches!(take(&store, &sale, claims(1..2)).await, Err(StoreError::Corrupt(_))));
    // Whoever shares a commit with what cannot be written is told that it failed; this one may have one of its own.
    let told = take(&store, &other, claims(0..1)).await;
    assert!(told.is_ok() || matches!(told, Err(StoreError::Corrupt(_))), "{told:?}");
    assert!(matches!(answer(&store, &other, claims(0..1)).await, Answer::Claims(_)));
    store.close();
    assert_eq!(pool_of(&Content::new(disk.rows()).pools, &sale), before);
}

#[tokio::test]
async fn claims_come_in_pages_and_claimants_since_a_mark() {
    let (disk, sale, none) = (Disk::default(), address("sale", 0), address("none", 0));
    let store = disk.store(&Clock::settable(noon()), 100);
    filled(&store, &sale, 1..101).await;
    let first = answer(&store, &sale, claims(0..5)).await;
    let page = store.claims(&sale, None, 2).await.unwrap();
    assert_eq!(page.claims.iter().map(|(user, _)| *user).collect::<Vec<_>>(), [user(0), user(1)]);
    let page = store.claims(&sale, page.next.as_deref(), 3).await.unwrap();
    assert_eq!(page.claims.into_iter().map(|(_, record)| record).collect::<Vec<_>>(), granted(first)[2..]);
    assert_eq!(page.next, None);
    assert!(matches!(store.claims(&sale, Some("x"), 3).await, Err(StoreError::Refused(_))));
    assert_eq!(store.claims(&none, None, 3).await.unwrap().claims, []);

    let all = store.claimants(&sale, None).await.unwrap();
    assert_eq!((all.users.len(), all.all), (5, true));
    assert!((0..5).all(|index| all.users.contains(&user(index).short())));
    let nothing = store.claimants(&sale, Some(&all.mark)).await.unwrap();
    assert_eq!((nothing.users.as_slice(), nothing.all, &nothing.mark), ([].as_slice(), false, &all.mark));
    answer(&store, &sale, claims(7..8)).await;
    let new = store.claimants(&sale, Some(&all.mark)).await.unwrap();
    assert_eq!((new.users, new.all), (vec![user(7).short()], false));
    let mut of_another = all.mark.clone();
    of_another.incarnation += 1;
    assert!(store.claimants(&sale, Some(&of_another)).await.unwrap().all);
    assert!(store.claimants(&none, Some(&all.mark)).await.unwrap().all);
}

#[tokio::test]
async fn a_removed_pool_leaves_nothing_and_can_be_made_anew() {
    let (disk, clock) = (Disk::default(), Clock::settable(noon()));
    let (sale, other) = (address("sale", 6), address("sale", 64));
    let store = disk.store(&clock, 100_000);
    filled(&store, &other, 1..11).await;
    answer(&store, &other, claims(0..2)).await;
    filled(&store, &sale, 1..100_001).await;
    for batch in 0..40 {
        answer(&store, &sale, claims(batch * 256..(batch + 1) * 256)).await;
    }
    let before = disk.work().0;
    disk.fill(true);
    assert!(store.remove(&sale).await.is_err());
    disk.fill(false);
    assert!(matches!(take(&store, &sale, create(0)).await, Err(StoreError::Unavailable(_))), "its claims are there");
    // Begun, and the caller went away; then the program ends, and another one finishes.
    assert_eq!(answer(&store, &sale, Step::Look { user: user(1) }).await, Answer::Absent);
    let image = disk.after_power_cut(|| false);
    let again = image.store(&clock, 100);
    again.remove(&sale).await.unwrap();
    store.remove(&sale).await.unwrap();
    assert!(disk.work().0 - before >= 5, "20,480 rows in chunks");
    for (disk, store) in [(&disk, &store), (&image, &again)] {
        assert_eq!(answer(store, &sale, claims(0..1)).await, Answer::Absent);
        assert_eq!(answer(store, &sale, create(0)).await, Answer::Done(true));
        assert_eq!(answer(store, &sale, Step::Look { user: user(1) }).await, Answer::Record(None));
        store.remove(&sale).await.unwrap();
        store.close();
        assert_eq!([Table::Pools, Table::Claims, Table::PoolLog].map(|table| disk.rows_of(table).len()), [1, 2, 2]);
    }
}

#[tokio::test]
async fn time_does_not_go_back_for_pools() {
    let (disk, sale) = (Disk::default(), address("sale", 0));
    let clock = Clock::settable(noon());
    let store = disk.store(&clock, 100);
    filled(&store, &sale, 1..3).await;
    clock.advance(Duration::from_secs(5));
    let later = take(&store, &sale, claims(0..1)).await.unwrap().now_us;
    let behind = disk.after_kill().store(&Clock::settable(noon()), 100);
    behind.told_us.store(later, std::sync::atomic::Ordering::SeqCst);
    let confirm = Step::Confirm { user: user(0), secret: "s".into() };
    let stepped = take(&behind, &sale, confirm).await.unwrap();
    assert!(matches!(stepped.answer, Answer::Confirm(ConfirmAnswer::Confirmed(_))));
    assert_eq!(stepped.now_us, later);
    let _: Arc<dyn Pools> = behind;
}
