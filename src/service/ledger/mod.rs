//! The ledger's use cases: campaigns are entered, news drained, stores and ledger compared, lost pools rebuilt, users'
//! names forgotten (docs/LEDGER.md; what entries are: `domain/ledger/`).

pub mod compare;
pub mod drain;
pub mod entering;
pub mod erase;
pub mod lost;
pub mod mending;
pub mod reconcile;
pub mod testify;
