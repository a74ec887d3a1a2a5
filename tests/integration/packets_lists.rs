//! Lists of packets that come in parts: a part may be sent again after anything, and none can take another's place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use headcount::adapters::redis::{RedisConfig, RedisStore};
use headcount::domain::id::CampaignId;
use headcount::domain::quota::marks::Floor;
use headcount::domain::quota::step::{Answer, Step};
use headcount::domain::ring::Shards;
use headcount::runtime::tasks::Tasks;
use headcount::store::pools::{PoolAddress, Pools};
use hyper::Method;
use serde_json::{Value, json};

use crate::harness::databases::{Brand, Databases, Disk};
use crate::harness::eventually;
use crate::harness::gateway::{Answer as Told, Gateway};
use crate::harness::process::fresh_dir;
use crate::harness::rain::{Books, Rain, holders};
use crate::harness::redis::RedisServer;
use crate::harness::sale::Random;

/// Some amounts, all alike in length and none in value.
fn amounts(count: u64, seed: u64) -> Vec<i64> {
    let mut random = Random::new(seed);
    (0..count).map(|_| 1 + random.below(500) as i64).collect()
}

/// A list that is to come in parts, with the sum of these amounts.
async fn announced(id: &str, gateways: &[&Gateway], cents: &[i64]) -> Rain {
    let total: i64 = cents.iter().sum();
    let list = json!({ "upload": true, "count": cents.len(), "total_cents": total });
    Rain::open(id, gateways, json!({ "packets": list, "shards": 4 })).await
}

/// A gateway on the embedded store, and the URL of its ledger.
async fn alone() -> (Gateway, String) {
    let dir = fresh_dir("data");
    let gateway = Gateway::start(&[("HEADCOUNT_DATA_DIR", dir.to_str().unwrap())]).await;
    (gateway, format!("sqlite:{}", dir.join("ledger.sqlite").display()))
}

fn refused(answer: Told, status: u16, field: &str, part_of: &str) {
    let problem = answer.expect(status).json();
    let (said, told) = (problem["field"].as_str().unwrap_or_default(), problem["detail"].as_str().unwrap());
    assert!(said == field && told.contains(part_of), "{problem}");
}

