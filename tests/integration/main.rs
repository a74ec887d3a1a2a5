//! Everything that is tested against real processes: stores, servers, the gateway's own binary.
//!
//! `harness` starts them on free loopback ports and cleans up, also after a panic or a kill. Each other module is about
//! one promise; a test reads as a sentence.

// mod accuracy;
mod contract;
mod durability;
mod economy;
mod harness;
mod real_log;
mod redis_adapter;
mod redis_faults;
mod soft;
