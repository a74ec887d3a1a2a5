//! Sums, unions and their errors, by the formula.

use headcount::domain::estimate::{Estimate, disagree, even, relative_standard_error, sum, union};

#[test]
fn nobody_is_counted_without_error() {
    for estimate in [sum(&[]), sum(&[0.0; 16]), union(0.0)] {
        assert_eq!((estimate.users, estimate.rounded()), (0.0, 0));
        assert_eq!((estimate.relative_standard_error, estimate.error_95()), (0.0, 0.0));
        assert!(!disagree(&estimate, 0.0));
    }
}

#[test]
fn the_error_of_one_sketch_is_the_measured_one() {
    assert_eq!(relative_standard_error(1e2), 0.00618);
    assert_eq!(relative_standard_error(1e5), 0.00756);
    assert_eq!(relative_standard_error(1e7), 0.00824);
    // Halfway in the logarithm, and beyond the table at either end.
    close(relative_standard_error(10f64.powf(4.5)), (0.00598 + 0.00756) / 2.0);
    assert_eq!(relative_standard_error(0.5), 0.00618);
    assert_eq!(relative_standard_error(1e12), 0.00824);
}

#[test]
fn equal_shards_divide_the_error_by_the_root_of_their_number() {
    for shards in [1usize, 4, 16, 64] {
        let estimate = sum(&vec![1e4; shards]);
        close(estimate.users, 1e4 * shards as f64);
        close(estimate.relative_standard_error, 0.00598 / (shards as f64).sqrt());
        let users_off = 1.96 * estimate.relative_standard_error * estimate.users;
        close(estimate.error_95(), users_off.max(users_off.round()) / estimate.users);
    }
}

#[test]
fn one_big_shard_rules_the_error() {
    let estimate = sum(&[1e6, 0.0, 1e2, 0.0]);
    close(estimate.relative_standard_error * estimate.users, ((0.00790f64 * 1e6).powi(2) + 0.618f64.powi(2)).sqrt());
    close(union(1e6).relative_standard_error, 0.00790);
}

#[test]
fn estimates_are_rounded_once() {
    assert_eq!(sum(&[0.3; 16]).rounded(), 5);
    assert_eq!(sum(&[2.5]).rounded(), 3);
}

#[test]
fn the_error_of_few_users_is_whole_users() {
    let off_by = |users: f64| sum(&[users / 16.0; 16]).error_95() * users.round();
    close(off_by(300.0), 1.0);
    // 300.4 is served as 300, and the bound is a share of what is served.
    close(off_by(300.4), 1.0);
    // Less than half a user: most readings are exact. More than one: no more than the formula says, or the next whole.
    close(off_by(100.0), 1.96 * 0.00618 / 4.0 * 100.0);
    close(off_by(400.0), 1.96 * 0.00618 / 4.0 * 400.0);
    close(off_by(600.0), 2.0);
}

#[test]
fn sum_and_union_disagree_past_five_deviations_and_three_users() {
    let at = |users| Estimate { users, relative_standard_error: 0.0 };
    // 10,000 users: 0.57 % is one deviation.
    assert!(!disagree(&at(10_284.0), 10_000.0));
    assert!(disagree(&at(10_286.0), 10_000.0));
    assert!(disagree(&at(9_714.0), 10_000.0));
    // Five deviations of 20 users are half a user.
    assert!(!disagree(&at(23.0), 20.0));
    assert!(disagree(&at(23.1), 20.0));
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} is not {b}");
}

#[test]
fn users_spread_evenly_have_the_error_of_their_sum() {
    for users in [0.0, 1.0, 160.0, 12_345.0, 1e6, 1e9] {
        for shards in [1u16, 16, 1024] {
            let summed = sum(&vec![users / f64::from(shards); usize::from(shards)]);
            let even = even(users, shards);
            let off = (even.relative_standard_error - summed.relative_standard_error).abs();
            assert!(off <= 1e-12, "{users} users in {shards} shards: {even:?}, {summed:?}");
        }
    }
}
