//! Damage, losses, wrong clocks and failures of Kafka. No failure makes the tables wrong. A shard waits, or
//! stops and names a remedy that works, and the other shards and organizations continue.

mod absence;
mod clocks;
mod damaged;
mod isolation;
mod kafka;
mod lost;
mod remedies;
mod rig;
