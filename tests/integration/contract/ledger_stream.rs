//! News as pools make them: three pools of a campaign live through a sale, driven by a seed; what they note is what a
//! drain would deliver. Deliveries overlap, repeat themselves, and have no order between pools.

use std::collections::{BTreeMap, VecDeque};

use headcount::domain::element::UserHashing;
use headcount::domain::id::{CampaignId, UserId};
use headcount::domain::ledger::entry::{Entry, Subject};
use headcount::domain::quota::claim::{ClaimAnswer, ClaimRecord, ClaimState, UserKey, Wish};
use headcount::domain::quota::claim_id::secret_text;
use headcount::domain::quota::marks::{Floor, OpMark};
use headcount::domain::quota::pool::Pool;
use headcount::domain::quota::step::{Answer, DebitAnswer, ReleasedBy, Step};
use headcount::domain::quota::terms::{PoolRules, PoolSchedule};
use headcount::domain::quota::unit::Unit;
use headcount::store::ledger::{LedgerBatch, Progress};

const RUN: &str = "model";
const START_MS: i64 = 1_700_000_000_000;

/// All that happened in a campaign's pools, by shard, in order.
pub struct Sale {
    pub cents: Vec<i64>,
    pub news: Vec<Vec<Entry>>,
}

/// splitmix64.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

pub fn user_key(name: &str) -> UserKey {
    UserKey::of(&UserHashing::Plain, UserId::new(name).unwrap())
}

pub fn wish(name: &str, secret: u64, idem: &str) -> Wish {
    let mut random = [7; 16];
    random[..8].copy_from_slice(&secret.to_be_bytes());
    Wish { user: user_key(name), user_raw: name.to_owned(), secret: secret_text(random), idem: idem.to_owned() }
}

struct Driver {
    chance: Chance,
    pools: Vec<Option<Pool>>,
    now_us: i64,
    wishes: u64,
    live: Vec<(usize, UserKey, String)>,
    news: Vec<Vec<Entry>>,
}

impl Sale {
    /// `steps` random steps on `shards` pools, then closing.
    pub fn run(seed: u64, shards: usize, steps: usize, units: u64) -> Self {
        let mut driver = Driver {
            chance: Chance(seed),
            pools: vec![None; shards],
            now_us: START_MS * 1000,
            wishes: 0,
            live: Vec::new(),
            news: vec![Vec::new(); shards],
        };
        let cents: Vec<i64> = (0..units).map(|_| 1 + driver.chance.below(10_000) as i64).collect();
        driver.open(&cents);
        for _ in 0..steps {
            driver.random_step();
        }
        driver.close();
        Self { cents, news: driver.news }
    }

    pub fn total(&self) -> u64 {
        self.news.iter().map(|news| news.len() as u64).sum()
    }

    /// What the ledger's rows must be: the newest entry of each claim and refund, with its grant's name, by unit and turn.
    pub fn expected_rows(&self, shard: usize) -> Vec<Entry> {
        let mut rows: BTreeMap<(u64, u32), Entry> = BTreeMap::new();
        for entry in &self.news[shard] {
            let key = (entry.unit().number, entry.unit().turn);
            let mut newest = entry.clone();
            if let (Some(before), Subject::Claim { user_raw, .. }) = (rows.get(&key), &mut newest.subject) {
                *user_raw = before.user_raw().map(str::to_owned);
            }
            rows.insert(key, newest);
        }
        rows.into_values().collect()
    }

    /// Batches as drains write them: each pool's in order, but beginning again some entries before where the last one
    /// ended; pools in any order.
    pub fn deliveries(&self, campaign: &CampaignId, seed: u64, sizes: std::ops::Range<u64>) -> Vec<LedgerBatch> {
        let mut chance = Chance(seed);
        let mut at = vec![0; self.news.len()];
        let mut batches = Vec::new();
        while let Some(shard) = {
            let open: Vec<usize> = (0..at.len()).filter(|shard| at[*shard] < self.news[*shard].len()).collect();
            (!open.is_empty()).then(|| open[chance.below(open.len() as u64) as usize])
        } {
            let news = &self.news[shard];
            let back = if chance.below(3) == 0 { chance.below(sizes.start) as usize } else { 0 };
            let start = at[shard].saturating_sub(back);
            let size = sizes.start + chance.below(sizes.end - sizes.start);
            let end = (start + size as usize).min(news.len());
            at[shard] = at[shard].max(end);
            let mut entries = news[start..end].to_vec();
            if chance.below(4) == 0 {
                entries.extend_from_within(entries.len() / 2..);
            }
            let last = &news[end - 1];
            let progress = Progress {
                incarnation: last.incarnation,
                ver: last.ver,
                behind: (news.len() - end) as u64,
                at_ms: last.at_ms,
            };
            batches.push(LedgerBatch { campaign: campaign.clone(), shard: shard as u16, entries, progress });
        }
        batches
    }
}

