//! The contract suite: what every store promises, whoever it is. One function a promise; each store runs them all.
//!
//! A promise is tested through the ports alone, on names of its own, so the functions may run in any order and on a
//! store that holds other things. What only one store promises is tested beside that store.

pub mod ledger;
pub mod ledger_stream;
mod outbox;
mod outbox_on_redis;
mod pools;
mod pools_on_redis;
mod records;
mod sharing;
mod sketches;
mod stores;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use headcount::domain::counter::{Counter, SketchAddress, Subject};
use headcount::domain::element::Element;
use headcount::domain::id::EventId;
use headcount::domain::period::Period;
use headcount::domain::ring::{Layout, Position, ring_point};
use headcount::domain::sketch::registers::Sketch;
use headcount::domain::sketch::wire;
use headcount::store::Stores;
use headcount::store::counters::AnswerKey;
use headcount::store::error::StoreError;
use jiff::Timestamp;

/// Puts foreign bytes where a store keeps this sketch.
pub type Spoil<'a> = &'a (dyn Fn(&SketchAddress) + Sync);

/// Runs every promise. The store must be a fresh one: its hash key and facts are set here.
pub async fn upholds_the_promises(stores: &Stores, spoil: Option<Spoil<'_>>) {
    told("adding is what the domain does", sketches::adding_is_what_the_domain_does(stores)).await;
    told("merging raises registers", sketches::merging_raises_registers(stores)).await;
    told("reading keeps the order", sketches::reading_keeps_the_order(stores)).await;
    told("a thousand writers lose nothing", sketches::a_thousand_writers_lose_nothing(stores)).await;
    told("sketches go at their expiry", sketches::sketches_go_at_their_expiry(stores)).await;
    told("a past expiry removes", sketches::a_past_expiry_removes(stores)).await;
    told("subjects and generations are apart", sketches::subjects_and_generations_are_apart(stores)).await;
    told("a union is the domain's", sketches::a_union_is_the_domains(stores)).await;
    told("layouts widen", sharing::layouts_widen(stores)).await;
    told("newer answers stand", sharing::newer_answers_stand(stores)).await;
    told("one asker holds a lease", sharing::one_asker_holds_a_lease(stores)).await;
    told("attendance is counted", sharing::attendance_is_counted(stores)).await;
    told("records are compared and set", records::records_are_compared_and_set(stores)).await;
    told("lists show each id once", records::lists_show_each_id_once(stores)).await;
    told("a deployment agrees", records::a_deployment_agrees(stores)).await;
    told("malformed sketches are refused", sketches::malformed_sketches_are_refused(stores)).await;
    if let Some(spoil) = spoil {
        told("foreign bytes are reported", sketches::foreign_bytes_are_reported(stores, spoil)).await;
    }
}

/// The output of a failed test ends with the promise that was broken.
async fn told(promise: &str, test: impl Future<Output = ()>) {
    eprintln!("promise: {promise}");
    test.await;
}

/// Asks until the store is not too busy any more.
async fn insist<T, F: Future<Output = Result<T, StoreError>>>(ask: impl Fn() -> F) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if error.retry_may_help() && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Unique among all tests of all runs, since some stores are shared.
fn fresh_name(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn fresh_event() -> Counter {
    let subject = Subject::Event(EventId::new(&fresh_name("event")).unwrap());
    Counter { subject, generation: 1, period: Period::Day("2015-05-17".parse().unwrap()) }
}

fn answer_key() -> AnswerKey {
    AnswerKey { subject: fresh_event().subject, generation: 1, question: "d2015-05-17".to_owned() }
}

fn address_of(counter: &Counter) -> SketchAddress {
    at(counter, Position::FIRST)
}

fn at(counter: &Counter, position: Position) -> SketchAddress {
    SketchAddress { counter: Arc::new(counter.clone()), position }
}

fn position(position: u16) -> Position {
    Position::new(position).unwrap()
}

/// Elements as the service makes them: 8 bytes that look random.
pub fn elements(users: std::ops::Range<u64>) -> Vec<Element> {
    let scattered = |user: u64| ring_point(&Element::Keyed(user.to_le_bytes()));
    users.map(|user| Element::Keyed(scattered(user).to_le_bytes())).collect()
}

fn insert(sketch: &mut Sketch, elements: &[Element]) {
    for element in elements {
        sketch.insert(element.as_bytes());
    }
}

fn sketch(elements: &[Element]) -> Sketch {
    let mut sketch = Sketch::new();
    insert(&mut sketch, elements);
    sketch
}

fn blob(users: std::ops::Range<u64>) -> Bytes {
    wire::encode(&sketch(&elements(users))).into()
}

async fn read(stores: &Stores, address: &SketchAddress) -> Option<Sketch> {
    let read = || async { stores.counters.read(std::slice::from_ref(address)).await.remove(0) };
    insist(read).await.map(|blob| wire::decode(&blob).unwrap())
}

async fn layout(stores: &Stores, counter: &Counter) -> Option<Layout> {
    stores.counters.layouts(std::slice::from_ref(counter)).await.unwrap()[0]
}

async fn now_ms(stores: &Stores) -> i64 {
    stores.deployment.now_ms().await.unwrap()
}

async fn from_now(stores: &Stores, ms: i64) -> Timestamp {
    Timestamp::from_millisecond(now_ms(stores).await + ms).unwrap()
}
