//! The stores. Each test has servers of its own, since the promises set deployment-wide facts.

use std::time::Duration;

use headcount::adapters::embedded::{EmbeddedConfig, EmbeddedStore};
use headcount::adapters::redis::{RedisConfig, RedisStore, keys};
use headcount::domain::counter::SketchAddress;
use headcount::runtime::clock::Clock;
use headcount::runtime::tasks::Tasks;
use headcount::store::Stores;

use super::outbox::upholds_the_promises_of_outboxes;
use super::pools::upholds_the_promises_of_pools;
use super::upholds_the_promises;
use crate::harness::cluster::{ClusterOptions, RedisCluster};
use crate::harness::eventually;
use crate::harness::redis::{Flavor, RedisServer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(EmbeddedConfig::new(dir.path()), Clock::real(), Tasks::new()).unwrap();
    upholds_the_promises(&store.stores(), None).await;
    upholds_the_promises_of_pools(&store.stores().pools, 6..8, 1_000, None).await;
    upholds_the_promises_of_outboxes(&store.stores()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_redis() {
    let server = RedisServer::single().await;
    on_server(&server, RedisConfig::new(server.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_with_tls_and_an_acl_user() {
    let server = RedisServer::single_tls().await;
    let (_, files) = server.tls.as_ref().unwrap();
    let ca_pem = Some(std::fs::read(&files.ca).unwrap());
    on_server(&server, RedisConfig { ca_pem, ..RedisConfig::new(server.url()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_valkey() {
    let server = RedisServer::valkey().await;
    on_server(&server, RedisConfig::new(server.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_cluster() {
    on_cluster(ClusterOptions::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_valkey_cluster() {
    on_cluster(ClusterOptions { flavor: Flavor::Valkey, ..ClusterOptions::default() }).await;
}

async fn on_server(server: &RedisServer, config: RedisConfig) {
    on_redis(config, &|address| overwrite(server, address)).await;
    leaves_no_temporary_keys(&server.keys_with(":t:"));
}

async fn on_cluster(options: ClusterOptions) {
    let cluster = RedisCluster::start_with(options).await;
    let spoil = |address: &SketchAddress| {
        let owner = cluster.owner_of(keys::sketch(address).slot).unwrap();
        overwrite(&cluster.nodes[owner], address);
    };
    on_redis(RedisConfig::new(cluster.url()), &spoil).await;
    let left: Vec<_> = cluster.keys_with(":t:").into_iter().map(|(_, key)| key).collect();
    leaves_no_temporary_keys(&left);
}

fn overwrite(server: &RedisServer, address: &SketchAddress) {
    let key = keys::sketch(address).text;
    assert_eq!(server.command(&[b"EXISTS".as_slice(), &key]).int(), 1, "where the sketch lies");
    server.command(&[b"SET".as_slice(), &key, b"HYLL but foreign"]).ok();
}

fn leaves_no_temporary_keys(left: &[Vec<u8>]) {
    let left: Vec<_> = left.iter().map(|key| String::from_utf8_lossy(key)).collect();
    assert!(left.is_empty(), "{left:?}");
}

async fn on_redis(config: RedisConfig, spoil: super::Spoil<'_>) {
    // A busy test machine stalls for longer than a user would bear; deadlines have tests of their own.
    let config = RedisConfig { command_timeout: Duration::from_secs(5), deadline: Duration::from_secs(10), ..config };
    let tasks = Tasks::new();
    let stores: Stores = RedisStore::start(&config, tasks.clone()).unwrap().stores();
    eventually("first contact", async || stores.deployment.now_ms().await.is_ok()).await;
    upholds_the_promises(&stores, Some(spoil)).await;
    assert!(tasks.finish(Duration::from_secs(5)).await, "every task of the store ends");
}
