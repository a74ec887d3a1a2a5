//! Promises about pools: each step does to the letter what `domain/quota/` does.
//!
//! A driver takes random steps on three pools of a campaign and on their models, which are given the store's time, and
//! compares every answer. Holds and cooling are some milliseconds long, so that all of it happens within a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headcount::domain::id::CampaignId;
use headcount::domain::quota::claim::{ClaimAnswer, ClaimRecord, ClaimState, UserKey, Wish};
use headcount::domain::quota::inventory::Inventory;
use headcount::domain::quota::marks::STEP_MAX;
use headcount::domain::quota::marks::{Floor, OpMark, Parcel};
use headcount::domain::quota::mend::{Blank, Mend};
use headcount::domain::quota::pool::{LogKind, Pool};
use headcount::domain::quota::step::{Answer, CreditAnswer, DebitAnswer, ReleaseAnswer, ReleasedBy, Step, Stepped};
use headcount::domain::quota::terms::{PoolRules, PoolSchedule, PoolStatus};
use headcount::domain::quota::unit::Unit;
use headcount::store::error::StoreError;
use headcount::store::pools::{ClaimantsMark, Duty, PoolAddress, Pools};

use super::{fresh_name, position, told};

/// Compares what a store keeps of a pool with its model. Last: the incarnation of each entry of the model's log.
pub type Inspect<'a> = &'a (dyn Fn(&PoolAddress, &Pool, &[u64]) + Sync);

/// Stands for the store's server in models.
const RUN: &str = "model";
const RULES: PoolRules = PoolRules { hold_ms: 25, interval_ms: 8 };
const POOLS: usize = 3;
const USERS: u64 = 60;
/// Steps between two inspections.
const INSPECT_EVERY: usize = 50;

/// Runs every promise, and `steps` random steps on each of `seeds`.
pub async fn upholds_the_promises_of_pools(
    pools: &Arc<dyn Pools>,
    seeds: std::ops::Range<u64>,
    steps: usize,
    inspect: Option<Inspect<'_>>,
) {
    told("an absent pool is told of", an_absent_pool_is_told_of(pools)).await;
    told("a fence is sticky", a_fence_is_sticky(pools)).await;
    told("too many are refused before any write", too_many_are_refused_before_any_write(pools)).await;
    told("a wish that ended is not granted anew", a_wish_that_ended_is_not_granted_anew(pools)).await;
    told("operations on stock happen once", operations_on_stock_happen_once(pools)).await;
    told("a parcel is taken in once", a_parcel_is_taken_in_once(pools)).await;
    told("a frozen pool keeps still", a_frozen_pool_keeps_still(pools)).await;
    told("a lost pool is rebuilt", a_lost_pool_is_rebuilt(pools)).await;
    told("claimants are kept up", claimants_are_kept_up(pools)).await;
    told("one holder has the upkeep", one_holder_has_the_upkeep(pools)).await;
    for seed in seeds {
        told(&format!("steps are the domain's, seed {seed}"), Driver::new(pools, seed, inspect).drive(steps)).await;
    }
}

async fn an_absent_pool_is_told_of(pools: &Arc<dyn Pools>) {
    let pool = fresh_pool();
    let steps = [Step::Finish, Step::Claim { wishes: vec![wish(1, "a")] }, Step::Collect { entries: true }];
    for step in steps {
        assert_eq!(take(pools, &pool, step).await.answer, Answer::Absent);
    }
    assert_eq!(take(pools, &pool, create(1)).await.answer, Answer::Done(true));
    assert_eq!(take(pools, &pool, create(1)).await.answer, Answer::Done(false));
    pools.remove(&pool).await.unwrap();
    pools.remove(&pool).await.unwrap();
    assert_eq!(take(pools, &pool, Step::Finish).await.answer, Answer::Absent);
    assert_eq!(pools.claims(&pool, None, 10).await.unwrap().claims, []);
}

async fn a_fence_is_sticky(pools: &Arc<dyn Pools>) {
    let pool = stocked(pools, 10).await;
    let before = take(pools, &pool, Step::Collect { entries: false }).await;
    let knows_more = Floor { ver: before.at.ver + 1, ..before.at };
    let claim = |user| Step::Claim { wishes: vec![wish(user, "a")] };
    let other = Floor { incarnation: before.at.incarnation + 1, ver: 1000 };
    assert!(matches!(pools.step(&pool, other, claim(1)).await.unwrap().answer, Answer::Claims(_)), "of another life");
    assert!(matches!(pools.step(&pool, knows_more, claim(2)).await.unwrap().answer, Answer::Claims(_)), "reached");
    let lost = Floor { ver: before.at.ver + 3, ..before.at };
    assert_eq!(pools.step(&pool, lost, claim(3)).await.unwrap().answer, Answer::Fenced);
    for step in [claim(4), claim(1), Step::Finish, Step::Collect { entries: false }, create(1)] {
        let stepped = take(pools, &pool, step).await;
        assert_eq!((stepped.answer, stepped.at.ver), (Answer::Fenced, before.at.ver + 2), "for everybody");
    }
}

