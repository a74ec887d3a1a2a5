//! What Headcount adds to bare HTTP: one table, each row a ratio measured in one run.
//!
//! `wrk` on loopback asks a gateway on a 3+3 Redis Cluster, and a bare hyper server that reads the same requests and
//! returns the same bytes, in turn: bare, gateway, bare, gateway, bare. All share the machine's cores, so figures of one
//! run mean little by themselves, and their ratio much more.
//!
//! `cargo bench --bench http` measures all; words after `--` choose: `returning`, `first`, `remaining`, `100`, `1000`,
//! `10000`. `HEADCOUNT_BENCH_SECONDS` is the length of one stretch (5); a cell has five. Figures:
//! `docs/PERFORMANCE.md`, "HTTP".

#[allow(dead_code, clippy::disallowed_methods, reason = "the tests use the rest")]
#[path = "../tests/integration/harness/mod.rs"]
mod harness;

#[path = "load/mod.rs"]
mod load;

use harness::cluster::RedisCluster;
use harness::crowd::{FIXED_KEY, arrive, count, users};
use harness::gateway::{Answer, Gateway};
use headcount::runtime::open_files;
use load::{Bare, Figures, Server, bare, wrk};
use serde_json::json;

// As the gateway has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONNECTIONS: [usize; 3] = [100, 1_000, 10_000];
/// Users of the hot event, and claimants of the campaign.
const USERS: usize = 10_000;
/// Stretches of the gateway in a cell; each has one of the bare server before it, and the last one after it too.
const STRETCHES: usize = 2;
/// Descriptors beside the connections' own: Redis, listeners, logs.
const OPEN_FILES_BESIDE: u64 = 500;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let threads = tokio::runtime::Runtime::new().expect("threads");
    match args.first().map(String::as_str) {
        Some("bare") => threads.block_on(bare(&args[1..])),
        _ => threads.block_on(table(&args)),
    }
}

/// What a row does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Row {
    Returning,
    First,
    Remaining,
}

impl Row {
    const ALL: [Row; 3] = [Row::Returning, Row::First, Row::Remaining];

    fn word(self) -> &'static str {
        match self {
            Row::Returning => "returning",
            Row::First => "first",
            Row::Remaining => "remaining",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Row::Returning => "repeated visits to a hot event",
            Row::First => "first visits, every request a new user",
            Row::Remaining => "remaining of a hot soft campaign",
        }
    }

    /// `stretch` keeps first visits first: each stretch has an event of its own.
    fn path(self, stretch: &str) -> String {
        match self {
            Row::Returning => "/v1/events/hot/visits".to_owned(),
            Row::First => format!("/v1/events/first-{stretch}/visits"),
            Row::Remaining => "/v1/campaigns/hot/remaining".to_owned(),
        }
    }

    /// Arguments of `benches/wrk/crowd.lua`.
    fn crowd(self) -> Vec<String> {
        match self {
            Row::Returning => vec!["returning".to_owned(), USERS.to_string()],
            Row::First => vec!["new".to_owned(), "user".to_owned()],
            Row::Remaining => vec!["same".to_owned()],
        }
    }
}

async fn table(words: &[String]) {
    let is_chosen = |word: &str, kind: fn(&str) -> bool| {
        words.iter().any(|chosen| chosen == word) || !words.iter().any(|chosen| kind(chosen))
    };
    let is_number = |word: &str| word.parse::<usize>().is_ok();
    let is_row = |word: &str| word.parse::<usize>().is_err();
    let seconds = std::env::var_os("HEADCOUNT_BENCH_SECONDS");
    let seconds: u64 =
        seconds.map_or(5, |text| text.to_string_lossy().parse().expect("HEADCOUNT_BENCH_SECONDS: whole seconds"));
    let open_files = open_files::raise().expect("a limit of open files");

    let cluster = RedisCluster::start().await;
    let gateway = Gateway::start(&[("HEADCOUNT_REDIS_URL", &cluster.url()), FIXED_KEY]).await;
    prepare(&gateway).await;
    println!(
        "\n| row | connections | gateway / bare | gateway req/s | bare req/s | gateway p50, p99 ms | bare p50, p99 ms | \
         CPU us per request, gateway, bare | store writes per request | failed |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    for row in Row::ALL.into_iter().filter(|row| is_chosen(row.word(), is_row)) {
        let bare = Bare::start(&sample(&gateway, row).await).await;
        for connections in CONNECTIONS.into_iter().filter(|n| is_chosen(&n.to_string(), is_number)) {
            if connections as u64 + OPEN_FILES_BESIDE > open_files {
                println!("| {} | {connections} | not measured: {open_files} open files allowed |", row.title());
                continue;
            }
            let cell = measure(row, connections, seconds, (&cluster, &gateway, &bare)).await;
            println!("{}", cell.line(row, connections));
        }
    }
}

