//! Pools on Redis and Valkey: the promises, the keys behind them, and what holds when replicas hang.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headcount::adapters::redis::{RedisConfig, RedisStore, keys};
use headcount::domain::quota::claim::{ClaimAnswer, UserKey};
use headcount::domain::quota::marks::{Floor, OpMark};
use headcount::domain::quota::mend::Mend;
use headcount::domain::quota::pool::Pool;
use headcount::domain::quota::step::{Answer, ReleasedBy, Step};
use headcount::domain::quota::terms::PoolStatus;
use headcount::domain::quota::unit::{Cooling, Unit, joined};
use headcount::runtime::tasks::Tasks;
use headcount::store::error::StoreError;
use headcount::store::pools::{PoolAddress, Pools, Safety};

use super::pools::{blank, claimed, create, fresh_pool, stocked, take, upholds_the_promises_of_pools, user, wish};
use crate::harness::cluster::{ClusterOptions, RedisCluster};
use crate::harness::eventually;
use crate::harness::redis::{Flavor, RedisServer};
use crate::harness::resp::Reply;

/// Random steps on each store.
const STEPS: usize = 1000;
const PLACEHOLDER: &[u8] = b"_";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_redis() {
    on_server(&RedisServer::single().await, 0..2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_valkey() {
    on_server(&RedisServer::valkey().await, 2..4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_cluster() {
    // Without replicas: a busy test machine would not let each WAIT end in time, and then the model could not follow.
    let cluster = RedisCluster::start_with(ClusterOptions { replicas: 0, ..ClusterOptions::default() }).await;
    let (pools, tasks) = started(&cluster.url()).await;
    let server = |address: &PoolAddress| &cluster.nodes[cluster.owner_of(keys::pool(address)[0].slot).unwrap()];
    let inspect =
        |address: &PoolAddress, model: &Pool, lives: &[u64]| compare(server(address), address, (model, lives));
    upholds_the_promises_of_pools(&pools, 4..6, STEPS, Some(&inspect)).await;
    a_pool_serves_while_its_slot_moves(&pools, &cluster).await;
    assert!(tasks.finish(Duration::from_secs(5)).await);
}

async fn on_server(server: &RedisServer, seeds: std::ops::Range<u64>) {
    let (pools, tasks) = started(&server.url()).await;
    let inspect = |address: &PoolAddress, model: &Pool, lives: &[u64]| compare(server, address, (model, lives));
    upholds_the_promises_of_pools(&pools, seeds, STEPS, Some(&inspect)).await;
    all_keys_are_there_from_the_first_step_to_the_last(&pools, server).await;
    a_pool_without_its_state_is_lost(&pools, server).await;
    an_emptied_pool_is_whole_whatever_was_left(&pools, server).await;
    a_pool_of_an_older_version_is_served(&pools, server).await;
    another_server_hears_floors_for_a_second(&pools, server).await;
    claimants_outlive_what_is_trimmed(&pools, server).await;
    eviction_is_an_obstacle(&pools, server).await;
    assert!(tasks.finish(Duration::from_secs(5)).await);
}

/// In a migrating slot a script that names an absent key gets TRYAGAIN (docs/FAULTS.md A15).
async fn all_keys_are_there_from_the_first_step_to_the_last(pools: &Arc<dyn Pools>, server: &RedisServer) {
    let pool = fresh_pool();
    let there = |when: &str| {
        let mut command: Vec<Vec<u8>> = vec![b"EXISTS".to_vec()];
        command.extend(keys::pool(&pool).map(|key| key.text.to_vec()));
        assert_eq!(server.command(&command).int(), 7, "{when}");
    };
    take(pools, &pool, create(1)).await;
    there("made");
    let release = |by| Step::Release { user: user(1), secret: "a".into(), by };
    let op = |chunk| OpMark { operation: 1, chunk };
    let units = vec![Unit::new(1)];
    let steps = [
        Step::Restock { op: op(1), unretire: 0, units, cool: false },
        Step::Claim { wishes: vec![wish(1, "a")] },
        release(ReleasedBy::User),
        Step::Retire { op: op(2), count: 5 },
        Step::Close { limit: 5 },
        Step::Finish,
    ];
    for step in steps {
        let name = step.name();
        take(pools, &pool, step).await;
        there(name);
    }
    pools.remove(&pool).await.unwrap();
    assert_eq!(server.keys_with(pool.campaign.as_str()).len(), 1, "but a lease that is over in a second");
}

/// While a slot moves, a pool serves as long as none of its keys has moved and as soon as all have: a stuck move does not
/// stop it (docs/FAULTS.md A15). Between, a claim waits.
async fn a_pool_serves_while_its_slot_moves(pools: &Arc<dyn Pools>, cluster: &RedisCluster) {
    let pool = stocked(pools, 5).await;
    let slot = keys::pool(&pool)[keys::STATE].slot;
    let from = cluster.owner_of(slot).unwrap();
    let to = (from + 1) % 3;
    let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
    let id = |node: &RedisServer| node.command(&["CLUSTER", "MYID"]).text();
    target.command(&["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &id(source)]).ok();
    source.command(&["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &id(target)]).ok();
    assert!(matches!(claimed(pools, &pool, wish(1, "a")).await, ClaimAnswer::Granted(_)), "no key is absent");

    let port = target.port.to_string();
    let migrate = |some: &[keys::Key]| {
        let mut command: Vec<&[u8]> = vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", b"5000", b"KEYS"];
        command.extend(some.iter().map(|key| &key.text[..]));
        source.command(&command).ok();
    };
    let all = keys::pool(&pool);
    migrate(&all[..3]);
    let claim = take(pools, &pool, Step::Claim { wishes: vec![wish(2, "a")] });
    let (waited, ()) = tokio::join!(claim, async { migrate(&all[3..]) });
    assert_eq!(waited.answer, Answer::Admitting, "another server, which hears floors first");
    let mut last = Answer::Admitting;
    eventually("the second to be over", async || {
        last = take(pools, &pool, Step::Claim { wishes: vec![wish(2, "a"), wish(1, "a")] }).await.answer;
        last != Answer::Admitting
    })
    .await;
    let Answer::Claims(answers) = last else { panic!("{last:?}") };
    assert!(matches!(&answers[..], [ClaimAnswer::Granted(_), ClaimAnswer::Already(_)]), "{answers:?}");
    cluster.migrate_slot(slot, to, Duration::ZERO).await;
    assert!(matches!(claimed(pools, &pool, wish(3, "a")).await, ClaimAnswer::Granted(_)));
    assert_eq!(pools.claims(&pool, None, 100).await.unwrap().claims.len(), 3);
}

/// A new pool would sell its units twice (docs/FAULTS.md F20).
async fn a_pool_without_its_state_is_lost(pools: &Arc<dyn Pools>, server: &RedisServer) {
    let pool = stocked(pools, 3).await;
    server.command(&[b"DEL".as_slice(), &keys::pool(&pool)[keys::STATE].text]);
    assert_eq!(take(pools, &pool, create(1)).await.answer, Answer::Absent);
    assert_eq!(take(pools, &pool, Step::Finish).await.answer, Answer::Absent);
}

/// What was lost with a server may be any of a pool's keys.
async fn an_emptied_pool_is_whole_whatever_was_left(pools: &Arc<dyn Pools>, server: &RedisServer) {
    for lost in [vec![keys::STATE], vec![keys::STOCK, keys::LOG], vec![keys::CLAIMS], vec![keys::STATE, keys::LOG]] {
        let pool = stocked(pools, 3).await;
        claimed(pools, &pool, wish(1, "a")).await;
        take(pools, &pool, Step::Mend(Mend::Fence)).await;
        let all = keys::pool(&pool);
        for place in &lost {
            server.command(&[b"DEL".as_slice(), &all[*place].text]);
        }
        let emptied = take(pools, &pool, Step::Mend(Mend::Empty(Box::new(blank(1))))).await;
        assert_eq!((emptied.answer, emptied.at), (Answer::Done(true), Floor { incarnation: 5, ver: 1000 }), "{lost:?}");
        let mut model = None;
        Pool::step(&mut model, 0, Floor::default(), "", Step::Mend(Mend::Empty(Box::new(blank(1)))));
        let mut model = model.unwrap();
        // Made with 1, stocked, emptied.
        model.sver += if lost.contains(&keys::STATE) { 0 } else { 2 };
        let log = server.command(&[b"XLEN".as_slice(), &all[keys::LOG].text]).int();
        assert_eq!(log, i64::from(!lost.contains(&keys::LOG)), "{lost:?}: what the ledger has not read stays");
        server.command(&[b"XTRIM".as_slice(), &all[keys::LOG].text, b"MAXLEN", b"0"]);
        compare(server, &pool, (&model, &[]));
        let groups = server.command(&[b"XINFO".as_slice(), b"GROUPS", &all[keys::LOG].text]).list();
        let names: Vec<Vec<u8>> =
            groups.into_iter().map(|group| bytes(Reply::List(group.list()[1..2].to_vec())).remove(0)).collect();
        assert_eq!(names, [b"ledger".to_vec()], "{lost:?}");
    }
}

/// A pool that was made before there were packets lacks some numbers.
async fn a_pool_of_an_older_version_is_served(pools: &Arc<dyn Pools>, server: &RedisServer) {
    let pool = stocked(pools, 3).await;
    let state = &keys::pool(&pool)[keys::STATE].text;
    let removed = server.command(&[
        b"HDEL".as_slice(),
        state,
        b"taken_cents",
        b"refunded_cents",
        b"frozen",
        b"mender",
        b"mended",
    ]);
    assert_eq!(removed.int(), 5);
    assert!(matches!(claimed(pools, &pool, wish(1, "a")).await, ClaimAnswer::Granted(_)));
    assert_eq!(pools.inventory(&pool).await.unwrap().unwrap().refunded_cents, 0);
    let Answer::Reading(reading) = take(pools, &pool, Step::Collect { entries: false }).await.answer else { panic!() };
    assert_eq!((reading.avail, reading.taken_cents, reading.refunded_cents), (2, 0, 0));
    assert_eq!(take(pools, &pool, Step::Close { limit: 5 }).await.answer, Answer::Left(0));
    assert_eq!(take(pools, &pool, Step::Mend(Mend::Fence)).await.answer, Answer::Done(true));
}

/// docs/FAULTS.md F1.
async fn another_server_hears_floors_for_a_second(pools: &Arc<dyn Pools>, server: &RedisServer) {
    for is_lost in [false, true] {
        let pool = stocked(pools, 3).await;
        let state = &keys::pool(&pool)[keys::STATE].text;
        let made = take(pools, &pool, Step::Collect { entries: false }).await;
        server.command(&[b"HSET".as_slice(), state, b"run", b"another"]);
        let claim = || Step::Claim { wishes: vec![wish(1, "a")] };
        assert_eq!(take(pools, &pool, claim()).await.answer, Answer::Admitting);
        let knows = Floor { ver: made.at.ver + u64::from(is_lost), ..made.at };
        let heard = pools.step(&pool, knows, claim()).await.unwrap();
        assert_eq!((heard.answer, heard.at), (Answer::Admitting, made.at), "nothing is granted meanwhile");
        let mut last = Answer::Admitting;
        eventually("the second to be over", async || {
            last = take(pools, &pool, claim()).await.answer;
            last != Answer::Admitting
        })
        .await;
        match last {
            Answer::Fenced if is_lost => {}
            Answer::Claims(_) if !is_lost => {}
            other => panic!("lost: {is_lost}, {other:?}"),
        }
    }
}

/// docs/FAULTS.md F4.
async fn claimants_outlive_what_is_trimmed(pools: &Arc<dyn Pools>, server: &RedisServer) {
    let pool = stocked(pools, 20).await;
    let all = || async { pools.claimants(&pool, None).await.unwrap() };
    claimed(pools, &pool, wish(1, "a")).await;
    let first = all().await;
    claimed(pools, &pool, wish(2, "a")).await;
    let second = all().await;
    claimed(pools, &pool, wish(3, "a")).await;
    let log = &keys::pool(&pool)[keys::LOG].text;
    // As the drain does: the oldest go, here all but the last.
    server.command(&[b"XTRIM".as_slice(), log, b"MAXLEN", b"1"]);
    let since = pools.claimants(&pool, Some(&second.mark)).await.unwrap();
    assert_eq!((since.all, since.users), (false, vec![user(3).short()]), "nothing behind the mark is missing");
    for mark in [Some(&first.mark), None] {
        let anew = pools.claimants(&pool, mark).await.unwrap();
        let users: BTreeSet<u64> = anew.users.into_iter().collect();
        assert!(anew.all, "the mark is too old");
        assert_eq!(users, (1..=3).map(|number| user(number).short()).collect());
    }
    // Many who ask at once, with nothing published: one reads for all.
    server.command(&[b"DEL".as_slice(), &keys::pool_claimants(&pool).text]);
    server.command(&["CONFIG", "RESETSTAT"]).ok();
    let told = futures_util::future::join_all((0..20).map(|_| all())).await;
    assert!(told.iter().all(|told| told.all && told.users.len() == 3));
    assert_eq!(server.command_calls()["hscan"], 1);
    server.command(&[b"XTRIM".as_slice(), log, b"MAXLEN", b"0"]);
    let end = all().await;
    assert!(pools.claimants(&pool, Some(&end.mark)).await.unwrap().users.is_empty());
}

/// docs/FAULTS.md A20.
async fn eviction_is_an_obstacle(pools: &Arc<dyn Pools>, server: &RedisServer) {
    for (policy, is_one) in [("allkeys-lru", true), ("volatile-lru", false), ("noeviction", false)] {
        server.command(&["CONFIG", "SET", "maxmemory-policy", policy]).ok();
        let obstacle = pools.obstacle().await.unwrap();
        assert_eq!(obstacle.is_some(), is_one, "{policy}: {obstacle:?}");
    }
}

/// One replica of one stops: nobody is told what is not replicated, also not who asks again and finds it done. The
/// second asker is another process, whose connection has written nothing that WAIT could wait for (docs/FAULTS.md A1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_waits_for_its_replica() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let options = ClusterOptions { flavor, ..ClusterOptions::default() };
        let cluster = RedisCluster::start_with(options).await;
        let (pools, tasks) = started(&cluster.url()).await;
        let (others, other_tasks) = started(&cluster.url()).await;
        let pool = stocked_surely(&pools).await;
        assert_eq!(pools.safety(&pool), Safety::Safe { replicas: 1 });
        let replicas = replicas_of(&cluster, &pool);
        replicas[0].stop();
        let claim = |pools: &Arc<dyn Pools>, secret: &str| {
            let (pools, pool, wishes) = (pools.clone(), pool.clone(), vec![wish(1, secret)]);
            async move { pools.step(&pool, Floor::default(), Step::Claim { wishes }).await }
        };
        let steps = [Step::Look { user: user(1) }, Step::Collect { entries: false }, Step::Finish];
        assert!(matches!(claim(&pools, "first").await, Err(StoreError::Unconfirmed(_))), "{flavor:?}");
        assert!(matches!(claim(&others, "second").await, Err(StoreError::Unconfirmed(_))), "{flavor:?}: already");
        for step in steps {
            let name = step.name();
            let looked = others.step(&pool, Floor::default(), step).await;
            assert!(matches!(looked, Err(StoreError::Unconfirmed(_))), "{flavor:?}, {name}: {looked:?}");
        }
        replicas[0].cont();
        let mut answer = None;
        eventually("the truth", async || {
            answer = claim(&others, "second").await.ok();
            answer.is_some()
        })
        .await;
        let Some(Answer::Claims(answers)) = answer.map(|stepped| stepped.answer) else { panic!("no answer") };
        assert!(matches!(&answers[..], [ClaimAnswer::Already(record)] if record.secret == "first"), "{answers:?}");
        assert!(tasks.finish(Duration::from_secs(5)).await && other_tasks.finish(Duration::from_secs(5)).await);
    }
}

/// A connection that breaks between a script's answer and its WAIT's: a WAIT sent again by itself, on a new connection,
/// would be answered at once, and for nothing (docs/FAULTS.md A1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lost_before_its_wait_was_answered_confirms_nothing() {
    // The stopped replica must not be declared failed meanwhile: then it would not be waited for.
    let lines = vec!["cluster-node-timeout 60000".to_owned()];
    let options = ClusterOptions { masters: 1, lines, ..ClusterOptions::default() };
    let cluster = RedisCluster::start_with(options).await;
    let (pools, tasks) = started(&cluster.url()).await;
    let pool = stocked_surely(&pools).await;
    let replicas = replicas_of(&cluster, &pool);
    let primary = &cluster.nodes[cluster.owner_of(keys::pool(&pool)[0].slot).unwrap()];
    replicas[0].stop();
    let is_over = AtomicBool::new(false);
    let claims = async {
        for number in 1..=5 {
            let wishes = vec![wish(number, "a")];
            let told = pools.step(&pool, Floor::default(), Step::Claim { wishes }).await;
            assert!(matches!(&told, Err(error) if error.retry_may_help()), "{told:?}");
        }
        is_over.store(true, Ordering::SeqCst);
    };
    let cuts = async {
        while !is_over.load(Ordering::SeqCst) {
            primary.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            tokio::time::sleep(Duration::from_millis(130)).await;
        }
    };
    tokio::join!(claims, cuts);
    replicas[0].cont();
    assert!(tasks.finish(Duration::from_secs(5)).await);
}

/// docs/FAULTS.md F17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replica_of_two_that_hangs_is_done_without_after_three_seconds() {
    // The stopped replica must not be declared failed meanwhile: then it would not be waited for anyway.
    let lines = vec!["cluster-node-timeout 15000".to_owned()];
    let options = ClusterOptions { masters: 1, replicas: 2, lines, ..ClusterOptions::default() };
    let cluster = RedisCluster::start_with(options).await;
    let (pools, tasks) = started(&cluster.url()).await;
    let pool = stocked_surely(&pools).await;
    let replicas = replicas_of(&cluster, &pool);
    assert_eq!(pools.safety(&pool), Safety::Safe { replicas: 2 });
    let look = || pools.step(&pool, Floor::default(), Step::Look { user: user(1) });
    replicas[0].stop();
    let stopped = tokio::time::Instant::now();
    assert!(matches!(look().await, Err(StoreError::Unconfirmed(_))));
    eventually("the number to fall", async || look().await.is_ok()).await;
    assert!(stopped.elapsed() >= Duration::from_secs(3), "{:?}", stopped.elapsed());
    assert_eq!(pools.safety(&pool), Safety::Degraded { replicas: 1, of: 2 });
    replicas[0].cont();
    eventually("the number to rise", async || {
        let asked = look().await;
        assert!(asked.is_ok(), "nobody hears of it: {asked:?}");
        pools.safety(&pool) == Safety::Safe { replicas: 2 }
    })
    .await;
    assert!(tasks.finish(Duration::from_secs(5)).await);
}

async fn started(url: &str) -> (Arc<dyn Pools>, Tasks) {
    // Longer than a user would bear, so that a busy test machine is not taken for a fault.
    let config = RedisConfig {
        command_timeout: Duration::from_secs(2),
        deadline: Duration::from_secs(4),
        ..RedisConfig::new(url)
    };
    let tasks = Tasks::new();
    let store = RedisStore::start(&config, tasks.clone()).unwrap();
    let (pools, deployment) = (store.stores().pools, store.stores().deployment);
    eventually("first contact", async || deployment.contacted()).await;
    (pools, tasks)
}

/// A pool with some units, on a cluster whose replicas may take their time at first.
pub async fn stocked_surely(pools: &Arc<dyn Pools>) -> PoolAddress {
    let probe = fresh_pool();
    eventually("replicas that acknowledge", async || {
        pools.step(&probe, Floor::default(), create(1)).await.is_ok()
            && matches!(pools.safety(&probe), Safety::Safe { .. })
    })
    .await;
    stocked(pools, 5).await
}

/// The replicas of the primary that keeps a pool.
pub fn replicas_of<'c>(cluster: &'c RedisCluster, pool: &PoolAddress) -> Vec<&'c RedisServer> {
    let owner = cluster.owner_of(keys::pool(pool)[0].slot).unwrap();
    let port = cluster.nodes[owner].port.to_string();
    let is_replica = |node: &&RedisServer| node.info("replication", "master_port").as_deref() == Some(&port);
    cluster.nodes.iter().filter(is_replica).collect()
}

/// All that stands in the seven keys is what the model has.
fn compare(server: &RedisServer, address: &PoolAddress, (model, lives): (&Pool, &[u64])) {
    let keys = keys::pool(address);
    let key = |place: usize| keys[place].text.to_vec();
    let ask = |command: &[&[u8]]| server.command(command);
    state(&fields(ask(&[b"HGETALL", &key(0)])), model);
    let units = |units: Vec<Vec<u8>>| {
        let (last, units) = units.split_last().expect("a placeholder");
        assert_eq!(last, PLACEHOLDER);
        units.iter().map(|unit| String::from_utf8_lossy(unit).into_owned()).collect::<Vec<_>>().join(",")
    };
    let of = |units: &std::collections::VecDeque<_>| joined(&units.iter().copied().collect::<Vec<_>>());
    assert_eq!(units(bytes(ask(&[b"LRANGE", &key(1), b"0", b"-1"]))), of(&model.avail), "pool");
    assert_eq!(units(bytes(ask(&[b"LRANGE", &key(6), b"0", b"-1"]))), of(&model.retired), "retired");
    let mut claims = fields(ask(&[b"HGETALL", &key(2)]));
    assert_eq!(claims.remove(PLACEHOLDER).as_deref(), Some(PLACEHOLDER));
    let expected: BTreeMap<Vec<u8>, Vec<u8>> =
        model.claims.iter().map(|(user, record)| (user.0.to_vec(), record.to_string().into_bytes())).collect();
    assert_eq!(claims, expected, "claims");
    let deadlines = scored(ask(&[b"ZRANGE", &key(3), b"0", b"-1", b"WITHSCORES"]));
    let expected: Vec<_> = model.deadlines.iter().map(|(at, user)| (*at, user.0.to_vec())).collect();
    assert_eq!(deadlines, expected, "deadlines");
    let cooling = scored(ask(&[b"ZRANGE", &key(4), b"0", b"-1", b"WITHSCORES"]));
    let text = |cooling: &Cooling| (cooling.ready_ms, cooling.unit.to_string().into_bytes());
    assert_eq!(cooling, model.cooling.iter().map(text).collect::<Vec<_>>(), "cooling");
    log(ask(&[b"XRANGE", &key(5), b"-", b"+"]), model, lives);
}

fn state(state: &BTreeMap<Vec<u8>, Vec<u8>>, model: &Pool) {
    let text = |name: &str| String::from_utf8_lossy(&state[name.as_bytes()]).into_owned();
    let status = match model.status {
        PoolStatus::Open => "open",
        PoolStatus::Closing => "closing",
        PoolStatus::Closed => "closed",
    };
    assert_eq!(text("status"), status);
    let numbers = [
        ("incarnation", model.incarnation),
        ("ver", model.ver),
        ("sver", model.sver),
        ("seq", model.seq),
        ("seen", model.seen),
        ("schedule", model.schedule.version),
        ("fenced", model.fenced.into()),
        ("paused", model.schedule.paused.into()),
        ("avail", model.avail.len() as u64),
        ("cooling", model.cooling.len() as u64),
        ("held", model.deadlines.len() as u64),
        ("confirmed", model.confirmed),
        ("retired", model.retired.len() as u64),
        ("refunded", model.refunded),
        ("sent", model.out.len() as u64),
        ("operation", model.op.operation),
        ("chunk", model.op.chunk),
        ("op_chunk", model.op_chunk.into()),
        ("op_total", model.op_total),
        ("taken_cents", model.taken_cents as u64),
        ("refunded_cents", model.refunded_cents as u64),
        ("frozen", model.frozen_until_ms as u64),
        ("mender", model.mender),
        ("mended", model.mended),
    ];
    for (name, number) in numbers {
        assert_eq!(text(name), number.to_string(), "{name}");
    }
    let of = |prefix: &[u8]| state.keys().filter(|name| name.starts_with(prefix)).count();
    assert_eq!((of(b"o:"), of(b"i:")), (model.out.len(), model.came.len()));
    for (home, parcel) in &model.out {
        assert_eq!(text(&format!("o:{home}")), format!("{}|{}", parcel.seq, joined(&parcel.units)));
    }
    for (donor, (seq, _)) in &model.came {
        assert!(text(&format!("i:{donor}")).starts_with(&format!("{seq}|")));
    }
}

fn log(entries: Reply, model: &Pool, lives: &[u64]) {
    let entries = entries.list();
    assert_eq!(entries.len(), model.log.len(), "entries of the log");
    for ((entry, expected), life) in entries.into_iter().zip(&model.log).zip(lives) {
        let mut found = fields(entry.list().remove(1));
        let mut field = |name: &[u8]| found.remove(name);
        let text = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(field(b"i"), text(&life.to_string()));
        assert_eq!(field(b"v"), text(&expected.ver.to_string()));
        assert_eq!(field(b"k"), text(expected.kind.as_str()));
        assert_eq!(field(b"r"), text(&expected.text));
        assert_eq!(field(b"w"), expected.user_raw.as_deref().and_then(text));
        assert_eq!(field(b"u"), expected.user.map(|UserKey(key)| key.to_vec()));
        assert!(found.is_empty());
    }
}

fn bytes(reply: Reply) -> Vec<Vec<u8>> {
    let item = |reply| match reply {
        Reply::Bytes(bytes) => bytes,
        other => panic!("no bytes: {other:?}"),
    };
    reply.list().into_iter().map(item).collect()
}

fn fields(reply: Reply) -> BTreeMap<Vec<u8>, Vec<u8>> {
    bytes(reply).chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// Score and member, in the set's order; the placeholder, which is the last, left out.
fn scored(reply: Reply) -> Vec<(i64, Vec<u8>)> {
    let score = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).expect("whole");
    let mut all: Vec<(i64, Vec<u8>)> = bytes(reply).chunks(2).map(|pair| (score(&pair[1]), pair[0].clone())).collect();
    assert_eq!(all.pop(), Some((9_000_000_000_000_000, PLACEHOLDER.to_vec())));
    all
}
