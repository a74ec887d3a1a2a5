//! One Redis server as this process sees it. This file and `node/client.rs` are the only ones that name the client
//! library (fred).
//!
//! **Connections by role**, so that none waits behind another's slow command: fast calls (two), bulk reads, calls that
//! end in WAIT (it blocks its connection), steps of pools (two, which end in WAIT too: while one is blocked the other
//! takes the next batch, docs/FAULTS.md F18), and the slot map's poll. They are opened when first used.
//!
//! **A connection is usable** only after its server said who it is. An address can be taken over by a node of another
//! cluster, and a server that was restarted has lost what it did not save.

pub mod client;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::{ClientLike, EventInterface};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::address::Address;
use super::breaker::Breaker;
use super::chance::jitter;
use super::reply::{Command, NodeError, Reply, info_field};
use super::settings::{Identity, NodeSettings, Role};
use client::{RECONNECT_PAUSE_MS, build, send};

/// Connections of a node: two fast ones, two for steps of pools, one of each other role.
const CONNECTIONS: usize = 7;
const POLL: usize = 4;

/// How long calls wait for a connection that was lost or is new, before they fail at once: time for one more attempt to
/// connect, and to find out who was promoted in a planned failover.
const RECONNECT_GRACE: Duration = Duration::from_millis(250);

/// One server.
pub struct Node {
    pub address: Address,
    /// The cluster id it must have; None: whoever answers is right.
    expected_id: Option<String>,
    settings: Arc<NodeSettings>,
    connections: [OnceLock<Arc<Connection>>; CONNECTIONS],
    permits: [Semaphore; 4],
    /// Counts calls of the roles that have two connections, which take turns.
    next: [AtomicUsize; 2],
    breaker: Mutex<Breaker>,
    seen: Mutex<Option<Identity>>,
    last_error: Mutex<String>,
    retired: CancellationToken,
}

struct Connection {
    client: Client,
    usable: AtomicBool,
    /// Since when it is not usable, while it is not.
    down_since: Mutex<Instant>,
    /// How often it became usable.
    times: AtomicU64,
}

impl Node {
    pub fn new(address: Address, expected_id: Option<String>, settings: Arc<NodeSettings>) -> Arc<Self> {
        let permits = [(); 4].map(|()| Semaphore::new(settings.calls));
        let retired = settings.tasks.stop_signal().child_token();
        Arc::new(Self {
            address,
            expected_id,
            settings,
            connections: Default::default(),
            permits,
            next: Default::default(),
            breaker: Mutex::default(),
            seen: Mutex::default(),
            last_error: Mutex::default(),
            retired,
        })
    }

    /// Who answered here last.
    pub fn identity(&self) -> Option<Identity> {
        lock(&self.seen).clone()
    }

    /// True while calls can be made.
    pub fn is_up(&self) -> bool {
        let usable = |connection: &Arc<Connection>| connection.usable.load(Ordering::Acquire);
        self.connections.iter().filter_map(OnceLock::get).any(usable) && !lock(&self.breaker).is_open()
    }

    /// What last went wrong; empty if nothing did.
    pub fn last_error(&self) -> String {
        lock(&self.last_error).clone()
    }

    /// Opens the connections for data ahead of the first call.
    pub fn warm(self: &Arc<Self>) {
        for index in 0..CONNECTIONS {
            self.connection(index);
        }
    }

    /// Closes all connections: the node is no longer part of the store.
    pub fn retire(&self) {
        self.retired.cancel();
    }

