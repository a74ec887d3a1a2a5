//! Working out what a lost pool must hold, from the ledger and the campaign's other pools.
//!
//! Every unit ever issued is somewhere. Those of healthy pools are where those pools say. Of a lost pool the claims are
//! known: the newest that the ledger, the pool as it stands, or anybody's memory has. All units that are nowhere to be
//! found are its stock.
//!
//! ```text
//! issued   1 2 3 4 5 6 7 8 9
//! healthy  ▪ . ▪ . ▪ . . . .     stock, cooling, retired, live claims, parcels under way between healthy pools
//! claims   . ▪ . . . . . ▪ .     live ones of lost pools
//! refunds  . . . . . ▪ . . .     of the ledger
//! stock    . . . ▪ . . ▪ . ▪     what is left, with a turn that nobody has had
//! ```
//!
//! Two places for one unit are told apart by its turn: the higher one is true, and a claim with the lower one has ended,
//! though its end was lost. Two places with one turn contradict each other: then nothing is rebuilt.

use std::collections::HashMap;

use super::claim::{ClaimRecord, ClaimState, UserKey};
use super::inventory::Inventory;
use super::unit::Unit;
use crate::domain::ledger::entry::{Entry, Subject};

/// What is known of a campaign.
pub struct Scene<'a> {
    /// Numbers from 1 to this one were issued.
    pub issued: u64,
    /// Less than issued: the others are retired.
    pub quota: u64,
    /// What packets hold, by number from 1.
    pub cents: Option<&'a [i64]>,
    /// By shard, from 0.
    pub shards: Vec<Shard>,
    /// The highest incarnation that anybody may know of any of its pools; at least 1.
    pub incarnation: u64,
    /// Above every number of a parcel that a lost pool may have sent, by any clock.
    pub seq: u64,
}

/// What is known of a shard.
pub struct Shard {
    /// Rows of the ledger, and what processes remember: the newest entry of each claim counts.
    pub rows: Vec<Entry>,
    /// The pool's claims as it stands; none where it is gone.
    pub claims: Vec<(UserKey, ClaimRecord)>,
    /// None: the pool is gone.
    pub inventory: Option<Inventory>,
    pub is_lost: bool,
}

/// What a lost pool is to hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rebuilt {
    pub shard: u16,
    pub claims: Vec<(UserKey, ClaimRecord)>,
    pub stock: Vec<Unit>,
    pub retired: Vec<Unit>,
    pub came: Vec<(u16, u64)>,
    pub incarnation: u64,
    pub ver: u64,
    pub refunded: u64,
    pub refunded_cents: i64,
    /// Claims whose end was lost: their units are elsewhere, with a higher turn.
    pub ended: u64,
}

/// One unit in two places.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unit {number} is in two places: {one} and {other}")]
pub struct Contradiction {
    pub number: u64,
    pub one: String,
    pub other: String,
}

/// Works out all lost pools at once.
pub fn rebuild(scene: &Scene<'_>) -> Result<Vec<Rebuilt>, Contradiction> {
    let mut places = Places::default();
    for (shard, known) in scene.shards.iter().enumerate() {
        if !known.is_lost {
            places.take_healthy(scene, shard)?;
        }
        places.note_turns(known);
    }
    let mut rebuilt: Vec<Rebuilt> = Vec::new();
    for (shard, known) in scene.shards.iter().enumerate().filter(|(_, known)| known.is_lost) {
        rebuilt.push(begun(scene, shard, known));
    }
    settle_claims(&mut places, &mut rebuilt)?;
    let free = places.free(scene);
    share(scene, &free, &mut rebuilt);
    Ok(rebuilt)
}

