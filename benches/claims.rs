//! What exact admission costs: claims granted and claims after the sale is sold out, each row as a ratio to a bare hyper
//! server, and to the design that is usual elsewhere: one script call per request, on one key, without replication.
//!
//! The three are asked in turn by `wrk` on loopback, on a 3+3 Redis Cluster: bare, plain, gateway, bare, plain, gateway.
//! The plain server is hyper as bare as the other one, with the gateway's Redis client, and has an easier task: it does
//! not wait for a replica, keeps no claim ids and serves only one node's worth of stock.
//!
//! Packets have a plain design of their own: a list of amounts and a hash of who got which, on a Redis server by itself.
//!
//! `cargo bench --bench claims` measures all; words after `--` choose: `granted`, `late`, `packets`, `100`, `1000`,
//! `10000`.
//! `HEADCOUNT_BENCH_SECONDS` is the length of one stretch (5); a cell has six. Figures: `docs/PERFORMANCE.md`, "Claims".

#[allow(dead_code, clippy::disallowed_methods, reason = "the tests use the rest")]
#[path = "../tests/integration/harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "the other bench uses the rest")]
#[path = "load/mod.rs"]
mod load;

use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::config::{Config, Server as RedisAddress, ServerConfig};
use fred::types::{Builder, ClusterHash, CustomCommand, Value};
use harness::cluster::RedisCluster;
use harness::crowd::FIXED_KEY;
use harness::gateway::{Answer, Gateway};
use harness::process::{Process, free_port};
use harness::redis::RedisServer;
use headcount::runtime::open_files;
use http_body_util::{BodyExt, Full};
use hyper::{Response, StatusCode};
use load::{Bare, Figures, Server, bare, serve, wrk};
use serde_json::{Value as Json, json};

// As the gateway has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONNECTIONS: [usize; 3] = [100, 1_000, 10_000];
const STRETCHES: usize = 2;
/// More units than a stretch can sell.
const UNITS: u64 = 1_500_000;
const PACKETS: u64 = 600_000;
const OPEN_FILES_BESIDE: u64 = 500;

/// The design of the blog posts: a set of users and a counter, checked and changed by one script.
const PLAIN: &str = "\
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 1 end \
if tonumber(redis.call('GET', KEYS[1]) or ARGV[2]) <= 0 then return 2 end \
redis.call('SETNX', KEYS[1], ARGV[2]) redis.call('DECR', KEYS[1]) redis.call('SADD', KEYS[2], ARGV[1]) return 0";

/// The same for red packets: a list of amounts, and who has which.
const PLAIN_PACKETS: &str = "\
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 1 end \
local cents = redis.call('RPOP', KEYS[1]) \
if not cents then return 2 end \
redis.call('HSET', KEYS[2], ARGV[1], cents) return 0";

