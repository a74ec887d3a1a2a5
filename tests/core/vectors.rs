//! Every vector that was made with real servers (`data/hll_vectors.json`: redis-server 7.0.15, most also reproduced
//! on Valkey): hashes, ranks, blobs, counts, merges, refusals.

use std::collections::BTreeMap;

use headcount::domain::sketch::estimate::{Saturated, estimate};
use headcount::domain::sketch::hash::{Hit, hit, murmur64a};
use headcount::domain::sketch::registers::Sketch;
use headcount::domain::sketch::wire::{self, decode, encode, encode_dense, encode_sparse};
use serde::Deserialize;
use twox_hash::XxHash3_64;

#[derive(Deserialize)]
struct Vectors {
    hash_vectors: Vec<HashVector>,
    crafted_rank_vectors: Vec<CraftedRank>,
    sparse_blobs: Vec<SparseBlob>,
    user_sets: UserSets,
    merge_vectors: Vec<MergeVector>,
    sharded_xxh3_64_mod16: Sharded,
    corrupt_blobs: Vec<CorruptBlob>,
    full_blobs_user_sets: Vec<FullBlob>,
    estimator_vectors_dense: Vec<EstimatorVector>,
}

#[derive(Deserialize)]
struct HashVector {
    input_hex: String,
    murmur64a: String,
    index: u16,
    rank: u8,
    sparse_blob_hex: String,
}

#[derive(Deserialize)]
struct CraftedRank {
    input_hex: String,
    murmur64a: String,
    index: u16,
    rank: u8,
    encoding_after_single_pfadd: String,
    strlen: usize,
    pfcount: u64,
    dense_nonzero_bytes: BTreeMap<usize, String>,
}

#[derive(Deserialize)]
struct SparseBlob {
    elements: serde_json::Value,
    blob_hex_after_adds: String,
    blob_hex_after_pfcount: String,
    pfcount: u64,
}

#[derive(Deserialize)]
struct UserSets {
    first_user_with_pfadd_0: String,
    rows: Vec<UserSet>,
}

#[derive(Deserialize)]
struct UserSet {
    n: u32,
    pfcount: u64,
    encoding: String,
    strlen: usize,
    pfadd_ones: u32,
    sha256_body_after_16_byte_header: String,
    sha256_registers_16384_bytes: String,
    max_register: u8,
    zero_registers: usize,
}

#[derive(Deserialize)]
struct MergeVector {
    a: String,
    b: String,
    count_a: u64,
    count_b: u64,
    pfmerge_into_missing_dest: Merged,
    pfcount_union: u64,
}

#[derive(Deserialize)]
struct Merged {
    encoding: String,
    strlen: usize,
    sha256_whole_blob: String,
}

#[derive(Deserialize)]
struct Sharded {
    rows: Vec<ShardedRow>,
}

#[derive(Deserialize)]
struct ShardedRow {
    n: u32,
    true_per_shard: Vec<u64>,
    pfcount_per_shard: Vec<u64>,
    sum: u64,
    union_pfcount: u64,
}

#[derive(Deserialize)]
struct CorruptBlob {
    name: String,
    hex: String,
}

#[derive(Deserialize)]
struct FullBlob {
    encoding: String,
    blob_b64: String,
    n: u32,
    pfcount: u64,
}

#[derive(Deserialize)]
struct EstimatorVector {
    name: String,
    histogram: BTreeMap<usize, u32>,
    pfcount: i64,
}

#[test]
fn hashes_registers_and_ranks_are_those_of_redis() {
    let vectors = vectors().hash_vectors;
    assert_eq!(vectors.len(), 24);
    for vector in vectors {
        let input = from_hex(&vector.input_hex);
        assert_eq!(murmur64a(&input), number(&vector.murmur64a), "{}", vector.input_hex);
        assert_eq!(hit(&input), Hit { index: vector.index, rank: vector.rank }, "{}", vector.input_hex);
        let mut sketch = Sketch::new();
        assert!(sketch.insert(&input));
        assert_eq!(to_hex(&encode(&sketch)), vector.sparse_blob_hex);
    }
}

