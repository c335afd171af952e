//! The stream worker on in-memory fakes.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod basics;
mod crash;
mod pace;
mod reads;
mod rebalance;
mod review;
mod review_growth;
mod sim;
mod upgrades;
mod waits;
mod world;
mod zombie;

use prorata_testkit::harness;