impl Driver {
    fn step(&mut self, shard: usize, step: Step) -> Answer {
        self.now_us += 1000 * (1 + self.chance.below(3) as i64);
        let stepped = Pool::step(&mut self.pools[shard], self.now_us, Floor::default(), RUN, step);
        let pool = self.pools[shard].as_mut().expect("made first");
        for entry in std::mem::take(&mut pool.log) {
            let kind = entry.kind.as_str();
            let order = (pool.incarnation, entry.ver);
            let whose = (entry.user, entry.user_raw);
            self.news[shard].push(Entry::read(order, kind, self.now_us / 1000, whose, &entry.text).unwrap());
        }
        stepped.answer
    }

    fn open(&mut self, cents: &[i64]) {
        let rules = PoolRules { hold_ms: 400, interval_ms: 10 };
        let schedule = PoolSchedule { version: 1, opens_ms: 0, closes_ms: i64::MAX, paused: false };
        let mut stock: VecDeque<Unit> =
            cents.iter().zip(1..).map(|(cents, number)| Unit::packet(number, *cents)).collect();
        for shard in 0..self.pools.len() {
            self.step(shard, Step::Create { rules, schedule });
        }
        let mut chunk = 0;
        while !stock.is_empty() {
            let units = stock.drain(..stock.len().min(100)).collect();
            chunk += 1;
            let op = OpMark { operation: 1, chunk };
            let shard = chunk as usize % self.pools.len();
            assert_eq!(self.step(shard, Step::Restock { op, unretire: 0, units, cool: false }), Answer::Done(true));
        }
    }

    fn random_step(&mut self) {
        let shard = self.chance.below(self.pools.len() as u64) as usize;
        match self.chance.below(100) {
            0..45 => self.claim(shard),
            45..65 => self.with_a_claim(|user, secret| Step::Confirm { user, secret }),
            65..80 => self.with_a_claim(|user, secret| Step::Release { user, secret, by: ReleasedBy::User }),
            80..83 => self.with_a_claim(|user, secret| Step::Release { user, secret, by: ReleasedBy::Operator }),
            83..92 => drop(self.step(shard, Step::Reap { limit: 20 })),
            _ => self.transfer(shard),
        }
    }

    fn claim(&mut self, shard: usize) {
        let count = 1 + self.chance.below(4);
        let mut wishes = Vec::new();
        for _ in 0..count {
            self.wishes += 1;
            // Names that a database could mistake for each other: case, accents, blanks at the end, four-byte letters.
            let head = ["ada", "Ada", "äda", "ada ", "\u{1F680}", "O'Hara; --"][self.chance.below(6) as usize];
            let name = format!("{}.{shard}{head}", self.chance.below(120));
            let idem = if self.chance.below(2) == 0 { String::new() } else { format!("key-{}", self.wishes) };
            wishes.push(wish(&name, self.wishes, &idem));
        }
        let Answer::Claims(answers) = self.step(shard, Step::Claim { wishes: wishes.clone() }) else { panic!() };
        for (answer, wish) in answers.into_iter().zip(wishes) {
            if let ClaimAnswer::Granted(ClaimRecord { state: ClaimState::Held, secret, .. }) = answer {
                self.live.push((shard, wish.user, secret));
            }
        }
    }

    fn with_a_claim(&mut self, step: impl Fn(UserKey, String) -> Step) {
        if !self.live.is_empty() {
            let (shard, user, secret) = self.live[self.chance.below(self.live.len() as u64) as usize].clone();
            self.step(shard, step(user, secret));
        }
    }

    fn transfer(&mut self, from: usize) {
        let home = (from + 1) % self.pools.len();
        let want = 1 + self.chance.below(8) as u32;
        let debit = self.step(from, Step::Debit { home: home as u16, want });
        let Answer::Debit(DebitAnswer::New(parcel) | DebitAnswer::Open(parcel)) = debit else { return };
        self.step(home, Step::Credit { donor: from as u16, parcel: parcel.clone(), wishes: Vec::new() });
        self.step(from, Step::Ack { home: home as u16, parcel });
    }

    fn close(&mut self) {
        for shard in 0..self.pools.len() {
            self.step(shard, Step::Close { limit: 256 });
            self.now_us += 1_000_000;
            while self.step(shard, Step::Reap { limit: 256 }) != Answer::Reaped(0) {}
        }
        for shard in 0..self.pools.len() {
            while self.step(shard, Step::Close { limit: 256 }) != Answer::Left(0) {}
        }
    }
}
