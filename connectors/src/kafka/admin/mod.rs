//! Questions to the brokers: how many partitions a topic has, where they begin and end, what it is set to.

mod metadata;
mod probe;
mod setting;

pub(super) use metadata::MetadataClient;
pub(super) use probe::Probe;
pub use setting::topic_setting;
