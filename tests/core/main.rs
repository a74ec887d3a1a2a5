//! The heart of Headcount by itself: sketches and estimates, without store or network.

mod vectors;
