//! Promises about what processes share for a while: layouts, answers, leases, attendance.

use bytes::Bytes;
use futures_util::future::join_all;
use headcount::domain::ring::{Layout, Shards};
use headcount::store::Stores;
use headcount::store::counters::{AnswerKey, Lease, Published};

use super::{answer_key, fresh_event, insist, layout, now_ms};
use crate::harness::eventually;

pub async fn layouts_widen(stores: &Stores) {
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

pub async fn newer_answers_stand(stores: &Stores) {
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

pub async fn one_asker_holds_a_lease(stores: &Stores) {
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

pub async fn attendance_is_counted(stores: &Stores) {
    let key = answer_key();
    let attend = |pod, window_ms| stores.counters.attend(&key, pod, window_ms);
    assert_eq!(attend("a", 60_000).await, Ok(1));
    assert_eq!(attend("b", 60_000).await, Ok(2));
    assert_eq!(attend("a", 60_000).await, Ok(2), "a process counts once");
    assert_eq!(stores.counters.attend(&answer_key(), "c", 60_000).await, Ok(1), "each subject has its own");
    eventually("the others out of a short window", async || attend("c", 300).await.unwrap() == 1).await;
}
