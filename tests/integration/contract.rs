//! The contract suite: what every store promises, whoever it is. One function a promise; each store runs them all.
//!
//! A promise is tested through the ports alone, on names of its own, so the functions may run in any order and on a
//! store that holds other things. What only one store promises is tested beside that store.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use headcount::domain::counter::{Counter, SketchAddress, Subject};
use headcount::domain::element::{Element, HashKey, UserHashing};
use headcount::domain::id::{CampaignId, EventId};
use headcount::domain::period::Period;
use headcount::domain::ring::{Layout, Position, Shards, ring_point};
use headcount::domain::sketch::registers::Sketch;
use headcount::domain::sketch::wire;
use headcount::store::Stores;
use headcount::store::counters::{AnswerKey, Lease, Published};
use headcount::store::deployment::{Facts, SCHEMA};
use headcount::store::error::StoreError;
use headcount::store::records::{Put, Record, RecordKind};
use jiff::Timestamp;

use crate::harness::eventually;

/// Puts foreign bytes where a store keeps this sketch.
pub type Spoil<'a> = &'a (dyn Fn(&SketchAddress) + Sync);

/// Runs every promise. The store must be a fresh one: its hash key and facts are set here.
pub async fn upholds_the_promises(stores: &Stores, spoil: Option<Spoil<'_>>) {
    told("adding is what the domain does", adding_is_what_the_domain_does(stores)).await;
    told("merging raises registers", merging_raises_registers(stores)).await;
    told("reading keeps the order", reading_keeps_the_order(stores)).await;
    told("a thousand writers lose nothing", a_thousand_writers_lose_nothing(stores)).await;
    told("sketches go at their expiry", sketches_go_at_their_expiry(stores)).await;
    told("a past expiry removes", a_past_expiry_removes(stores)).await;
    told("subjects and generations are apart", subjects_and_generations_are_apart(stores)).await;
    told("a union is the domain's", a_union_is_the_domains(stores)).await;
    told("layouts widen", layouts_widen(stores)).await;
    told("newer answers stand", newer_answers_stand(stores)).await;
    told("one asker holds a lease", one_asker_holds_a_lease(stores)).await;
    told("attendance is counted", attendance_is_counted(stores)).await;
    told("records are compared and set", records_are_compared_and_set(stores)).await;
    told("lists show each id once", lists_show_each_id_once(stores)).await;
    told("a deployment agrees", a_deployment_agrees(stores)).await;
    told("malformed sketches are refused", malformed_sketches_are_refused(stores)).await;
    if let Some(spoil) = spoil {
        told("foreign bytes are reported", foreign_bytes_are_reported(stores, spoil)).await;
    }
}

/// The output of a failed test ends with the promise that was broken.
async fn told(promise: &str, test: impl Future<Output = ()>) {
    eprintln!("promise: {promise}");
    test.await;
}

async fn adding_is_what_the_domain_does(stores: &Stores) {
    let address = address_of(&fresh_event());
    assert_eq!(read(stores, &address).await, None, "nothing yet");

    let mut expected = Sketch::new();
    // From one element to a full sketch: the store goes through all its encodings.
    for (from, to) in [(0, 1), (1, 10), (5, 2_000), (2_000, 30_000)] {
        let batch = elements(from..to);
        insert(&mut expected, &batch);
        stores.counters.add(&address, &batch, None).await.unwrap();
        assert!(read(stores, &address).await.as_ref() == Some(&expected), "registers after {to} elements");
        stores.counters.add(&address, &batch, None).await.unwrap();
        assert!(read(stores, &address).await.as_ref() == Some(&expected), "again changes nothing");
    }
    let plain = [Element::Plain(b"01".as_slice().into()), Element::Plain("双十一".as_bytes().into())];
    insert(&mut expected, &plain);
    stores.counters.add(&address, &plain, None).await.unwrap();
    assert!(read(stores, &address).await == Some(expected), "raw ids");
}

async fn merging_raises_registers(stores: &Stores) {
    let address = address_of(&fresh_event());
    let mut expected = Sketch::new();
    for (from, to) in [(0, 5), (0, 800), (100, 50_000)] {
        let other = sketch(&elements(from..to));
        expected.merge(&other);
        for _ in 0..2 {
            stores.counters.merge(&address, wire::encode(&other).into(), None).await.unwrap();
            assert!(read(stores, &address).await.as_ref() == Some(&expected), "after merging {from}..{to}");
        }
    }
    let dense = wire::encode_dense(&sketch(&elements(90_000..90_003)));
    insert(&mut expected, &elements(90_000..90_003));
    stores.counters.merge(&address, dense.into(), None).await.unwrap();
    assert!(read(stores, &address).await == Some(expected), "a dense sketch of three");
}

