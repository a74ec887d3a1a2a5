//! Starts what the tests need, on free loopback ports, and cleans up whatever happens: a passing test by drop, a
//! panic by drop, a killed test binary by the watchdog (`process.rs`).
//!
//! | file | what it starts |
//! |---|---|
//! | `redis.rs` | one redis-server or valkey-server, plain or with TLS and an ACL user |
//! | `cluster.rs` | a cluster of them, with the faults that a test can cause |
//! | `crowd.rs` | users, and how they arrive |
//! | `databases.rs` | SQLite, PostgreSQL, MariaDB: databases for the ledger |
//! | `halt.rs` | a proxy that halts PostgreSQL's client within a transaction |
//! | `placement.rs` | nothing: says which master a user is on |
//! | `proxies.rs` | nginx, Envoy, Traefik, as docs/GATE.md sets them up |
//! | `shop.rs` | what stands behind them, and what it was asked |
//! | `gateway.rs` | the real binary, and a client for its two listeners |
//! | `proxy.rs` | a proxy that can lose answers |
//! | `rain.rs` | a campaign of packets, and its ledger |
//! | `sale.rs`, `told.rs` | a hard campaign under load, and all that its users are told |

pub mod cluster;
pub mod crowd;
pub mod databases;
pub mod gateway;
pub mod halt;
pub mod placement;
pub mod process;
pub mod proxies;
pub mod proxy;
pub mod rain;
pub mod redis;
pub mod resp;
pub mod sale;
pub mod shop;
pub mod tls;
pub mod told;

use std::time::Duration;

/// How long a test waits for what must happen: far longer than it takes on a busy machine, since it is only spent when
/// something is broken.
pub const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// Waits until a condition holds; panics with what was waited for if it does not.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(POLL).await;
    }
}
