//! From the sketches of shards to one number with its error.
//!
//! Shards are disjoint, so their estimates add up, and so do the squares of their absolute errors:
//!
//! ```text
//!   users    = n1 + n2 + … + nN                                (added unrounded, rounded once)
//!   error_95 = 1.96 × √( (rms(n1)·n1)² + … + (rms(nN)·nN)² ) / users
//! ```
//!
//! N equal shards divide the error of one sketch by √N. The union of all sketches has the error of one sketch,
//! whatever N: it is served only when the shards cannot be trusted to be disjoint.

/// A number of different users, and how far off it may be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Not rounded.
    pub users: f64,
    /// One standard error as a share of `users`: 0.0014 is 0.14 %. 0 if there are no users.
    pub relative_standard_error: f64,
}

impl Estimate {
    /// The share of the rounded number by which 95 of 100 readings are off at most: 0.0028 is 0.28 %. 0 for nobody.
    ///
    /// A rounded number is off by whole users or not at all. So where the formula gives 0.9 users, the bound is one:
    /// with 300 users in 16 sketches, one reading in six is off by one user, and 0.9 would be broken by all of them.
    /// Where it gives less than half a user, 95 of 100 readings are exact and the bound may stay below one.
    pub fn error_95(&self) -> f64 {
        let count = self.users.round();
        let users_off = 1.96 * self.relative_standard_error * self.users;
        if count > 0.0 { users_off.max(users_off.round()) / count } else { 0.0 }
    }

    pub fn rounded(&self) -> u64 {
        self.users.round() as u64
    }
}

/// Users in one sketch, and the measured relative rms error of its estimate (10,000 trials each, 5,000 at 10^6, 800
/// at 10^7; reference measurements in `docs/ACCURACY.md`). Below 16,384 users registers are hardly shared, hence the
/// smaller errors. The figure for 100 contains the rounding to whole users.
const RMS_OF_ONE_SKETCH: [(f64, f64); 6] =
    [(1e2, 0.00618), (1e3, 0.00553), (1e4, 0.00598), (1e5, 0.00756), (1e6, 0.00790), (1e7, 0.00824)];

/// Users, and the measured standard deviation of (sum - union) as a share of the union, N = 16.
const SPREAD_OF_SUM_AND_UNION: [(f64, f64); 4] = [(1e3, 0.0054), (1e4, 0.0057), (1e5, 0.0077), (1e6, 0.0093)];

/// The relative standard error of one sketch's estimate, between the measured sizes by the logarithm of the size,
/// outside them that of the nearest. 0 for no users: an empty sketch is exact.
pub fn relative_standard_error(users_in_one_sketch: f64) -> f64 {
    if users_in_one_sketch > 0.0 { interpolate(&RMS_OF_ONE_SKETCH, users_in_one_sketch) } else { 0.0 }
}

/// The users of disjoint shards together, from the estimate of each. No shards: no users.
pub fn sum(shard_estimates: &[f64]) -> Estimate {
    let users: f64 = shard_estimates.iter().sum();
    let variance: f64 = shard_estimates.iter().map(|n| (relative_standard_error(*n) * n).powi(2)).sum();
    Estimate { users, relative_standard_error: if users > 0.0 { variance.sqrt() / users } else { 0.0 } }
}

/// The same for users who are spread evenly over so many shards, as hashing spreads them.
pub fn even(users: f64, shards: u16) -> Estimate {
    let shards = f64::from(shards.max(1));
    Estimate { users, relative_standard_error: relative_standard_error(users / shards) / shards.sqrt() }
}

/// The users in one sketch, or in the union of any sketches.
pub fn union(users: f64) -> Estimate {
    Estimate { users, relative_standard_error: relative_standard_error(users) }
}

/// True if sum and union of the same sketches differ so much that some writer must have put users into several
/// shards: by more than 5 standard deviations of their difference, and by more than 3 users.
///
/// An alarm and no more: one misrouting process of fifty adds at most 2 % and stays below it. Where it sounds, the
/// union is the number to serve.
pub fn disagree(sum: &Estimate, union: f64) -> bool {
    let deviation = interpolate(&SPREAD_OF_SUM_AND_UNION, union) * union;
    (sum.users - union).abs() > (5.0 * deviation).max(3.0)
}

fn interpolate(table: &[(f64, f64)], users: f64) -> f64 {
    let above = table.partition_point(|(size, _)| *size < users);
    if above == 0 {
        return table[0].1;
    }
    if above == table.len() {
        return table[above - 1].1;
    }
    let ((size_low, low), (size_high, high)) = (table[above - 1], table[above]);
    low + (high - low) * (users / size_low).ln() / (size_high / size_low).ln()
}
