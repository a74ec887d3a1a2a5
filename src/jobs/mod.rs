//! Work without a caller.

pub mod push;
