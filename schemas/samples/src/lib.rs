//! Sample events and rows for the tests of every crate that reads or writes them. Only tests, benchmarks and
//! examples depend on this crate.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

pub mod arbitrary;
pub mod bill;
pub mod dice;
pub mod hour;
pub mod layout;
pub mod trace;
pub mod typical;
