//! What becomes of claims: held, confirmed, given back, expired, voided; and of the stock: raised, lowered, closed.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::cluster::RedisCluster;
use crate::harness::eventually;
use crate::harness::gateway::{Answer, Api, Gateway};

/// A campaign on a gateway.
struct Sale<'g> {
    gateway: &'g Gateway,
    id: String,
}

impl<'g> Sale<'g> {
    async fn open(gateway: &'g Gateway, id: &str, body: Value) -> Self {
        let mut whole = json!({ "admission": "hard" });
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        gateway.admin.put(&format!("/v1/campaigns/{id}"), &whole).await.expect(201);
        Self { gateway, id: id.to_owned() }
    }

    fn public(&self) -> &Api {
        &self.gateway.public
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/campaigns/{}{rest}", self.id)
    }

    async fn claim(&self, user: &str) -> Answer {
        self.public().post(&self.path("/claims"), &json!({ "user": user })).await
    }

    async fn claim_with_key(&self, user: &str, key: &str) -> Answer {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        let body = json!({ "user": user }).to_string();
        self.public().send(Method::POST, &self.path("/claims"), &headers, body.into()).await
    }

    async fn confirm(&self, claim_id: &str) -> Answer {
        self.public().post(&self.path(&format!("/claims/{claim_id}/confirm")), &json!({})).await
    }

    async fn release(&self, claim_id: &str) -> Answer {
        self.public().delete(&self.path(&format!("/claims/{claim_id}"))).await
    }

    async fn state(&self, claim_id: &str) -> Value {
        self.public().get(&self.path(&format!("/claims/{claim_id}"))).await.expect(200).json()["state"].clone()
    }

    async fn patch(&self, body: Value) -> Answer {
        self.gateway.admin.patch(&self.path(""), &body).await
    }

    async fn audit(&self) -> Value {
        let audit = self.gateway.admin.get(&self.path("/audit")).await.expect(200).json();
        assert_eq!(audit["balances"], true, "{audit}");
        audit
    }

    /// A user asks until there is a unit.
    async fn eventually_granted(&self, user: &str) -> Value {
        let mut answer = None;
        eventually("a unit that comes back", async || {
            let claimed = self.claim(user).await;
            let granted = claimed.status == 201;
            answer = Some(claimed);
            granted
        })
        .await;
        answer.unwrap().json()
    }
}