/// Fills the list of the plain design: key, packets, the most that one holds.
const FILL: &str = "\
math.randomseed(7) \
for _ = 1, tonumber(ARGV[1]) do redis.call('LPUSH', KEYS[1], math.random(tonumber(ARGV[2]))) end return 0";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let threads = tokio::runtime::Runtime::new().expect("threads");
    match args.first().map(String::as_str) {
        Some("bare") => threads.block_on(bare(&args[1..])),
        Some("plain") => threads.block_on(plain(&args[1..])),
        _ => threads.block_on(table(&args)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Row {
    Granted,
    Late,
    Packets,
}

impl Row {
    fn word(self) -> &'static str {
        match self {
            Row::Granted => "granted",
            Row::Late => "late",
            Row::Packets => "packets",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Row::Granted => "claims granted, every request a new user",
            Row::Late => "claims after sold-out, every request a new user",
            Row::Packets => "packets granted, every request a new user",
        }
    }

    fn units(self) -> u64 {
        match self {
            Row::Granted => UNITS,
            Row::Late => 16,
            Row::Packets => PACKETS,
        }
    }

    fn body(self) -> Json {
        if self == Row::Packets {
            let packets = json!({ "total_cents": PACKETS * 100, "count": PACKETS, "max_cents": 1000 });
            return json!({ "admission": "packets", "packets": packets, "shards": 16 });
        }
        json!({ "admission": "hard", "quota": self.units(), "shards": 16 })
    }
}

async fn table(words: &[String]) {
    let is_number = |word: &str| word.parse::<usize>().is_ok();
    let chosen = |word: &str, number: bool| {
        words.iter().any(|given| given == word) || !words.iter().any(|given| is_number(given) == number)
    };
    let seconds = std::env::var_os("HEADCOUNT_BENCH_SECONDS");
    let seconds: u64 =
        seconds.map_or(5, |text| text.to_string_lossy().parse().expect("HEADCOUNT_BENCH_SECONDS: whole seconds"));
    let open_files = open_files::raise().expect("a limit of open files");
    let cluster = RedisCluster::start().await;
    let gateway = Gateway::start(&[("HEADCOUNT_REDIS_URL", &cluster.url()), FIXED_KEY]).await;
    let slot = headcount::adapters::redis::tags::slot_of_tag(b"plain");
    let of_cluster = &cluster.nodes[cluster.owner_of(slot).expect("an owner")];
    let alone = RedisServer::single().await;
    let plain = Plain::start(of_cluster, PLAIN).await;
    let plain_packets = Plain::start(&alone, PLAIN_PACKETS).await;
    println!(
        "\n| row | connections | gateway / bare | gateway / plain | gateway, plain, bare req/s | gateway p50, p99 ms | \
         plain p50, p99 ms | bare p50, p99 ms | Redis commands per claim | failed |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    for row in [Row::Granted, Row::Late, Row::Packets].into_iter().filter(|row| chosen(row.word(), false)) {
        let bare = Bare::start(&sample(&gateway, row).await).await;
        let plain = if row == Row::Packets { &plain_packets } else { &plain };
        for connections in CONNECTIONS.into_iter().filter(|n| chosen(&n.to_string(), true)) {
            if connections as u64 + OPEN_FILES_BESIDE > open_files {
                println!("| {} | {connections} | not measured: {open_files} open files allowed |", row.title());
                continue;
            }
            let cell = measure(row, (connections, seconds), &cluster, (&gateway, plain, &bare)).await;
            println!("{}", cell.line(row, connections));
        }
    }
}

/// A campaign, sold out where the row wants it so.
async fn prepare(gateway: &Gateway, row: Row, campaign: &str) {
    gateway.admin.put(&format!("/v1/campaigns/{campaign}"), &row.body()).await.expect(201);
    if row == Row::Late {
        let path = format!("/v1/campaigns/{campaign}/claims");
        let mut number = 0;
        while gateway.public.post(&path, &json!({ "user": format!("early-{number}") })).await.status != 409 {
            number += 1;
        }
    }
}

/// The answer that the bare server is to give.
async fn sample(gateway: &Gateway, row: Row) -> Answer {
    prepare(gateway, row, row.word()).await;
    let path = format!("/v1/campaigns/{}/claims", row.word());
    let answer = gateway.public.post(&path, &json!({ "user": "user-000000000" })).await;
    answer.expect(if row == Row::Late { 409 } else { 201 })
}

async fn measure(
    row: Row,
    (connections, seconds): (usize, u64),
    cluster: &RedisCluster,
    (gateway, plain, bare): (&Gateway, &Plain<'_>, &Bare),
) -> Cell {
    let crowd = ["new".to_owned(), "user".to_owned()];
    let gated = Server { authority: &gateway.public.authority, process: &gateway.process };
    let design = plain;
    let plain = Server { authority: &plain.authority, process: &plain.process };
    let bare = Server { authority: &bare.authority, process: &bare.process };
    let mut cell = Cell::default();
    for stretch in 0..=STRETCHES {
        let campaign = format!("{}-{connections}-{stretch}", row.word());
        prepare(gateway, row, &campaign).await;
        let gated_path = format!("/v1/campaigns/{campaign}/claims");
        let path = format!("{gated_path}?{}", row.units());
        if row == Row::Packets {
            design.fill(&gated_path);
        }
        // The first one opens connections and warms caches.
        let shape = if stretch == 0 { (connections.min(100), 1) } else { (connections, seconds) };
        let of_bare = wrk(&crowd, bare, &path, shape);
        let of_plain = wrk(&crowd, plain, &path, shape);
        let before = commands(cluster);
        let of_gateway = wrk(&crowd, gated, &gated_path, shape);
        let spent = commands(cluster) - before;
        if stretch == 0 {
            continue;
        }
        check(gateway, row, &campaign, &of_gateway).await;
        cell.commands += spent;
        cell.bare.push(of_bare);
        cell.plain.push(of_plain);
        cell.gateway.push(of_gateway);
    }
    cell
}

/// Whoever was answered is in the books, and the books agree.
async fn check(gateway: &Gateway, row: Row, campaign: &str, figures: &Figures) {
    let audit = gateway.admin.get(&format!("/v1/campaigns/{campaign}/audit")).await.expect(200).json();
    let confirmed = audit["confirmed"].as_u64().expect("a number");
    assert_eq!(audit["balances"], true, "{audit}");
    let granted = figures.answered - figures.refused;
    match row {
        Row::Granted | Row::Packets => {
            assert!(confirmed >= granted && confirmed < row.units(), "{confirmed} of {granted}");
        }
        Row::Late => assert_eq!(figures.refused, figures.answered, "everybody is too late"),
    }
}

/// Commands with which claims reach the store.
fn commands(cluster: &RedisCluster) -> u64 {
    let calls = cluster.master_command_calls();
    ["evalsha", "eval", "wait"].iter().filter_map(|name| calls.get(*name)).sum()
}

#[derive(Default)]
struct Cell {
    gateway: Vec<Figures>,
    plain: Vec<Figures>,
    bare: Vec<Figures>,
    commands: u64,
}

impl Cell {
    fn line(&self, row: Row, connections: usize) -> String {
        let mean = |of: &[Figures], what: fn(&Figures) -> f64| of.iter().map(what).sum::<f64>() / of.len() as f64;
        let rate = |of: &[Figures]| mean(of, |figures| figures.answered as f64 / figures.seconds);
        let latency = |of: &[Figures]| {
            format!("{:.2}, {:.2}", mean(of, |figures| figures.p50_ms), mean(of, |figures| figures.p99_ms))
        };
        let (gateway, plain, bare) = (rate(&self.gateway), rate(&self.plain), rate(&self.bare));
        let answered: u64 = self.gateway.iter().map(|figures| figures.answered).sum();
        let of_gateway = self.gateway.iter();
        let failed: u64 = match row {
            Row::Granted | Row::Packets => of_gateway.map(|figures| figures.broken + figures.refused).sum(),
            Row::Late => of_gateway.map(|figures| figures.broken).sum(),
        };
        format!(
            "| {} | {connections} | {:.2} | {:.2} | {gateway:.0}, {plain:.0}, {bare:.0} | {} | {} | {} | {:.3} | {failed} |",
            row.title(),
            gateway / bare,
            gateway / plain,
            latency(&self.gateway),
            latency(&self.plain),
            latency(&self.bare),
            self.commands as f64 / answered as f64,
        )
    }
}

/// The plain server: this program again, as a process of its own.
struct Plain<'a> {
    authority: String,
    process: Process,
    redis: &'a RedisServer,
}

impl<'a> Plain<'a> {
    async fn start(redis: &'a RedisServer, script: &str) -> Self {
        let authority = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["plain", &authority, &redis.port.to_string(), script]);
        let process = Process::start("plain", &mut command, 40);
        harness::eventually("a plain server", async || TcpStream::connect(&authority).is_ok()).await;
        Self { authority, process, redis }
    }

    /// Lays packets out for a campaign; those of the last one go.
    fn fill(&self, campaign: &str) {
        self.redis.flush();
        // In pieces: one of all would be longer than the connection waits.
        for _ in 0..10 {
            let count = (PACKETS / 10).to_string();
            self.redis.command(&["EVAL", FILL, "1", &format!("{{plain}}:stock:{campaign}"), &count, "199"]);
        }
        self.redis.command(&["SCRIPT", "LOAD", PLAIN_PACKETS]);
    }
}

