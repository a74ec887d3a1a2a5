//! Splitting red packets: exact to the cent, within bounds, fair, and the same again.

use headcount::domain::packets::{CENTS_MAX, PACKETS_MAX, PacketRule, Split, check_amounts};
use proptest::prelude::*;

/// Requests that can be met, from one packet to thousands, tight and loose.
fn possible() -> impl Strategy<Value = (i64, u64, i64, i64)> {
    (1..2_000u64, 1..1_000i64, 0..5_000i64, 0.0..=1.0f64).prop_map(|(count, min, spare, share)| {
        let max = min + spare;
        let least = min * count as i64;
        let total = least + ((max * count as i64 - least) as f64 * share) as i64;
        (total, count, min, max)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_cent_is_in_a_packet_and_every_packet_within_bounds(
        (total, count, min, max) in possible(),
        seed in any::<[u8; 32]>(),
    ) {
        let packets = Split::new(total, count, min, max).unwrap().draw(seed);
        prop_assert_eq!(packets.len() as u64, count);
        prop_assert_eq!(packets.iter().sum::<i64>(), total);
        prop_assert!(packets.iter().all(|cents| (min..=max).contains(cents)), "{packets:?}");
        prop_assert_eq!(Split::new(total, count, min, max).unwrap().draw(seed), packets);
    }

    #[test]
    fn the_impossible_is_refused_with_the_rule_it_breaks(
        total in -10..1_000i64,
        count in 0..40u64,
        min in -2..60i64,
        max in -2..60i64,
    ) {
        let can_be = (1..=PACKETS_MAX).contains(&count)
            && total >= 1
            && min >= 1
            && max >= min
            && count as i64 * min <= total
            && total <= count as i64 * max;
        match Split::new(total, count, min, max) {
            Ok(_) => prop_assert!(can_be),
            Err(PacketRule { field, rule }) => {
                prop_assert!(!can_be);
                prop_assert!(field.starts_with("packets.") && !rule.is_empty());
            }
        }
    }
}

#[test]
fn the_rule_names_both_sides() {
    let rule = |total, count, min, max| Split::new(total, count, min, max).unwrap_err().to_string();
    assert_eq!(
        rule(9, 10, 1, 9),
        "packets.total_cents must be at least count · min_cents: 10 packets of 1 cents need 10"
    );
    assert_eq!(
        rule(101, 10, 1, 10),
        "packets.total_cents must be at most count · max_cents: 10 packets of 10 cents hold 100"
    );
    assert_eq!(rule(10, 2, 5, 4), "packets.max_cents must be at least min_cents (5)");
    assert_eq!(rule(10, PACKETS_MAX + 1, 1, 10), "packets.count must be from 1 to 1000000");
}

#[test]
fn largest_sums_and_counts_can_be_split() {
    let packets = Split::new(CENTS_MAX, PACKETS_MAX, 1, CENTS_MAX).unwrap().draw([7; 32]);
    assert_eq!(packets.iter().sum::<i64>(), CENTS_MAX);
    let all_full = Split::new(500_000, 100_000, 1, 5).unwrap().draw([7; 32]);
    assert!(all_full.iter().all(|cents| *cents == 5));
    assert_eq!(Split::new(5, 5, 1, 1).unwrap().draw([1; 32]), [1; 5]);
    assert_eq!(Split::new(CENTS_MAX, 1, 1, CENTS_MAX).unwrap().draw([1; 32]), [CENTS_MAX]);
}

/// Mean and spread of the packet at a place, over draws with seeds 0, 1, 2, …
fn moments(split: Split, draws: u64, place: usize) -> (f64, f64) {
    let cents: Vec<f64> = (0..draws)
        .map(|draw| {
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&draw.to_le_bytes());
            split.draw(seed)[place] as f64
        })
        .collect();
    let mean = cents.iter().sum::<f64>() / draws as f64;
    let variance = cents.iter().map(|cents| (cents - mean).powi(2)).sum::<f64>() / (draws - 1) as f64;
    (mean, variance.sqrt())
}

/// 199 cents for 100 people: unshuffled, the last packet has 2.67 cents on average and the first 1.50.
#[test]
fn the_first_packet_is_like_the_last() {
    for (split, mean) in [(Split::new(199, 100, 1, 199), 1.99), (Split::new(100_000, 20, 100, 9_000), 5_000.0)] {
        let split = split.unwrap();
        let places = [0, split.count() as usize / 2, split.count() as usize - 1];
        let of_places = places.map(|place| moments(split, 3_000, place));
        for (of_place, spread) in of_places {
            // Four standard errors of a mean of 3,000 draws, and of their spread.
            assert!((of_place - mean).abs() < 4.0 * spread / 3_000f64.sqrt(), "{of_places:?}");
            let others = of_places.iter().map(|(_, spread)| spread).sum::<f64>() / 3.0;
            assert!((spread - others).abs() < 0.15 * others, "{of_places:?}");
        }
    }
}

/// Anybody can work a draw out again: the first number of the stream of ChaCha20 under a key of zeros is
/// 76 b8 e0 ad a0 f1 3d 90 (RFC 8439, A.1, test vector 1).
#[test]
fn a_draw_can_be_worked_out_by_others() {
    let first = u64::from_le_bytes([0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
    // Two packets: one number for the first, one for the shuffle. 1,001 is odd, so that no word is rejected here.
    let packets = Split::new(1_002, 2, 1, 1_002).unwrap().draw([0; 32]);
    let drawn = 1 + (first % 1_001) as i64;
    assert!(packets == [drawn, 1_002 - drawn] || packets == [1_002 - drawn, drawn], "{packets:?} {drawn}");
    // As this version draws; a later one that differs would make records lie.
    assert_eq!(Split::new(1_000, 8, 50, 300).unwrap().draw([3; 32]), KNOWN);
}

const KNOWN: [i64; 8] = [179, 78, 164, 55, 212, 134, 105, 73];

#[test]
fn lists_are_whole_cents_of_a_known_sum() {
    assert_eq!(check_amounts(&[1, 2, 3]), Ok(6));
    for (list, place) in [(&[1, 0][..], "number 2 is 0"), (&[-5], "number 1 is -5"), (&[CENTS_MAX, 1], "number 2 is 1")]
    {
        let rule = check_amounts(list).unwrap_err().rule;
        assert!(rule.contains(place), "{rule}");
    }
    assert!(check_amounts(&[]).is_err());
}
