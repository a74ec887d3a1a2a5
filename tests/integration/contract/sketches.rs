//! Promises about sketches: adding, merging, reading, expiring, and what is foreign.

use bytes::Bytes;
use futures_util::future::join_all;
use headcount::domain::counter::{Counter, SketchAddress, Subject};
use headcount::domain::element::Element;
use headcount::domain::id::{CampaignId, EventId};
use headcount::domain::period::Period;
use headcount::domain::ring::{Layout, Shards};
use headcount::domain::sketch::registers::Sketch;
use headcount::domain::sketch::wire;
use headcount::store::Stores;
use headcount::store::error::StoreError;

use super::{
    Spoil, address_of, at, blob, elements, fresh_event, fresh_name, from_now, insert, insist, layout, now_ms, position,
    read, sketch,
};
use crate::harness::eventually;

pub async fn adding_is_what_the_domain_does(stores: &Stores) {
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

pub async fn merging_raises_registers(stores: &Stores) {
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

pub async fn reading_keeps_the_order(stores: &Stores) {
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

pub async fn a_thousand_writers_lose_nothing(stores: &Stores) {
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

pub async fn sketches_go_at_their_expiry(stores: &Stores) {
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

pub async fn a_past_expiry_removes(stores: &Stores) {
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

pub async fn subjects_and_generations_are_apart(stores: &Stores) {
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

pub async fn a_union_is_the_domains(stores: &Stores) {
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

pub async fn malformed_sketches_are_refused(stores: &Stores) {
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

pub async fn foreign_bytes_are_reported(stores: &Stores, spoil: Spoil<'_>) {
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
