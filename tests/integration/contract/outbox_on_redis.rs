//! Outboxes on Redis and Valkey: the promises, what is trimmed, and what holds when replicas hang and slots move.

use std::collections::BTreeSet;
use std::time::Duration;

use headcount::adapters::redis::{RedisConfig, RedisStore, keys};
use headcount::domain::quota::claim::{ClaimAnswer, Wish};
use headcount::domain::quota::marks::Floor;
use headcount::domain::quota::step::Step;
use headcount::runtime::tasks::Tasks;
use headcount::store::Stores;
use headcount::store::error::StoreError;
use headcount::store::pools::PoolAddress;

use super::now_ms;
use super::outbox::{acknowledge, read, upholds_the_promises_of_outboxes};
use super::pools::{claimed, stocked, take, user, wish};
use super::pools_on_redis::{replicas_of, stocked_surely};
use crate::harness::cluster::{ClusterOptions, RedisCluster};
use crate::harness::eventually;
use crate::harness::redis::{Flavor, RedisServer};
use crate::harness::resp::Reply;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outboxes_on_a_single_redis() {
    on_server(&RedisServer::single().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outboxes_on_a_single_valkey() {
    on_server(&RedisServer::valkey().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outboxes_on_a_redis_cluster() {
    let cluster = RedisCluster::start_with(ClusterOptions { replicas: 0, ..ClusterOptions::default() }).await;
    let (stores, tasks) = started(&cluster.url()).await;
    upholds_the_promises_of_outboxes(&stores).await;
    an_outbox_is_read_while_its_slot_moves(&stores, &cluster).await;
    assert!(tasks.finish(Duration::from_secs(5)).await);
}

async fn on_server(server: &RedisServer) {
    let (stores, tasks) = started(&server.url()).await;
    upholds_the_promises_of_outboxes(&stores).await;
    only_what_is_acknowledged_and_old_is_trimmed(&stores, server).await;
    an_outbox_is_there_while_it_is_empty(&stores, server).await;
    an_entry_removed_while_it_was_pending_is_passed_over(&stores, server).await;
    a_group_that_is_missing_is_made(&stores, server).await;
    a_drain_goes_on_where_memory_is_full(&stores, server).await;
    claimants_outlive_names_that_go(&stores).await;
    foreign_entries_are_reported(&stores, server).await;
    whoever_dies_while_renaming_leaves_no_entry_out(&stores).await;
    assert!(tasks.finish(Duration::from_secs(5)).await);
}

/// docs/FAULTS.md F4: whoever follows the log of grants must find what is younger.
async fn only_what_is_acknowledged_and_old_is_trimmed(stores: &Stores, server: &RedisServer) {
    const OLD: usize = 450;
    const YOUNG: usize = 150;
    let pool = stocked(&stores.pools, 1000).await;
    let log = log_of(&pool);
    let (length, first) = (|| length(server, &log), || first_id(server, &log));
    add_old(server, &log, now_ms(stores).await - 120_000, OLD);
    for some in (0..YOUNG as u64).collect::<Vec<_>>().chunks(50) {
        take(&stores.pools, &pool, Step::Claim { wishes: some.iter().map(|number| wish(*number, "a")).collect() })
            .await;
    }
    let all = read(stores, &pool, 1000).await;
    assert_eq!((all.entries.len(), all.behind), (OLD + YOUNG, 0));
    // The oldest is not acknowledged: nothing goes.
    acknowledge(stores, &pool, &all, |place| (1..300).contains(&place)).await;
    assert_eq!(length(), OLD + YOUNG);
    acknowledge(stores, &pool, &all, |place| place == 0).await;
    let left = length();
    assert!((OLD + YOUNG - 300..OLD + YOUNG).contains(&left), "{left} left");
    let pending = read(stores, &pool, 1000).await;
    assert_eq!(pending.entries, all.entries[300..], "what is not acknowledged stays, however old");
    acknowledge(stores, &pool, &pending, |_| true).await;
    let left = length();
    assert!((YOUNG..YOUNG + 200).contains(&left), "{left} left, of which {YOUNG} are young");
    assert!(all.entries[300..].iter().any(|(name, _)| *name == first()), "only from the front");

    // Nobody acknowledges any more: an idle drain trims too.
    let idle = stocked(&stores.pools, 1).await;
    let log = log_of(&idle);
    add_old(server, &log, now_ms(stores).await - 120_000, OLD);
    let all = read(stores, &idle, 1000).await;
    let mut command: Vec<Vec<u8>> = vec![b"XACK".to_vec(), log.clone(), b"ledger".to_vec()];
    command.extend(all.entries.iter().map(|(name, _)| name.clone().into_bytes()));
    assert_eq!(server.command(&command).int(), OLD as i64);
    assert_eq!(self::length(server, &log), OLD);
    assert_eq!(read(stores, &idle, 1000).await.entries.len(), 0);
    assert!(self::length(server, &log) < 200);
}

/// docs/FAULTS.md A15.
async fn an_outbox_is_there_while_it_is_empty(stores: &Stores, server: &RedisServer) {
    let pool = stocked(&stores.pools, 5).await;
    let log = log_of(&pool);
    claimed(&stores.pools, &pool, Wish { user_raw: "ada".into(), ..wish(1, "a") }).await;
    let batch = read(stores, &pool, 10).await;
    acknowledge(stores, &pool, &batch, |_| true).await;
    assert_eq!(stores.outbox.rename(&pool, "ada", "nobody").await, Ok(1));
    assert_eq!(length(server, &log), 0);
    assert_eq!(server.command(&[b"EXISTS".as_slice(), &log]).int(), 1);
    assert_eq!(read(stores, &pool, 10).await.behind, 0);
    claimed(&stores.pools, &pool, wish(2, "a")).await;
    assert_eq!(read(stores, &pool, 10).await.entries.len(), 1);
}

async fn an_entry_removed_while_it_was_pending_is_passed_over(stores: &Stores, server: &RedisServer) {
    let pool = stocked(&stores.pools, 9).await;
    for number in 0..6 {
        claimed(&stores.pools, &pool, wish(number, "a")).await;
    }
    let batch = read(stores, &pool, 4).await;
    for place in [0, 1, 3] {
        server.command(&[b"XDEL".as_slice(), &log_of(&pool), batch.entries[place].0.as_bytes()]);
    }
    let after = read(stores, &pool, 2).await;
    assert_eq!((after.entries[0].clone(), after.entries.len(), after.behind), (batch.entries[2].clone(), 2, 1));
    assert_eq!(stores.outbox.lag(&pool).await.unwrap().unwrap().entries, 3);
}

/// A log that was rebuilt by hand.
async fn a_group_that_is_missing_is_made(stores: &Stores, server: &RedisServer) {
    let pool = stocked(&stores.pools, 9).await;
    for number in 0..3 {
        claimed(&stores.pools, &pool, wish(number, "a")).await;
    }
    let batch = read(stores, &pool, 10).await;
    server.command(&[b"XGROUP".as_slice(), b"DESTROY", &log_of(&pool), b"ledger"]);
    assert_eq!(stores.outbox.lag(&pool).await.unwrap().unwrap().entries, 3);
    acknowledge(stores, &pool, &batch, |_| true).await;
    assert_eq!(read(stores, &pool, 10).await, batch, "all that is there");
    server.command(&[b"DEL".as_slice(), &log_of(&pool)]);
    assert_eq!(stores.outbox.lag(&pool).await.unwrap().unwrap().entries, 0);
    assert_eq!(stores.outbox.rename(&pool, "ada", "nobody").await, Ok(0));
    assert_eq!(read(stores, &pool, 10).await.entries.len(), 0);
    claimed(&stores.pools, &pool, wish(3, "a")).await;
    assert_eq!(read(stores, &pool, 10).await.entries.len(), 1);
}

/// Else it would stay full.
async fn a_drain_goes_on_where_memory_is_full(stores: &Stores, server: &RedisServer) {
    let pool = stocked(&stores.pools, 9).await;
    claimed(&stores.pools, &pool, Wish { user_raw: "ada".into(), ..wish(1, "a") }).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).ok();
    let full = server.command(&["SET", "one", "more"]);
    assert!(matches!(&full, Reply::Error(text) if text.starts_with("OOM")), "{full:?}");
    assert_eq!(stores.outbox.rename(&pool, "ada", "nobody").await, Ok(1));
    let batch = read(stores, &pool, 10).await;
    assert_eq!(batch.entries.len(), 1);
    acknowledge(stores, &pool, &batch, |_| true).await;
    assert_eq!(stores.outbox.lag(&pool).await.unwrap().unwrap().entries, 0);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).ok();
}

/// docs/FAULTS.md F4: entries that give way to an alias, or go, are missed by nobody who follows the grants.
async fn claimants_outlive_names_that_go(stores: &Stores) {
    let pool = stocked(&stores.pools, 20).await;
    let claim = async |number, name: &str| {
        claimed(&stores.pools, &pool, Wish { user_raw: name.to_owned(), ..wish(number, "a") }).await;
    };
    let all = |last: u64| (1..=last).map(|number| user(number).short()).collect::<BTreeSet<u64>>();
    claim(1, "ada").await;
    let first = stores.pools.claimants(&pool, None).await.unwrap();
    claim(2, "ada").await;
    claim(3, "ada").await;
    let third = stores.pools.claimants(&pool, Some(&first.mark)).await.unwrap();
    acknowledge(stores, &pool, &read(stores, &pool, 2).await, |_| true).await;
    claim(4, "bob").await;
    // Two are removed, of which the second is behind the first mark; the third gives way to a copy at the log's end.
    assert_eq!(stores.outbox.rename(&pool, "ada", "nobody").await, Ok(3));
    claim(5, "bob").await;
    let anew = stores.pools.claimants(&pool, Some(&first.mark)).await.unwrap();
    assert_eq!((anew.all, anew.users.into_iter().collect()), (true, all(5)), "the mark does not hold any more");
    let since = stores.pools.claimants(&pool, Some(&third.mark)).await.unwrap();
    let users: BTreeSet<u64> = since.users.into_iter().collect();
    assert_eq!((since.all, users), (false, (3..=5).map(|number| user(number).short()).collect()), "nobody is missing");
    claim(6, "bob").await;
    let next = stores.pools.claimants(&pool, Some(&since.mark)).await.unwrap();
    assert_eq!((next.all, next.users), (false, vec![user(6).short()]));
    // Published ones, whose mark is from before.
    let published = stores.pools.claimants(&pool, None).await.unwrap();
    assert_eq!((published.all, published.users.into_iter().collect()), (true, all(6)));
}

async fn foreign_entries_are_reported(stores: &Stores, server: &RedisServer) {
    let pool = stocked(&stores.pools, 9).await;
    claimed(&stores.pools, &pool, wish(1, "a")).await;
    let log = log_of(&pool);
    let id = server.command(&[b"XADD".as_slice(), &log, b"*", b"k", b"grant", b"r", b"what"]).text();
    assert!(matches!(stores.outbox.read(&pool, 10).await, Err(StoreError::Corrupt(text)) if text.contains(&id)));
    server.command(&[b"XDEL".as_slice(), &log, id.as_bytes()]);
    assert_eq!(read(stores, &pool, 10).await.entries.len(), 1);
    let foreign = stores.outbox.acknowledge(&pool, &["5".to_owned()]).await;
    assert!(matches!(foreign, Err(StoreError::Refused(_))), "{foreign:?}");
}

/// More entries than one script looks at.
async fn whoever_dies_while_renaming_leaves_no_entry_out(stores: &Stores) {
    const USERS: u64 = 1800;
    let pool = stocked(&stores.pools, USERS).await;
    for some in (0..USERS).collect::<Vec<_>>().chunks(200) {
        let wishes = some.iter().map(|number| Wish { user_raw: "ada".into(), ..wish(*number, "a") }).collect();
        take(&stores.pools, &pool, Step::Claim { wishes }).await;
    }
    // Half of them are pending.
    read(stores, &pool, 900).await;
    let patience = Duration::from_millis(10);
    let first = tokio::time::timeout(patience, stores.outbox.rename(&pool, "ada", "nobody")).await;
    let second = stores.outbox.rename(&pool, "ada", "nobody").await.unwrap();
    assert!((first.is_err() || second == 0) && second <= USERS, "{first:?}, {second}");
    let mut found = BTreeSet::new();
    loop {
        let batch = read(stores, &pool, 1000).await;
        if batch.entries.is_empty() {
            break;
        }
        for (_, entry) in &batch.entries {
            assert_eq!(entry.user_raw(), Some("nobody"));
            assert!(found.insert(entry.claim().unwrap()), "twice");
        }
        acknowledge(stores, &pool, &batch, |_| true).await;
    }
    assert_eq!(found.len() as u64, USERS);
}

/// What is pending moves with the log, and so does what the group has read.
async fn an_outbox_is_read_while_its_slot_moves(stores: &Stores, cluster: &RedisCluster) {
    let pool = stocked(&stores.pools, 10).await;
    for number in 0..6 {
        claimed(&stores.pools, &pool, wish(number, "a")).await;
    }
    let three = read(stores, &pool, 3).await;
    acknowledge(stores, &pool, &three, |place| place == 0).await;
    let slot = keys::pool(&pool)[keys::LOG].slot;
    let to = (cluster.owner_of(slot).unwrap() + 1) % 3;
    let from = cluster.begin_move(slot, to);
    let during = read(stores, &pool, 3).await;
    assert_eq!((during.entries.len(), during.behind), (3, 2));
    assert_eq!(during.entries[..2], three.entries[1..]);
    cluster.move_keys(slot, from, to, Duration::ZERO).await;
    assert_eq!(read(stores, &pool, 3).await, during);
    assert_eq!(stores.outbox.lag(&pool).await.unwrap().unwrap().entries, 5);
    cluster.end_move(slot, from, to);
    acknowledge(stores, &pool, &during, |_| true).await;
    let rest = read(stores, &pool, 10).await;
    assert_eq!((rest.entries.len(), rest.behind), (2, 0));
    acknowledge(stores, &pool, &rest, |_| true).await;
    assert_eq!(read(stores, &pool, 10).await.entries.len(), 0);
}

/// docs/FAULTS.md A5: what the ledger knows, no failover takes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_replicated_is_not_read() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        // The stopped replica must not be declared failed meanwhile: then it would not be waited for.
        let lines = vec!["cluster-node-timeout 60000".to_owned()];
        let options = ClusterOptions { flavor, masters: 1, lines, ..ClusterOptions::default() };
        let cluster = RedisCluster::start_with(options).await;
        let (stores, tasks) = started(&cluster.url()).await;
        // Another process, whose connections have written nothing that a WAIT could wait for.
        let (others, other_tasks) = started(&cluster.url()).await;
        let pool = stocked_surely(&stores.pools).await;
        assert!(matches!(claimed(&stores.pools, &pool, wish(1, "a")).await, ClaimAnswer::Granted(_)));
        assert_eq!(read(&stores, &pool, 1).await.entries.len(), 1);
        let replicas = replicas_of(&cluster, &pool);
        replicas[0].stop();
        let claim = Step::Claim { wishes: vec![wish(2, "a")] };
        let claimed = stores.pools.step(&pool, Floor::default(), claim).await;
        assert!(matches!(claimed, Err(StoreError::Unconfirmed(_))), "{flavor:?}: {claimed:?}");
        // Both what nobody has read yet, and what was read and is pending.
        for reader in [&stores, &others, &others] {
            let read = reader.outbox.read(&pool, 10).await;
            assert!(matches!(read, Err(StoreError::Unconfirmed(_))), "{flavor:?}: {read:?}");
        }
        let renamed = others.outbox.rename(&pool, &wish(2, "").user_raw, "nobody").await;
        assert!(matches!(renamed, Err(StoreError::Unconfirmed(_))), "{flavor:?}: {renamed:?}");
        let lag = stores.outbox.lag(&pool).await.unwrap().unwrap();
        assert_eq!(lag.entries, 2, "{flavor:?}");
        replicas[0].cont();
        let mut batch = None;
        eventually("the truth", async || {
            batch = others.outbox.read(&pool, 10).await.ok().flatten();
            batch.is_some()
        })
        .await;
        let batch = batch.unwrap();
        let names: Vec<_> = batch.entries.iter().map(|(_, entry)| entry.user_raw().unwrap().to_owned()).collect();
        assert_eq!((names, batch.behind), (vec![wish(1, "").user_raw, "nobody".to_owned()], 0), "{flavor:?}");
        assert!(tasks.finish(Duration::from_secs(5)).await && other_tasks.finish(Duration::from_secs(5)).await);
    }
}

