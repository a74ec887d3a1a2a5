//! What must hold, whatever happens: checked after every change of any primary, and at every answer a user hears.

use std::collections::{HashMap, HashSet};

use headcount::domain::quota::claim::{ClaimState, UserKey};
use headcount::domain::quota::step::Step;
use headcount::domain::quota::unit::Unit;
use headcount::service::quota::claims::Claim;
use headcount::service::quota::plan;
use headcount::store::documents::{CampaignDocument, OperationKind};

use crate::world::World;

/// What users were told, and what therefore must be so.
#[derive(Default)]
pub struct Oracle {
    /// False where data may be lost beyond what replication guards against: then only `told` counts.
    pub strict: bool,
    pub document: Option<CampaignDocument>,
    /// Units by whoever was told to have them.
    told: HashMap<(u64, u32), UserKey>,
    /// Claims that must be live, until their time.
    owed: HashMap<UserKey, Owed>,
    /// Secrets of claims that somebody wished to end: a request may arrive late, so nothing is owed of them any more.
    endings: HashSet<String>,
    /// The last instant at which no unit was free, in the store's microseconds.
    pub last_without_stock_us: i64,
    /// No unit is free now, and this stays so until then.
    without_stock_until_us: Option<i64>,
}

struct Owed {
    claim: Claim,
    shard: u16,
    /// `i64::MAX`: it was confirmed, or needs no confirmation.
    until_ms: i64,
}

impl Oracle {
    /// A user was told to have a unit.
    pub fn granted(&mut self, claim: &Claim) -> Result<(), String> {
        let (user, unit) = (claim.claim_id.user, claim.record.unit);
        let other = self.told.insert((unit.number, unit.turn), user);
        if other.is_some_and(|other| other != user) {
            return Err(format!("unit {unit} was told to {user:?} and to {:?}", other.unwrap_or(user)));
        }
        let stands = !self.endings.contains(&claim.claim_id.secret);
        if stands && claim.record.state.is_live() {
            let until_ms = match claim.record.state {
                ClaimState::Held => claim.record.deadline_ms,
                _ => i64::MAX,
            };
            self.owed.insert(user, Owed { claim: claim.clone(), shard: claim.claim_id.home, until_ms });
        }
        Ok(())
    }

    /// Somebody is about to end the user's claim.
    pub fn may_end(&mut self, user: UserKey, claim: &Claim) {
        self.endings.insert(claim.claim_id.secret.clone());
        self.owed.remove(&user);
    }

    /// The campaign's stock at an instant: whether none was free, and until when that lasts by itself.
    pub fn note_stock(&mut self, now_us: i64, free_until_us: Option<i64>) {
        if let Some(until) = self.without_stock_until_us {
            self.last_without_stock_us = self.last_without_stock_us.max(until.min(now_us));
        }
        self.without_stock_until_us = free_until_us;
        if free_until_us.is_some() {
            self.last_without_stock_us = now_us;
        }
    }

    /// Whether no unit was free at some instant from `since` to now.
    pub fn was_without_stock(&self, since_us: i64, now_us: i64) -> bool {
        let now = self.without_stock_until_us.map_or(i64::MIN, |until| until.min(now_us));
        self.last_without_stock_us.max(now) >= since_us
    }

    pub fn examine(&self, world: &World) -> Result<(), String> {
        if !self.strict {
            return Ok(());
        }
        self.examine_owed(world)?;
        let Some(document) = &self.document else { return Ok(()) };
        let taken: u64 = world.pools().map(|(_, pool)| pool.held() + pool.confirmed).sum();
        if taken > document.quota {
            return Err(format!("{taken} units are taken of a quota of {}", document.quota));
        }
        let (found, refunded) = self.places(world)?;
        let issued = delivered(document, world);
        if found + refunded != issued {
            return Err(format!("{issued} units were issued, {found} found and {refunded} refunded"));
        }
        Ok(())
    }

    fn examine_owed(&self, world: &World) -> Result<(), String> {
        let now_ms = world.now_us() / 1000;
        for (user, owed) in self.owed.iter().filter(|(_, owed)| now_ms < owed.until_ms) {
            let pool = world.pool(owed.shard).ok_or("a pool is gone")?;
            let stands = pool.claims.get(user).filter(|record| record.secret == owed.claim.claim_id.secret);
            if !stands.is_some_and(|record| record.state.is_live()) {
                return Err(format!("{user:?} was told to have {}, and has {stands:?}", owed.claim.record));
            }
        }
        Ok(())
    }

    /// How many units lie in pools, claims and parcels, each once; and how many were refunded.
    fn places(&self, world: &World) -> Result<(u64, u64), String> {
        let mut seen: HashSet<u64> = HashSet::new();
        let mut found = 0;
        let mut place = |unit: Unit, at: &str| {
            found += 1;
            if seen.insert(unit.number) { Ok(()) } else { Err(format!("unit {unit} is in two places, one is {at}")) }
        };
        let mut refunded = 0;
        for (shard, pool) in world.pools() {
            refunded += pool.refunded;
            pool.avail.iter().try_for_each(|unit| place(*unit, "a stock"))?;
            pool.cooling.iter().try_for_each(|cooling| place(cooling.unit, "cooling"))?;
            pool.retired.iter().try_for_each(|unit| place(*unit, "retired"))?;
            let live = pool.claims.values().filter(|record| record.state.is_live());
            live.map(|record| record.unit).try_for_each(|unit| place(unit, "a claim"))?;
            let beside = world.beside.iter().filter(|((donor, _), _)| *donor == shard);
            let parcels = pool.out.iter().chain(beside.map(|((_, home), parcel)| (home, parcel)));
            for (home, parcel) in parcels {
                let came =
                    world.pool(*home).and_then(|pool| pool.came.get(&shard)).is_some_and(|(seq, _)| *seq >= parcel.seq);
                if !came {
                    parcel.units.iter().try_for_each(|unit| place(*unit, "a parcel"))?;
                }
            }
        }
        Ok((found, refunded))
    }
}

/// Units that pools were given so far: all that were ever issued, less what an operation has yet to bring.
fn delivered(document: &CampaignDocument, world: &World) -> u64 {
    let Some(hard) = &document.hard else { return 0 };
    let mut delivered = hard.next_unit - 1;
    if let Some(operation) = hard.running.as_ref().filter(|operation| operation.kind != OperationKind::Lower) {
        for shard in 0..operation.take.len() {
            let op = world.pool(shard as u16).map(|pool| pool.op);
            let brought = op.filter(|op| op.operation == operation.number).map_or(0, |op| op.chunk);
            let missing = plan::steps(operation, shard, None).skip(brought as usize);
            delivered -= missing.map(|step| fresh(&step)).sum::<u64>();
        }
    }
    delivered
}

fn fresh(step: &Step) -> u64 {
    if let Step::Restock { units, .. } = step { units.len() as u64 } else { 0 }
}
