//! Changes to topics by people, and losses of Kafka.

mod budgets;
mod loss;
mod partitions;