async fn too_many_are_refused_before_any_write(pools: &Arc<dyn Pools>) {
    let pool = stocked(pools, 256).await;
    let before = take(pools, &pool, Step::Collect { entries: false }).await;
    let most = STEP_MAX as u64;
    let wishes: Vec<Wish> = (0..=most).map(|user| wish(user, "a")).collect();
    let units: Vec<Unit> = (1000..=1000 + most).map(Unit::new).collect();
    let op = OpMark { operation: 9, chunk: 0 };
    let too_many = [
        Step::Claim { wishes: wishes.clone() },
        Step::Restock { op, unretire: 0, units: units.clone(), cool: false },
        Step::Credit { donor: 1, parcel: Parcel { seq: 1, units }, wishes: Vec::new() },
        Step::Reap { limit: STEP_MAX as u32 + 1 },
        Step::Close { limit: STEP_MAX as u32 + 1 },
        Step::Mend(Mend::Fill {
            mender: 1,
            part: 1,
            claims: vec![(user(1), record_of(1))],
            stock: (0..most).map(Unit::new).collect(),
            retired: Vec::new(),
        }),
    ];
    for step in too_many {
        let name = step.name();
        let refused = pools.step(&pool, Floor::default(), step).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{name}: {refused:?}");
    }
    let after = take(pools, &pool, Step::Collect { entries: false }).await;
    assert_eq!((after.at, after.answer), (before.at, before.answer));
    let all = take(pools, &pool, Step::Claim { wishes: wishes[..STEP_MAX].to_vec() }).await;
    let Answer::Claims(answers) = all.answer else { panic!("{all:?}") };
    assert!(answers.iter().all(|answer| matches!(answer, ClaimAnswer::Granted(_))));
}

async fn a_wish_that_ended_is_not_granted_anew(pools: &Arc<dyn Pools>) {
    let pool = stocked(pools, 10).await;
    let first = Wish { idem: "key".into(), ..wish(1, "first") };
    let granted = claimed(pools, &pool, first.clone()).await;
    assert!(matches!(&granted, ClaimAnswer::Granted(record) if record.claim_no == 1), "{granted:?}");
    assert!(matches!(claimed(pools, &pool, first.clone()).await, ClaimAnswer::Already(_)));
    assert!(matches!(claimed(pools, &pool, wish(1, "second")).await, ClaimAnswer::Already(_)));
    let release = |secret: &str, by| take(pools, &pool, Step::Release { user: user(1), secret: secret.to_owned(), by });
    assert_eq!(release("other", ReleasedBy::User).await.answer, Answer::Release(ReleaseAnswer::Unknown));
    let released = release("first", ReleasedBy::User).await.answer;
    assert!(matches!(released, Answer::Release(ReleaseAnswer::Released(_))), "{released:?}");
    assert!(matches!(release("first", ReleasedBy::User).await.answer, Answer::Release(ReleaseAnswer::Ended(_))));
    assert!(matches!(claimed(pools, &pool, first.clone()).await, ClaimAnswer::Ended(_)), "the same secret");
    let same_key = Wish { secret: "third".into(), ..first };
    assert!(matches!(claimed(pools, &pool, same_key).await, ClaimAnswer::Ended(_)), "the same Idempotency-Key");
    let again = claimed(pools, &pool, wish(1, "fourth")).await;
    assert!(matches!(&again, ClaimAnswer::Granted(record) if record.claim_no == 2), "{again:?}");
    release("fourth", ReleasedBy::Operator).await;
    assert!(matches!(claimed(pools, &pool, wish(1, "fifth")).await, ClaimAnswer::Voided(_)), "for good");
    let two = take(pools, &pool, Step::Claim { wishes: vec![wish(2, "a"), wish(2, "b")] }).await;
    let Answer::Claims(two) = two.answer else { panic!("{two:?}") };
    assert!(matches!(&two[..], [ClaimAnswer::Granted(a), ClaimAnswer::Already(b)] if a == b), "{two:?}");
}

async fn operations_on_stock_happen_once(pools: &Arc<dyn Pools>) {
    let pool = stocked(pools, 10).await;
    let retire = |operation, chunk, count| Step::Retire { op: OpMark { operation, chunk }, count };
    for _ in 0..2 {
        assert_eq!(take(pools, &pool, retire(2, 0, 3)).await.answer, Answer::Retired(3));
    }
    assert_eq!(take(pools, &pool, retire(1, 7, 3)).await.answer, Answer::Retired(0), "an older one");
    assert_eq!(take(pools, &pool, retire(2, 1, 2)).await.answer, Answer::Retired(2));
    let op = OpMark { operation: 3, chunk: 0 };
    let restock = || Step::Restock { op, unretire: 2, units: vec![Unit::new(50)], cool: false };
    assert_eq!(take(pools, &pool, restock()).await.answer, Answer::Done(true));
    assert_eq!(take(pools, &pool, restock()).await.answer, Answer::Done(false));
    let Answer::Reading(reading) = take(pools, &pool, Step::Collect { entries: false }).await.answer else { panic!() };
    assert_eq!((reading.avail, reading.retired, reading.op, reading.op_total), (8, 3, op, 3));
    let schedule = PoolSchedule { version: 1, ..schedule(1) };
    assert_eq!(take(pools, &pool, Step::Reschedule(schedule)).await.answer, Answer::Done(false), "not newer");
}

