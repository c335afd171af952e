//! A member of a consumer group: [`KafkaSource`] is the worker's side of it, `group` the thread that owns the
//! consumer. Commands go from the first to the second; what was read goes the other way through `queue`, and
//! `tracks` remembers how far.

mod context;
mod group;
mod queue;
mod source;
mod tracks;

pub use source::KafkaSource;
