//! A Redis Cluster of real servers, and the faults a test can cause in it.

use std::collections::HashMap;
use std::time::Duration;

use super::eventually;
use super::process::free_port;
use super::redis::{Flavor, RedisServer};
use super::resp::Reply;

pub const SLOTS: u16 = 16_384;

/// How a cluster is made.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    pub flavor: Flavor,
    pub masters: usize,
    /// For each master.
    pub replicas: usize,
    /// More lines for every node's configuration.
    pub lines: Vec<String>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { flavor: Flavor::Redis, masters: 3, replicas: 1, lines: Vec::new() }
    }
}

/// Nodes `0..masters` begin as masters, each with an equal part of the slots; node `masters + i` begins as a replica of
/// master `i % masters`. After a failover ask `owner_of` and `masters_now`.
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
    ids: Vec<String>,
}

impl RedisCluster {
    /// Three masters, three replicas; a dead master is noticed after 2 s.
    pub async fn start() -> Self {
        Self::start_with(ClusterOptions::default()).await
    }

    pub async fn start_with(options: ClusterOptions) -> Self {
        let count = options.masters * (1 + options.replicas);
        let bus_ports: Vec<u16> = (0..count).map(|_| free_port()).collect();
        let nodes: Vec<RedisServer> = bus_ports.iter().map(|bus| spawn_node(&options, *bus)).collect();
        for node in &nodes {
            node.ready().await;
        }
        let ids = nodes.iter().map(|node| node.command(&["CLUSTER", "MYID"]).text()).collect();
        let cluster = Self { nodes, ids };
        cluster.introduce(&bus_ports, options.masters).await;
        cluster.attach_replicas(options.masters).await;
        cluster.settled().await;
        cluster
    }

    /// Gives the slots to the masters and every node the address of every other.
    async fn introduce(&self, bus_ports: &[u16], masters: usize) {
        // Different from the start: nodes that share an epoch give each other new ones, one by one. Refused once a node
        // knows another one.
        for (i, node) in self.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]).ok();
        }
        for (i, node) in self.nodes.iter().enumerate() {
            for (other, bus) in self.nodes.iter().zip(bus_ports).skip(i + 1) {
                let (port, bus) = (other.port.to_string(), bus.to_string());
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).ok();
            }
        }
        for (i, node) in self.nodes[..masters].iter().enumerate() {
            let bound = |i: usize| usize::from(SLOTS) * i / masters;
            let (first, last) = (bound(i).to_string(), (bound(i + 1) - 1).to_string());
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).ok();
        }
        eventually("all nodes to know each other", async || {
            let count = self.nodes.len().to_string();
            self.nodes.iter().all(|node| cluster_info(node, "cluster_known_nodes") == count)
        })
        .await;
    }

    async fn attach_replicas(&self, masters: usize) {
        for (i, node) in self.nodes.iter().enumerate().skip(masters) {
            let master = &self.ids[i % masters];
            eventually("a replica to accept its master", async || {
                node.command(&["CLUSTER", "REPLICATE", master]) == Reply::Text("OK".to_owned())
            })
            .await;
        }
    }

    /// Waits until every node that is there sees all slots served, and every replica that is there is in step.
    pub async fn settled(&self) {
        eventually("a cluster in order", async || {
            self.nodes.iter().filter(|node| node.is_there()).all(|node| {
                let served = cluster_info(node, "cluster_state") == "ok"
                    && cluster_info(node, "cluster_slots_ok") == SLOTS.to_string();
                let linked = node.info("replication", "role").as_deref() == Some("master")
                    || node.info("replication", "master_link_status").as_deref() == Some("up");
                served && linked && view(node).iter().filter(|seen| seen.link_lost).count() == 0
            })
        })
        .await;
    }

    /// The URL a gateway is given: any node leads to the others.
    pub fn url(&self) -> String {
        self.nodes[0].url()
    }

    /// Which node serves a slot, as a majority of the answering nodes sees it; None while that is nobody.
    pub fn owner_of(&self, slot: u16) -> Option<usize> {
        let mut votes: HashMap<String, usize> = HashMap::new();
        let answering = self.nodes.iter().filter(|node| node.answers());
        for node in answering {
            for seen in view(node).into_iter().filter(|seen| seen.serves(slot) && !seen.failed) {
                *votes.entry(seen.id).or_default() += 1;
            }
        }
        let (id, count) = votes.into_iter().max_by_key(|(_, count)| *count)?;
        (count * 2 > self.nodes.len()).then(|| self.index_of(&id))
    }

    /// The nodes that serve slots now.
    pub fn masters_now(&self) -> Vec<usize> {
        let seen = view(self.answering()).into_iter().filter(|seen| !seen.ranges.is_empty() && !seen.failed);
        let mut masters: Vec<usize> = seen.map(|seen| self.index_of(&seen.id)).collect();
        masters.sort_unstable();
        masters
    }

    /// Waits until somebody else than `former` serves a slot, and answers who.
    pub async fn failed_over(&self, slot: u16, former: usize) -> usize {
        let mut owner = None;
        eventually("a failover", async || {
            owner = self.owner_of(slot).filter(|owner| *owner != former);
            owner.is_some()
        })
        .await;
        owner.expect("the one just seen")
    }

    /// Moves a slot as resharding tools do, `pause` after every ten keys: clients meet MOVED, ASK and TRYAGAIN.
    pub async fn migrate_slot(&self, slot: u16, to: usize, pause: Duration) {
        let from = self.begin_move(slot, to);
        self.move_keys(slot, from, to, pause).await;
        self.end_move(slot, from, to);
    }

    /// The first part of a move: the slot is MIGRATING and IMPORTING, no key has moved. Answers where it was.
    pub fn begin_move(&self, slot: u16, to: usize) -> usize {
        let from = self.owner_of(slot).expect("a slot that is served");
        let slot = slot.to_string();
        self.nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]).ok();
        self.nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]).ok();
        from
    }

    /// The second part: the keys, ten at a time.
    pub async fn move_keys(&self, slot: u16, from: usize, to: usize, pause: Duration) {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        loop {
            let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "10"]).list();
            if keys.is_empty() {
                break;
            }
            let port = target.port.to_string();
            let mut migrate: Vec<Vec<u8>> =
                ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"].map(|arg| arg.as_bytes().to_vec()).into();
            migrate.extend(keys.into_iter().map(|key| match key {
                Reply::Bytes(key) => key,
                other => panic!("no key: {other:?}"),
            }));
            // NOKEY: all ten have expired or been removed meanwhile.
            let moved = source.command(&migrate).text();
            assert!(moved == "OK" || moved == "NOKEY", "{moved}");
            tokio::time::sleep(pause).await;
        }
    }

    /// The last part: the slot is the new node's.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        // The target first: were the source first, it would answer MOVED to a node that does not know yet.
        self.nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]]).ok();
        self.nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]]).ok();
        for master in self.masters_now().into_iter().filter(|master| *master != to && *master != from) {
            self.nodes[master].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]]).ok();
        }
    }

    /// The replicas of a master.
    pub fn replicas_of(&self, master: usize) -> Vec<usize> {
        let port = self.nodes[master].port.to_string();
        let is_replica = |node: &usize| self.nodes[*node].info("replication", "master_port").as_deref() == Some(&*port);
        (0..self.nodes.len()).filter(|node| self.nodes[*node].answers()).filter(is_replica).collect()
    }

    /// Cuts a replica off its master, for good or until `mend_link`: it knocks with a name that the master does not
    /// know. The link is down on return.
    pub async fn cut_link(&self, replica: usize) {
        let node = &self.nodes[replica];
        node.command(&["CONFIG", "SET", "masteruser", "nobody"]).ok();
        node.command(&["CONFIG", "SET", "masterauth", "nothing"]).ok();
        node.command(&["CLIENT", "KILL", "TYPE", "master"]);
        eventually("the link to be down", async || {
            node.info("replication", "master_link_status").as_deref() == Some("down")
        })
        .await;
    }

    pub fn mend_link(&self, replica: usize) {
        let node = &self.nodes[replica];
        node.command(&["CONFIG", "SET", "masteruser", ""]).ok();
        node.command(&["CONFIG", "SET", "masterauth", ""]).ok();
    }

    /// Calls by command, summed over the nodes that serve slots now: what clients sent. (Replicas repeat the writes.)
    pub fn master_command_calls(&self) -> HashMap<String, u64> {
        sum(self.masters_now().into_iter().map(|master| &self.nodes[master]))
    }

    /// Every key that contains a text, and which master has it.
    pub fn keys_with(&self, text: &str) -> Vec<(usize, Vec<u8>)> {
        let of_master = |master: usize| self.nodes[master].keys_with(text).into_iter().map(move |key| (master, key));
        self.masters_now().into_iter().flat_map(of_master).collect()
    }

    fn index_of(&self, id: &str) -> usize {
        self.ids.iter().position(|known| known == id).expect("a node of ours")
    }

    fn answering(&self) -> &RedisServer {
        self.nodes.iter().find(|node| node.answers()).expect("a node that answers")
    }
}

