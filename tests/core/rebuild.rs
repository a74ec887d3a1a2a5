//! Rebuilding lost pools: random campaigns lose pools, whole or by going back in time, and are rebuilt from what the
//! ledger has. Then every unit is in one place, who was told of a claim has it, and the rest can be sold to the end.

use std::collections::{HashMap, HashSet};

use headcount::domain::ledger::entry::Entry;
use headcount::domain::ledger::settle::settle;
use headcount::domain::quota::claim::{ClaimAnswer, ClaimState, UserKey, Wish};
use headcount::domain::quota::inventory::Inventory;
use headcount::domain::quota::marks::{Floor, OpMark, Parcel};
use headcount::domain::quota::mend::{Blank, CLOCKS_DIFFER_US, Mend};
use headcount::domain::quota::pool::Pool;
use headcount::domain::quota::rebuild::{Rebuilt, Scene, Shard, rebuild};
use headcount::domain::quota::step::{Answer, DebitAnswer, ReleasedBy, Step};
use headcount::domain::quota::terms::{PoolRules, PoolSchedule, PoolStatus};
use headcount::domain::quota::unit::Unit;
use proptest::prelude::*;

const SHARDS: usize = 3;
const START_US: i64 = 1_700_000_000_000_000;

#[derive(Clone, Debug)]
enum Do {
    Claim {
        user: u8,
    },
    End {
        user: u8,
        confirm: bool,
    },
    /// Half of a transfer, the whole, or without the ack.
    Move {
        donor: usize,
        home: usize,
        want: u32,
        steps: u8,
    },
    Pass {
        ms: i64,
    },
}

#[derive(Clone, Debug)]
enum Fate {
    Gone,
    /// Back to what it was after so many things were done.
    Back(usize),
    Healthy,
}

fn things() -> impl Strategy<Value = Vec<Do>> {
    let thing = prop_oneof![
        12 => (0..40u8).prop_map(|user| Do::Claim { user }),
        6 => (0..40u8, any::<bool>()).prop_map(|(user, confirm)| Do::End { user, confirm }),
        6 => (0..SHARDS, 0..SHARDS, 1..4u32, 1..4u8)
            .prop_map(|(donor, home, want, steps)| Do::Move { donor, home, want, steps }),
        4 => (1..3_000i64).prop_map(|ms| Do::Pass { ms }),
    ];
    proptest::collection::vec(thing, 5..120)
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        2 => Just(Fate::Gone),
        2 => (0..120usize).prop_map(Fate::Back),
        3 => Just(Fate::Healthy),
    ];
    proptest::collection::vec(fate, SHARDS)
        .prop_filter("something is lost", |fates| fates.iter().any(|fate| !matches!(fate, Fate::Healthy)))
}

/// A campaign with its ledger, which hears everything at once: what is said is in it.
struct World {
    pools: Vec<Option<Pool>>,
    past: Vec<Vec<Pool>>,
    rows: Vec<Vec<Entry>>,
    now_us: i64,
    units: u64,
    holds: bool,
}

fn key(user: u8) -> UserKey {
    UserKey([user; 16])
}

fn home(user: u8) -> usize {
    usize::from(user) % SHARDS
}

impl World {
    fn new(units: u64, holds: bool, packets: bool) -> Self {
        let rules = PoolRules { hold_ms: if holds { 1_000 } else { 0 }, interval_ms: 100 };
        let schedule = PoolSchedule { version: 1, opens_ms: 0, closes_ms: i64::MAX, paused: false };
        let mut world = Self {
            pools: vec![None; SHARDS],
            past: vec![Vec::new(); SHARDS],
            rows: vec![Vec::new(); SHARDS],
            now_us: START_US,
            units,
            holds,
        };
        for shard in 0..SHARDS {
            world.step(shard, Step::Create { rules, schedule });
            let units = (1..=units).filter(|number| *number as usize % SHARDS == shard);
            let unit = |number| if packets { Unit::packet(number, 10 * number as i64) } else { Unit::new(number) };
            let op = OpMark { operation: 1, chunk: 1 };
            world.step(shard, Step::Restock { op, unretire: 0, units: units.map(unit).collect(), cool: false });
        }
        world
    }

