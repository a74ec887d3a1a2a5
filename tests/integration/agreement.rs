//! What all processes of a deployment must agree on, and a start before the store is there.

use crate::harness::crowd::{arrive, count, users};
use crate::harness::eventually;
use crate::harness::gateway::Gateway;
use crate::harness::redis::RedisServer;

const ONE_KEY: (&str, &str) = ("HEADCOUNT_HASH_KEY", "11111111111111111111111111111111");
const OTHER_KEY: (&str, &str) = ("HEADCOUNT_HASH_KEY", "22222222222222222222222222222222");

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_another_hash_key_refuses_to_serve() {
    let redis = RedisServer::single().await;
    let url = redis.url();
    let first = Gateway::start(&[("HEADCOUNT_REDIS_URL", &url), ONE_KEY]).await;
    arrive(&[&first.public], "site", &users(0..20)).await;
    for wrong in [OTHER_KEY, ("HEADCOUNT_USER_HASHING", "plain")] {
        let mut second = Gateway::spawn(&[("HEADCOUNT_REDIS_URL", &url), wrong]);
        assert_eq!(second.end().await.code(), Some(1), "{wrong:?}: {}", second.log());
        assert!(second.log().contains("HEADCOUNT_HASH_KEY"), "{}", second.log());
    }
    // Without a key of its own a process takes the store's, and counts nobody twice.
    let third = Gateway::start(&[("HEADCOUNT_REDIS_URL", &url)]).await;
    arrive(&[&third.public], "site", &users(0..20)).await;
    let seen = async || count(&third.public, "site", "").await["count"] == 20;
    eventually("both to count the same users", seen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_waits_for_a_store_that_is_late_and_stays_ready_when_it_goes() {
    let redis = RedisServer::single().await;
    redis.kill();
    let mut gateway = Gateway::spawn(&[("HEADCOUNT_REDIS_URL", &redis.url()), ONE_KEY]);
    eventually("liveness", async || {
        let live = gateway.admin.try_send(hyper::Method::GET, "/livez", &[], bytes::Bytes::new()).await;
        live.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    assert_eq!(gateway.admin.get("/readyz").await.status, 503);
    // The key is known from the settings, so visits are taken already.
    assert_eq!(arrive(&[&gateway.public], "site", &users(0..20)).await, 20, "all buffered");
    redis.restart().await;
    gateway.ready().await;
    let seen = async || {
        let answer = gateway.public.get("/v1/count?event=site").await;
        answer.status == 200 && answer.json()["count"] == 20
    };
    eventually("what was buffered to arrive", seen).await;
    redis.stop();
    assert!(arrive(&[&gateway.public], "site", &users(100..120)).await > 0);
    assert_eq!(gateway.admin.get("/readyz").await.status, 200, "an outage does not empty the ingress");
    redis.cont();
    let seen = async || gateway.public.get("/v1/count?event=site").await.expect(200).json()["count"] == 40;
    eventually("everybody to be counted", seen).await;
}