fn claim_id(answer: &Value) -> String {
    answer["claim_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_live_and_end_as_promised_on_the_embedded_store() {
    let gateway = Gateway::start(&[]).await;
    lives_of_claims(&gateway).await;
    stock(&gateway).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_live_and_end_as_promised_on_a_cluster() {
    let cluster = RedisCluster::start().await;
    let gateway = Gateway::start(&[("HEADCOUNT_REDIS_URL", &*cluster.url())]).await;
    lives_of_claims(&gateway).await;
    stock(&gateway).await;
}

async fn lives_of_claims(gateway: &Gateway) {
    repeated(gateway).await;
    given_back(gateway).await;
    late(gateway).await;
    strangers(gateway).await;
    voided(gateway).await;
    hours(gateway).await;
}

async fn repeated(gateway: &Gateway) {
    let sale = Sale::open(gateway, "repeated", json!({ "quota": 5, "hold_s": 600 })).await;
    let first = sale.claim("ada").await.expect(201).json();
    for _ in 0..10 {
        let again = sale.claim("ada").await.expect(200).json();
        for field in ["unit", "claim_id", "claimed_at", "deadline", "state"] {
            assert_eq!(again[field], first[field], "{field}");
        }
        assert_eq!(again["outcome"], "already");
    }
    // Quoted or not, it is the same key.
    let keyed = sale.claim_with_key("grace", "key-1").await.expect(201).json();
    for key in ["\"key-1\"", "key-1"] {
        let again = sale.claim_with_key("grace", key).await.expect(201).json();
        assert_eq!((&again["claim_id"], &again["outcome"]), (&keyed["claim_id"], &json!("granted")));
    }
    assert_eq!(sale.claim("grace").await.expect(200).json()["outcome"], "already");
    sale.release(&claim_id(&keyed)).await.expect(200);
    let ended = sale.claim_with_key("grace", "key-1").await.expect(409).json();
    assert_eq!((&ended["outcome"], &ended["state"]), (&json!("ended"), &json!("released")));
    let anew = sale.claim_with_key("grace", "key-2").await.expect(201).json();
    assert_ne!(anew["claim_id"], keyed["claim_id"]);
    assert_eq!(sale.audit().await["held"], 2);
}

async fn given_back(gateway: &Gateway) {
    let sale = Sale::open(gateway, "back", json!({ "quota": 1, "hold_s": 600 })).await;
    let claim = sale.claim("ada").await.expect(201).json();
    assert_eq!(sale.claim("bob").await.expect(409).json()["may_return"], true);
    let releases = (0..100).map(|_| sale.release(claim["claim_id"].as_str().unwrap()));
    for released in futures_util::future::join_all(releases).await {
        assert_eq!(released.expect(200).json()["state"], "released");
    }
    let audit = sale.audit().await;
    assert_eq!(audit["available"].as_u64().unwrap() + audit["cooling"].as_u64().unwrap(), 1, "{audit}");
    let bob = sale.eventually_granted("bob").await;
    assert_eq!(bob["unit"], 1);
    // The unit's holder never hears that it is sold out, and nobody gets it back from him.
    for _ in 0..50 {
        sale.claim("bob").await.expect(200);
    }
    assert_eq!(sale.release(&claim_id(&claim)).await.expect(200).json()["state"], "released");
    assert_eq!(sale.state(&claim_id(&bob)).await, "held");
    assert_eq!(sale.audit().await["held"], 1);
}

async fn late(gateway: &Gateway) {
    let sale = Sale::open(gateway, "late", json!({ "quota": 1, "hold_s": 1 })).await;
    let ada = sale.claim("ada").await.expect(201).json();
    let bob = sale.eventually_granted("bob").await;
    assert_eq!(bob["unit"], ada["unit"]);
    let refused = sale.confirm(&claim_id(&ada)).await.expect(409).json();
    assert_eq!((&refused["outcome"], &refused["state"]), (&json!("late"), &json!("expired")));
    for _ in 0..2 {
        assert_eq!(sale.confirm(&claim_id(&bob)).await.expect(200).json()["state"], "confirmed");
    }
    let refused = sale.release(&claim_id(&bob)).await.expect(409).json();
    assert_eq!(refused["type"], "/problems/claim-confirmed");
    assert_eq!(sale.claim("ada").await.expect(409).json()["outcome"], "sold_out");
    assert_eq!(sale.audit().await["confirmed"], 1);
}

async fn strangers(gateway: &Gateway) {
    let sale = Sale::open(gateway, "strangers", json!({ "quota": 2, "hold_s": 600 })).await;
    let ada = claim_id(&sale.claim("ada").await.expect(201).json());
    let eve = claim_id(&sale.claim("eve").await.expect(201).json());
    // Eve's secret behind what names ada; and nonsense.
    let forged = format!("{}{}", &ada[..30], &eve[30..]);
    for id in [&*forged, "nonsense", &ada[1..]] {
        assert_eq!(sale.confirm(id).await.expect(404).json()["type"], "/problems/no-such-claim");
        assert_eq!(sale.release(id).await.expect(404).json()["type"], "/problems/no-such-claim");
    }
    assert_eq!(sale.state(&ada).await, "held");
    let found = gateway.public.post(&sale.path("/claims/lookup"), &json!({ "user": "ada" })).await.expect(200).json();
    assert_eq!(found["claim_id"], json!(ada));
    gateway.public.post(&sale.path("/claims/lookup"), &json!({ "user": "nobody" })).await.expect(404);
    let query = format!("campaign=strangers&claim_id={ada}");
    gateway.public.get(&format!("/v1/claim?{query}")).await.expect(200);
    gateway.public.post(&format!("/v1/claim/confirm?{query}"), &json!({})).await.expect(200);
}

async fn voided(gateway: &Gateway) {
    let sale = Sale::open(gateway, "voided", json!({ "quota": 1 })).await;
    let ada = claim_id(&sale.claim("ada").await.expect(201).json());
    let void = sale.path(&format!("/claims/{ada}/void"));
    assert_eq!(gateway.admin.post(&void, &json!({})).await.expect(200).json()["state"], "voided");
    assert_eq!(sale.claim("ada").await.expect(409).json()["outcome"], "voided");
    assert_eq!(sale.eventually_granted("bob").await["unit"], 1);
    gateway.public.post(&void, &json!({})).await.expect(404);
}

async fn hours(gateway: &Gateway) {
    let sale = Sale::open(gateway, "hours", json!({ "quota": 3, "opens_at": "2099-01-01T00:00:00Z" })).await;
    let early = sale.claim("ada").await.expect(409);
    assert_eq!(early.json()["outcome"], "not_open");
    assert!(early.header("retry-after").is_some());
    sale.patch(json!({ "opens_at": "2020-01-01T00:00:00Z" })).await.expect(200);
    sale.claim("ada").await.expect(201);
    sale.patch(json!({ "paused": true })).await.expect(200);
    assert_eq!(sale.claim("bob").await.expect(409).json()["outcome"], "paused");
    sale.claim("ada").await.expect(200);
    sale.patch(json!({ "paused": false, "closes_at": "2020-01-02T00:00:00Z" })).await.expect(200);
    assert_eq!(sale.claim("bob").await.expect(409).json()["outcome"], "closed");
    sale.claim("ada").await.expect(200);
}

/// Raised, lowered, raised again: every number once, none issued twice; closed, with holds outstanding.
async fn stock(gateway: &Gateway) {
    let sale = Sale::open(gateway, "stock", json!({ "quota": 10, "shards": 4, "hold_s": 2 })).await;
    for user in 0..4 {
        sale.claim(&format!("user_{user}")).await.expect(201);
    }
    let lowered = sale.patch(json!({ "quota": 2 })).await.expect(200).json();
    assert_eq!((&lowered["quota"], &lowered["quota_target"]), (&json!(4), &json!(4)), "four are held");
    let raised = sale.patch(json!({ "quota": 12 })).await.expect(200).json();
    assert_eq!(raised["quota"], 12);
    let audit = sale.audit().await;
    assert_eq!((&audit["issued"], &audit["retired"]), (&json!(12), &json!(0)), "retired units came back first");
    for user in 4..12 {
        sale.eventually_granted(&format!("user_{user}")).await;
    }
    let closed = gateway.admin.post(&sale.path("/close"), &json!({})).await.expect(200).json();
    assert_eq!(closed["state"], "closed");
    assert_eq!(sale.claim("late").await.expect(409).json()["outcome"], "closed");
    eventually("the last hold to end", async || {
        gateway.admin.get(&sale.path("")).await.expect(200).json()["phase"] == "closed"
    })
    .await;
    let audit = sale.audit().await;
    assert_eq!((&audit["refunded"], &audit["found"]), (&json!(12), &json!(12)), "{audit}");
    let removed = gateway.admin.delete(&sale.path("")).await.expect(200).json();
    assert_eq!(removed["phase"], "removed");
    assert_eq!(sale.claim("user_0").await.expect(409).json()["outcome"], "closed");
    gateway.admin.put(&sale.path(""), &json!({ "admission": "hard", "quota": 1 })).await.expect(409);
}
