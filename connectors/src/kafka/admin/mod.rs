//! Requests to the brokers about topics: the number of partitions, their first and end offsets, and settings.

mod metadata;
mod probe;
mod setting;

pub(super) use metadata::MetadataClient;
pub(super) use probe::Probe;
pub use setting::topic_setting;
