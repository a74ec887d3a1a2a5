//! The sparse body: runs of equal registers, from register 0 to register 16,383.
//!
//! ```text
//!  name   bytes                 meaning
//!  ZERO   00llllll              l + 1 registers of 0        (1 to 64)
//!  XZERO  01hhhhhh llllllll     (h, l) + 1 registers of 0   (1 to 16,384)
//!  VAL    1vvvvvll              l + 1 registers of v + 1    (1 to 4 of 1 to 32)
//! ```
//!
//! A body is whole if its runs end exactly at register 16,384. Servers that trusted the sum were written outside
//! their buffers (CVE-2025-32023), so the walk here stops at the run that goes past the end, and a two-byte opcode
//! cut in half is refused although Redis reads the string's hidden final NUL as its second byte.

use super::registers::{REGISTERS, Sketch};

/// The longest body that can be whole: a two-byte XZERO for each single register. Longer ones are not walked.
pub const BODY_BYTES_MAX: usize = 2 * REGISTERS;
/// The highest rank that VAL can hold; one register above it makes the whole sketch dense.
pub const RANK_MAX_SPARSE: u8 = 32;

const ZERO_RUN_MAX: usize = 64;
const VAL_RUN_MAX: usize = 4;

/// Why a sparse body is not a sketch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SparseError {
    #[error("{bytes} bytes of runs, over the {BODY_BYTES_MAX} that can cover 16384 registers")]
    TooLong { bytes: usize },
    #[error("the last run is cut in half")]
    Truncated,
    #[error("the runs go past register 16383, at byte {at} of the body")]
    Overrun { at: usize },
    #[error("the runs cover {registers} registers of 16384")]
    Short { registers: usize },
}

/// Raises the registers of `sketch` to those of the body. An error leaves the sketch as it was: the body is walked
/// to its end before the first register is raised.
pub fn merge_into(sketch: &mut Sketch, body: &[u8]) -> Result<(), SparseError> {
    walk(body, |_, _, _| ())?;
    walk(body, |first, count, rank| sketch.raise_run(first, count, rank))
}

/// Appends the canonical body: maximal runs, runs of a value cut in fours from the left. Redis writes the same
/// bytes when it merges into a missing key. False, and nothing useful appended, if a rank is over 32.
pub fn encode(sketch: &Sketch, out: &mut Vec<u8>) -> bool {
    for run in sketch.ranks().chunk_by(|a, b| a == b) {
        let rank = run[0];
        if rank > RANK_MAX_SPARSE {
            return false;
        }
        if rank == 0 {
            push_zeros(run.len(), out);
        } else {
            for part in run.chunks(VAL_RUN_MAX) {
                out.push(0x80 | (rank - 1) << 2 | (part.len() - 1) as u8);
            }
        }
    }
    true
}

fn push_zeros(count: usize, out: &mut Vec<u8>) {
    let length = count - 1;
    if count <= ZERO_RUN_MAX {
        out.push(length as u8);
    } else {
        out.extend_from_slice(&[0x40 | (length >> 8) as u8, length as u8]);
    }
}

/// Calls `raise(first register, registers, rank)` for each run of values.
fn walk(body: &[u8], mut raise: impl FnMut(usize, usize, u8)) -> Result<(), SparseError> {
    if body.len() > BODY_BYTES_MAX {
        return Err(SparseError::TooLong { bytes: body.len() });
    }
    let mut next = 0;
    let mut at = 0;
    while let Some(&opcode) = body.get(at) {
        let (bytes, count, rank) = if opcode & 0x80 != 0 {
            (1, usize::from(opcode & 3) + 1, (opcode >> 2 & 31) + 1)
        } else if opcode & 0x40 != 0 {
            let low = *body.get(at + 1).ok_or(SparseError::Truncated)?;
            (2, (usize::from(opcode & 0x3f) << 8 | usize::from(low)) + 1, 0)
        } else {
            (1, usize::from(opcode) + 1, 0)
        };
        if next + count > REGISTERS {
            return Err(SparseError::Overrun { at });
        }
        if rank > 0 {
            raise(next, count, rank);
        }
        next += count;
        at += bytes;
    }
    if next < REGISTERS { Err(SparseError::Short { registers: next }) } else { Ok(()) }
}
