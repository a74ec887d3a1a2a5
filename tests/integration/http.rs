//! What callers rely on beside the numbers: versions and conditions, tokens, browsers, the ingress's user, probes.

use bytes::Bytes;
use hyper::Method;
use serde_json::json;

use crate::harness::eventually;
use crate::harness::gateway::Gateway;

const NONE: Bytes = Bytes::new();

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_is_created_once_changed_by_version_and_closed_for_good() {
    let gateway = Gateway::start(&[]).await;
    let admin = &gateway.admin;
    let body = json!({ "admission": "soft", "quota": 10, "opens_at": "2026-01-01T00:00:00Z" });
    let created = admin.put("/v1/campaigns/a%2Fb", &body).await.expect(201);
    assert_eq!(created.header("etag"), Some("\"1\""));
    let again = admin.put("/v1/campaign?campaign=a/b", &body).await.expect(200).json();
    assert_eq!((&again["version"], &again["state"]), (&json!(1), &json!("open")), "{again}");
    let other = json!({ "admission": "soft", "quota": 11, "opens_at": "2026-01-01T00:00:00Z" });
    assert_eq!(admin.put("/v1/campaigns/a%2Fb", &other).await.expect(409).json()["type"], "/problems/conflict");

    let patch = async |version: &str, body: &'static str| {
        admin.send(Method::PATCH, "/v1/campaigns/a%2Fb", &[("if-match", version)], Bytes::from(body)).await
    };
    assert_eq!(patch("\"7\"", r#"{"quota":12}"#).await.expect(412).json()["field"], "If-Match");
    let changed = patch("\"1\"", r#"{"quota":12,"paused":true}"#).await.expect(200).json();
    assert_eq!(changed["state"], "paused", "{changed}");
    let version = format!("\"{}\"", changed["version"]);
    admin.send(Method::POST, "/v1/campaigns/a%2Fb/close", &[("if-match", "\"1\"")], NONE).await.expect(412);
    admin.send(Method::POST, "/v1/campaigns/a%2Fb/close", &[("if-match", &version)], NONE).await.expect(200);
    let closed = admin.send(Method::POST, "/v1/campaigns/a%2Fb/close", &[], NONE).await.expect(200).json();
    assert_eq!((&closed["state"], &closed["quota"]), (&json!("closed"), &json!(12)), "{closed}");
    assert_eq!(admin.get("/v1/campaigns").await.expect(200).json(), json!({ "ids": ["a/b"], "next": null }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_says_why_it_is_refused_and_is_never_kept_on_the_way() {
    let gateway = Gateway::start(&[]).await;
    let far = json!({ "admission": "soft", "quota": 5, "opens_at": "2999-01-01T00:00:00Z" });
    gateway.admin.put("/v1/campaigns/later", &far).await.expect(201);
    gateway.admin.put("/v1/campaigns/now", &json!({ "admission": "soft", "quota": 5 })).await.expect(201);

    let early = gateway.public.post("/v1/campaigns/later/claims", &json!({ "user": "u" })).await.expect(409);
    let seconds: u64 = early.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
    assert!(seconds > 86_400, "{seconds}");
    let problem = early.json();
    assert_eq!((&problem["outcome"], &problem["opens_at"]), (&json!("not_open"), &json!("2999-01-01T00:00:00Z")));

    let granted = gateway.public.post("/v1/claims", &json!({ "campaign": "now", "user": "u" })).await.expect(201);
    assert_eq!(granted.header("cache-control"), Some("no-store"));
    assert_eq!((&granted.json()["outcome"], &granted.json()["user"]), (&json!("granted"), &json!("u")));
    assert!(granted.json().get("claim_id").is_none());

    let kept = [
        (Method::POST, "/v1/campaigns/now/claims/lookup"),
        (Method::GET, "/v1/campaigns/now/claims/c1"),
        (Method::DELETE, "/v1/claim?campaign=now&claim_id=c1"),
        (Method::POST, "/v1/campaigns/now/claims/c1/confirm"),
    ];
    for (method, path) in kept {
        let answer = gateway.public.send(method, path, &[], r#"{"user":"u"}"#.into()).await.expect(404);
        assert_eq!(answer.json()["type"], "/problems/not-kept-by-soft", "{path}");
    }
    gateway.admin.send(Method::POST, "/v1/campaigns/now/close", &[], NONE).await.expect(200);
    eventually("a closed campaign", async || {
        let answer = gateway.public.post("/v1/campaigns/now/claims", &json!({ "user": "v" })).await;
        answer.status == 409 && answer.json()["outcome"] == "closed"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn remaining_is_not_sent_again_while_nothing_visible_changes() {
    let gateway = Gateway::start(&[]).await;
    gateway.admin.put("/v1/campaigns/sale", &json!({ "admission": "soft", "quota": 100 })).await.expect(201);
    let mut tag = String::new();
    eventually("a fresh reading", async || {
        let answer = gateway.public.get("/v1/campaigns/sale/remaining").await;
        tag = answer.header("etag").unwrap_or_default().to_owned();
        answer.status == 200 && answer.header("cache-control") == Some("max-age=1")
    })
    .await;
    let path = "/v1/remaining?campaign=sale";
    let same = gateway.public.send(Method::GET, path, &[("if-none-match", &tag)], NONE).await.expect(304);
    assert!(same.body.is_empty() && same.header("etag") == Some(tag.as_str()), "{same:?}");
    gateway.public.post("/v1/campaigns/sale/claims", &json!({ "user": "u" })).await.expect(201);
    eventually("another tag", async || {
        gateway.public.send(Method::GET, path, &[("if-none-match", &tag)], NONE).await.status == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_token_guards_all_but_probes_metrics_and_the_document() {
    let gateway = Gateway::start(&[("HEADCOUNT_ADMIN_TOKEN", "correct-horse-battery")]).await;
    let admin = &gateway.admin;
    for path in ["/livez", "/readyz", "/readyz?verbose", "/metrics", "/openapi.json"] {
        admin.get(path).await.expect(200);
    }
    for wrong in ["", "Bearer", "Bearer wrong", "Basic correct-horse-battery", "Bearer correct-horse-batter"] {
        let headers = [("authorization", wrong)];
        let answer = admin.send(Method::GET, "/v1/events", &headers, NONE).await.expect(401);
        assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")), "{wrong}");
    }
    admin.get("/v1/events").await.expect(401);
    admin.send(Method::GET, "/v1/events", &[("authorization", "bearer correct-horse-battery")], NONE).await.expect(200);
    let metrics = admin.get("/metrics").await.expect(200).text();
    let counted = "headcount_http_requests_total{method=\"GET\",route=\"/v1/events\",status=\"401\"} 6";
    assert!(metrics.contains(counted), "{metrics}");
    let verbose = admin.get("/readyz?verbose").await.expect(200).json();
    assert_eq!((&verbose["ready"], &verbose["contacted"]), (&json!(true), &json!(true)), "{verbose}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ingress_names_the_user_and_a_body_cannot_name_another() {
    let gateway = Gateway::start(&[("HEADCOUNT_USER_HEADER", "X-User-Id")]).await;
    let send = |headers: &'static [(&str, &str)], path: &'static str, body: &'static str| {
        gateway.public.send(Method::POST, path, headers, Bytes::from(body))
    };
    const ADA: &[(&str, &str)] = &[("x-user-id", "ada")];
    const VISIT: &str = "/v1/events/sale/visits";
    send(ADA, VISIT, "").await.expect(200);
    send(ADA, VISIT, r#"{"user":"ada"}"#).await.expect(200);
    send(ADA, VISIT, "{}").await.expect(200);
    assert_eq!(send(ADA, VISIT, r#"{"user":"eve"}"#).await.expect(422).json()["field"], "user");
    assert_eq!(send(ADA, VISIT, r#"{"users":["ada"]}"#).await.expect(422).json()["field"], "users");
    assert_eq!(send(ADA, "/v1/visits", "").await.expect(422).json()["field"], "body");
    assert_eq!(send(&[], VISIT, r#"{"user":"ada"}"#).await.expect(422).json()["field"], "x-user-id");
    const TWICE: &[(&str, &str)] = &[("x-user-id", "ada"), ("x-user-id", "eve")];
    assert_eq!(send(TWICE, VISIT, "").await.expect(422).json()["rule"], "must be given only once");
    eventually("one user", async || gateway.public.get("/v1/events/sale/count").await.expect(200).json()["count"] == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_listed_origins_may_call_and_others_may_not() {
    let gateway = Gateway::start(&[("HEADCOUNT_CORS_ORIGINS", "https://shop.example, https://m.shop.example")]).await;
    let preflight = async |origin: &str| {
        let headers = [("origin", origin), ("access-control-request-method", "POST")];
        gateway.public.send(Method::OPTIONS, "/v1/events/sale/visits", &headers, NONE).await
    };
    let allowed = preflight("https://m.shop.example").await.expect(204);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://m.shop.example"));
    assert!(allowed.header("access-control-allow-methods").is_some_and(|methods| methods.contains("POST")));
    let refused = preflight("https://evil.example").await.expect(405);
    assert_eq!(refused.header("access-control-allow-origin"), None);
    let answer = async |origin: &str| {
        gateway.public.send(Method::GET, "/v1/count?event=a", &[("origin", origin)], NONE).await.expect(200)
    };
    let listed = answer("https://shop.example").await;
    assert_eq!(listed.header("access-control-allow-origin"), Some("https://shop.example"));
    assert_eq!(listed.header("vary"), Some("Origin"));
    assert_eq!(answer("https://shop.example.evil").await.header("access-control-allow-origin"), None);
}
