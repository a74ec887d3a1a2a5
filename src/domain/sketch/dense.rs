//! The dense body: 16,384 registers of 6 bits, lowest bit first.
//!
//! ```text
//!    byte 0     byte 1     byte 2         of every 3 bytes, highest bit on the left
//!  ┌──────────┬──────────┬──────────┐
//!  │ bbaaaaaa │ ccccbbbb │ ddddddcc │     a, b, c, d: registers 4i, 4i + 1, 4i + 2, 4i + 3
//!  └──────────┴──────────┴──────────┘
//! ```
//!
//! Eight registers (6 bytes) are handled as one 64-bit word: three rounds of mask and shift halve 48 bits into 24,
//! 12 and 6, each half moving to the low end of a lane twice as narrow. The compiler does two words at a time.

use super::registers::{RANK_MAX, REGISTERS, Sketch};

/// Bytes of the body: 16,384 registers of 6 bits.
pub const BODY_BYTES: usize = REGISTERS * 6 / 8;

/// A register that no element can have filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("register {index} holds {rank}, over the maximum of 51")]
pub struct RankTooHigh {
    pub index: u16,
    pub rank: u8,
}

/// Raises the registers of `sketch` to those of the body. An error leaves the sketch as it was.
pub fn merge_into(sketch: &mut Sketch, body: &[u8; BODY_BYTES]) -> Result<(), RankTooHigh> {
    let mut ranks = [0; REGISTERS];
    unpack(body, &mut ranks);
    let highest = ranks.iter().fold(0, |highest, rank| (*rank).max(highest));
    if highest > RANK_MAX {
        let index = ranks.iter().position(|rank| *rank > RANK_MAX).unwrap_or(0);
        return Err(RankTooHigh { index: index as u16, rank: ranks[index] });
    }
    sketch.raise_all(&ranks);
    Ok(())
}

/// Appends the body.
pub fn encode(sketch: &Sketch, out: &mut Vec<u8>) {
    let (groups, _) = sketch.ranks().as_chunks::<8>();
    for group in groups {
        let packed = pack_word(u64::from_le_bytes(*group));
        out.extend_from_slice(&packed.to_le_bytes()[..6]);
    }
}

fn unpack(body: &[u8; BODY_BYTES], ranks: &mut [u8; REGISTERS]) {
    let (packed, _) = body.as_chunks::<24>();
    let (unpacked, _) = ranks.as_chunks_mut::<32>();
    for (packed, unpacked) in packed.iter().zip(unpacked) {
        // Four words of 6 bytes. The first three loads take 2 bytes too many, which the masks drop; the last one
        // must not leave the group, so it starts 2 bytes early.
        let words = [word_at(packed, 0), word_at(packed, 6), word_at(packed, 12), word_at(packed, 16) >> 16];
        let (groups, _) = unpacked.as_chunks_mut::<8>();
        for (group, word) in groups.iter_mut().zip(words) {
            *group = unpack_word(word).to_le_bytes();
        }
    }
}

#[inline]
fn word_at(bytes: &[u8; 24], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Eight 6-bit registers in the low 48 bits to one byte each. The high 16 bits are ignored.
#[inline]
fn unpack_word(x: u64) -> u64 {
    let x = (x & 0x0000_0000_00ff_ffff) | (x & 0x0000_ffff_ff00_0000) << 8;
    let x = (x & 0x0000_0fff_0000_0fff) | (x & 0x00ff_f000_00ff_f000) << 4;
    (x & 0x003f_003f_003f_003f) | (x & 0x0fc0_0fc0_0fc0_0fc0) << 2
}

/// The reverse: eight bytes below 64 to 48 bits.
#[inline]
fn pack_word(x: u64) -> u64 {
    let x = (x & 0x003f_003f_003f_003f) | (x & 0x3f00_3f00_3f00_3f00) >> 2;
    let x = (x & 0x0000_0fff_0000_0fff) | (x & 0x0fff_0000_0fff_0000) >> 4;
    (x & 0x0000_0000_00ff_ffff) | (x & 0x00ff_ffff_0000_0000) >> 8
}
