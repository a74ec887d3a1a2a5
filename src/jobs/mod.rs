//! Work without a caller.

pub mod contact;
pub mod drain;
pub mod push;
pub mod rounds;
pub mod testify;
pub mod upkeep;
