//! Bad input, as a table: each request is refused with a problem that names the field and the rule, and nothing of it is
//! counted. The last test shows the good twins of the ids that look bad.

use std::io::Write;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::gateway::{Answer, Api, Gateway};

/// One request, and what must be said of it.
struct Case {
    method: Method,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Bytes,
    status: u16,
    /// The last word of the problem's type.
    kind: &'static str,
    field: &'static str,
    /// A part of the rule.
    rule: &'static str,
}

fn case(method: Method, path: impl Into<String>, body: impl Into<Bytes>) -> Case {
    let (path, body) = (path.into(), body.into());
    Case { method, path, headers: Vec::new(), body, status: 422, kind: "invalid-field", field: "", rule: "" }
}

fn get(path: impl Into<String>) -> Case {
    case(Method::GET, path, Bytes::new())
}

/// A visit on the event that must stay empty.
fn visit(body: impl Into<Bytes>) -> Case {
    case(Method::POST, "/v1/events/untouched/visits", body)
}

fn lines(body: impl Into<Bytes>) -> Case {
    case(Method::POST, "/v1/visits", body)
}

impl Case {
    /// A field that breaks a rule: 422.
    fn breaks(mut self, field: &'static str, rule: &'static str) -> Self {
        (self.field, self.rule) = (field, rule);
        self
    }

    /// A word of a later version: 422.
    fn names_a_later_version(mut self, field: &'static str) -> Self {
        (self.kind, self.field, self.rule) = ("not-in-this-version", field, "is not in this version");
        self
    }

    fn is(mut self, status: u16, kind: &'static str) -> Self {
        (self.status, self.kind) = (status, kind);
        self
    }

    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    writer.write_all(bytes).and_then(|()| writer.finish()).expect("a Vec takes all")
}

