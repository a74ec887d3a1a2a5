//! Headcount: how many different people came, and how many places are left.
//!
//! Modules in reading order, each a layer above the ones before it; `docs/ARCHITECTURE.md` is the map.

pub mod adapters;
pub mod api;
pub mod app;
pub mod ask;
pub mod audit_command;
pub mod cli;
pub mod config;
pub mod domain;
pub mod exact;
pub mod jobs;
pub mod local;
pub mod reconcile_command;
pub mod runtime;
pub mod service;
pub mod store;
