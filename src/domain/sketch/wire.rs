//! Sketches as the bytes of a Redis string: strict in, canonical out.
//!
//! ```text
//!  offset  0      4     5        8                    16
//!         ┌──────┬─────┬────────┬────────────────────┬────────────────────────┐
//!         │"HYLL"│ enc │ unused │ cached cardinality │ registers              │
//!         └──────┴─────┴────────┴────────────────────┴────────────────────────┘
//!            enc: 0 dense, 1 sparse                ▲ top bit of byte 15: "cache is invalid"
//! ```
//!
//! The cached cardinality of a foreign blob is never believed: a forged one is served by Redis as it is. What is
//! written here always says that the cache is invalid. The unused bytes are ignored, as Redis ignores them.

use super::dense::{self, RankTooHigh};
use super::registers::Sketch;
use super::sparse::{self, SparseError};

pub const HEADER_BYTES: usize = 16;
/// A dense sketch has this size, always.
pub const DENSE_BYTES: usize = HEADER_BYTES + dense::BODY_BYTES;
/// A sketch is written sparse up to this size: Redis's default `hll-sparse-max-bytes`. Past it Redis makes a key
/// dense at the next write anyway, and sparse keys are slower to write (1.9 µs against 0.3).
pub const SPARSE_BYTES_MAX: usize = 3_000;

const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const CACHE_INVALID: u8 = 0x80;

/// Why bytes are not a sketch. Malformed sketches have crashed servers, so nothing doubtful is passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("{bytes} bytes are too few for a sketch")]
    TooShort { bytes: usize },
    #[error("the bytes do not begin with HYLL")]
    Magic,
    #[error("encoding {0} is neither dense (0) nor sparse (1)")]
    Encoding(u8),
    #[error("a dense sketch has 12304 bytes, not {bytes}")]
    DenseLength { bytes: usize },
    #[error("dense: {0}")]
    Dense(#[from] RankTooHigh),
    #[error("sparse: {0}")]
    Sparse(#[from] SparseError),
}

/// Reads a sketch.
pub fn decode(blob: &[u8]) -> Result<Sketch, DecodeError> {
    let mut sketch = Sketch::new();
    merge_into(&mut sketch, blob)?;
    Ok(sketch)
}

/// Raises the registers of `sketch` to those of a blob. An error leaves the sketch as it was.
pub fn merge_into(sketch: &mut Sketch, blob: &[u8]) -> Result<(), DecodeError> {
    let Some((header, body)) = blob.split_first_chunk::<HEADER_BYTES>() else {
        return Err(DecodeError::TooShort { bytes: blob.len() });
    };
    if !header.starts_with(MAGIC) {
        return Err(DecodeError::Magic);
    }
    match header[4] {
        DENSE => {
            let body = body.try_into().map_err(|_| DecodeError::DenseLength { bytes: blob.len() })?;
            Ok(dense::merge_into(sketch, body)?)
        }
        SPARSE => Ok(sparse::merge_into(sketch, body)?),
        other => Err(DecodeError::Encoding(other)),
    }
}

/// Writes a sketch: sparse while that takes at most 3,000 bytes and no rank is over 32, else dense.
pub fn encode(sketch: &Sketch) -> Vec<u8> {
    encode_sparse(sketch).filter(|blob| blob.len() <= SPARSE_BYTES_MAX).unwrap_or_else(|| encode_dense(sketch))
}

/// Writes 12,304 bytes.
pub fn encode_dense(sketch: &Sketch) -> Vec<u8> {
    let mut blob = Vec::with_capacity(DENSE_BYTES);
    blob.extend_from_slice(&header(DENSE));
    dense::encode(sketch, &mut blob);
    blob
}

/// Writes a sparse sketch of whatever size; None if a rank over 32 makes that impossible.
pub fn encode_sparse(sketch: &Sketch) -> Option<Vec<u8>> {
    let mut blob = header(SPARSE).to_vec();
    sparse::encode(sketch, &mut blob).then_some(blob)
}

fn header(encoding: u8) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(MAGIC);
    header[4] = encoding;
    header[15] = CACHE_INVALID;
    header
}
