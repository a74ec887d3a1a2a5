//! The heart of Headcount by itself: sketches, estimates, and the parsers of requests, without store or network.

mod accuracy;
mod craft;
mod estimates;
mod fuzz;
mod mutation;
mod poison;
mod properties;
mod refusals;
mod requests;
mod users;
mod vectors;
