//! A member of a consumer group. [`KafkaSource`] is the worker's handle, and `group` is the thread that owns
//! the consumer. The handle sends commands to the thread. Messages return through `queue`, and `tracks`
//! records how far each partition is read.

mod context;
mod group;
mod queue;
mod source;
mod tracks;

pub use source::KafkaSource;