/// A pool with its claims, newest of each user, and what it must not take in.
fn begun(scene: &Scene<'_>, shard: usize, known: &Shard) -> Rebuilt {
    let mut newest: HashMap<UserKey, (u64, ClaimRecord)> = HashMap::new();
    let present = known.inventory.as_ref().map_or(0, |inventory| inventory.incarnation);
    let own = known.claims.iter().map(|(user, record)| (present, *user, record));
    let rows = known.rows.iter().filter_map(|row| match &row.subject {
        Subject::Claim { user, record, .. } => Some((row.incarnation, *user, record)),
        Subject::Refund(_) => None,
    });
    for (incarnation, user, record) in own.chain(rows) {
        let order = |incarnation: u64, record: &ClaimRecord| (record.claim_no, incarnation, record.ver);
        let standing = newest.get(&user).map(|(incarnation, record)| order(*incarnation, record));
        if standing.is_none_or(|standing| order(incarnation, record) > standing) {
            newest.insert(user, (incarnation, record.clone()));
        }
    }
    let refunds = known.rows.iter().filter(|row| matches!(row.subject, Subject::Refund(_)));
    let (rows, inventory) = (known.rows.iter(), known.inventory.iter());
    let mut claims: Vec<_> = newest.into_iter().map(|(user, (_, record))| (user, record)).collect();
    claims.sort_unstable_by_key(|(user, _)| *user);
    Rebuilt {
        shard: shard as u16,
        claims,
        came: came(scene, shard),
        incarnation: 1 + rows.clone().map(|row| row.incarnation).fold(scene.incarnation.max(present), u64::max),
        ver: 1 + rows.map(|row| row.ver).chain(inventory.map(|known| known.ver.max(known.seen))).max().unwrap_or(0),
        refunded: refunds.clone().count() as u64,
        refunded_cents: refunds.filter_map(|row| row.unit().cents).sum(),
        ..Rebuilt::default()
    }
}

/// What the pool must take for known: all that lost pools may have sent; of healthy ones the parcel that is open, whose
/// units are given out here, or the last that they sent at all.
fn came(scene: &Scene<'_>, home: usize) -> Vec<(u16, u64)> {
    let donors = scene.shards.iter().enumerate().filter(|(donor, _)| *donor != home);
    let came = donors.filter_map(|(donor, known)| {
        let healthy = known.inventory.as_ref().filter(|_| !known.is_lost);
        let Some(inventory) = healthy else {
            return Some((donor as u16, scene.seq));
        };
        let open = inventory.out.iter().find(|(to, _)| usize::from(*to) == home).map(|(_, parcel)| parcel.seq);
        let seq = open.unwrap_or(inventory.seq);
        (seq > 0).then_some((donor as u16, seq))
    });
    came.collect()
}

/// Live claims of lost pools take their places; a claim whose unit is elsewhere with a higher turn has ended.
fn settle_claims(places: &mut Places, rebuilt: &mut [Rebuilt]) -> Result<(), Contradiction> {
    // The higher turn first, so that whoever comes second has the lower one.
    let mut live: Vec<(usize, usize, Unit)> = Vec::new();
    for (pool, of) in rebuilt.iter().enumerate() {
        let of_pool = of.claims.iter().enumerate().filter(|(_, (_, record))| record.state.is_live());
        live.extend(of_pool.map(|(claim, (_, record))| (pool, claim, record.unit)));
    }
    live.sort_by_key(|(_, _, unit)| std::cmp::Reverse(unit.turn));
    for (pool, claim, unit) in live {
        let place = format!("a claim of shard {}", rebuilt[pool].shard);
        match places.by_number.get(&unit.number) {
            Some((turn, _)) if *turn > unit.turn => {
                let record = &mut rebuilt[pool].claims[claim].1;
                record.state = ClaimState::Expired;
                rebuilt[pool].ended += 1;
            }
            _ => places.put(unit, place)?,
        }
    }
    Ok(())
}

