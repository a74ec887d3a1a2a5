//! What the embedded store acknowledged is there after a kill -9.
//!
//! A child process (this test binary again) opens the store and writes with many tasks at once, telling each
//! acknowledgement on its standard output. The parent kills it in the middle, opens the folder, and looks for all it
//! was told. Not reproducible: where exactly the kill meets a commit.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

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