    /// Sends commands in order on one connection and waits for all replies, each within `within`. One result per
    /// command, always. With `asking` each command is preceded by ASKING, for a slot that is moving here.
    ///
    /// Not atomic: other clients' commands may come between. Dropping the future does not take commands back.
    pub async fn pipeline(
        self: &Arc<Self>,
        role: Role,
        commands: &[Command],
        asking: bool,
        within: Duration,
    ) -> Vec<Result<Reply, NodeError>> {
        if role == Role::Poll {
            return self.exchange(self.connection(POLL), commands, asking, within).await;
        }
        let (permits, connection) = match role {
            Role::Fast => (&self.permits[0], self.next[0].fetch_add(1, Ordering::Relaxed) % 2),
            Role::Bulk => (&self.permits[1], 2),
            Role::Confirm | Role::Poll => (&self.permits[2], 3),
            Role::Pool => (&self.permits[3], 5 + self.next[1].fetch_add(1, Ordering::Relaxed) % 2),
        };
        // A burst waits its turn, within its own deadline; who waits is bounded by the requests that are let in.
        let asked = Instant::now();
        let Ok(Ok(_permit)) = tokio::time::timeout(within, permits.acquire()).await else {
            return all(commands, &NodeError::Overloaded(format!("{} calls to {}", self.settings.calls, self.address)));
        };
        let within = within.saturating_sub(asked.elapsed());
        if !lock(&self.breaker).admit(Instant::now()) {
            return all(commands, &NodeError::LeftAlone(format!("{} does not answer", self.address)));
        }
        let results = self.exchange(self.connection(connection), commands, asking, within).await;
        self.judge(role, &results);
        results
    }

    /// Tells the breaker. Any reply, also an error, shows a server that answers. Only silence counts against it: a lost
    /// connection shows by itself, and what was not sent shows nothing. Nor does silence behind a WAIT: it is a replica's.
    fn judge(&self, role: Role, results: &[Result<Reply, NodeError>]) {
        let text = match results.iter().find_map(|result| result.as_ref().err()) {
            Some(NodeError::TimedOut(_)) if matches!(role, Role::Confirm | Role::Pool) => return,
            Some(NodeError::TimedOut(text)) => text,
            Some(NodeError::NotSent(_) | NodeError::LeftAlone(_) | NodeError::Ambiguous(_)) => return,
            _ => return lock(&self.breaker).succeeded(),
        };
        lock(&self.last_error).clone_from(text);
        if lock(&self.breaker).failed(Instant::now()) {
            metrics::counter!("headcount_store_breaker_open_total").increment(1);
            tracing::warn!(node = %self.address, error = %text, "a store node does not answer; it is left alone for moments");
        }
    }

    async fn exchange(
        &self,
        connection: Arc<Connection>,
        commands: &[Command],
        asking: bool,
        within: Duration,
    ) -> Vec<Result<Reply, NodeError>> {
        if !connection.usable.load(Ordering::Acquire) {
            let text = format!("no connection to {}", self.address);
            let is_new = lock(&connection.down_since).elapsed() < RECONNECT_GRACE;
            return all(commands, &if is_new { NodeError::NotSent(text) } else { NodeError::LeftAlone(text) });
        }
        let mut answers = send(&connection.client, commands, asking, within, true).await;
        for answer in &mut answers {
            if let Err(NodeError::NotSent(text) | NodeError::Ambiguous(text) | NodeError::TimedOut(text)) = answer {
                *text = format!("{}: {text}", self.address);
            }
        }
        let skip = usize::from(asking);
        if answers.len() != commands.len() * (1 + skip) {
            // A pipeline that could not be sent, or whose time ran out, answers with a single error.
            let error = answers.into_iter().find_map(Result::err);
            return all(commands, &error.unwrap_or(NodeError::Ambiguous("replies are missing".into())));
        }
        answers.into_iter().skip(skip).step_by(1 + skip).collect()
    }

    /// The connection of this number, opened if it is not yet.
    fn connection(self: &Arc<Self>, index: usize) -> Arc<Connection> {
        let connection = self.connections[index].get_or_init(|| {
            let client = build(&self.address, &self.settings);
            let connection = Arc::new(Connection {
                client,
                usable: AtomicBool::new(false),
                down_since: Mutex::new(Instant::now()),
                times: AtomicU64::new(0),
            });
            let (node, supervised) = (self.clone(), connection.clone());
            self.settings.tasks.spawn("redis connection", async move { supervise(&node, &supervised, index).await });
            connection
        });
        connection.clone()
    }