async fn a_parcel_is_taken_in_once(pools: &Arc<dyn Pools>) {
    let (donor, home) = (stocked(pools, 10).await, stocked(pools, 0).await);
    let Answer::Debit(DebitAnswer::New(parcel)) = take(pools, &donor, Step::Debit { home: 1, want: 4 }).await.answer
    else {
        panic!("no parcel")
    };
    assert_eq!(parcel.units.len(), 4);
    let again = take(pools, &donor, Step::Debit { home: 1, want: 4 }).await.answer;
    assert_eq!(again, Answer::Debit(DebitAnswer::Open(parcel.clone())));
    let credit = |parcel: &Parcel, wishes| Step::Credit { donor: 0, parcel: parcel.clone(), wishes };
    let credited = take(pools, &home, credit(&parcel, vec![wish(1, "a")])).await.answer;
    assert!(
        matches!(&credited, Answer::Credit(CreditAnswer::Credited, said) if matches!(said[..], [ClaimAnswer::Granted(_)]))
    );
    let known = take(pools, &home, credit(&parcel, vec![wish(1, "b")])).await.answer;
    assert!(
        matches!(&known, Answer::Credit(CreditAnswer::Known, said) if matches!(said[..], [ClaimAnswer::Already(_)]))
    );
    let other = Parcel { units: vec![Unit::new(99)], ..parcel.clone() };
    let before = take(pools, &home, Step::Collect { entries: true }).await;
    let conflict = take(pools, &home, credit(&other, vec![wish(2, "c")])).await;
    assert_eq!((conflict.answer, conflict.at), (Answer::Credit(CreditAnswer::Conflict, Vec::new()), before.at));
    assert_eq!(take(pools, &donor, Step::Ack { home: 1, parcel: other }).await.answer, Answer::Done(false));
    assert_eq!(take(pools, &donor, Step::Ack { home: 1, parcel: parcel.clone() }).await.answer, Answer::Done(true));
    assert_eq!(take(pools, &donor, Step::Ack { home: 1, parcel }).await.answer, Answer::Done(false));
}

async fn a_frozen_pool_keeps_still(pools: &Arc<dyn Pools>) {
    let pool = stocked(pools, 10).await;
    let granted = claimed(pools, &pool, wish(1, "a")).await;
    let freeze = |for_ms| Step::Mend(Mend::Freeze { for_ms, lost: vec![3] });
    assert_eq!(take(pools, &pool, freeze(600_000)).await.answer, Answer::Done(true));
    assert_eq!(take(pools, &pool, freeze(1)).await.answer, Answer::Done(true), "the longer one holds");
    for step in [Step::Claim { wishes: vec![wish(1, "a")] }, Step::Reap { limit: 1 }, Step::Finish, create(1)] {
        assert_eq!(take(pools, &pool, step).await.answer, Answer::Frozen);
    }
    let ClaimAnswer::Granted(record) = granted else { panic!("{granted:?}") };
    assert_eq!(take(pools, &pool, Step::Look { user: user(1) }).await.answer, Answer::Record(Some(record)));
    assert!(matches!(take(pools, &pool, Step::Collect { entries: true }).await.answer, Answer::Reading(_)));
    assert_eq!(take(pools, &pool, Step::Mend(Mend::Thaw)).await.answer, Answer::Done(true));
    // What the lost pool had sent before does not come in any more.
    let late = Step::Credit { donor: 3, parcel: Parcel { seq: 1, units: vec![Unit::new(99)] }, wishes: Vec::new() };
    assert_eq!(take(pools, &pool, late).await.answer, Answer::Credit(CreditAnswer::Known, Vec::new()));
    assert_eq!(take(pools, &pool, freeze(20)).await.answer, Answer::Done(true));
    let mut last = Answer::Frozen;
    crate::harness::eventually("the freeze to end by itself", async || {
        last = take(pools, &pool, Step::Finish).await.answer;
        last != Answer::Frozen
    })
    .await;
    assert_eq!(last, Answer::Done(false));
}

