//! Every way in which bytes are not a sketch, each with the reason that is given for it.

use headcount::domain::sketch::dense::RankTooHigh;
use headcount::domain::sketch::hash::Hit;
use headcount::domain::sketch::registers::{REGISTERS, Sketch};
use headcount::domain::sketch::sparse::{BODY_BYTES_MAX, SparseError};
use headcount::domain::sketch::wire::{self, DecodeError, decode, encode, encode_dense};

#[test]
fn each_malformed_sketch_is_refused_with_its_reason() {
    let all_single_xzeros = [0x40, 0x00].repeat(REGISTERS);
    assert_eq!(all_single_xzeros.len(), BODY_BYTES_MAX);
    let cases = [
        ("nothing", vec![], DecodeError::TooShort { bytes: 0 }),
        ("half a header", b"HYLL\x01\0\0\0".to_vec(), DecodeError::TooShort { bytes: 8 }),
        ("another magic", [b"HYLK", &sparse(&[0x7f, 0xff])[4..]].concat(), DecodeError::Magic),
        ("encoding 2", with(sparse(&[0x7f, 0xff]), 4, 2), DecodeError::Encoding(2)),
        ("encoding 255", with(sparse(&[0x7f, 0xff]), 4, 255), DecodeError::Encoding(255)),
        ("dense, a byte short", dense()[..12_303].to_vec(), DecodeError::DenseLength { bytes: 12_303 }),
        ("dense, a byte long", [dense(), vec![0]].concat(), DecodeError::DenseLength { bytes: 12_305 }),
        ("dense, header only", dense()[..16].to_vec(), DecodeError::DenseLength { bytes: 16 }),
        ("dense, first 52", with(dense(), 16, 52), RankTooHigh { index: 0, rank: 52 }.into()),
        ("dense, last 63", with(dense(), 12_303, 0xfc), RankTooHigh { index: 16_383, rank: 63 }.into()),
        ("sparse, no runs", sparse(&[]), SparseError::Short { registers: 0 }.into()),
        ("sparse, one register short", sparse(&[0x7f, 0xfe]), SparseError::Short { registers: 16_383 }.into()),
        ("sparse, ZERO too many", sparse(&[0x7f, 0xff, 0x00]), SparseError::Overrun { at: 2 }.into()),
        ("sparse, VAL too many", sparse(&[0x7f, 0xff, 0x80]), SparseError::Overrun { at: 2 }.into()),
        ("sparse, VAL over the end", sparse(&[0x7f, 0xfe, 0x81]), SparseError::Overrun { at: 2 }.into()),
        ("sparse, XZERO over the end", sparse(&[0x80, 0x7f, 0xff]), SparseError::Overrun { at: 1 }.into()),
        ("sparse, half an XZERO", sparse(&[0x7f]), SparseError::Truncated.into()),
        (
            "sparse, half an XZERO where NUL fits",
            sparse(&[0x3f, 0x3f, 0x3f, 0x3e, 0x7f]),
            SparseError::Truncated.into(),
        ),
        ("sparse, over any whole body", sparse(&[0x00; 32_769]), SparseError::TooLong { bytes: 32_769 }.into()),
        // The size that made servers write outside their buffer (CVE-2025-32023).
        ("sparse, 262 KB", sparse(&[0x7f; 262_146]), SparseError::TooLong { bytes: 262_146 }.into()),
    ];
    for (name, blob, reason) in cases {
        assert_eq!(decode(&blob), Err(reason), "{name}");
        // Refused means refused whole: what came before the fault is not kept either.
        let mut sketch = Sketch::new();
        assert_eq!(wire::merge_into(&mut sketch, &blob), Err(reason), "{name}");
        assert!(sketch.is_empty(), "{name}");
    }
    assert_eq!(decode(&sparse(&all_single_xzeros)), Ok(Sketch::new()), "the longest whole body");
}

#[test]
fn what_redis_ignores_is_ignored() {
    let mut sketch = Sketch::new();
    sketch.raise(Hit { index: 9, rank: 3 });
    for mut blob in [encode(&sketch), encode_dense(&sketch)] {
        assert_eq!(blob[15], 0x80, "what we write says that its cached count is invalid");
        // Unused bytes, and a forged cached count that says it is valid.
        blob[5..16].copy_from_slice(&[1, 2, 3, 0x92, 0x79, 6, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&blob), Ok(sketch.clone()));
    }
}

fn sparse(body: &[u8]) -> Vec<u8> {
    [&encode(&Sketch::new())[..16], body].concat()
}

fn dense() -> Vec<u8> {
    encode_dense(&Sketch::new())
}

fn with(mut blob: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    blob[at] = byte;
    blob
}
