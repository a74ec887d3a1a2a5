//! A sketch: how many different elements went by, in 12 KB, to the bit as Redis keeps it (a HyperLogLog).
//!
//! **Idea.** Hash every element. Among random 64-bit numbers one in 2 ends in 1, one in 4 in 10, one in 2^r in a 1
//! followed by r - 1 zeros: that r is the element's *rank*. Who has seen a rank of 20 has probably seen about 2^20
//! different numbers, and seeing one of them again changes nothing. One such guess is wild, so 14 bits of the hash
//! deal the elements out to 16,384 *registers*; each keeps the highest rank it has seen, and the estimator averages
//! them. Error: 1.04 / √16384 = 0.81 %, less below 100,000 users (`docs/ACCURACY.md`).
//!
//! Registers only grow, and merging two sketches takes the higher of each pair. So adding and merging may be
//! repeated, reordered and done in many places at once, and the result is that of having seen everything in one place.
//! All of Headcount's retries and restores lean on this.
//!
//! **Worked example.** The element `user_1` (in production it would be 8 bytes of a keyed hash) in an empty sketch:
//!
//! ```text
//!   Murmur of "user_1"  = 7ddc4fb6 a1b407db  = … 1011 01|00 00|00 0111 1101 1011     (hash.rs)
//!                                                      └ rank ┘└──── index ────┘
//!   low 14 bits                       index = 2011
//!   zeros above them, and one         rank  = 4 + 1 = 5:  register 2011 becomes 5     (registers.rs, atomic.rs)
//!
//!   sparse, 21 bytes:                                                                 (wire.rs, sparse.rs)
//!   48 59 4c 4c  01      00 00 00  00 00 00 00 00 00 00 80   47 da       90       78 23
//!   H  Y  L  L   sparse  unused    cached count: invalid     2011 zeros  one 5    14372 zeros
//!
//!   dense, 12,304 bytes: encoding 00, then 6 bits per register, lowest bit first;      (dense.rs)
//!   register 2011 begins at bit 6 × 2011 = 12066: byte 16 + 1508, bit 2 = 0x14
//!
//!   estimate: 1.00002, served as 1                                                    (estimate.rs)
//! ```
//!
//! **Trade-offs, measured.** Sparse is 284 bytes for 100 users, 1,050 for 500, 1,883 for 1,000; past 3,000 bytes
//! (some 1,700 users) or with a rank over 32 a sketch is dense, and stays so. In memory a register is a whole byte:
//! a third more, and merging becomes a maximum of bytes, 16 at a time: 16 dense sketches are decoded, merged and
//! estimated in about 30 µs (`docs/PERFORMANCE.md`).
//!
//! **Sources.** The algorithm: P. Flajolet, É. Fusy, O. Gandouet, F. Meunier, "HyperLogLog: the analysis of a
//! near-optimal cardinality estimation algorithm", 2007. 64-bit hashes: S. Heule, M. Nunkesser, A. Hall, "HyperLogLog
//! in practice", 2013. The estimator: O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", 2017.
//! The bytes: `src/hyperloglog.c` of Redis and Valkey; `tests/core/data/` holds what real servers wrote.

pub mod atomic;
pub mod dense;
pub mod estimate;
pub mod hash;
pub mod registers;
pub mod sparse;
pub mod wire;