async fn reading_keeps_the_order(stores: &Stores) {
    let event = fresh_event();
    let addresses: Vec<SketchAddress> = Shards::new(64).unwrap().positions().map(|p| at(&event, p)).collect();
    for (i, address) in addresses.iter().enumerate().step_by(2) {
        stores.counters.add(address, &elements(i as u64..i as u64 + 1), None).await.unwrap();
    }
    let read = stores.counters.read(&addresses).await;
    assert_eq!(read.len(), addresses.len());
    for (i, answer) in read.into_iter().enumerate() {
        let found = answer.unwrap().map(|blob| wire::decode(&blob).unwrap());
        let expected = (i % 2 == 0).then(|| sketch(&elements(i as u64..i as u64 + 1)));
        assert!(found == expected, "position {i}");
    }
    assert!(stores.counters.read(&[]).await.is_empty());
}

async fn a_thousand_writers_lose_nothing(stores: &Stores) {
    let address = address_of(&fresh_event());
    let write = |i: u64| {
        let (stores, address) = (stores.clone(), address.clone());
        async move {
            let mine = elements(i * 3..i * 3 + 3);
            insist(|| stores.counters.add(&address, &mine, None)).await;
            let found = read(&stores, &address).await.expect("the sketch just written");
            let mut with_mine = found.clone();
            insert(&mut with_mine, &mine);
            assert!(found == with_mine, "a writer reads what it wrote");
        }
    };
    join_all((0..1000).map(write)).await;
    assert!(read(stores, &address).await == Some(sketch(&elements(0..3000))));
}

async fn sketches_go_at_their_expiry(stores: &Stores) {
    let event = fresh_event();
    let (soon, later, kept) = (at(&event, position(0)), at(&event, position(64)), at(&event, position(128)));
    let (in_a_while, in_an_hour) = (from_now(stores, 1_500).await, from_now(stores, 3_600_000).await);
    stores.counters.add(&soon, &elements(0..3), Some(in_a_while)).await.unwrap();
    stores.counters.merge(&later, blob(0..3), Some(in_an_hour)).await.unwrap();
    stores.counters.add(&kept, &elements(0..3), None).await.unwrap();
    stores.counters.note_layout(&event, Shards::DEFAULT, Some(in_a_while)).await.unwrap();
    eventually("an expired sketch that is gone", async || read(stores, &soon).await.is_none()).await;
    assert!(now_ms(stores).await >= in_a_while.as_millisecond(), "not before its time");
    eventually("an expired layout that is gone", async || layout(stores, &event).await.is_none()).await;
    assert!(read(stores, &later).await.is_some());
    assert!(read(stores, &kept).await.is_some());
}

async fn a_past_expiry_removes(stores: &Stores) {
    let past = Some(from_now(stores, -60_000).await);
    let future = Some(from_now(stores, 3_600_000).await);
    let [unseen, unlimited, kept] = [(); 3].map(|()| address_of(&fresh_event()));
    stores.counters.add(&unseen, &elements(0..3), past).await.unwrap();
    stores.counters.merge(&unseen, blob(0..3), past).await.unwrap();
    assert_eq!(read(stores, &unseen).await, None, "a late write does not bring an old day back");

    stores.counters.add(&unlimited, &elements(0..3), None).await.unwrap();
    stores.counters.add(&unlimited, &elements(3..6), past).await.unwrap();
    assert_eq!(read(stores, &unlimited).await, None, "removed, not only hidden");
    stores.counters.add(&unlimited, &elements(9..10), future).await.unwrap();
    assert!(read(stores, &unlimited).await == Some(sketch(&elements(9..10))), "what was removed stays so");

    stores.counters.add(&kept, &elements(0..3), future).await.unwrap();
    stores.counters.add(&kept, &elements(3..6), past).await.unwrap();
    stores.counters.merge(&kept, blob(6..9), past).await.unwrap();
    let all = Some(sketch(&elements(0..9)));
    assert!(read(stores, &kept).await == all, "who keeps days for less long takes none from the others");
}

