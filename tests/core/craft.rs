//! User ids made to hurt a sketch that hashes them with Redis's public function.
//!
//! On 8 bytes that function is a bijection: every step of it can be taken back. So for any register and any rank
//! there are ids, and it takes microseconds to find one that is also plain text. Nothing here uses the code under
//! test; `poison.rs` checks that the two agree.

use twox_hash::XxHash3_64;

const SEED: u64 = 0xadc8_3b19;
const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
/// The multiplier's inverse modulo 2^64.
const INVERSE: u64 = 0x5f7a_0ea7_e59b_19bd;
const _: () = assert!(MULTIPLIER.wrapping_mul(INVERSE) == 1);

/// The 8 bytes whose Redis hash is `hash`.
pub fn bytes_with_hash(hash: u64) -> [u8; 8] {
    // x ^ (x >> 47) undoes itself, because 2 × 47 exceeds 64.
    let mixed = (hash ^ (hash >> 47)).wrapping_mul(INVERSE);
    let word = (mixed ^ (mixed >> 47)).wrapping_mul(INVERSE) ^ SEED ^ 8u64.wrapping_mul(MULTIPLIER);
    let word = word.wrapping_mul(INVERSE);
    (word ^ (word >> 47)).wrapping_mul(INVERSE).to_le_bytes()
}

/// A text of 8 visible ASCII characters that raises register `index` as high as a text can (to about 35), and
/// whose raw bytes belong to shard 0 of 16.
pub fn text_in_first_shard(index: u16) -> String {
    for rank in (1..=50u32).rev() {
        for above in 0..1u64 << (50 - rank) {
            let hash = u64::from(index) | (above << rank | 1 << (rank - 1)) << 14;
            let bytes = bytes_with_hash(hash);
            let visible = bytes.iter().all(|b| b.is_ascii_graphic() && *b != b'"' && *b != b'\\');
            if visible && XxHash3_64::oneshot(&bytes) >> 60 == 0 {
                return bytes.iter().map(|b| char::from(*b)).collect();
            }
        }
    }
    unreachable!("one of 60,000 hashes is such a text, and rank 1 alone leaves 2^49 to try")
}

/// One such text for each of the 16,384 registers.
pub fn texts_in_first_shard() -> Vec<String> {
    let half = |first: u16| (first..first + 8_192).map(text_in_first_shard).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let upper = scope.spawn(move || half(8_192));
        let mut texts = half(0);
        texts.extend(upper.join().expect("the search does not panic"));
        texts
    })
}
