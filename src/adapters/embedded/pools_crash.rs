//! What a kill or a power cut leaves of pools: everything that was answered, and no half of anything.
//!
//! Workers take random steps on several pools of packets at once, and a reader their news. Meanwhile the disk is copied
//! at random instants, as a kill or a power cut would leave it; each copy must have every step that was answered before,
//! every packet exactly once and as large as ever, and every piece of news that the reader did not acknowledge, but none
//! that it did.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use super::batch::Content;
use super::format::{self, Key, Table};
use super::pool_head::{self, News};
use super::pool_log;
use super::pools_tests::{address, create, noon, pool_of, user, wish};
use super::test_disk::Disk;
use super::{EmbeddedStore, pool_cells::PoolCells};
use crate::domain::ledger::entry::{Entry, Subject};
use crate::domain::quota::claim::{ClaimAnswer, ClaimRecord, UserKey};
use crate::domain::quota::marks::{Floor, OpMark, Parcel};
use crate::domain::quota::pool::Pool;
use crate::domain::quota::step::{Answer, ConfirmAnswer, CreditAnswer, DebitAnswer, ReleaseAnswer, ReleasedBy, Step};
use crate::domain::quota::unit::Unit;
use crate::runtime::clock::Clock;
use crate::store::outbox::Outbox;
use crate::store::pools::{PoolAddress, Pools};

const SHARDS: u16 = 3;
const WORKERS: u64 = 4;
const STEPS: usize = 500;
const USERS: u64 = 150;
const READS: usize = 400;

/// SplitMix64: the same steps for the same seed, up to the order in which workers come.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// What was answered, and what was asked for.
#[derive(Default, Clone)]
struct Told {
    /// By shard: the highest version, and each user's newest record.
    versions: BTreeMap<u16, u64>,
    records: HashMap<(u16, UserKey), ClaimRecord>,
    /// By shard and operation: the units of a restock, before it was sent.
    stock: BTreeMap<(u16, u64), std::ops::Range<u64>>,
    /// By shard and index: news that were read, before they were acknowledged.
    news: BTreeMap<(u16, u64), Entry>,
    /// Those of which the store said that they are acknowledged.
    done: HashSet<(u16, u64)>,
}

impl Told {
    fn record(&mut self, shard: u16, user: UserKey, record: &ClaimRecord) {
        let known = self.records.entry((shard, user)).or_insert_with(|| record.clone());
        if known.ver < record.ver {
            *known = record.clone();
        }
    }
}

struct World {
    store: Arc<EmbeddedStore>,
    told: Mutex<Told>,
    clock: Clock,
}

fn packet(number: u64) -> Unit {
    Unit::packet(number, 1 + (number * 7919 % 1000) as i64)
}

fn restock(operation: u64, numbers: std::ops::Range<u64>) -> Step {
    let units = numbers.map(packet).collect();
    Step::Restock { op: OpMark { operation, chunk: 1 }, unretire: 0, units, cool: false }
}

fn shard(index: u16) -> PoolAddress {
    address("sale", index * 256)
}

impl World {
    async fn take(&self, index: u16, step: Step) -> Answer {
        let stepped = self.store.step(&shard(index), Floor::default(), step).await.unwrap();
        let mut told = self.told.lock().unwrap();
        let version = told.versions.entry(index).or_default();
        *version = stepped.at.ver.max(*version);
        stepped.answer
    }

    async fn work(self: Arc<Self>, worker: u64, seed: u64) {
        let mut chance = Chance(seed.wrapping_mul(1000) + worker);
        for _ in 0..STEPS {
            let index = chance.below(SHARDS.into()) as u16;
            match chance.below(10) {
                0..=3 => self.claim(index, &mut chance).await,
                4..=6 => self.end_one(index, &mut chance).await,
                7 | 8 => self.transfer(index, &mut chance).await,
                _ => {
                    self.clock.advance(Duration::from_millis(chance.below(300)));
                    self.take(index, Step::Reap { limit: 5 }).await;
                }
            }
        }
    }

    async fn claim(&self, index: u16, chance: &mut Chance) {
        let count = 1 + chance.below(4);
        let users: Vec<u64> = (0..count).map(|_| chance.below(USERS) * 3 + u64::from(index)).collect();
        let secret = chance.next().to_string();
        let wishes = users.iter().map(|user| wish(*user, &secret)).collect();
        let Answer::Claims(answers) = self.take(index, Step::Claim { wishes }).await else { panic!("no claims") };
        for (index_of_user, answer) in users.into_iter().zip(answers) {
            if let ClaimAnswer::Granted(record) | ClaimAnswer::Already(record) = answer {
                self.told.lock().unwrap().record(index, user(index_of_user), &record);
            }
        }
    }

