//! Exact admission: the units of a campaign, and what can happen to them in one of its shards.
//!
//! A *pool* is what one shard of a campaign keeps: its stock, its users' claims, and units on their way to other shards.
//! Every change of it is a *step*: a pure function of the pool, the time and its arguments, that either happens whole
//! or not at all. The embedded store runs these functions; on Redis each is a script of `lua/` that does the same to the
//! letter, which `tests/integration/contract/pools.rs` compares step by step.
//!
//! ```text
//!            restock                        claim                     confirm
//!   (new) ───────────▶ pool ────────────────────────▶ held ───────────────────▶ confirmed
//!     ▲                 ▲ │ debit      credit           │ release, expiry, void        │ void
//!     │ unretire        │ └───▶ out ─────▶ (another     ▼                              ▼
//!   retired ◀───────────┤ retire           pool)     cooling ◀─────────────────────────┘
//!                       └───────────────────────────────┘ turn + 1; two intervals later
//! ```
//!
//! From closing on, what would come back to the pool is *refunded* instead, and never returns.
//!
//! **The invariant**, over all pools of a campaign, at every instant: issued = Σ (avail + cooling + held + confirmed +
//! refunded + retired) + Σ units in `out` that are not yet credited.

pub mod claim;
pub mod claim_id;
pub mod grant;
pub mod holds;
pub mod inventory;
pub mod marks;
pub mod mend;
pub mod pool;
pub mod rebuild;
pub mod step;
pub mod stock;
pub mod take;
pub mod terms;
pub mod transfer;
pub mod unit;