async fn started(url: &str) -> (Stores, Tasks) {
    // Longer than a user would bear, so that a busy test machine is not taken for a fault.
    let config = RedisConfig {
        command_timeout: Duration::from_secs(2),
        deadline: Duration::from_secs(4),
        ..RedisConfig::new(url)
    };
    let tasks = Tasks::new();
    let stores = RedisStore::start(&config, tasks.clone()).unwrap().stores();
    eventually("first contact", async || stores.deployment.contacted()).await;
    (stores, tasks)
}

fn log_of(pool: &PoolAddress) -> Vec<u8> {
    keys::pool(pool)[keys::LOG].text.to_vec()
}

fn length(server: &RedisServer, log: &[u8]) -> usize {
    server.command(&[b"XLEN", log]).int() as usize
}

fn first_id(server: &RedisServer, log: &[u8]) -> String {
    let entries = server.command(&[b"XRANGE".as_slice(), log, b"-", b"+", b"COUNT", b"1"]).list();
    entries.into_iter().next().expect("an entry").list().remove(0).text()
}

/// Entries as of long ago.
fn add_old(server: &RedisServer, log: &[u8], since_ms: i64, count: usize) {
    let mut connection = server.connect().unwrap();
    for number in 0..count {
        let (id, unit) = (format!("{}-0", since_ms + number as i64), format!("{}#0", 5000 + number));
        let fields: [&[u8]; 11] =
            [b"XADD", log, id.as_bytes(), b"i", b"1", b"v", b"2", b"k", b"refund", b"r", unit.as_bytes()];
        assert_eq!(connection.command(&fields).unwrap().text(), id);
    }
}