async fn subjects_and_generations_are_apart(stores: &Stores) {
    let name = fresh_name("双十一-");
    let day = |text: &str| Period::Day(text.parse().unwrap());
    let event = Subject::Event(EventId::new(&name).unwrap());
    let claimants = Subject::Claimants(CampaignId::new(&name).unwrap());
    let counters = [
        Counter { subject: event.clone(), generation: 1, period: Period::All },
        Counter { subject: event.clone(), generation: 2, period: Period::All },
        Counter { subject: event.clone(), generation: 1, period: day("2015-05-17") },
        Counter { subject: event, generation: 1, period: day("2015-05-18") },
        Counter { subject: claimants, generation: 1, period: Period::All },
    ];
    for (i, counter) in counters.iter().enumerate() {
        stores.counters.add(&address_of(counter), &elements(i as u64..i as u64 + 1), None).await.unwrap();
        stores.counters.note_layout(counter, Shards::new(1 << i).unwrap(), None).await.unwrap();
    }
    let layouts = stores.counters.layouts(&counters).await.unwrap();
    for (i, counter) in counters.iter().enumerate() {
        let found = read(stores, &address_of(counter)).await;
        assert!(found == Some(sketch(&elements(i as u64..i as u64 + 1))), "{counter:?}");
        assert_eq!(layouts[i], Some(Layout::of(Shards::new(1 << i).unwrap())), "{counter:?}");
    }
}

async fn a_union_is_the_domains(stores: &Stores) {
    let parts = [sketch(&elements(0..50)), sketch(&elements(25..3_000)), sketch(&elements(2_000..40_000))];
    for count in 1..=parts.len() {
        let mut union = Sketch::new();
        parts[..count].iter().for_each(|part| union.merge(part));
        let expected = union.estimate().unwrap().round() as u64;
        let blobs = parts[..count].iter().map(|part| wire::encode(part).into()).collect();
        assert_eq!(stores.counters.union(blobs).await, Ok(expected), "{count} sketches");
    }
    let spoiled = vec![blob(0..3), Bytes::from_static(b"HYLL nonsense")];
    let refused = stores.counters.union(spoiled).await;
    assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{refused:?}");
}

async fn layouts_widen(stores: &Stores) {
    let (event, other) = (fresh_event(), fresh_event());
    let [eight, sixteen, many] = [8, 16, 64].map(|n| Shards::new(n).unwrap());
    let note = |shards| stores.counters.note_layout(&event, shards, None);
    assert_eq!(layout(stores, &event).await, None);
    assert_eq!(note(sixteen).await, Ok(Layout::of(sixteen)));
    assert_eq!(note(eight).await, Ok(Layout { coarsest: eight, finest: sixteen }));
    assert_eq!(note(many).await, Ok(Layout { coarsest: eight, finest: many }));
    assert_eq!(note(sixteen).await, Ok(Layout { coarsest: eight, finest: many }));

    stores.counters.note_layout(&other, sixteen, None).await.unwrap();
    let asked = [other.clone(), fresh_event(), event.clone()];
    let expected = [Some(Layout::of(sixteen)), None, Some(Layout { coarsest: eight, finest: many })];
    assert_eq!(stores.counters.layouts(&asked).await.unwrap(), expected);

    let crowd = fresh_event();
    let noters = (0..40).map(|i| {
        let (stores, crowd) = (stores.clone(), crowd.clone());
        let shards = Shards::new(1 << (i % 5 + 2)).unwrap();
        async move {
            let noted = insist(|| stores.counters.note_layout(&crowd, shards, None)).await;
            assert!(noted.covers(shards), "{noted:?} after noting {shards:?}");
        }
    });
    join_all(noters).await;
    let expected = Layout { coarsest: Shards::new(4).unwrap(), finest: many };
    assert_eq!(layout(stores, &crowd).await, Some(expected));
}

