//! A hard campaign under load, through gateways that may die: users claim, claim again, and everything they are told is
//! kept (`told.rs`). At the end the sale must sell out to the last unit, and the store must say what the users were told.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use headcount::domain::element::{HashKey, UserHashing};
use headcount::domain::id::{CampaignId, UserId};
use headcount::domain::ring::{Shards, ring_point};
use headcount::store::pools::PoolAddress;

use super::crowd::FIXED_KEY;
use super::gateway::{Answer, Api, Gateway};
use super::told::{Told, Unit};
use super::{PATIENCE, eventually};

/// Calls under way while the end is looked at.
const AT_ONCE: usize = 32;
const SHARDS: Shards = Shards::DEFAULT;

/// Whole numbers from a seed: a round that failed can be run again, as far as processes let it.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// How a sale is made.
#[derive(Clone)]
pub struct Terms {
    pub quota: u64,
    /// Shards (from 0) that the users belong to. Few: most units must be brought from others.
    pub homes: Range<usize>,
    pub callers: usize,
    /// Between two claims of a caller, on average.
    pub pause: Duration,
    pub seed: u64,
}

pub struct Sale {
    pub campaign: CampaignId,
    pub terms: Terms,
    users: Vec<(String, usize)>,
    gateways: Mutex<Vec<(Api, Api)>>,
    /// While set, a user goes to the gateway that has the user's home, not to any.
    apart: AtomicBool,
    over: AtomicBool,
    told: Mutex<Told>,
}

/// Callers at work. They end with `close`.
pub struct Rush(Vec<JoinHandle<()>>);

impl Sale {
    /// Makes the campaign, and the crowd that wants it: five users for three units.
    pub async fn open(name: &str, terms: Terms, gateways: &[&Gateway]) -> Arc<Self> {
        let campaign = CampaignId::new(name).unwrap();
        let body = json!({ "admission": "hard", "quota": terms.quota, "shards": SHARDS.count(), "hold_s": 0 });
        let path = format!("/v1/campaigns/{name}");
        let mut last = None;
        // The first claims of a cluster that has just failed over are 503; so is this.
        eventually("the campaign to be made", async || {
            let answer = gateways[0].admin.put(&path, &body).await;
            let made = answer.status == 201 || answer.status == 200;
            assert!(made || answer.status == 503, "{answer:?}");
            last = Some(answer);
            made
        })
        .await;
        let hashing = UserHashing::Keyed(HashKey::from_hex(FIXED_KEY.1).unwrap());
        let with_home = |number: usize| {
            let user = format!("user_{number}");
            let home = SHARDS.index_of(ring_point(&hashing.element(UserId::new(&user).unwrap())));
            (user, home)
        };
        let wanted = terms.quota as usize * 5 / 3;
        let users: Vec<_> = (0..).map(with_home).filter(|(_, home)| terms.homes.contains(home)).take(wanted).collect();
        Arc::new(Self {
            campaign,
            told: Mutex::new(Told::new(terms.quota, users.len())),
            gateways: Mutex::new(
                gateways.iter().map(|gateway| (gateway.public.clone(), gateway.admin.clone())).collect(),
            ),
            users,
            apart: AtomicBool::new(false),
            over: AtomicBool::new(false),
            terms,
        })
    }

    /// From now on users go to the gateway that has their home (home modulo the number of gateways), or to any again.
    pub fn part(&self, apart: bool) {
        self.apart.store(apart, Ordering::SeqCst);
    }

    /// Callers find another gateway from now on.
    pub fn forget_gateway(&self, gateway: &Gateway) {
        self.gateways().retain(|(public, _)| public.authority != gateway.public.authority);
    }

    /// The pool of a shard.
    pub fn pool(&self, shard: usize) -> PoolAddress {
        let position = SHARDS.positions().nth(shard).expect("a shard of the sale");
        PoolAddress { campaign: self.campaign.clone(), position }
    }