/// Everybody claims; what they are told of is the list, by number, and so the ledger has it.
async fn holds_exactly(rain: &Rain, ledger: &str, cents: &[i64]) {
    let users = (0..cents.len() + 3).map(|user| format!("user_{user}")).collect();
    let told = rain.crowd(users, 64).await;
    let holders = holders(&told);
    assert_eq!(holders.values().map(|(cents, _)| *cents).collect::<Vec<_>>(), cents);
    assert_eq!(holders.keys().copied().collect::<Vec<_>>(), (1..=cents.len() as u64).collect::<Vec<_>>());
    let books = Books::of(ledger, rain);
    assert_eq!(books.come_to("confirmed", cents.len() as u64).await, cents.iter().sum::<i64>());
    let known = books.packets().await;
    assert!(known.values().all(|(_, user)| user.is_some()));
    assert_eq!(known.into_values().map(|(cents, _)| cents).collect::<Vec<_>>(), cents);
    rain.audit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_in_parts_opens_with_the_last_and_holds_what_was_sent() {
    let (gateway, ledger) = alone().await;
    let cents = amounts(1000, 1);
    let rain = announced("parts", &[&gateway], &cents).await;
    let is_closed_yet = async |loaded: u64| {
        assert_eq!(rain.claim("early").await.expect(503).json()["type"], "/problems/campaign-preparing");
        let record = rain.record().await;
        assert_eq!((&record["phase"], &record["packets"]["loaded"]), (&json!("filling"), &json!(loaded)), "{record}");
    };
    is_closed_yet(0).await;
    refused(rain.add(0, 2, &cents[1..300]).await, 422, "first", "must be 1");
    rain.add(0, 1, &cents[..300]).await.expect(200);
    is_closed_yet(300).await;
    // The same part again changes nothing; another one in its place, or out of order, is refused.
    let version = rain.record().await["version"].clone();
    rain.add(0, 1, &cents[..300]).await.expect(200);
    refused(rain.add(0, 1, &cents[..299]).await, 409, "", "with other amounts");
    let mut other = cents[..300].to_vec();
    other[17] += 1;
    other[18] -= 1;
    refused(rain.add(0, 1, &other).await, 409, "", "with other amounts");
    refused(rain.add(0, 302, &cents[301..400]).await, 422, "first", "must be 301");
    refused(rain.add(0, 200, &cents[199..400]).await, 422, "first", "must be 301");
    refused(rain.add(0, 301, &[&cents[300..], &[1]].concat()).await, 422, "body", "at most 700 packets");
    // More than the rest may hold, if those to come hold a cent at least.
    let left = cents[300..].iter().sum::<i64>();
    refused(rain.add(0, 301, &[left - 698]).await, 422, "body", "must fit packets.total_cents");
    assert_eq!(rain.record().await["version"], version);
    is_closed_yet(300).await;
    rain.add(0, 301, &cents[300..999]).await.expect(200);
    is_closed_yet(999).await;
    for wrong in [cents[999] - 1, cents[999] + 1] {
        if wrong > 0 {
            refused(rain.add(0, 1000, &[wrong]).await, 422, "body", "must fit packets.total_cents");
        }
    }
    is_closed_yet(999).await;
    let opened = rain.add(0, 1000, &cents[999..]).await.expect(200).json();
    assert_eq!((&opened["phase"], &opened["packets"]["loaded"]), (&json!("ready"), &json!(1000)), "{opened}");
    holds_exactly(&rain, &ledger, &cents).await;
    // Parts that come too late.
    rain.add(0, 1000, &cents[999..]).await.expect(200);
    rain.add(0, 1, &cents[..300]).await.expect(200);
    refused(rain.add(0, 1001, &[1]).await, 422, "body", "at most 0 packets");
    rain.audit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_closed_half_way_refunds_what_came_and_takes_no_more() {
    let (gateway, ledger) = alone().await;
    let cents = amounts(100, 2);
    let rain = announced("half", &[&gateway], &cents).await;
    rain.add(0, 1, &cents[..60]).await.expect(200);
    rain.close().await.expect(200);
    rain.comes_to("closed").await;
    for phase in ["closed", "closed"] {
        refused(rain.add(0, 61, &cents[60..]).await, 409, "", "closed for good");
        assert_eq!(rain.record().await["phase"], phase);
        assert_eq!(rain.claim("ada").await.expect(409).json()["outcome"], "closed");
    }
    let came: i64 = cents[..60].iter().sum();
    let results = rain.results(0, 60).await;
    assert_eq!(results["refunded_cents"], came, "{results}");
    assert_eq!(Books::of(&ledger, &rain).come_to("refunded", 60).await, came);
    // Nothing came: there is nothing to look after, and nobody is told to come back.
    let rain = announced("empty", &[&gateway], &cents).await;
    rain.close().await.expect(200);
    refused(rain.add(0, 1, &cents).await, 409, "", "closed for good");
    assert_eq!(rain.claim("ada").await.expect(409).json()["outcome"], "closed");
    gateway.admin.delete(&rain.path("")).await.expect(200);
    assert_eq!(Books::of(&ledger, &rain).campaign().await.map(|(phase, _)| phase), Some("removed".to_owned()));
}

/// Two gateways, a ledger in PostgreSQL; the first one is killed while a part is laid out.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_cut_off_by_a_kill_is_sent_again_to_another_gateway() {
    let databases = Databases::start(Brand::Postgres, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let server = RedisServer::single().await;
    let env = [("HEADCOUNT_REDIS_URL", &*server.url()), ("HEADCOUNT_LEDGER_URL", &*ledger)];
    let (one, two) = (Gateway::start(&env).await, Gateway::start(&env).await);
    let tasks = Tasks::new();
    let stores = RedisStore::start(&RedisConfig::new(server.url()), tasks.clone()).unwrap().stores();
    eventually("first contact", async || stores.deployment.contacted()).await;
    let cents = amounts(60_000, 3);
    let rain = announced("cut", &[&one, &two], &cents).await;
    rain.add(0, 1, &cents[..1000]).await.expect(200);
    let part = &cents[1000..59_000];
    let watch = async {
        eventually("a part that is half laid out", async || {
            let stock = stock(&stores.pools, &rain).await;
            assert!(stock < 59_000, "all of it was laid out before anybody looked");
            stock > 1000
        })
        .await;
        one.send_kill();
    };
    let (answer, ()) = futures_util::future::join(rain.try_add(0, 1001, part), watch).await;
    assert!(answer.is_err(), "{answer:?}");
    let in_pools = stock(&stores.pools, &rain).await;
    println!("killed with {in_pools} of 59000 packets laid out");
    assert_eq!(rain.loaded().await, 1000, "the part is not in before all of it is");
    let alone = Rain::of("cut", &[&two]);
    // Neither closed nor gone on with by anybody but who has the amounts.
    refused(alone.add(0, 59_001, &cents[59_000..]).await, 409, "", "send it again first");
    refused(alone.close().await, 409, "", "is being changed");
    assert_eq!(alone.claim("early").await.expect(503).json()["type"], "/problems/campaign-preparing");
    alone.add(0, 1001, part).await.expect(200);
    assert_eq!((alone.loaded().await, stock(&stores.pools, &alone).await), (59_000, 59_000));
    // The last part's answer is lost: the sender hangs up, and sends again.
    let last = &cents[59_000..];
    let lost = tokio::time::timeout(Duration::from_millis(2), alone.try_add(0, 59_001, last)).await;
    println!("the last part was {}", if lost.is_err() { "cut off by its sender" } else { "answered" });
    let opened = alone.add(0, 59_001, last).await.expect(200).json();
    assert_eq!(opened["phase"], "ready", "{opened}");
    alone.add(0, 59_001, last).await.expect(200);
    let audit = alone.audit().await;
    assert_eq!((&audit["available"], &audit["found"]), (&json!(60_000), &json!(60_000)), "{audit}");
    let known = Books::of(&ledger, &alone).packets().await;
    assert!(known.into_values().map(|(cents, _)| cents).eq(cents.iter().copied()), "the ledger has the list");
    let told = alone.crowd((0..500).map(|user| format!("user_{user}")).collect(), 64).await;
    for (number, (held, user)) in holders(&told) {
        assert_eq!(held, cents[number as usize - 1], "packet {number} of {user}");
    }
    assert!(tasks.finish(Duration::from_secs(5)).await);
}

/// Packets in the pools of a list with four shards.
async fn stock(pools: &Arc<dyn Pools>, rain: &Rain) -> u64 {
    let mut stock = 0;
    for position in Shards::new(4).unwrap().positions() {
        let pool = PoolAddress { campaign: CampaignId::new(&rain.id).unwrap(), position };
        match pools.step(&pool, Floor::default(), Step::Collect { entries: false }).await.unwrap().answer {
            Answer::Reading(reading) => stock += reading.avail,
            other => panic!("{other:?}"),
        }
    }
    stock
}

/// A million packets in ten parts on the embedded store; time and memory are printed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: make prove"]
async fn prove_a_million_packets_in_ten_parts() {
    const PART: usize = 100_000;
    let (gateway, ledger) = alone().await;
    let cents = amounts(10 * PART as u64, 4);
    let total: i64 = cents.iter().sum();
    let list = json!({ "upload": true, "count": cents.len(), "total_cents": total });
    let rain = Rain::open("million", &[&gateway], json!({ "packets": list })).await;
    println!("memory before: {}", memory(&gateway));
    let began = Instant::now();
    for (place, part) in cents.chunks(PART).enumerate() {
        let of_part = Instant::now();
        rain.add(0, (place * PART + 1) as u64, part).await.expect(200);
        println!("part {} in {:?}, memory {}", place + 1, of_part.elapsed(), memory(&gateway));
    }
    println!("a million packets in {:?}, at most {}", began.elapsed(), memory(&gateway));
    let record = rain.record().await;
    assert_eq!((&record["phase"], &record["packets"]["loaded"]), (&json!("ready"), &json!(cents.len())), "{record}");
    let known = Books::of(&ledger, &rain).packets().await;
    assert!(known.into_values().map(|(cents, _)| cents).eq(cents.iter().copied()), "the ledger has the list");
    let told = rain.crowd((0..20_000).map(|user| format!("user_{user}")).collect(), 64).await;
    for (number, (held, _)) in holders(&told) {
        assert_eq!(held, cents[number as usize - 1], "packet {number}");
    }
    let audit = rain.audit().await;
    assert_eq!((&audit["confirmed"], &audit["found"]), (&json!(20_000), &json!(cents.len())), "{audit}");
    let closing = Instant::now();
    let closed = gateway.admin.send(Method::POST, &rain.path("/close"), &[], bytes::Bytes::new()).await;
    println!("closed with {} after {:?}", closed.status, closing.elapsed());
    let results: Value = rain.results(20_000, 980_000).await;
    let sum = |field: &str| results[field].as_i64().unwrap();
    assert_eq!(sum("claimed_cents") + sum("refunded_cents"), total, "{results}");
    println!("all refunded after {:?}", closing.elapsed());
}

/// What the gateway has in memory now, and had at most.
fn memory(gateway: &Gateway) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.process.pid())).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim_start_matches(':').trim().to_owned()
    };
    format!("{} (at most {})", field("VmRSS"), field("VmHWM"))
}
