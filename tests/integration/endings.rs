//! How a gateway ends: killed, it has lost nothing that it called stored; stopped, it serves until load balancers have
//! noticed, pushes what it holds, and tells what it could not.

use std::sync::Arc;
use std::sync::Mutex;

use serde_json::json;

use crate::harness::crowd::{FIXED_KEY, arrive, count, users};
use crate::harness::eventually;
use crate::harness::gateway::Gateway;
use crate::harness::process::fresh_dir;
use crate::harness::redis::RedisServer;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_has_lost_nothing_that_it_called_stored() {
    let dir = fresh_dir("durable").to_string_lossy().into_owned();
    let env = [("HEADCOUNT_DATA_DIR", &*dir), FIXED_KEY];
    let stored: Arc<Mutex<Vec<String>>> = Arc::default();
    for round in 0..3 {
        let mut gateway = Gateway::start(&env).await;
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (api, stored) = (gateway.public.clone(), stored.clone());
                tokio::spawn(async move {
                    for call in 0.. {
                        let list: Vec<String> = (0..10).map(|i| format!("user {round} {writer} {call} {i}")).collect();
                        let body = json!({ "users": list }).to_string().into();
                        let path = "/v1/events/sale/visits";
                        let Ok(answer) = api.try_send(hyper::Method::POST, path, &[], body).await else { return };
                        assert_eq!(answer.expect(200).json()["stored"], 10);
                        stored.lock().unwrap().extend(list);
                    }
                })
            })
            .collect();
        let enough = (round + 1) * 3_000;
        eventually("visits under way", async || stored.lock().unwrap().len() > enough).await;
        gateway.kill();
        for writer in writers {
            writer.await.unwrap();
        }
    }
    let stored = Arc::into_inner(stored).unwrap().into_inner().unwrap();
    let gateway = Gateway::start(&env).await;
    let found = count(&gateway.public, "sale", "").await["count"].as_u64().unwrap();
    // Sending all of them again may raise no register; the reading is made anew by another process.
    arrive(&[&gateway.public], "sale", &stored).await;
    drop(gateway);
    let gateway = Gateway::start(&env).await;
    let again = count(&gateway.public, "sale", "").await["count"].as_u64().unwrap();
    assert_eq!(found, again, "{} visits were called stored", stored.len());
}

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
