//! Red packets: each goes to one user, and money is kept to the cent: in what users are told, in the results and in the
//! ledger.

use std::collections::BTreeMap;

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::cluster::RedisCluster;
use crate::harness::databases::{Brand, Databases, Disk};
use crate::harness::eventually;
use crate::harness::gateway::Gateway;
use crate::harness::process::fresh_dir;
use crate::harness::rain::{Books, Rain, holders};
use crate::harness::redis::RedisServer;

/// Callers at one time.
const AT_ONCE: usize = 1000;

/// A gateway on the embedded store, and the URL of its ledger: the file that it has by default.
async fn alone() -> (Gateway, String) {
    let dir = fresh_dir("data");
    let gateway = Gateway::start(&[("HEADCOUNT_DATA_DIR", dir.to_str().unwrap())]).await;
    (gateway, format!("sqlite:{}", dir.join("ledger.sqlite").display()))
}

/// Fewer packets than `prove_a_hundred_thousand_packets`, so that it takes seconds.
#[tokio::test(flavor = "multi_thread")]
async fn every_packet_goes_to_one_user_and_the_cents_add_up() {
    rain(20_000, 20_300).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute long: make prove"]
async fn prove_a_hundred_thousand_packets() {
    rain(100_000, 101_000).await;
}

/// A thousand callers at a time, two gateways, a cluster, and a ledger in PostgreSQL.
async fn rain(packets: u64, crowd: u64) {
    let databases = Databases::start(Brand::Postgres, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let cluster = RedisCluster::start().await;
    let env = [("HEADCOUNT_REDIS_URL", &*cluster.url()), ("HEADCOUNT_LEDGER_URL", &*ledger)];
    let (one, two) = (Gateway::start(&env).await, Gateway::start(&env).await);
    let total = packets as i64 * 100 + 37;
    let draw = json!({ "total_cents": total, "count": packets, "max_cents": 2000 });
    let rain = Rain::open("rain", &[&one, &two], json!({ "packets": draw })).await;
    // Times a prime: each user once, in no order.
    let users = (0..crowd).map(|place| format!("user_{}", place * 1_000_003 % crowd)).collect();
    let began = tokio::time::Instant::now();
    let told = rain.crowd(users, AT_ONCE).await;
    let claimed_in = began.elapsed();

    let holders = holders(&told);
    assert_eq!(holders.keys().copied().collect::<Vec<_>>(), (1..=packets).collect::<Vec<_>>());
    let late: Vec<_> = told.iter().filter(|told| told.packet.is_none()).collect();
    assert_eq!(late.len() as u64, crowd - packets);
    let otherwise: Vec<_> = late.iter().filter(|told| (told.status, &*told.outcome) != (409, "sold_out")).collect();
    assert!(otherwise.is_empty(), "{otherwise:?}");
    let cents: Vec<i64> = holders.values().map(|(cents, _)| *cents).collect();
    assert_eq!(cents.iter().sum::<i64>(), total);
    assert_eq!(cents, rain.drawn().await, "the record's seed gives what was claimed");

    let results = rain.results(packets, 0).await;
    assert_eq!((&results["claimed_cents"], &results["remaining_cents"]), (&json!(total), &json!(0)), "{results}");
    assert_eq!(results["luckiest"]["cents"], json!(cents.iter().max()), "{results}");
    let audit = rain.audit().await;
    assert_eq!((&audit["confirmed"], &audit["granted"]), (&json!(packets), &json!([[1, packets]])), "{audit}");

    let books = Books::of(&ledger, &rain);
    assert_eq!(books.come_to("confirmed", packets).await, total);
    println!("{packets} packets, {crowd} users: claimed in {claimed_in:?}, in the ledger after {:?}", began.elapsed());
    let told: BTreeMap<_, _> =
        holders.into_iter().map(|(packet, (cents, user))| (packet, (cents, Some(user)))).collect();
    assert!(books.packets().await == told, "the ledger has each packet with the user who was told of it");
    assert_eq!(books.campaign().await, Some(("ready".to_owned(), total)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_of_packets_is_made_once() {
    let (gateway, _) = alone().await;
    let amounts = json!({ "packets": { "amounts": [5, 1, 94] } });
    let rain = Rain::open("inline", &[&gateway], amounts.clone()).await;
    let record = rain.record().await;
    assert_eq!((&record["phase"], &record["quota"]), (&json!("ready"), &json!(3)), "{record}");
    assert_eq!(record["packets"], json!({ "count": 3, "total_cents": 100, "loaded": 3 }));
    assert_eq!(rain.put(amounts).await.expect(200).json(), record);
    for other in [
        json!({ "amounts": [5, 1, 93] }),
        json!({ "amounts": [1, 5, 94] }),
        json!({ "amounts": [5, 1, 94, 1] }),
        json!({ "total_cents": 100, "count": 3 }),
    ] {
        let refused = rain.put(json!({ "packets": other })).await.expect(409).json();
        assert_eq!(refused["type"], "/problems/conflict", "{other}");
    }
    let drawn = json!({ "packets": { "total_cents": 100, "count": 4, "min_cents": 10 }, "hold_s": 600 });
    let draw = Rain::open("draw", &[&gateway], drawn.clone()).await;
    let record = draw.record().await;
    // Another seed, and the same wish.
    assert_eq!(draw.put(drawn.clone()).await.expect(200).json(), record);
    for (field, value) in [("min_cents", 11), ("max_cents", 50), ("total_cents", 101)] {
        let mut other = drawn.clone();
        other["packets"][field] = value.into();
        draw.put(other).await.expect(409);
    }
    for quota in [3, 4, 5] {
        let refused = gateway.admin.patch(&draw.path(""), &json!({ "quota": quota })).await.expect(422).json();
        assert_eq!((&refused["field"], &refused["type"]), (&json!("quota"), &json!("/problems/invalid-field")));
    }
    assert_eq!(draw.record().await, record);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_that_comes_back_goes_to_somebody_else_under_a_new_turn() {
    let (gateway, ledger) = alone().await;
    let body = json!({ "packets": { "amounts": [188] }, "hold_s": 600 });
    let rain = Rain::open("back", &[&gateway], body).await;
    let ada = rain.claim("ada").await.expect(201).json();
    assert_eq!((&ada["state"], &ada["unit"], &ada["cents"]), (&json!("held"), &json!(1), &json!(188)), "{ada}");
    assert_eq!(rain.claim("ada").await.expect(200).json()["cents"], 188);
    assert_eq!(rain.claim("bob").await.expect(409).json()["outcome"], "sold_out");
    let path = |claim: &Value| rain.path(&format!("/claims/{}", claim["claim_id"].as_str().unwrap()));
    gateway.public.delete(&path(&ada)).await.expect(200);
    let mut bob = Value::Null;
    eventually("the packet for bob", async || {
        let answer = rain.claim("bob").await;
        bob = answer.json();
        answer.status == 201
    })
    .await;
    assert_eq!((&bob["unit"], &bob["cents"]), (&json!(1), &json!(188)), "{bob}");
    gateway.public.post(&format!("{}/confirm", path(&bob)), &json!({})).await.expect(200);
    assert_eq!(gateway.public.get(&path(&bob)).await.expect(200).json()["cents"], 188);
    let results = rain.results(1, 0).await;
    assert_eq!((&results["claimed_cents"], &results["luckiest"]["cents"]), (&json!(188), &json!(188)), "{results}");
    let books = Books::of(&ledger, &rain);
    books.come_to("confirmed", 1).await;
    let turn = |turn, state: &str, user: &str| (turn, state.to_owned(), Some(user.to_owned()), 188);
    assert_eq!(books.turns(1).await, [turn(0, "released", "ada"), turn(1, "confirmed", "bob")]);
    assert_eq!(books.packets().await, [(1, (188, Some("bob".to_owned())))].into());
}

/// Packets that the ledger does not have are not given out; nobody needs to ask again for it to go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_opens_by_itself_when_its_ledger_is_back() {
    let databases = Databases::start(Brand::Postgres, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let server = RedisServer::single().await;
    let env = [("HEADCOUNT_REDIS_URL", &*server.url()), ("HEADCOUNT_LEDGER_URL", &*ledger)];
    let (one, two) = (Gateway::start(&env).await, Gateway::start(&env).await);
    databases.stop();
    let rain = Rain::of("patient", &[&one, &two]);
    let body = json!({ "packets": { "total_cents": 1000, "count": 10 } });
    let refused = rain.put(body.clone()).await.expect(503);
    assert_eq!(refused.json()["type"], "/problems/ledger-unavailable");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(rain.record().await["phase"], "filling");
    for gateway in [&one, &two] {
        for user in ["ada", "bob"] {
            let refused = gateway.public.post(&rain.path("/claims"), &json!({ "user": user })).await.expect(503);
            assert_eq!(refused.json()["type"], "/problems/campaign-preparing");
        }
        let refused = gateway.admin.get(&rain.path("/results")).await.expect(503);
        assert_eq!(refused.json()["type"], "/problems/campaign-preparing");
    }
    databases.go_on().await;
    rain.comes_to("ready").await;
    let users = (0..11).map(|user| format!("user_{user}")).collect();
    let told = rain.crowd(users, 11).await;
    let holders = holders(&told);
    assert_eq!(holders.values().map(|(cents, _)| cents).sum::<i64>(), 1000);
    let books = Books::of(&ledger, &rain);
    assert_eq!(books.come_to("confirmed", 10).await, 1000);
    assert_eq!(books.campaign().await, Some(("ready".to_owned(), 1000)));
    rain.put(body).await.expect(200);
}

/// Only campaigns of packets have results, and only lists take parts.
#[tokio::test(flavor = "multi_thread")]
async fn calls_on_packets_say_where_they_belong() {
    let (gateway, _) = alone().await;
    let hard = Rain::of("hard", &[&gateway]);
    gateway.admin.put(&hard.path(""), &json!({ "admission": "hard", "quota": 3 })).await.expect(201);
    let draw = Rain::open("draw", &[&gateway], json!({ "packets": { "total_cents": 9, "count": 3 } })).await;
    let soft = Rain::of("soft", &[&gateway]);
    gateway.admin.put(&soft.path(""), &json!({ "admission": "soft", "quota": 3 })).await.expect(201);
    for other in [&hard, &soft] {
        let refused = gateway.admin.get(&other.path("/results")).await;
        assert!(matches!(refused.status, 404 | 409), "{refused:?}");
    }
    for other in [&hard, &draw, &soft] {
        let refused = other.add(0, 1, &[1, 2]).await;
        assert!(matches!(refused.status, 404 | 409), "{refused:?}");
    }
    let results = draw.results(0, 0).await;
    assert_eq!((&results["luckiest"], &results["remaining_cents"]), (&Value::Null, &json!(9)), "{results}");
    // The form without an id in the path.
    let body = gateway.admin.send(Method::GET, "/v1/campaign/results?campaign=draw", &[], bytes::Bytes::new()).await;
    assert_eq!(body.expect(200).json()["count"], 3);
    draw.close().await.expect(200);
    draw.comes_to("closed").await;
    let results = draw.results(0, 3).await;
    assert_eq!((&results["refunded_cents"], &results["remaining"]), (&json!(9), &json!(0)), "{results}");
}
