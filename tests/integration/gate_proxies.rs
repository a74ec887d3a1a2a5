//! The gate behind real ingresses, set up as docs/GATE.md tells its readers to.

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::gateway::{Answer, Gateway};
use crate::harness::proxies::{CUSTOMERS, Kind, Proxy, authorization};
use crate::harness::shop::{Seen, Shop};

const QUOTA: u64 = 4;
/// On a busy machine a claim may take longer than the gate's 150 ms, and would be denied for now.
const PATIENT: (&str, &str) = ("HEADCOUNT_GATE_WAIT_MS", "20000");

#[tokio::test(flavor = "multi_thread")]
async fn nginx_lets_in_exactly_who_has_a_unit() {
    let mut stage = Stage::set(Kind::Nginx).await;
    stage.play().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_lets_in_exactly_who_has_a_unit() {
    let mut stage = Stage::set(Kind::Envoy).await;
    stage.play().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn traefik_lets_in_exactly_who_has_a_unit() {
    let mut stage = Stage::set(Kind::Traefik).await;
    stage.play().await;
}

/// One gateway with a campaign, a shop, and a proxy between them for each of the gate's two calls.
struct Stage {
    kind: Kind,
    gateway: Gateway,
    shop: Shop,
    gate: Proxy,
    check: Proxy,
}

impl Stage {
    async fn set(kind: Kind) -> Self {
        let gateway = Gateway::start(&[("HEADCOUNT_USER_HEADER", "X-User-Id"), PATIENT]).await;
        let shop = Shop::open().await;
        let body = json!({ "admission": "hard", "quota": QUOTA, "shards": 2, "hold_s": 900, "opens_at": "2999-01-01T00:00:00Z" });
        gateway.offer("tickets", &body).await;
        let gate = Proxy::start(kind, "/gate/tickets", &gateway.public.authority, &shop.authority).await;
        let check = Proxy::start(kind, "/check/tickets", &gateway.public.authority, &shop.authority).await;
        Self { kind, gateway, shop, gate, check }
    }

    async fn play(&mut self) {
        self.nobody_before_the_opening_and_nobody_unknown().await;
        self.open().await;
        self.looking_takes_nothing().await;
        let claim_id = self.a_buyer_is_let_in_and_stays_in().await;
        self.the_key_of_an_order_reaches_the_gate(&claim_id).await;
        self.the_sale_sells_out().await;
        self.the_check_takes_nothing().await;
        self.what_the_gate_does_not_say_nobody_brings_along().await;
        self.without_a_gateway_nobody_is_let_in().await;
    }

    async fn nobody_before_the_opening_and_nobody_unknown(&self) {
        let early = self.buy(Method::GET, "/buy", "ada", &[]).await;
        self.assert_denied(&early, "not_open");
        let seconds: u64 =
            early.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds to the opening");
        assert!(seconds > 86_400, "{seconds}");
        let forged = [("x-user-id", "ada")];
        self.gate.api.send(Method::GET, "/buy", &forged, Bytes::new()).await.expect(401);
        let guess = [("authorization", &*authorization("ada", "guess")), ("x-user-id", "ada")];
        self.gate.api.send(Method::GET, "/buy", &guess, Bytes::new()).await.expect(401);
        assert_eq!(self.taken().await, 0);
    }

    async fn open(&self) {
        let opened = json!({ "opens_at": "2026-01-01T00:00:00Z" });
        self.gateway.admin.patch("/v1/campaigns/tickets", &opened).await.expect(200);
        // The gateway rereads the campaign within a second. A soft look at remaining does not claim.
        eventually("an open campaign", async || {
            self.gateway.public.get("/v1/campaigns/tickets/remaining").await.expect(200).json()["state"] == "open"
        })
        .await;
    }

    async fn looking_takes_nothing(&self) {
        for method in [Method::HEAD, Method::OPTIONS] {
            let looked = self.buy(method.clone(), "/buy", "ada", &[]).await;
            self.assert_denied(&looked, "no-claim");
        }
        assert_eq!(self.taken().await, 0);
    }

    async fn a_buyer_is_let_in_and_stays_in(&self) -> String {
        // All that a client could try to be somebody else, or to have what it has not.
        let forged = [
            ("x-user-id", "eve"),
            ("x-headcount-outcome", "already"),
            ("x-headcount-unit", "999"),
            ("x-headcount-claim-id", "forged"),
            ("x-headcount-remaining", "999"),
            ("idempotency-key", "\"order-1\""),
        ];
        let path = "/buy/seats/7?row=a&side=left%20aisle";
        let bought = self.buy_with(Method::POST, path, "ada", &forged, "two of them").await.expect(200);
        assert_eq!(bought.text(), "from the shop");
        assert_eq!(bought.header("x-headcount-claim-id"), None, "a secret between gate and shop");
        let seen = self.only_one_seen();
        assert_eq!((&seen.method, &*seen.path, &*seen.body), (&Method::POST, path, &b"two of them"[..]));
        assert_eq!((seen.header("x-user-id"), seen.header("x-headcount-outcome")), (Some("ada"), Some("granted")));
        let unit = seen.header("x-headcount-unit").map(str::to_owned);
        assert!(unit.as_deref().is_some_and(|unit| unit != "999"), "{seen:?}");
        let claim_id = seen.header("x-headcount-claim-id").expect("the claim's id").to_owned();
        assert_eq!(self.taken().await, 1);

        for method in [Method::GET, Method::POST, Method::HEAD, Method::OPTIONS] {
            self.buy(method.clone(), "/buy", "ada", &[]).await.expect(200);
            let seen = self.only_one_seen();
            let told = (seen.method.clone(), seen.header("x-headcount-outcome"), seen.header("x-headcount-unit"));
            assert_eq!(told, (method, Some("already"), unit.as_deref()));
        }
        assert_eq!(self.taken().await, 1);
        claim_id
    }

    /// After the claim has been given back the same key says so, where another one, or none, claims anew.
    async fn the_key_of_an_order_reaches_the_gate(&self, claim_id: &str) {
        self.gateway.public.delete(&format!("/v1/campaigns/tickets/claims/{claim_id}")).await.expect(200);
        let again = self.buy(Method::POST, "/buy", "ada", &[("idempotency-key", "order-1")]).await;
        self.assert_denied(&again, "ended");
        self.buy(Method::POST, "/buy", "ada", &[("idempotency-key", "order-2")]).await.expect(200);
        assert_eq!(self.only_one_seen().header("x-headcount-outcome"), Some("granted"));
    }

    async fn the_sale_sells_out(&self) {
        let mut admitted = 1;
        for user in CUSTOMERS.iter().filter(|user| !["ada", "zoe"].contains(user)) {
            let bought = self.buy(Method::POST, "/buy", user, &[]).await;
            if bought.status == 200 {
                assert_eq!(self.only_one_seen().header("x-user-id"), Some(*user));
                admitted += 1;
            } else {
                self.assert_denied(&bought, "sold_out");
                assert_eq!(bought.header("x-headcount-remaining"), Some("0"));
            }
        }
        let books = self.books().await;
        assert_eq!((books["balances"].as_bool(), books["held"].as_u64()), (Some(true), Some(admitted)), "{books}");
        // What ada gave back may still be cooling.
        assert!(admitted == QUOTA || admitted + books["cooling"].as_u64().unwrap() == QUOTA, "{books}");
    }

    async fn the_check_takes_nothing(&self) {
        let before = self.taken().await;
        let headers = [("authorization", &*authorization("ada", "secret"))];
        self.check.api.send(Method::POST, "/buy/x?y=z", &headers, "body".into()).await.expect(200);
        let seen = self.only_one_seen();
        assert_eq!((seen.header("x-headcount-outcome"), &*seen.body), (Some("already"), &b"body"[..]));
        let headers = [("authorization", &*authorization("zoe", "secret"))];
        self.assert_denied(&self.check.api.send(Method::POST, "/buy", &headers, Bytes::new()).await, "no-claim");
        assert_eq!(self.taken().await, before);
    }

    /// A soft campaign has neither units nor claim ids, so nothing overwrites what a client forges.
    async fn what_the_gate_does_not_say_nobody_brings_along(&self) {
        self.gateway.offer("soft", &json!({ "admission": "soft", "quota": 10 })).await;
        let proxy = Proxy::start(self.kind, "/gate/soft", &self.gateway.public.authority, &self.shop.authority).await;
        let known = authorization("ada", "secret");
        let forged = [("authorization", &*known), ("x-headcount-unit", "7"), ("x-headcount-claim-id", "forged")];
        proxy.api.send(Method::GET, "/buy", &forged, Bytes::new()).await.expect(200);
        let seen = self.only_one_seen();
        assert_eq!((seen.header("x-user-id"), seen.header("x-headcount-outcome")), (Some("ada"), Some("granted")));
        assert_eq!((seen.header("x-headcount-unit"), seen.header("x-headcount-claim-id")), (None, None), "{seen:?}");
    }

    async fn without_a_gateway_nobody_is_let_in(&mut self) {
        self.gateway.kill();
        let failed = self.buy(Method::POST, "/buy", "ada", &[]).await;
        let expected = if self.kind == Kind::Envoy { 503 } else { 500 };
        assert_eq!((failed.status, self.shop.take_seen().len()), (expected, 0), "{}", failed.text());
    }

    async fn buy(&self, method: Method, path: &str, user: &str, headers: &[(&str, &str)]) -> Answer {
        self.buy_with(method, path, user, headers, "").await
    }

    async fn buy_with(
        &self,
        method: Method,
        path: &str,
        user: &str,
        headers: &[(&str, &str)],
        body: &'static str,
    ) -> Answer {
        let known = authorization(user, "secret");
        let headers = [headers, &[("authorization", &*known)]].concat();
        self.gate.api.send(method, path, &headers, Bytes::from(body)).await
    }

    #[track_caller]
    fn assert_denied(&self, answer: &Answer, outcome: &str) {
        let status = if self.kind == Kind::Nginx { 429 } else { 403 };
        let told = (answer.status, answer.header("x-headcount-outcome"), answer.header("cache-control"));
        assert_eq!(told, (status, Some(outcome), Some("no-store")), "{answer:?}");
        assert_eq!(answer.header("x-headcount-claim-id"), None);
        assert_eq!(self.shop.take_seen().len(), 0, "the shop was asked");
    }

    #[track_caller]
    fn only_one_seen(&self) -> Seen {
        let mut seen = self.shop.take_seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.remove(0)
    }

    async fn taken(&self) -> u64 {
        let books = self.books().await;
        assert_eq!(books["balances"], true, "{books}");
        books["held"].as_u64().unwrap() + books["confirmed"].as_u64().unwrap()
    }

    async fn books(&self) -> Value {
        self.gateway.admin.get("/v1/campaigns/tickets/audit").await.expect(200).json()
    }
}

/// What the guide shows is what the files have, and the files are what is tried above.
#[test]
fn the_guide_shows_the_files_that_are_tried() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("docs/GATE.md")).unwrap();
    let shown: Vec<&str> = guide.split("<!-- file: ").skip(1).collect();
    let mut names = Vec::new();
    for part in shown {
        let (name, rest) = part.split_once(" -->\n").expect("the end of the mark");
        let block = rest.strip_prefix("```").and_then(|rest| rest.split_once('\n')).expect("a block after the mark").1;
        let block = block.split("```\n").next().unwrap();
        let file = std::fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(block == file, "docs/GATE.md shows {name} as it is not");
        names.push(name.to_owned());
    }
    for folder in ["docs/gate", "k8s/gate"] {
        for file in std::fs::read_dir(root.join(folder)).unwrap() {
            let name = format!("{folder}/{}", file.unwrap().file_name().display());
            assert!(names.contains(&name), "docs/GATE.md does not show {name}");
        }
    }
}
