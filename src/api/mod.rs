//! HTTP in and out.
//!
//! ```text
//! server ─ admission ─ router (all routes on one page) ─ routes (metrics, token) ─ public/, admin/, ops
//!                                                                  request ─▶ service ─▶ response
//! ```
//!
//! A handler parses, calls one service function and renders. `error` is the only map from a service's error to an
//! answer, and every error leaves as `application/problem+json`. `docs/API.md` is the page for callers.

pub mod admission;
pub mod body;
pub mod cors;
pub mod error;
pub mod id;
pub mod json;
pub mod listeners;
pub mod openapi;
pub mod ops;
pub mod problem;
pub mod query;
pub mod readiness;
pub mod request;
pub mod response;
pub mod router;
pub mod routes;
pub mod server;
pub mod state;

pub mod admin;
pub mod public;
