//! What people do to topics, and what Kafka loses.

mod loss;
mod partitions;
