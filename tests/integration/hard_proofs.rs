//! Proofs of hard campaigns that take minutes: `make prove` runs them, docs/TESTING.md has their figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::cluster::RedisCluster;
use crate::harness::crowd::FIXED_KEY;
use crate::harness::eventually;
use crate::harness::gateway::{Api, Gateway};

const AT_ONCE: usize = 512;

/// So many users claim, over these gateways.
async fn sell(gateways: &[&Gateway], campaign: &str, users: usize) {
    let path = format!("/v1/campaigns/{campaign}/claims");
    let claims = futures_util::stream::iter(0..users).map(|user| {
        let (api, path) = (gateways[user % gateways.len()].public.clone(), path.clone());
        async move {
            let wish = json!({ "user": format!("user_{user}") });
            while !matches!(api.post(&path, &wish).await.status, 200 | 201) {}
        }
    });
    claims.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

async fn create(gateway: &Gateway, campaign: &str, body: Value) {
    gateway.admin.put(&format!("/v1/campaigns/{campaign}"), &body).await.expect(201);
}

async fn audit(admin: &Api, campaign: &str) -> Value {
    admin.get(&format!("/v1/campaigns/{campaign}/audit")).await.expect(200).json()
}

/// The time that claims of new users take, one after the other on some connections, until it is over; sorted.
async fn latencies(api: &Api, campaign: &str, from: usize, over: Arc<AtomicBool>) -> Vec<Duration> {
    let callers = (0..4).map(|caller| {
        let (api, path, over) = (api.clone(), format!("/v1/campaigns/{campaign}/claims"), over.clone());
        tokio::spawn(async move {
            let mut taken = Vec::new();
            let mut user = from + caller;
            while !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                api.post(&path, &json!({ "user": format!("user_{user}") })).await.expect(201);
                taken.push(began.elapsed());
                user += 4;
            }
            taken
        })
    });
    let mut all = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        all.extend(caller.await.unwrap());
    }
    all.sort();
    all
}

fn at(sorted: &[Duration], share: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes long: make prove"]
async fn prove_ending_a_million_claims_leaves_another_sale_alone() {
    const CLAIMS: usize = 1_000_000;
    let cluster = RedisCluster::start().await;
    let env = [("HEADCOUNT_REDIS_URL", &*cluster.url()), FIXED_KEY];
    let (one, two) = (Gateway::start(&env).await, Gateway::start(&env).await);
    create(&one, "large", json!({ "admission": "hard", "quota": CLAIMS })).await;
    create(&one, "other", json!({ "admission": "hard", "quota": 5_000_000 })).await;
    sell(&[&one, &two], "large", CLAIMS).await;
    println!("a million claims made");

    let over = Arc::new(AtomicBool::new(false));
    let quiet = tokio::spawn({
        let (api, over) = (two.public.clone(), over.clone());
        async move { latencies(&api, "other", 0, over).await }
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    over.store(true, Ordering::Relaxed);
    let before = quiet.await.unwrap();

    let over = Arc::new(AtomicBool::new(false));
    let busy = tokio::spawn({
        let (api, over) = (two.public.clone(), over.clone());
        async move { latencies(&api, "other", 10_000_000, over).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    one.admin.post("/v1/campaigns/large/close", &json!({})).await.expect(200);
    eventually("the campaign to be closed", async || {
        one.admin.get("/v1/campaigns/large").await.expect(200).json()["phase"] == "closed"
    })
    .await;
    one.admin.delete("/v1/campaigns/large").await.expect(200);
    let ended = began.elapsed();
    // Servers free memory behind the call.
    tokio::time::sleep(Duration::from_secs(4)).await;
    over.store(true, Ordering::Relaxed);
    let during = busy.await.unwrap();
    println!(
        "ended in {ended:?}; the other sale before: p50 {:?}, p99 {:?}, longest {:?}; while it ended: p50 {:?}, p99 {:?}, longest {:?}",
        at(&before, 0.5),
        at(&before, 0.99),
        at(&before, 1.0),
        at(&during, 0.5),
        at(&during, 0.99),
        at(&during, 1.0)
    );
    assert_eq!(audit(&one.admin, "other").await["balances"], true);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes long: make prove"]
async fn prove_a_hundred_thousand_holds_that_expire_together_are_soon_on_sale_again() {
    const UNITS: usize = 100_000;
    const HOLD_S: u64 = 30;
    let cluster = RedisCluster::start().await;
    let env = [("HEADCOUNT_REDIS_URL", &*cluster.url()), FIXED_KEY];
    let mut gateways = [Gateway::start(&env).await, Gateway::start(&env).await];
    create(&gateways[0], "held", json!({ "admission": "hard", "quota": UNITS, "hold_s": HOLD_S })).await;
    sell(&[&gateways[0], &gateways[1]], "held", UNITS).await;
    let sold = Instant::now();
    // Nobody is there to expire them one by one.
    gateways.iter_mut().for_each(Gateway::kill);
    tokio::time::sleep_until(sold + Duration::from_secs(HOLD_S)).await;
    let gateway = Gateway::start(&env).await;
    let began = Instant::now();
    let mut last = Value::Null;
    eventually("all units on sale again", async || {
        last = audit(&gateway.admin, "held").await;
        last["available"] == UNITS
    })
    .await;
    println!(
        "{UNITS} holds that were overdue at once are on sale again after {:?} (0.4 s of it cooling)",
        began.elapsed()
    );
    assert_eq!((&last["balances"], &last["held"]), (&json!(true), &json!(0)), "{last}");
}
