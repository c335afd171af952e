//! The stream worker on in-memory fakes.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod basics;
mod crash;
#[path = "../backfill/harness.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod harness;
mod lost;
mod pace;
mod reads;
mod rebalance;
mod sim;
mod waits;
mod world;
mod zombie;
