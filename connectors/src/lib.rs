//! The real things behind the ports: Avro, the archive of events, object stores, Delta tables, dead letters.

pub mod archive;
pub mod avro;
pub mod clock;
pub mod delta;
pub mod kafka;
pub mod messages;
pub mod registry;
mod secret;
pub mod store;

pub use secret::Secret;
