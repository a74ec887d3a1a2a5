//! Exact campaigns while gateways and servers die under them: what was granted stays granted, no unit is two users', and
//! the sale sells out to the last unit.
//!
//! A round is one sale with one fault at an instant that its seed chooses; `harness/sale.rs` keeps what every user was
//! told and holds it against the store at the end. The faults are real, so a seed repeats a round only roughly.

use std::time::Duration;

use headcount::adapters::redis::keys;

use crate::harness::cluster::{ClusterOptions, RedisCluster};
use crate::harness::crowd::FIXED_KEY;
use crate::harness::eventually;
use crate::harness::gateway::Gateway;
use crate::harness::redis::Flavor;
use crate::harness::resp::Reply;
use crate::harness::sale::{Random, Sale, Terms};

const SHARDS: usize = 16;
/// Rounds of each kind in a proof.
const PROOF_ROUNDS: u64 = 10;
/// How long the replica is behind before its primary dies.
const CUT: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// kill -9 of a gateway whose parcel has left one shard and has not reached the other.
    GatewayDies,
    PrimaryDies,
    /// SIGSTOP until another server has taken over, then SIGCONT.
    PrimaryHangs,
    /// Its replica is half a second behind when the primary dies: where claims are not waited for, they are lost.
    PrimaryDiesBehindACutLink,
}

use Kind::{GatewayDies, PrimaryDies, PrimaryDiesBehindACutLink, PrimaryHangs};

