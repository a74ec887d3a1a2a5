//! A real web site's access log, sent as visits through HTTP: counts agree with exact truth, and sending it again
//! changes nothing.

use std::io::Read;

use serde_json::{Value, json};

use crate::harness::cluster::RedisCluster;
use crate::harness::crowd::{FIXED_KEY, arrive_by_line, assert_within, count};
use crate::harness::gateway::{Api, Gateway};

const LOG: &[u8] = include_bytes!("data/access-2015-05.log.gz");
const TRUTH: &str = include_str!("data/access-2015-05.truth.json");
/// On a busy machine a command may take longer than the default allows, and then visits are buffered.
const PATIENT: (&str, &str) = ("HEADCOUNT_REDIS_TIMEOUT_MS", "5000");
/// The log is of 2015.
const RETENTION: (&str, &str) = ("HEADCOUNT_RETENTION_DAYS", "9000");
/// Lines in one call: the most that it takes.
const LINES_MAX: usize = 10_000;

/// One request of the log.
struct Hit {
    client: String,
    at: jiff::Timestamp,
    /// Without the query.
    path: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_log_is_counted_right_on_a_cluster() {
    let cluster = RedisCluster::start().await;
    let gateway = Gateway::start(&[("HEADCOUNT_REDIS_URL", &cluster.url()), PATIENT, RETENTION, FIXED_KEY]).await;
    the_log_is_counted_right(&gateway.public).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_log_is_counted_right_on_the_embedded_store() {
    let gateway = Gateway::start(&[RETENTION, FIXED_KEY]).await;
    the_log_is_counted_right(&gateway.public).await;
}

async fn the_log_is_counted_right(api: &Api) {
    let hits = hits();
    let too_long = hits.iter().filter(|hit| hit.path.len() > 128).count();
    assert!(too_long > 0, "the log has a path over 128 bytes");
    for _ in 0..3 {
        let whole = send(api, &hits, |_| "site").await;
        assert_eq!((whole.accepted, whole.rejected.len()), (hits.len(), 0));
        let by_path = send(api, &hits, |hit| &hit.path).await;
        assert_eq!((by_path.accepted, by_path.rejected.len()), (hits.len() - too_long, too_long));
        let refusal = &by_path.rejected[0];
        let line = refusal["line"].as_u64().unwrap() as usize;
        assert!(hits[line - 1].path.len() > 128, "{refusal}");
        assert_eq!(refusal["error"]["field"], "event", "{refusal}");
        assert!(refusal["error"]["detail"].as_str().unwrap().contains("at most 128 bytes"), "{refusal}");
    }
    agrees_with_truth(api).await;
}

async fn agrees_with_truth(api: &Api) {
    let truth: Value = serde_json::from_str(TRUTH).unwrap();
    for (day, users) in truth["unique_by_day_utc"].as_object().unwrap() {
        let answer = count(api, "site", &format!("&date={day}")).await;
        assert_within(day, answer["count"].as_f64().unwrap(), users.as_f64().unwrap(), 0.01);
    }
    let span = "&from=2015-05-17&to=2015-05-20";
    let whole = count(api, "site", span).await;
    assert_within("all", whole["count"].as_f64().unwrap(), truth["unique_clients"].as_f64().unwrap(), 0.01);
    for (path, users) in truth["unique_by_path_top20"].as_object().unwrap() {
        let answer = count(api, path, span).await;
        assert_within(path, answer["count"].as_f64().unwrap(), users.as_f64().unwrap(), 0.01);
    }
}

/// The gateway's account of all calls together; lines are numbered over the whole log.
#[derive(Default)]
struct Account {
    accepted: usize,
    rejected: Vec<Value>,
}

async fn send<'a>(api: &Api, hits: &'a [Hit], event: impl Fn(&'a Hit) -> &'a str) -> Account {
    let mut account = Account::default();
    let lines: Vec<String> = hits
        .iter()
        .map(|hit| json!({ "event": event(hit), "user": hit.client, "at": hit.at.to_string() }).to_string())
        .collect();
    for (i, chunk) in lines.chunks(LINES_MAX).enumerate() {
        let answer = arrive_by_line(api, chunk).await;
        assert_eq!(answer["buffered"], 0, "{answer}");
        account.accepted += answer["accepted"].as_u64().unwrap() as usize;
        for rejected in answer["rejected"].as_array().unwrap() {
            let mut rejected = rejected.clone();
            rejected["line"] = json!(rejected["line"].as_u64().unwrap() as usize + i * LINES_MAX);
            account.rejected.push(rejected);
        }
    }
    account
}

fn hits() -> Vec<Hit> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(LOG).read_to_string(&mut text).unwrap();
    text.lines().map(hit).collect()
}

/// `198.18.0.1 - - [17/May/2015:10:05:03 +0000] "GET /path?query HTTP/1.1" 200 …`
fn hit(line: &str) -> Hit {
    let (client, _) = line.split_once(' ').unwrap();
    let time = line.split(['[', ']']).nth(1).unwrap();
    let request = line.split('"').nth(1).unwrap();
    let target = request.split(' ').nth(1).unwrap();
    let at = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", time).unwrap().to_timestamp().unwrap();
    Hit { client: client.to_owned(), at, path: target.split('?').next().unwrap().to_owned() }
}