    fn step(&mut self, shard: usize, step: Step) -> Answer {
        self.now_us += 10;
        let answer = Pool::step(&mut self.pools[shard], self.now_us, Floor::default(), "run", step).answer;
        let Some(pool) = &mut self.pools[shard] else { return answer };
        let (incarnation, at_ms) = (pool.incarnation, self.now_us / 1000);
        let entries: Vec<Entry> = std::mem::take(&mut pool.log)
            .into_iter()
            .map(|log| {
                let names = (log.user, log.user_raw);
                Entry::read((incarnation, log.ver), log.kind.as_str(), at_ms, names, &log.text).expect("an entry")
            })
            .collect();
        self.write(shard, entries);
        answer
    }

    fn write(&mut self, shard: usize, entries: Vec<Entry>) {
        let settled = settle(self.rows[shard].clone(), &entries);
        assert_eq!(settled.conflicts, []);
        for update in settled.update {
            let place = self.rows[shard].iter().position(|row| row.claim() == update.claim()).expect("a row");
            self.rows[shard][place] = update;
        }
        self.rows[shard].extend(settled.insert);
    }

    fn take(&mut self, thing: &Do) {
        match *thing {
            Do::Claim { user } => {
                self.claim(user);
            }
            Do::End { user, confirm } => {
                let Some(record) = self.pools[home(user)].as_ref().and_then(|pool| pool.claims.get(&key(user))) else {
                    return;
                };
                let secret = record.secret.clone();
                let user_key = key(user);
                let step = if confirm {
                    Step::Confirm { user: user_key, secret }
                } else {
                    Step::Release { user: user_key, secret, by: ReleasedBy::User }
                };
                self.step(home(user), step);
            }
            Do::Move { donor, home, .. } if donor == home => {}
            Do::Move { donor, home, want, steps } => self.transfer(donor, home, want, steps),
            Do::Pass { ms } => {
                self.now_us += ms * 1000;
                (0..SHARDS).for_each(|shard| drop(self.step(shard, Step::Reap { limit: 64 })));
            }
        }
        for shard in 0..SHARDS {
            self.past[shard].extend(self.pools[shard].clone());
        }
    }

