//! What crafted ids do to a sketch that hashes raw ids, and what they do not do to one that hashes under a key.

use headcount::domain::element::{Element, UserHashing};
use headcount::domain::estimate;
use headcount::domain::estimate::Estimate;
use headcount::domain::id::UserId;
use headcount::domain::ring::{Shards, ring_point};
use headcount::domain::sketch::estimate::Saturated;
use headcount::domain::sketch::hash::{Hit, hit, murmur64a};
use headcount::domain::sketch::registers::{RANK_MAX, REGISTERS, Sketch};

use crate::craft;
use crate::users::{element, hashing};

const HONEST: u32 = 100_000;

#[test]
fn redis_hash_is_taken_back() {
    for hash in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
        assert_eq!(murmur64a(&craft::bytes_with_hash(hash)), hash);
    }
    let text = craft::text_in_first_shard(77);
    assert_eq!(hit(text.as_bytes()).index, 77);
    assert!(hit(text.as_bytes()).rank > 25);
}

/// The figures were measured on a Redis key with the same users and the same crafted ids.
#[test]
fn crafted_ids_double_and_then_kill_a_sketch_of_raw_ids() {
    let mut sketch = Sketch::new();
    for n in 1..=HONEST {
        sketch.insert(format!("user_{n}").as_bytes());
    }
    let mut crafted = 0..REGISTERS as u64;
    for expected in [Some(99_839), Some(134_097), Some(199_804), Some(395_071), None] {
        let users = sketch.estimate().map(|users| users.round() as u64);
        assert_eq!(users, expected.ok_or(Saturated));
        for index in crafted.by_ref().take(4_096) {
            let bytes = craft::bytes_with_hash(index);
            assert_eq!(hit(&bytes), Hit { index: index as u16, rank: RANK_MAX });
            sketch.insert(&bytes);
        }
    }
}

#[test]
fn crafted_ids_count_under_a_key_as_honest_ones_do() {
    let crafted = craft::texts_in_first_shard();
    assert_eq!(crafted.len(), REGISTERS);
    let truth = f64::from(HONEST) + REGISTERS as f64;

    let keyed = hashing();
    let mut crowd = honest_crowd(&keyed);
    let before = count(&crowd);
    assert!((before.users - f64::from(HONEST)).abs() <= before.error_95() * before.users, "{before:?}");
    add(&mut crowd, crafted.iter().map(|id| keyed.element(UserId::new(id).unwrap())));
    let after = count(&crowd);
    println!("keyed: {} honest users counted {}, with {REGISTERS} crafted ids {}", HONEST, before.users, after.users);
    assert!((after.users - truth).abs() <= after.error_95() * after.users, "{after:?} for {truth}");

    let mut honest_instead = honest_crowd(&keyed);
    add(&mut honest_instead, (0..REGISTERS as u32).map(|n| element(&keyed, 2, n)));
    let honest = count(&honest_instead);
    assert!((honest.users - after.users).abs() <= after.error_95() * after.users, "{honest:?} {after:?}");

    let plain = UserHashing::Plain;
    let mut crowd = honest_crowd(&plain);
    let before = count(&crowd);
    add(&mut crowd, crafted.iter().map(|id| plain.element(UserId::new(id).unwrap())));
    let after = count(&crowd);
    println!("plain: {} honest users counted {}, with {REGISTERS} crafted ids {}", HONEST, before.users, after.users);
    assert!(after.users > 1e6 * truth, "{after:?}");
}

type Crowd = Vec<Sketch>;

fn honest_crowd(hashing: &UserHashing) -> Crowd {
    let mut crowd = vec![Sketch::new(); usize::from(Shards::DEFAULT.count())];
    add(&mut crowd, (0..HONEST).map(|n| element(hashing, 1, n)));
    crowd
}

fn add(crowd: &mut Crowd, elements: impl Iterator<Item = Element>) {
    for element in elements {
        crowd[Shards::DEFAULT.index_of(ring_point(&element))].raise(hit(element.as_bytes()));
    }
}

fn count(crowd: &Crowd) -> Estimate {
    let users = |sketch: &Sketch| sketch.estimate().expect("no register is at its highest");
    estimate::sum(&crowd.iter().map(users).collect::<Vec<_>>())
}
