//! Planted bugs: each is a mistake that a system like this one has had, or that a draft of this one had. The simulation
//! must find every one of them, or it would not find them in the real thing either.

use std::collections::HashMap;

use headcount::domain::quota::marks::Parcel;
use headcount::domain::quota::pool::Pool;
use headcount::domain::quota::step::{Answer, DebitAnswer, Step, Stepped};
use headcount::domain::quota::unit::{Cooling, Unit};
use headcount::store::documents::{CampaignDocument, OperationKind};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// A parcel that arrives twice is taken in twice.
    CreditIsNotIdempotent,
    /// A debit is answered before the replica has it.
    CreditBeforeDebitIsReplicated,
    /// Two parcels may be on their way between two pools.
    TwoOpenTransfers,
    /// Nothing is written where nothing changes, so that WAIT proves nothing.
    WaitWithoutWrite,
    /// A unit is taken before it is known that the user may have it.
    TakeBeforeCheck,
    /// A lowered quota gives its numbers free to be issued again.
    NumbersAreReissued,
    /// A pool that was found to have lost something serves the next caller who does not know better.
    FenceDoesNotStick,
    /// Units that come back can be claimed at once.
    NoCooling,
    /// A unit comes back under the same turn.
    TurnIsNotRaised,
}

type Beside = HashMap<(u16, u16), Parcel>;

/// What a mutant does to a pool before a step.
pub fn before(mutant: Option<Mutant>, pool: &mut Option<Pool>, shard: u16, step: &Step, beside: &mut Beside) {
    let (Some(mutant), Some(pool)) = (mutant, pool) else { return };
    match (mutant, step) {
        (Mutant::CreditIsNotIdempotent, Step::Credit { donor, .. }) => {
            pool.came.remove(donor);
        }
        (Mutant::TwoOpenTransfers, Step::Debit { home, .. }) => {
            if !beside.contains_key(&(shard, *home))
                && let Some(parcel) = pool.out.remove(home)
            {
                beside.insert((shard, *home), parcel);
            }
        }
        (Mutant::TakeBeforeCheck, Step::Claim { wishes }) => {
            for wish in wishes {
                if pool.claims.get(&wish.user).is_some_and(|record| record.state.is_live()) {
                    pool.avail.pop_front();
                }
            }
        }
        _ => {}
    }
}

/// What a mutant does to a pool after a step.
pub fn after(
    mutant: Option<Mutant>,
    pool: &mut Option<Pool>,
    shard: u16,
    step: &Step,
    stepped: &Stepped,
    beside: &mut Beside,
) {
    let (Some(mutant), Some(pool)) = (mutant, pool) else { return };
    match (mutant, step) {
        (Mutant::TwoOpenTransfers, Step::Debit { home, .. }) => {
            if !matches!(stepped.answer, Answer::Debit(DebitAnswer::New(_)))
                && let Some(parcel) = beside.remove(&(shard, *home))
            {
                pool.out.insert(*home, parcel);
            }
        }
        (Mutant::TwoOpenTransfers, Step::Ack { home, parcel }) if beside.get(&(shard, *home)) == Some(parcel) => {
            beside.remove(&(shard, *home));
        }
        (Mutant::FenceDoesNotStick, _) => {
            pool.fenced = false;
            pool.seen = 0;
            pool.admitting_until_ms = 0;
        }
        (Mutant::NoCooling, _) => {
            let cooled: Vec<Unit> = pool.cooling.iter().map(|cooling| cooling.unit).collect();
            pool.cooling.clear();
            pool.avail.extend(cooled);
        }
        (Mutant::TurnIsNotRaised, Step::Release { .. } | Step::Reap { .. }) => {
            let lower = |unit: Unit| Unit { turn: 0, ..unit };
            pool.cooling =
                pool.cooling.iter().map(|cooling| Cooling { unit: lower(cooling.unit), ..*cooling }).collect();
        }
        _ => {}
    }
}

/// What a mutant does to a campaign's record as it is written.
pub fn record(mutant: Option<Mutant>, old: Option<&CampaignDocument>, new: &mut CampaignDocument) {
    if mutant != Some(Mutant::NumbersAreReissued) {
        return;
    }
    let ended = old.and_then(|old| old.hard.as_ref()?.running.as_ref()).map(|operation| operation.kind);
    if let (Some(OperationKind::Lower), Some(old), Some(hard)) = (ended, old, &mut new.hard)
        && hard.running.is_none()
    {
        hard.next_unit -= old.quota - new.quota;
    }
}
