//! Hard quotas: every unit sold, none twice, one per user, and the truth told all the while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::StreamExt;
use headcount::domain::element::{HashKey, UserHashing};
use headcount::domain::id::UserId;
use headcount::domain::ring::{Shards, ring_point};
use serde_json::{Value, json};

use crate::harness::cluster::RedisCluster;
use crate::harness::crowd::FIXED_KEY;
use crate::harness::gateway::{Api, Gateway};

/// Callers at one time.
const AT_ONCE: usize = 256;

/// A sale on some gateways.
struct Sale {
    id: String,
    gateways: Vec<Api>,
    /// Counts answers, so that what was heard before what can be told.
    clock: AtomicU64,
    /// The earliest answer that said sold out, by `clock`.
    sold_out_at: AtomicU64,
}

/// What a user heard in the end.
#[derive(Clone, Debug, PartialEq)]
struct Heard {
    status: u16,
    unit: Option<u64>,
    /// `clock` before the call that was answered so.
    began: u64,
}

impl Sale {
    async fn open(gateways: &[&Gateway], id: &str, quota: u64, shards: Option<u64>) -> Arc<Self> {
        let mut body = json!({ "admission": "hard", "quota": quota });
        if let Some(shards) = shards {
            body["shards"] = shards.into();
        }
        gateways[0].admin.put(&format!("/v1/campaigns/{id}"), &body).await.expect(201);
        Arc::new(Self {
            id: id.to_owned(),
            gateways: gateways.iter().map(|gateway| gateway.public.clone()).collect(),
            clock: AtomicU64::new(1),
            sold_out_at: AtomicU64::new(u64::MAX),
        })
    }

