//! A schema registry for tests, and producers that use a registry.

pub mod fake;
pub mod producer;
