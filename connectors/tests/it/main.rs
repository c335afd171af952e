//! Tests of the connectors with the systems that they connect to: Avro bytes, folders, Delta logs, simulated
//! registries and brokers. All tests are one program, because each program would link everything again.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod avro;
mod close;
mod contract;
mod delta;
mod kafka_mock;
mod kubernetes;
mod registry;
mod store;
