//! What the users of a sale were told, and whether all of it can be true.
//!
//! Every answer is held against those before it as it comes in. What is wrong is kept as a sentence; `Sale::settle`
//! fails with all of them.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use tokio::time::Instant;

use super::gateway::Answer;

/// A unit, as its user was told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    pub number: u64,
    pub claim_id: String,
}

impl Unit {
    /// Of an answer that names one.
    pub fn of(answer: &Value) -> Option<Self> {
        Some(Self { number: answer["unit"].as_u64()?, claim_id: answer["claim_id"].as_str()?.to_owned() })
    }
}

/// What one user has heard.
#[derive(Clone, Default)]
struct User {
    /// Claims sent, with or without an answer.
    asked: u64,
    unit: Option<(Unit, Instant)>,
    sold_out: Option<Instant>,
    /// An answer with 201 came.
    granted: bool,
}

/// A claim that is on its way.
pub struct Asked {
    pub user: usize,
    /// Its Idempotency-Key is the same each time.
    pub keyed: bool,
    began: Instant,
}

/// All that was told.
pub struct Told {
    quota: u64,
    users: Vec<User>,
    owners: HashMap<u64, usize>,
    sold_out: Option<Instant>,
    /// Answers by status and, of problems, type.
    pub answers: BTreeMap<String, u64>,
    pub wrong: Vec<String>,
    /// When the last claim of each home was sent that was granted.
    granted_at: HashMap<usize, Instant>,
}

/// Sentences kept; one fault makes thousands.
const WRONG_MAX: usize = 20;

impl Told {
    pub fn new(quota: u64, users: usize) -> Self {
        Self {
            quota,
            users: vec![User::default(); users],
            owners: HashMap::new(),
            sold_out: None,
            answers: BTreeMap::new(),
            wrong: Vec::new(),
            granted_at: HashMap::new(),
        }
    }

    pub fn ask(&mut self, user: usize, keyed: bool) -> Asked {
        self.users[user].asked += 1;
        Asked { user, keyed, began: Instant::now() }
    }

    /// Units that somebody was told to have.
    pub fn units(&self) -> u64 {
        self.owners.len() as u64
    }

    pub fn unit(&self, user: usize) -> Option<&Unit> {
        self.users[user].unit.as_ref().map(|(unit, _)| unit)
    }

    pub fn count(&self, answer: &str) -> u64 {
        self.answers.get(answer).copied().unwrap_or(0)
    }

    /// Whether a claim of this home was sent after an instant, and granted.
    pub fn granted_since(&self, home: usize, instant: Instant) -> bool {
        self.granted_at.get(&home).is_some_and(|at| *at > instant)
    }

    pub fn wrong(&mut self, what: String) {
        if self.wrong.len() < WRONG_MAX {
            self.wrong.push(what);
        }
    }

    /// No answer came.
    pub fn unanswered(&mut self) {
        *self.answers.entry("no answer".to_owned()).or_default() += 1;
    }

    /// An answer to a claim; `home` is the user's shard. True where the user is to ask again.
    pub fn hear(&mut self, asked: &Asked, home: usize, answer: &Answer) -> bool {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let kind = body["type"].as_str().unwrap_or_default();
        *self.answers.entry(format!("{} {kind}", answer.status).trim_end().to_owned()).or_default() += 1;
        match (answer.status, Unit::of(&body)) {
            (201, Some(unit)) => self.granted(asked, home, unit),
            (200, Some(unit)) => {
                // This claim is one of them.
                if self.users[asked.user].asked < 2 {
                    self.wrong(format!("user {} was told `already` at the first claim: {unit:?}", asked.user));
                }
                self.has(asked, unit);
            }
            (409, None) if body["outcome"] == "sold_out" => self.refused(asked),
            (503, None) if answer.header("retry-after").is_some() => return true,
            _ => self.wrong(format!("user {} got {answer:?}", asked.user)),
        }
        false
    }

    fn granted(&mut self, asked: &Asked, home: usize, unit: Unit) {
        let user = &mut self.users[asked.user];
        // Under a key the same 201 comes again, also for an earlier claim that was not answered.
        let is_anew = !user.granted && (!asked.keyed || user.asked == 1);
        let is_second = user.granted && !asked.keyed;
        user.granted = true;
        if is_second {
            self.wrong(format!("user {} was granted a unit twice, now {unit:?}", asked.user));
        }
        if is_anew && self.sold_out.is_some_and(|at| at < asked.began) {
            self.wrong(format!("user {} was granted {unit:?} after somebody was told sold out", asked.user));
        }
        if is_anew {
            let last = self.granted_at.entry(home).or_insert(asked.began);
            *last = (*last).max(asked.began);
        }
        self.has(asked, unit);
    }

    fn has(&mut self, asked: &Asked, unit: Unit) {
        let (name, number) = (asked.user, unit.number);
        if !(1..=self.quota).contains(&number) {
            self.wrong(format!("user {name} was told of unit {number} of {}", self.quota));
        }
        let owner = *self.owners.entry(number).or_insert(name);
        if owner != name {
            self.wrong(format!("unit {number} was told to user {owner} and to user {name}"));
        }
        let user = &mut self.users[name];
        let (before, sold_out) = (user.unit.clone(), user.sold_out);
        match before {
            Some((before, _)) if before != unit => {
                self.wrong(format!("user {name} was told of {before:?}, then of {unit:?}"));
            }
            Some(_) => {}
            None => user.unit = Some((unit.clone(), Instant::now())),
        }
        // No unit comes back in these sales, so that sold out is for good.
        if sold_out.is_some() {
            self.wrong(format!("user {name} was told sold out and {unit:?}"));
        }
    }

    fn refused(&mut self, asked: &Asked) {
        let now = Instant::now();
        self.sold_out.get_or_insert(now);
        let user = &mut self.users[asked.user];
        user.sold_out.get_or_insert(now);
        if let Some((unit, _)) = user.unit.clone() {
            self.wrong(format!("user {} has {unit:?} and was told sold out", asked.user));
        }
    }

    /// What the store says at the end of a user's claim is what the user was told.
    pub fn looked_up(&mut self, user: usize, found: Option<Unit>) {
        let (told, sold_out) = (self.unit(user).cloned(), self.users[user].sold_out.is_some());
        match (told, &found) {
            (Some(told), found) if Some(&told) != found.as_ref() => {
                self.wrong(format!("user {user} was told of {told:?}, and the store has {found:?}"));
            }
            (None, Some(found)) if sold_out => {
                self.wrong(format!("user {user} was told sold out, and the store has {found:?}"));
            }
            (None, found) if !sold_out => {
                self.wrong(format!("user {user} was never answered; the store has {found:?}"))
            }
            _ => {}
        }
    }

    /// The books at some instant of the sale. `told`: units that users had been told of before they were opened.
    pub fn audited(&mut self, told: u64, books: &Value) {
        *self.answers.entry("books".to_owned()).or_default() += 1;
        let taken = books["held"].as_u64().unwrap_or(0) + books["confirmed"].as_u64().unwrap_or(0);
        let duplicates = books["duplicates"].as_array().is_none_or(|duplicates| !duplicates.is_empty());
        let settled = books["settled"] == true && books["operation_under_way"] == false;
        let mut books = books.clone();
        books["shards"].take();
        if taken > self.quota || duplicates || (settled && books["balances"] != true) {
            self.wrong(format!("the books during the sale: {books}"));
        }
        if told > taken {
            self.wrong(format!("{told} units were told, and only {taken} are in the books: {books}"));
        }
    }
}