async fn newer_answers_stand(stores: &Stores) {
    let key = answer_key();
    let view = stores.counters.published(&key).await.unwrap();
    assert_eq!(view.answer, None);
    assert!(now_ms(stores).await.abs_diff(view.now_ms) < 5_000, "the store's own clock");

    let answer = |as_of_ms, text: &'static str| Published { as_of_ms, body: Bytes::from_static(text.as_bytes()) };
    let publish = |answer| stores.counters.publish(&key, answer);
    let outdated = view.now_ms - 60_000;
    assert_eq!(publish(answer(outdated, "outdated")).await, Ok(true), "the first");
    assert_eq!(publish(answer(outdated - 1, "older")).await, Ok(true), "the one that stood was over 2 s old");
    let ahead = now_ms(stores).await + 3_600_000;
    assert_eq!(publish(answer(ahead, "ahead")).await, Ok(true));
    // From here on the answer that stands is as new as can be: the rest must take less than 2 s, or is asked again.
    eventually("three publications within two seconds", async || {
        let now = now_ms(stores).await;
        let first = publish(answer(now, "now")).await.unwrap();
        let older = publish(answer(now - 1, "older")).await.unwrap();
        let same = publish(answer(now, "same")).await.unwrap();
        let standing = stores.counters.published(&key).await.unwrap();
        let quick = standing.now_ms - now < 1_900;
        if quick {
            assert!(first, "newer, or the one that stood was of the future");
            assert!(!older && !same, "an as new or newer one stands");
            assert_eq!(standing.answer, Some(answer(now, "now")));
        }
        quick
    })
    .await;
    let other = AnswerKey { generation: key.generation + 1, ..key.clone() };
    assert_eq!(stores.counters.published(&other).await.unwrap().answer, None);
}

async fn one_asker_holds_a_lease(stores: &Stores) {
    let key = answer_key();
    let lease_ms = 1_000;
    let ask = |i: u64| {
        let (stores, key) = (stores.clone(), key.clone());
        async move { (i, insist(|| async { stores.counters.lease(&key, &format!("t{i}"), lease_ms).await }).await) }
    };
    let answers = join_all((0..50).map(ask)).await;
    let held = |answer: &Lease| matches!(answer, Lease::Held { left_ms, .. } if *left_ms <= lease_ms);
    let granted: Vec<u64> = answers.iter().filter(|(_, lease)| !held(lease)).map(|(i, _)| *i).collect();
    assert_eq!(granted.len(), 1, "{answers:?}");
    eventually("a lease that has run out", async || !held(&ask(99).await.1)).await;

    // The lease of token t99 is at most a moment old.
    stores.counters.give_back_lease(&key, "t98").await.unwrap();
    let long = answer_key();
    let lease = |token| stores.counters.lease(&long, token, 60_000);
    assert!(matches!(lease("mine").await, Ok(Lease::Granted { .. })));
    stores.counters.give_back_lease(&long, "theirs").await.unwrap();
    assert!(matches!(lease("theirs").await, Ok(Lease::Held { .. })), "only its holder gives it back");
    stores.counters.give_back_lease(&long, "mine").await.unwrap();
    assert!(matches!(lease("theirs").await, Ok(Lease::Granted { .. })));
    stores.counters.give_back_lease(&long, "mine").await.unwrap();
    assert!(matches!(lease("mine").await, Ok(Lease::Held { .. })), "nor does a former one");
}

async fn attendance_is_counted(stores: &Stores) {
    let key = answer_key();
    let attend = |pod, window_ms| stores.counters.attend(&key, pod, window_ms);
    assert_eq!(attend("a", 60_000).await, Ok(1));
    assert_eq!(attend("b", 60_000).await, Ok(2));
    assert_eq!(attend("a", 60_000).await, Ok(2), "a process counts once");
    assert_eq!(stores.counters.attend(&answer_key(), "c", 60_000).await, Ok(1), "each subject has its own");
    eventually("the others out of a short window", async || attend("c", 300).await.unwrap() == 1).await;
}

async fn records_are_compared_and_set(stores: &Stores) {
    let id = fresh_name("record");
    let records = &stores.records;
    assert_eq!(records.get(RecordKind::Event, &id).await, Ok(None));
    assert_eq!(records.put(RecordKind::Event, &id, 1, Bytes::new()).await, Ok(Put::Conflict(None)));
    for version in 0..5 {
        let write = |i: u64| {
            let (records, id) = (records.clone(), id.clone());
            async move {
                let body = Bytes::from(format!("version {version} of {i}"));
                records.put(RecordKind::Event, &id, version, body.clone()).await.map(|put| (put, body))
            }
        };
        let answers = join_all((0..50).map(write)).await;
        let mut written = Vec::new();
        let mut shown = Vec::new();
        for answer in answers {
            match answer {
                Ok((Put::Written { version: new }, body)) => written.push(Record { version: new, body }),
                Ok((Put::Conflict(standing), _)) => shown.extend(standing),
                Err(error) => assert!(error.retry_may_help(), "{error}"),
            }
        }
        assert_eq!(written.len(), 1, "one writer wins version {version}");
        assert_eq!(written[0].version, version + 1);
        assert!(shown.iter().all(|record| *record == written[0]), "a loser sees the winner's");
        assert_eq!(records.get(RecordKind::Event, &id).await, Ok(Some(written.remove(0))));
    }
    assert_eq!(records.get(RecordKind::Campaign, &id).await, Ok(None), "kinds are apart");
    let binary: Bytes = (0..=255).collect::<Vec<u8>>().into();
    let put = records.put(RecordKind::Campaign, &id, 0, binary.clone()).await;
    assert_eq!(put, Ok(Put::Written { version: 1 }));
    assert_eq!(records.get(RecordKind::Campaign, &id).await.unwrap().unwrap().body, binary);
}

