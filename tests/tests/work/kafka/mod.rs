//! Changes to topics by people, and losses of Kafka.

mod loss;
mod partitions;