    async fn end_one(&self, index: u16, chance: &mut Chance) {
        let user = user(chance.below(USERS) * 3 + u64::from(index));
        let Answer::Record(Some(record)) = self.take(index, Step::Look { user }).await else { return };
        self.told.lock().unwrap().record(index, user, &record);
        let secret = record.secret;
        let step = match chance.below(8) {
            0..=3 => Step::Confirm { user, secret },
            7 => Step::Release { user, secret, by: ReleasedBy::Operator },
            _ => Step::Release { user, secret, by: ReleasedBy::User },
        };
        let answer = self.take(index, step).await;
        if let Answer::Confirm(ConfirmAnswer::Confirmed(record))
        | Answer::Release(ReleaseAnswer::Released(record) | ReleaseAnswer::Ended(record)) = answer
        {
            self.told.lock().unwrap().record(index, user, &record);
        }
    }

    /// Each of the three steps may be the last one; whoever asks next resumes the transfer.
    async fn transfer(&self, donor: u16, chance: &mut Chance) {
        let home = (donor + 1 + chance.below(2) as u16) % SHARDS;
        let answer = self.take(donor, Step::Debit { home, want: 1 + chance.below(20) as u32 }).await;
        let Answer::Debit(DebitAnswer::New(parcel) | DebitAnswer::Open(parcel)) = answer else { return };
        if chance.below(4) == 0 {
            return;
        }
        let credit = Step::Credit { donor, parcel: parcel.clone(), wishes: vec![wish(chance.below(USERS) * 3, "x")] };
        let Answer::Credit(how, _) = self.take(home, credit).await else { panic!("no credit") };
        assert!(matches!(how, CreditAnswer::Credited | CreditAnswer::Known), "{how:?}");
        if chance.below(4) > 0 {
            self.take(donor, Step::Ack { home, parcel }).await;
        }
    }

    /// Reads some news, and acknowledges some of what it read.
    async fn drain(self: Arc<Self>, seed: u64) {
        let mut chance = Chance(seed ^ 0xff00);
        for _ in 0..READS {
            let index = chance.below(SHARDS.into()) as u16;
            let limit = 1 + chance.below(20) as usize;
            let batch = self.store.read(&shard(index), limit).await.unwrap().expect("a pool");
            let names: Vec<String> = batch.entries.iter().map(|(name, _)| name.clone()).collect();
            let news = batch.entries.into_iter().map(|(name, entry)| ((index, name.parse().unwrap()), entry));
            self.told.lock().unwrap().news.extend(news);
            let some = chance.below(names.len() as u64 + 1) as usize;
            self.store.acknowledge(&shard(index), &names[..some]).await.unwrap();
            let done = names[..some].iter().map(|name| (index, name.parse().unwrap()));
            self.told.lock().unwrap().done.extend(done);
            tokio::task::yield_now().await;
        }
    }

    /// Stock comes and goes all the time.
    async fn operate(self: Arc<Self>, seed: u64) {
        let mut chance = Chance(seed ^ 0xffff);
        let mut next = 1001;
        for operation in 2..200 {
            let index = chance.below(SHARDS.into()) as u16;
            if chance.below(4) == 0 {
                let op = OpMark { operation, chunk: 1 };
                self.take(index, Step::Retire { op, count: chance.below(5) as u32 }).await;
                continue;
            }
            let numbers = next..next + 1 + chance.below(20);
            next = numbers.end;
            self.told.lock().unwrap().stock.insert((index, operation), numbers.clone());
            self.take(index, restock(operation, numbers)).await;
        }
    }
}

fn pools(content: &PoolCells) -> Vec<Pool> {
    (0..SHARDS).map(|index| pool_of(content, &shard(index)).expect("a pool that fits together")).collect()
}

/// `told` is of before the image was taken, `later` of after it.
fn check(image: &Disk, told: &Told, later: &Told) {
    let pools = pools(&Content::new(image.rows()).pools);
    for (index, ver) in &told.versions {
        assert!(pools[usize::from(*index)].ver >= *ver, "shard {index}: {ver} was answered");
    }
    for ((index, user), record) in &told.records {
        let found = &pools[usize::from(*index)].claims[user];
        assert!(found.ver > record.ver || found == record, "{found} where {record} was answered");
    }
    // A restock may be in the image that was not yet sent when the answers were noted.
    every_unit_is_there_once(&pools, later);
    (0..SHARDS).zip(&pools).for_each(|(index, pool)| no_news_are_lost(image, (index, pool), told, later));
}

/// The invariant of `domain/quota/`, by unit instead of by count.
fn every_unit_is_there_once(pools: &[Pool], told: &Told) {
    let there =
        told.stock.iter().filter(|((index, operation), _)| *operation <= pools[usize::from(*index)].op.operation);
    let issued: HashSet<u64> = there.flat_map(|(_, numbers)| numbers.clone()).collect();
    let on_their_way = |donor: usize, home: u16, parcel: &Parcel| -> Vec<Unit> {
        let came = pools[usize::from(home)].came.get(&(donor as u16)).map_or(0, |(seq, _)| *seq);
        if came < parcel.seq { parcel.units.clone() } else { Vec::new() }
    };
    let mut found = Vec::new();
    for (donor, pool) in pools.iter().enumerate() {
        found.extend(pool.avail.iter().chain(&pool.retired).copied());
        found.extend(pool.cooling.iter().map(|cooling| cooling.unit));
        found.extend(pool.claims.values().filter(|claim| claim.state.is_live()).map(|claim| claim.unit));
        found.extend(pool.out.iter().flat_map(|(home, parcel)| on_their_way(donor, *home, parcel)));
    }
    let numbers: HashSet<u64> = found.iter().map(|unit| unit.number).collect();
    assert_eq!(numbers.len(), found.len(), "a unit is there twice");
    assert_eq!(numbers, issued);
    assert!(found.iter().all(|unit| unit.cents == packet(unit.number).cents), "an amount has changed");
}

