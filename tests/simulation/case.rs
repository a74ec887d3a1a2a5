//! One case: a campaign, its users and operators, and what befalls them; then calm, and the accounts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use headcount::domain::id::{CampaignId, UserId};
use headcount::domain::quota::claim::UserKey;
use headcount::domain::quota::step::ReleasedBy;
use headcount::domain::ring::Shards;
use headcount::service::manage::campaigns::{CampaignPatch, NewAdmission, NewCampaign};
use headcount::service::quota::claims::{Claim, Confirmed, HardClaim, Released};
use headcount::store::documents::Phase;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::mutants::Mutant;
use crate::process::{Process, hashing};
use crate::world::{BEGINNING_MS, CALM, STORMY, Sim, World};

/// What happens, and when (milliseconds from the beginning).
#[derive(Clone, Debug)]
pub struct Event {
    pub at_ms: u64,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    /// `keyed`: with an Idempotency-Key, always the user's same one.
    Claim {
        user: u8,
        keyed: bool,
    },
    Crowd {
        first: u8,
        count: u8,
    },
    Confirm {
        user: u8,
    },
    Release {
        user: u8,
    },
    Void {
        user: u8,
    },
    Quota {
        quota: u8,
    },
    Pause {
        paused: bool,
    },
    /// A process dies; another one starts.
    Crash {
        process: u8,
    },
    Cut {
        node: u8,
        ms: u16,
    },
    FailOver {
        node: u8,
    },
    /// The link breaks, writes go on, the primary dies.
    CutAndFailOver {
        node: u8,
        ms: u16,
    },
    Stop {
        node: u8,
        ms: u16,
    },
    BackUp {
        node: u8,
    },
    /// A node comes back with an old state.
    Lose {
        node: u8,
    },
}

#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    pub shards: u64,
    pub quota: u64,
    pub users: u8,
    pub hold_s: u64,
    pub interval_ms: u64,
    pub stormy: bool,
    /// Data may be lost beyond what replication guards against: then only what was told counts.
    pub lossy: bool,
    pub events: Vec<Event>,
}

const PROCESSES: usize = 2;
/// Whatever is under way ends within this: the longest wait of a claim, and a timeout.
const SETTLE: Duration = Duration::from_secs(4);

/// In simulated time.
const LONGEST: Duration = Duration::from_secs(400);

/// Runs a case; what went wrong.
pub fn run(case: &Case, mutant: Option<Mutant>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let playing = Running::start(case, mutant).play(case);
        tokio::time::timeout(LONGEST, playing).await.unwrap_or_else(|_| Err("the case does not end".into()))
    })
}

struct User {
    name: String,
    key: UserKey,
    claim: Option<Claim>,
    attempts: u32,
    voided: bool,
}

struct Running {
    sim: Arc<Sim>,
    campaign: CampaignId,
    shards: Shards,
    interval: Duration,
    processes: Mutex<Vec<Arc<Process>>>,
    users: Vec<Mutex<User>>,
}

impl Running {
    fn start(case: &Case, mutant: Option<Mutant>) -> Arc<Self> {
        let weather = if case.stormy { STORMY } else { CALM };
        let mut world = World::new(case.seed, weather, mutant);
        world.watch.strict = !case.lossy;
        let sim = Arc::new(Sim(Mutex::new(world)));
        let shards = Shards::new(case.shards).expect("a power of two");
        let interval = Duration::from_millis(case.interval_ms);
        let users = (0..case.users).map(|number| {
            let name = format!("user-{number}");
            let key = UserKey::of(&hashing(), UserId::new(&name).expect("a user"));
            Mutex::new(User { name, key, claim: None, attempts: 0, voided: false })
        });
        Arc::new(Self {
            processes: Mutex::new((0..PROCESSES).map(|_| Process::start(&sim, shards, interval)).collect()),
            campaign: CampaignId::new("sale").expect("a campaign"),
            users: users.collect(),
            sim,
            shards,
            interval,
        })
    }

    async fn play(self: Arc<Self>, case: &Case) -> Result<(), String> {
        self.open(case).await;
        for number in 0..PROCESSES {
            tokio::spawn(self.clone().tend(number));
        }
        let began = Instant::now();
        let mut events = case.events.clone();
        events.sort_by_key(|event| event.at_ms);
        for event in events {
            tokio::time::sleep_until(began + Duration::from_millis(event.at_ms)).await;
            self.befall(event.what);
            self.violation()?;
        }
        tokio::time::sleep(SETTLE).await;
        self.violation()?;
        self.sim.lock().heal();
        if case.lossy {
            return Ok(());
        }
        self.sell_out().await?;
        self.close().await
    }

    fn violation(&self) -> Result<(), String> {
        match &self.sim.lock().violation {
            Some(violation) => Err(violation.clone()),
            None => Ok(()),
        }
    }

    fn fail(&self, violation: String) {
        self.sim.lock().violation.get_or_insert(violation);
    }

    fn process(&self, number: usize) -> Arc<Process> {
        self.processes.lock().expect("no panic")[number % PROCESSES].clone()
    }

