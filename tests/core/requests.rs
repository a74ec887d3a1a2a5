//! The parsers of requests: properties, and the fuzz target on stable Rust for a bounded time.

use std::time::Duration;

use headcount::api::id;
use headcount::api::query::Known;
use headcount::api::request::{LINES_MAX, VisitBody, VisitLines};
use proptest::prelude::*;
use serde_json::json;

use crate::mutation;

#[path = "../../fuzz/targets/request_parsers.rs"]
mod target;

/// How long the parsers are attacked in every test run; other tests run beside it.
const TIME: Duration = Duration::from_secs(30);

#[test]
fn mutated_requests_never_break_the_parsers() {
    let mut taken = 0;
    let tried = mutation::drive(&seeds(), TIME, |bytes| taken += target::request_parsers(bytes) as u64);
    println!("{tried} mutated requests in {} s, taken {taken} times", TIME.as_secs());
    assert!(taken > 0 && taken < tried, "mutation must make sound requests and unsound ones");
}

fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"user":"u1"}"#,
        r#"{"users":["a","b","双\u00e9\n","a"],"at":"2015-05-17T10:05:03.123Z"}"#,
        r#"{"user":"u1","dims":{"geo":"Zhejiang"}}"#,
        r#"{"campaign":"tickets","user":"u1"}"#,
        r#"{"events":["/a","/b"],"from":"2015-05-17","to":"2015-05-20","period":"day"}"#,
        r#"{"admission":"soft","quota":10000,"opens_at":"2026-11-11T00:00:00+08:00","closes_at":null,"shards":16}"#,
        r#"{"admission":"packets","packets":{"total_cents":100,"count":3},"hold_s":900,"on_stale":"admit"}"#,
        r#"{"quota":12,"paused":true,"closes_at":"2026-11-12T00:00:00Z"}"#,
        r#"{"shards":16,"retention_days":35,"exact_hours":true}"#,
        "{\"event\":\"/a\",\"user\":\"u1\"}\n\n{\"event\":\"/b\",\"user\":2}\r\n{\"event\":\"/a\",\"user\":\"u2\",\"at\":\"2015-05-17T10:05:03Z\"}",
        "/v1/events/%2Fa%2Fb/count?period=day&date=2015-05-17",
        "/v1/count?event=%E5%8F%8C%E5%8D%81%E4%B8%80&from=2015-05-17&to=2015-05-20",
        "/v1/campaigns/a%00b/remaining",
        "/v1/remaining?campaign=a+b",
    ];
    let mut seeds: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    seeds.push(gzip(texts[9].as_bytes()));
    seeds
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).and_then(|()| writer.finish()).expect("a Vec takes all")
}

/// Ids as the rules allow them, in any script.
fn an_id() -> impl Strategy<Value = String> {
    "[^\\p{Cc}\\s]{1,40}"
        .prop_filter("at most 128 bytes, and no folder", |id| id.len() <= 128 && !matches!(id.as_str(), "." | ".."))
}

fn a_user() -> impl Strategy<Value = String> {
    "[^\\p{Cc}]{1,64}".prop_filter("at most 256 bytes", |user| user.len() <= 256)
}

/// Percent-encodes every byte but letters and digits.
fn encoded(id: &str) -> String {
    percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC).to_string()
}

proptest! {
    #[test]
    fn an_id_arrives_as_it_was_sent(id in an_id()) {
        for uri in [format!("/v1/events/{}/count", encoded(&id)), format!("/v1/count?event={}", encoded(&id))] {
            let (event, _) = id::event(&uri.parse().unwrap(), Known::default()).unwrap();
            prop_assert_eq!(event.as_str(), &id);
        }
    }

    #[test]
    fn users_arrive_as_they_were_sent(users in proptest::collection::vec(a_user(), 1..50)) {
        let bytes = json!({ "users": users }).to_string().into_bytes();
        let body = VisitBody::parse(&bytes).unwrap();
        let visitors = body.visitors(None).unwrap();
        let arrived: Vec<&str> = visitors.as_slice().iter().map(|user| user.as_str()).collect();
        prop_assert_eq!(arrived, users);
    }

    #[test]
    fn each_line_is_a_visit_or_a_rejection_under_its_own_number(
        lines in proptest::collection::vec((an_id(), a_user(), 0..4u8), 1..60)
    ) {
        let texts: Vec<String> = lines.iter().map(|(event, user, kind)| match kind {
            0 => String::new(),
            1 => json!({ "event": event, "user": 7 }).to_string(),
            _ => json!({ "event": event, "user": user }).to_string(),
        }).collect();
        let body = texts.join("\n");
        let parsed = VisitLines::parse(body.as_bytes()).unwrap();
        let checked = parsed.check();
        for (visit, number) in checked.visits.iter().zip(&checked.lines) {
            let (event, user, kind) = &lines[number - 1];
            prop_assert!(*kind > 1);
            prop_assert_eq!((visit.event.as_str(), visit.user.as_str()), (event.as_str(), user.as_str()));
        }
        let rejected: Vec<usize> = checked.rejected.iter().map(|(number, _)| *number).collect();
        let bad = lines.iter().zip(1..).filter(|(line, _)| line.2 == 1).map(|(_, number)| number);
        prop_assert_eq!(rejected, bad.collect::<Vec<usize>>());
        prop_assert_eq!(checked.visits.len(), lines.iter().filter(|line| line.2 > 1).count());
    }

    #[test]
    fn no_bytes_break_a_parser(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        target::request_parsers(&bytes);
    }
}

#[test]
fn one_line_too_many_is_refused_whole() {
    let line = "{\"event\":\"e\",\"user\":\"u\"}\n";
    assert_eq!(VisitLines::parse(line.repeat(LINES_MAX).as_bytes()).unwrap().check().visits.len(), LINES_MAX);
    let problem = VisitLines::parse(line.repeat(LINES_MAX + 1).as_bytes()).unwrap_err();
    assert_eq!(problem.status(), 413);
}