/// hyper, and one script call per request. Arguments: address, port of the Redis server that owns the keys, the script.
/// The campaign is the path, its stock the query.
async fn plain(args: &[String]) {
    let [address, port, script] = args else { panic!("plain <address> <port of Redis> <script>") };
    let address: SocketAddr = address.parse().expect("an address");
    let server = RedisAddress::new("127.0.0.1", port.parse().expect("a port"));
    let config = Config { server: ServerConfig::Centralized { server }, ..Config::default() };
    let client: Client = Builder::from_config(config).build().expect("a client");
    let _running = client.connect();
    client.wait_for_connect().await.expect("Redis");
    let load = CustomCommand::new_static("SCRIPT", ClusterHash::FirstKey, false);
    let digest: String = client.custom(load, vec!["LOAD", script.as_str()]).await.expect("a digest");
    let digest = Bytes::from(digest);
    serve(address, move |request| {
        let (client, digest) = (client.clone(), digest.clone());
        async move {
            let (path, stock) = (request.uri().path().to_owned(), request.uri().query().unwrap_or("0").to_owned());
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let wish: Json = serde_json::from_slice(&body).expect("JSON");
            let user = wish["user"].as_str().expect("a user").to_owned();
            let keys = ["stock", "users"].map(|kind| Bytes::from(format!("{{plain}}:{kind}:{path}")));
            let [stock_key, users_key] = keys.map(Value::Bytes);
            let arguments: Vec<Value> =
                vec![Value::Bytes(digest), 2.into(), stock_key, users_key, user.clone().into(), stock.into()];
            let call = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
            let outcome: i64 = client.custom(call, arguments).await.expect("an answer");
            let (status, outcome) = match outcome {
                0 => (StatusCode::CREATED, "granted"),
                1 => (StatusCode::OK, "already"),
                _ => (StatusCode::CONFLICT, "sold_out"),
            };
            let text = json!({ "user": user, "outcome": outcome }).to_string();
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = status;
            response
        }
    })
    .await;
}
