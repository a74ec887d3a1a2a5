//! The simulated store: nodes with a primary and a replica, a network between them and the processes, and what can go
//! wrong with each. The pools are the very state machine that the embedded store runs.
//!
//! Time is tokio's paused clock, chance a seeded generator, so that a case runs the same way each time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use headcount::domain::quota::marks::{Floor, Parcel};
use headcount::domain::quota::pool::Pool;
use headcount::domain::quota::step::{Step, Stepped};
use headcount::store::error::StoreError;
use tokio::time::Instant;

use crate::chance::Chance;
use crate::mutants::{self, Mutant};

/// The store's clock when a case begins.
pub const BEGINNING_MS: i64 = 1_800_000_000_000;
/// How long a WAIT waits.
const WAIT: Duration = Duration::from_millis(50);
/// How long a call waits for a reply.
const TIMEOUT: Duration = Duration::from_millis(250);
const NODES: usize = 3;

/// What may go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Of 1,000 messages: requests lost, replies lost, requests that arrive twice.
    pub lost: u32,
    pub deaf: u32,
    pub twice: u32,
}

pub const CALM: Weather = Weather { lost: 0, deaf: 0, twice: 0 };
pub const STORMY: Weather = Weather { lost: 20, deaf: 30, twice: 60 };

/// One node: the primary's pools, and what its replica has.
#[derive(Default)]
pub struct Node {
    pub primary: BTreeMap<u16, Option<Pool>>,
    replica: BTreeMap<u16, Option<Pool>>,
    /// States on their way to the replica.
    link: VecDeque<(u64, u16, Option<Pool>)>,
    offset: u64,
    replicated: u64,
    cut_until: Option<Instant>,
    down_until: Option<Instant>,
    run: u32,
    /// A state of a while ago, for a loss that replication does not heal.
    backup: BTreeMap<u16, Option<Pool>>,
}

/// All nodes.
pub struct World {
    pub nodes: Vec<Node>,
    pub chance: Chance,
    pub weather: Weather,
    pub mutant: Option<Mutant>,
    pub began: Instant,
    /// Parcels that a mutant keeps open beside the one that there should be: by donor and home.
    pub beside: HashMap<(u16, u16), Parcel>,
    /// The campaign's record.
    pub record: Option<headcount::store::records::Record>,
    pub violation: Option<String>,
    pub watch: crate::oracle::Oracle,
}

impl World {
    pub fn new(seed: u64, weather: Weather, mutant: Option<Mutant>) -> Self {
        Self {
            nodes: (0..NODES).map(|_| Node::default()).collect(),
            chance: Chance::new(seed),
            weather,
            mutant,
            began: Instant::now(),
            beside: HashMap::new(),
            record: None,
            violation: None,
            watch: crate::oracle::Oracle::default(),
        }
    }

    pub fn now_us(&self) -> i64 {
        BEGINNING_MS * 1000 + self.began.elapsed().as_micros() as i64
    }

    pub fn pool(&self, shard: u16) -> Option<&Pool> {
        self.nodes[usize::from(shard) % NODES].primary.get(&shard).and_then(Option::as_ref)
    }

    pub fn pools(&self) -> impl Iterator<Item = (u16, &Pool)> {
        let of_node = |node| {
            let node: &Node = node;
            node.primary.iter().filter_map(|(shard, pool)| Some((*shard, pool.as_ref()?)))
        };
        self.nodes.iter().flat_map(of_node)
    }

    /// Runs a step on the primary; the answer, and the offset that its WAIT waits for.
    fn run(&mut self, shard: u16, floor: Floor, step: &Step) -> Result<(Stepped, u64), StoreError> {
        let (now_us, mutant) = (self.now_us(), self.mutant);
        let node = &mut self.nodes[usize::from(shard) % NODES];
        if node.down_until.is_some_and(|until| until > Instant::now()) {
            return Err(unavailable("the node is down"));
        }
        let run = format!("run-{}", node.run);
        let slot = node.primary.entry(shard).or_default();
        let before = slot.clone();
        mutants::before(mutant, slot, shard, step, &mut self.beside);
        let stepped = Pool::step(slot, now_us, floor, &run, step.clone());
        mutants::after(mutant, slot, shard, step, &stepped, &mut self.beside);
        let changed = before != *slot;
        if changed {
            node.offset += 1;
            node.link.push_back((node.offset, shard, slot.clone()));
        }
        // A WAIT after a script that wrote nothing says "replicated" at once on Redis from 7.2 on, and on Valkey.
        let proves_nothing = mutant == Some(Mutant::WaitWithoutWrite) && !changed;
        let unwaited = mutant == Some(Mutant::CreditBeforeDebitIsReplicated) && matches!(step, Step::Debit { .. });
        let offset = if proves_nothing || unwaited { 0 } else { node.offset };
        self.examine();
        Ok((stepped, offset))
    }

