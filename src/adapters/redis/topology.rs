//! Keeps the slot map true: polls the nodes a few times a second, and at once when a redirect shows that it is old.
//!
//! The URL is where it starts: any node of a cluster, or a single server. Once the members are known they are asked,
//! and the URL again only when none of them answers (a rolling restart may change every address; the name is resolved
//! with each connection attempt).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::sync::Notify;

use super::address::Address;
use super::node::Node;
use super::reply::{Command, Redirect, info_field};
use super::settings::{NodeSettings, Role};
use super::slots::{Picture, SlotMap, merge};

/// How long a poll waits for one node: a stopped one must not hold up the round that finds its successor.
const POLL_TIMEOUT: Duration = Duration::from_millis(150);
/// Rounds are at least so far apart, however many redirects ask for one.
const ROUND_GAP: Duration = Duration::from_millis(20);
/// Rounds between two looks at the servers' settings and at a single server's replicas.
const ROUNDS_PER_INSPECTION: u32 = 8;

/// The map, with the nodes that belong to its members.
#[derive(Default)]
pub struct View {
    pub map: SlotMap,
    /// In the order of `map.members`.
    pub nodes: Vec<Arc<Node>>,
}

impl View {
    pub fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        self.map.owner(slot).and_then(|owner| self.nodes.get(owner))
    }

    /// Replicas of the slot's owner that count for WAIT.
    pub fn replicas(&self, slot: u16) -> u32 {
        self.map.owner(slot).map_or(0, |owner| self.map.members[owner].replicas)
    }

    pub fn primaries(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.map.members.iter().zip(&self.nodes).filter(|(member, _)| member.primary).map(|(_, node)| node)
    }
}

pub struct Topology {
    view: ArcSwap<View>,
    seed: Arc<Node>,
    settings: Arc<NodeSettings>,
    /// Members are reached by announced host names: TLS certificates carry those.
    by_name: bool,
    wanted: Notify,
    contacted: AtomicBool,
    warnings: Mutex<Vec<String>>,
}

impl Topology {
    /// Starts polling; the store need not be up.
    pub fn start(seed: Address, settings: Arc<NodeSettings>, interval: Duration) -> Arc<Self> {
        let topology = Arc::new(Self {
            view: ArcSwap::default(),
            seed: Node::new(seed, None, settings.clone()),
            by_name: settings.tls.is_some(),
            settings,
            wanted: Notify::new(),
            contacted: AtomicBool::new(false),
            warnings: Mutex::default(),
        });
        let polling = topology.clone();
        topology.settings.tasks.spawn("redis topology", async move { polling.poll(interval).await });
        topology
    }

    pub fn view(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// True from the first complete map on, for good.
    pub fn contacted(&self) -> bool {
        self.contacted.load(Ordering::Acquire)
    }

    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn seed(&self) -> &Arc<Node> {
        &self.seed
    }

    /// Asks for a round soon.
    pub fn refresh(&self) {
        self.wanted.notify_one();
    }

    /// The node a redirect leads to. `from` answered with it, and an empty host means its host. None: not known yet;
    /// a round is under way.
    pub fn target(&self, redirect: &Redirect, from: &Node) -> Option<Arc<Node>> {
        let host = if redirect.host.is_empty() { &from.address.host } else { &redirect.host };
        let view = self.view.load();
        let found = view.map.member_at(host, redirect.port).and_then(|member| view.nodes.get(member).cloned());
        if found.is_none() {
            self.refresh();
        }
        found
    }

    /// Takes a MOVED for true until the next round says more, so that the calls behind it need no redirect.
    pub fn moved(&self, redirect: &Redirect, to: &Arc<Node>) {
        let mut patched = false;
        self.view.rcu(|view| {
            let member = view.nodes.iter().position(|node| Arc::ptr_eq(node, to));
            patched = member.is_some() && member != view.map.owner(redirect.slot);
            let mut map = view.map.clone();
            if let Some(member) = member {
                map.give(redirect.slot, member);
            }
            View { map, nodes: view.nodes.clone() }
        });
        if patched {
            self.settings.changes.send_modify(|count| *count += 1);
            self.refresh();
        }
    }

    async fn poll(self: Arc<Self>, interval: Duration) {
        let stop = self.settings.tasks.stop_signal();
        let mut round = 0;
        loop {
            self.round(round % ROUNDS_PER_INSPECTION == 0).await;
            // Until first contact there is nobody to inspect; the first round after it should.
            round = if self.contacted() { round + 1 } else { 0 };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wanted.notified() => tokio::time::sleep(ROUND_GAP).await,
                // A process that has no store yet asks more often: somebody waits for it to be ready.
                () = tokio::time::sleep(if self.contacted() { interval } else { interval.min(2 * ROUND_GAP) }) => {}
            }
        }
    }

