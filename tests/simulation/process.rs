//! A process: the service as it is, on ports that lead into the simulated world.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use headcount::domain::element::{HashKey, UserHashing};
use headcount::domain::id::CampaignId;
use headcount::domain::period::Retention;
use headcount::domain::quota::inventory::Inventory;
use headcount::domain::quota::marks::Floor;
use headcount::domain::quota::step::{Step, Stepped};
use headcount::domain::ring::Shards;
use headcount::local::store_clock::StoreClock;
use headcount::runtime::clock::Clock;
use headcount::runtime::tasks::Tasks;
use headcount::service::book::{Book, Defaults};
use headcount::service::identity::Identity;
use headcount::service::manage::campaigns::Campaigns;
use headcount::service::quota::claims::HardClaims;
use headcount::service::quota::offer::Offers;
use headcount::service::quota::operations::Operations;
use headcount::service::quota::upkeep::Upkeep;
use headcount::store::StoreFuture;
use headcount::store::documents::{CampaignDocument, Document};
use headcount::store::error::StoreError;
use headcount::store::pools::{Claimants, ClaimantsMark, ClaimsPage, Duty, PoolAddress, Pools, Safety};
use headcount::store::records::{Page, Put, Record, RecordKind, Records};
use jiff::Timestamp;

use crate::mutants;
use crate::world::{BEGINNING_MS, Sim, unavailable};

/// The secret of every case.
pub fn hashing() -> UserHashing {
    UserHashing::Keyed(HashKey::from_bytes(*b"sixteen bytes ok"))
}

pub struct Process {
    pub hard: HardClaims,
    pub campaigns: Campaigns,
    pub upkeep: Upkeep,
    alive: Arc<AtomicBool>,
}

impl Process {
    pub fn start(sim: &Arc<Sim>, shards: Shards, interval: Duration) -> Arc<Self> {
        let alive = Arc::new(AtomicBool::new(true));
        let ports = Arc::new(Ports { sim: sim.clone(), alive: alive.clone(), shards });
        let tasks = Tasks::new();
        let identity = Arc::new(Identity::default());
        identity.learn(hashing());
        let defaults = Defaults { shards, retention: Retention::DEFAULT };
        let book = Arc::new(Book::new(ports.clone(), defaults, identity.clone(), &tasks));
        let beginning = Timestamp::from_millisecond(BEGINNING_MS).expect("a time");
        let store_clock = Arc::new(StoreClock::new(Clock::settable(beginning)));
        let offers = Arc::new(Offers::new(ports.clone(), false));
        let operations =
            Arc::new(Operations { book: book.clone(), records: ports.clone(), offers: offers.clone(), drain: None });
        let hard = HardClaims {
            book: book.clone(),
            offers: offers.clone(),
            identity,
            store_clock: store_clock.clone(),
            tasks,
        };
        let upkeep = Upkeep { book: book.clone(), offers, operations: operations.clone() };
        let campaigns = Campaigns { book, records: ports, store_clock, operations, sold_out_interval: interval };
        Arc::new(Self { hard, campaigns, upkeep, alive })
    }

    /// From now on nothing it does has any effect, and nothing reaches it.
    pub fn kill(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }

    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }
}

struct Ports {
    sim: Arc<Sim>,
    alive: Arc<AtomicBool>,
    shards: Shards,
}

impl Ports {
    /// A dead process waits for ever.
    async fn live(&self) {
        if !self.alive.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    async fn travel(&self) -> Result<(), StoreError> {
        self.live().await;
        let (delay, lost) = {
            let mut world = self.sim.lock();
            let lost = world.weather.lost;
            (world.chance.micros(100, 3000), world.chance.of_1000(lost))
        };
        tokio::time::sleep(delay).await;
        self.live().await;
        if lost { Err(unavailable("a message was lost")) } else { Ok(()) }
    }
}

impl Pools for Ports {
    fn step<'a>(&'a self, pool: &'a PoolAddress, floor: Floor, step: Step) -> StoreFuture<'a, Stepped> {
        Box::pin(async move {
            self.live().await;
            let shard = self.shards.shard_at(pool.position) as u16;
            let stepped = self.sim.step(shard, floor, step).await;
            self.live().await;
            stepped
        })
    }

    fn claims<'a>(&'a self, pool: &'a PoolAddress, _: Option<&'a str>, _: usize) -> StoreFuture<'a, ClaimsPage> {
        Box::pin(async move {
            self.travel().await?;
            let shard = self.shards.shard_at(pool.position) as u16;
            let world = self.sim.lock();
            let claims = world.pool(shard).map(|pool| pool.claims.clone()).unwrap_or_default();
            Ok(ClaimsPage { claims: claims.into_iter().collect(), next: None })
        })
    }

    fn claimants<'a>(&'a self, pool: &'a PoolAddress, _: Option<&'a ClaimantsMark>) -> StoreFuture<'a, Claimants> {
        Box::pin(async move {
            self.travel().await?;
            let shard = self.shards.shard_at(pool.position) as u16;
            let users = {
                let world = self.sim.lock();
                world.pool(shard).map(|pool| pool.claims.keys().map(|user| user.short()).collect()).unwrap_or_default()
            };
            let claimants =
                Claimants { users, all: true, mark: ClaimantsMark { incarnation: 1, place: String::new() } };
            self.travel().await?;
            Ok(claimants)
        })
    }

    fn remove<'a>(&'a self, _: &'a PoolAddress) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn lease<'a>(&'a self, _: &'a CampaignId, _: Duty, _: &'a str, _: Duration) -> StoreFuture<'a, bool> {
        Box::pin(async { Ok(true) })
    }

    fn inventory<'a>(&'a self, pool: &'a PoolAddress) -> StoreFuture<'a, Option<Inventory>> {
        Box::pin(async move {
            self.travel().await?;
            let shard = self.shards.shard_at(pool.position) as u16;
            Ok(self.sim.lock().pool(shard).map(Inventory::from))
        })
    }

    fn obstacle(&self) -> StoreFuture<'_, Option<String>> {
        Box::pin(async { Ok(None) })
    }

    fn safety(&self, _: &PoolAddress) -> Safety {
        Safety::Safe { replicas: 1 }
    }
}

impl Records for Ports {
    fn get<'a>(&'a self, _: RecordKind, _: &'a str) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            self.travel().await?;
            let record = self.sim.lock().record.clone();
            self.travel().await?;
            Ok(record)
        })
    }

    fn put<'a>(&'a self, _: RecordKind, _: &'a str, expected: u64, body: Bytes) -> StoreFuture<'a, Put> {
        Box::pin(async move {
            self.travel().await?;
            let put = write(&self.sim, expected, body);
            self.travel().await?;
            Ok(put)
        })
    }

    fn list<'a>(&'a self, _: RecordKind, _: Option<&'a str>, _: usize) -> StoreFuture<'a, Page> {
        Box::pin(async { Ok(Page::default()) })
    }
}

/// The one record of a case.
fn write(sim: &Sim, expected: u64, body: Bytes) -> Put {
    let mut world = sim.lock();
    let standing = world.record.clone();
    let version = standing.as_ref().map_or(0, |record| record.version);
    if version != expected {
        return Put::Conflict(standing);
    }
    let decode = |record: &Record| CampaignDocument::decode(record).expect("the service writes documents");
    let mut document = decode(&Record { version, body });
    mutants::record(world.mutant, standing.as_ref().map(decode).as_ref(), &mut document);
    let version = version + 1;
    world.record = Some(Record { version, body: document.encode() });
    world.watch.document = Some(document);
    world.examine();
    Put::Written { version }
}