#[test]
fn every_rank_has_its_encoding_and_its_bits() {
    for vector in vectors().crafted_rank_vectors {
        let input = from_hex(&vector.input_hex);
        assert_eq!(murmur64a(&input), number(&vector.murmur64a));
        assert_eq!(hit(&input), Hit { index: vector.index, rank: vector.rank });
        let mut sketch = Sketch::new();
        sketch.insert(&input);
        let blob = encode(&sketch);
        assert_eq!(encoding_of(&blob), vector.encoding_after_single_pfadd, "rank {}", vector.rank);
        assert_eq!(blob.len(), vector.strlen);
        assert_eq!(rounded(&sketch), vector.pfcount);
        // The first 16 bytes are the header; of the rest only these are not zero.
        let dense = encode_dense(&sketch);
        let nonzero = dense.iter().enumerate().skip(wire::HEADER_BYTES).filter(|(_, byte)| **byte != 0);
        let nonzero: BTreeMap<usize, String> = nonzero.map(|(at, byte)| (at, format!("{byte:02x}"))).collect();
        assert_eq!(nonzero, vector.dense_nonzero_bytes);
    }
}

#[test]
fn sparse_blobs_are_those_of_redis() {
    for vector in vectors().sparse_blobs {
        let elements: Vec<String> = match vector.elements {
            serde_json::Value::Array(list) => list.iter().map(|e| e.as_str().unwrap().to_owned()).collect(),
            _ => (1..=50).map(|n| format!("user_{n}")).collect(),
        };
        let mut sketch = Sketch::new();
        for element in elements {
            sketch.insert(element.as_bytes());
        }
        assert_eq!(to_hex(&encode(&sketch)), vector.blob_hex_after_adds);
        for hex in [vector.blob_hex_after_adds, vector.blob_hex_after_pfcount] {
            let decoded = decode(&from_hex(&hex)).unwrap();
            assert_eq!(decoded, sketch);
            assert_eq!(rounded(&decoded), vector.pfcount);
        }
    }
}

#[test]
fn a_crowd_of_any_size_has_the_registers_and_the_count_of_redis() {
    let sets = vectors().user_sets;
    let mut sketch = Sketch::new();
    let (mut done, mut ones, mut first_zero) = (0, 0, None);
    for set in sets.rows {
        for n in done + 1..=set.n {
            let user = format!("user_{n}");
            let raised = sketch.insert(user.as_bytes());
            ones += u32::from(raised);
            if !raised {
                first_zero.get_or_insert(user);
            }
        }
        done = set.n;
        assert_eq!(ones, set.pfadd_ones, "{done} users");
        assert_eq!(rounded(&sketch), set.pfcount, "{done} users");
        assert_eq!(sha256(sketch.ranks()), set.sha256_registers_16384_bytes, "{done} users");
        assert_eq!(sketch.hits().map(|hit| hit.rank).max(), Some(set.max_register));
        assert_eq!(sketch.ranks().len() - sketch.hits().count(), set.zero_registers);
        let blob = encode(&sketch);
        assert_eq!(encoding_of(&blob), set.encoding, "{done} users");
        assert_eq!(blob.len(), set.strlen, "{done} users");
        assert_eq!(sha256(&blob[wire::HEADER_BYTES..]), set.sha256_body_after_16_byte_header, "{done} users");
    }
    assert_eq!(first_zero, Some(sets.first_user_with_pfadd_0));
}

#[test]
fn whole_blobs_of_redis_are_read_and_written_back() {
    for vector in vectors().full_blobs_user_sets {
        let blob = from_base64(&vector.blob_b64);
        assert_eq!(encoding_of(&blob), vector.encoding);
        let sketch = decode(&blob).unwrap();
        assert_eq!(sketch, users(1, vector.n));
        assert_eq!(rounded(&sketch), vector.pfcount);
        let other = if blob[4] == 0 { encode_dense(&sketch) } else { encode_sparse(&sketch).unwrap() };
        assert_eq!(other, blob);
    }
}

#[test]
fn merging_gives_the_bytes_and_the_count_of_pfmerge() {
    for vector in vectors().merge_vectors {
        let [a, b] = [&vector.a, &vector.b].map(|range| {
            let (first, last) = range.split_once("..").unwrap();
            let number = |user: &str| user.strip_prefix("user_").unwrap().parse().unwrap();
            users(number(first), number(last))
        });
        assert_eq!(rounded(&a), vector.count_a);
        assert_eq!(rounded(&b), vector.count_b);
        let mut merged = decode(&encode(&a)).unwrap();
        wire::merge_into(&mut merged, &encode(&b)).unwrap();
        assert_eq!(rounded(&merged), vector.pfcount_union);
        // PFMERGE makes dense what has a dense source; the size decides otherwise.
        let expected = vector.pfmerge_into_missing_dest;
        let blob = if expected.encoding == "dense" { encode_dense(&merged) } else { encode(&merged) };
        assert_eq!((blob.len(), sha256(&blob)), (expected.strlen, expected.sha256_whole_blob));
    }
}

