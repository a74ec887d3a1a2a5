//! The drain while its process is killed in the midst of a transaction, and while its database is away: claims go on, and
//! at the end the ledger has what users were told, each thing once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Connection, Row};
use tokio::time::Instant;

use headcount::adapters::redis::keys;
use headcount::domain::id::CampaignId;
use headcount::domain::ring::Shards;
use headcount::store::pools::PoolAddress;

use crate::harness::databases::{Brand, Databases, Disk};
use crate::harness::eventually;
use crate::harness::gateway::{Answer, Api, Gateway};
use crate::harness::halt::{Halt, Point};
use crate::harness::redis::RedisServer;
use crate::harness::resp::Reply;

const CAMPAIGN: &str = "drained";
const PATH: &str = "/v1/campaigns/drained";
const SHARDS: u16 = 4;
const QUOTA: u64 = 100_000;
const CALLERS: usize = 4;
/// Between two users of a caller.
const PAUSE: Duration = Duration::from_millis(10);
/// Claims told before a process is killed, and again afterwards.
const SOME: usize = 80;

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_killed_before_it_wrote_anything_loses_nothing() {
    a_drain_dies(Point::Begin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_killed_before_its_commit_writes_nothing_twice() {
    a_drain_dies(Point::Commit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_killed_between_commit_and_acknowledgement_writes_nothing_twice() {
    a_drain_dies(Point::Committed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_go_on_while_the_ledgers_database_is_away() {
    the_database_is_away(Duration::from_secs(8)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "more than a minute long: make prove"]
async fn prove_a_minute_without_its_database_costs_claims_nothing() {
    the_database_is_away(Duration::from_secs(60)).await;
}

async fn a_drain_dies(point: Point) {
    let databases = Databases::start(Brand::Postgres, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let halt = Halt::before(&ledger).await;
    let redis = RedisServer::single().await;
    let mut dies = gateway(&redis, &halt.url).await;
    dies.offer(CAMPAIGN, &campaign()).await;
    // It drains: it has told the ledger where each shard stands, and will not again before there are claims.
    eventually("a drain that has begun", async || count(&ledger, "ledger_drains").await == i64::from(SHARDS)).await;
    let goes_on = gateway(&redis, &ledger).await;
    let sells = gateway(&redis, "off").await;
    halt.at(point);
    let crowd = Crowd::of(&sells);
    let fault = async {
        eventually("a transaction that stands still", async || halt.halted() > 0 && crowd.sold() >= SOME).await;
        if point == Point::Committed {
            eventually("rows that are committed", async || count(&ledger, "ledger_claims").await > 0).await;
        } else {
            assert_eq!((count(&ledger, "ledger_claims").await, count(&ledger, "ledger_entries").await), (0, 0));
        }
        assert!(pending(&redis) > 0, "what was read is not acknowledged");
        dies.kill();
        let sold = crowd.sold();
        eventually("claims after the kill", async || crowd.sold() >= sold + SOME).await;
        crowd.go_home();
        sold
    };
    let ((), sold) = tokio::join!(crowd.shop(), fault);
    crowd.is_in(&ledger).await;
    eventually("no lag, and nothing pending", async || {
        metric(&goes_on, "headcount_ledger_lag_entries").await == Some(0.0) && pending(&redis) == 0
    })
    .await;
    println!("{point:?}: killed after {sold} claims of {}", crowd.sold());
}

async fn the_database_is_away(span: Duration) {
    let databases = Databases::start(Brand::Postgres, Disk::Ignored).await;
    let ledger = databases.fresh().await;
    let redis = RedisServer::single().await;
    let gateway = gateway(&redis, &ledger).await;
    gateway.offer(CAMPAIGN, &campaign()).await;
    let crowd = Crowd::of(&gateway);
    let began = Instant::now();
    let lag = async || {
        let of = async |name| metric(&gateway, name).await.unwrap_or_default();
        (of("headcount_ledger_lag_entries").await, of("headcount_ledger_lag_seconds").await)
    };
    let fault = async {
        tokio::time::sleep(span / 4).await;
        eventually("rows of claims", async || count(&ledger, "ledger_claims").await > 0).await;
        let stopped = Instant::now();
        databases.stop();
        let mut first = (0.0, 0.0);
        eventually("a lag", async || {
            first = lag().await;
            first.0 > 0.0 && first.1 >= 1.0
        })
        .await;
        let mut last = first;
        eventually("a lag that rises", async || {
            last = lag().await;
            last.0 > first.0 && last.1 > first.1
        })
        .await;
        tokio::time::sleep_until(stopped + span).await;
        last = lag().await;
        let back = Instant::now();
        databases.go_on().await;
        let sold = crowd.sold();
        eventually("claims after it is back", async || crowd.sold() >= sold + SOME).await;
        crowd.go_home();
        (stopped, back, last)
    };
    let ((), (stopped, back, lagged)) = tokio::join!(crowd.shop(), fault);
    crowd.is_in(&ledger).await;
    let caught_up = back.elapsed();
    eventually("no lag", async || lag().await == (0.0, 0.0)).await;
    let late: Vec<u16> = crowd.statuses().into_iter().filter(|status| *status >= 500).collect();
    assert!(late.is_empty(), "{late:?}");
    println!(
        "away for {:?}: {} claims; lag {lagged:?}; all in the ledger {caught_up:?} after the start; claims before: p50 {:?}, \
         p99 {:?}; meanwhile: p50 {:?}, p99 {:?}",
        back - stopped,
        crowd.sold(),
        crowd.took(began, stopped, 50),
        crowd.took(began, stopped, 99),
        crowd.took(stopped, back, 50),
        crowd.took(stopped, back, 99),
    );
}

fn campaign() -> Value {
    json!({ "admission": "hard", "quota": QUOTA, "shards": SHARDS, "hold_s": 600 })
}

async fn gateway(redis: &RedisServer, ledger: &str) -> Gateway {
    Gateway::start(&[("HEADCOUNT_REDIS_URL", &*redis.url()), ("HEADCOUNT_LEDGER_URL", ledger)]).await
}

/// Users, each of whom claims once; of four one keeps the hold, two confirm it, one gives it back.
struct Crowd {
    api: Api,
    next: AtomicUsize,
    over: AtomicBool,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    /// Unit and state, by claim id, as told at last.
    told: BTreeMap<String, (i64, String)>,
    statuses: Vec<u16>,
    /// Claims: when sent, and after how long answered.
    took: Vec<(Instant, Duration)>,
}

impl Crowd {
    fn of(gateway: &Gateway) -> Self {
        let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { api: gateway.public.clone(), next, over, heard: Mutex::default() }
    }

    /// Until told to go home.
    async fn shop(&self) {
        let caller = async |_| {
            while !self.over.load(Ordering::SeqCst) {
                self.visit(self.next.fetch_add(1, Ordering::SeqCst)).await;
                tokio::time::sleep(PAUSE).await;
            }
        };
        futures_util::future::join_all((0..CALLERS).map(caller)).await;
    }

    async fn visit(&self, user: usize) {
        let began = Instant::now();
        let body = json!({ "user": format!("user_{user}") });
        let claim = self.call(Method::POST, "/claims", Some(body)).await.expect(201).json();
        self.heard().took.push((began, began.elapsed()));
        let id = claim["claim_id"].as_str().expect("a claim id");
        let unit = claim["unit"].as_i64().expect("a unit");
        self.heard().told.insert(id.to_owned(), (unit, state(&claim)));
        let answer = match user % 4 {
            0 => return,
            1 => self.call(Method::DELETE, &format!("/claims/{id}"), None).await,
            _ => self.call(Method::POST, &format!("/claims/{id}/confirm"), Some(json!({}))).await,
        };
        let told = (unit, state(&answer.expect(200).json()));
        self.heard().told.insert(id.to_owned(), told);
    }

    async fn call(&self, method: Method, rest: &str, body: Option<Value>) -> Answer {
        let headers: &[_] = if body.is_some() { &[("content-type", "application/json")] } else { &[] };
        let body = body.map_or(Bytes::new(), |body| body.to_string().into());
        let answer = self.api.send(method, &format!("{PATH}{rest}"), headers, body).await;
        self.heard().statuses.push(answer.status);
        answer
    }

    fn go_home(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sold(&self) -> usize {
        self.heard().told.len()
    }

    fn statuses(&self) -> Vec<u16> {
        self.heard().statuses.clone()
    }

    /// So many of a hundred claims that were sent in a span were answered within this.
    fn took(&self, from: Instant, to: Instant, percent: usize) -> Duration {
        let mut took: Vec<Duration> =
            self.heard().took.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, took)| *took).collect();
        took.sort_unstable();
        took[(took.len() - 1) * percent / 100]
    }

    /// Waits until the ledger has each claim as it was told, and looks whether it has anything else, or twice.
    async fn is_in(&self, ledger: &str) {
        let told = self.heard().told.clone();
        let states: std::collections::BTreeSet<&str> = told.values().map(|(_, state)| &**state).collect();
        assert_eq!(states.into_iter().collect::<Vec<_>>(), ["confirmed", "held", "released"]);
        let mut rows = BTreeMap::new();
        eventually("the ledger to have what was told", async || {
            let found = query(ledger, "SELECT claim_id, unit, state FROM ledger_claims").await;
            assert!(found.len() <= told.len(), "{} rows of {} claims", found.len(), told.len());
            rows = found.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
            rows == told
        })
        .await;
        let mut expected = BTreeMap::new();
        for (id, (_, state)) in &told {
            expected.insert((id.clone(), "grant".to_owned()), 1);
            match &**state {
                "confirmed" => expected.insert((id.clone(), "confirm".to_owned()), 1),
                "released" => expected.insert((id.clone(), "release".to_owned()), 1),
                _ => None,
            };
        }
        let journal = "SELECT c.claim_id, e.kind, COUNT(*) FROM ledger_entries e LEFT JOIN ledger_claims c ON \
                       c.campaign = e.campaign AND c.user_key = e.user_key AND c.claim_no = e.claim_no \
                       GROUP BY c.claim_id, e.kind";
        let found = query(ledger, journal).await;
        let of_row = |row: &AnyRow| ((row.get::<Option<String>, _>(0).unwrap_or_default(), row.get(1)), row.get(2));
        let found: BTreeMap<(String, String), i64> = found.iter().map(of_row).collect();
        let other: Vec<_> = found.iter().filter(|(key, count)| expected.get(*key) != Some(*count)).take(5).collect();
        assert!(found == expected, "{} of {} kinds of news; {other:?}", found.len(), expected.len());
        assert_eq!(count(ledger, "ledger_conflicts").await, 0);
    }
}

fn state(claim: &Value) -> String {
    claim["state"].as_str().unwrap_or_else(|| panic!("no state: {claim}")).to_owned()
}

async fn query(ledger: &str, query: &'static str) -> Vec<AnyRow> {
    let mut connection = AnyConnection::connect(ledger).await.unwrap_or_else(|error| panic!("{error}"));
    sqlx::query(query).fetch_all(&mut connection).await.unwrap_or_else(|error| panic!("{query}: {error}"))
}

/// Rows of a table; 0 where it is not there yet.
async fn count(ledger: &str, table: &str) -> i64 {
    let mut connection = AnyConnection::connect(ledger).await.unwrap_or_else(|error| panic!("{error}"));
    let select = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
    sqlx::query(select).fetch_one(&mut connection).await.map_or(0, |row| row.get(0))
}

/// News that were read and are not acknowledged.
fn pending(redis: &RedisServer) -> i64 {
    let of_shard = |position| {
        let pool = PoolAddress { campaign: CampaignId::new(CAMPAIGN).unwrap(), position };
        let log = &keys::pool(&pool)[keys::LOG];
        match redis.command(&[b"XPENDING".as_slice(), &log.text, b"ledger"]) {
            Reply::List(mut parts) => parts.remove(0).int(),
            _ => 0,
        }
    };
    Shards::new(SHARDS.into()).unwrap().positions().map(of_shard).sum()
}

async fn metric(gateway: &Gateway, name: &str) -> Option<f64> {
    let text = gateway.admin.get("/metrics").await.expect(200).text();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}
