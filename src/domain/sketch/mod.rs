//! A sketch: how many different elements went by, in 12 KB, to the bit as Redis keeps it.
pub mod atomic;
pub mod dense;
pub mod estimate;
pub mod hash;
pub mod registers;
pub mod sparse;
pub mod wire;