async fn lists_show_each_id_once(stores: &Stores) {
    let prefix = fresh_name("listed");
    let mut expected = HashSet::new();
    for i in 0..200 {
        let id = format!("{prefix}/{i}");
        let body = Bytes::from_static(b"{}");
        let put = || stores.records.put(RecordKind::Campaign, &id, 0, body.clone());
        assert_eq!(insist(put).await, Put::Written { version: 1 });
        expected.insert(id);
    }
    for limit in [1, 17, 1000] {
        let mut seen: HashMap<String, u32> = HashMap::new();
        let mut cursor = None;
        loop {
            let page = stores.records.list(RecordKind::Campaign, cursor.as_deref(), limit).await.unwrap();
            assert!(page.ids.len() <= limit, "{} ids on a page of {limit}", page.ids.len());
            page.ids.into_iter().for_each(|id| *seen.entry(id).or_default() += 1);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert!(seen.values().all(|times| *times == 1), "pages of {limit}");
        let ours: HashSet<String> = seen.into_keys().filter(|id| id.starts_with(&prefix)).collect();
        assert_eq!(ours, expected, "pages of {limit}");
    }
    let events = stores.records.list(RecordKind::Event, None, 1000).await.unwrap();
    assert!(events.ids.iter().all(|id| !id.starts_with(&prefix)), "kinds are apart");
}

async fn a_deployment_agrees(stores: &Stores) {
    let deployment = &stores.deployment;
    let propose = |i: u8| async move { deployment.hash_key([i; 16]).await.unwrap() };
    let keys = join_all((1..20).map(propose)).await;
    assert!(keys.iter().all(|key| *key == keys[0]), "one key for all");
    assert!((1..20).any(|i| keys[0] == [i; 16]), "one of those that were proposed");
    assert_eq!(deployment.hash_key([99; 16]).await, Ok(keys[0]));

    let fingerprint = UserHashing::Keyed(HashKey::from_bytes(keys[0])).fingerprint().0;
    let mine = Facts { schema: SCHEMA, zone: "Asia/Shanghai".to_owned(), fingerprint };
    assert_eq!(deployment.agree(&mine).await, Ok(mine.clone()));
    assert_eq!(deployment.agree(&mine).await, Ok(mine.clone()));
    let other = Facts { zone: "UTC".to_owned(), ..mine.clone() };
    assert_eq!(deployment.agree(&other).await, Ok(mine), "the first that was written stands");

    let health = deployment.health();
    assert!(!health.nodes.is_empty() && health.nodes.iter().all(|node| node.up), "{health:?}");
    assert!(!deployment.describe().is_empty());
}

async fn malformed_sketches_are_refused(stores: &Stores) {
    let address = address_of(&fresh_event());
    stores.counters.add(&address, &elements(0..3), None).await.unwrap();
    let cut = blob(0..2_000).slice(..500);
    for malformed in [Bytes::new(), Bytes::from_static(b"HYLL"), Bytes::from_static(b"not a sketch at all"), cut] {
        for address in [&address, &address_of(&fresh_event())] {
            let refused = stores.counters.merge(address, malformed.clone(), None).await;
            assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{refused:?}");
        }
    }
    assert!(read(stores, &address).await == Some(sketch(&elements(0..3))), "nothing is left of them");
}

async fn foreign_bytes_are_reported(stores: &Stores, spoil: Spoil<'_>) {
    let event = fresh_event();
    let [bad, good] = [0, 512].map(|p| at(&event, position(p)));
    for address in [&bad, &good] {
        stores.counters.add(address, &elements(0..3), None).await.unwrap();
    }
    spoil(&bad);
    let mut answers = stores.counters.read(&[bad.clone(), good]).await;
    assert!(answers.remove(1).unwrap().is_some_and(|blob| wire::decode(&blob).is_ok()), "the others are served");
    match answers.remove(0) {
        Ok(Some(blob)) => assert!(wire::decode(&blob).is_err(), "bytes come as they are stored"),
        other => assert!(matches!(other, Err(StoreError::Corrupt(_))), "{other:?}"),
    }
    let added = stores.counters.add(&bad, &elements(3..6), None).await;
    assert!(matches!(added, Err(StoreError::Corrupt(_))), "{added:?}");
    let merged = stores.counters.merge(&bad, blob(0..3), None).await;
    assert!(matches!(merged, Err(StoreError::Corrupt(_))), "{merged:?}");
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

/// The stores. Each test has servers of its own, since the promises set deployment-wide facts.
mod of {
    use std::time::Duration;

    use headcount::adapters::embedded::{EmbeddedConfig, EmbeddedStore};
    use headcount::adapters::redis::{RedisConfig, RedisStore, keys};
    use headcount::domain::counter::SketchAddress;
    use headcount::runtime::clock::Clock;
    use headcount::runtime::tasks::Tasks;
    use headcount::store::Stores;

    use super::upholds_the_promises;
    use crate::harness::cluster::{ClusterOptions, RedisCluster};
    use crate::harness::eventually;
    use crate::harness::redis::{Flavor, RedisServer};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_embedded_store() {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(EmbeddedConfig::new(dir.path()), Clock::real(), Tasks::new()).unwrap();
        upholds_the_promises(&store.stores(), None).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_single_redis() {
        let server = RedisServer::single().await;
        on_server(&server, RedisConfig::new(server.url())).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_redis_with_tls_and_an_acl_user() {
        let server = RedisServer::single_tls().await;
        let (_, files) = server.tls.as_ref().unwrap();
        let ca_pem = Some(std::fs::read(&files.ca).unwrap());
        on_server(&server, RedisConfig { ca_pem, ..RedisConfig::new(server.url()) }).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_single_valkey() {
        let server = RedisServer::valkey().await;
        on_server(&server, RedisConfig::new(server.url())).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_redis_cluster() {
        on_cluster(ClusterOptions::default()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_valkey_cluster() {
        on_cluster(ClusterOptions { flavor: Flavor::Valkey, ..ClusterOptions::default() }).await;
    }

    async fn on_server(server: &RedisServer, config: RedisConfig) {
        on_redis(config, &|address| overwrite(server, address)).await;
        leaves_no_temporary_keys(&server.keys_with(":t:"));
    }

    async fn on_cluster(options: ClusterOptions) {
        let cluster = RedisCluster::start_with(options).await;
        let spoil = |address: &SketchAddress| {
            let owner = cluster.owner_of(keys::sketch(address).slot).unwrap();
            overwrite(&cluster.nodes[owner], address);
        };
        on_redis(RedisConfig::new(cluster.url()), &spoil).await;
        let left: Vec<_> = cluster.keys_with(":t:").into_iter().map(|(_, key)| key).collect();
        leaves_no_temporary_keys(&left);
    }

    fn overwrite(server: &RedisServer, address: &SketchAddress) {
        let key = keys::sketch(address).text;
        assert_eq!(server.command(&[b"EXISTS".as_slice(), &key]).int(), 1, "where the sketch lies");
        server.command(&[b"SET".as_slice(), &key, b"HYLL but foreign"]).ok();
    }

    fn leaves_no_temporary_keys(left: &[Vec<u8>]) {
        let left: Vec<_> = left.iter().map(|key| String::from_utf8_lossy(key)).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    async fn on_redis(config: RedisConfig, spoil: super::Spoil<'_>) {
        // A busy test machine stalls for longer than a user would bear; deadlines have tests of their own.
        let config =
            RedisConfig { command_timeout: Duration::from_secs(5), deadline: Duration::from_secs(10), ..config };
        let tasks = Tasks::new();
        let stores: Stores = RedisStore::start(&config, tasks.clone()).unwrap().stores();
        eventually("first contact", async || stores.deployment.now_ms().await.is_ok()).await;
        upholds_the_promises(&stores, Some(spoil)).await;
        assert!(tasks.finish(Duration::from_secs(5)).await, "every task of the store ends");
    }
}
