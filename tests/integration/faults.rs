//! What a gateway's clients see while the cluster under it moves and breaks: right answers, and a fault that stays
//! where it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::harness::cluster::RedisCluster;
use crate::harness::crowd::{FIXED_KEY, arrive, assert_within, count, users};
use crate::harness::eventually;
use crate::harness::gateway::Gateway;
use crate::harness::placement::{on_node, slot_of};

const EVENT: &str = "live";

#[tokio::test(flavor = "multi_thread")]
async fn a_live_events_slot_moves_under_load_and_no_client_notices() {
    let cluster = RedisCluster::start().await;
    let gateway = Gateway::start(&[("HEADCOUNT_REDIS_URL", &cluster.url()), FIXED_KEY]).await;
    let (moved, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (api, moved, sent) = (gateway.public.clone(), moved.clone(), sent.clone());
            tokio::spawn(async move {
                while !moved.load(Ordering::SeqCst) {
                    let first = sent.fetch_add(20, Ordering::SeqCst);
                    assert_eq!(arrive(&[&api], EVENT, &users(first..first + 20)).await, 0, "buffered");
                    let answer = count(&api, EVENT, "").await;
                    assert_eq!((&answer["stale"], &answer["partial"]), (&json!(false), &json!(false)), "{answer}");
                }
            })
        })
        .collect();
    eventually("a crowd", async || sent.load(Ordering::SeqCst) > 1_000).await;
    // Two slots of the event: of its first position (layout, marker, published answer) and of a user.
    let slots = [keyslot_of_layout(), slot_of(EVENT, "user_7")];
    for slot in slots {
        let home = cluster.owner_of(slot).unwrap();
        cluster.migrate_slot(slot, (home + 1) % 3, Duration::from_millis(100)).await;
        cluster.migrate_slot(slot, home, Duration::from_millis(100)).await;
    }
    moved.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    let total = sent.load(Ordering::SeqCst) as f64;
    let close =
        async || (count(&gateway.public, EVENT, "").await["count"].as_f64().unwrap() / total - 1.0).abs() < 0.01;
    eventually("the whole count", close).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_primary_costs_only_its_own_shards_and_they_come_back() {
    a_lost_primary(|cluster, node| cluster.nodes[node].kill()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_primary_costs_only_its_own_shards_and_they_come_back() {
    a_lost_primary(|cluster, node| cluster.nodes[node].stop()).await;
}

async fn a_lost_primary(lose: impl FnOnce(&RedisCluster, usize)) {
    let cluster = RedisCluster::start().await;
    let gateway = Gateway::start(&[("HEADCOUNT_REDIS_URL", &cluster.url()), FIXED_KEY]).await;
    let api = &gateway.public;
    arrive(&[api], EVENT, &users(0..1_000)).await;
    // The node of the first position keeps layout and record too; the other two are the plainer case.
    let first = cluster.owner_of(keyslot_of_layout()).unwrap();
    let victim = (first + 1) % 3;
    let (theirs, others) = on_node(&cluster, victim, EVENT, users(1_000..3_000));
    assert_within("before", count(api, EVENT, "").await["count"].as_f64().unwrap(), 1_000.0, 0.02);
    lose(&cluster, victim);

    let mut buffered = 0;
    for (lost, served) in theirs.chunks(20).zip(others.chunks(20)) {
        assert_eq!(arrive(&[api], EVENT, served).await, 0, "shards of living nodes are stored at once");
        buffered += arrive(&[api], EVENT, lost).await;
    }
    assert!(buffered > 0, "the dead node's visits are buffered until the failover");
    let remembered = count(api, EVENT, "").await;
    assert!(remembered["count"].as_u64().unwrap() > 0, "the last reading, never 0: {remembered}");

    cluster.failed_over(slot_of(EVENT, &theirs[0]), victim).await;
    let whole = 1_000.0 + (theirs.len().min(others.len()) / 20 * 40) as f64;
    let close = async || {
        let answer = count(api, EVENT, "").await;
        answer["stale"] == false && (answer["count"].as_f64().unwrap() / whole - 1.0).abs() < 0.02
    };
    eventually("everybody to be counted after the failover", close).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_node_gets_its_counts_back() {
    let cluster = RedisCluster::start().await;
    let gateway = Gateway::start(&[("HEADCOUNT_REDIS_URL", &cluster.url()), FIXED_KEY]).await;
    let api = &gateway.public;
    arrive(&[api], EVENT, &users(0..5_000)).await;
    let before = count(api, EVENT, "").await["count"].as_f64().unwrap();
    assert_within("before", before, 5_000.0, 0.01);
    for master in cluster.masters_now() {
        cluster.nodes[master].flush();
        let whole = async || {
            let answer = count(api, EVENT, "").await;
            answer["stale"] == false && answer["count"].as_f64() == Some(before)
        };
        eventually("the count to be whole again", whole).await;
        // What stands in the store, not only what the gateway remembers: another gateway reads it.
        let other = Gateway::start(&[("HEADCOUNT_REDIS_URL", &cluster.url()), FIXED_KEY]).await;
        let seen = async || count(&other.public, EVENT, "").await["count"].as_f64() == Some(before);
        eventually("another gateway to see it", seen).await;
    }
}

/// The slot of the event's first position.
fn keyslot_of_layout() -> u16 {
    use headcount::adapters::redis::keys;
    use headcount::domain::counter::{Counter, Subject};
    use headcount::domain::id::EventId;
    use headcount::domain::period::Period;
    let subject = Subject::Event(EventId::new(EVENT).unwrap());
    keys::layout(&Counter { subject, generation: 0, period: Period::All }).slot
}