    /// One user asks, and asks again after a 503, until there is an answer.
    async fn ask(&self, place: usize, user: &str) -> Heard {
        let path = format!("/v1/campaigns/{}/claims", self.id);
        for attempt in 0..200 {
            let began = self.clock.fetch_add(1, Ordering::SeqCst);
            let api = &self.gateways[(place + attempt) % self.gateways.len()];
            let answer = api.post(&path, &json!({ "user": user })).await;
            if answer.status == 503 {
                assert!(answer.header("retry-after").is_some(), "{}", answer.text());
                continue;
            }
            let body = answer.json();
            if answer.status == 409 {
                assert_eq!(body["outcome"], "sold_out", "{body}");
                self.sold_out_at.fetch_min(self.clock.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            }
            return Heard { status: answer.status, unit: body["unit"].as_u64(), began };
        }
        panic!("{user} hears nothing but 503");
    }

    /// All users ask, so many at one time; who heard what. Meanwhile somebody watches what remains.
    async fn crowd(self: &Arc<Self>, users: Vec<String>) -> Vec<(String, Heard)> {
        let over = Arc::new(AtomicBool::new(false));
        let watching = tokio::spawn(watch(self.clone(), over.clone()));
        let calls: Vec<_> = users
            .into_iter()
            .enumerate()
            .map(|(place, user)| {
                let sale = self.clone();
                async move { (user.clone(), sale.ask(place, &user).await) }
            })
            .collect();
        let heard = futures_util::stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
        over.store(true, Ordering::SeqCst);
        watching.await.unwrap();
        heard
    }

    async fn audit(&self, admin: &Api) -> Value {
        admin.get(&format!("/v1/campaigns/{}/audit", self.id)).await.expect(200).json()
    }

    /// Exactly `quota` units are sold, each to one user, and the books agree.
    async fn check(&self, heard: &[(String, Heard)], quota: u64, admin: &Api) {
        let mut owners: BTreeMap<u64, &str> = BTreeMap::new();
        for (user, heard) in heard.iter().filter(|(_, heard)| heard.status == 201) {
            let unit = heard.unit.unwrap();
            let other = owners.insert(unit, user);
            assert!(other.is_none_or(|other| other == user), "unit {unit} of {user} and {other:?}");
        }
        assert_eq!(owners.keys().copied().collect::<Vec<_>>(), (1..=quota).collect::<Vec<_>>(), "{}", self.id);
        let sold_out_at = self.sold_out_at.load(Ordering::SeqCst);
        let late = heard.iter().find(|(_, heard)| heard.status == 201 && heard.began > sold_out_at);
        assert!(late.is_none(), "sold out was said before {late:?} asked");
        let audit = self.audit(admin).await;
        assert_eq!((&audit["balances"], &audit["confirmed"]), (&json!(true), &json!(quota)), "{audit}");
        assert_eq!(audit["granted"], json!([[1, quota]]), "{audit}");
    }
}

/// What remains never rises, as nothing is given back.
async fn watch(sale: Arc<Sale>, over: Arc<AtomicBool>) {
    let mut least: Vec<u64> = vec![u64::MAX; sale.gateways.len()];
    while !over.load(Ordering::SeqCst) {
        for (api, least) in sale.gateways.iter().zip(&mut least) {
            let answer = api.get(&format!("/v1/campaigns/{}/remaining", sale.id)).await;
            if answer.status != 200 {
                continue;
            }
            let left = answer.json();
            let remaining = left["remaining"].as_u64().unwrap();
            assert!(remaining <= *least, "{remaining} remain after {least}: {left}");
            assert_eq!((&left["exact"], &left["sold_out"]), (&json!(true), &json!(remaining == 0)), "{left}");
            *least = remaining;
        }
    }
}

fn users(count: usize) -> Vec<String> {
    (0..count).map(|user| format!("user_{user}")).collect()
}

/// Users whose home is one shard, under the fixed key.
fn users_of_shard(shard: usize, shards: u64, count: usize) -> Vec<String> {
    let hashing = UserHashing::Keyed(HashKey::from_hex(FIXED_KEY.1).unwrap());
    let shards = Shards::new(shards).unwrap();
    let is_at_home = |user: &String| shards.index_of(ring_point(&hashing.element(UserId::new(user).unwrap()))) == shard;
    (0..).map(|user| format!("user_{user}")).filter(is_at_home).take(count).collect()
}

async fn small_sales(gateways: &[&Gateway]) {
    // (units, users, shards)
    let sales =
        [(10, users(1_000), None), (1, users(2), None), (48, users(5_000), Some(16)), (5, users(400), Some(16))];
    for (number, (quota, users, shards)) in sales.into_iter().enumerate() {
        let sale = Sale::open(gateways, &format!("sale{number}"), quota, shards).await;
        let heard = sale.crowd(users).await;
        sale.check(&heard, quota, &gateways[0].admin).await;
        let others = heard.iter().filter(|(_, heard)| !matches!(heard.status, 201 | 409)).collect::<Vec<_>>();
        assert!(others.is_empty(), "{others:?}");
    }
    // The unit is in the first shard; everybody comes from another one.
    for home in [1, 15] {
        let sale = Sale::open(gateways, &format!("far{home}"), 1, Some(16)).await;
        let heard = sale.crowd(users_of_shard(home, 16, 50)).await;
        sale.check(&heard, 1, &gateways[0].admin).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn small_sales_sell_out_exactly_on_the_embedded_store() {
    small_sales(&[&Gateway::start(&[FIXED_KEY]).await]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_sales_sell_out_exactly_over_two_gateways_on_a_cluster() {
    let cluster = RedisCluster::start().await;
    let env = [("HEADCOUNT_REDIS_URL", &*cluster.url()), FIXED_KEY];
    let (one, two) = (Gateway::start(&env).await, Gateway::start(&env).await);
    small_sales(&[&one, &two]).await;
    impatient_user(&[&one, &two]).await;
}

/// One user asks 500 times at once, beside 499 others.
async fn impatient_user(gateways: &[&Gateway]) {
    let sale = Sale::open(gateways, "impatient", 100, None).await;
    let mut crowd = users(499);
    for place in 0..500 {
        crowd.insert(place * 499 / 500 + place, "impatient".to_owned());
    }
    let heard = sale.crowd(crowd).await;
    let units: BTreeSet<u64> =
        heard.iter().filter(|(user, _)| user == "impatient").filter_map(|(_, heard)| heard.unit).collect();
    assert_eq!(units.len(), 1, "{units:?}");
    let others = heard.iter().filter(|(user, _)| user != "impatient");
    let bought = others.clone().filter(|(_, heard)| heard.status == 201).count();
    assert_eq!(bought, 99);
    assert!(others.clone().all(|(_, heard)| heard.status != 200), "nobody else asked twice");
    let audit = sale.audit(&gateways[0].admin).await;
    assert_eq!((&audit["balances"], &audit["confirmed"]), (&json!(true), &json!(100)), "{audit}");
}

/// As many users as units, in random order over two gateways.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_users_get_a_hundred_thousand_units() {
    const UNITS: u64 = 100_000;
    let cluster = RedisCluster::start().await;
    let env = [("HEADCOUNT_REDIS_URL", &*cluster.url()), FIXED_KEY];
    let (one, two) = (Gateway::start(&env).await, Gateway::start(&env).await);
    let sale = Sale::open(&[&one, &two], "large", UNITS, None).await;
    // A multiplier without a common divisor with the number of users visits each once.
    let order = (0..UNITS).map(|place| format!("user_{}", place * 61_803 % UNITS)).collect();
    let heard = sale.crowd(order).await;
    let wrong: Vec<_> = heard.iter().filter(|(_, heard)| heard.status != 201).take(5).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    sale.check(&heard, UNITS, &one.admin).await;
}
