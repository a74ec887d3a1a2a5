//! The heart of Headcount by itself: sketches and estimates, without store or network.

mod accuracy;
mod craft;
mod estimates;
mod fuzz;
mod mutation;
mod poison;
mod properties;
mod refusals;
mod users;
mod vectors;
