//! What the tests of connectors, of the program and of the whole share: running programs, reading lakes,
//! topics on any brokers, a registry that misbehaves on demand. What needs no connectors is in the test kit,
//! `pipeline/testkit`. The tests of the whole lie in `tests/`; `README.md` says where the test of what is.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

pub mod fuzz;
pub mod kafka;
pub mod lake;
pub mod program;
pub mod proxy;
pub mod registry;
