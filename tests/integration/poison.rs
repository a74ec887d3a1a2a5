//! Ids crafted for Redis's public hash: harmless under a key, ruinous under `plain` hashing, as documented.

#[path = "../core/craft.rs"]
mod craft;

use crate::harness::crowd::{FIXED_KEY, arrive, count, users};
use crate::harness::gateway::Gateway;

const HONEST: usize = 100_000;

#[tokio::test(flavor = "multi_thread")]
async fn crafted_ids_move_a_keyed_count_no_more_than_honest_ones() {
    let gateway = Gateway::start(&[FIXED_KEY]).await;
    let crafted = craft::texts_in_first_shard();
    assert_eq!(crafted.len(), 16_384);
    let (before, after) = poisoned(&gateway, &crafted).await;
    // Both readings have an error of 0.3 % at most (95 %: 0.28 %).
    let error = 0.003 * (before + after);
    let moved = after - before;
    assert!(moved <= crafted.len() as f64 + error, "{} ids moved the count by {moved}", crafted.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_ids_ruin_a_plain_count() {
    let gateway = Gateway::start(&[("HEADCOUNT_USER_HASHING", "plain")]).await;
    // Three quarters of them: all would saturate the sketch, and the count would be refused as corrupt.
    let crafted = craft::texts_in_first_shard();
    let crafted = &crafted[..crafted.len() * 3 / 4];
    let (before, after) = poisoned(&gateway, crafted).await;
    let moved = after - before;
    println!("plain: {} crafted ids moved {before} to {after}", crafted.len());
    assert!(moved > 1.3 * crafted.len() as f64, "{} ids moved the count by only {moved}", crafted.len());
    assert!(gateway.log().contains("plain"), "plain hashing warns at the start: {}", gateway.log());
}

async fn poisoned(gateway: &Gateway, crafted: &[String]) -> (f64, f64) {
    arrive(&[&gateway.public], "target", &users(0..HONEST)).await;
    let read = async || count(&gateway.public, "target", "").await;
    let before = read().await["count"].as_f64().unwrap();
    arrive(&[&gateway.public], "target", crafted).await;
    // A reading taken after the last visit was stored.
    let stored = jiff::Timestamp::now();
    let mut after = read().await;
    crate::harness::eventually("a reading of everybody", async || {
        after = read().await;
        after["as_of"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap() > stored
    })
    .await;
    (before, after["count"].as_f64().unwrap())
}
