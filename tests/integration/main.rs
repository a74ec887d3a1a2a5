//! Everything that is tested against real processes: stores, servers, the gateway's own binary.
//!
//! `harness` starts them on free loopback ports and cleans up, also after a panic or a kill. Each other module is about
//! one promise; a test reads as a sentence.

#![allow(clippy::disallowed_methods, reason = "a test reads the clock and starts callers of its own")]

mod accuracy;
mod agreement;
mod audit;
mod bad_input;
mod calls;
mod contract;
mod cross_slot;
mod durability;
mod economy;
mod endings;
mod faults;
mod gate;
mod gate_proxies;
mod hard;
mod hard_answers;
mod hard_claims;
mod hard_faults;
mod hard_proofs;
mod harness;
mod http;
mod layouts;
mod ledger;
mod ledger_drain;
mod ledger_losses;
mod packets;
mod packets_closing;
mod packets_lists;
mod poison;
mod real_log;
mod redis_adapter;
mod soft;
