//! The heart of Headcount by itself: sketches, estimates, and the parsers of requests, without store or network.

mod accuracy;
mod craft;
mod estimates;
mod fuzz;
mod mutation;
mod packets;
mod poison;
mod properties;
mod rebuild;
mod refusals;
mod requests;
mod users;
mod vectors;