    /// Takes note of who answers; false: it is not who it must be.
    fn recognise(&self, found: Identity, index: usize, again: bool) -> bool {
        if self.expected_id.is_some() && self.expected_id != found.cluster_id {
            let id = found.cluster_id.as_deref().unwrap_or("of no cluster");
            *lock(&self.last_error) = format!("at {} there is now a node {id}", self.address);
            return false;
        }
        let before = lock(&self.seen).replace(found.clone());
        let restarted = before.is_some_and(|before| before.run_id != found.run_id);
        // Each connection comes back by itself; the first one speaks for the node.
        if restarted || (again && index == 0) {
            tracing::info!(node = %self.address, restarted, "store node reached again");
            self.settings.changes.send_modify(|count| *count += 1);
        }
        lock(&self.breaker).succeeded();
        true
    }
}

impl Connection {
    fn is_down(&self) {
        if self.usable.swap(false, Ordering::AcqRel) {
            *lock(&self.down_since) = Instant::now();
        }
    }
}

/// Keeps one connection up until the node is retired or the process stops.
///
/// fred tells of lost connections on a channel, and says `Connected` for one more reconnect pause; `usable` falls with
/// the event, so that nothing is queued meanwhile. It rises only after the server said who it is. A router task that
/// ends (fred's own faults, wrong credentials) is started again.
async fn supervise(node: &Arc<Node>, connection: &Connection, index: usize) {
    let client = &connection.client;
    let mut lost = client.error_rx();
    let mut reached = client.reconnect_rx();
    let pause = Duration::from_millis(RECONNECT_PAUSE_MS.into());
    let mut running = client.connect();
    loop {
        let check = tokio::select! {
            () = node.retired.cancelled() => break,
            ended = &mut running => {
                connection.is_down();
                if let Ok(Err(error)) = ended {
                    *lock(&node.last_error) = error.details().to_string();
                    tracing::debug!(node = %node.address, error = %error, "connection ended");
                }
                tokio::time::sleep(pause + jitter(pause)).await;
                running = client.connect();
                false
            }
            error = lost.recv() => {
                connection.is_down();
                if let Ok((error, _)) = error {
                    *lock(&node.last_error) = error.details().to_string();
                }
                false
            }
            _ = reached.recv() => true,
            // The events are hints: whatever was missed is found out here.
            () = tokio::time::sleep(2 * pause), if !connection.usable.load(Ordering::Acquire) => true,
        };
        if check && let Some(found) = identify(client, node.settings.connect_timeout).await {
            let again = connection.times.fetch_add(1, Ordering::Relaxed) > 0;
            let right = node.recognise(found, index, again);
            connection.usable.store(right, Ordering::Release);
        }
    }
    if connection.usable.swap(false, Ordering::AcqRel) {
        let _closing = tokio::time::timeout(pause, client.quit()).await;
    }
    running.abort();
}

/// Asks a server who it is.
async fn identify(client: &Client, within: Duration) -> Option<Identity> {
    // Valkey has no `redis_mode` any more; `cluster_enabled` is everywhere.
    let sections = [Command::new("INFO").arg("server"), Command::new("INFO").arg("cluster")];
    let info: Vec<String> =
        send(client, &sections, false, within, false).await.into_iter().map(text).collect::<Option<_>>()?;
    let info = info.concat();
    let cluster_id = if info_field(&info, "cluster_enabled") == Some("1") {
        let id = [Command::new("CLUSTER").arg("MYID")];
        Some(send(client, &id, false, within, false).await.pop().and_then(text)?)
    } else {
        None
    };
    Some(Identity { cluster_id, run_id: info_field(&info, "run_id")?.to_string() })
}

fn text(answer: Result<Reply, NodeError>) -> Option<String> {
    answer.ok()?.into_text()
}

fn all(commands: &[Command], error: &NodeError) -> Vec<Result<Reply, NodeError>> {
    commands.iter().map(|_| Err(error.clone())).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What these hold is replaced whole, so a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
