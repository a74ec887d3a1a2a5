//! Plans: how an operation on a campaign's stock is laid out over its pools.
//!
//! A plan stands in the campaign's record before the first pool is touched. What each pool is given follows from it
//! alone, chunk by numbered chunk, so that any process can go on where another stopped, and two at once do no harm.

use crate::domain::quota::marks::OpMark;
use crate::domain::quota::marks::STEP_MAX;
use crate::domain::quota::step::Step;
use crate::domain::quota::unit::Unit;
use crate::store::documents::{CampaignDocument, HardDocument, Operation, OperationKind};

/// The steps that one shard's part of an operation consists of, in their order. `cents`: what its new units hold, where
/// they are packets.
pub fn steps<'a>(
    operation: &Operation,
    shard: usize,
    cents: Option<&'a [i64]>,
) -> impl Iterator<Item = Step> + use<'a> {
    let shards = operation.take.len() as u64;
    let take = operation.take[shard];
    let (number, kind) = (operation.number, operation.kind);
    // Shard s gets the s-th of equal, contiguous parts of the new numbers; the first ones get what does not divide.
    let (part, rest, place) = (operation.fresh / shards, operation.fresh % shards, shard as u64);
    let first = operation.first + place * part + place.min(rest);
    let count = if kind == OperationKind::Lower { take } else { take + part + u64::from(place < rest) };
    let max = STEP_MAX as u64;
    let start = operation.first;
    let unit = move |number: u64| match cents {
        None => Unit::new(number),
        Some(cents) => Unit::packet(number, cents[(number - start) as usize]),
    };
    (0..count.div_ceil(max)).map(move |chunk| {
        let op = OpMark { operation: number, chunk: chunk + 1 };
        let (from, to) = (chunk * max, count.min((chunk + 1) * max));
        if kind == OperationKind::Lower {
            return Step::Retire { op, count: (to - from) as u32 };
        }
        // Units that were retired come back before new ones are issued.
        let unretire = to.min(take).saturating_sub(from);
        let units = (from.max(take)..to.max(take)).map(|place| unit(first + place - take)).collect();
        Step::Restock { op, unretire: unretire as u32, units, cool: kind == OperationKind::Raise }
    })
}

/// The first operation of a new campaign.
pub fn fill(shards: usize, quota: u64) -> Operation {
    fill_part(shards, 1, 1, quota)
}

/// An operation of a campaign that is filled in parts.
pub fn fill_part(shards: usize, number: u64, first: u64, fresh: u64) -> Operation {
    Operation { number, kind: OperationKind::Fill, take: vec![0; shards], first, fresh }
}

/// The operation that brings a campaign's quota nearer to its target, and the record that begins it. `free` and
/// `retired`: units in stock and retired, by shard. None: nothing can be done (any more).
pub fn next(
    document: &CampaignDocument,
    hard: &HardDocument,
    free: &[u64],
    retired: &[u64],
) -> Option<CampaignDocument> {
    let number = hard.operations + 1;
    let mut new = document.clone();
    let operation = if hard.quota_target > document.quota {
        let wanted = hard.quota_target - document.quota;
        let take = spread(wanted, retired);
        let fresh = wanted - take.iter().sum::<u64>();
        // Raised first, stocked second: never are more units out than the record admits (docs/FAULTS.md A3).
        new.quota = hard.quota_target;
        Operation { number, kind: OperationKind::Raise, take, first: hard.next_unit, fresh }
    } else {
        let take = spread(document.quota - hard.quota_target, free);
        if take.iter().sum::<u64>() == 0 {
            return None;
        }
        Operation { number, kind: OperationKind::Lower, take, first: hard.next_unit, fresh: 0 }
    };
    let hard = HardDocument {
        next_unit: hard.next_unit + operation.fresh,
        operations: number,
        running: Some(operation),
        entered: false,
        ..hard.clone()
    };
    new.hard = Some(hard);
    Some(new)
}

/// Takes `wanted` from these amounts, from the largest first, evenly at the end; less where they do not have it.
fn spread(wanted: u64, amounts: &[u64]) -> Vec<u64> {
    let mut left = wanted.min(amounts.iter().sum());
    let mut order: Vec<usize> = (0..amounts.len()).collect();
    order.sort_by_key(|&shard| amounts[shard]);
    let mut take = vec![0; amounts.len()];
    for (place, &shard) in order.iter().enumerate() {
        // From the smallest up: each gives its even share of what the rest must bring, or all it has.
        let share = left.div_ceil((order.len() - place) as u64);
        take[shard] = share.min(amounts[shard]);
        left -= take[shard];
    }
    take
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(operation: &Operation) -> Vec<u64> {
        let shards = 0..operation.take.len();
        let steps = shards.flat_map(|shard| steps(operation, shard, None));
        let mut numbers: Vec<u64> = steps
            .flat_map(|step| match step {
                Step::Restock { units, .. } => units.into_iter().map(|unit| unit.number).collect(),
                _ => Vec::new(),
            })
            .collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn a_filling_lays_out_every_number_once() {
        for (shards, quota) in [(16, 5), (16, 48), (1, 1), (4, 100_000), (2, 513)] {
            assert_eq!(units(&fill(shards, quota)), (1..=quota).collect::<Vec<_>>(), "{shards} {quota}");
        }
    }

    #[test]
    fn packets_hold_what_their_numbers_say() {
        let operation = fill_part(2, 2, 11, 3);
        let of = |shard| steps(&operation, shard, Some(&[5, 6, 7])).collect::<Vec<_>>();
        let restock =
            |units| vec![Step::Restock { op: OpMark { operation: 2, chunk: 1 }, unretire: 0, units, cool: false }];
        assert_eq!(of(0), restock(vec![Unit::packet(11, 5), Unit::packet(12, 6)]));
        assert_eq!(of(1), restock(vec![Unit::packet(13, 7)]));
    }

    #[test]
    fn a_raise_brings_back_first_and_issues_the_rest() {
        let operation = Operation { number: 3, kind: OperationKind::Raise, take: vec![300, 0], first: 11, fresh: 5 };
        let of_first: Vec<Step> = steps(&operation, 0, None).collect();
        let numbers = |from: u64, to: u64| (from..to).map(Unit::new).collect::<Vec<_>>();
        let restock =
            |chunk, unretire, units| Step::Restock { op: OpMark { operation: 3, chunk }, unretire, units, cool: true };
        assert_eq!(of_first, [restock(1, 256, vec![]), restock(2, 44, numbers(11, 14))]);
        assert_eq!(steps(&operation, 1, None).collect::<Vec<_>>(), [restock(1, 0, numbers(14, 16))]);
    }

    #[test]
    fn what_is_taken_is_spread_and_never_more_than_there_is() {
        assert_eq!(spread(10, &[5, 5, 5, 5]).iter().sum::<u64>(), 10);
        assert_eq!(spread(10, &[100, 0, 1]), [9, 0, 1]);
        assert_eq!(spread(10, &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(spread(0, &[4]), [0]);
    }
}