#[tokio::test(flavor = "multi_thread")]
async fn a_parcel_left_behind_by_a_killed_gateway_is_sold() {
    Market::open(Flavor::Redis).await.rounds(GatewayDies, 0..2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_or_hanging_primary_costs_no_told_claim() {
    let mut market = Market::open(Flavor::Redis).await;
    market.rounds(PrimaryDies, 0..1).await;
    market.rounds(PrimaryHangs, 0..1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_killed_behind_a_cut_link_costs_no_told_claim() {
    Market::open(Flavor::Redis).await.rounds(PrimaryDiesBehindACutLink, 0..2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_valkey_primary_killed_behind_a_cut_link_costs_no_told_claim() {
    Market::open(Flavor::Valkey).await.rounds(PrimaryDiesBehindACutLink, 0..1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes long: make prove"]
async fn prove_hard_sales_survive_what_dies_under_them() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let mut market = Market::open(flavor).await;
        for kind in [GatewayDies, PrimaryDies, PrimaryHangs, PrimaryDiesBehindACutLink] {
            let began = tokio::time::Instant::now();
            market.rounds(kind, 100..100 + PROOF_ROUNDS).await;
            println!("{flavor:?}, {kind:?}: {PROOF_ROUNDS} rounds in {:?}", began.elapsed());
        }
    }
}

/// A cluster of three primaries with a replica each, and two gateways.
struct Market {
    cluster: RedisCluster,
    flavor: Flavor,
    gateways: Vec<Gateway>,
}

impl Market {
    async fn open(flavor: Flavor) -> Self {
        let cluster = RedisCluster::start_with(ClusterOptions { flavor, ..ClusterOptions::default() }).await;
        let gateways = vec![gateway(&cluster).await, gateway(&cluster).await];
        Self { cluster, flavor, gateways }
    }

    async fn rounds(&mut self, kind: Kind, seeds: std::ops::Range<u64>) {
        for seed in seeds {
            let mut tries = (0..10).map(|again| seed + 1000 * again);
            while !self.round(kind, tries.next().expect("a round in which the fault came in time")).await {}
        }
    }

    /// False if all was sold before the fault could be caused.
    async fn round(&mut self, kind: Kind, seed: u64) -> bool {
        let mut random = Random::new(seed);
        let moved = matches!(kind, GatewayDies);
        let terms = Terms {
            quota: 1200,
            // Users of four shards only: three quarters of the units are brought to them, most of all at the end.
            homes: if moved { 0..4 } else { 0..SHARDS },
            callers: 24,
            pause: Duration::from_millis(if moved { 24 } else { 8 }),
            seed,
        };
        let quota = terms.quota;
        let sale = Sale::open(&format!("{kind:?}-{seed}"), terms, &self.gateways.iter().collect::<Vec<_>>()).await;
        sale.part(moved);
        let rush = sale.rush();
        sale.sold(quota * if moved { 25 + random.below(60) } else { 10 + random.below(60) } / 100).await;
        let came = match kind {
            GatewayDies => self.kill_a_gateway(&sale, &mut random).await,
            _ => self.lose_a_primary(kind, &sale, &mut random).await,
        };
        let told = sale.told().units();
        sale.settle(&format!("{:?}, {kind:?}, {told} of {quota} sold when it was healed", self.flavor), rush).await;
        if moved && came {
            self.gateways[0] = gateway(&self.cluster).await;
        }
        came
    }

    /// Kills the first gateway when one of its parcels is under way: it is stopped at random instants until that is so.
    /// False if all is sold before one was seen.
    async fn kill_a_gateway(&mut self, sale: &Sale, random: &mut Random) -> bool {
        let process = &self.gateways[0].process;
        let mut stuck = Vec::new();
        eventually("a parcel of the first gateway under way", async || {
            // Not in step with the transfers, which take milliseconds.
            tokio::time::sleep(Duration::from_micros(random.below(20_000))).await;
            process.signal("STOP");
            // What it had sent before it stopped arrives meanwhile.
            let before = self.parcels(sale);
            tokio::time::sleep(Duration::from_millis(5)).await;
            stuck = self.parcels(sale);
            stuck.retain(|parcel| before.contains(parcel));
            if stuck.is_empty() {
                process.signal("CONT");
            }
            !stuck.is_empty() || sale.told().units() == sale.terms.quota
        })
        .await;
        if stuck.is_empty() {
            sale.part(false);
            return false;
        }
        println!("killed with these parcels (donor, home, seq) under way: {stuck:?}");
        self.gateways[0].kill();
        sale.forget_gateway(&self.gateways[0]);
        sale.part(false);
        let arrived = async || stuck.iter().all(|parcel| !self.parcels(sale).contains(parcel));
        eventually("the other gateway to deliver the parcels", arrived).await;
        true
    }

    /// Parcels (donor, home, seq) of the first gateway that have been debited and not credited. Its homes are the even
    /// ones.
    fn parcels(&self, sale: &Sale) -> Vec<(usize, usize, u64)> {
        let pools: Vec<Vec<(String, String)>> = (0..SHARDS).map(|shard| self.state(sale, shard)).collect();
        let seq = |value: &str| value.split('|').next().and_then(|seq| seq.parse::<u64>().ok()).expect("a number");
        let came = |donor: usize, home: usize| {
            let name = format!("i:{donor}");
            pools[home].iter().find(|(field, _)| *field == name).map_or(0, |(_, value)| seq(value))
        };
        let mut parcels = Vec::new();
        for (donor, pool) in pools.iter().enumerate() {
            for (field, value) in pool {
                let Some(home) = field.strip_prefix("o:").and_then(|home| home.parse().ok()) else { continue };
                if home % 2 == 0 && seq(value) > came(donor, home) {
                    parcels.push((donor, home, seq(value)));
                }
            }
        }
        parcels
    }

    fn state(&self, sale: &Sale, shard: usize) -> Vec<(String, String)> {
        let state = &keys::pool(&sale.pool(shard))[keys::STATE];
        let owner = self.cluster.owner_of(state.slot).expect("an owner");
        let fields = self.cluster.nodes[owner].command(&[b"HGETALL".as_slice(), &state.text]).list();
        let fields: Vec<String> = fields.into_iter().map(Reply::text).collect();
        fields.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    /// Loses a primary, waits for its successor, and heals the cluster, while the sale goes on.
    async fn lose_a_primary(&self, kind: Kind, sale: &Sale, random: &mut Random) -> bool {
        let cluster = &self.cluster;
        let shard = random.below(SHARDS as u64) as usize;
        let slot = keys::pool(&sale.pool(shard))[keys::STATE].slot;
        let victim = cluster.owner_of(slot).expect("an owner");
        let replica = cluster.replicas_of(victim)[0];
        match kind {
            PrimaryHangs => cluster.nodes[victim].stop(),
            PrimaryDiesBehindACutLink => {
                cluster.cut_link(replica).await;
                tokio::time::sleep(CUT).await;
                cluster.nodes[victim].kill();
            }
            _ => cluster.nodes[victim].kill(),
        }
        assert_eq!(cluster.failed_over(slot, victim).await, replica, "the replica takes over");
        match kind {
            PrimaryHangs => cluster.nodes[victim].cont(),
            _ => {
                cluster.mend_link(replica);
                cluster.nodes[victim].restart().await;
            }
        }
        cluster.settled().await;
        true
    }
}

async fn gateway(cluster: &RedisCluster) -> Gateway {
    Gateway::start(&[("HEADCOUNT_REDIS_URL", &*cluster.url()), FIXED_KEY]).await
}
