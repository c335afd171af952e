//! The worker: each shard has one owner, each checkpoint is one decision, and the tables follow the
//! checkpoints.
//!
//! Tables depend only on the set of events in the archive and on the rules listed for each hour. They do not
//! depend on the order or time of arrival, on crashes or restarts, or on who ran which command.
//!
//! Read in this order:
//! 1. [`ports`] and [`source`]: the worker's interfaces to the outside; [`WorkerError`]: what stops it;
//!    [`backoff`]: what it retries.
//! 2. [`names`] and [`root`]: the objects under a root, and their names.
//!    [`root::organizations`]: who may bring whose events.
//! 3. [`checkpoint`]: what a shard's owner decides, and how the tables follow.
//! 4. `shard`: read, fold and emit hours; the core of both shells.
//! 5. The shells: [`stream`] (fed by Kafka) and [`backfill`] (fed by files); [`dead_letters`] replays through
//!    either.
//! 6. [`status`]: what a worker reports.

pub mod backfill;
pub mod backoff;
pub mod checkpoint;
pub mod dead_letters;
mod error;
pub mod names;
mod objects;
pub mod ports;
pub mod root;
mod shard;
pub mod status;
pub mod stream;

pub use error::{StopReason, WorkerError};
pub use ports::{Ports, source};
pub use shard::{Body, archive::ArchiveIndex, reading::order::in_archive_order, rules::RuleBook};
