//! Red packets: a sum of money split into packets at random, to the cent.
//!
//! # The draw
//!
//! The minimum is laid aside for every packet. The rest is drawn packet by packet, uniformly from a window around the
//! mean of what is left: from 0 to twice the mean ("double mean"), or, where that would pass the maximum, from the mean
//! as far down as the maximum is up. So every draw leaves a rest that the packets to come can take, each packet's
//! expected value is the mean, and nothing has to be put right at the end. Later packets of such a draw are wider spread
//! than early ones (measured: 1.50 against 2.67 cents at 199 cents for 100 people), so the packets are shuffled.
//!
//! ```text
//! rest 900, 3 packets, maximum 500: mean 300, window 100..=500
//! rest 200, 3 packets, maximum 500: mean  66, window   0..=133
//! ```
//!
//! # Again
//!
//! The same request and seed give the same packets, on any machine and in any later version: numbers are the stream of
//! ChaCha20 (RFC 8439, its key the seed, nonce and counter 0) in words of 64 bits, little-endian, each reduced to a window
//! of size n by rejecting words at or above the largest multiple of n, and taking the remainder. First the draw, one
//! number per packet but the last; then the shuffle of Fisher and Yates, from the last packet down.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// More packets are for several campaigns: every one of them is a unit in the store and a row in the ledger.
pub const PACKETS_MAX: u64 = 1_000_000;
/// Sums stay exact in every reader's floating-point numbers, and in Lua's: 2^53 − 1.
pub const CENTS_MAX: i64 = (1 << 53) - 1;

/// What is to be split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    total_cents: i64,
    count: u64,
    min_cents: i64,
    max_cents: i64,
}

/// Why a split or a list is refused, by the field that breaks a rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} {rule}")]
pub struct PacketRule {
    pub field: &'static str,
    pub rule: String,
}

impl Split {
    /// Checks that there is a split at all: count · min ≤ total ≤ count · max.
    pub fn new(total_cents: i64, count: u64, min_cents: i64, max_cents: i64) -> Result<Self, PacketRule> {
        let broken = |field, rule| Err(PacketRule { field, rule });
        check_count(count)?;
        if !(1..=CENTS_MAX).contains(&total_cents) {
            return broken("packets.total_cents", format!("must be from 1 to {CENTS_MAX} cents"));
        }
        if min_cents < 1 {
            return broken("packets.min_cents", "must be at least 1 cent".to_owned());
        }
        if max_cents < min_cents {
            return broken("packets.max_cents", format!("must be at least min_cents ({min_cents})"));
        }
        let (needed, holds) = (i128::from(count) * i128::from(min_cents), i128::from(count) * i128::from(max_cents));
        if i128::from(total_cents) < needed {
            let rule =
                format!("must be at least count · min_cents: {count} packets of {min_cents} cents need {needed}");
            return broken("packets.total_cents", rule);
        }
        if i128::from(total_cents) > holds {
            let rule = format!("must be at most count · max_cents: {count} packets of {max_cents} cents hold {holds}");
            return broken("packets.total_cents", rule);
        }
        Ok(Self { total_cents, count, min_cents, max_cents })
    }

    pub fn total_cents(&self) -> i64 {
        self.total_cents
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn min_cents(&self) -> i64 {
        self.min_cents
    }

    pub fn max_cents(&self) -> i64 {
        self.max_cents
    }

    /// The packets in the order in which they are numbered.
    pub fn draw(&self, seed: [u8; 32]) -> Vec<i64> {
        let mut random = ChaCha20Rng::from_seed(seed);
        let spare = self.max_cents - self.min_cents;
        // Below 2^53, as the total is.
        let mut rest = self.total_cents - self.min_cents * self.count as i64;
        let mut packets = Vec::with_capacity(self.count as usize);
        for left in (1..=self.count as i64).rev() {
            let (low, high) = window(rest, left, spare);
            let more = low + below(&mut random, (high - low) as u64 + 1) as i64;
            rest -= more;
            packets.push(self.min_cents + more);
        }
        shuffle(&mut random, &mut packets);
        packets
    }
}

/// Amounts that somebody else chose, checked.
pub fn check_amounts(cents: &[i64]) -> Result<i64, PacketRule> {
    check_count(cents.len() as u64)?;
    let mut total: i64 = 0;
    for (place, &amount) in cents.iter().enumerate() {
        let sum = total.checked_add(amount).filter(|sum| amount >= 1 && *sum <= CENTS_MAX);
        total = sum.ok_or_else(|| PacketRule {
            field: "packets.amounts",
            rule: format!(
                "must be whole cents, at least 1, and at most {CENTS_MAX} together: number {} is {amount}",
                place + 1
            ),
        })?;
    }
    Ok(total)
}

fn check_count(count: u64) -> Result<(), PacketRule> {
    if (1..=PACKETS_MAX).contains(&count) {
        return Ok(());
    }
    Err(PacketRule { field: "packets.count", rule: format!("must be from 1 to {PACKETS_MAX}") })
}

/// What the next of `left` packets may take of `rest`, both ends included, when none takes more than `spare`.
///
/// With rest ≤ left · spare, which the caller keeps: (a) the last packet takes all; (b) twice the mean fits: from 0, and
/// as rest < left · spare / 2 the others can take what stays even if this one takes nothing; (c) it does not: the window
/// is as wide below the mean as above, and its lower end leaves at most (left − 1) · spare.
fn window(rest: i64, left: i64, spare: i64) -> (i64, i64) {
    if left == 1 {
        return (rest, rest);
    }
    let twice = 2 * i128::from(rest);
    let left = i128::from(left);
    let spare_wide = i128::from(spare);
    if twice / left < spare_wide {
        return (0, (twice / left) as i64);
    }
    // Rounded up: rounded down, the rest might be one too large.
    let low = (twice + left - 1) / left - spare_wide;
    (low as i64, spare)
}

/// Uniform over `0..n`.
fn below(random: &mut ChaCha20Rng, n: u64) -> u64 {
    // 2^64 mod n words at the top would make small remainders likelier.
    let surplus = (u64::MAX % n + 1) % n;
    loop {
        let word = random.next_u64();
        if word <= u64::MAX - surplus {
            return word % n;
        }
    }
}

fn shuffle(random: &mut ChaCha20Rng, packets: &mut [i64]) {
    for place in (1..packets.len()).rev() {
        packets.swap(place, below(random, place as u64 + 1) as usize);
    }
}