    /// Users of a home, by number.
    pub fn users_of(&self, home: usize) -> impl Iterator<Item = usize> {
        (0..self.users.len()).filter(move |user| self.users[*user].1 == home)
    }

    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gateways(&self) -> MutexGuard<'_, Vec<(Api, Api)>> {
        self.gateways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the crowd in: callers who each claim for a random user, new or not, again and again; and one who looks at
    /// the books all the while.
    pub fn rush(self: &Arc<Self>) -> Rush {
        let caller = |number: u64| {
            let (sale, mut random) = (self.clone(), Random::new(self.terms.seed ^ (number << 32)));
            async move {
                while !sale.over.load(Ordering::SeqCst) {
                    let user = random.below(sale.users.len() as u64) as usize;
                    let again = sale.claim(user, random.below(1 << 20) as usize).await;
                    // Who is told to come back later comes back later.
                    let pause = sale.terms.pause.as_micros() as u64 * if again.is_none() { 1 } else { 4 };
                    tokio::time::sleep(Duration::from_micros(pause / 2 + random.below(pause))).await;
                }
            }
        };
        let mut tasks: Vec<_> = (0..self.terms.callers as u64).map(|number| tokio::spawn(caller(number))).collect();
        let sale = self.clone();
        tasks.push(tokio::spawn(async move {
            while !sale.over.load(Ordering::SeqCst) {
                sale.look_at_the_books().await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }));
        Rush(tasks)
    }

    /// One claim, through the gateway of this number or the user's own. Its status and problem type where the user is to
    /// ask again.
    pub async fn claim(&self, user: usize, through: usize) -> Option<String> {
        let (name, home) = &self.users[user];
        let through = if self.apart.load(Ordering::SeqCst) { *home } else { through };
        let api = {
            let gateways = self.gateways();
            gateways[through % gateways.len()].0.clone()
        };
        let keyed = user % 2 == 1;
        let asked = self.told().ask(user, keyed);
        match self.send_claim(&api, name, keyed).await {
            Ok(answer) => {
                let again = self.told().hear(&asked, *home, &answer);
                again.then(|| format!("{} {}", answer.status, answer.text()))
            }
            Err(error) => {
                self.told().unanswered();
                Some(format!("no answer: {error}"))
            }
        }
    }

    async fn send_claim(
        &self,
        api: &Api,
        name: &str,
        keyed: bool,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let path = format!("/v1/campaigns/{}/claims", self.campaign.as_str());
        let mut headers = vec![("content-type", "application/json")];
        if keyed {
            headers.push(("idempotency-key", name));
        }
        api.try_send(Method::POST, &path, &headers, json!({ "user": name }).to_string().into()).await
    }

    /// Waits until users were told of so many units.
    pub async fn sold(&self, units: u64) {
        let what = format!("{units} units of {} to be sold", self.campaign.as_str());
        eventually(&what, async || self.told().units() >= units).await;
    }

    /// Waits until a claim of this home that was sent from now on is granted.
    pub async fn grants_at(&self, home: usize, while_what: &str) {
        let now = Instant::now();
        let what = format!("shard {home} of {} to grant units {while_what}", self.campaign.as_str());
        eventually(&what, async || self.told().granted_since(home, now)).await;
    }

    async fn look_at_the_books(&self) {
        let admins: Vec<Api> = self.gateways().iter().map(|(_, admin)| admin.clone()).collect();
        for admin in admins {
            let told = self.told().units();
            // A gateway may be gone, and a shard away.
            if let Ok(books) = audit(&admin, &self.campaign).await {
                self.told().audited(told, &books);
            }
        }
    }

    /// Ends the rush, asks for every user until everybody knows, and holds all that was told against the store. Answers
    /// what is wrong, with the books.
    pub async fn outcome(self: &Arc<Self>, rush: Rush) -> Vec<String> {
        self.over.store(true, Ordering::SeqCst);
        for task in rush.0 {
            task.await.expect("a caller");
        }
        self.everybody_knows().await;
        let count = self.users.len();
        futures_util::stream::iter(0..count).map(|user| self.look_up(user)).buffer_unordered(AT_ONCE).count().await;
        let admins: Vec<Api> = self.gateways().iter().map(|(_, admin)| admin.clone()).collect();
        for admin in admins {
            let mut books = Value::Null;
            eventually("books that can be read", async || {
                books = audit(&admin, &self.campaign).await.unwrap_or_else(Value::String);
                books["settled"] == true
            })
            .await;
            let mut told = self.told();
            let units = told.units();
            told.audited(units, &books);
            let quota = self.terms.quota;
            let all = (&books["confirmed"], &books["available"], &books["in_flight"], &books["granted"]);
            if all != (&json!(quota), &json!(0), &json!(0), &json!([[1, quota]])) || units != quota {
                told.wrong(format!("{units} of {quota} units were told, and the books at the end are {books}"));
            }
        }
        std::mem::take(&mut self.told().wrong)
    }

    /// As `outcome`; panics where anything is wrong.
    pub async fn settle(self: &Arc<Self>, what: &str, rush: Rush) {
        let wrong = self.outcome(rush).await;
        let (seed, answers) = (self.terms.seed, self.told().answers.clone());
        println!("{what}, seed {seed}: {answers:?}");
        assert!(wrong.is_empty(), "{what}, seed {seed}, answers {answers:?}:\n{}", wrong.join("\n"));
    }

    /// Every user claims until told yes or no.
    async fn everybody_knows(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut left: VecDeque<usize> = (0..self.users.len()).collect();
        let mut through = 0;
        while !left.is_empty() {
            through += 1;
            let asked = futures_util::stream::iter(std::mem::take(&mut left))
                .map(async |user| (user, self.claim(user, user + through).await))
                .buffer_unordered(AT_ONCE)
                .collect::<Vec<_>>();
            let again: Vec<_> = asked.await.into_iter().filter_map(|(user, again)| Some((user, again?))).collect();
            if let Some((user, answer)) = again.first() {
                let (home, count, sale) = (self.users[*user].1, again.len(), self.campaign.as_str());
                // Lost for good: nobody needs to wait for that.
                let is_lost = answer.contains("/problems/shard-lost");
                assert!(
                    Instant::now() < deadline && !is_lost,
                    "{sale}: {count} users are still told to ask again, user {user} of shard {home}: {answer}; {:?}",
                    self.told().wrong
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            left = again.into_iter().map(|(user, _)| user).collect();
        }
    }

    /// By the user, and by the id of the claim.
    async fn look_up(&self, user: usize) {
        let api = {
            let gateways = self.gateways();
            gateways[user % gateways.len()].0.clone()
        };
        let path = format!("/v1/campaigns/{}/claims", self.campaign.as_str());
        let (lookup, name) = (format!("{path}/lookup"), json!({ "user": self.users[user].0 }));
        let by_user = surely(async || api.post(&lookup, &name).await).await;
        let found = (by_user.status == 200).then(|| Unit::of(&by_user.json())).flatten();
        let told = self.told().unit(user).cloned();
        self.told().looked_up(user, found);
        let Some(told) = told else { return };
        let single = format!("{path}/{}", told.claim_id);
        let by_id = surely(async || api.get(&single).await).await;
        let found = serde_json::from_slice(&by_id.body).ok().and_then(|body: Value| body["unit"].as_u64());
        if (by_id.status, found) != (200, Some(told.number)) {
            self.told().wrong(format!("user {user} was told of {told:?}; by its id there is {by_id:?}"));
        }
    }
}

/// Asks until the answer is not to ask again.
async fn surely(mut ask: impl AsyncFnMut() -> Answer) -> Answer {
    let mut last = None;
    eventually("another answer than 503", async || {
        let answer = ask().await;
        let is_known = answer.status != 503;
        last = Some(answer);
        is_known
    })
    .await;
    last.expect("an answer")
}

/// The books, or why they cannot be read.
async fn audit(admin: &Api, campaign: &CampaignId) -> Result<Value, String> {
    let path = format!("/v1/campaigns/{}/audit", campaign.as_str());
    let answer =
        admin.try_send(Method::GET, &path, &[], bytes::Bytes::new()).await.map_err(|error| error.to_string())?;
    if answer.status == 200 { Ok(answer.json()) } else { Err(answer.text()) }
}