    fn any_process(&self) -> Arc<Process> {
        let number = self.sim.lock().chance.below(PROCESSES as u64);
        self.process(number as usize)
    }

    /// Creates the campaign, however often that takes.
    async fn open(&self, case: &Case) {
        let opens_at = Timestamp::from_millisecond(BEGINNING_MS - 1000).expect("a time");
        let new = NewCampaign {
            quota: case.quota,
            opens_at: Some(opens_at),
            closes_at: None,
            shards: Some(self.shards),
            admission: NewAdmission::Hard { hold_s: case.hold_s },
        };
        while self.any_process().campaigns.put(&self.campaign, new.clone()).await.is_err() {}
    }

    /// The upkeep of a process, and of whoever takes its place.
    async fn tend(self: Arc<Self>, number: usize) {
        loop {
            let process = self.process(number);
            let tending = process.upkeep.tend(&self.campaign);
            // A dead process never answers.
            let _tended = tokio::time::timeout(Duration::from_secs(2), tending).await;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    fn befall(self: &Arc<Self>, what: What) {
        let running = self.clone();
        match what {
            What::Claim { user, keyed } => drop(tokio::spawn(async move { running.claim(user, keyed).await })),
            What::Crowd { first, count } => {
                for user in first..first.saturating_add(count) {
                    let running = running.clone();
                    tokio::spawn(async move { running.claim(user, false).await });
                }
            }
            What::Confirm { user } => drop(tokio::spawn(async move { running.confirm(user).await })),
            What::Release { user } => drop(tokio::spawn(async move { running.end(user, ReleasedBy::User).await })),
            What::Void { user } => drop(tokio::spawn(async move { running.end(user, ReleasedBy::Operator).await })),
            What::Quota { quota } => {
                let patch = CampaignPatch { quota: Some(u64::from(quota.max(1))), ..CampaignPatch::default() };
                tokio::spawn(async move { running.patch(patch).await });
            }
            What::Pause { paused } => {
                let patch = CampaignPatch { paused: Some(paused), ..CampaignPatch::default() };
                tokio::spawn(async move { running.patch(patch).await });
            }
            What::Crash { process } => {
                let mut processes = self.processes.lock().expect("no panic");
                let place = usize::from(process) % PROCESSES;
                processes[place].kill();
                processes[place] = Process::start(&self.sim, self.shards, self.interval);
            }
            What::Cut { node, ms } => self.sim.lock().cut(usize::from(node) % 3, millis(ms)),
            What::FailOver { node } => self.sim.lock().fail_over(usize::from(node) % 3),
            What::CutAndFailOver { node, ms } => {
                let node = usize::from(node) % 3;
                self.sim.lock().cut(node, Duration::from_secs(60));
                tokio::spawn(async move {
                    tokio::time::sleep(millis(ms)).await;
                    running.sim.lock().fail_over(node);
                });
            }
            What::Stop { node, ms } => self.sim.lock().stop(usize::from(node) % 3, millis(ms)),
            What::BackUp { node } => self.sim.lock().back_up(usize::from(node) % 3),
            What::Lose { node } => self.sim.lock().lose(usize::from(node) % 3),
        }
    }

    /// A user asks; false: and hears nothing but an error.
    async fn claim(&self, user: u8, keyed: bool) -> bool {
        let Some(place) = self.users.get(usize::from(user)) else { return true };
        let (name, key) = {
            let mut user = place.lock().expect("no panic");
            user.attempts += 1;
            (user.name.clone(), user.key)
        };
        let idempotency = keyed.then(|| format!("key of {name}"));
        let began_us = self.sim.lock().now_us();
        let held_before = self.live_claim(key);
        let process = self.any_process();
        let id = UserId::new(&name).expect("a user");
        let claimed = process.hard.claim(&self.campaign, id, idempotency.as_deref(), Duration::from_secs(1)).await;
        if !process.is_alive() {
            return true;
        }
        let answered = claimed.is_ok();
        match claimed {
            Ok(HardClaim::Granted { claim, .. }) => self.told(place, claim),
            Ok(HardClaim::Already { claim, .. }) => {
                if place.lock().expect("no panic").attempts == 1 {
                    self.fail(format!("{name} was told already at the first try"));
                }
                self.told(place, claim);
            }
            Ok(HardClaim::SoldOut { .. }) => self.sold_out(&name, key, began_us, held_before),
            _ => {}
        }
        answered
    }

    fn told(&self, place: &Mutex<User>, claim: Claim) {
        let granted = self.sim.lock().watch.granted(&claim);
        if let Err(violation) = granted {
            self.fail(violation);
        }
        place.lock().expect("no panic").claim = Some(claim);
        self.sim.lock().examine();
    }

    /// "Sold out" must have been true at some instant of the call, or of the memory it may come from; and who has a unit
    /// all the while must not hear it.
    fn sold_out(&self, name: &str, key: UserKey, began_us: i64, held_before: Option<String>) {
        if !self.sim.lock().watch.strict {
            return;
        }
        let (now_us, interval_us) = (self.sim.lock().now_us(), self.interval.as_micros() as i64);
        if !self.sim.lock().watch.was_without_stock(began_us - interval_us, now_us) {
            self.fail(format!("{name} was told sold out while a unit was free all the time"));
        }
        if held_before.is_some() && held_before == self.live_claim(key) {
            self.fail(format!("{name} was told sold out while holding {held_before:?}"));
        }
    }

    /// The secret of the user's live claim, as the primary has it now.
    fn live_claim(&self, key: UserKey) -> Option<String> {
        let world = self.sim.lock();
        let record = world.pools().find_map(|(_, pool)| pool.claims.get(&key).cloned())?;
        record.state.is_live().then_some(record.secret)
    }

    async fn confirm(&self, user: u8) {
        let Some(place) = self.users.get(usize::from(user)) else { return };
        let Some(claim) = place.lock().expect("no panic").claim.clone() else { return };
        let confirmed = self.any_process().hard.confirm(&self.campaign, &claim.claim_id).await;
        if let Ok(Confirmed::Confirmed(claim)) = confirmed {
            self.told(place, claim);
        }
    }

    async fn end(&self, user: u8, by: ReleasedBy) {
        let Some(place) = self.users.get(usize::from(user)) else { return };
        let (key, claim) = {
            let mut user = place.lock().expect("no panic");
            user.voided |= by == ReleasedBy::Operator;
            (user.key, user.claim.take())
        };
        let Some(claim) = claim else { return };
        self.sim.lock().watch.may_end(key, &claim);
        let released = self.any_process().hard.release(&self.campaign, &claim.claim_id, by).await;
        if let Ok(Released::Confirmed(claim)) = released {
            self.told(place, claim);
        }
    }

    async fn patch(&self, patch: CampaignPatch) {
        // Refused while another change is under way, or cut off by a fault: upkeep goes on with what was begun.
        drop(self.any_process().campaigns.patch(&self.campaign, patch, None).await);
    }

    /// Every unit can be sold: users who have none go on asking.
    async fn sell_out(&self) -> Result<(), String> {
        let patch = CampaignPatch { paused: Some(false), ..CampaignPatch::default() };
        while self.process(0).campaigns.patch(&self.campaign, patch.clone(), None).await.is_err() {
            self.violation()?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for _ in 0..60 {
            let claims = (0..self.users.len() as u8).map(|user| self.claim(user, false));
            futures_util::future::join_all(claims).await;
            self.violation()?;
            let everybody = self.everybody_has_one();
            let now_us = self.sim.lock().now_us();
            if everybody || self.sim.lock().watch.was_without_stock(now_us, now_us) {
                return self.everybody_hears().await;
            }
            tokio::time::sleep(3 * self.interval).await;
        }
        let world = self.sim.lock();
        let left: Vec<String> = world
            .pools()
            .map(|(shard, pool)| {
                format!(
                    "{shard}: {} free, {} cooling, fenced {}, out {:?}",
                    pool.avail.len(),
                    pool.cooling.len(),
                    pool.fenced,
                    pool.out
                )
            })
            .collect();
        Err(format!("units stay unsold: {left:?}"))
    }

    /// In calm weather everybody is answered, also who had a unit once: most hear that nothing is left.
    async fn everybody_hears(&self) -> Result<(), String> {
        for _ in 0..5 {
            let claims = (0..self.users.len() as u8).map(|user| self.claim(user, false));
            let heard = futures_util::future::join_all(claims).await;
            self.violation()?;
            if heard.into_iter().all(|answered| answered) {
                return Ok(());
            }
            // A hold may have expired meanwhile, and its unit be on its way.
            tokio::time::sleep(3 * self.interval).await;
        }
        Err("somebody hears nothing but errors though nothing fails".into())
    }

    fn everybody_has_one(&self) -> bool {
        self.users.iter().all(|user| {
            let user = user.lock().expect("no panic");
            let has_one = self.live_claim(user.key).is_some();
            has_one || user.voided
        })
    }

    async fn close(&self) -> Result<(), String> {
        for _ in 0..200 {
            let closed = self.process(0).campaigns.close(&self.campaign, None).await;
            self.violation()?;
            let phase =
                self.sim.lock().watch.document.as_ref().and_then(|document| Some(document.hard.as_ref()?.phase));
            if closed.is_ok() && phase == Some(Phase::Closed) {
                return self.accounts();
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Err("the campaign does not close".into())
    }

    /// Everything is confirmed, refunded or retired.
    fn accounts(&self) -> Result<(), String> {
        let world = self.sim.lock();
        let ends: u64 = world.pools().map(|(_, pool)| pool.confirmed + pool.refunded + pool.retired.len() as u64).sum();
        let issued = world.watch.document.as_ref().and_then(|document| Some(document.hard.as_ref()?.next_unit - 1));
        if issued == Some(ends) { Ok(()) } else { Err(format!("{ends} units ended, {issued:?} were issued")) }
    }
}

fn millis(ms: u16) -> Duration {
    Duration::from_millis(ms.into())
}