/// Gives the free units to the lost pools, in even, contiguous parts: as many as the quota admits as stock, the others
/// as retired ones.
fn share(scene: &Scene<'_>, free: &[Unit], rebuilt: &mut [Rebuilt]) {
    let healthy = scene.shards.iter().filter(|known| !known.is_lost).filter_map(|known| known.inventory.as_ref());
    let retired: usize = healthy.map(|inventory| inventory.retired.len()).sum();
    let retire = (scene.issued.saturating_sub(scene.quota) as usize).saturating_sub(retired).min(free.len());
    let (stock, retired) = free.split_at(free.len() - retire);
    let pools = rebuilt.len().max(1);
    for (place, pool) in rebuilt.iter_mut().enumerate() {
        let part = |units: &[Unit]| units[units.len() * place / pools..units.len() * (place + 1) / pools].to_vec();
        (pool.stock, pool.retired) = (part(stock), part(retired));
    }
}

/// Where each unit is, as far as known, and the highest turn that it ever had.
#[derive(Default)]
struct Places {
    by_number: HashMap<u64, (u32, String)>,
    turns: HashMap<u64, u32>,
}

impl Places {
    fn put(&mut self, unit: Unit, place: String) -> Result<(), Contradiction> {
        if let Some((_, other)) = self.by_number.get(&unit.number) {
            return Err(Contradiction { number: unit.number, one: other.clone(), other: place });
        }
        self.by_number.insert(unit.number, (unit.turn, place));
        Ok(())
    }

    fn take_healthy(&mut self, scene: &Scene<'_>, shard: usize) -> Result<(), Contradiction> {
        let known = &scene.shards[shard];
        let Some(inventory) = &known.inventory else { return Ok(()) };
        for unit in inventory.stock.iter().chain(&inventory.cooling) {
            self.put(*unit, format!("the stock of shard {shard}"))?;
        }
        for unit in &inventory.retired {
            self.put(*unit, format!("the retired units of shard {shard}"))?;
        }
        for (_, record) in known.claims.iter().filter(|(_, record)| record.state.is_live()) {
            self.put(record.unit, format!("a claim of shard {shard}"))?;
        }
        for (home, parcel) in &inventory.out {
            // What is on its way to a lost pool is given out there; what came in is there already.
            let to = scene.shards.get(usize::from(*home)).filter(|to| !to.is_lost).and_then(|to| to.inventory.as_ref());
            let has_come =
                |to: &Inventory| to.came.iter().any(|(from, seq)| usize::from(*from) == shard && *seq >= parcel.seq);
            if to.is_some_and(|to| !has_come(to)) {
                for unit in &parcel.units {
                    self.put(*unit, format!("a parcel from shard {shard} to {home}"))?;
                }
            }
        }
        Ok(())
    }

    /// Turns that units had, whatever became of them; and units that are refunded, which have no place any more.
    fn note_turns(&mut self, known: &Shard) {
        for row in &known.rows {
            self.had(row.unit());
            if let Subject::Refund(unit) = row.subject {
                self.by_number.entry(unit.number).or_insert((unit.turn, "the refunded units".to_owned()));
            }
        }
        known.claims.iter().for_each(|(_, record)| self.had(record.unit));
        if let Some(inventory) = &known.inventory {
            let in_stock = inventory.stock.iter().chain(&inventory.cooling).chain(&inventory.retired);
            // Nobody has had these turns yet.
            for unit in in_stock.filter(|unit| unit.turn > 0) {
                self.had(Unit { turn: unit.turn - 1, ..*unit });
            }
        }
    }

    fn had(&mut self, unit: Unit) {
        let turn = self.turns.entry(unit.number).or_default();
        *turn = (*turn).max(unit.turn);
    }

    /// Units that are nowhere, each with a turn that nobody has had.
    fn free(&self, scene: &Scene<'_>) -> Vec<Unit> {
        let numbers = (1..=scene.issued).filter(|number| !self.by_number.contains_key(number));
        let unit = |number: u64| Unit {
            number,
            turn: self.turns.get(&number).map_or(0, |turn| turn + 1),
            cents: scene.cents.and_then(|cents| cents.get(number as usize - 1).copied()),
        };
        numbers.map(unit).collect()
    }
}
