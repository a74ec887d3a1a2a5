//! A sketch in memory: one byte per register, so that merging is a plain maximum of bytes.
//!
//! Packed to 6 bits it would be 12 KB instead of 16; sketches in memory live for one merge, so speed is bought with
//! the difference. What stays in memory for long is kept in pages (`atomic.rs`).

use std::fmt;

use super::hash::{self, Hit, INDEX_BITS};

/// Registers of a sketch. Redis's format allows no other number.
pub const REGISTERS: usize = 16_384;
/// The highest rank that an element can have: 50 zeros above the index, and one.
pub const RANK_MAX: u8 = 51;

const _: () = assert!(REGISTERS == 1 << INDEX_BITS);
const _: () = assert!(RANK_MAX as u32 == 64 - INDEX_BITS + 1);

/// A HyperLogLog. Registers only grow, so raising and merging may be repeated and reordered at will.
#[derive(Clone, PartialEq, Eq)]
pub struct Sketch {
    registers: Box<[u8; REGISTERS]>,
}

impl Sketch {
    /// The sketch of nobody.
    pub fn new() -> Self {
        Self { registers: Box::new([0; REGISTERS]) }
    }

    /// Raises one register; true if it grew. False does not mean that the element was seen before: of 1,000,000
    /// different elements 94 % raise nothing in one sketch (`docs/ACCURACY.md`).
    #[inline]
    pub fn raise(&mut self, hit: Hit) -> bool {
        let register = &mut self.registers[usize::from(hit.index)];
        let grew = hit.rank > *register;
        if grew {
            *register = hit.rank;
        }
        grew
    }

    /// Adds an element; true if a register grew.
    pub fn insert(&mut self, element: &[u8]) -> bool {
        self.raise(hash::hit(element))
    }

    /// Becomes the sketch of everybody in either.
    pub fn merge(&mut self, other: &Sketch) {
        self.raise_all(&other.registers);
    }

    pub fn get(&self, index: u16) -> u8 {
        self.registers[usize::from(index)]
    }

    pub fn is_empty(&self) -> bool {
        self.registers.iter().all(|rank| *rank == 0)
    }

    /// The registers that are not zero, by index. Raising them in an empty sketch gives this one.
    pub fn hits(&self) -> impl Iterator<Item = Hit> + '_ {
        let hits = self.registers.iter().enumerate().filter(|(_, rank)| **rank > 0);
        hits.map(|(index, rank)| Hit { index: index as u16, rank: *rank })
    }

    /// Only the registers in which this sketch is ahead of another: what must be merged into the other so that it
    /// covers this one.
    pub fn ahead_of(&self, other: &Sketch) -> Sketch {
        let mut ahead = Sketch::new();
        for ((out, mine), theirs) in ahead.registers.iter_mut().zip(self.ranks()).zip(other.ranks()) {
            *out = if mine > theirs { *mine } else { 0 };
        }
        ahead
    }

    /// All registers by index, one byte each.
    pub fn ranks(&self) -> &[u8; REGISTERS] {
        &self.registers
    }

    /// Raises every register to the given rank. Ranks over 51 are the caller's fault: no element has them.
    pub(super) fn raise_all(&mut self, ranks: &[u8; REGISTERS]) {
        for (register, rank) in self.registers.iter_mut().zip(ranks) {
            *register = (*register).max(*rank);
        }
    }

    /// Raises `count` registers from `first` on to `rank`.
    pub(super) fn raise_run(&mut self, first: usize, count: usize, rank: u8) {
        for register in &mut self.registers[first..first + count] {
            *register = (*register).max(rank);
        }
    }
}

impl Default for Sketch {
    fn default() -> Self {
        Self::new()
    }
}

/// 16,384 numbers help nobody who reads a failed assertion.
impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sketch({} registers raised)", self.hits().count())
    }
}
