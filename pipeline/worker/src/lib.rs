//! What runs on the ports: one owner per shard, one decision per checkpoint, tables made equal to it.
//!
//! Tables depend only on the set of events in the archive and on the rules listed for each hour: not on order, time of
//! arrival, crashes, restarts, or who ran what.

pub mod archive_index;
pub mod backfill;
pub mod backoff;
pub mod bases;
pub mod checkpoint;
pub mod claim;
pub mod dead_letters;
pub mod error;
pub mod fold;
pub mod hour_files;
pub mod log;
pub mod names;
pub mod objects;
pub mod ports;
pub mod publish;
pub mod retention;
pub mod root;
pub mod rules;
pub mod sealed;
pub mod shard;
pub mod snapshot;
pub mod status;
pub mod stream;

pub use ports::source;
pub use shard::Ports;
