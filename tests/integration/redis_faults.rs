//! The Redis store while its cluster moves and breaks: nothing wrong is ever answered, and a fault stays where it is.
//!
//! Here at the ports; what a gateway's clients see of the same faults is tested through HTTP.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use headcount::adapters::redis::{RedisConfig, RedisStore, keys};
use headcount::domain::counter::{Counter, SketchAddress, Subject};
use headcount::domain::id::EventId;
use headcount::domain::period::Period;
use headcount::domain::ring::Shards;
use headcount::domain::sketch::registers::Sketch;
use headcount::domain::sketch::wire;
use headcount::runtime::tasks::Tasks;
use headcount::store::Stores;

use crate::contract::elements;
use crate::harness::cluster::RedisCluster;
use crate::harness::eventually;

/// The shards of one event over several days: several keys in each of 16 slots, on all masters.
fn addresses(days: u32) -> Vec<SketchAddress> {
    let of_day = |day: u32| {
        let subject = Subject::Event(EventId::new("site").unwrap());
        let period = Period::Day(format!("2015-05-{:02}", day + 1).parse().unwrap());
        let counter = Arc::new(Counter { subject, generation: 1, period });
        Shards::DEFAULT.positions().map(move |position| SketchAddress { counter: counter.clone(), position })
    };
    (0..days).flat_map(of_day).collect()
}

async fn store_on(cluster: &RedisCluster, tasks: &Tasks) -> Stores {
    // Longer than any fault here lasts on a healthy cluster, so that a busy test machine is not taken for one.
    let config = RedisConfig {
        command_timeout: Duration::from_secs(2),
        deadline: Duration::from_secs(4),
        ..RedisConfig::new(cluster.url())
    };
    let stores = RedisStore::start(&config, tasks.clone()).unwrap().stores();
    eventually("first contact", async || stores.deployment.contacted()).await;
    stores
}

async fn users(stores: &Stores, address: &SketchAddress) -> Option<Sketch> {
    let blob = stores.counters.read(std::slice::from_ref(address)).await.remove(0).unwrap()?;
    Some(wire::decode(&blob).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_under_load_and_no_caller_notices() {
    let cluster = RedisCluster::start().await;
    let stores = store_on(&cluster, &Tasks::new()).await;
    let moving = addresses(28).into_iter().step_by(16).collect::<Vec<_>>();
    let slot = keys::sketch(&moving[0]).slot;
    let slots: HashSet<u16> = moving.iter().map(|address| keys::sketch(address).slot).collect();
    assert_eq!(slots, HashSet::from([slot]), "all days of one position share a slot");

    let (moved, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers = Tasks::new();
    for writer in 0..4 {
        let (stores, moving) = (stores.clone(), moving.clone());
        let (moved, written) = (moved.clone(), written.clone());
        writers.spawn("writer", async move {
            while !moved.load(Ordering::SeqCst) {
                let user = written.fetch_add(1, Ordering::SeqCst);
                let address = &moving[user as usize % moving.len()];
                let mine = elements(user..user + 1);
                stores.counters.add(address, &mine, None).await.unwrap_or_else(|error| panic!("{writer}: {error}"));
                let found = users(&stores, address).await.expect("the sketch just written");
                assert!(!found.clone().insert(mine[0].as_bytes()), "a writer reads what it wrote");
            }
        });
    }
    let home = cluster.owner_of(slot).unwrap();
    let away = (home + 1) % 3;
    eventually("every day written", async || written.load(Ordering::SeqCst) > 200).await;
    cluster.migrate_slot(slot, away, Duration::from_millis(50)).await;
    assert_eq!(cluster.owner_of(slot), Some(away));
    cluster.migrate_slot(slot, home, Duration::from_millis(50)).await;
    moved.store(true, Ordering::SeqCst);
    assert!(writers.finish(Duration::from_secs(10)).await);
    assert!(cluster.command_calls().get("asking").is_some_and(|calls| *calls > 0), "somebody met a slot on the move");

    let mut expected = vec![Sketch::new(); moving.len()];
    for user in 0..written.load(Ordering::SeqCst) {
        expected[user as usize % moving.len()].insert(elements(user..user + 1)[0].as_bytes());
    }
    for (address, expected) in moving.iter().zip(expected) {
        assert!(users(&stores, address).await == Some(expected), "{address:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_primary_takes_no_other_shard_with_it() {
    let cluster = RedisCluster::start().await;
    let tasks = Tasks::new();
    let stores = store_on(&cluster, &tasks).await;
    let all = addresses(1);
    for address in &all {
        stores.counters.add(address, &elements(0..10), None).await.unwrap();
    }
    let slot = keys::sketch(&all[0]).slot;
    for stopped in [false, true] {
        let owner = cluster.owner_of(slot).unwrap();
        // The replica that will take over must have what was acknowledged, or the fault tested here is another one.
        let in_step = cluster.nodes[owner].command(&["WAIT", "1", "5000"]).int();
        assert_eq!(in_step, 1);
        let theirs: Vec<bool> =
            all.iter().map(|address| cluster.owner_of(keys::sketch(address).slot) == Some(owner)).collect();
        let changes = *stores.counters.changes().borrow();
        if stopped {
            cluster.nodes[owner].stop()
        } else {
            cluster.nodes[owner].kill()
        }

        let (mut lost, mut served) = (0, 0);
        for (address, theirs) in all.iter().zip(theirs) {
            match stores.counters.add(address, &elements(10..20), None).await {
                Ok(()) => served += 1,
                Err(error) => {
                    assert!(theirs, "{address:?} is not on the lost node: {error}");
                    assert!(error.retry_may_help(), "{error}");
                    lost += 1;
                }
            }
        }
        assert!(served >= 10, "{served} served, {lost} lost");
        assert!(lost > 0 || cluster.owner_of(slot) != Some(owner), "the lost node's shards fail until the failover");

        let heir = cluster.failed_over(slot, owner).await;
        assert_ne!(heir, owner);
        for address in &all {
            let push = async || stores.counters.add(address, &elements(10..20), None).await.is_ok();
            eventually("a shard that is served again", push).await;
            let found = users(&stores, address).await.unwrap();
            assert!(elements(0..20).iter().all(|e| !found.clone().insert(e.as_bytes())), "{address:?} has all 20");
        }
        eventually("word of the change", async || *stores.counters.changes().borrow() > changes).await;
        if stopped {
            cluster.nodes[owner].cont()
        } else {
            cluster.nodes[owner].restart().await
        }
        cluster.settled().await;
    }
    assert!(tasks.finish(Duration::from_secs(10)).await);
}
