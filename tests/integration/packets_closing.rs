//! Closing a campaign of packets: what is claimed and what is refunded are the campaign's money to the cent, whatever was
//! on its way when it was closed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use headcount::adapters::redis::{RedisConfig, RedisStore};
use headcount::domain::id::CampaignId;
use headcount::domain::quota::marks::{Floor, Parcel};
use headcount::domain::quota::step::{Answer, CreditAnswer, DebitAnswer, Step};
use headcount::domain::ring::Shards;
use headcount::runtime::tasks::Tasks;
use headcount::store::pools::{PoolAddress, Pools};
use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::gateway::Gateway;
use crate::harness::process::fresh_dir;
use crate::harness::rain::{Books, Rain};
use crate::harness::redis::RedisServer;
use crate::harness::sale::Random;

const SHARDS: u64 = 4;
const SEEDS: std::ops::Range<u64> = 0..10;

/// Another gateway of the same store, that stops wherever it likes.
struct Careless {
    pools: Arc<dyn Pools>,
    campaign: CampaignId,
}

impl Careless {
    async fn step(&self, shard: u16, step: Step) -> Answer {
        let position = Shards::new(SHARDS).unwrap().positions().nth(usize::from(shard)).unwrap();
        let pool = PoolAddress { campaign: self.campaign.clone(), position };
        self.pools.step(&pool, Floor::default(), step).await.unwrap().answer
    }

    /// Takes packets out of one pool for another one, and brings them nowhere. None: it has none.
    async fn debit(&self, donor: u16, home: u16, want: u32) -> Option<Parcel> {
        match self.step(donor, Step::Debit { home, want }).await {
            Answer::Debit(DebitAnswer::New(parcel)) => Some(parcel),
            Answer::Debit(DebitAnswer::None) => None,
            other => panic!("{other:?}"),
        }
    }