fn no_news_are_lost(image: &Disk, (shard_index, pool): (u16, &Pool), told: &Told, later: &Told) {
    let text = format::pool_text(&shard(shard_index));
    let heads = image.rows_of(Table::Pools);
    let (_, head) = heads.iter().find(|(key, _)| *key == Key::pool(&text)).unwrap();
    let News { ver, log, .. } = pool_head::news_of(head).unwrap().unwrap();
    assert_eq!(ver, pool.ver);
    let range = format::pool_range(&text);
    let rows = image.rows_of(Table::PoolLog).into_iter().filter(|(key, _)| range.contains(&key.text.to_string()));
    let entry =
        |(key, value): (Key, Bytes)| (format::log_index(&key.text).unwrap(), pool_log::entry_of(&value).unwrap());
    let kept: BTreeMap<u64, Entry> = rows.map(entry).collect();
    assert!(kept.keys().copied().eq(log.first()..log.next()), "an entry is missing or too many");
    for ((_, index), entry) in told.news.iter().filter(|((of, _), _)| *of == shard_index) {
        assert!(*index < log.next(), "entry {index} was read and is not on disk");
        assert!(kept.get(index).is_none_or(|kept| kept == entry), "entry {index} has changed");
        let done = told.done.contains(&(shard_index, *index));
        assert!(!(done && kept.contains_key(index)), "entry {index} was acknowledged and is there again");
    }
    let mut news: BTreeMap<UserKey, ClaimRecord> = BTreeMap::new();
    for index in noon().as_microsecond() as u64..log.next() {
        let entry = kept.get(&index).or_else(|| later.news.get(&(shard_index, index)));
        let entry = entry.unwrap_or_else(|| panic!("entry {index} is gone, and nobody has read it"));
        if let Subject::Claim { user, record, .. } = &entry.subject {
            news.insert(*user, record.clone());
        }
    }
    assert_eq!(news, pool.claims);
}

async fn crash_at_any_time(seed: u64) {
    let (disk, clock) = (Disk::default(), Clock::settable(noon()));
    let store = disk.store(&clock, 1000);
    let world = Arc::new(World { store: store.clone(), told: Mutex::default(), clock });
    for index in 0..SHARDS {
        world.take(index, create(if index == 0 { 0 } else { 500 })).await;
        // Steps that change nothing do not wait: without stock the workers would be done before any comes.
        let numbers = 1 + 50 * u64::from(index)..51 + 50 * u64::from(index);
        world.told.lock().unwrap().stock.insert((index, 1), numbers.clone());
        world.take(index, restock(1, numbers)).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(world.clone().operate(seed));
    tasks.spawn(world.clone().drain(seed));
    (0..WORKERS).for_each(|worker| drop(tasks.spawn(world.clone().work(worker, seed))));
    let mut chance = Chance(seed);
    let mut copies = 0;
    loop {
        // In this order: what is told before the copy is taken must be in it.
        let answered = world.told.lock().unwrap().clone();
        let cut = chance.below(2) == 0;
        let image = if cut { disk.after_power_cut(|| chance.below(2) == 0) } else { disk.after_kill() };
        let later = world.told.lock().unwrap().clone();
        check(&image, &answered, &later);
        copies += 1;
        match tasks.try_join_next() {
            Some(ended) => ended.unwrap(),
            None if tasks.is_empty() => break,
            None => tokio::task::yield_now().await,
        }
    }
    assert!(copies > 5, "{copies} copies");
    let last = pools(store.committer.pools());
    store.close();
    let told = world.told.lock().unwrap().clone();
    check(&disk, &told, &told);
    let drained: Vec<_> = (0..SHARDS).map(|index| told.news.keys().filter(|(of, _)| *of == index).count()).collect();
    assert!(drained.iter().all(|count| *count > 50), "an idle reader: {drained:?}");
    assert_eq!(pools(&Content::new(disk.rows()).pools), last);
    let did: Vec<_> = last.iter().map(|pool| (pool.claims.len(), pool.ver, pool.came.len())).collect();
    assert!(did.iter().all(|(claims, ver, came)| *claims > 20 && *ver > 100 && *came > 0), "idle steps: {did:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_time_loses_nothing_that_was_answered() {
    for seed in 1..=3 {
        crash_at_any_time(seed).await;
    }
}
