//! Implementations of the worker's ports for real systems. `README.md` lists the crate that implements each
//! port, and what each port guarantees.
//!
//! Reading order:
//! - [`store`]: objects in a folder, S3, GCS or Azure; [`DeltaTables`]: the tables' logs in these stores;
//!   [`ParquetEncoder`]: the tables' files.
//! - [`avro`]: one record of any writer's schema; [`archive`]: files of such records; [`registry`] and
//!   [`messages`]: messages whose schema has a number or a fingerprint.
//! - [`kafka`]: the source of events, the producer, and the topic of dead letters.
//! - [`kubernetes`]: a cluster's objects, listed and watched, for the collector.
//! - [`SystemClock`]: the system's clock.

pub mod archive;
pub mod avro;
mod clock;
mod delta;
mod encoder;
pub mod kafka;
pub mod kubernetes;
pub mod messages;
pub mod registry;
mod secret;
pub mod store;
mod text;

pub use clock::SystemClock;
pub use delta::{DeltaTables, TableLook};
pub use encoder::ParquetEncoder;
pub use secret::Secret;
