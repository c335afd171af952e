//! The stream worker on in-memory fakes.
//!
//! `basics` has runs without faults. `crash`, `zombie`, `reads` and `rebalance` put a fault at every effect
//! or step, and `sim` puts faults at random effects. `failures` is about damage, losses and wrong clocks, and
//! `growth` about months and years of operation.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod basics;
mod crash;
mod failures;
mod growth;
mod pace;
mod reads;
mod rebalance;
mod sim;
mod upgrades;
mod waits;
mod world;
mod zombie;

use prorata_testkit::harness;
