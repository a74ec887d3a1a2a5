//! What must hold for every sketch, tried on generated ones.

use std::sync::Barrier;
use std::thread::ScopedJoinHandle;

use headcount::domain::sketch::atomic::AtomicRegisters;
use headcount::domain::sketch::hash::Hit;
use headcount::domain::sketch::registers::{RANK_MAX, REGISTERS, Sketch};
use headcount::domain::sketch::sparse::RANK_MAX_SPARSE;
use headcount::domain::sketch::wire::{self, SPARSE_BYTES_MAX, decode, encode, encode_dense, encode_sparse};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn what_is_written_is_read_again(sketch in sketches(RANK_MAX_SPARSE)) {
        let (dense, sparse) = (encode_dense(&sketch), encode_sparse(&sketch).expect("no rank over 32"));
        prop_assert_eq!(&decode(&dense).unwrap(), &sketch);
        prop_assert_eq!(&decode(&sparse).unwrap(), &sketch);
        prop_assert_eq!(dense.len(), wire::DENSE_BYTES);
        let chosen = encode(&sketch);
        prop_assert_eq!(chosen, if sparse.len() <= SPARSE_BYTES_MAX { sparse } else { dense });
    }

    #[test]
    fn one_rank_over_32_makes_all_dense(mut sketch in sketches(RANK_MAX), index in indexes()) {
        sketch.raise(Hit { index, rank: RANK_MAX_SPARSE + 1 });
        prop_assert_eq!(encode_sparse(&sketch), None);
        prop_assert_eq!(encode(&sketch), encode_dense(&sketch));
        prop_assert_eq!(decode(&encode(&sketch)).unwrap(), sketch);
    }

    #[test]
    fn merging_has_no_order_and_may_be_repeated(
        a in sketches(RANK_MAX),
        b in sketches(RANK_MAX),
        c in sketches(RANK_MAX),
    ) {
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        prop_assert_eq!(merged(&merged(&a, &b), &b), merged(&a, &b));
        // Merging the bytes is merging the sketches.
        let mut of_bytes = a.clone();
        wire::merge_into(&mut of_bytes, &encode(&b)).unwrap();
        prop_assert_eq!(of_bytes, merged(&a, &b));
    }

    #[test]
    fn what_is_ahead_is_all_that_the_other_lacks(a in sketches(RANK_MAX), b in sketches(RANK_MAX)) {
        let ahead = a.ahead_of(&b);
        prop_assert_eq!(merged(&b, &ahead), merged(&a, &b));
        prop_assert!(ahead.hits().all(|hit| hit.rank > b.get(hit.index)));
        prop_assert!(a.ahead_of(&a).is_empty());
    }

    #[test]
    fn a_sketch_is_its_hits(sketch in sketches(RANK_MAX)) {
        let mut again = Sketch::new();
        for hit in sketch.hits() {
            prop_assert!(again.raise(hit));
            prop_assert!(!again.raise(hit));
        }
        prop_assert_eq!(again.is_empty(), sketch.hits().count() == 0);
        prop_assert_eq!(again, sketch);
    }

    #[test]
    fn whatever_bytes_come_nothing_breaks(bytes in vec(any::<u8>(), 0..300), header in headers()) {
        let blob = [header, bytes].concat();
        let mut sketch = Sketch::new();
        sketch.raise(Hit { index: 7, rank: 7 });
        let before = sketch.clone();
        if wire::merge_into(&mut sketch, &blob).is_err() {
            prop_assert_eq!(sketch, before);
        }
    }

    #[test]
    fn atomic_registers_are_a_sketch(hits in vec(hits(RANK_MAX), 0..400), other in sketches(RANK_MAX)) {
        let (mut plain, atomic) = (Sketch::new(), AtomicRegisters::new());
        let empty_bytes = atomic.bytes();
        prop_assert_eq!(empty_bytes, size_of::<AtomicRegisters>());
        let mut pages = std::collections::BTreeSet::new();
        for hit in hits {
            let growth_bytes = if pages.contains(&(hit.index / 256)) { 0 } else { 256 };
            prop_assert_eq!(atomic.growth_bytes(hit), growth_bytes);
            prop_assert_eq!(atomic.raise(hit), plain.raise(hit));
            prop_assert_eq!(atomic.get(hit.index), plain.get(hit.index));
            pages.insert(hit.index / 256);
            prop_assert_eq!(atomic.bytes(), empty_bytes + 256 * pages.len());
        }
        prop_assert_eq!(&atomic.snapshot(), &plain);
        prop_assert_eq!(atomic.is_empty(), plain.is_empty());

        atomic.merge(&other);
        pages.extend(other.hits().map(|hit| hit.index / 256));
        prop_assert_eq!(atomic.snapshot(), merged(&plain, &other));
        prop_assert_eq!(atomic.bytes(), empty_bytes + 256 * pages.len());
    }
}