    /// Looks for a violation, after every change.
    pub fn examine(&mut self) {
        if self.violation.is_none() {
            let watch = std::mem::take(&mut self.watch);
            self.violation = watch.examine(self).err();
            self.watch = watch;
            self.watch.note_stock(self.now_us(), self.free_until());
        }
    }

    /// If no unit is free now: until when that stays so by itself (a cooling unit becomes ready). None: one is free.
    fn free_until(&self) -> Option<i64> {
        let now_ms = self.now_us() / 1000;
        let mut until = i64::MAX;
        for (donor, pool) in self.pools() {
            let travelling = pool.out.iter().any(|(home, parcel)| {
                self.pool(*home).is_none_or(|pool| pool.came.get(&donor).is_none_or(|(seq, _)| *seq < parcel.seq))
            });
            if !pool.avail.is_empty() || travelling {
                return None;
            }
            match pool.cooling.first() {
                Some(first) if first.ready_ms <= now_ms => return None,
                Some(first) => until = until.min(first.ready_ms * 1000),
                None => {}
            }
        }
        Some(until)
    }

    /// Moves some states over the link to the replica.
    fn replicate(&mut self, node: usize, all: bool) {
        let node = &mut self.nodes[node];
        if !all && node.cut_until.is_some_and(|until| until > Instant::now()) {
            return;
        }
        let count = if all { node.link.len() } else { self.chance.below(node.link.len() as u64 + 1) as usize };
        for (offset, shard, pool) in node.link.drain(..count) {
            node.replica.insert(shard, pool);
            node.replicated = offset;
        }
    }

    /// The replica takes over: what it does not have is gone.
    pub fn fail_over(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.link.clear();
        node.primary = node.replica.clone();
        node.offset = node.replicated;
        node.run += 1;
        node.cut_until = None;
        node.down_until = None;
        self.examine();
    }

    pub fn cut(&mut self, node: usize, span: Duration) {
        self.nodes[node].cut_until = Some(Instant::now() + span);
    }

    pub fn stop(&mut self, node: usize, span: Duration) {
        self.nodes[node].down_until = Some(Instant::now() + span);
    }

    /// Remembers a state for `lose`.
    pub fn back_up(&mut self, node: usize) {
        self.nodes[node].backup = self.nodes[node].primary.clone();
    }

    /// The node comes back with an old state, on primary and replica: more is lost than replication can guard against.
    pub fn lose(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        if node.backup.is_empty() {
            return;
        }
        node.link.clear();
        node.primary = node.backup.clone();
        node.replica = node.backup.clone();
        node.run += 1;
        node.offset += 1;
        node.replicated = node.offset;
    }

    pub fn heal(&mut self) {
        self.weather = CALM;
        for node in &mut self.nodes {
            node.cut_until = None;
            node.down_until = None;
        }
    }
}

/// The world, shared by all processes of a case.
pub struct Sim(pub Mutex<World>);

impl Sim {
    pub fn lock(&self) -> std::sync::MutexGuard<'_, World> {
        self.0.lock().expect("no case goes on after a panic")
    }

    /// A call from a process to the pool of a shard, over the network.
    pub async fn step(
        self: &std::sync::Arc<Self>,
        shard: u16,
        floor: Floor,
        step: Step,
    ) -> Result<Stepped, StoreError> {
        let (delay, lost, deaf, twice, back) = {
            let mut world = self.lock();
            let weather = world.weather;
            let chance = &mut world.chance;
            (
                chance.micros(100, 3000),
                chance.of_1000(weather.lost),
                chance.of_1000(weather.deaf),
                chance.of_1000(weather.twice),
                chance.micros(100, 3000),
            )
        };
        tokio::time::sleep(delay).await;
        if lost {
            tokio::time::sleep(TIMEOUT).await;
            return Err(unavailable("the request was lost"));
        }
        let (stepped, offset) = self.lock().run(shard, floor, &step)?;
        if twice {
            let (sim, delay) = (self.clone(), self.lock().chance.micros(100, 400_000));
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let _ = sim.lock().run(shard, floor, &step);
            });
        }
        let node = usize::from(shard) % NODES;
        let run = self.lock().nodes[node].run;
        let deadline = Instant::now() + WAIT;
        loop {
            {
                let mut world = self.lock();
                world.replicate(node, false);
                if world.nodes[node].run != run {
                    return Err(unavailable("the connection broke"));
                }
                if world.nodes[node].replicated >= offset {
                    break;
                }
            }
            if Instant::now() >= deadline {
                return Err(StoreError::Unconfirmed("the replica did not answer".into()));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(back).await;
        if deaf {
            tokio::time::sleep(TIMEOUT).await;
            return Err(unavailable("the reply was lost"));
        }
        Ok(stepped)
    }
}

pub fn unavailable(text: &str) -> StoreError {
    StoreError::Unavailable(text.into())
}
