//! Pure meaning: no I/O, no clock, no async. Time and randomness are arguments.

pub mod campaign;
pub mod counter;
pub mod element;
pub mod estimate;
pub mod id;
pub mod ledger;
pub mod packets;
pub mod period;
pub mod quota;
pub mod ring;
pub mod sketch;