/// One thread climbs every register rank by rank while two go to the top at once. No raise may be lost to a lower one
/// that began earlier, and the top is reached by exactly one of the two.
#[test]
fn threads_that_raise_together_lose_nothing() {
    const TOP: u8 = 30;
    for _ in 0..300 {
        let atomic = AtomicRegisters::new();
        let start = Barrier::new(3);
        let raise = |index, rank| usize::from(atomic.raise(Hit { index, rank }));
        let indexes = 0..REGISTERS as u16;
        let reached: usize = std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                indexes.clone().for_each(|index| {
                    (1..TOP).for_each(|rank| {
                        raise(index, rank);
                    })
                });
            });
            let jump = || {
                start.wait();
                indexes.clone().map(|index| raise(index, TOP)).sum()
            };
            let jumps: [ScopedJoinHandle<usize>; 2] = std::array::from_fn(|_| scope.spawn(jump));
            jumps.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(reached, REGISTERS);
        assert!(atomic.snapshot().ranks().iter().all(|rank| *rank == TOP));
    }
}

#[test]
fn a_hit_of_rank_zero_costs_nothing() {
    let atomic = AtomicRegisters::new();
    let nothing = Hit { index: 300, rank: 0 };
    assert_eq!(atomic.growth_bytes(nothing), 0);
    assert!(!atomic.raise(nothing));
    assert!(atomic.is_empty());
}

fn merged(a: &Sketch, b: &Sketch) -> Sketch {
    let mut both = a.clone();
    both.merge(b);
    both
}

fn indexes() -> impl Strategy<Value = u16> {
    0..REGISTERS as u16
}

fn hits(rank_max: u8) -> impl Strategy<Value = Hit> {
    (indexes(), 1..=rank_max).prop_map(|(index, rank)| Hit { index, rank })
}

/// Scattered registers as users leave them, and runs of equal ones around the lengths at which sparse opcodes change:
/// 4 and 5 registers of a value, 64 and 65 zeros between.
fn sketches(rank_max: u8) -> impl Strategy<Value = Sketch> {
    let scattered = prop_oneof![vec(hits(rank_max), 0..40), vec(hits(rank_max), 0..4_000)];
    let runs = vec((hits(rank_max), 1..70u16), 0..20);
    (scattered, runs).prop_map(|(scattered, runs)| {
        let mut sketch = Sketch::new();
        for hit in scattered {
            sketch.raise(hit);
        }
        for (first, length) in runs {
            let last = first.index.saturating_add(length).min(REGISTERS as u16);
            for index in first.index..last {
                sketch.raise(Hit { index, ..first });
            }
        }
        sketch
    })
}

/// Sound headers and none, so that generated bytes reach both decoders.
fn headers() -> impl Strategy<Value = Vec<u8>> {
    let of = |encoding| wire::encode(&Sketch::new())[..4].iter().copied().chain([encoding]).chain([0; 11]).collect();
    prop_oneof![Just(vec![]), Just(of(0)), Just(of(1)), Just(of(2))]
}
