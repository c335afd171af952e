//! A member of a consumer group. [`KafkaSource`] is the worker's side of it, and `group` is the thread that
//! owns the consumer. Commands go from the first to the second. Messages go the other way through `queue`,
//! and `tracks` remembers how far each partition is read.

mod context;
mod group;
mod queue;
mod source;
mod tracks;

pub use source::KafkaSource;
