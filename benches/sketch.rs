//! What the hot paths of counting cost without store or network. Figures and machine: `docs/PERFORMANCE.md`, "Micro".

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use headcount::domain::element::{HashKey, UserHashing};
use headcount::domain::id::UserId;
use headcount::domain::ring::{Shards, ring_point};
use headcount::domain::sketch::atomic::AtomicRegisters;
use headcount::domain::sketch::hash::hit;
use headcount::domain::sketch::registers::Sketch;
use headcount::domain::sketch::wire::{decode, encode_dense, encode_sparse, merge_into};
use headcount::domain::{estimate, sketch};

const SHARDS: usize = 16;

/// A repeated visit: the user's element, shard and register are found, and the register is high enough.
fn filter_check(c: &mut Criterion) {
    let hashing = UserHashing::Keyed(HashKey::from_bytes(*b"0123456789abcdef"));
    let cells: Vec<AtomicRegisters> = (0..SHARDS).map(|_| AtomicRegisters::new()).collect();
    let names: Vec<String> = (0..10_000).map(|n| format!("user-{n:06}")).collect();
    let users: Vec<UserId> = names.iter().map(|name| UserId::new(name).expect("a user id")).collect();
    let known = |user: UserId| {
        let element = hashing.element(user);
        let cell = &cells[Shards::DEFAULT.index_of(ring_point(&element)) % SHARDS];
        let hit = hit(element.as_bytes());
        (cell, hit)
    };
    for user in &users {
        let (cell, hit) = known(*user);
        cell.raise(hit);
    }
    let mut next = users.iter().cycle();
    c.bench_function("filter check, 11-byte user id, held cell", |b| {
        b.iter(|| {
            let (cell, hit) = known(*black_box(next.next().expect("a cycle does not end")));
            cell.get(hit.index) >= hit.rank
        });
    });
}

/// One refresh of a count: 16 sketches as they come from the store, 6,250 users in each.
fn refresh(c: &mut Criterion) {
    let sketches: Vec<Sketch> = (0..SHARDS as u64).map(|shard| sketch_of(shard << 32, 6_250)).collect();
    let blobs: Vec<Vec<u8>> = sketches.iter().map(encode_dense).collect();
    c.bench_function("union: 16 dense sketches merged, one estimate", |b| {
        b.iter(|| {
            let mut union = Sketch::new();
            for blob in black_box(&blobs) {
                merge_into(&mut union, blob).expect("encoded just now");
            }
            union.estimate()
        });
    });
    c.bench_function("sum: 16 dense sketches decoded, 16 estimates", |b| {
        b.iter(|| {
            let count = |blob: &Vec<u8>| decode(blob).expect("encoded just now").estimate().expect("not saturated");
            let counts: Vec<f64> = black_box(&blobs).iter().map(count).collect();
            estimate::sum(&counts)
        });
    });
    c.bench_function("one estimate", |b| b.iter(|| black_box(&sketches[0]).estimate()));
}

fn codec(c: &mut Criterion) {
    let (full, small) = (sketch_of(0, 6_250), sketch_of(0, 500));
    let dense = encode_dense(&full);
    let sparse = encode_sparse(&small).expect("no rank over 32");
    c.bench_function("decode dense, 12,304 bytes", |b| b.iter(|| decode(black_box(&dense))));
    c.bench_function(&format!("decode sparse, {} bytes", sparse.len()), |b| b.iter(|| decode(black_box(&sparse))));
    c.bench_function("encode dense", |b| b.iter(|| encode_dense(black_box(&full))));
    c.bench_function("encode sparse, 500 users", |b| b.iter(|| encode_sparse(black_box(&small))));
    c.bench_function("merge a sketch into held registers", |b| {
        b.iter_batched_ref(AtomicRegisters::new, |cell| cell.merge(black_box(&full)), BatchSize::SmallInput);
    });
}

fn sketch_of(first: u64, users: u64) -> Sketch {
    let mut sketch = sketch::registers::Sketch::new();
    for n in first..first + users {
        sketch.insert(&n.to_le_bytes());
    }
    sketch
}

criterion_group!(benches, filter_check, refresh, codec);
criterion_main!(benches);
