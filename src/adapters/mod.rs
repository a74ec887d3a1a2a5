//! Who answers the ports of `store`. Adapters never import each other.

pub mod embedded;
pub mod redis;
pub mod sql;
