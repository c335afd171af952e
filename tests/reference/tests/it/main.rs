//! Comparison of the engine with the reference model.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod bills;
mod bounds;
mod common;
mod currency;
mod extremes;
mod laws;
mod measure;
mod reach;
mod rules;
mod shrink;
