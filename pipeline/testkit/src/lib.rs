//! Code that only tests use. [`fakes`] replaces the outside world, with faults on demand. [`conformance`] has
//! the promises of each port as checks that both the fake and the real implementation must pass. [`harness`]
//! runs backfills into a lake in memory. [`wait`] has the waits of tests.

pub mod conformance;
pub mod fakes;
pub mod harness;
pub mod wait;
