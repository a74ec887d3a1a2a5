//! What a client sees of accuracy, with a fixed hash key, so that every run gives the same figures.

use futures_util::StreamExt;

use crate::harness::crowd::{FIXED_KEY, arrive, assert_within, count, users};
use crate::harness::gateway::Gateway;

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_users_are_counted_within_half_a_percent() {
    let gateway = Gateway::start(&[FIXED_KEY]).await;
    arrive(&[&gateway.public], "launch", &users(0..100_000)).await;
    let answer = count(&gateway.public, "launch", "").await;
    assert_within("count", answer["count"].as_f64().unwrap(), 100_000.0, 0.005);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_published_error_holds_for_at_least_93_of_100_events() {
    const EVENTS: usize = 100;
    const USERS: usize = 20_000;
    let gateway = Gateway::start(&[("HEADCOUNT_HASH_KEY", "00000000000000000000000000000001")]).await;
    let api = &gateway.public;
    let events: Vec<_> = (0..EVENTS)
        .map(|event| async move {
            let crowd: Vec<String> = (0..USERS).map(|user| format!("visitor {user} of {event}")).collect();
            arrive(&[api], &format!("e{event}"), &crowd).await;
            let answer = count(api, &format!("e{event}"), "").await;
            (answer["count"].as_f64().unwrap() / USERS as f64 - 1.0, answer["error_95"].as_f64().unwrap())
        })
        .collect();
    let seen: Vec<(f64, f64)> = futures_util::stream::iter(events).buffer_unordered(2).collect().await;
    let held = seen.iter().filter(|(off, error_95)| off.abs() <= *error_95).count();
    let mean = seen.iter().map(|(off, _)| off).sum::<f64>() / EVENTS as f64;
    let rms = (seen.iter().map(|(off, _)| off * off).sum::<f64>() / EVENTS as f64).sqrt();
    println!("{held} of {EVENTS} held; mean {:+.4} %, rms {:.4} %", 100.0 * mean, 100.0 * rms);
    assert!(held >= 93, "the 95 % error held for {held} of {EVENTS} events");
}