    fn claim(&mut self, user: u8) -> ClaimAnswer {
        let secret = format!("{user}-{}", self.now_us);
        let wish = Wish { user: key(user), user_raw: format!("user {user}"), secret, idem: String::new() };
        match self.step(home(user), Step::Claim { wishes: vec![wish] }) {
            Answer::Claims(mut answers) => answers.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn transfer(&mut self, donor: usize, home: usize, want: u32, steps: u8) {
        let debit = self.step(donor, Step::Debit { home: home as u16, want });
        let Answer::Debit(DebitAnswer::New(parcel) | DebitAnswer::Open(parcel)) = debit else { return };
        if steps > 1 {
            self.step(home, Step::Credit { donor: donor as u16, parcel: parcel.clone(), wishes: vec![] });
        }
        if steps > 2 {
            self.step(donor, Step::Ack { home: home as u16, parcel });
        }
    }

    /// Who has which unit, as the ledger tells it: whatever anybody was told.
    fn told(&self) -> HashMap<UserKey, Unit> {
        let live = self.rows.iter().flatten().filter_map(|row| match &row.subject {
            headcount::domain::ledger::entry::Subject::Claim { user, record, .. } if record.state.is_live() => {
                Some((*user, record.unit))
            }
            _ => None,
        });
        live.collect()
    }

    fn lose(&mut self, fates: &[Fate]) {
        for (shard, fate) in fates.iter().enumerate() {
            match fate {
                Fate::Healthy => {}
                Fate::Gone => self.pools[shard] = None,
                Fate::Back(steps) => {
                    let past = &self.past[shard];
                    if let Some(old) = past.get((*steps).min(past.len().saturating_sub(1))) {
                        let seen = self.pools[shard].as_ref().map_or(0, |pool| pool.ver);
                        let mut old = old.clone();
                        (old.seen, old.fenced) = (seen.max(old.ver + 1), true);
                        self.pools[shard] = Some(old);
                    } else {
                        self.pools[shard] = None;
                    }
                }
            }
        }
    }

    fn mend(&mut self, fates: &[Fate]) {
        let is_lost = |shard: usize| !matches!(fates[shard], Fate::Healthy);
        let lost: Vec<u16> = (0..SHARDS).filter(|shard| is_lost(*shard)).map(|shard| shard as u16).collect();
        for shard in (0..SHARDS).filter(|shard| !is_lost(*shard)) {
            let freeze = Mend::Freeze { for_ms: 60_000, lost: lost.clone() };
            assert_eq!(self.step(shard, Step::Mend(freeze)), Answer::Done(true));
        }
        let cents: Vec<i64> = (1..=self.units as i64).map(|number| 10 * number).collect();
        let packets = self.rows.iter().flatten().any(|row| row.unit().cents.is_some())
            || self.pools.iter().flatten().flat_map(|pool| &pool.avail).any(|unit| unit.cents.is_some());
        let seq = (self.now_us + 2 * CLOCKS_DIFFER_US) as u64;
        let shards = (0..SHARDS).map(|shard| Shard {
            rows: self.rows[shard].clone(),
            claims: self.pools[shard].iter().flat_map(|pool| pool.claims.clone()).collect(),
            inventory: self.pools[shard].as_ref().map(Inventory::from),
            is_lost: is_lost(shard),
        });
        let scene = Scene {
            issued: self.units,
            quota: self.units,
            cents: packets.then_some(&cents),
            shards: shards.collect(),
            incarnation: 1,
            seq,
        };
        let rebuilt = rebuild(&scene).expect("nothing contradicts");
        for of_pool in &rebuilt {
            self.refill(of_pool, seq);
        }
        for shard in (0..SHARDS).filter(|shard| !is_lost(*shard)) {
            assert_eq!(self.step(shard, Step::Mend(Mend::Thaw)), Answer::Done(true));
        }
    }

    fn refill(&mut self, rebuilt: &Rebuilt, seq: u64) {
        let shard = usize::from(rebuilt.shard);
        let blank = Blank {
            mender: 7,
            rules: PoolRules { hold_ms: if self.holds { 1_000 } else { 0 }, interval_ms: 100 },
            schedule: PoolSchedule { version: 1, opens_ms: 0, closes_ms: i64::MAX, paused: false },
            status: PoolStatus::Open,
            incarnation: rebuilt.incarnation,
            ver: rebuilt.ver + rebuilt.claims.len() as u64,
            seq,
            refunded: rebuilt.refunded,
            refunded_cents: rebuilt.refunded_cents,
            came: rebuilt.came.clone(),
        };
        let mend = |world: &mut Self, mend| assert_eq!(world.step(shard, Step::Mend(mend)), Answer::Done(true));
        mend(self, Mend::Empty(Box::new(blank)));
        let (claims, stock, retired) = (rebuilt.claims.clone(), rebuilt.stock.clone(), rebuilt.retired.clone());
        let fill = |part, claims, stock, retired| Mend::Fill { mender: 7, part, claims, stock, retired };
        mend(self, fill(1, claims.clone(), vec![], vec![]));
        // Said again, as after a lost reply.
        mend(self, fill(1, claims, vec![], vec![]));
        mend(self, fill(2, vec![], stock, retired));
        mend(self, Mend::Reopen { mender: 7 });
        mend(self, Mend::Reopen { mender: 7 });
    }

    /// Every unit is in one place; parcels that came in are not counted twice.
    fn assert_whole(&self) {
        let mut seen: HashMap<u64, usize> = HashMap::new();
        for (shard, pool) in self.pools.iter().enumerate() {
            let pool = pool.as_ref().expect("a pool");
            let live = pool.claims.values().filter(|record| record.state.is_live()).map(|record| record.unit);
            let stock = pool.avail.iter().copied().chain(pool.cooling.iter().map(|cooling| cooling.unit));
            for unit in live.chain(stock).chain(pool.retired.iter().copied()) {
                *seen.entry(unit.number).or_default() += 1;
            }
            for (home, parcel) in &pool.out {
                let home = self.pools[usize::from(*home)].as_ref().expect("a pool");
                if home.came.get(&(shard as u16)).is_none_or(|(seq, _)| *seq < parcel.seq) {
                    parcel.units.iter().for_each(|unit| *seen.entry(unit.number).or_default() += 1);
                }
            }
        }
        for row in self.rows.iter().flatten() {
            if let headcount::domain::ledger::entry::Subject::Refund(unit) = row.subject {
                *seen.entry(unit.number).or_default() += 1;
            }
        }
        let all: HashMap<u64, usize> = (1..=self.units).map(|number| (number, 1)).collect();
        assert_eq!(seen, all, "every unit once");
    }

    /// Sells the rest: every user who comes gets a unit, until none is left.
    fn sell_out(&mut self) -> usize {
        let mut granted = 0;
        for user in 40..=255u8 {
            for other in 0..SHARDS {
                if other != home(user) {
                    self.transfer(other, home(user), 200, 3);
                }
            }
            self.now_us += 1_000_000;
            granted += usize::from(matches!(self.claim(user), ClaimAnswer::Granted(_)));
        }
        granted
    }
}

fn play(units: u64, holds: bool, packets: bool, things: &[Do], fates: &[Fate]) {
    let mut world = World::new(units, holds, packets);
    for thing in things {
        world.take(thing);
    }
    world.assert_whole();
    let told = world.told();
    // A parcel that was under way when its sender was lost, and arrives late.
    let late: Vec<(usize, usize, Parcel)> = (0..SHARDS)
        .flat_map(|donor| {
            let out = world.pools[donor].iter().flat_map(|pool| &pool.out);
            out.map(move |(home, parcel)| (donor, usize::from(*home), parcel.clone())).collect::<Vec<_>>()
        })
        .collect();
    world.lose(fates);
    world.mend(fates);
    world.assert_whole();
    for (donor, home, parcel) in late {
        world.step(home, Step::Credit { donor: donor as u16, parcel: parcel.clone(), wishes: vec![] });
        world.step(donor, Step::Ack { home: home as u16, parcel });
    }
    world.assert_whole();
    for (user, unit) in &told {
        let pool = world.pools[home(user.0[0])].as_ref().expect("a pool");
        let record = pool.claims.get(user).expect("a told claim is there");
        assert_eq!((record.unit, record.state.is_live()), (*unit, true), "whoever was told of a unit has it");
        assert!(matches!(world.claim(user.0[0]), ClaimAnswer::Already(record) if record.unit == *unit));
    }
    let held: HashSet<UserKey> = told.keys().copied().collect();
    assert_eq!(world.sell_out(), units as usize - held.len(), "the rest is sold, exactly");
    let again = world.pools.iter().flatten().flat_map(|pool| pool.claims.values());
    let turns: Vec<(u64, u32)> = again
        .filter(|record| record.state.is_live() || record.state != ClaimState::Voided)
        .map(|record| (record.unit.number, record.unit.turn))
        .collect();
    assert_eq!(turns.iter().collect::<HashSet<_>>().len(), turns.len(), "no unit and turn twice: {turns:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn whoever_was_told_of_a_unit_has_it_and_the_rest_is_sold(
        units in 1..60u64,
        holds in any::<bool>(),
        packets in any::<bool>(),
        things in things(),
        fates in fates(),
    ) {
        play(units, holds, packets, &things, &fates);
    }
}