    async fn round(&self, inspect: bool) {
        let known = self.view.load().nodes.clone();
        let single = self.is_single(&known);
        let mut pictures = if single { Vec::new() } else { pictures(&known).await };
        if pictures.is_empty() && !single {
            // Opens the connection, if this is the first time.
            pictures = self::pictures(std::slice::from_ref(&self.seed)).await;
        }
        if !pictures.is_empty() {
            self.install(merge(&pictures, self.by_name));
        } else if !single && self.seed.identity().is_some_and(|identity| identity.cluster_id.is_none()) {
            // One server without a cluster: it owns everything, and there is nothing to ask it about that.
            self.seed.warm();
            let map = SlotMap::single(self.seed.address.clone(), 0);
            self.view.store(Arc::new(View { map, nodes: vec![self.seed.clone()] }));
            self.first_contact();
        }
        if inspect {
            self.inspect().await;
        }
    }

    fn is_single(&self, known: &[Arc<Node>]) -> bool {
        known.first().is_some_and(|node| Arc::ptr_eq(node, &self.seed))
    }

    fn install(&self, map: SlotMap) {
        let before = self.view.load_full();
        if map == before.map {
            return;
        }
        let mut known: HashMap<(&str, &Address), &Arc<Node>> = before
            .map
            .members
            .iter()
            .zip(&before.nodes)
            .map(|(member, node)| ((member.id.as_str(), &member.address), node))
            .collect();
        let nodes: Vec<Arc<Node>> = map
            .members
            .iter()
            .map(|member| {
                known.remove(&(member.id.as_str(), &member.address)).cloned().unwrap_or_else(|| {
                    Node::new(member.address.clone(), Some(member.id.clone()), self.settings.clone())
                })
            })
            .collect();
        known.into_values().for_each(|gone| gone.retire());
        let moved = map.moved_since(&before.map);
        let view = Arc::new(View { map, nodes });
        // Ahead of the first call, which after a failover is many calls.
        view.primaries().for_each(Node::warm);
        self.view.store(view.clone());
        if moved {
            metrics::counter!("headcount_store_topology_changes_total").increment(1);
            self.settings.changes.send_modify(|count| *count += 1);
            tracing::info!(members = %members(&view), "slots have moved in the store");
        }
        if view.map.is_complete() {
            self.first_contact();
        }
    }

    fn first_contact(&self) {
        if !self.contacted.swap(true, Ordering::AcqRel) {
            tracing::info!(members = %members(&self.view.load()), "store reached");
        }
    }

    /// Looks at what the primaries' settings put at risk, and at how many replicas a single server has.
    async fn inspect(&self) {
        let view = self.view.load_full();
        let single = self.is_single(&view.nodes);
        let mut warnings = Vec::new();
        for node in view.primaries() {
            let sections = [
                Command::new("INFO").arg("memory"),
                Command::new("INFO").arg("persistence"),
                Command::new("INFO").arg("replication"),
            ];
            let answers = node.pipeline(Role::Poll, &sections, false, POLL_TIMEOUT).await;
            let Some(texts) = answers.into_iter().map(|answer| answer.ok()?.into_text()).collect::<Option<Vec<_>>>()
            else {
                return; // What was seen last stands.
            };
            let text = texts.concat();
            warnings.extend(at_risk(&text, single).into_iter().map(|risk| format!("{}: {risk}", node.address)));
            if single
                && let Some(replicas) = info_field(&text, "connected_slaves").and_then(|count| count.parse().ok())
                && replicas != view.map.members[0].replicas
            {
                let map = SlotMap::single(node.address.clone(), replicas);
                self.view.store(Arc::new(View { map, nodes: view.nodes.clone() }));
            }
        }
        let mut standing = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if *standing != warnings {
            warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            *standing = warnings;
        }
    }
}

async fn pictures(nodes: &[Arc<Node>]) -> Vec<Picture> {
    let command = [Command::new("CLUSTER").arg("NODES")];
    let asked = nodes.iter().map(|node| async {
        let answer = node.pipeline(Role::Poll, &command, false, POLL_TIMEOUT).await.pop()?.ok()?;
        Picture::parse(&answer.into_text()?, &node.address.host)
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// What these settings of a server can lose.
fn at_risk(info: &str, single: bool) -> Vec<String> {
    let mut risks = Vec::new();
    if let Some(policy) = info_field(info, "maxmemory_policy")
        && policy != "noeviction"
    {
        risks.push(format!("maxmemory-policy is {policy}: a full server throws counts away; set noeviction"));
    }
    if single && info_field(info, "aof_enabled") == Some("0") {
        risks.push("appendonly is off: a restart loses counts since the last snapshot; set appendonly yes".into());
    }
    risks
}

/// Primaries with their slot counts, for logs.
pub fn members(view: &View) -> String {
    let slots = view.map.slots_of_members();
    let primaries = view.map.members.iter().zip(slots).filter(|(_, slots)| *slots > 0);
    let mut texts: Vec<String> = primaries
        .map(|(member, slots)| format!("{} ({slots} slots, {} replicas)", member.address, member.replicas))
        .collect();
    texts.sort();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_lose_counts_are_named() {
        let info = "# Memory\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\n";
        assert_eq!(at_risk(info, true).len(), 2);
        assert_eq!(at_risk(info, false).len(), 1);
        assert_eq!(at_risk("maxmemory_policy:noeviction\r\naof_enabled:1\r\n", true), Vec::<String>::new());
    }
}