fn spawn_node(options: &ClusterOptions, bus_port: u16) -> RedisServer {
    let mut lines = vec![
        "cluster-enabled yes".to_owned(),
        format!("cluster-port {bus_port}"),
        "cluster-node-timeout 2000".to_owned(),
        // One dead master shall not take the others' slots with it.
        "cluster-require-full-coverage no".to_owned(),
        // Replicas stay with their masters, so that tests know who takes over.
        "cluster-allow-replica-migration no".to_owned(),
    ];
    lines.extend(options.lines.iter().cloned());
    RedisServer::spawn(options.flavor, &lines, None)
}

fn cluster_info(node: &RedisServer, field: &str) -> String {
    let text = node.told(&["CLUSTER", "INFO"]).unwrap_or_default();
    let prefix = format!("{field}:");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default().to_owned()
}

/// One line of `CLUSTER NODES`.
struct Seen {
    id: String,
    failed: bool,
    link_lost: bool,
    ranges: Vec<(u16, u16)>,
}

impl Seen {
    fn serves(&self, slot: u16) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

fn view(node: &RedisServer) -> Vec<Seen> {
    let text = node.told(&["CLUSTER", "NODES"]).unwrap_or_default();
    let seen = |line: &str| {
        // <id> <address> <flags> <master> <ping> <pong> <epoch> <link> <slot> ...; moving slots stand in brackets.
        let fields: Vec<&str> = line.split(' ').collect();
        let ranges = fields[8..].iter().filter(|slots| !slots.starts_with('['));
        let range = |slots: &&str| {
            let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
            (first.parse().expect("a slot"), last.parse().expect("a slot"))
        };
        Seen {
            id: fields[0].to_owned(),
            failed: fields[2].split(',').any(|flag| flag == "fail"),
            link_lost: fields[7] != "connected",
            ranges: ranges.map(range).collect(),
        }
    };
    text.lines().map(seen).collect()
}

fn sum<'a>(nodes: impl Iterator<Item = &'a RedisServer>) -> HashMap<String, u64> {
    let mut total = HashMap::new();
    for (name, calls) in nodes.flat_map(RedisServer::command_calls) {
        *total.entry(name).or_default() += calls;
    }
    total
}