/// These rows split raw ids by XXH3 mod 16. Headcount splits elements by the top bits (`domain/ring.rs`): the rows
/// serve as vectors of sketches only, so the split is here and nowhere else.
#[test]
fn split_sketches_count_as_sixteen_keys_of_redis_do() {
    for row in vectors().sharded_xxh3_64_mod16.rows {
        let mut shards = vec![Sketch::new(); 16];
        let mut per_shard = vec![0; 16];
        for n in 1..=row.n {
            let user = format!("user_{n}");
            let shard = (XxHash3_64::oneshot(user.as_bytes()) % 16) as usize;
            shards[shard].insert(user.as_bytes());
            per_shard[shard] += 1;
        }
        assert_eq!(per_shard, row.true_per_shard);
        let counts: Vec<u64> = shards.iter().map(rounded).collect();
        assert_eq!(counts, row.pfcount_per_shard);
        assert_eq!(counts.iter().sum::<u64>(), row.sum);
        let mut union = Sketch::new();
        shards.iter().for_each(|shard| union.merge(shard));
        assert_eq!(rounded(&union), row.union_pfcount);
    }
}

/// The server accepts one of these by reading past the end, and answers another from a forged cache.
#[test]
fn corrupt_blobs_are_refused() {
    let sound = ["reserved_nonzero", "empty_ok", "non_canonical_two_zero_runs_ok"];
    let vectors = vectors().corrupt_blobs;
    assert_eq!(vectors.len(), 13);
    let marked = users(1, 10);
    for vector in vectors {
        let blob = from_hex(&vector.hex);
        let result = decode(&blob);
        assert_eq!(result.is_ok(), sound.contains(&vector.name.as_str()), "{}: {result:?}", vector.name);
        let mut sketch = marked.clone();
        let merged = wire::merge_into(&mut sketch, &blob);
        assert_eq!(merged.err(), result.err(), "{}", vector.name);
        assert_eq!(sketch, marked, "{}: a refused or empty blob changed registers", vector.name);
    }
}

#[test]
fn histograms_have_the_estimates_of_redis() {
    for vector in vectors().estimator_vectors_dense {
        let mut histogram = [0; 64];
        for (value, registers) in vector.histogram {
            histogram[value] = registers;
        }
        let estimate = estimate(&histogram);
        if vector.pfcount < 0 {
            assert_eq!(estimate, Err(Saturated), "{}", vector.name);
        } else {
            assert_eq!(estimate.map(|users| users.round() as i64), Ok(vector.pfcount), "{}", vector.name);
        }
    }
}

/// Where half of the registers are full, Ertl's tau decides. No server vector reaches it, so the figure was worked out
/// with 60 decimal digits from the paper's series.
#[test]
fn full_registers_count_as_the_paper_says() {
    let mut histogram = [0; 64];
    (histogram[51], histogram[47]) = (8_192, 8_192);
    let users = estimate(&histogram).unwrap();
    assert!((users / 3_206_443_172_373_383_448.0 - 1.0).abs() < 1e-12, "{users}");
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("data/hll_vectors.json")).unwrap()
}

fn users(first: u32, last: u32) -> Sketch {
    let mut sketch = Sketch::new();
    for n in first..=last {
        sketch.insert(format!("user_{n}").as_bytes());
    }
    sketch
}

fn rounded(sketch: &Sketch) -> u64 {
    sketch.estimate().unwrap().round() as u64
}

fn encoding_of(blob: &[u8]) -> &'static str {
    if blob[4] == 0 { "dense" } else { "sparse" }
}

fn number(hex: &str) -> u64 {
    u64::from_str_radix(hex.strip_prefix("0x").unwrap(), 16).unwrap()
}

fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for character in text.bytes().filter(|c| *c != b'=') {
        let digit = DIGITS.iter().position(|d| *d == character).unwrap() as u32;
        bits = bits << 6 | digit;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    bytes
}

/// SHA-256 as TLS has it at hand: one of its cipher suites brings it along.
fn sha256(bytes: &[u8]) -> String {
    let suite = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let tls13 = suite.tls13().expect("a TLS 1.3 suite");
    to_hex(tls13.common.hash_provider.hash(bytes).as_ref())
}
