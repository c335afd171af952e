//! A schema registry for tests, and producers that use one.

pub mod fake;
pub mod producer;
