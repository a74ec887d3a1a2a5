//! What a crowd costs the store: the filter and the coalescer keep nearly all of it away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::harness::cluster::RedisCluster;
use crate::harness::crowd::{FIXED_KEY, arrive, count, users};
use crate::harness::eventually;
use crate::harness::gateway::{Api, Gateway};

/// What a write costs: sketches, their expiry, and the marks of the layout.
const WRITES: [&str; 9] = ["pfadd", "pfmerge", "expireat", "pexpireat", "set", "hset", "hsetnx", "sadd", "unlink"];

#[tokio::test(flavor = "multi_thread")]
async fn a_million_visits_by_ten_thousand_users_are_few_writes() {
    const USERS: usize = 10_000;
    const VISITS: usize = 1_000_000;
    let cluster = RedisCluster::start().await;
    let env = [("HEADCOUNT_REDIS_URL", &*cluster.url()), FIXED_KEY];
    let (one, two) = (Gateway::start(&env).await, Gateway::start(&env).await);
    let before = writes(&cluster);
    // Everybody comes a hundred times, in another order each time, in lists of a hundred as a backend sends them.
    let crowd = users(0..USERS);
    let rounds = VISITS / USERS;
    let lists: Vec<Vec<String>> = (0..rounds)
        .flat_map(|round| (0..USERS / 100).map(move |list| (round, list)))
        .map(|(round, list)| (0..100).map(|i| crowd[((list * 100 + i) * 7_919 + round * 13) % USERS].clone()).collect())
        .collect();
    assert_eq!(lists.iter().map(Vec::len).sum::<usize>(), VISITS);
    let next = Arc::new(AtomicU64::new(0));
    let callers = (0..32).map(|caller| {
        let api = if caller % 2 == 0 { one.public.clone() } else { two.public.clone() };
        let (lists, next) = (&lists, next.clone());
        async move {
            while let Some(list) = lists.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                arrive(&[&api], "flash", list).await;
            }
        }
    });
    futures_util::future::join_all(callers).await;
    let written = writes(&cluster) - before;
    println!("writes: {written} for {VISITS} visits, {:.3} %", 100.0 * written as f64 / VISITS as f64);
    assert!(written * 50 <= VISITS as u64, "{written} write commands for {VISITS} visits: more than 2 %");
    let answer = count(&one.public, "flash", "").await;
    let off = answer["count"].as_f64().unwrap() / USERS as f64 - 1.0;
    assert!(off.abs() < 0.005, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_readers_make_one_refresh_per_interval_in_the_whole_cluster() {
    const READERS: usize = 200;
    const LASTING: Duration = Duration::from_secs(10);
    const INTERVAL_MS: u64 = 200;
    let cluster = RedisCluster::start().await;
    let env = [("HEADCOUNT_REDIS_URL", &*cluster.url()), FIXED_KEY];
    let (one, two) = (Gateway::start(&env).await, Gateway::start(&env).await);
    arrive(&[&one.public], "hot", &users(0..5_000)).await;
    let merges_before = merges(&one.admin).await + merges(&two.admin).await;
    let started = Instant::now();
    let readers = (0..READERS).map(|reader| {
        let api = if reader % 2 == 0 { one.public.clone() } else { two.public.clone() };
        async move {
            let mut oldest = 0;
            let mut answers = 0u64;
            while started.elapsed() < LASTING {
                let answer = count(&api, "hot", "").await;
                assert_eq!(answer["stale"], false, "{answer}");
                oldest = oldest.max(answer["age_ms"].as_u64().unwrap());
                answers += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            (oldest, answers)
        }
    });
    let seen = futures_util::future::join_all(readers).await;
    let elapsed_ms = started.elapsed().as_millis() as u64;
    let merges = merges(&one.admin).await + merges(&two.admin).await - merges_before;
    let oldest = seen.iter().map(|(oldest, _)| *oldest).max().unwrap();
    let answers: u64 = seen.iter().map(|(_, answers)| *answers).sum();
    println!("{merges} merges in {elapsed_ms} ms for {answers} answers, the oldest {oldest} ms old");
    assert!(answers > 10_000, "the readers were not readers: {answers} answers");
    assert!(merges <= elapsed_ms / INTERVAL_MS + 2, "{merges} merges in {elapsed_ms} ms");
    // Interval, lease (at most a second), one merge.
    let longest_merge = 1_000;
    assert!(oldest <= INTERVAL_MS + 1_000 + longest_merge, "an answer was {oldest} ms old");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_see_each_others_visits_within_a_refresh() {
    let cluster = RedisCluster::start().await;
    let env = [("HEADCOUNT_REDIS_URL", &*cluster.url()), FIXED_KEY];
    let (one, two) = (Gateway::start(&env).await, Gateway::start(&env).await);
    assert_eq!(count(&two.public, "shared", "").await["count"], 0);
    arrive(&[&one.public], "shared", &users(0..50)).await;
    arrive(&[&two.public], "shared", &users(25..100)).await;
    for api in [&one.public, &two.public] {
        eventually("both gateways to see everybody", async || count(api, "shared", "").await["count"] == 100).await;
    }
}

fn writes(cluster: &RedisCluster) -> u64 {
    let calls = cluster.master_command_calls();
    WRITES.iter().filter_map(|name| calls.get(*name)).sum()
}

async fn merges(admin: &Api) -> u64 {
    let text = admin.get("/metrics").await.expect(200).text();
    let line = text.lines().find(|line| line.starts_with("headcount_merges_total "));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}
