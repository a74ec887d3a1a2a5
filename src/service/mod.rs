//! The use cases, one per file: what a caller can want, in the words of the domain.

pub mod admissions;
pub mod book;
pub mod claim;
pub mod crowd;
pub mod error;
pub mod identity;
pub mod ledger;
pub mod manage;
pub mod merge;
pub mod quota;
pub mod report;
pub mod sketches;
pub mod visit;
