//! The use cases, one per file: what a caller can want, in the words of the domain.

pub mod claim;
pub mod error;
pub mod manage;
pub mod report;
pub mod visit;