async fn a_lost_pool_is_rebuilt(pools: &Arc<dyn Pools>) {
    for is_missing in [false, true] {
        let pool = if is_missing { fresh_pool() } else { stocked(pools, 3).await };
        let mend = |mend| async { take(pools, &pool, Step::Mend(mend)).await.answer };
        if is_missing {
            assert_eq!(mend(Mend::Fence).await, Answer::Absent);
            assert_eq!(pools.inventory(&pool).await, Ok(None));
        } else {
            assert_eq!(mend(Mend::Empty(Box::new(blank(1)))).await, Answer::Done(false), "it is sound");
            assert_eq!(mend(Mend::Fence).await, Answer::Done(true));
            let inventory = pools.inventory(&pool).await.unwrap().expect("a fenced one tells too");
            assert_eq!((inventory.fenced, inventory.stock), (true, vec![Unit::new(1), Unit::new(2), Unit::new(3)]));
        }
        for mender in [7, 8] {
            assert_eq!(mend(Mend::Empty(Box::new(blank(mender)))).await, Answer::Done(true));
            assert_eq!(take(pools, &pool, Step::Finish).await.answer, Answer::Fenced);
        }
        let fill = |mender, part| Mend::Fill {
            mender,
            part,
            claims: vec![(user(part), record_of(part))],
            stock: vec![Unit::packet(10 + part, 300)],
            retired: vec![Unit::new(20 + part)],
        };
        let parts =
            [(8, 2, false), (7, 1, false), (8, 1, true), (8, 1, true), (8, 2, true), (8, 1, true), (0, 3, false)];
        for (mender, part, is_in) in parts {
            assert_eq!(mend(fill(mender, part)).await, Answer::Done(is_in), "{mender}, {part}");
        }
        assert_eq!(mend(Mend::Reopen { mender: 7 }).await, Answer::Done(false));
        for _ in 0..2 {
            assert_eq!(mend(Mend::Reopen { mender: 8 }).await, Answer::Done(true));
        }
        let collected = take(pools, &pool, Step::Collect { entries: true }).await;
        assert_eq!(collected.at, Floor { incarnation: 5, ver: 1001 });
        let Answer::Reading(reading) = collected.answer else { panic!() };
        assert_eq!((reading.avail, reading.retired, reading.confirmed, reading.taken_cents), (2, 2, 2, 300));
        assert_eq!((reading.refunded, reading.refunded_cents, reading.came), (4, 900, vec![(2, 77)]));
        assert!(matches!(claimed(pools, &pool, wish(1, "b")).await, ClaimAnswer::Already(_)));
        let granted = claimed(pools, &pool, wish(9, "b")).await;
        assert!(
            matches!(&granted, ClaimAnswer::Granted(record) if record.unit == Unit::packet(11, 300)),
            "{granted:?}"
        );
        // Of what came in before the loss only the number is known.
        let parcel = Parcel { seq: 77, units: vec![Unit::new(98)] };
        let again = take(pools, &pool, Step::Credit { donor: 2, parcel, wishes: Vec::new() }).await.answer;
        assert_eq!(again, Answer::Credit(CreditAnswer::Known, Vec::new()));
    }
}

pub fn blank(mender: u64) -> Blank {
    Blank {
        mender,
        rules: PoolRules { hold_ms: 600_000, interval_ms: 1000 },
        schedule: schedule(3),
        status: PoolStatus::Open,
        incarnation: 5,
        ver: 1000,
        seq: 500,
        refunded: 4,
        refunded_cents: 900,
        came: vec![(2, 77)],
    }
}

/// A confirmed claim of a packet whose number is the user's.
fn record_of(number: u64) -> ClaimRecord {
    ClaimRecord {
        state: ClaimState::Confirmed,
        unit: Unit { turn: 3, ..Unit::packet(number, 100 * number as i64) },
        secret: "old".to_owned(),
        claim_no: 2,
        claimed_ms: 1,
        deadline_ms: 0,
        ver: 40,
        idem: String::new(),
    }
}

async fn claimants_are_kept_up(pools: &Arc<dyn Pools>) {
    let pool = stocked(pools, 3000).await;
    let mut claimed = 0;
    let mut mark: Option<ClaimantsMark> = None;
    for more in [0, 1, 1200, 30, 0] {
        let users: Vec<u64> = (claimed..claimed + more).collect();
        for chunk in users.chunks(STEP_MAX) {
            let wishes = chunk.iter().map(|user| wish(*user, "a")).collect();
            take(pools, &pool, Step::Claim { wishes }).await;
        }
        claimed += more;
        let of = |users: std::ops::Range<u64>| {
            let mut users: Vec<u64> = users.map(|number| user(number).short()).collect();
            users.sort_unstable();
            users
        };
        let since = pools.claimants(&pool, mark.as_ref()).await.unwrap();
        assert_eq!(since.all, mark.is_none());
        let mut told = since.users;
        told.sort_unstable();
        assert_eq!(told, of(claimed - more..claimed));
        mark = Some(since.mark);
        // Another process, whose mark is of a life before.
        let foreign = ClaimantsMark { incarnation: 99, place: mark.clone().unwrap().place };
        let anew = pools.claimants(&pool, Some(&foreign)).await.unwrap();
        let mut told = anew.users;
        told.sort_unstable();
        told.dedup();
        assert!(anew.all && told == of(0..claimed), "{} of {claimed}", told.len());
        assert_eq!(Some(anew.mark), mark);
    }
}

async fn one_holder_has_the_upkeep(pools: &Arc<dyn Pools>) {
    let campaign = fresh_pool().campaign;
    let lease = |holder: &'static str, hold| pools.lease(&campaign, Duty::Upkeep, holder, Duration::from_millis(hold));
    assert_eq!(lease("a", 60_000).await, Ok(true));
    assert_eq!(lease("b", 60_000).await, Ok(false));
    assert_eq!(lease("a", 1).await, Ok(true), "renewed, for less");
    crate::harness::eventually("the lease to end", async || lease("b", 60_000).await == Ok(true)).await;
    assert_eq!(lease("a", 60_000).await, Ok(false));
    assert_eq!(lease("a", 0).await, Ok(false), "what others have cannot be given back");
    assert_eq!(lease("b", 0).await, Ok(true));
    assert_eq!(lease("a", 60_000).await, Ok(true), "given back, it is to be had at once");
}

