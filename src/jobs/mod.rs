//! Work without a caller.

pub mod contact;
pub mod push;
pub mod upkeep;
