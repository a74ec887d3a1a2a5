//! The gate itself, without an ingress before it.

use bytes::Bytes;
use hyper::Method;
use serde_json::json;

use crate::harness::eventually;
use crate::harness::gateway::{Answer, Gateway};
use crate::harness::redis::RedisServer;

const USER: (&str, &str) = ("HEADCOUNT_USER_HEADER", "X-User-Id");
/// On a busy machine a claim may take longer than the gate's 150 ms, and would be denied for now.
const PATIENT: (&str, &str) = ("HEADCOUNT_GATE_WAIT_MS", "20000");

/// Asks as `user`.
async fn ask(gateway: &Gateway, method: &str, path: &str, user: &str) -> Answer {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    gateway.public.send(method, path, &[("x-user-id", user)], Bytes::new()).await
}

/// Status and outcome.
fn told(answer: &Answer) -> (u16, &str) {
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    (answer.status, answer.header("x-headcount-outcome").unwrap_or_default())
}

async fn taken(gateway: &Gateway, campaign: &str) -> u64 {
    let books = gateway.admin.get(&format!("/v1/campaign/audit?campaign={campaign}")).await.expect(200).json();
    assert_eq!(books["balances"], true, "{books}");
    books["held"].as_u64().unwrap() + books["confirmed"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_and_every_path_behind_it_claims_but_those_that_look() {
    let gateway = Gateway::start(&[USER, PATIENT]).await;
    let body = json!({ "admission": "hard", "quota": 100, "shards": 1 });
    gateway.offer("a%2Fb", &body).await;
    let paths =
        ["/gate/a%2Fb", "/gate/a%2Fb/", "/gate/a%2Fb/buy/it?x=1&x=2", "/gate/a%2Fb//x", "/gate/a%2Fb?campaign=c"];
    let mut users = 0;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PURGE"] {
        for path in paths {
            let user = format!("user_{users}");
            let looked = ask(&gateway, "HEAD", path, &user).await;
            assert_eq!(told(&looked), (403, "no-claim"), "HEAD {path}");
            let claimed = ask(&gateway, method, path, &user).await;
            assert_eq!(told(&claimed), (200, "granted"), "{method} {path}");
            assert!(claimed.header("x-headcount-claim-id").is_some() && claimed.header("x-headcount-unit").is_some());
            for again in [method, "OPTIONS", "HEAD"] {
                assert_eq!(told(&ask(&gateway, again, path, &user).await), (200, "already"), "{again} {path}");
            }
            let checked = path.replace("/gate/", "/check/");
            assert_eq!(told(&ask(&gateway, method, &checked, &user).await), (200, "already"), "{method} {checked}");
            users += 1;
        }
    }
    for path in paths {
        assert_eq!(told(&ask(&gateway, "POST", &path.replace("/gate/", "/check/"), "nobody").await), (403, "no-claim"));
        for named in ["X-Original-Method", "X-Forwarded-Method"] {
            let headers = [("x-user-id", "nobody"), (named, "OPTIONS")];
            let looked = gateway.public.send(Method::GET, path, &headers, Bytes::new()).await;
            assert_eq!(told(&looked), (403, "no-claim"), "{named} {path}");
        }
    }
    let headers = [("x-user-id", "buyer"), ("x-original-method", "POST")];
    let bought = gateway.public.send(Method::GET, "/gate/a%2Fb", &headers, Bytes::new()).await;
    assert_eq!(told(&bought), (200, "granted"));
    assert_eq!(taken(&gateway, "a/b").await, users + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_named_or_asks_for_what_is_not_there_is_denied() {
    let gateway = Gateway::start(&[USER, PATIENT, ("HEADCOUNT_CORS_ORIGINS", "https://shop.example")]).await;
    gateway.offer("sale", &json!({ "admission": "hard", "quota": 5 })).await;
    let send = async |method: Method, path: &str, headers: &[(&str, &str)]| {
        gateway.public.send(method, path, headers, Bytes::from_static(b"{\"user\":\"ada\"}")).await
    };
    assert_eq!(told(&send(Method::POST, "/gate/sale", &[]).await), (403, "invalid-field"));
    assert_eq!(told(&send(Method::POST, "/gate/sale", &[("x-user-id", "")]).await), (403, "invalid-field"));
    let two = [("x-user-id", "ada"), ("x-user-id", "eve")];
    assert_eq!(told(&send(Method::POST, "/gate/sale", &two).await), (403, "invalid-field"));
    let ada = [("x-user-id", "ada")];
    for path in ["/gate/nothing", "/check/nothing"] {
        assert_eq!(told(&send(Method::POST, path, &ada).await), (403, "no-such-campaign"), "{path}");
    }
    assert_eq!(told(&send(Method::POST, "/gate/%ff", &ada).await), (403, "malformed"));
    let bad_key = [("x-user-id", "ada"), ("idempotency-key", "")];
    assert_eq!(told(&send(Method::POST, "/gate/sale", &bad_key).await).0, 403);
    // A preflight that was answered 204 here would be an admission to some ingresses.
    let preflight =
        [("x-user-id", "ada"), ("origin", "https://shop.example"), ("access-control-request-method", "POST")];
    assert_eq!(told(&send(Method::OPTIONS, "/gate/sale", &preflight).await), (403, "no-claim"));
    assert_eq!(taken(&gateway, "sale").await, 0);

    let unset = Gateway::start(&[]).await;
    unset.offer("sale", &json!({ "admission": "hard", "quota": 5 })).await;
    assert_eq!(told(&ask(&unset, "POST", "/gate/sale", "ada").await), (403, "invalid-field"), "no header is named");
    assert_eq!(taken(&unset, "sale").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_denial_is_the_deployments_choice() {
    let gateway = Gateway::start(&[USER, PATIENT, ("HEADCOUNT_GATE_DENY_STATUS", "429")]).await;
    gateway.offer("sale", &json!({ "admission": "hard", "quota": 1 })).await;
    let later = json!({ "admission": "hard", "quota": 1, "opens_at": "2999-01-01T00:00:00Z" });
    gateway.offer("later", &later).await;
    assert_eq!(told(&ask(&gateway, "GET", "/gate/sale", "ada").await), (200, "granted"));
    let denied = ask(&gateway, "GET", "/gate/sale", "bob").await;
    assert_eq!((told(&denied), denied.header("x-headcount-remaining")), ((429, "sold_out"), Some("0")));
    let early = ask(&gateway, "GET", "/gate/later", "ada").await;
    assert_eq!(told(&early), (429, "not_open"));
    assert!(early.header("retry-after").is_some());
    let metrics = gateway.admin.get("/metrics").await.expect(200).text();
    let counted = "headcount_http_requests_total{method=\"ANY\",route=\"/gate/{campaign}\",status=\"429\"} 2";
    assert!(metrics.contains(counted), "{metrics}");
}

/// The store's own deadline is a minute here, so an answer while the store hangs can only be the gate's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_hangs_denies_within_the_gates_own_deadline() {
    let redis = RedisServer::single().await;
    let env = [USER, ("HEADCOUNT_REDIS_URL", &*redis.url()), ("HEADCOUNT_REDIS_TIMEOUT_MS", "30000")];
    let gateway = Gateway::start(&env).await;
    gateway.offer("sale", &json!({ "admission": "hard", "quota": 5, "shards": 1 })).await;
    eventually("ada to be let in", async || ask(&gateway, "POST", "/gate/sale", "ada").await.status == 200).await;
    redis.stop();
    for (path, user) in [("/gate/sale", "bob"), ("/check/sale", "cleo"), ("/gate/sale", "bob")] {
        let denied = ask(&gateway, "POST", path, user).await;
        assert_eq!(denied.status, 403, "{denied:?}");
        assert!(denied.header("retry-after").is_some(), "{denied:?}");
    }
    redis.cont();
    eventually("bob to be let in", async || {
        let answer = ask(&gateway, "POST", "/gate/sale", "bob").await;
        // Granted now, or already by what was under way.
        answer.status == 200
    })
    .await;
    assert_eq!(taken(&gateway, "sale").await, 2, "ada's and one of bob's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_campaign_admits_without_keeping_whom() {
    let gateway = Gateway::start(&[USER, PATIENT]).await;
    gateway.offer("sale", &json!({ "admission": "soft", "quota": 3 })).await;
    let granted = ask(&gateway, "POST", "/gate/sale/x", "ada").await;
    assert_eq!(told(&granted), (200, "granted"));
    assert!(granted.header("x-headcount-remaining").is_some(), "{granted:?}");
    assert_eq!((granted.header("x-headcount-unit"), granted.header("x-headcount-claim-id")), (None, None));
    assert_eq!(told(&ask(&gateway, "HEAD", "/gate/sale", "ada").await), (403, "not-kept-by-soft"));
    assert_eq!(told(&ask(&gateway, "GET", "/check/sale", "ada").await), (403, "not-kept-by-soft"));
    let mut users = 0;
    eventually("a soft sale that is sold out", async || {
        users += 1;
        told(&ask(&gateway, "GET", "/gate/sale", &format!("user_{users}")).await) == (403, "sold_out")
    })
    .await;
}
