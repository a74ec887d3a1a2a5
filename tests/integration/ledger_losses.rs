//! What the store loses, the ledger gives back: emptied stores, servers that come back with an old state; and what is
//! told where the two contradict each other.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use headcount::adapters::redis::keys;
use headcount::store::pools::Duty;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::harness::cluster::RedisCluster;
use crate::harness::databases::{Brand, Databases, Disk, execute};
use crate::harness::eventually;
use crate::harness::gateway::{Answer, Gateway};
use crate::harness::rain::{Books, Rain, holders};
use crate::harness::redis::{Flavor, RedisServer};
use crate::harness::sale::{Sale, Terms};

const KEY: &str = "00112233445566778899aabbccddeeff";
const KEY_OF_SALES: &str = crate::harness::crowd::FIXED_KEY.1;
const OTHER_KEY: &str = "ffeeddccbbaa99887766554433221100";

async fn gateway(store: &str, ledger: &str, key: &str) -> Gateway {
    let env = [("HEADCOUNT_REDIS_URL", store), ("HEADCOUNT_LEDGER_URL", ledger), ("HEADCOUNT_HASH_KEY", key)];
    Gateway::start(&env).await
}

/// The last line that reconciling answers: a report, or a problem.
async fn reconcile(gateway: &Gateway, campaign: &str, body: Value) -> Value {
    let answer = gateway.admin.post(&format!("/v1/campaigns/{campaign}/reconcile"), &body).await.expect(200);
    let text = answer.text();
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

async fn rebuilt(gateway: &Gateway, campaign: &str) -> Value {
    let line = reconcile(gateway, campaign, json!({ "mode": "from_ledger" })).await;
    assert_eq!(line["report"]["agrees"], true, "{line}");
    line["report"].clone()
}

/// Waits until the ledger knows each pool as it stands.
async fn drained(books: &Books<'_>, rain: &Rain) {
    eventually("a ledger that has heard all", async || {
        let shards = rain.audit().await["shards"].as_array().expect("shards").clone();
        let vers: i64 = shards.iter().map(|shard| shard["ver"].as_i64().expect("a version")).sum();
        let query = "SELECT CAST(COALESCE(SUM(ver), 0) AS BIGINT), CAST(COALESCE(SUM(behind), 0) AS BIGINT) \
                     FROM ledger_drains WHERE campaign = $";
        books.two(query).await == (vers, 0)
    })
    .await;
}

async fn claims(rain: &Rain, users: std::ops::Range<u64>) -> BTreeMap<String, Value> {
    let mut claims = BTreeMap::new();
    for user in users {
        let user = format!("user {user}");
        let claim = rain.claim(&user).await.expect(201).json();
        claims.insert(user, claim);
    }
    claims
}

/// Whoever had a unit has the same one, under the same claim id.
async fn hold(rain: &Rain, claims: &BTreeMap<String, Value>) {
    for (user, before) in claims {
        let after = rain.claim(user).await.expect(200).json();
        assert_eq!(after["outcome"], "already", "{user}");
        for field in ["unit", "cents", "claim_id", "state", "claimed_at"] {
            assert_eq!(after[field], before[field], "{field} of {user}");
        }
    }
}

fn units(claims: &BTreeMap<String, Value>) -> BTreeSet<u64> {
    claims.values().map(|claim| claim["unit"].as_u64().expect("a unit")).collect()
}

/// A new crowd buys the rest, exactly.
async fn sells_the_rest(rain: &Rain, taken: &BTreeSet<u64>, packets: u64) {
    let crowd = (0..packets + 20).map(|place| format!("late {place}")).collect();
    let told = rain.crowd(crowd, 50).await;
    let rest: BTreeSet<u64> = holders(&told).into_keys().collect();
    let all: BTreeSet<u64> = (1..=packets).collect();
    assert_eq!(rest, &all - taken, "all that nobody had, and nothing else");
    let audit = rain.audit().await;
    assert_eq!(audit["granted"], json!([[1, packets]]), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_store_is_rebuilt_and_nobody_gets_a_second_unit() {
    let databases = Databases::start(Brand::Postgres, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let cluster = RedisCluster::start().await;
    let url = cluster.url();
    let mut one = gateway(&url, &ledger, KEY).await;
    let draw = json!({ "packets": { "total_cents": 50_000, "count": 300, "max_cents": 900 }, "hold_s": 600 });
    let rain = Rain::open("rain", &[&one], draw).await;
    let books = Books::of(&ledger, &rain);
    let mut had = claims(&rain, 0..100).await;
    // Some pay, some give their packet back.
    for (place, (user, claim)) in had.clone().into_iter().enumerate() {
        let path = rain.path(&format!("/claims/{}", claim["claim_id"].as_str().expect("an id")));
        if place % 3 == 0 {
            let confirmed = one.public.post(&format!("{path}/confirm"), &json!({})).await.expect(200).json();
            had.get_mut(&user).expect("a user")["state"] = confirmed["state"].clone();
        } else if place % 10 == 1 {
            one.public.delete(&path).await.expect(200);
            had.remove(&user);
        }
    }
    drained(&books, &rain).await;
    let flush = || cluster.masters_now().into_iter().for_each(|node| cluster.nodes[node].flush());
    flush();
    let report = rebuilt(&one, "rain").await;
    assert_eq!(report["record_restored"], true);
    let sum = |field: &str| -> u64 {
        report["rebuilt"].as_array().expect("shards").iter().map(|pool| pool[field].as_u64().expect(field)).sum()
    };
    assert_eq!((sum("claims"), sum("stock")), (100, 300 - had.len() as u64), "{report}");
    hold(&rain, &had).await;
    let drawn = rain.drawn().await;
    assert!(had.values().all(|claim| claim["cents"] == drawn[claim["unit"].as_u64().expect("a unit") as usize - 1]));

    // Once more, by the command.
    drained(&books, &rain).await;
    flush();
    let command = Command::new(env!("CARGO_BIN_EXE_headcount"))
        .args(["reconcile", "rain", "--from-ledger", "--url", &format!("http://{}", one.admin.authority)])
        .env_clear()
        .output()
        .expect("the binary");
    let printed = String::from_utf8_lossy(&command.stdout);
    assert!(command.status.success(), "{printed} {}", String::from_utf8_lossy(&command.stderr));
    assert!(printed.contains("put back from the ledger") && printed.contains("store and ledger agree"), "{printed}");
    hold(&rain, &had).await;

    // Under another key every user would be somebody else.
    drained(&books, &rain).await;
    one.kill();
    flush();
    let mut stranger = gateway(&url, &ledger, OTHER_KEY).await;
    let refused = reconcile(&stranger, "rain", json!({ "mode": "from_ledger", "accept_loss": true })).await;
    assert_eq!(refused["problem"]["type"], "/problems/other-hash-key", "{refused}");
    stranger.kill();
    flush();
    let two = gateway(&url, &ledger, KEY).await;
    let rain = Rain::of("rain", &[&two]);
    rebuilt(&two, "rain").await;
    hold(&rain, &had).await;
    sells_the_rest(&rain, &units(&had), 300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_has_not_heard_all_rebuilds_only_if_that_is_accepted() {
    let databases = Databases::start(Brand::Postgres, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let redis = RedisServer::single().await;
    let gateway = gateway(&redis.url(), &ledger, KEY).await;
    let amounts: Vec<i64> = (1..=40).collect();
    let rain = Rain::open("list", &[&gateway], json!({ "packets": { "amounts": amounts } })).await;
    let books = Books::of(&ledger, &rain);
    let known = claims(&rain, 0..10).await;
    drained(&books, &rain).await;
    databases.stop();
    let unknown = claims(&rain, 10..15).await;
    redis.flush();
    databases.go_on().await;
    // The process that granted them brings what it remembers.
    books.come_to("confirmed", 15).await;
    let refused = reconcile(&gateway, "list", json!({ "mode": "from_ledger" })).await;
    let detail = refused["problem"]["detail"].as_str().expect("a problem");
    assert!(detail.contains("is gone") && detail.contains("--accept-loss"), "{detail}");
    let line = reconcile(&gateway, "list", json!({ "mode": "from_ledger", "accept_loss": true })).await;
    // Nobody can know that it was all; but the process that granted them remembers these.
    assert_eq!(line["report"]["rebuilt"][0]["stock"], 25, "{line}");
    hold(&rain, &known).await;
    hold(&rain, &unknown).await;
    assert!(unknown.values().all(|claim| claim["cents"] == claim["unit"]), "amounts are those of the list");
    let taken = &units(&known) | &units(&unknown);
    sells_the_rest(&rain, &taken, 40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_loses_what_was_not_replicated_leaves_the_ledger_right() {
    let databases = Databases::start(Brand::Postgres, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let cluster = RedisCluster::start().await;
    let url = cluster.url();
    let gateways = [gateway(&url, &ledger, KEY_OF_SALES).await, gateway(&url, &ledger, KEY_OF_SALES).await];
    let terms = Terms { quota: 1200, homes: 0..16, callers: 24, pause: Duration::from_millis(8), seed: 5 };
    let sale = Sale::open("failover", terms, &gateways.each_ref()).await;
    let rush = sale.rush();
    sale.sold(200).await;
    let slot = keys::duty_lease(&sale.campaign, Duty::Drain).slot;
    let victim = cluster.owner_of(slot).expect("an owner");
    let replica = cluster.replicas_of(victim)[0];
    // What is claimed behind the cut link is in no replica, told to nobody, and must not reach the ledger.
    cluster.cut_link(replica).await;
    let cut = Instant::now();
    eventually("half a second behind the cut link", async || cut.elapsed() > Duration::from_millis(500)).await;
    cluster.nodes[victim].kill();
    assert_eq!(cluster.failed_over(slot, victim).await, replica);
    cluster.mend_link(replica);
    cluster.nodes[victim].restart().await;
    cluster.settled().await;
    // What users were told is what the store has; then the ledger agrees with the store, claim by claim.
    sale.settle("a failover while the ledger is written", rush).await;
    let rain = Rain::of("failover", &gateways.each_ref());
    let books = Books::of(&ledger, &rain);
    books.come_to("confirmed", 1200).await;
    let line = reconcile(&gateways[0], "failover", json!({ "mode": "compare" })).await;
    assert_eq!((&line["report"]["agrees"], &line["report"]["claims"]), (&json!(true), &json!(1200)), "{line}");
    assert_eq!(books.two("SELECT COUNT(*), COUNT(*) FROM ledger_conflicts WHERE campaign = $").await, (0, 0));
    let grants = "SELECT COUNT(*), COUNT(DISTINCT unit) FROM ledger_entries WHERE campaign = $ AND kind = 'grant'";
    assert_eq!(books.two(grants).await, (1200, 1200));
}

/// A server that writes its memory down when it is told to, and comes back with that.
async fn forgetful() -> RedisServer {
    RedisServer::start(Flavor::Redis, &["dbfilename old.rdb".to_owned()]).await
}

/// A server comes back with an old state. `heard`: the ledger had heard of what was lost; else only the process that
/// granted it remembers.
async fn goes_back_in_time(heard: bool) {
    let databases = Databases::start(Brand::Postgres, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let redis = forgetful().await;
    let gateway = gateway(&redis.url(), &ledger, KEY).await;
    let draw = json!({ "packets": { "total_cents": 9_000, "count": 60 }, "shards": 2 });
    let rain = Rain::open("rain", &[&gateway], draw).await;
    let books = Books::of(&ledger, &rain);
    let mut had = claims(&rain, 0..10).await;
    drained(&books, &rain).await;
    redis.command(&["SAVE"]).ok();
    if !heard {
        databases.stop();
    }
    had.extend(claims(&rain, 10..30).await);
    if heard {
        drained(&books, &rain).await;
    }
    redis.restart().await;
    if !heard {
        // It is noticed meanwhile; nothing can be put right without the ledger.
        eventually("a shard that serves nobody", async || {
            let answer = rain.claim("user 1").await;
            answer.status == 503 && answer.json()["type"] == "/problems/shard-lost"
        })
        .await;
        databases.go_on().await;
    }
    eventually("shards that were put right", async || {
        rain.claim("user 29").await.status == 200 && metric(&gateway, "headcount_pools_mended_total").await >= 1.0
    })
    .await;
    eventually("all shards serve", async || {
        let mut all = true;
        for user in had.keys() {
            all &= rain.claim(user).await.status == 200;
        }
        all
    })
    .await;
    hold(&rain, &had).await;
    sells_the_rest(&rain, &units(&had), 60).await;
    drained(&books, &rain).await;
    let line = reconcile(&gateway, "rain", json!({ "mode": "compare" })).await;
    assert_eq!(line["report"]["agrees"], true, "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_with_an_old_state_is_put_right_from_the_ledger() {
    goes_back_in_time(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_ledger_had_not_heard_processes_remember() {
    goes_back_in_time(false).await;
}

async fn metric(gateway: &Gateway, name: &str) -> f64 {
    let text = gateway.admin.get("/metrics").await.expect(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_contradicts_the_ledger_is_kept_apart() {
    let databases = Databases::start(Brand::Sqlite, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let gateway = Gateway::start(&[("HEADCOUNT_LEDGER_URL", &ledger)]).await;
    let rain = Rain::open("rain", &[&gateway], json!({ "packets": { "amounts": [5, 6, 7] } })).await;
    let row = "INSERT INTO ledger_claims (campaign, shard, user_key, claim_no, unit, turn, cents, state, claim_id, idem, \
               claimed_ms, deadline_ms, changed_ms, kind, incarnation, ver) VALUES ('rain', 0, \
               '00000000000000000000000000000001', 1, 2, 0, 6, 'confirmed', \
               'aeaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', '', 1, 0, 1, 'grant', 1, 1)";
    execute(&ledger, row).await;
    let books = Books::of(&ledger, &rain);
    claims(&rain, 0..2).await;
    eventually("a contradiction in the ledger", async || {
        books.two("SELECT COUNT(*), COUNT(*) FROM ledger_conflicts WHERE campaign = $").await == (1, 1)
    })
    .await;
    // The rest of the batch is in, the stranger's row stands, and the shard serves nobody.
    eventually("the other claim in the ledger", async || books.of_state("confirmed").await == (2, 11)).await;
    eventually("a fenced shard", async || {
        let answer = rain.claim("another").await;
        answer.status == 503 && answer.json()["type"] == "/problems/shard-lost"
    })
    .await;
    assert!(metric(&gateway, "headcount_ledger_conflicts_total").await >= 1.0);
    // It stays so: nothing was lost that could be put right.
    assert_eq!(metric(&gateway, "headcount_pools_mended_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_names_each_difference_and_repairs_what_the_ledger_lacks() {
    let databases = Databases::start(Brand::Sqlite, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let gateway = Gateway::start(&[("HEADCOUNT_LEDGER_URL", &ledger)]).await;
    let rain = Rain::open("rain", &[&gateway], json!({ "packets": { "total_cents": 100, "count": 10 } })).await;
    let books = Books::of(&ledger, &rain);
    let had = claims(&rain, 0..6).await;
    drained(&books, &rain).await;
    execute(&ledger, "DELETE FROM ledger_claims WHERE unit = 3").await;
    execute(&ledger, "UPDATE ledger_claims SET state = 'held', incarnation = 0, kind = 'grant' WHERE unit = 4").await;
    let compared = reconcile(&gateway, "rain", json!({ "mode": "compare" })).await["report"].clone();
    assert_eq!((&compared["agrees"], &compared["claims"]), (&json!(false), &json!(6)), "{compared}");
    let mut named: Vec<(u64, Option<&str>, Option<&str>)> = compared["differences"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["unit"].as_u64().expect("a unit"), one["store"].as_str(), one["ledger"].as_str()))
        .collect();
    named.sort_unstable();
    let cents = |unit: usize| had[&format!("user {}", unit - 1)]["cents"].clone();
    let said = |unit: usize, state: &str| format!("{unit}#0:{} {state}", cents(unit));
    let (three, four, held) = (said(3, "confirmed"), said(4, "confirmed"), said(4, "held"));
    assert_eq!(named, [(3, Some(&*three), None), (4, Some(&*four), Some(&*held))]);
    let repaired = reconcile(&gateway, "rain", json!({ "mode": "repair" })).await["report"].clone();
    assert_eq!(repaired["conflicts"], 0, "{repaired}");
    let compared = reconcile(&gateway, "rain", json!({ "mode": "compare" })).await;
    assert_eq!(compared["report"]["agrees"], true, "{repaired} {compared}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_name_is_forgotten_and_the_books_still_balance() {
    let databases = Databases::start(Brand::Postgres, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let redis = RedisServer::single().await;
    let gateway = gateway(&redis.url(), &ledger, KEY).await;
    let open = async |id: &'static str| {
        Rain::open(id, &[&gateway], json!({ "packets": { "total_cents": 100, "count": 10 } })).await
    };
    let (first, second) = (open("first").await, open("second").await);
    let claim = first.claim("ada@example").await.expect(201).json();
    first.claim("bob@example").await.expect(201);
    let (of_first, of_second) = (Books::of(&ledger, &first), Books::of(&ledger, &second));
    of_first.come_to("confirmed", 2).await;
    // In the second campaign the news are still on their way.
    databases.stop();
    second.claim("ada@example").await.expect(201);
    let erase = async || gateway.admin.post("/v1/users/erase", &json!({ "user": "ada@example" })).await;
    let unavailable: Answer = erase().await.expect(503);
    assert_eq!(unavailable.json()["type"], "/problems/ledger-unavailable");
    assert!(!everything(&redis).contains("ada@example"), "outboxes are done without the ledger");
    databases.go_on().await;
    of_second.come_to("confirmed", 1).await;
    let erased = erase().await.expect(200).json();
    assert_eq!(erased, json!({ "entries": 0, "rows": 2 }));
    for (books, users) in [(&of_first, 2), (&of_second, 1)] {
        let names: Vec<String> = books.packets().await.into_values().filter_map(|(_, user)| user).collect();
        assert_eq!(names.len(), users);
        assert!(names.iter().all(|name| name == "bob@example" || name.starts_with("element:")), "{names:?}");
    }
    let again = first.claim("ada@example").await.expect(200).json();
    assert_eq!((&again["outcome"], &again["unit"]), (&json!("already"), &claim["unit"]));
    first.audit().await;
}

/// All entries of all outboxes, as text.
fn everything(redis: &RedisServer) -> String {
    let logs = redis.keys_with(":xl:");
    let of_log = |key: &Vec<u8>| {
        format!("{:?}", redis.command(&[b"XRANGE".to_vec(), key.clone(), b"-".to_vec(), b"+".to_vec()]))
    };
    logs.iter().map(of_log).collect()
}