    async fn credit(&self, donor: u16, home: u16, parcel: Parcel) -> CreditAnswer {
        match self.step(home, Step::Credit { donor, parcel, wishes: Vec::new() }).await {
            Answer::Credit(how, _) => how,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_claimed_and_refunded_is_all_the_money_there_was() {
    let server = RedisServer::single().await;
    let ledger = format!("sqlite:{}", fresh_dir("ledger").join("ledger.sqlite").display());
    let env = [("HEADCOUNT_REDIS_URL", &*server.url()), ("HEADCOUNT_LEDGER_URL", &*ledger)];
    let gateway = Gateway::start(&env).await;
    let tasks = Tasks::new();
    let config = RedisConfig {
        command_timeout: Duration::from_secs(2),
        deadline: Duration::from_secs(4),
        ..RedisConfig::new(server.url())
    };
    let stores = RedisStore::start(&config, tasks.clone()).unwrap().stores();
    eventually("first contact", async || stores.deployment.contacted()).await;
    let rounds = SEEDS.map(|seed| round(&gateway, &ledger, stores.pools.clone(), seed));
    futures_util::future::join_all(rounds).await;
    assert!(tasks.finish(Duration::from_secs(5)).await);
}

async fn round(gateway: &Gateway, ledger: &str, pools: Arc<dyn Pools>, seed: u64) {
    let mut random = Random::new(seed);
    let count = 60 + random.below(100);
    let total = (count * (2 + random.below(90))) as i64 + random.below(50) as i64;
    let body = json!({ "packets": { "total_cents": total, "count": count }, "shards": SHARDS, "hold_s": 2 });
    let rain = Rain::open(&format!("closing-{seed}"), &[gateway], body).await;
    let careless = Careless { pools, campaign: CampaignId::new(&rain.id).unwrap() };
    let mut claims = Vec::new();
    for user in 0..10 + random.below(count / 2) {
        claims.push(rain.claim(&format!("user_{user}")).await.expect(201).json());
    }
    let (early, held) = claims.split_at(claims.len() / 2);
    let mut kept = BTreeSet::new();
    for (place, claim) in early.iter().enumerate() {
        settle(gateway, &rain, claim, place % 3 == 0, &mut kept).await;
    }
    // Left behind: one that has not come in, one that came in and was not acknowledged, and one that comes in meanwhile.
    let [a, b, c, d] = scattered(&mut random);
    let want = 1 + random.below(40) as u32;
    careless.debit(a, b, want).await;
    if let Some(parcel) = careless.debit(b, c, want).await {
        assert_eq!(careless.credit(b, c, parcel).await, CreditAnswer::Credited);
    }
    let late = careless.debit(c, d, want).await;
    let arrival = async {
        if let Some(parcel) = late.clone() {
            careless.credit(c, d, parcel).await;
        }
    };
    let (closed, ()) = futures_util::future::join(rain.close(), arrival).await;
    assert_eq!(closed.expect(200).json()["state"], "closed", "seed {seed}");
    assert_eq!(rain.claim("late").await.expect(409).json()["outcome"], "closed", "seed {seed}");
    // Of those that are held some are confirmed and given back, and the rest expire.
    for (place, claim) in held.iter().enumerate().filter(|(place, _)| place % 3 != 0) {
        settle(gateway, &rain, claim, place % 3 == 1, &mut kept).await;
    }
    rain.comes_to("closed").await;
    if let Some(parcel) = late {
        assert_eq!(careless.credit(c, d, parcel).await, CreditAnswer::Known, "seed {seed}");
    }
    check(&rain, ledger, (count, total), &claims, &kept).await;
}

/// Confirms a claim or gives it back; `kept`: packets that stay somebody's. A hold may end before.
async fn settle(gateway: &Gateway, rain: &Rain, claim: &Value, confirm: bool, kept: &mut BTreeSet<u64>) {
    let path = rain.path(&format!("/claims/{}", claim["claim_id"].as_str().unwrap()));
    if !confirm {
        gateway.public.delete(&path).await.expect(200);
        return;
    }
    let answer = gateway.public.post(&format!("{path}/confirm"), &json!({})).await;
    if answer.status == 200 {
        kept.insert(claim["unit"].as_u64().unwrap());
    } else {
        assert_eq!(answer.expect(409).json()["outcome"], "late");
    }
}

/// The shards in some order.
fn scattered(random: &mut Random) -> [u16; SHARDS as usize] {
    let mut order = [0, 1, 2, 3];
    for place in (1..order.len()).rev() {
        order.swap(place, random.below(place as u64 + 1) as usize);
    }
    order
}

async fn check(rain: &Rain, ledger: &str, (count, total): (u64, i64), claims: &[Value], kept: &BTreeSet<u64>) {
    let drawn = rain.drawn().await;
    for claim in claims {
        let number = claim["unit"].as_u64().unwrap();
        assert_eq!(claim["cents"], drawn[number as usize - 1], "{claim}");
    }
    let claimed = kept.len() as u64;
    let claimed_cents: i64 = kept.iter().map(|number| drawn[*number as usize - 1]).sum();
    let results = rain.results(claimed, count - claimed).await;
    let sums = (&results["claimed_cents"], &results["refunded_cents"], &results["remaining_cents"]);
    assert_eq!(sums, (&json!(claimed_cents), &json!(total - claimed_cents), &json!(0)), "{results}");
    let audit = rain.audit().await;
    let (confirmed, refunded) = (&audit["confirmed"], &audit["refunded"]);
    assert_eq!((confirmed, refunded), (&json!(claimed), &json!(count - claimed)), "{audit}");

    let books = Books::of(ledger, rain);
    assert_eq!(books.come_to("refunded", count - claimed).await, total - claimed_cents);
    assert_eq!(books.come_to("confirmed", claimed).await, claimed_cents);
    let known = books.packets().await;
    let holds: BTreeSet<u64> =
        known.iter().filter(|(_, (_, user))| user.is_some()).map(|(packet, _)| *packet).collect();
    assert_eq!(&holds, kept, "{}", rain.id);
    assert_eq!(known.into_values().map(|(cents, _)| cents).collect::<Vec<_>>(), drawn);
    // Each packet once, as its holder's or as a refund.
    let once = "SELECT COUNT(*), COUNT(DISTINCT unit) FROM ledger_claims WHERE campaign = $";
    let once = books.two(&format!("{once} AND state IN ('confirmed', 'refunded')")).await;
    assert_eq!(once, (count as i64, count as i64));
    eventually("the ledger to know that the campaign is closed", async || {
        books.campaign().await == Some(("closed".to_owned(), total))
    })
    .await;
}
