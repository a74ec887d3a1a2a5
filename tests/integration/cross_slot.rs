//! A soft campaign's remaining is merged over shards on all masters, and leaves nothing behind: not when a sketch is
//! corrupt, not when the gateway is killed while it reads.

use serde_json::json;

use crate::harness::cluster::RedisCluster;
use crate::harness::crowd::FIXED_KEY;
use crate::harness::eventually;
use crate::harness::gateway::{Api, Gateway};

/// Marks a temporary key: the kind between tag and name.
const TEMPORARY: &str = "}:t:";

#[tokio::test(flavor = "multi_thread")]
async fn remaining_is_merged_in_the_store_and_leaves_no_key_behind() {
    let cluster = RedisCluster::start().await;
    let gateway = Gateway::start(&env(&cluster)).await;
    claims(&gateway, 200).await;
    let sketches = sketches(&cluster);
    let masters: std::collections::HashSet<usize> = sketches.iter().map(|(master, _)| *master).collect();
    assert_eq!((sketches.len(), masters.len()), (16, 3), "sixteen shards on three masters");
    let merges_before = cluster.master_command_calls().get("pfmerge").copied().unwrap_or(0);
    eventually("a merged reading of all 200", async || {
        let left = remaining(&gateway.public).await;
        left["partial"] == false && left["remaining"].as_u64().is_some_and(|left| left.abs_diff(800) <= 2)
    })
    .await;
    eventually("a merge in the store", async || {
        remaining(&gateway.public).await;
        cluster.master_command_calls().get("pfmerge").copied().unwrap_or(0) > merges_before
    })
    .await;
    assert!(cluster.keys_with(TEMPORARY).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_sketch_makes_the_answer_partial_and_is_told() {
    let cluster = RedisCluster::start().await;
    let gateway = Gateway::start(&env(&cluster)).await;
    claims(&gateway, 200).await;
    let (master, key) = sketches(&cluster).remove(0);
    cluster.nodes[master].command(&[b"SET".as_slice(), &key, b"HYLL\x01 rubbish that is no sketch"]).ok();
    eventually("a partial answer", async || remaining(&gateway.public).await["partial"] == true).await;
    let left = remaining(&gateway.public).await;
    assert!(left["remaining"].as_u64().unwrap() > 800, "the others are still counted: {left}");
    let metrics = gateway.admin.get("/metrics").await.expect(200).text();
    let counted = metrics.lines().find(|line| line.starts_with("headcount_sketches_corrupt_total ")).unwrap();
    assert_ne!(counted, "headcount_sketches_corrupt_total 0");
    assert!(gateway.log().contains("a sketch is corrupt"), "{}", gateway.log());
    assert!(cluster.keys_with(TEMPORARY).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_killed_while_it_reads_leaves_no_key_behind() {
    let cluster = RedisCluster::start().await;
    for round in 0..5 {
        let mut gateway = Gateway::start(&env(&cluster)).await;
        if round == 0 {
            claims(&gateway, 200).await;
        }
        let merges = || cluster.master_command_calls().get("pfmerge").copied().unwrap_or(0);
        let before = merges();
        let reader = {
            let api = gateway.public.clone();
            tokio::spawn(async move {
                let read = || api.try_send(hyper::Method::GET, "/v1/remaining?campaign=sale", &[], bytes::Bytes::new());
                while read().await.is_ok() {}
            })
        };
        eventually("reads under way", async || merges() > before + round).await;
        gateway.kill();
        reader.await.unwrap();
        assert!(cluster.keys_with(TEMPORARY).is_empty(), "round {round}");
    }
}

fn env(cluster: &RedisCluster) -> Vec<(&'static str, &'static str)> {
    // Leaked: a few bytes for each test, for the sake of plain literals in the other tests.
    let url: &'static str = cluster.url().leak();
    vec![("HEADCOUNT_REDIS_URL", url), ("HEADCOUNT_COUNT_REFRESH_MS", "20"), FIXED_KEY]
}

async fn claims(gateway: &Gateway, users: usize) {
    let body = json!({ "admission": "soft", "quota": 1_000 });
    gateway.admin.put("/v1/campaigns/sale", &body).await.expect(201);
    for user in 0..users {
        let claim = json!({ "user": format!("user_{user}") });
        gateway.public.post("/v1/campaigns/sale/claims", &claim).await.expect(201);
    }
}

fn sketches(cluster: &RedisCluster) -> Vec<(usize, Vec<u8>)> {
    cluster.keys_with("}:cs:sale")
}

async fn remaining(api: &Api) -> serde_json::Value {
    api.get("/v1/campaigns/sale/remaining").await.expect(200).json()
}
