//! What clients of an exact campaign hear when an answer is lost, scripts are forgotten, slots move, servers change
//! roles, and replicas hang: the truth, or to ask again.

use std::time::Duration;

use headcount::adapters::redis::keys;
use hyper::Method;
use serde_json::{Value, json};

use crate::harness::cluster::{ClusterOptions, RedisCluster};
use crate::harness::crowd::FIXED_KEY;
use crate::harness::eventually;
use crate::harness::gateway::{Answer, Api, Gateway};
use crate::harness::proxy::Proxy;
use crate::harness::redis::{Flavor, RedisServer};
use crate::harness::sale::{Sale, Terms};

const SALE: &str = "/v1/campaigns/sale";

/// The claim is made, and its answer is lost on the way. Asking again gives the same unit, and uses no second one.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_costs_no_second_unit() {
    let redis = RedisServer::single().await;
    let gateway = Gateway::start(&[("HEADCOUNT_REDIS_URL", &*redis.url())]).await;
    let body = json!({ "admission": "hard", "quota": 10, "shards": 16, "hold_s": 0 });
    gateway.admin.put(SALE, &body).await.expect(201);
    let proxy = Proxy::before(&gateway.public.authority).await;
    let behind = gateway.public.at(&proxy.authority);
    for (user, key) in [("ada", Some("k1")), ("bob", None)] {
        proxy.lose(true);
        assert!(claim(&behind, user, key).await.is_err(), "the answer is lost");
        proxy.lose(false);
        let lost = proxy.lost();
        assert!(lost.starts_with("HTTP/1.1 201"), "{lost}");
        let lost: Value = serde_json::from_str(lost.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        let same = |answer: &Answer| {
            let body = answer.json();
            (&body["unit"], &body["claim_id"]) == (&lost["unit"], &lost["claim_id"])
        };
        let again = claim(&behind, user, key).await.unwrap();
        let expected = if key.is_some() { (201, "granted") } else { (200, "already") };
        assert_eq!((again.status, again.json()["outcome"].as_str().unwrap()), expected, "{user}");
        assert!(same(&again), "{user} was told {lost}, then {}", again.text());
        let without = claim(&behind, user, None).await.unwrap();
        assert!(without.status == 200 && same(&without), "{user} was told {lost}, then {}", without.text());
    }
    let books = gateway.admin.get(&format!("{SALE}/audit")).await.expect(200).json();
    assert_eq!((&books["confirmed"], &books["balances"]), (&json!(2), &json!(true)), "{books}");
}

async fn claim(api: &Api, user: &str, key: Option<&str>) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(key.map(|key| ("idempotency-key", key)));
    let body = json!({ "user": user }).to_string();
    api.try_send(Method::POST, &format!("{SALE}/claims"), &headers, body.into()).await
}

/// What an operator does to a cluster in good order is not seen by clients, but as a second in which one shard says to
/// ask again.
#[tokio::test(flavor = "multi_thread")]
async fn a_sale_goes_on_while_scripts_are_forgotten_and_slots_and_roles_move() {
    let cluster = RedisCluster::start().await;
    let gateways = [gateway(&cluster).await, gateway(&cluster).await];
    let terms = Terms { quota: 3000, homes: 0..16, callers: 24, pause: Duration::from_millis(60), seed: 1 };
    let sale = Sale::open("moving", terms, &gateways.each_ref()).await;
    let rush = sale.rush();
    let slot = |shard: usize| keys::pool(&sale.pool(shard))[keys::STATE].slot;
    let forget_scripts = || cluster.nodes.iter().for_each(|node| node.command(&["SCRIPT", "FLUSH"]).ok());

    sale.sold(100).await;
    forget_scripts();
    for shard in 0..16 {
        sale.grants_at(shard, "after its scripts were forgotten").await;
    }

    let promoted = 5;
    let former = cluster.owner_of(slot(promoted)).unwrap();
    let replica = cluster.replicas_of(former)[0];
    cluster.nodes[replica].command(&["CLUSTER", "FAILOVER"]).ok();
    assert_eq!(cluster.failed_over(slot(promoted), former).await, replica);
    sale.grants_at(promoted, "by its new primary").await;
    cluster.settled().await;

    // Of a primary that was not promoted just now.
    let moved = (0..16).find(|shard| cluster.owner_of(slot(*shard)) != Some(replica)).unwrap();
    let from = cluster.owner_of(slot(moved)).unwrap();
    cluster.begin_move(slot(moved), replica);
    sale.grants_at(moved, "while its slot is MIGRATING and no key has moved").await;
    cluster.move_keys(slot(moved), from, replica, Duration::from_millis(20)).await;
    sale.grants_at(moved, "while its slot is MIGRATING and all keys have moved").await;
    forget_scripts();
    sale.grants_at(moved, "behind ASK, after the scripts were forgotten").await;
    cluster.end_move(slot(moved), from, replica);
    sale.grants_at(moved, "after the move").await;

    assert_eq!(sale.told().count("no answer"), 0);
    assert_eq!(sale.told().count("409 /problems/sold-out"), 0, "the sale was over before the moves were");
    sale.settle("scripts forgotten, roles and slots moved", rush).await;
}

