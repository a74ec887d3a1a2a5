//! How a gateway ends when it is told to: it serves until load balancers have noticed, pushes what it holds, and tells
//! what it could not. (Killed: `durability.rs`.)

use crate::harness::crowd::{FIXED_KEY, arrive, count, users};
use crate::harness::eventually;
use crate::harness::gateway::Gateway;
use crate::harness::redis::RedisServer;

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_gateway_serves_on_pushes_what_it_holds_and_ends_well() {
    let redis = RedisServer::single().await;
    let mut gateway =
        Gateway::start(&[("HEADCOUNT_REDIS_URL", &redis.url()), ("HEADCOUNT_DRAIN_MS", "1500"), FIXED_KEY]).await;
    arrive(&[&gateway.public], "sale", &users(0..100)).await;
    redis.stop();
    let buffered = arrive(&[&gateway.public], "sale", &users(100..200)).await;
    assert!(buffered > 0, "a hanging store makes visits buffered");
    gateway.terminate();
    eventually("readiness to be off", async || gateway.admin.get("/readyz").await.status == 503).await;
    arrive(&[&gateway.public], "sale", &users(200..300)).await;
    redis.cont();
    assert!(gateway.end().await.success(), "{}", gateway.log());
    assert!(gateway.log().contains("nothing is left in the buffer"), "{}", gateway.log());
    let other = Gateway::start(&[("HEADCOUNT_REDIS_URL", &redis.url()), FIXED_KEY]).await;
    let seen = count(&other.public, "sale", "").await["count"].as_u64().unwrap();
    assert!(seen.abs_diff(300) <= 2, "{seen} of 300");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_cannot_push_tells_what_is_lost_and_ends_within_its_deadline() {
    let redis = RedisServer::single().await;
    let env = [
        ("HEADCOUNT_REDIS_URL", &*redis.url()),
        ("HEADCOUNT_DRAIN_MS", "100"),
        ("HEADCOUNT_STOP_DEADLINE_MS", "2000"),
        FIXED_KEY,
    ];
    let mut gateway = Gateway::start(&env).await;
    arrive(&[&gateway.public], "sale", &users(0..10)).await;
    redis.kill();
    assert_eq!(arrive(&[&gateway.public], "sale", &users(10..60)).await, 50);
    gateway.terminate();
    let status = gateway.end().await;
    assert_eq!(status.code(), Some(1), "{}", gateway.log());
    assert!(gateway.log().contains("visits=50"), "{}", gateway.log());
}
