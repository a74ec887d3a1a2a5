//! What only the Redis store promises: nothing left behind, slots that move, nodes that die, scripts that are forgotten.
//!
//! Each check takes the store's configuration and the ports of its servers on loopback, and works on names of its own.
//! They are slow or disturb a server, so each runs on a store that no other test uses at the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use headcount::adapters::redis::keys;
use headcount::adapters::redis::{RedisConfig, RedisStore};
use headcount::domain::counter::{Counter, SketchAddress, Subject};
use headcount::domain::element::Element;
use headcount::domain::id::EventId;
use headcount::domain::period::Period;
use headcount::domain::ring::{Position, Shards, ring_point};
use headcount::domain::sketch::registers::Sketch;
use headcount::domain::sketch::wire;
use headcount::runtime::clock::Clock;
use headcount::runtime::tasks::Tasks;
use headcount::store::Stores;
use headcount::store::counters::{AnswerKey, Lease, Published};
use headcount::store::error::StoreError;
use headcount::store::records::{Put, RecordKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Far longer than anything here takes on a busy machine; only spent when something is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a store and waits until it is reached.
pub async fn started(config: &RedisConfig) -> (Stores, Tasks) {
    let tasks = Tasks::new();
    let stores = RedisStore::start(config, tasks.clone()).unwrap().stores();
    eventually("first contact", async || stores.deployment.contacted()).await;
    (stores, tasks)
}

pub async fn nothing_is_left_behind(config: &RedisConfig, ports: &[u16]) {
    let (stores, tasks) = started(config).await;
    let counters = &stores.counters;
    let [address, other] = [address(&fresh("left"), 0), address(&fresh("left"), 512)];
    for elements in [elements(0..100), elements(100..5_000)] {
        counters.add(&address, &elements, None).await.unwrap();
    }
    let blob = counters.read(std::slice::from_ref(&address)).await.remove(0).unwrap().unwrap();
    let keys_before = keys_of(ports).await;

    let users = counters.union(vec![blob.clone(); 16]).await.unwrap();
    assert!(users.abs_diff(5_000) < 200, "{users}");
    counters.merge(&address, blob.clone(), None).await.unwrap();
    let damaged = damaged(&blob);
    assert!(matches!(counters.union(vec![blob.clone(), damaged.clone()]).await, Err(StoreError::Corrupt(_))));
    assert!(matches!(counters.merge(&other, damaged.clone(), None).await, Err(StoreError::Corrupt(_))));
    assert_eq!(keys_of(ports).await, keys_before);

    // The port refuses malformed sketches by itself; the scripts must not leave anything either.
    let port = owner(ports, keys::sketch(&address).slot).await;
    let merge = include_str!("../../lua/count_merge.lua");
    let temporary = keys::temporary(0, 7, 2);
    let port_of_temporary = owner(ports, temporary[0].slot).await;
    let arguments: [&[u8]; 7] =
        [b"EVAL", merge.as_bytes(), b"2", &temporary[0].text, &temporary[1].text, &blob, &damaged];
    let answer = command_bytes(port_of_temporary, &arguments).await;
    assert!(answer.starts_with("-WRONGTYPE") || answer.starts_with("-INVALIDOBJ"), "{answer}");
    let (sketch, beside) = (keys::sketch(&address), keys::temporary_beside(&address, 7));
    let merge = include_str!("../../lua/sketch_merge-2.lua");
    let arguments: [&[u8]; 7] = [b"EVAL", merge.as_bytes(), b"2", &sketch.text, &beside.text, &damaged, b""];
    let answer = command_bytes(port, &arguments).await;
    assert!(answer.starts_with("-WRONGTYPE") || answer.starts_with("-INVALIDOBJ"), "{answer}");
    assert_eq!(keys_of(ports).await, keys_before);
    assert!(tasks.finish(PATIENCE).await, "all tasks end");
}

/// A later version keeps small events as sets under the marker key: this one must not count past them.
pub async fn a_small_set_is_refused(config: &RedisConfig, ports: &[u16]) {
    let (stores, tasks) = started(config).await;
    let counter = fresh("small");
    let marker = keys::marker(&counter);
    let port = owner(ports, marker.slot).await;
    let answer = command_bytes(port, &[b"SADD", &marker.text, b"-5"]).await;
    assert_eq!(answer, ":1\r\n");
    let noted = stores.counters.note_layout(&counter, Shards::DEFAULT, None).await;
    assert!(matches!(noted, Err(StoreError::Refused(_))), "{noted:?}");
    let counter = fresh("sharded");
    stores.counters.note_layout(&counter, Shards::DEFAULT, None).await.unwrap();
    let marker = keys::marker(&counter);
    let port = owner(ports, marker.slot).await;
    assert_eq!(command_bytes(port, &[b"GET", &marker.text]).await, "$7\r\nsharded\r\n");
    assert!(tasks.finish(PATIENCE).await);
}

/// Expiries are absolute, never shortened, and raised where a retention was.
pub async fn an_expiry_only_rises(config: &RedisConfig, ports: &[u16]) {
    let (first, first_tasks) = started(config).await;
    let (second, second_tasks) = started(config).await;
    let address = address(&fresh("expiry"), 64);
    let key = keys::sketch(&address);
    let port = owner(ports, key.slot).await;
    let day = |days: i64| Some(Clock::real().now() + jiff::SignedDuration::from_hours(24 * days));
    let (month, week, year) = (day(30), day(7), day(365));
    for (stores, expires_at, expected) in [
        (&first, month, month),
        (&second, week, month),
        (&first, year, year),
        (&first, month, year),
        (&second, None, year),
    ] {
        stores.counters.add(&address, &elements(0..1), expires_at).await.unwrap();
        let expiry = command_bytes(port, &[b"EXPIRETIME", &key.text]).await;
        let at_s: i64 = expiry.trim_start_matches(':').trim().parse().unwrap();
        assert!(at_s.abs_diff(expected.unwrap().as_second()) <= 1, "{at_s} is not {expected:?}");
    }
    assert!(first_tasks.finish(PATIENCE).await && second_tasks.finish(PATIENCE).await);
}

pub async fn scripts_may_be_forgotten(config: &RedisConfig, ports: &[u16]) {
    let (stores, tasks) = started(config).await;
    let counter = fresh("script");
    let key = AnswerKey { subject: counter.subject.clone(), generation: 1, question: "all".into() };
    for round in 0..5u64 {
        join_all(ports.iter().map(|&port| command(port, &["SCRIPT", "FLUSH"]))).await;
        let id = format!("script-{}-{round}", nonce());
        let put = stores.records.put(RecordKind::Event, &id, 0, Bytes::from_static(b"{}")).await;
        assert_eq!(put, Ok(Put::Written { version: 1 }), "once, and confirmed");
        let lease = stores.counters.lease(&key, &format!("{round}"), 60_000).await.unwrap();
        assert_eq!(matches!(lease, Lease::Granted { .. }), round == 0);
        stores.counters.note_layout(&counter, Shards::DEFAULT, None).await.unwrap();
    }
    assert!(tasks.finish(PATIENCE).await);
}

/// `Written` is said only once the replica has it, and neither a repeated write nor a lost one says it earlier: a WAIT
/// after a script that wrote nothing proves nothing on newer servers. `stop` and `go_on` are given a replica's port.
pub async fn a_record_waits_for_its_replica(
    config: &RedisConfig,
    ports: &[u16],
    stop: impl FnOnce(u16),
    go_on: impl FnOnce(u16),
) {
    let (stores, tasks) = started(config).await;
    // Another process: its connection has written nothing that a WAIT could wait for.
    let (other, other_tasks) = started(config).await;
    let (kind, id, body) = (RecordKind::Campaign, nonce(), Bytes::from_static(b"{}"));
    let put = |expected| stores.records.put(kind, &id, expected, body.clone());
    let other_put = |expected| other.records.put(kind, &id, expected, body.clone());
    assert_eq!(put(0).await, Ok(Put::Written { version: 1 }));
    let replica = replica_of(ports, owner(ports, keys::record(kind, &id).slot).await).await;
    stop(replica);
    assert!(matches!(put(1).await, Err(StoreError::Unconfirmed(_))), "written, but not replicated");
    assert!(matches!(other_put(1).await, Err(StoreError::Unconfirmed(_))), "nor does the conflict stand for sure");
    go_on(replica);
    eventually("a conflict that is replicated", async || match other_put(1).await {
        Ok(Put::Conflict(Some(record))) => record.version == 2,
        Err(error) if error.retry_may_help() => false,
        other => panic!("{other:?}"),
    })
    .await;
    assert_eq!(put(2).await, Ok(Put::Written { version: 3 }));
    assert!(tasks.finish(PATIENCE).await && other_tasks.finish(PATIENCE).await);
}

/// Connections that break under load are replaced, and no caller of anything repeatable hears of it.
pub async fn lost_connections_are_not_noticed(config: &RedisConfig, ports: &[u16]) {
    let (stores, tasks) = started(config).await;
    let counter = fresh("lost");
    let load = Load::default();
    let workers = (0..16).map(|worker| load.run(&stores, address(&counter, 64 * worker), worker.into()));
    let changes = stores.counters.changes();
    let cuts = async {
        for _ in 0..10 {
            // Each cut meets connections that all serve: calls take turns on them.
            let served = load.calls.load(Ordering::SeqCst) + 200;
            eventually("calls that are served", async || load.calls.load(Ordering::SeqCst) > served).await;
            let before = *changes.borrow();
            let cut = ports.iter().map(|&port| command(port, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]));
            join_all(cut).await;
            eventually("whoever remembers writes to be told", async || *changes.borrow() > before).await;
        }
        load.stop.store(true, Ordering::SeqCst);
    };
    let (figures, ()) = tokio::join!(join_all(workers), cuts);
    for one in figures {
        assert_eq!(one.failures, 0, "{one:?}");
    }
    assert!(tasks.finish(PATIENCE).await);
}

