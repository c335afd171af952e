//! The connectors next to what they connect to: Avro bytes, folders, Delta logs, played registries and
//! brokers. One program, as each would link everything again.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod avro;
mod contract;
mod delta;
mod kafka_mock;
mod kubernetes;
mod registry;
mod store;
