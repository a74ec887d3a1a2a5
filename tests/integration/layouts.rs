//! Gateways with different shard counts write one event side by side, as during a change of `HEADCOUNT_SHARDS`: nobody
//! counts twice.

use crate::harness::cluster::RedisCluster;
use crate::harness::crowd::{FIXED_KEY, arrive, assert_within, count, users};
use crate::harness::eventually;
use crate::harness::gateway::Gateway;

#[tokio::test(flavor = "multi_thread")]
async fn gateways_with_8_16_and_64_shards_count_one_crowd() {
    const USERS: usize = 30_000;
    let cluster = RedisCluster::start().await;
    let url = cluster.url();
    let start = async |shards: &str| {
        Gateway::start(&[("HEADCOUNT_REDIS_URL", &*url), ("HEADCOUNT_SHARDS", shards), FIXED_KEY]).await
    };
    let gateways = [start("16").await, start("8").await, start("64").await];

    // Before: one layout.
    arrive(&[&gateways[0].public], "launch", &users(0..USERS / 2)).await;
    for gateway in &gateways {
        let answer = count(&gateway.public, "launch", "").await;
        assert_within("before", answer["count"].as_f64().unwrap(), (USERS / 2) as f64, 0.02);
    }

    // During: each gateway takes the same users in another order, so that most are written under all three layouts.
    let writers: Vec<_> = gateways
        .iter()
        .enumerate()
        .map(|(i, gateway)| {
            let api = gateway.public.clone();
            tokio::spawn(async move {
                for step in 0..60 {
                    let first = (step * 7 + i * 20) % 60 * (USERS / 60);
                    arrive(&[&api], "launch", &users(first..first + USERS / 60)).await;
                }
            })
        })
        .collect();
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        for gateway in &gateways {
            let seen = count(&gateway.public, "launch", "").await["count"].as_f64().unwrap();
            assert!(seen >= (USERS / 2) as f64 * 0.98, "{seen}: somebody is missing");
            assert!(seen <= USERS as f64 * 1.02, "{seen}: somebody counts twice");
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }

    // After.
    for gateway in &gateways {
        eventually("the whole crowd", async || {
            let seen = count(&gateway.public, "launch", "").await["count"].as_f64().unwrap();
            (seen / USERS as f64 - 1.0).abs() < 0.02
        })
        .await;
    }
}
