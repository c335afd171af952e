//! Kafka: topics, a consumer group, and each member's view of them.

mod broker;
mod group;
mod reader;
mod source;

pub use broker::{Ends, FakeBroker, Record};
pub use source::FakeSource;
