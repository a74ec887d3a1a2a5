//! A model-based simulation of exact admission: the service as it is, several processes of it, on a store that is
//! simulated down to messages, replication and failover. After every change the invariant is checked, and at every
//! answer what users were told (`oracle.rs`). Cases are random and seeded, and shrink when they fail.

#![allow(clippy::disallowed_methods, reason = "a case starts callers of its own")]

mod case;
mod chance;
mod mutants;
mod oracle;
mod process;
mod world;

use case::{Case, Event, What, run};
use mutants::Mutant;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// Cases of the honest program in CI, in two halves that run side by side.
const CASES: u32 = 1_100;
/// Cases within which a planted bug must be found.
const MUTANT_CASES: u32 = 3_000;

fn events(lossy: bool) -> impl Strategy<Value = Vec<Event>> {
    let user = || 0..24u8;
    let node = || 0..3u8;
    let ms = || 1..700u16;
    let honest = prop_oneof![
        20 => (user(), any::<bool>()).prop_map(|(user, keyed)| What::Claim { user, keyed }),
        4 => (user(), 1..12u8).prop_map(|(first, count)| What::Crowd { first, count }),
        6 => user().prop_map(|user| What::Confirm { user }),
        6 => user().prop_map(|user| What::Release { user }),
        1 => user().prop_map(|user| What::Void { user }),
        2 => (1..16u8).prop_map(|quota| What::Quota { quota }),
        1 => any::<bool>().prop_map(|paused| What::Pause { paused }),
    ];
    let faults = prop_oneof![
        2 => (0..2u8).prop_map(|process| What::Crash { process }),
        2 => (node(), ms()).prop_map(|(node, ms)| What::Cut { node, ms }),
        2 => node().prop_map(|node| What::FailOver { node }),
        4 => (node(), ms()).prop_map(|(node, ms)| What::CutAndFailOver { node, ms }),
        1 => (node(), ms()).prop_map(|(node, ms)| What::Stop { node, ms }),
    ];
    let losses = prop_oneof![
        3 => node().prop_map(|node| What::BackUp { node }),
        2 => node().prop_map(|node| What::Lose { node }),
    ];
    let what = if lossy {
        prop_oneof![20 => honest, 3 => losses].boxed()
    } else {
        prop_oneof![10 => honest, 3 => faults].boxed()
    };
    proptest::collection::vec((0..3_000u64, what).prop_map(|(at_ms, what)| Event { at_ms, what }), 10..70)
}

fn cases(lossy: bool) -> impl Strategy<Value = Case> {
    let shape = (0..3u32, 1..12u64, 6..24u8, prop_oneof![2 => Just(0u64), 3 => Just(1u64)], 20..200u64);
    (any::<u64>(), shape, any::<bool>(), events(lossy)).prop_map(
        move |(seed, (shards, quota, users, hold_s, interval_ms), stormy, events)| Case {
            seed,
            shards: 1 << shards,
            quota,
            users,
            hold_s,
            interval_ms,
            stormy: stormy && !lossy,
            lossy,
            events,
        },
    )
}

/// Runs so many cases; the smallest that fails, and why.
fn first_failure(lossy: bool, count: u32, stream: u8, mutant: Option<Mutant>) -> Option<(String, Case)> {
    // Only for the honest program a small case is worth the time it takes to find.
    let max_shrink_iters = if mutant.is_some() { 0 } else { 300 };
    let config = Config { cases: count, max_shrink_iters, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[stream; 32]);
    let failed = TestRunner::new_with_rng(config, rng)
        .run(&cases(lossy), |case| run(&case, mutant).map_err(TestCaseError::fail));
    match failed {
        Ok(()) => None,
        Err(TestError::Fail(reason, case)) => Some((reason.message().to_owned(), case)),
        Err(TestError::Abort(reason)) => panic!("the generator gave up: {reason}"),
    }
}

fn holds(lossy: bool, count: u32, stream: u8) {
    if let Some((reason, case)) = first_failure(lossy, count, stream, None) {
        let events: Vec<String> = case.events.iter().map(|event| format!("{event:?}")).collect();
        let case = Case { events: Vec::new(), ..case };
        panic!("{reason}\n{case:?}\n{}", events.join("\n"));
    }
}

#[test]
fn every_promise_holds_in_random_cases() {
    holds(false, CASES, 1);
}

#[test]
fn every_promise_holds_in_other_random_cases() {
    holds(false, CASES, 2);
}

#[test]
fn no_unit_is_told_to_two_users_even_where_data_is_lost() {
    holds(true, CASES / 4, 3);
}

#[test]
#[ignore = "takes minutes: make prove"]
fn prove_every_promise_holds_in_a_hundred_thousand_cases() {
    holds(false, 100_000, 5);
    holds(true, 100_000, 6);
}

/// Finds a planted bug, or the simulation is worth nothing.
fn is_caught(mutant: Mutant) {
    let lossy = mutant == Mutant::FenceDoesNotStick;
    let found = first_failure(lossy, MUTANT_CASES, 4, Some(mutant));
    let (reason, _) = found.unwrap_or_else(|| panic!("{mutant:?} was not found in {MUTANT_CASES} cases"));
    println!("{mutant:?}: {reason}");
}

#[test]
fn a_credit_that_is_not_idempotent_is_caught() {
    is_caught(Mutant::CreditIsNotIdempotent);
}

#[test]
fn a_credit_before_the_debit_is_replicated_is_caught() {
    is_caught(Mutant::CreditBeforeDebitIsReplicated);
}

#[test]
fn two_open_transfers_of_one_pair_are_caught() {
    is_caught(Mutant::TwoOpenTransfers);
}

#[test]
fn a_wait_without_a_write_is_caught() {
    is_caught(Mutant::WaitWithoutWrite);
}

#[test]
fn taking_a_unit_before_the_check_is_caught() {
    is_caught(Mutant::TakeBeforeCheck);
}

#[test]
fn numbers_issued_again_after_a_lowering_are_caught() {
    is_caught(Mutant::NumbersAreReissued);
}

#[test]
fn a_fence_that_does_not_stick_is_caught() {
    is_caught(Mutant::FenceDoesNotStick);
}

#[test]
fn units_that_do_not_cool_are_caught() {
    is_caught(Mutant::NoCooling);
}

#[test]
fn a_turn_that_is_not_raised_is_caught() {
    is_caught(Mutant::TurnIsNotRaised);
}
