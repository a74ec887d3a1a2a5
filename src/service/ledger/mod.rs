//! The ledger's use cases: campaigns are entered, news drained, stores and ledger compared, lost pools rebuilt, users'
//! names forgotten (docs/LEDGER.md; what entries are: `domain/ledger/`).

pub mod drain;
pub mod entering;