/// Until the replica has a claim, nobody is told of it, also not who asks again and finds it done; then the truth.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_the_replica_does_not_confirm_are_told_when_it_does() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        // The stopped replica must not be declared failed meanwhile: then it would not be waited for.
        let lines = vec!["cluster-node-timeout 60000".to_owned()];
        let cluster = RedisCluster::start_with(ClusterOptions { flavor, lines, ..ClusterOptions::default() }).await;
        let gateways = [gateway(&cluster).await, gateway(&cluster).await];
        let terms = Terms { quota: 300, homes: 0..16, callers: 8, pause: Duration::from_millis(5), seed: 2 };
        let sale = Sale::open("hanging", terms, &gateways.each_ref()).await;
        let owner = |shard: usize| cluster.owner_of(keys::pool(&sale.pool(shard))[keys::STATE].slot).unwrap();
        // The crowd stays away, so that no wish waits behind another's WAIT.
        let users: Vec<usize> = sale.users_of(0).take(6).collect();
        let replica = &cluster.nodes[cluster.replicas_of(owner(0))[0]];
        replica.stop();
        for (number, user) in users.iter().enumerate() {
            // The second time at the other gateway, on whose connection nothing was written (docs/FAULTS.md A1).
            for through in [number, number + 1] {
                // A step that stands behind other steps' slow WAITs runs out of time, and is told `store-unavailable`.
                eventually("a claim that is done and not confirmed", async || {
                    let again = sale.claim(*user, through).await;
                    let told = again.unwrap_or_else(|| panic!("{flavor:?}: user {user} was told, {through}"));
                    told.contains("/problems/claim-unconfirmed")
                })
                .await;
            }
        }
        let other = (1..16).find(|shard| owner(*shard) != owner(0)).unwrap();
        let elsewhere = sale.users_of(other).next().unwrap();
        assert_eq!(sale.claim(elsewhere, 0).await, None, "{flavor:?}: other shards do not wait");
        replica.cont();
        for user in &users {
            eventually("the truth", async || sale.claim(*user, *user).await.is_none()).await;
        }
        let told = |answer: &str| sale.told().count(answer);
        let keyed = users.iter().filter(|user| *user % 2 == 1).count() as u64;
        // Who has a key hears the first 201, the others that they have the unit already.
        assert_eq!((told("201"), told("200")), (keyed + 1, 6 - keyed), "{flavor:?}: {:?}", sale.told().answers);
        assert_eq!(sale.told().units(), 7);
        let rush = sale.rush();
        sale.settle(&format!("{flavor:?}, a replica hung"), rush).await;
    }
}

async fn gateway(cluster: &RedisCluster) -> Gateway {
    Gateway::start(&[("HEADCOUNT_REDIS_URL", &*cluster.url()), FIXED_KEY]).await
}