/// A hot event whose visitors are known, and a hot campaign with claims.
async fn prepare(gateway: &Gateway) {
    let crowd: Vec<String> = (0..USERS).map(|number| format!("user-{number:09}")).collect();
    arrive(&[&gateway.public], "hot", &crowd).await;
    let campaign = json!({ "admission": "soft", "quota": 1_000_000 });
    gateway.admin.put("/v1/campaigns/hot", &campaign).await.expect(201);
    for user in users(0..100) {
        gateway.public.post("/v1/campaigns/hot/claims", &json!({ "user": user })).await.expect(201);
    }
}

/// The answer that the bare server is to give.
async fn sample(gateway: &Gateway, row: Row) -> Answer {
    let path = row.path("sample");
    match row {
        Row::Remaining => gateway.public.get(&path).await,
        Row::Returning | Row::First => gateway.public.post(&path, &json!({ "user": "user-000000000" })).await,
    }
    .expect(200)
}

async fn measure(
    row: Row,
    connections: usize,
    seconds: u64,
    (cluster, gateway, bare): (&RedisCluster, &Gateway, &Bare),
) -> Cell {
    let mut cell = Cell { gateway: Vec::new(), bare: Vec::new(), writes: 0 };
    // Pages, connections to Redis, the processor's clock: not part of the figures.
    let bare = Server { authority: &bare.authority, process: &bare.process };
    let gated = Server { authority: &gateway.public.authority, process: &gateway.process };
    for server in [bare, gated] {
        wrk(&row.crowd(), server, &row.path("warm-up"), (connections.min(100), 1));
    }
    for stretch in 0..STRETCHES {
        let path = row.path(&format!("{connections}-{stretch}"));
        cell.bare.push(wrk(&row.crowd(), bare, &path, (connections, seconds)));
        let before = writes(cluster);
        let figures = wrk(&row.crowd(), gated, &path, (connections, seconds));
        cell.writes += writes(cluster) - before;
        if row == Row::First {
            check_count(gateway, &format!("first-{connections}-{stretch}"), figures.answered, connections).await;
        }
        cell.gateway.push(figures);
    }
    let path = row.path("last");
    cell.bare.push(wrk(&row.crowd(), bare, &path, (connections, seconds)));
    cell
}

/// Everybody who was answered is counted, within 1 %; so may be those whose answer wrk did not wait for.
async fn check_count(gateway: &Gateway, event: &str, answered: u64, connections: usize) {
    let (least, most) = (answered as f64 * 0.99, (answered + connections as u64) as f64 * 1.01);
    harness::eventually(&format!("a count of {answered} users of {event}"), async || {
        let users = count(&gateway.public, event, "").await["count"].as_f64().expect("a count");
        (least..=most).contains(&users)
    })
    .await;
}

/// Commands with which visits reach the store.
fn writes(cluster: &RedisCluster) -> u64 {
    let calls = cluster.master_command_calls();
    ["pfadd", "expireat"].iter().filter_map(|name| calls.get(*name)).sum()
}

/// Stretches of one row at one number of connections.
struct Cell {
    gateway: Vec<Figures>,
    bare: Vec<Figures>,
    writes: u64,
}

impl Cell {
    fn line(&self, row: Row, connections: usize) -> String {
        let mean = |of: &[Figures], what: fn(&Figures) -> f64| of.iter().map(what).sum::<f64>() / of.len() as f64;
        let per_second: fn(&Figures) -> f64 = |figures| figures.answered as f64 / figures.seconds;
        let (gateway, bare) = (mean(&self.gateway, per_second), mean(&self.bare, per_second));
        let latency = |of: &[Figures]| {
            format!("{:.2}, {:.2}", mean(of, |figures| figures.p50_ms), mean(of, |figures| figures.p99_ms))
        };
        let cpu_us = |of: &[Figures]| {
            mean(of, |figures| figures.cpu_seconds) * 1e6 / mean(of, |figures| figures.answered as f64)
        };
        let answered: u64 = self.gateway.iter().map(|figures| figures.answered).sum();
        let failed: u64 = self.gateway.iter().chain(&self.bare).map(|figures| figures.broken + figures.refused).sum();
        format!(
            "| {} | {connections} | {:.2} | {gateway:.0} | {bare:.0} | {} | {} | {:.1}, {:.1} | {:.3} | {failed} |",
            row.title(),
            gateway / bare,
            latency(&self.gateway),
            latency(&self.bare),
            cpu_us(&self.gateway),
            cpu_us(&self.bare),
            self.writes as f64 / answered as f64,
        )
    }
}
