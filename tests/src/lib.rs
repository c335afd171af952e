//! Shared parts of the tests of the connectors, the program and the whole system. They run programs, read
//! lakes, use topics on any brokers, and serve a registry that misbehaves on demand. Parts that need no
//! connectors are in the test kit, `pipeline/testkit`. The tests of the whole system are in `tests/`;
//! `README.md` lists the tests of each subject.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

pub mod clocked;
pub mod fuzz;
pub mod kafka;
pub mod lake;
pub mod program;
pub mod proxy;
pub mod registry;