pub fn user(number: u64) -> UserKey {
    let mut key = [0; 16];
    // Spread, as hashes are: neighbours differ in their first bytes.
    key[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
    UserKey(key)
}

pub fn wish(number: u64, secret: &str) -> Wish {
    Wish {
        user: user(number), user_raw: format!("user-{number}é\r\n"), secret: secret.to_owned(), idem: String::new()
    }
}

pub fn fresh_pool() -> PoolAddress {
    PoolAddress { campaign: CampaignId::new(&fresh_name("campaign")).unwrap(), position: position(64) }
}

fn schedule(version: u64) -> PoolSchedule {
    PoolSchedule { version, opens_ms: 0, closes_ms: i64::MAX, paused: false }
}

pub fn create(version: u64) -> Step {
    Step::Create { rules: PoolRules { hold_ms: 600_000, interval_ms: 1000 }, schedule: schedule(version) }
}

/// A new pool with so many units.
pub async fn stocked(pools: &Arc<dyn Pools>, units: u64) -> PoolAddress {
    let pool = fresh_pool();
    take(pools, &pool, create(1)).await;
    let all: Vec<Unit> = (1..=units).map(Unit::new).collect();
    for (chunk, units) in all.chunks(STEP_MAX).enumerate() {
        let op = OpMark { operation: 1, chunk: chunk as u64 + 1 };
        let restock = Step::Restock { op, unretire: 0, units: units.to_vec(), cool: false };
        assert_eq!(take(pools, &pool, restock).await.answer, Answer::Done(true));
    }
    pool
}

pub async fn take(pools: &Arc<dyn Pools>, pool: &PoolAddress, step: Step) -> Stepped {
    let name = step.name();
    pools.step(pool, Floor::default(), step).await.unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub async fn claimed(pools: &Arc<dyn Pools>, pool: &PoolAddress, wish: Wish) -> ClaimAnswer {
    match take(pools, pool, Step::Claim { wishes: vec![wish] }).await.answer {
        Answer::Claims(mut answers) => answers.remove(0),
        other => panic!("{other:?}"),
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Three pools, their models, and what a caller of them knows.
struct Driver<'a> {
    pools: &'a Arc<dyn Pools>,
    inspect: Option<Inspect<'a>>,
    random: Random,
    addresses: Vec<PoolAddress>,
    models: Vec<Option<Pool>>,
    issued: u64,
    issued_cents: i64,
    /// For each pool: the incarnations of the entries of its log.
    lives: Vec<Vec<u64>>,
    operation: u64,
    schedules: u64,
    now_ms: i64,
    /// Donor, home, parcel: all there ever were.
    parcels: Vec<(usize, usize, Parcel)>,
    /// For each pool: how far its claimants were read, and how long the model's log was then.
    marks: Vec<Option<(ClaimantsMark, usize)>>,
    told: BTreeMap<&'static str, u64>,
}

impl<'a> Driver<'a> {
    fn new(pools: &'a Arc<dyn Pools>, seed: u64, inspect: Option<Inspect<'a>>) -> Self {
        let campaign = fresh_pool().campaign;
        let address = |shard: usize| PoolAddress { campaign: campaign.clone(), position: position(shard as u16 * 256) };
        Self {
            pools,
            inspect,
            random: Random(seed),
            addresses: (0..POOLS).map(address).collect(),
            models: vec![None; POOLS],
            issued: 0,
            issued_cents: 0,
            lives: vec![Vec::new(); POOLS],
            operation: 0,
            schedules: 1,
            now_ms: 0,
            parcels: Vec::new(),
            marks: vec![None; POOLS],
            told: BTreeMap::new(),
        }
    }

    async fn drive(mut self, steps: usize) {
        for pool in 0..POOLS {
            self.take(pool, Step::Create { rules: RULES, schedule: schedule(1) }).await;
        }
        for number in 0..steps {
            let pool = self.random.below(POOLS as u64) as usize;
            match self.random.below(100) {
                0..3 => self.pages(pool).await,
                3..6 => self.claimants(pool).await,
                6..8 => self.inventory(pool).await,
                8..10 => self.mend(pool).await,
                _ => {
                    let (pool, step) = self.some_step(pool, number * 20 > steps * 19);
                    self.take(pool, step).await;
                }
            }
            self.balance();
            if number % INSPECT_EVERY == 0 {
                self.look_inside();
            }
        }
        self.end().await;
        eprintln!("{:?}", self.told);
    }

    /// Takes a step, in the store and in the model.
    async fn take(&mut self, pool: usize, step: Step) -> Answer {
        let model = &mut self.models[pool];
        let known = match model {
            Some(pool) if self.random.chance(50) => Floor { incarnation: pool.incarnation, ver: pool.ver },
            _ => Floor::default(),
        };
        let told = self.pools.step(&self.addresses[pool], known, step.clone()).await;
        let mut told = told.unwrap_or_else(|error| panic!("{step:?}: {error}"));
        if let Answer::Reading(reading) = &mut told.answer {
            reading.run = RUN.to_owned();
        }
        self.now_ms = told.now_ms();
        let expected = Pool::step(model, told.now_us, known, RUN, step.clone());
        assert_eq!(told, expected, "pool {pool}, {step:?}");
        *self.told.entry(step.name()).or_default() += 1;
        if let (Answer::Debit(DebitAnswer::New(parcel)), Step::Debit { home, .. }) = (&told.answer, &step) {
            self.parcels.push((pool, usize::from(*home), parcel.clone()));
        }
        if let (Answer::Done(true), Step::Restock { units, .. }) = (&told.answer, &step) {
            self.issued += units.len() as u64;
            self.issued_cents += units.iter().filter_map(|unit| unit.cents).sum::<i64>();
        }
        if let Some(model) = &self.models[pool] {
            self.lives[pool].resize(model.log.len(), model.incarnation);
        }
        told.answer
    }

    fn model(&self, pool: usize) -> &Pool {
        self.models[pool].as_ref().expect("made at the start")
    }

    fn some_step(&mut self, pool: usize, late: bool) -> (usize, Step) {
        let step = match self.random.below(100) {
            0..34 => Step::Claim { wishes: self.wishes(12) },
            34..44 => {
                let (user, secret) = self.claim_of(pool);
                Step::Confirm { user, secret }
            }
            44..54 => {
                let (user, secret) = self.claim_of(pool);
                let by = if self.random.chance(30) { ReleasedBy::Operator } else { ReleasedBy::User };
                Step::Release { user, secret, by }
            }
            54..62 => Step::Reap { limit: self.random.below(8) as u32 },
            62..68 => {
                let home = (pool + 1 + self.random.below(POOLS as u64 - 1) as usize) % POOLS;
                Step::Debit { home: home as u16, want: self.random.below(20) as u32 }
            }
            68..80 => return self.some_transfer(),
            80..86 => self.some_stock(pool),
            86..88 => self.some_schedule(),
            88..91 => Step::Look { user: self.claim_of(pool).0 },
            91..92 => Step::Finish,
            92..93 => Step::Create { rules: RULES, schedule: schedule(1) },
            93..94 if late => Step::Close { limit: self.random.below(5) as u32 },
            _ => Step::Collect { entries: self.random.chance(50) },
        };
        (pool, step)
    }

    fn wishes(&mut self, most: u64) -> Vec<Wish> {
        let count = self.random.below(most);
        (0..count)
            .map(|_| {
                // Few secrets and keys, so that some come again.
                let secret = format!("s{}", self.random.below(40));
                let idem = if self.random.chance(30) { format!("i{}", self.random.below(5)) } else { String::new() };
                Wish { idem, ..wish(self.random.below(USERS), &secret) }
            })
            .collect()
    }

    /// A user, mostly one with a claim in this pool, and the secret of it, mostly the right one.
    fn claim_of(&mut self, pool: usize) -> (UserKey, String) {
        let claims: Vec<(UserKey, ClaimRecord)> =
            self.model(pool).claims.iter().map(|(user, record)| (*user, record.clone())).collect();
        let held: Vec<_> = claims.iter().filter(|(_, record)| record.state == ClaimState::Held).cloned().collect();
        let from = if held.is_empty() || self.random.chance(20) { claims } else { held };
        let secret = format!("s{}", self.random.below(40));
        if from.is_empty() || self.random.chance(10) {
            return (user(self.random.below(USERS)), secret);
        }
        let (user, record) = &from[self.random.below(from.len() as u64) as usize];
        (*user, if self.random.chance(90) { record.secret.clone() } else { secret })
    }

    /// Restock, retire; now and then one that was done before.
    fn some_stock(&mut self, pool: usize) -> Step {
        if self.random.chance(70) {
            self.operation += 1;
        }
        let op = OpMark { operation: self.operation, chunk: self.random.below(3) };
        if self.random.chance(50) {
            return Step::Retire { op, count: self.random.below(12) as u32 };
        }
        let first = 1 + 12 * (POOLS as u64 * (3 * self.operation + op.chunk) + pool as u64);
        let packets = self.random.chance(50);
        let unit =
            |number: u64| if packets { Unit::packet(number, 1 + number as i64 % 700) } else { Unit::new(number) };
        let units = (first..first + self.random.below(12)).map(unit).collect();
        Step::Restock { op, unretire: self.random.below(6) as u32, units, cool: self.random.chance(40) }
    }

    fn some_schedule(&mut self) -> Step {
        self.schedules += u64::from(self.random.chance(80));
        let mut schedule = schedule(self.schedules);
        match self.random.below(10) {
            0 => schedule.paused = true,
            1 => schedule.opens_ms = self.now_ms + self.random.below(20) as i64,
            2 => schedule.closes_ms = self.now_ms + self.random.below(20) as i64,
            _ => {}
        }
        Step::Reschedule(schedule)
    }

    /// Credit or ack of some parcel, also of an old one, and one that is forged.
    fn some_transfer(&mut self) -> (usize, Step) {
        if self.parcels.is_empty() {
            return (0, Step::Finish);
        }
        let recent = self.parcels.len().min(6) as u64;
        let at = self.parcels.len() - 1 - self.random.below(recent) as usize;
        let (donor, home, mut parcel) = self.parcels[at].clone();
        let came = self.model(home).came.get(&(donor as u16)).map_or(0, |(seq, _)| *seq);
        if came < parcel.seq || self.random.chance(30) {
            if came == parcel.seq && self.random.chance(30) {
                parcel.units = vec![Unit::new(7_777_777)];
            }
            return (home, Step::Credit { donor: donor as u16, parcel, wishes: self.wishes(6) });
        }
        if self.random.chance(10) {
            parcel.units.pop();
        }
        (donor, Step::Ack { home: home as u16, parcel })
    }

    /// All units are somewhere, once.
    fn balance(&self) {
        let (mut found, mut cents) = (0, 0);
        let held = |units: &mut dyn Iterator<Item = &Unit>| units.filter_map(|unit| unit.cents).sum::<i64>();
        for (donor, pool) in self.models.iter().flatten().enumerate() {
            let here = pool.avail.len() + pool.cooling.len() + pool.deadlines.len() + pool.retired.len();
            found += here as u64 + pool.confirmed + pool.refunded;
            cents += pool.taken_cents + pool.refunded_cents + held(&mut pool.avail.iter().chain(&pool.retired));
            cents += held(&mut pool.cooling.iter().map(|cooling| &cooling.unit));
            for (home, parcel) in &pool.out {
                let came = self.model(usize::from(*home)).came.get(&(donor as u16));
                if came.is_none_or(|(seq, _)| *seq < parcel.seq) {
                    found += parcel.units.len() as u64;
                    cents += held(&mut parcel.units.iter());
                }
            }
        }
        assert_eq!((found, cents), (self.issued, self.issued_cents), "issued");
    }

    fn look_inside(&self) {
        for (pool, address) in self.addresses.iter().enumerate() {
            if let Some(inspect) = self.inspect {
                inspect(address, self.model(pool), &self.lives[pool]);
            }
        }
    }

    async fn pages(&mut self, pool: usize) {
        let limit = 1 + self.random.below(200) as usize;
        let (mut found, mut cursor) = (BTreeMap::new(), None);
        loop {
            let page = self.pools.claims(&self.addresses[pool], cursor.as_deref(), limit).await.unwrap();
            found.extend(page.claims);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, self.model(pool).claims, "claims of pool {pool}");
        *self.told.entry("claims").or_default() += 1;
    }

    async fn claimants(&mut self, pool: usize) {
        let since = self.marks[pool].take().filter(|_| self.random.chance(80));
        let told = self.pools.claimants(&self.addresses[pool], since.as_ref().map(|(mark, _)| mark)).await.unwrap();
        let model = self.model(pool);
        let log = &model.log[since.as_ref().map_or(0, |(_, read)| *read)..];
        let granted = log.iter().filter(|entry| entry.kind == LogKind::Grant).filter_map(|entry| entry.user);
        let sorted = |mut users: Vec<u64>| {
            users.sort_unstable();
            users.dedup();
            users
        };
        assert_eq!(told.all, since.is_none());
        let (told_users, granted) = (sorted(told.users), sorted(granted.map(UserKey::short).collect()));
        // A store may name more of those who ever claimed; it must not leave one out.
        let ever = sorted(model.claims.keys().map(|user| user.short()).collect());
        assert!(granted.iter().all(|user| told_users.contains(user)), "claimants of pool {pool}: {told_users:?}");
        assert!(told_users.iter().all(|user| ever.contains(user)), "claimants of pool {pool}: {told_users:?}");
        let read = model.log.len();
        self.marks[pool] = Some((told.mark, read));
        *self.told.entry("claimants").or_default() += 1;
    }

    async fn inventory(&mut self, pool: usize) {
        let told = self.pools.inventory(&self.addresses[pool]).await.unwrap();
        assert_eq!(told, Some(Inventory::from(self.model(pool))), "inventory of pool {pool}");
        *self.told.entry("inventory").or_default() += 1;
    }

    /// A pool is lost, or said to be, and rebuilt from what it had, with some of what may come in a mender's way.
    async fn mend(&mut self, pool: usize) {
        let before = self.model(pool).clone();
        let is_on_its_way = |(home, parcel): &(&u16, &Parcel)| {
            let came = self.model(usize::from(**home)).came.get(&(pool as u16));
            came.is_none_or(|(seq, _)| *seq < parcel.seq)
        };
        let sent = before.out.iter().filter(is_on_its_way).flat_map(|(_, parcel)| parcel.units.clone());
        let stock = before.avail.iter().copied().chain(before.cooling.iter().map(|cooling| cooling.unit)).chain(sent);
        let stock: Vec<Unit> = stock.collect();
        for other in (0..POOLS).filter(|other| *other != pool) {
            let freeze = Mend::Freeze { for_ms: self.random.below(12) as i64, lost: vec![pool as u16] };
            assert_eq!(self.take(other, Step::Mend(freeze)).await, Answer::Done(true));
        }
        if self.random.chance(30) {
            self.pools.remove(&self.addresses[pool]).await.unwrap();
            self.models[pool] = None;
        }
        self.take(pool, Step::Mend(Mend::Fence)).await;
        let mut tries = 1 + self.random.below(2);
        while tries > 0 {
            tries -= 1;
            let mender = 1 + self.random.below(1 << 52);
            let blank = self.blank_of(pool, &before, mender);
            assert_eq!(self.take(pool, Step::Mend(Mend::Empty(Box::new(blank)))).await, Answer::Done(true));
            let parts = parts_of(mender, &before, &stock);
            // Whoever dies on the way leaves it to the next one.
            let end = if tries > 0 { parts.len() / 2 } else { parts.len() };
            for part in &parts[..end] {
                for step in self.in_the_way(mender) {
                    let at = self.random.below(POOLS as u64) as usize;
                    self.take(if matches!(step, Step::Mend(_)) { pool } else { at }, step).await;
                }
                for _ in 0..=self.random.below(2) {
                    assert_eq!(self.take(pool, Step::Mend(part.clone())).await, Answer::Done(true));
                }
            }
            if tries == 0 {
                assert_eq!(self.take(pool, Step::Mend(Mend::Reopen { mender })).await, Answer::Done(true));
                let mender = mender * self.random.below(2) + 1;
                self.take(pool, Step::Mend(Mend::Reopen { mender })).await;
            }
        }
        if self.random.chance(50) {
            for other in 0..POOLS {
                self.take(other, Step::Mend(Mend::Thaw)).await;
            }
        }
        self.look_inside();
        if let Some((mark, _)) = self.marks[pool].take() {
            let anew = self.pools.claimants(&self.addresses[pool], Some(&mark)).await.unwrap();
            assert!(anew.all, "a mark of a life before");
        }
    }

    /// What a lost pool begins anew with.
    fn blank_of(&self, pool: usize, before: &Pool, mender: u64) -> Blank {
        let others = (0..POOLS).filter(|other| *other != pool);
        let burnt = others.filter_map(|other| self.model(other).came.get(&(pool as u16))).map(|(seq, _)| *seq).max();
        let came = before.came.iter().map(|(donor, (seq, _))| (*donor, *seq));
        Blank {
            mender,
            rules: before.rules,
            schedule: before.schedule,
            status: before.status,
            incarnation: before.incarnation + 1,
            ver: before.ver + 100,
            seq: burnt.unwrap_or(0),
            refunded: before.refunded,
            refunded_cents: before.refunded_cents,
            came: came.collect(),
        }
    }

    /// Steps that are not for now.
    fn in_the_way(&mut self, mender: u64) -> Vec<Step> {
        let fill = |mender, part| Mend::Fill {
            mender,
            part,
            claims: Vec::new(),
            stock: vec![Unit::new(8_888_888)],
            retired: Vec::new(),
        };
        let mut steps = Vec::new();
        for _ in 0..self.random.below(3) {
            steps.push(match self.random.below(8) {
                0 => Step::Claim { wishes: self.wishes(4) },
                1 => Step::Look { user: user(self.random.below(USERS)) },
                2 => Step::Collect { entries: true },
                3 => Step::Reap { limit: 2 },
                4 => Step::Mend(fill(mender + 1, 1)),
                5 => Step::Mend(fill(mender, 99)),
                6 => Step::Mend(Mend::Reopen { mender: mender + 1 }),
                _ => Step::Mend(Mend::Freeze { for_ms: 3, lost: Vec::new() }),
            });
        }
        steps
    }

    /// Closes all pools to the end: nothing stays but what was confirmed, refunded or retired.
    async fn end(&mut self) {
        for pool in 0..POOLS {
            while self.take(pool, Step::Close { limit: 7 }).await != Answer::Left(0) {
                self.balance();
            }
        }
        for donor in 0..POOLS {
            for (home, parcel) in self.model(donor).out.clone() {
                let credit = Step::Credit { donor: donor as u16, parcel: parcel.clone(), wishes: self.wishes(3) };
                self.take(usize::from(home), credit).await;
                assert_eq!(self.take(donor, Step::Ack { home, parcel }).await, Answer::Done(true));
                self.balance();
            }
        }
        for pool in 0..POOLS {
            while self.model(pool).held() > 0 {
                self.take(pool, Step::Reap { limit: 5 }).await;
                self.balance();
            }
            assert_eq!(self.take(pool, Step::Finish).await, Answer::Done(true));
            assert_eq!(self.take(pool, Step::Finish).await, Answer::Done(true));
        }
        self.look_inside();
        let ends = self.models.iter().flatten();
        let ended: u64 = ends.map(|pool| pool.confirmed + pool.refunded + pool.retired.len() as u64).sum();
        assert_eq!(ended, self.issued);
    }
}

/// A pool's content in small parts.
fn parts_of(mender: u64, before: &Pool, stock: &[Unit]) -> Vec<Mend> {
    let claims: Vec<(UserKey, ClaimRecord)> =
        before.claims.iter().map(|(user, record)| (*user, record.clone())).collect();
    let retired: Vec<Unit> = before.retired.iter().copied().collect();
    let (mut claims, mut stock, mut retired) = (claims.chunks(17), stock.chunks(11), retired.chunks(7));
    let mut parts = Vec::new();
    loop {
        let some = (claims.next(), stock.next(), retired.next());
        if some == (None, None, None) {
            return parts;
        }
        parts.push(Mend::Fill {
            mender,
            part: parts.len() as u64 + 1,
            claims: some.0.unwrap_or_default().to_vec(),
            stock: some.1.unwrap_or_default().to_vec(),
            retired: some.2.unwrap_or_default().to_vec(),
        });
    }
}
