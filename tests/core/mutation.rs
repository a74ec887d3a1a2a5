//! A small fuzzer for stable Rust: takes sound inputs apart and puts them together wrongly, from a fixed seed.
//!
//! It does not see coverage, as cargo-fuzz does; what it has instead is good seeds. The order of inputs is the same
//! on every run, and a faster machine only gets further. A failing input is printed in hex.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Feeds mutated seeds to `target` for the given time. Returns how many inputs were tried.
pub fn drive(seeds: &[Vec<u8>], time: Duration, mut target: impl FnMut(&[u8])) -> u64 {
    let mut random = Random(0x6865_6164_636f_756e);
    let end = Instant::now() + time;
    let mut tried = 0;
    loop {
        // Reading the clock for each input would cost as much as small inputs do.
        for _ in 0..64 {
            let input = mutate(seeds, &mut random);
            if catch_unwind(AssertUnwindSafe(|| target(&input))).is_err() {
                let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
                panic!("input {tried} fails: {hex}");
            }
            tried += 1;
        }
        if Instant::now() >= end {
            return tried;
        }
    }
}

fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = random.choose(seeds).clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let length = random.below(9).min(input.len() - at);
        match random.below(8) {
            0 => input.truncate(at),
            1 => drop(input.drain(at..at + length)),
            2 => input.insert(at, random.byte()),
            3 => input.splice(at..at, std::iter::repeat_n(random.byte(), length)).for_each(drop),
            // A piece of another seed in place of the rest: a sparse body behind a dense header and so on.
            4 => {
                let other = random.choose(seeds);
                let from = at.min(other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            5 => input.extend_from_within(at..at + length),
            6 if at < input.len() => input[at] ^= 1 << random.below(8),
            _ if at < input.len() => input[at] = random.byte(),
            _ => input.push(random.byte()),
        }
    }
    input
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Bytes at the edges of ranges find more than bytes from their middle.
    fn byte(&mut self) -> u8 {
        let byte = self.next() as u8;
        if self.below(3) == 0 { *self.choose(&[0x00, 0x3f, 0x40, 0x7f, 0x80, 0xfc, 0xff]) } else { byte }
    }

    fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
