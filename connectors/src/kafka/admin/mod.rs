//! Questions to the brokers: how many partitions a topic has, where they begin and end.

mod metadata;
mod probe;

pub(super) use metadata::MetadataClient;
pub(super) use probe::Probe;
