//! How far off a count is, by experiment: N = 16 shards, keyed elements, the sum of unrounded estimates.
//!
//! Each test prints a row of the table in `docs/ACCURACY.md`. The key is fixed, so the crowds are too: what passes
//! once passes always. The tolerances are those that fresh crowds would need: the rms error of t trials has itself a
//! standard error of rms / √(2t), their mean one of rms / √t; three of each are granted.

use headcount::domain::estimate::{self, Estimate};
use headcount::domain::ring::{Shards, ring_point};
use headcount::domain::sketch::hash::hit;
use headcount::domain::sketch::registers::Sketch;

use crate::users::{element, hashing};

/// How many trials run side by side.
const THREADS: u32 = 2;

#[test]
fn a_thousand_users_are_counted_within_the_reference_error() {
    Trials { users: 1_000, trials: 200 }.run().check(0.001_39);
}

#[test]
fn ten_thousand_users_are_counted_within_the_reference_error() {
    Trials { users: 10_000, trials: 200 }.run().check(0.001_38);
}

#[test]
fn a_hundred_thousand_users_are_counted_within_the_reference_error() {
    Trials { users: 100_000, trials: 200 }.run().check(0.001_43);
}

#[test]
fn the_published_error_holds_for_95_of_100_counts() {
    let outcome = Trials { users: 20_000, trials: 200 }.run();
    outcome.print(None);
    outcome.check_published_error();
}

/// Few users are counted in whole users: the error bar must know that.
#[test]
fn the_published_error_holds_for_small_counts() {
    for users in [1, 10, 40, 100, 160, 200, 300, 500, 700, 1_000] {
        let outcome = Trials { users, trials: 1_000 }.run();
        outcome.print(None);
        outcome.check_published_error();
    }
}

#[test]
#[ignore = "for the table in docs/ACCURACY.md: make prove"]
fn prove_counts_of_every_size() {
    // Without a reference figure of their own: for the table.
    for (users, trials) in [(10, 5_000), (100, 5_000), (300, 5_000), (20_000, 2_000)] {
        Trials { users, trials }.run().print(None);
    }
    for (users, trials, rms) in [(1_000, 5_000, 0.001_39), (10_000, 2_000, 0.001_38), (100_000, 1_000, 0.001_43)] {
        Trials { users, trials }.run().check(rms);
    }
}

#[test]
#[ignore = "for the table in docs/ACCURACY.md: make prove"]
fn prove_a_million_users() {
    Trials { users: 1_000_000, trials: 100 }.run().check(0.001_78);
}

#[test]
#[ignore = "for the table in docs/ACCURACY.md: make prove"]
fn prove_ten_million_users() {
    Trials { users: 10_000_000, trials: 20 }.run().check(0.002_03);
}

struct Trials {
    users: u32,
    trials: u32,
}

/// One crowd, counted in both ways.
struct Count {
    sum: Estimate,
    union: f64,
}

/// All errors are shares of the true number.
struct Outcome {
    users: u32,
    trials: u32,
    bias: f64,
    rms: f64,
    union_rms: f64,
    spread_of_sum_and_union: f64,
    /// Of the rounded counts, how many lie within their own published error: the sum's, and the union's.
    share_within_95: f64,
    union_share_within_95: f64,
    alarms: usize,
}

impl Trials {
    fn run(&self) -> Outcome {
        let counts: Vec<Count> = std::thread::scope(|scope| {
            let part = |first| (first..self.trials).step_by(THREADS as usize).map(|trial| self.count(trial)).collect();
            let threads: Vec<_> =
                (0..THREADS).map(|first| scope.spawn(move || -> Vec<Count> { part(first) })).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a trial does not panic")).collect()
        });
        let truth = f64::from(self.users);
        let mean = |of: &dyn Fn(&Count) -> f64| counts.iter().map(of).sum::<f64>() / f64::from(self.trials);
        let error = |count: &Count| count.sum.users / truth - 1.0;
        let inside = |estimate: &Estimate| {
            let count = estimate.rounded() as f64;
            f64::from((count - truth).abs() <= estimate.error_95() * count + 1e-6)
        };
        Outcome {
            users: self.users,
            trials: self.trials,
            bias: mean(&error),
            rms: mean(&|count| error(count).powi(2)).sqrt(),
            union_rms: mean(&|count| (count.union / truth - 1.0).powi(2)).sqrt(),
            spread_of_sum_and_union: mean(&|count| (count.sum.users / count.union - 1.0).powi(2)).sqrt(),
            share_within_95: mean(&|count| inside(&count.sum)),
            union_share_within_95: mean(&|count| inside(&estimate::union(count.union))),
            alarms: counts.iter().filter(|count| estimate::disagree(&count.sum, count.union)).count(),
        }
    }

    /// Counts one crowd. Crowds of different trials have no user in common.
    fn count(&self, trial: u32) -> Count {
        let hashing = hashing();
        let crowd = self.users.ilog2() << 16 | trial;
        let mut shards = vec![Sketch::new(); usize::from(Shards::DEFAULT.count())];
        for number in 0..self.users {
            let element = element(&hashing, crowd, number);
            shards[Shards::DEFAULT.index_of(ring_point(&element))].raise(hit(element.as_bytes()));
        }
        let mut union = Sketch::new();
        shards.iter().for_each(|shard| union.merge(shard));
        let users = |sketch: &Sketch| sketch.estimate().expect("honest users saturate nothing");
        let estimates: Vec<f64> = shards.iter().map(users).collect();
        Count { sum: estimate::sum(&estimates), union: users(&union) }
    }
}

impl Outcome {
    fn check(&self, reference_rms: f64) {
        self.print(Some(reference_rms));
        let trials = f64::from(self.trials);
        let rms_max = reference_rms * (1.0 + 3.0 / (2.0 * trials).sqrt());
        assert!(self.rms <= rms_max, "rms {} over {rms_max}", self.rms);
        let bias_max = 3.0 * self.rms / trials.sqrt();
        assert!(self.bias.abs() <= bias_max, "bias {} over {bias_max}", self.bias);
        assert_eq!(self.alarms, 0, "sum and union of one crowd are said to disagree");
    }

    /// 95 of 100 should; 93 leave room for chance.
    fn check_published_error(&self) {
        assert!(self.share_within_95 >= 0.93, "{} users: the sum holds in {}", self.users, self.share_within_95);
        assert!(self.union_share_within_95 >= 0.93, "{} users: the union {}", self.users, self.union_share_within_95);
    }

    fn print(&self, reference_rms: Option<f64>) {
        let reference = reference_rms.map_or("-".to_owned(), |rms| format!("{:.3} %", rms * 100.0));
        println!(
            "| {} | {} | {:+.3} % | {:.3} % | {reference} | {:.3} % | {:.2} % | {:.1} % | {:.1} % |",
            self.users,
            self.trials,
            self.bias * 100.0,
            self.rms * 100.0,
            self.union_rms * 100.0,
            self.spread_of_sum_and_union * 100.0,
            self.share_within_95 * 100.0,
            self.union_share_within_95 * 100.0
        );
    }
}
