//! The store on Redis or Valkey (7.0 or newer), a single server or a cluster.
//!
//! ```text
//! counters.rs  records.rs  deployment.rs     the ports: which commands, in which slot
//! pools.rs  pool_steps.rs  pool_answers.rs   the same for exact campaigns: a script for each step
//! claimants.rs  inventory.rs  outbox.rs      who has claimed, what is where, and what the ledger must learn
//!        │   keys.rs  tags.rs  scripts.rs    what keys and scripts are called
//!        ▼
//! confirm.rs  replicas.rs                    scripts whose answer waits for the replicas
//!        ▼
//! router.rs                                  to the slot's owner, through MOVED, ASK and their kind
//!        │
//! topology.rs  slots.rs                      who owns which slot: polled, merged, patched
//!        ▼
//! node.rs  breaker.rs  reply.rs              one server: connections, limits, what its errors prove
//! ```
//!
//! Nothing here waits without a bound: a command has a timeout, a call a deadline, a node a limit of calls under way.
//! A store that is away at the start, or later, is found again without a restart.

pub mod address;
pub mod breaker;
pub mod chance;
pub mod claimants;
pub mod confirm;
pub mod convoy;
pub mod counters;
pub mod deployment;
pub mod inventory;
pub mod keys;
pub mod node;
pub mod outbox;
pub mod pool_answers;
pub mod pool_steps;
pub mod pools;
pub mod records;
pub mod replicas;
pub mod reply;
pub mod router;
pub mod scripts;
pub mod settings;
pub mod slots;
pub mod tags;
pub mod tls;
pub mod topology;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::runtime::tasks::Tasks;
use crate::store::Stores;
use address::RedisUrl;
use confirm::Confirm;
use convoy::Convoys;
use replicas::ClaimReplicas;
use router::Router;
use settings::NodeSettings;
use tls::tls_config;
use topology::Topology;

/// How the store is reached.
#[derive(Clone)]
pub struct RedisConfig {
    /// `redis[s]://[user[:password]@]host[:port]`: any node of a cluster, or a single server.
    pub url: String,
    /// In place of the URL's.
    pub user: Option<String>,
    pub password: Option<String>,
    /// Certificate authorities that `rediss://` trusts, PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// For a connection with its handshakes. A server in reach answers in milliseconds; a longer wait only delays the
    /// next attempt.
    pub connect_timeout: Duration,
    /// For one command on one node. Above the pauses of a healthy server (a fork, a slow script: tens of milliseconds)
    /// and above a WAIT (101 ms).
    pub command_timeout: Duration,
    /// For a call with all its redirects and retries: about what a user bears to wait.
    pub deadline: Duration,
    /// Calls under way at once per node and role; more are refused. A node answers this many in a few milliseconds.
    pub calls_per_node: usize,
    /// Between two looks at who owns which slots; a failover is noticed this late at most.
    pub poll_interval: Duration,
    /// Replicas that must have a claim, and every other change that is waited for, before it is told.
    pub claim_replicas: ClaimReplicas,
}

impl RedisConfig {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            user: None,
            password: None,
            ca_pem: None,
            connect_timeout: Duration::from_millis(500),
            command_timeout: Duration::from_millis(250),
            deadline: Duration::from_millis(500),
            calls_per_node: 512,
            poll_interval: Duration::from_millis(250),
            claim_replicas: ClaimReplicas::Auto,
        }
    }
}

/// Shows nothing secret: the URL may hold a password.
impl std::fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The store, running.
pub struct RedisStore {
    router: Arc<Router>,
    confirm: Arc<Confirm>,
    convoys: Arc<Convoys>,
    changes: watch::Receiver<u64>,
}

impl RedisStore {
    /// Starts the tasks that reach the store. It need not be up; what cannot work however long one waits is refused.
    pub fn start(config: &RedisConfig, tasks: Tasks) -> Result<Arc<Self>, String> {
        let url = RedisUrl::parse(&config.url)?;
        let tls = match (&config.ca_pem, url.tls) {
            (Some(pem), true) => Some(Arc::new(tls_config(pem)?)),
            (None, true) => {
                return Err("rediss:// needs a CA file: the authority that signed the server's certificate".into());
            }
            (Some(_), false) => {
                return Err("a CA file is given, but the URL begins with redis://: use rediss:// for TLS".into());
            }
            (None, false) => None,
        };
        let (changed, changes) = watch::channel(0);
        let settings = Arc::new(NodeSettings {
            user: config.user.clone().or(url.user),
            password: config.password.clone().or(url.password),
            tls,
            connect_timeout: config.connect_timeout,
            calls: config.calls_per_node,
            tasks: tasks.clone(),
            changes: changed,
        });
        let topology = Topology::start(url.address, settings, config.poll_interval);
        let router = Arc::new(Router { topology, deadline: config.deadline, command_timeout: config.command_timeout });
        let confirm = Confirm::new(router.clone(), config.claim_replicas, tasks.clone());
        let convoys = Convoys::new(router.clone(), confirm.clone(), tasks);
        Ok(Arc::new(Self { router, confirm, convoys, changes }))
    }

    pub fn stores(&self) -> Stores {
        Stores {
            counters: Arc::new(counters::RedisCounters::new(self.router.clone(), self.changes.clone())),
            records: Arc::new(records::RedisRecords::new(self.router.clone(), self.confirm.clone())),
            deployment: Arc::new(deployment::RedisDeployment::new(self.router.clone(), self.confirm.clone())),
            pools: Arc::new(pools::RedisPools::new(self.router.clone(), self.confirm.clone(), self.convoys.clone())),
            outbox: Arc::new(outbox::RedisOutbox::new(self.router.clone(), self.confirm.clone())),
        }
    }
}
