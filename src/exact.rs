//! The parts of exact admission and its ledger, put together (`app.rs` has the others).

use std::sync::Arc;
use std::time::Duration;

use crate::jobs::drain::DrainDuty;
use crate::jobs::rounds::CampaignDuty;
use crate::jobs::upkeep::{Unmended, UpkeepDuty};
use crate::local::store_clock::StoreClock;
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;
use crate::service::book::Book;
use crate::service::identity::Identity;
use crate::service::ledger::drain::{Drain, Told};
use crate::service::ledger::erase::Erase;
use crate::service::ledger::lost::Mending;
use crate::service::ledger::reconcile::Reconcile;
use crate::service::ledger::testify::Testimony;
use crate::service::quota::claims::HardClaims;
use crate::service::quota::offer::Offers;
use crate::service::quota::operations::Operations;
use crate::service::quota::upkeep::Upkeep;
use crate::store::ledger::Ledger;
use crate::store::outbox::Outbox;
use crate::store::pools::Pools;
use crate::store::records::Records;

/// What it is made of.
pub struct Materials {
    pub book: Arc<Book>,
    pub identity: Arc<Identity>,
    pub store_clock: Arc<StoreClock>,
    pub records: Arc<dyn Records>,
    pub pools: Arc<dyn Pools>,
    pub outbox: Arc<dyn Outbox>,
    pub ledger: Option<Arc<dyn Ledger>>,
    /// A ledger so far behind is an alarm.
    pub alarm: Duration,
}

/// What it consists of.
pub struct Exact {
    pub hard: HardClaims,
    pub operations: Arc<Operations>,
    pub erase: Erase,
    pub duties: Vec<Arc<dyn CampaignDuty>>,
    /// With a ledger.
    pub reconcile: Option<Arc<Reconcile>>,
    pub testimony: Option<Arc<Testimony>>,
}

impl Materials {
    pub fn assemble(self, clock: &Clock, tasks: &Tasks) -> Exact {
        let Materials { book, identity, store_clock, records, pools, outbox, ledger, alarm } = self;
        metrics::gauge!("headcount_ledger_configured").set(if ledger.is_some() { 1.0 } else { 0.0 });
        let offers = Arc::new(Offers::new(pools.clone(), ledger.is_some()));
        let drain = ledger.clone().map(|ledger| {
            let (book, offers, outbox, clock) = (book.clone(), offers.clone(), outbox.clone(), clock.clone());
            Arc::new(Drain { book, offers, outbox, ledger, clock, told: Told::default() })
        });
        let operations = Arc::new(Operations {
            book: book.clone(),
            records: records.clone(),
            offers: offers.clone(),
            drain: drain.clone(),
        });
        let mending = drain.clone().map(|drain| {
            let store_clock = store_clock.clone();
            Arc::new(Mending { drain, records: records.clone(), pools, store_clock })
        });
        let upkeep = Upkeep { book: book.clone(), offers: offers.clone(), operations: operations.clone() };
        let mut duties: Vec<Arc<dyn CampaignDuty>> =
            vec![Arc::new(UpkeepDuty { upkeep, mending: mending.clone(), unmended: Unmended::default() })];
        if let Some(drain) = drain.clone() {
            duties.push(Arc::new(DrainDuty::new(drain, alarm)));
        }
        Exact {
            operations,
            erase: Erase { book: book.clone(), identity: identity.clone(), records, outbox, ledger },
            hard: HardClaims { book, offers, identity, store_clock, tasks: tasks.clone() },
            duties,
            reconcile: mending.map(|mending| Arc::new(Reconcile { mending })),
            testimony: drain.map(|drain| Arc::new(Testimony { drain, brought: Default::default() })),
        }
    }
}