/// What happened to the calls of one shard while a node failed.
#[derive(Debug, Default)]
pub struct Figures {
    pub calls: u64,
    pub failures: u64,
    pub slowest: Duration,
    pub last_failure: Option<Instant>,
    pub errors: BTreeMap<String, u64>,
}

impl Figures {
    fn add(mut self, other: Self) -> Self {
        self.calls += other.calls;
        self.failures += other.failures;
        self.slowest = self.slowest.max(other.slowest);
        self.last_failure = self.last_failure.max(other.last_failure);
        other.errors.into_iter().for_each(|(text, times)| *self.errors.entry(text).or_default() += times);
        self
    }
}

/// Makes the first primary fail (by `fail`, given its port) under load on all. The others must not notice, callers of
/// the dead shard must hear so soon, and be served again without a restart. How long the dead shard was away, its
/// figures, then the others'.
pub async fn a_primary_fails_alone(
    config: &RedisConfig,
    ports: &[u16],
    fail: impl FnOnce(u16),
) -> (Duration, Vec<Figures>) {
    let (stores, tasks) = started(config).await;
    let counter = fresh("failing");
    let mut owners: BTreeMap<u16, SketchAddress> = BTreeMap::new();
    for position in Shards::DEFAULT.positions() {
        let address = address(&counter, position.get());
        owners.entry(owner(ports, keys::sketch(&address).slot).await).or_insert(address);
    }
    assert_eq!(owners.len(), 3, "a shard on each primary");
    let load = Load::default();
    let shards =
        owners.values().map(|address| join_all((0..8).map(|worker| load.run(&stores, address.clone(), worker))));
    let fault = async {
        eventually("calls under way", async || load.calls.load(Ordering::SeqCst) >= 1000).await;
        let since = Instant::now();
        fail(*owners.keys().next().unwrap());
        // Only the dead shard's callers have failures to come back from.
        eventually("service after the failover", async || load.recovered.load(Ordering::SeqCst) >= 500).await;
        load.stop.store(true, Ordering::SeqCst);
        since
    };
    let (all, since) = tokio::join!(join_all(shards), fault);
    let all: Vec<Figures> =
        all.into_iter().map(|shard| shard.into_iter().fold(Figures::default(), Figures::add)).collect();
    for other in &all[1..] {
        assert_eq!(other.failures, 0, "{other:?}");
    }
    assert!(all[0].slowest <= config.deadline + config.command_timeout, "{:?}", all[0]);
    assert!(tasks.finish(PATIENCE).await);
    (all[0].last_failure.map_or(Duration::ZERO, |last| last - since), all)
}

