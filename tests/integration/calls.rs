//! Every call as docs/API.md tells it, on a real gateway.

use std::io::Write;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::harness::crowd::{FIXED_KEY, arrive, count, users};
use crate::harness::eventually;
use crate::harness::gateway::{Api, Gateway};

#[tokio::test(flavor = "multi_thread")]
async fn visits_come_one_by_one_in_lists_and_in_compressed_lines() {
    let gateway = Gateway::start(&[FIXED_KEY]).await;
    let api = &gateway.public;
    let one = api.post("/v1/events/launch/visits", &json!({ "user": "ada" })).await.expect(200).json();
    assert_eq!(one, json!({ "accepted": 1, "stored": 1, "buffered": 0 }));
    api.post("/v1/events/launch/visits", &json!({ "users": ["ada", "grace", "ada"] })).await.expect(200);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    writeln!(gzip, r#"{{"event":"launch","user":"ada"}}"#).unwrap();
    writeln!(gzip, r#"{{"event":"launch","user":"mary"}}"#).unwrap();
    writeln!(gzip, r#"{{"event":"other","user":"ada"}}"#).unwrap();
    let body = Bytes::from(gzip.finish().unwrap());
    let lines = api.send(Method::POST, "/v1/visits", &[("content-encoding", "gzip")], body).await.expect(200).json();
    assert_eq!((&lines["accepted"], &lines["rejected"]), (&json!(3), &json!([])));
    assert_eq!(count(api, "launch", "").await["count"], 3);
    assert_eq!(count(api, "other", "").await["count"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_of_days_ranges_and_many_events() {
    let gateway = Gateway::start(&[FIXED_KEY]).await;
    let api = &gateway.public;
    let today = jiff::Timestamp::now();
    let yesterday = today - jiff::Span::new().hours(24);
    let visit = async |user: &str, at: jiff::Timestamp| {
        let body = json!({ "user": user, "at": at.to_string() });
        api.post("/v1/events/site/visits", &body).await.expect(200);
    };
    visit("ada", yesterday).await;
    visit("ada", today).await;
    visit("grace", today).await;
    let day = |at: jiff::Timestamp| at.to_string()[..10].to_owned();
    let (first, last) = (day(yesterday), day(today));
    assert_eq!(count(api, "site", &format!("&date={first}")).await["count"], 1);
    assert_eq!(count(api, "site", &format!("&period=day&date={last}")).await["count"], 2);
    let range = count(api, "site", &format!("&from={first}&to={last}")).await;
    assert_eq!(range["count"], 2, "ada counts once over the range: {range}");
    assert_eq!((&range["zone"], range["starts_at"].as_str()), (&json!("UTC"), Some(&*format!("{first}T00:00:00Z"))));
    let body = json!({ "events": ["site", "nothing"], "date": last });
    let many = api.post("/v1/counts", &body).await.expect(200).json();
    assert_eq!((&many["counts"][0]["count"], &many["counts"][1]["count"]), (&json!(2), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_starts_anew_and_keeps_the_settings() {
    let gateway = Gateway::start(&[FIXED_KEY]).await;
    let admin = &gateway.admin;
    let created = admin.put("/v1/events/site", &json!({ "shards": 4, "retention_days": 7 })).await.expect(201);
    assert_eq!(created.header("etag"), Some("\"1\""));
    arrive(&[&gateway.public], "site", &users(0..50)).await;
    let stale = admin.send(Method::DELETE, "/v1/events/site", &[("if-match", "\"9\"")], Bytes::new()).await;
    assert_eq!(stale.status, 412, "{}", stale.text());
    let reset = admin.delete("/v1/events/site").await.expect(200).json();
    assert_eq!((&reset["shards"], &reset["retention_days"]), (&json!(4), &json!(7)));
    assert!(reset["generation"].as_u64().unwrap() > 0);
    assert_eq!(count(&gateway.public, "site", "").await["count"], 0);
    arrive(&[&gateway.public], "site", &users(0..3)).await;
    eventually("the new count", async || count(&gateway.public, "site", "").await["count"] == 3).await;
    let events = admin.get("/v1/events").await.expect(200).json();
    assert_eq!(events["ids"], json!(["site"]), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_lives_from_its_opening_to_its_end() {
    let gateway = Gateway::start(&[FIXED_KEY]).await;
    let (api, admin) = (&gateway.public, &gateway.admin);
    let body = json!({ "admission": "soft", "quota": 5, "opens_at": "2099-01-01T00:00:00Z" });
    let path = "/v1/campaigns/sale";
    admin.put(path, &body).await.expect(201);
    admin.put(path, &body).await.expect(200);
    admin.put(path, &json!({ "admission": "soft", "quota": 6 })).await.expect(409);
    let early = claim(api, "ada").await;
    assert_eq!((early.status, &early.json()["outcome"]), (409, &json!("not_open")));
    assert!(early.header("retry-after").is_some());

    let version = admin.get(path).await.expect(200);
    let etag = version.header("etag").unwrap().to_owned();
    let opening = json!({ "opens_at": "2020-01-01T00:00:00Z" }).to_string();
    let patch =
        async |etag: &str| admin.send(Method::PATCH, path, &[("if-match", etag)], opening.clone().into()).await.status;
    assert_eq!(patch("\"99\"").await, 412);
    assert_eq!(patch(&etag).await, 200);
    for user in ["ada", "grace", "mary", "joan", "jean"] {
        let granted = claim(api, user).await.expect(201);
        assert_eq!(granted.json()["outcome"], "granted");
        assert_eq!(granted.header("cache-control"), Some("no-store"));
    }
    assert_eq!(claim(api, "late").await.expect(409).json()["outcome"], "sold_out");
    let left = api.get("/v1/campaigns/sale/remaining").await.expect(200);
    assert_eq!((&left.json()["remaining"], &left.json()["sold_out"]), (&json!(0), &json!(true)));
    assert!(left.header("cache-control").unwrap().contains("max-age=1"));
    let again = [("if-none-match", left.header("etag").unwrap())];
    let same = api.send(Method::GET, "/v1/campaigns/sale/remaining", &again, Bytes::new()).await;
    assert_eq!((same.status, same.body.len()), (304, 0));

    // More places, a pause, the end.
    admin.patch(path, &json!({ "quota": 7 })).await.expect(200);
    claim(api, "late").await.expect(201);
    admin.patch(path, &json!({ "paused": true })).await.expect(200);
    assert_eq!(claim(api, "later").await.expect(409).json()["outcome"], "paused");
    admin.post(&format!("{path}/close"), &json!({})).await.expect(200);
    assert_eq!(claim(api, "later").await.expect(409).json()["outcome"], "closed");
    admin.patch(path, &json!({ "quota": 9 })).await.expect(409);
    assert_eq!(api.get("/v1/campaigns/none/remaining").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged_without_repeats_or_gaps() {
    let gateway = Gateway::start(&[]).await;
    for i in 0..25 {
        gateway
            .admin
            .put(&format!("/v1/campaigns/c{i}"), &json!({ "admission": "soft", "quota": 1 }))
            .await
            .expect(201);
    }
    let mut seen = Vec::new();
    let mut path = "/v1/campaigns?limit=10".to_owned();
    loop {
        let page: Value = gateway.admin.get(&path).await.expect(200).json();
        seen.extend(page["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/campaigns?limit=10&cursor={}", crate::harness::crowd::percent_encoded(next));
    }
    seen.sort();
    let mut expected: Vec<String> = (0..25).map(|i| format!("c{i}")).collect();
    expected.sort();
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ingress_may_name_the_user_and_the_admin_listener_asks_for_its_token() {
    let env = [("HEADCOUNT_USER_HEADER", "x-user"), ("HEADCOUNT_ADMIN_TOKEN", "a-long-enough-secret"), FIXED_KEY];
    let gateway = Gateway::start(&env).await;
    let visit = async |headers: &[(&str, &str)], body: &str| {
        let body = Bytes::from(body.to_owned());
        gateway.public.send(Method::POST, "/v1/events/e/visits", headers, body).await.status
    };
    assert_eq!(visit(&[("x-user", "ada")], "").await, 200);
    assert_eq!(visit(&[("x-user", "ada")], r#"{"user":"ada"}"#).await, 200);
    assert_eq!(visit(&[("x-user", "ada")], r#"{"user":"eve"}"#).await, 422);
    assert_eq!(visit(&[], r#"{"user":"eve"}"#).await, 422);
    assert_eq!(count(&gateway.public, "e", "").await["count"], 1);

    assert_eq!(gateway.admin.get("/v1/events").await.status, 401);
    let token = [("authorization", "Bearer a-long-enough-secret")];
    assert_eq!(gateway.admin.send(Method::GET, "/v1/events", &token, Bytes::new()).await.status, 200);
    for open in ["/livez", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(gateway.admin.get(open).await.status, 200, "{open}");
    }
}

async fn claim(api: &Api, user: &str) -> crate::harness::gateway::Answer {
    api.post("/v1/campaigns/sale/claims", &json!({ "user": user })).await
}
