//! The ledger: what became of every unit, kept for people who settle accounts.
//!
//! Each pool writes its news into an *outbox* in the very step that made them. A drain takes them from there, in batches,
//! to a database. News are *entries*: one for each claim, confirmation, release, expiry, voiding and refund, each
//! written down exactly once. Of the entries of a claim the newest tells how it stands.
//!
//! Entries of one pool come in order and may come twice; those of different pools have no order. So a unit's next owner
//! may be written down before its last owner's release. It is the *turn* that tells them apart (docs/FAULTS.md A6).

pub mod entry;
pub mod settle;
