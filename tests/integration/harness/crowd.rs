//! A crowd of users, and how it arrives.

use bytes::Bytes;
use futures_util::StreamExt;
use hyper::Method;
use serde_json::{Value, json};

use super::gateway::Api;

/// Users in one list: the most that a call takes.
const LIST_MAX: usize = 1_000;
/// Calls under way at one time.
const AT_ONCE: usize = 16;

/// The hash key of tests whose figures must not change from run to run.
pub const FIXED_KEY: (&str, &str) = ("HEADCOUNT_HASH_KEY", "000102030405060708090a0b0c0d0e0f");

/// `user_1`, `user_2`, ...
pub fn users(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| format!("user_{i}")).collect()
}

/// Sends users in lists, side by side, over the gateways in turn. Every call must be taken whole. Answers how many
/// visits were buffered.
pub async fn arrive(gateways: &[&Api], event: &str, users: &[String]) -> u64 {
    let calls = users.chunks(LIST_MAX).enumerate().map(|(i, list)| {
        let api = gateways[i % gateways.len()];
        async move {
            let answer = api.post(&format!("/v1/events/{event}/visits"), &json!({ "users": list })).await.expect(200);
            let taken = answer.json();
            assert_eq!(taken["accepted"], list.len(), "{taken}");
            taken["buffered"].as_u64().unwrap()
        }
    });
    let calls: Vec<_> = calls.collect();
    futures_util::stream::iter(calls).buffer_unordered(AT_ONCE).fold(0, |sum, n| async move { sum + n }).await
}

/// Sends visits as lines; answers the gateway's account.
pub async fn arrive_by_line(api: &Api, lines: &[String]) -> Value {
    let body = Bytes::from(lines.join("\n"));
    let headers = [("content-type", "application/x-ndjson")];
    api.send(Method::POST, "/v1/visits", &headers, body).await.expect(200).json()
}

/// The count of an event: today's, or over a span given as a query (`?from=2015-05-17&to=2015-05-20`).
pub async fn count(api: &Api, event: &str, span: &str) -> Value {
    let path = format!("/v1/count?event={}{span}", percent_encoded(event));
    api.get(&path).await.expect(200).json()
}

/// An id as a query takes it.
pub fn percent_encoded(id: &str) -> String {
    percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Panics unless a figure is within a relative bound of the truth.
#[track_caller]
pub fn assert_within(what: &str, figure: f64, truth: f64, relative: f64) {
    let off = (figure - truth) / truth;
    assert!(off.abs() <= relative, "{what}: {figure} against {truth}, off by {:.3} %", off * 100.0);
}