fn visits() -> Vec<Case> {
    let long_user = json!({ "user": "x".repeat(257) }).to_string();
    let many: Vec<String> = (0..1_001).map(|n| format!("u{n}")).collect();
    let far_ahead = r#"{"user":"u","at":"2999-01-01T00:00:00Z"}"#;
    vec![
        visit("user=u1").is(400, "malformed").breaks("body", "must be JSON: expected value at line 1 column 1"),
        visit(r#"{"user":"u1""#).is(400, "malformed").breaks("body", "must be JSON: EOF"),
        visit("").is(400, "malformed").breaks("body", "is empty"),
        visit(&b"{\"user\":\"\xff\xfe\"}"[..]).is(400, "malformed").breaks("body", "must be UTF-8"),
        visit(r#"["u1"]"#).breaks("body", "must be a JSON object"),
        visit(r#"{"user":"u1","colour":"red"}"#).breaks("colour", "is not a known field"),
        visit(r#"{"user":7}"#).breaks("user", "must be a string, not integer `7`"),
        visit("{}").breaks("user", "is required"),
        visit(r#"{"user":""}"#).breaks("user", "must not be empty"),
        visit(long_user).breaks("user", "must be at most 256 bytes of UTF-8, got 257"),
        visit(r#"{"user":"a\u0000b"}"#).breaks("user", "must not contain control characters"),
        visit(r#"{"user":"a","users":["b"]}"#).breaks("users", "must not stand beside user"),
        visit(r#"{"users":[]}"#).breaks("users", "must hold 1 to 1000 items, got 0"),
        visit(json!({ "users": many }).to_string()).breaks("users", "must hold 1 to 1000 items, got 1001"),
        visit(r#"{"users":["good",""]}"#).breaks("users[1]", "must not be empty"),
        visit(r#"{"users":["good",null]}"#).breaks("users[1]", "must be a string"),
        visit(r#"{"user":"u","at":"yesterday"}"#).breaks("at", "must be an RFC 3339 time"),
        visit(r#"{"user":"u","at":"2015-05-17T10:05:03"}"#).breaks("at", "must be an RFC 3339 time with a zone"),
        visit(r#"{"user":"u","at":"2015-05-17T10:05:03Z"}"#).breaks("at", "must lie within the retention of 35 days"),
        visit(far_ahead).breaks("at", "must not be more than 5 minutes ahead"),
        visit(r#"{"user":"u","dims":{"geo":"Zhejiang"}}"#).names_a_later_version("dims"),
        visit(vec![b' '; (1 << 20) + 1]).is(413, "too-large").breaks("body", "must be at most 1048576 bytes"),
        visit(gzip(br#"{"user":"u"}"#))
            .with("content-encoding", "gzip")
            .is(415, "unsupported-encoding")
            .breaks("Content-Encoding", "only POST /v1/visits takes gzip"),
        case(Method::POST, "/v1/events/untouched/visits?at=now", r#"{"user":"u"}"#)
            .breaks("at", "is not a known parameter"),
    ]
}

/// The same bad ids in both forms: (percent-encoded, status, kind, rule).
fn ids() -> Vec<Case> {
    let long = "a".repeat(129);
    let bad: [(&str, u16, &str, &str); 8] = [
        ("%2e", 422, "invalid-field", "must not be '.' or '..'"),
        ("%2E%2e", 422, "invalid-field", "must not be '.' or '..'"),
        ("a%00b", 422, "invalid-field", "must not contain control characters"),
        ("a%0Ab", 422, "invalid-field", "must not contain control characters"),
        ("a%20b", 422, "invalid-field", "must not contain white space"),
        ("%E3%80%80", 422, "invalid-field", "must not contain white space"),
        ("%ff", 400, "malformed", "must be UTF-8 when percent-decoded"),
        (&long, 422, "invalid-field", "must be at most 128 bytes of UTF-8, got 129"),
    ];
    let mut cases = Vec::new();
    for (id, status, kind, rule) in bad {
        let forms = [
            (case(Method::POST, format!("/v1/events/{id}/visits"), r#"{"user":"u"}"#), "event"),
            (get(format!("/v1/events/{id}/count")), "event"),
            (get(format!("/v1/count?event={id}")), "event"),
            (get(format!("/v1/campaigns/{id}/remaining")), "campaign"),
            (get(format!("/v1/remaining?campaign={id}")), "campaign"),
        ];
        cases.extend(forms.map(|(case, field)| case.is(status, kind).breaks(field, rule)));
    }
    cases
}

fn many_lines() -> Vec<Case> {
    let line = "{\"event\":\"untouched\",\"user\":\"u\"}\n";
    let bomb = gzip(&vec![b'\n'; 64 << 20]);
    assert!(bomb.len() < 100_000);
    vec![
        lines(line.repeat(10_001)).is(413, "too-large").breaks("body", "must be at most 10000 lines"),
        lines(vec![b' '; (8 << 20) + 1]).is(413, "too-large").breaks("body", "must be at most 8388608 bytes"),
        lines(bomb)
            .with("content-encoding", "gzip")
            .is(413, "too-large")
            .breaks("body", "must be at most 8388608 bytes after inflation"),
        lines(line).with("content-encoding", "gzip").is(400, "malformed").breaks("body", "must be gzip"),
        lines(line)
            .with("content-encoding", "br")
            .is(415, "unsupported-encoding")
            .breaks("Content-Encoding", "must be gzip, identity or absent"),
    ]
}

fn counts() -> Vec<Case> {
    let many: Vec<String> = (0..1_001).map(|n| format!("e{n}")).collect();
    let counts = |body: String| case(Method::POST, "/v1/counts", body);
    vec![
        get("/v1/count").breaks("event", "is required in the query"),
        get("/v1/count?event=a&event=b").breaks("event", "must be given only once"),
        get("/v1/count?event=a&colour=red").breaks("colour", "is not a known parameter"),
        get("/v1/events/a/count?event=b").breaks("event", "is not a known parameter"),
        get("/v1/count?event=a&date=2015-02-30").breaks("date", "must be a date like"),
        get("/v1/count?event=a&date=17.05.2015").breaks("date", "must be a date like"),
        get("/v1/count?event=a&from=2015-05-17").breaks("to", "is required beside from"),
        get("/v1/count?event=a&to=2015-05-17").breaks("from", "is required beside to"),
        get("/v1/count?event=a&from=2015-05-18&to=2015-05-17").breaks("to", "must not be before from"),
        get("/v1/count?event=a&date=2015-05-17&from=2015-05-17&to=2015-05-17").breaks("date", "must not stand beside"),
        get("/v1/count?event=a&period=century").breaks("period", "must be day"),
        get("/v1/count?event=a&period=week").names_a_later_version("period"),
        get("/v1/count?event=a&dim=geo:Zhejiang").names_a_later_version("dim"),
        get("/v1/events/a/series?from=2015-05-17&to=2015-05-18").names_a_later_version("series"),
        get("/v1/events/a/breakdown?dim=geo").names_a_later_version("breakdown"),
        case(Method::POST, "/v1/counts/union", "{}").names_a_later_version("union"),
        counts(json!({ "events": many }).to_string()).breaks("events", "must hold 1 to 1000 items, got 1001"),
        counts(json!({ "events": [] }).to_string()).breaks("events", "must hold 1 to 1000 items, got 0"),
        counts(json!({ "events": ["a", ".."] }).to_string()).breaks("events[1]", "must not be '.' or '..'"),
        counts(json!({ "event": "a" }).to_string()).breaks("event", "is not a known field"),
        counts(json!({ "date": "2015-05-17" }).to_string()).breaks("events", "is required"),
        counts(json!({ "events": ["a"], "dim": "geo:x" }).to_string()).names_a_later_version("dim"),
    ]
}

fn claims() -> Vec<Case> {
    let claim = |body: &'static str| case(Method::POST, "/v1/campaigns/none/claims", body);
    vec![
        claim(r#"{"user":"u"}"#).is(404, "no-such-campaign"),
        claim(r#"{"user":"u","quantity":2}"#).breaks("quantity", "is not a known field"),
        claim(r#"{"user":"u","campaign":"other"}"#).breaks("campaign", "must not stand in the body"),
        case(Method::POST, "/v1/claims", r#"{"user":"u"}"#).breaks("campaign", "is required"),
        case(Method::POST, "/v1/claims", r#"{"campaign":"none"}"#).breaks("user", "is required"),
        get("/v1/campaigns/none/remaining").is(404, "no-such-campaign"),
        get("/v1/campaigns/none/remaining/stream").names_a_later_version("stream"),
        get("/v1/nothing/here").is(404, "not-found"),
        get("/").is(404, "not-found"),
        case(Method::PUT, "/v1/events/a/visits", "").is(405, "method-not-allowed"),
    ]
}

fn management() -> Vec<Case> {
    let campaign = |body: &'static str| case(Method::PUT, "/v1/campaigns/never", body);
    let event = |body: &'static str| case(Method::PUT, "/v1/events/untouched", body);
    vec![
        campaign(r#"{"quota":10}"#).breaks("admission", "is required"),
        campaign(r#"{"admission":"soft"}"#).breaks("quota", "is required"),
        campaign(r#"{"admission":"soft","quota":-1}"#)
            .breaks("quota", "must be a whole number, 0 or more, not integer `-1`"),
        campaign(r#"{"admission":"soft","quota":0}"#).breaks("quota", "must be a whole number from 1 to 1000000000000"),
        campaign(r#"{"admission":"soft","quota":1.5}"#).breaks("quota", "must be a whole number"),
        campaign(r#"{"admission":"soft","quota":1,"shards":12}"#).breaks("shards", "must be a power of two"),
        campaign(r#"{"admission":"soft","quota":1,"opens_at":"soon"}"#).breaks("opens_at", "must be an RFC 3339 time"),
        campaign(
            r#"{"admission":"soft","quota":1,"opens_at":"2026-01-02T00:00:00Z","closes_at":"2026-01-01T00:00:00Z"}"#,
        )
        .breaks("closes_at", "must be after opens_at"),
        campaign(r#"{"admission":"soft","quota":1,"hold_s":900}"#)
            .breaks("hold_s", "belongs to campaigns that are not soft"),
        campaign(r#"{"admission":"hard","quota":1,"hold_s":2592001}"#).breaks("hold_s", "must be a whole number"),
        campaign(r#"{"admission":"hard","quota":1,"shards":128}"#)
            .breaks("shards", "must be a power of two from 1 to 64"),
        campaign(r#"{"admission":"hard","quota":10000001}"#).breaks("quota", "must be at most 10000000"),
        campaign(r#"{"admission":"soft","quota":1,"price":3}"#).breaks("price", "is not a known field"),
        case(Method::PATCH, "/v1/campaigns/never", "{}").breaks("body", "must change something"),
        case(Method::PATCH, "/v1/campaigns/never", r#"{"quota":5}"#).is(404, "no-such-campaign"),
        case(Method::PATCH, "/v1/campaigns/never", r#"{"quota":5}"#)
            .with("if-match", "3")
            .is(400, "malformed")
            .breaks("If-Match", "must be one ETag"),
        event(r#"{"shards":12}"#).breaks("shards", "must be a power of two from 1 to 1024"),
        event(r#"{"shards":"16"}"#).breaks("shards", "must be a whole number, 0 or more"),
        event(r#"{"retention_days":0}"#).breaks("retention_days", "must be a whole number from 1 to 36500"),
        event(r#"{"exact_hours":true}"#).names_a_later_version("exact_hours"),
        event(r#"{"crossed":[["geo","age"]]}"#).names_a_later_version("crossed"),
        get("/v1/events?limit=0").breaks("limit", "must be a whole number from 1 to 1000"),
        get("/v1/campaigns?page=2").breaks("page", "is not a known parameter"),
    ]
}

fn packets() -> Vec<Case> {
    let campaign = |body: String| case(Method::PUT, "/v1/campaigns/never", body);
    let holds = |packets: &str| campaign(format!(r#"{{"admission":"packets","packets":{packets}}}"#));
    let too_many = format!(r#"{{"amounts":[{}1]}}"#, "1,".repeat(530_000));
    vec![
        campaign(r#"{"admission":"packets"}"#.into()).breaks("packets", "is required"),
        campaign(r#"{"admission":"packets","quota":1,"packets":{"amounts":[5]}}"#.into())
            .breaks("quota", "must be absent: the quota is the number of packets"),
        campaign(r#"{"admission":"packets","on_stale":"admit","packets":{"amounts":[5]}}"#.into())
            .breaks("on_stale", "belongs to soft campaigns"),
        campaign(r#"{"admission":"hard","quota":1,"packets":{"amounts":[5]}}"#.into())
            .breaks("packets", "belongs to campaigns with admission packets"),
        holds("[5]").breaks("packets", "must be a JSON object, not sequence"),
        holds("[9,3,1,9,null,null]").breaks("packets", "must be a JSON object, not sequence"),
        holds("5").breaks("packets", "must be a JSON object, not integer `5`"),
        holds("{}").breaks("packets.total_cents", "is required"),
        holds(r#"{"total_cents":9}"#).breaks("packets.count", "is required"),
        holds(r#"{"total_cents":9.5,"count":3}"#)
            .breaks("packets.total_cents", "must be a whole number, not floating point `9.5`"),
        holds(r#"{"total_cents":0,"count":3}"#).breaks("packets.total_cents", "must be from 1 to 9007199254740991"),
        holds(r#"{"total_cents":9007199254740992,"count":3}"#).breaks("packets.total_cents", "must be from 1 to"),
        holds(r#"{"total_cents":9,"count":0}"#).breaks("packets.count", "must be from 1 to 1000000"),
        holds(r#"{"total_cents":2000000,"count":1000001}"#).breaks("packets.count", "must be from 1 to 1000000"),
        holds(r#"{"total_cents":9,"count":10}"#)
            .breaks("packets.total_cents", "must be at least count · min_cents: 10 packets of 1 cents need 10"),
        holds(r#"{"total_cents":9,"count":3,"max_cents":2}"#)
            .breaks("packets.total_cents", "must be at most count · max_cents: 3 packets of 2 cents hold 6"),
        holds(r#"{"total_cents":9,"count":3,"min_cents":0}"#).breaks("packets.min_cents", "must be at least 1 cent"),
        holds(r#"{"total_cents":9,"count":3,"min_cents":3,"max_cents":2}"#)
            .breaks("packets.max_cents", "must be at least min_cents (3)"),
        holds(r#"{"amounts":[]}"#).breaks("packets.count", "must be from 1 to 1000000"),
        holds(r#"{"amounts":[5,0]}"#).breaks("packets.amounts", "number 2 is 0"),
        holds(r#"{"amounts":[5,"1"]}"#).breaks("packets.amounts[1]", "must be a whole number"),
        holds(r#"{"amounts":[9007199254740991,1]}"#).breaks("packets.amounts", "number 2 is 1"),
        holds(r#"{"amounts":[5],"count":1}"#).breaks("packets.amounts", "must be alone"),
        holds(r#"{"amounts":[5],"upload":true}"#).breaks("packets.amounts", "must be alone"),
        holds(&too_many).is(413, "too-large").breaks("body", "must be at most 1048576 bytes"),
        holds(r#"{"upload":true,"total_cents":9}"#).breaks("packets.count", "is required"),
        holds(r#"{"upload":true,"count":10,"total_cents":9}"#).breaks("packets.total_cents", "must be at least count"),
        holds(r#"{"upload":true,"count":3,"total_cents":9,"max_cents":5}"#)
            .breaks("packets.upload", "must be without min_cents and max_cents"),
        holds(r#"{"total_cents":9,"count":3,"colour":"red"}"#).breaks("packets.colour", "is not a known field"),
    ]
}

/// Parts of the list `parts`: three packets, nine cents.
fn parts() -> Vec<Case> {
    let part = |query: &str, body: &'static str| {
        case(Method::POST, format!("/v1/campaigns/parts/packets{query}"), Bytes::from_static(body.as_bytes()))
    };
    let many = case(Method::POST, "/v1/campaigns/parts/packets?first=1", "1\n".repeat(100_001));
    vec![
        part("", "5").breaks("first", "is required"),
        part("?first=0", "5").breaks("first", "must be a whole number from 1 to 1000000"),
        part("?first=one", "5").breaks("first", "must be a whole number from 1 to 1000000"),
        part("?first=1000001", "5").breaks("first", "must be a whole number from 1 to 1000000"),
        part("?first=1&last=2", "5").breaks("last", "is not a known parameter"),
        part("?first=1", "").breaks("body", "must have a line for each packet"),
        part("?first=1", "\n\n").breaks("body", "must have a line for each packet"),
        part("?first=1", "3\n0\n").breaks("line 2", "must be whole cents from 1 to 9007199254740991"),
        part("?first=1", "3\n-1\n").breaks("line 2", "must be whole cents"),
        part("?first=1", "3\n\n1.5\n").breaks("line 3", "must be whole cents"),
        part("?first=1", "\"3\"\n").breaks("line 1", "must be whole cents"),
        part("?first=1", "[3,3,3]").breaks("line 1", "must be whole cents"),
        part("?first=1", "9007199254740992").breaks("line 1", "must be whole cents"),
        part("?first=1", "9007199254740991\n1").breaks("packets.amounts", "number 2 is 1"),
        part("?first=1", "3\n3\n3\n3").breaks("body", "must bring at most 3 packets"),
        part("?first=1", "3\n3\n4").breaks("body", "must fit packets.total_cents (9): with it all are 10"),
        part("?first=1", "3\n3\n2").breaks("body", "must fit packets.total_cents (9): with it all are 8"),
        part("?first=1", "8\n1").breaks("body", "must fit packets.total_cents (9)"),
        part("?first=2", "3").breaks("first", "must be 1, the next packet"),
        many.breaks("body", "must have at most 100000 lines"),
        part("?first=1", "3").with("content-encoding", "gzip").is(400, "malformed").breaks("body", "must be gzip"),
        case(Method::POST, "/v1/campaigns/never/packets?first=1", "5").is(404, "no-such-campaign"),
        get("/v1/campaigns/never/results").is(404, "no-such-campaign"),
    ]
}

async fn refuses(api: &Api, case: Case) {
    let told =
        format!("{} {} {}", case.method, case.path, String::from_utf8_lossy(&case.body[..case.body.len().min(80)]));
    let answer = api.send(case.method, &case.path, &case.headers, case.body).await;
    assert_eq!(answer.status, case.status, "{told}: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{told}");
    let problem = answer.json();
    assert_eq!(problem["type"], format!("/problems/{}", case.kind), "{told}: {problem}");
    assert_eq!(problem["status"], case.status, "{told}");
    assert!(problem["detail"].as_str().is_some_and(|sentence| sentence.len() > 10), "{told}: {problem}");
    assert_eq!(problem["field"].as_str().unwrap_or(""), case.field, "{told}: {problem}");
    assert!(problem["rule"].as_str().unwrap_or("").contains(case.rule), "{told}: {problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_named_and_nothing_is_counted() {
    let gateway = Gateway::start(&[]).await;
    for case in visits().into_iter().chain(ids()).chain(many_lines()).chain(counts()).chain(claims()) {
        refuses(&gateway.public, case).await;
    }
    for case in management().into_iter().chain(packets()) {
        refuses(&gateway.admin, case).await;
    }
    assert_eq!(gateway.public.get("/v1/events/untouched/count").await.expect(200).json()["count"], 0);
    let none = json!([]);
    assert_eq!(gateway.admin.get("/v1/events").await.expect(200).json()["ids"], none);
    assert_eq!(gateway.admin.get("/v1/campaigns").await.expect(200).json()["ids"], none);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_part_of_a_list_leaves_nothing_behind() {
    let gateway = Gateway::start(&[]).await;
    let list = json!({ "admission": "packets", "packets": { "upload": true, "count": 3, "total_cents": 9 } });
    let made = gateway.admin.put("/v1/campaigns/parts", &list).await.expect(201).json();
    for case in parts() {
        refuses(&gateway.admin, case).await;
    }
    assert_eq!(gateway.admin.get("/v1/campaigns/parts").await.expect(200).json(), made);
    let whole = Bytes::from_static(b" 2\r\n\n3\n4");
    let path = "/v1/campaigns/parts/packets?first=1";
    let opened = gateway.admin.send(Method::POST, path, &[], whole).await.expect(200).json();
    assert_eq!((&opened["phase"], &opened["packets"]["loaded"]), (&json!("ready"), &json!(3)), "{opened}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_line_never_spoils_the_others() {
    let gateway = Gateway::start(&[]).await;
    let long = "p".repeat(129);
    let body = format!(
        "{{\"event\":\"lines\",\"user\":\"a\"}}\nnot json\n\n{{\"event\":\"lines\"}}\n{{\"event\":\"{long}\",\"user\":\"b\"}}\n\
         {{\"event\":\"lines\",\"user\":\"c\",\"at\":\"2015-05-17T00:00:00Z\"}}\n{{\"event\":\"lines\",\"user\":\"d\"}}\n\
         {{\"event\":\"lines\",\"user\":\"e\",\"dims\":{{}}}}"
    );
    for headers in [&[][..], &[("content-encoding", "gzip")][..]] {
        let bytes = if headers.is_empty() { body.clone().into_bytes() } else { gzip(body.as_bytes()) };
        let answer = gateway.public.send(Method::POST, "/v1/visits", headers, bytes.into()).await.expect(200).json();
        assert_eq!((&answer["accepted"], &answer["rejected_total"]), (&json!(2), &json!(5)), "{answer}");
        let named: Vec<(u64, &str, &str)> = answer["rejected"].as_array().expect("a list").iter().map(named).collect();
        let expected = [
            (2, "/problems/malformed", "body"),
            (4, "/problems/invalid-field", "user"),
            (5, "/problems/invalid-field", "event"),
            (6, "/problems/invalid-field", "at"),
            (8, "/problems/not-in-this-version", "dims"),
        ];
        assert_eq!(named, expected);
    }
    eventually("both users to be counted", async || count(&gateway, "/v1/count?event=lines").await == 2).await;
}

fn named(rejected: &Value) -> (u64, &str, &str) {
    let error = &rejected["error"];
    (
        rejected["line"].as_u64().unwrap_or(0),
        error["type"].as_str().unwrap_or(""),
        error["field"].as_str().unwrap_or(""),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_with_slashes_and_in_any_script_are_the_same_in_every_form() {
    let gateway = Gateway::start(&[]).await;
    let ids = [
        ("/images/a.png", "%2Fimages%2Fa.png", "/images/a.png"),
        ("双十一", "%E5%8F%8C%E5%8D%81%E4%B8%80", "%E5%8F%8C%E5%8D%81%E4%B8%80"),
        ("a%2Fb", "a%252Fb", "a%252Fb"),
        ("...", "...", "..."),
    ];
    for (id, in_path, in_query) in ids {
        let line = json!({ "event": id, "user": "by line" }).to_string();
        gateway.public.post(&format!("/v1/events/{in_path}/visits"), &json!({ "user": "by path" })).await.expect(200);
        gateway.public.send(Method::POST, "/v1/visits", &[], line.into()).await.expect(200);
        for form in [format!("/v1/events/{in_path}/count"), format!("/v1/count?event={in_query}")] {
            eventually("both to be counted", async || count(&gateway, &form).await == 2).await;
        }
        let batch =
            gateway.public.post("/v1/counts", &json!({ "events": [id, "never-seen"] })).await.expect(200).json();
        assert_eq!((&batch["counts"][0]["event"], &batch["counts"][0]["count"]), (&json!(id), &json!(2)), "{batch}");
        assert_eq!(batch["counts"][1]["count"], 0, "{batch}");
    }
}

async fn count(gateway: &Gateway, path: &str) -> u64 {
    let answer: Answer = gateway.public.get(path).await.expect(200);
    answer.json()["count"].as_u64().expect("a count")
}
