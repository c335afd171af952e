//! Code that only tests use. [`fakes`] replaces the world, with faults on demand. [`conformance`] holds the
//! promises of each port as checks that a fake and the real thing must both pass. [`harness`] runs backfills
//! into a lake in memory. [`wait`] has the waits of tests.

pub mod conformance;
pub mod fakes;
pub mod harness;
pub mod wait;
