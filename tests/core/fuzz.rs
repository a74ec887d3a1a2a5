//! The fuzz target of `fuzz/` on stable Rust, for a bounded time. Other tests run beside it.

use std::time::Duration;

use headcount::domain::sketch::hash::Hit;
use headcount::domain::sketch::registers::Sketch;
use headcount::domain::sketch::wire::{encode, encode_dense, encode_sparse};

use crate::mutation;

#[path = "../../fuzz/targets/sketch_decode.rs"]
mod target;

/// How long the decoder is attacked in every test run.
const TIME: Duration = Duration::from_secs(30);

#[test]
fn mutated_sketches_never_break_the_decoder() {
    let mut accepted = 0;
    let tried = mutation::drive(&seeds(), TIME, |blob| accepted += u64::from(target::sketch_decode(blob)));
    println!("{tried} mutated sketches in {} s, {accepted} of them still sound", TIME.as_secs());
    assert!(accepted > 0 && accepted < tried, "mutation must make sound blobs and unsound ones");
}

/// Sound blobs of both encodings: empty, small, full, with every rank, with long runs, and one that is sound but not
/// canonical.
fn seeds() -> Vec<Vec<u8>> {
    let of_users = |users: u64| {
        let mut sketch = Sketch::new();
        (0..users).for_each(|n| {
            sketch.insert(&n.to_le_bytes());
        });
        sketch
    };
    let mut every_rank = Sketch::new();
    let mut runs = Sketch::new();
    for n in 0..1_000u16 {
        every_rank.raise(Hit { index: 16 * n, rank: (n % 52) as u8 });
        runs.raise(Hit { index: 15_384 + n, rank: (n / 100 + 1) as u8 });
    }
    let sketches = [of_users(0), of_users(1), of_users(60), of_users(1_000), of_users(40_000), every_rank, runs];
    let mut seeds: Vec<Vec<u8>> = sketches.iter().map(encode).chain(sketches.iter().map(encode_dense)).collect();
    seeds.extend(sketches.iter().filter_map(encode_sparse));
    let mut two_zero_runs = encode(&Sketch::new());
    two_zero_runs.splice(16.., [0x5f, 0xff, 0x5f, 0xff]);
    seeds.push(two_zero_runs);
    // Small ones more often: they are tried a hundred times faster than 12 KB.
    let small: Vec<Vec<u8>> = seeds.iter().filter(|seed| seed.len() < 500).cloned().collect();
    for _ in 0..8 {
        seeds.extend_from_slice(&small);
    }
    seeds
}
