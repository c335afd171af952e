//! A fake of Kafka: topics, a consumer group, and a source for each member of the group.

mod broker;
mod group;
mod reader;
mod source;

pub use broker::{Ends, FakeBroker, Record};
pub use source::FakeSource;
