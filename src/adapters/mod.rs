//! Who answers the ports of `store/`. Adapters know the ports and never each other.

pub mod embedded;
pub mod redis;