/// Callers that add and read in turn until told to stop.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    calls: AtomicU64,
    /// Calls that succeeded after a failure of the same caller.
    recovered: AtomicU64,
}

impl Load {
    async fn run(&self, stores: &Stores, address: SketchAddress, worker: u64) -> Figures {
        let mut figures = Figures::default();
        let mut user = worker << 32;
        while !self.stop.load(Ordering::SeqCst) {
            let call = Instant::now();
            user += 1;
            let result = if user.is_multiple_of(2) {
                stores.counters.add(&address, &elements(user..user + 1), None).await
            } else {
                stores.counters.read(std::slice::from_ref(&address)).await.remove(0).map(drop)
            };
            self.calls.fetch_add(1, Ordering::SeqCst);
            figures.calls += 1;
            figures.slowest = figures.slowest.max(call.elapsed());
            match result {
                Ok(()) if figures.failures > 0 => {
                    self.recovered.fetch_add(1, Ordering::SeqCst);
                }
                Ok(()) => {}
                Err(error) => {
                    assert!(error.retry_may_help(), "{error}");
                    figures.failures += 1;
                    figures.last_failure = Some(Instant::now());
                    *figures.errors.entry(error.to_string()).or_default() += 1;
                }
            }
            // Not as fast as can be: the servers share the machine.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        figures
    }
}

/// Moves a slot to another primary and back, `rounds` times, under reads, writes and scripts of many periods whose keys
/// all lie in it. The move stands still when some keys are moved and when all are, until calls of each kind got through.
/// No call may fail, none may be answered with anything but its own.
pub async fn a_slot_moves_under_load(config: &RedisConfig, ports: &[u16], rounds: usize) -> u64 {
    let (stores, tasks) = started(config).await;
    let event = fresh("moving");
    let days: Vec<SketchAddress> = (0..40).map(|day| address(&on_day(&event, day), 0)).collect();
    let slot = keys::sketch(&days[0]).slot;
    for (day, address) in days.iter().enumerate() {
        stores.counters.add(address, &elements_of(day, 0..20), None).await.unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let calls = Arc::new([const { AtomicU64::new(0) }; 3]);
    let workers: Vec<_> = (0..24u64)
        .map(|worker| {
            let (stores, event, days, stop, calls) =
                (stores.clone(), event.clone(), days.clone(), stop.clone(), calls.clone());
            tokio::spawn(async move {
                let mut round = 0u64;
                while !stop.load(Ordering::SeqCst) {
                    round += 1;
                    let kind = match worker % 8 {
                        0..=4 => 0,
                        5 | 6 => 1,
                        _ => 2,
                    };
                    match kind {
                        0 => reads_only_its_own(&stores, &days).await,
                        1 => adds_and_finds(&stores, &address(&on_day(&event, 100 + worker), 0), round).await,
                        _ => shares_answers(&stores, &on_day(&event, 1000 + worker * 100_000 + round)).await,
                    }
                    calls[kind].fetch_add(1, Ordering::SeqCst);
                    // Not as fast as can be: each round leaves keys in the slot, and all of them must be moved.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        })
        .collect();
    let now = || calls.each_ref().map(|count| count.load(Ordering::SeqCst));
    let got_through = async || {
        let before = now();
        let through = || now().iter().zip(before).all(|(count, before)| *count >= before + 30);
        eventually("calls of each kind", async || through()).await;
    };
    for _ in 0..rounds {
        let from = owner(ports, slot).await;
        let to = *owners(ports).await.keys().find(|&&port| port != from).unwrap();
        for (from, to) in [(from, to), (to, from)] {
            move_slot(ports, slot, from, to, &got_through).await;
            got_through().await;
        }
    }
    stop.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.expect("no wrong answer and no error");
    }
    assert!(tasks.finish(PATIENCE).await);
    now().iter().sum()
}

async fn reads_only_its_own(stores: &Stores, days: &[SketchAddress]) {
    for (day, answer) in stores.counters.read(days).await.into_iter().enumerate() {
        let found = wire::decode(&answer.expect("a read").expect("it is there")).unwrap();
        let mut expected = Sketch::new();
        insert(&mut expected, &elements_of(day, 0..20));
        assert!(found == expected, "day {day} is another day's");
    }
}

async fn adds_and_finds(stores: &Stores, address: &SketchAddress, round: u64) {
    let mine = elements(round * 7..round * 7 + 7);
    stores.counters.add(address, &mine, None).await.expect("an add");
    let blob =
        stores.counters.read(std::slice::from_ref(address)).await.remove(0).expect("a read").expect("it is there");
    let found = wire::decode(&blob).unwrap();
    let mut with_mine = found.clone();
    insert(&mut with_mine, &mine);
    assert!(found == with_mine, "what was acknowledged is there");
}

/// A counter that nobody has seen before: its keys are made while the slot moves.
async fn shares_answers(stores: &Stores, counter: &Counter) {
    let layout = stores.counters.note_layout(counter, Shards::DEFAULT, None).await.expect("a note");
    assert!(layout.covers(Shards::DEFAULT));
    assert_eq!(stores.counters.layouts(std::slice::from_ref(counter)).await.expect("a layout"), [Some(layout)]);
    let key = AnswerKey { subject: counter.subject.clone(), generation: 1, question: counter.period.to_string() };
    let Lease::Granted { now_ms } = stores.counters.lease(&key, "me", 10_000).await.expect("a lease") else {
        panic!("nobody else asks");
    };
    let answer = Published { as_of_ms: now_ms, body: Bytes::from(key.question.clone()) };
    assert!(stores.counters.publish(&key, answer.clone()).await.expect("a publication"));
    assert_eq!(stores.counters.published(&key).await.expect("an answer").answer, Some(answer));
    assert_eq!(stores.counters.attend(&key, "me", 10_000).await.expect("attendance"), 1);
}

async fn move_slot(ports: &[u16], slot: u16, from: u16, to: u16, standing_still: &impl AsyncFn()) {
    let (from_id, to_id) = (command(from, &["CLUSTER", "MYID"]).await, command(to, &["CLUSTER", "MYID"]).await);
    let id = |text: &str| text.lines().nth(1).unwrap().to_string();
    let (from_id, to_id) = (id(&from_id), id(&to_id));
    let slot = slot.to_string();
    expect_ok(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
    expect_ok(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
    let mut moved = 0;
    loop {
        let keys = command(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).await;
        let keys: Vec<&str> = keys.split("\r\n").filter(|line| line.starts_with("hc:")).collect();
        if keys.is_empty() {
            break;
        }
        let to = to.to_string();
        let migrate = ["MIGRATE", "127.0.0.1", &to, "", "0", "5000", "KEYS"];
        let answer = command(from, &[&migrate, &keys[..]].concat()).await;
        assert!(answer == "+OK\r\n" || answer == "+NOKEY\r\n", "{answer}");
        moved += keys.len();
        if moved == 20 {
            standing_still().await;
        }
    }
    standing_still().await;
    // The target first: were the source first, it would answer MOVED to a node that does not know yet.
    expect_ok(to, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
    expect_ok(from, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
    for port in owners(ports).await.into_keys() {
        expect_ok(port, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
    }
}

async fn expect_ok(port: u16, parts: &[&str]) {
    assert_eq!(command(port, parts).await, "+OK\r\n", "{port} {parts:?}");
}

/// Keys of all servers.
async fn keys_of(ports: &[u16]) -> Vec<String> {
    let mut keys = Vec::new();
    for &port in ports {
        let answer = command(port, &["KEYS", "*"]).await;
        keys.extend(answer.split("\r\n").filter(|line| line.starts_with("hc:")).map(|key| format!("{port} {key}")));
    }
    keys.sort();
    keys
}

/// Primaries' ports with their slot ranges, as the first server that answers knows them.
async fn owners(ports: &[u16]) -> BTreeMap<u16, Vec<(u16, u16)>> {
    let mut nodes = String::new();
    for &port in ports {
        nodes = command(port, &["CLUSTER", "NODES"]).await;
        if nodes.starts_with('$') {
            break;
        }
    }
    let mut owners = BTreeMap::new();
    for line in nodes.lines().filter(|line| line.contains("master") && !line.contains("fail")) {
        let fields: Vec<&str> = line.split(' ').collect();
        let port = fields[1].split('@').next().unwrap().rsplit(':').next().unwrap().parse().unwrap();
        let ranges = fields[8..].iter().filter(|field| !field.starts_with('[')).map(|field| {
            let (first, last) = field.split_once('-').unwrap_or((field, field));
            (first.trim().parse().unwrap(), last.trim().parse().unwrap())
        });
        owners.insert(port, ranges.collect());
    }
    owners
}

async fn replica_of(ports: &[u16], primary: u16) -> u16 {
    let nodes = command(ports[0], &["CLUSTER", "NODES"]).await;
    let has_port = |line: &&str, port: u16| line.contains(&format!(":{port}@"));
    let id = nodes.lines().find(|line| has_port(line, primary)).unwrap().split(' ').next().unwrap();
    let line = nodes.lines().find(|line| line.contains(&format!("slave {id}"))).expect("a replica");
    *ports.iter().find(|&&port| has_port(&line, port)).unwrap()
}

/// The port of a slot's owner; a server outside of a cluster owns all.
async fn owner(ports: &[u16], slot: u16) -> u16 {
    if ports.len() == 1 {
        return ports[0];
    }
    let owners = owners(ports).await;
    let owns = |ranges: &Vec<(u16, u16)>| ranges.iter().any(|(first, last)| (first..=last).contains(&&slot));
    *owners.iter().find(|(_, ranges)| owns(ranges)).expect("an owner").0
}

async fn command(port: u16, parts: &[&str]) -> String {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    command_bytes(port, &parts).await
}

/// Sends one command on a connection of its own and answers the raw reply; empty if the server is not there. A reply
/// is over when the server has nothing more to say after QUIT.
async fn command_bytes(port: u16, parts: &[&[u8]]) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let mut request = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            request.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            request.extend_from_slice(part);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"*1\r\n$4\r\nQUIT\r\n");
        stream.write_all(&request).await?;
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).await?;
        std::io::Result::Ok(reply)
    };
    let reply = exchange.await.unwrap_or_default();
    let text = String::from_utf8_lossy(&reply).into_owned();
    text.strip_suffix("+OK\r\n").map(str::to_string).unwrap_or(text)
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn nonce() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn fresh(prefix: &str) -> Counter {
    let subject = Subject::Event(EventId::new(&format!("{prefix}-{}", nonce())).unwrap());
    Counter { subject, generation: 1, period: Period::All }
}

/// The event on the n-th day after 1970.
fn on_day(event: &Counter, day: u64) -> Counter {
    let date = jiff::civil::date(1970, 1, 1).checked_add(jiff::Span::new().days(day as i64)).unwrap();
    Counter { period: Period::Day(date), ..event.clone() }
}

fn address(counter: &Counter, position: u16) -> SketchAddress {
    SketchAddress { counter: Arc::new(counter.clone()), position: Position::new(position).unwrap() }
}

fn elements(users: std::ops::Range<u64>) -> Vec<Element> {
    let scattered = |user: u64| ring_point(&Element::Keyed(user.to_le_bytes()));
    users.map(|user| Element::Keyed(scattered(user).to_le_bytes())).collect()
}

fn insert(sketch: &mut Sketch, elements: &[Element]) {
    for element in elements {
        sketch.insert(element.as_bytes());
    }
}

fn elements_of(day: usize, users: std::ops::Range<u64>) -> Vec<Element> {
    let first = day as u64 * 1_000_000;
    elements(first + users.start..first + users.end)
}

/// A dense sketch that is one byte short.
fn damaged(blob: &Bytes) -> Bytes {
    assert_eq!(blob.len(), wire::DENSE_BYTES);
    blob.slice(..blob.len() - 1)
}

/// The servers. One test a store: the checks disturb each other.
mod on {
    use super::*;
    use crate::harness::cluster::{ClusterOptions, RedisCluster};
    use crate::harness::redis::{Flavor, RedisServer};

    /// Longer than a user would bear, so that a busy test machine is not taken for a fault.
    fn patient(url: String) -> RedisConfig {
        RedisConfig {
            command_timeout: Duration::from_secs(2),
            deadline: Duration::from_secs(4),
            ..RedisConfig::new(url)
        }
    }

    async fn check_each(config: &RedisConfig, ports: &[u16]) {
        nothing_is_left_behind(config, ports).await;
        a_small_set_is_refused(config, ports).await;
        an_expiry_only_rises(config, ports).await;
        scripts_may_be_forgotten(config, ports).await;
        lost_connections_are_not_noticed(config, ports).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_single_redis() {
        let server = RedisServer::single().await;
        check_each(&patient(server.url()), &[server.port]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_redis_cluster() {
        let cluster = RedisCluster::start().await;
        let ports: Vec<u16> = cluster.nodes.iter().map(|node| node.port).collect();
        check_each(&patient(cluster.url()), &ports).await;
        let node = |port| cluster.nodes.iter().find(|node| node.port == port).unwrap();
        let (stop, go_on) = (|port| node(port).stop(), |port| node(port).cont());
        a_record_waits_for_its_replica(&patient(cluster.url()), &ports, stop, go_on).await;
        assert!(a_slot_moves_under_load(&patient(cluster.url()), &ports, 2).await > 0, "calls that met the move");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn clusters_whose_replica_hangs() {
        for flavor in [Flavor::Redis, Flavor::Valkey] {
            let options = ClusterOptions { flavor, ..ClusterOptions::default() };
            let cluster = RedisCluster::start_with(options).await;
            let ports: Vec<u16> = cluster.nodes.iter().map(|node| node.port).collect();
            let node = |port| cluster.nodes.iter().find(|node| node.port == port).unwrap();
            let (stop, go_on) = (|port| node(port).stop(), |port| node(port).cont());
            a_record_waits_for_its_replica(&patient(cluster.url()), &ports, stop, go_on).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_redis_cluster_whose_primary_dies() {
        let cluster = RedisCluster::start().await;
        let ports: Vec<u16> = cluster.nodes.iter().map(|node| node.port).collect();
        let kill = |port| cluster.nodes.iter().find(|node| node.port == port).unwrap().kill();
        let figures = a_primary_fails_alone(&patient(cluster.url()), &ports, kill).await;
        eprintln!("{figures:?}");
    }
}
