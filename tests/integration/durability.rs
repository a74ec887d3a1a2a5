//! What the embedded store acknowledged is there after a kill -9.
//!
//! At the ports, to the last register: a child process (this test binary again) opens the store and writes with many tasks at once, telling each
//! acknowledgement on its standard output. The parent kills it in the middle, opens the folder, and looks for all it
//! was told. Not reproducible: where exactly the kill meets a commit.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use headcount::adapters::embedded::{EmbeddedConfig, EmbeddedStore};
use headcount::domain::counter::{Counter, SketchAddress, Subject};
use headcount::domain::id::EventId;
use headcount::domain::period::Period;
use headcount::domain::ring::Position;
use headcount::domain::sketch::hash;
use headcount::domain::sketch::wire;
use headcount::runtime::clock::Clock;
use headcount::runtime::tasks::Tasks;
use headcount::store::counters::Counters;
use headcount::store::records::{RecordKind, Records};

use crate::contract::elements;
use crate::harness::crowd::{arrive, count, users};
use crate::harness::eventually;
use crate::harness::gateway::Gateway;
use crate::harness::process::fresh_dir;

const WRITERS: u64 = 32;
/// Few, so that commits carry sketches that other writers are changing.
const EVENTS: u64 = 5;
/// Some hundred commits.
const ACKNOWLEDGED_PER_ROUND: usize = 5_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_missing_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut told = Vec::new();
    // The second and third child begin on the file that a killed one left.
    for round in 0..3 {
        told.extend(killed_under_load(dir.path(), round));
        let store = EmbeddedStore::open(EmbeddedConfig::new(dir.path()), Clock::real(), Tasks::new()).unwrap();
        for event in 0..EVENTS {
            let blob = store.read(&[address(event)]).await.remove(0).unwrap().expect("a sketch");
            let found = wire::decode(&blob).unwrap();
            for user in told.iter().filter(|user| *user % EVENTS == event) {
                let hit = hash::hit(elements(*user..user + 1)[0].as_bytes());
                assert!(found.get(hit.index) >= hit.rank, "user {user} was acknowledged before kill {round}");
            }
        }
        for user in told.iter().filter(|user| user.is_multiple_of(10)) {
            let record = store.get(RecordKind::Event, &user.to_string()).await.unwrap();
            assert!(record.is_some(), "record {user} was acknowledged before kill {round}");
        }
    }
}

/// Starts a child, kills it while it writes, and answers what it said was stored.
fn killed_under_load(dir: &Path, round: u64) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["durability::child_that_writes_until_it_is_killed", "--exact", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The pipe stays open until the child is dead: a child whose parent is gone stops by itself.
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{} {round}", dir.display()).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut told = Vec::new();
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line).unwrap() == 0 {
            break;
        }
        // A kill can cut the last line short: without its end it says nothing.
        if let Some(user) = line.strip_prefix("stored ").and_then(|rest| rest.strip_suffix('\n')) {
            told.push(user.parse().unwrap());
        }
        if told.len() == ACKNOWLEDGED_PER_ROUND {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(told.len() >= ACKNOWLEDGED_PER_ROUND, "the child stopped by itself after {} writes", told.len());
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of the test above, which tells it the folder"]
async fn child_that_writes_until_it_is_killed() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let Some((dir, round)) = line.trim_end().rsplit_once(' ') else { return };
    let round: u64 = round.parse().unwrap();
    let store = EmbeddedStore::open(EmbeddedConfig::new(dir), Clock::real(), Tasks::new()).unwrap();
    let write = |writer: u64| {
        let store = store.clone();
        async move {
            for i in 0.. {
                let user = ((round << 32) + i) * WRITERS + writer;
                store.add(&address(user % EVENTS), &elements(user..user + 1), None).await.unwrap();
                if user.is_multiple_of(10) {
                    store.put(RecordKind::Event, &user.to_string(), 0, Bytes::from_static(b"{}")).await.unwrap();
                }
                // One call: a line is not torn by another writer's. An error: nobody listens any more.
                if std::io::stdout().write_all(format!("stored {user}\n").as_bytes()).is_err() {
                    std::process::exit(1);
                }
            }
        }
    };
    let tasks = Tasks::new();
    for writer in 0..WRITERS {
        tasks.spawn("writer", write(writer));
    }
    std::future::pending::<()>().await;
}

fn address(event: u64) -> SketchAddress {
    let subject = Subject::Event(EventId::new(&format!("event{event}")).unwrap());
    let counter = Arc::new(Counter { subject, generation: 1, period: Period::All });
    SketchAddress { counter, position: Position::FIRST }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_has_lost_no_visit_it_called_stored() {
    let dir = fresh_dir("data");
    let env = [("HEADCOUNT_DATA_DIR", dir.to_str().unwrap())];
    let mut gateway = Gateway::start(&env).await;
    let (next, stored) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let visitor = |_| async {
        loop {
            let user = format!("user_{}", next.fetch_add(1, Ordering::Relaxed));
            let visit = serde_json::json!({ "user": user });
            let body = Bytes::from(visit.to_string());
            let headers = [("content-type", "application/json")];
            let path = "/v1/events/sale/visits";
            // The first call that finds nobody ends a visitor.
            let Ok(answer) = gateway.public.try_send(hyper::Method::POST, path, &headers, body).await else { return };
            if answer.status == 200 && answer.json()["stored"] == 1 {
                stored.lock().unwrap().push(user);
            }
        }
    };
    let visitors = futures_util::future::join_all((0..16).map(visitor));
    let killer = async {
        eventually("thousands of stored visits", async || stored.lock().unwrap().len() >= 3_000).await;
        gateway.send_kill();
    };
    futures_util::future::join(visitors, killer).await;
    gateway.kill();

    let gateway = Gateway::start(&env).await;
    let before = count(&gateway.public, "sale", "").await;
    let stored = stored.into_inner().unwrap();
    assert_eq!(arrive(&[&gateway.public], "sale", &stored).await, 0, "nothing is buffered on this store");
    let asked_at = before["as_of"].clone();
    let mut after = before.clone();
    eventually("a newer reading", async || {
        after = count(&gateway.public, "sale", "").await;
        after["as_of"] != asked_at && after["stale"] == false
    })
    .await;
    assert_eq!(before["count"], after["count"], "all {} of them were there already", stored.len());
    let lowest = stored.len() as f64 * 0.98;
    assert!(before["count"].as_f64().unwrap() >= lowest, "{before} for {} stored", stored.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_gateway_on_the_same_folder_says_what_to_do() {
    let dir = fresh_dir("data");
    let env = [("HEADCOUNT_DATA_DIR", dir.to_str().unwrap())];
    let mut first = Gateway::start(&env).await;
    let mut second = Gateway::spawn(&env);
    assert!(!second.end().await.success());
    let log = second.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("in use by another Headcount process"), "{log}");
    assert!(last.contains("stop that one first"), "{log}");
    assert!(first.runs(), "the first one goes on");
    arrive(&[&first.public], "sale", &users(0..10)).await;

    first.terminate();
    assert!(first.end().await.success(), "{}", first.log());
    let third = Gateway::start(&env).await;
    assert_eq!(count(&third.public, "sale", "").await["count"], 10, "the folder is free again, and whole");
}
