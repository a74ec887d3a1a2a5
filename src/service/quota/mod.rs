//! Exact admission: one unit per user, every unit sold, none twice (docs/ARCHITECTURE.md, "A hard
//! claim"; the pools themselves: `domain/quota/`).
//!
//! ```text
//! claims.rs ── queue.rs ──▶ the pool of the user's shard              granted, already, …
//!     │                        │ dry
//!     │                        ▼
//!     │                    transfers.rs ──▶ another pool's stock      granted
//!     │                        │ none anywhere
//!     ▼                        ▼
//! sold_out.rs ◀────────── survey.rs: all pools, read twice            sold out, remembered for an interval
//!
//! operations.rs, plan.rs: filling, raising, lowering, closing; upkeep.rs: overdue holds, parcels that got stuck; audit.rs
//! ```
//!
//! What a process keeps of a campaign between calls is an `Offer`: pools, and for each the `wishes` that leave next and the
//! users `waiting` for stock; the last `reading`s, the `memory` of being sold out, the `claimants`.

pub mod audit;
pub mod claimants;
pub mod claims;
pub mod luckiest;
pub mod memory;
pub mod offer;
pub mod operations;
pub mod packets;
pub mod plan;
pub mod pools;
pub mod queue;
pub mod reading;
pub mod recent;
pub mod results;
pub mod sold_out;
pub mod survey;
pub mod transfers;
pub mod upkeep;
pub mod waiting;
pub mod wishes;
