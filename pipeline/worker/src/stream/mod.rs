//! The stream worker: the same fold as a backfill's, fed by Kafka, one owner of each shard that its group
//! assigns.
//!
//! One task loops [`Worker::step`]: take the events of the source, checkpoint the due shards, publish them
//! together, recompute a slice of dirty hours. Checkpoints alone decide; the next owner completes whatever a
//! crash leaves half done.
//!
//! Read in this order: `worker` (the loop), `poll` and `intake` (messages into a shard), `shard` (the state
//! of one shard and its results), `shard_table` (the states of all shards), `watermark`, `tasks` (publishing and other recurring tasks), `assignments`
//! (shards that come and go), `stopped` (shards that cannot continue), `memory` and `report`.

mod assignments;
mod intake;
mod memory;
mod observed;
mod poll;
mod report;
mod shard;
mod shard_table;
mod stopped;
mod tasks;
mod watermark;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use prorata_schemas::Text;
use prorata_schemas::rules::Rules;

use crate::names::Shard;
use crate::ports::Ports;
use crate::root::organizations::TopicOrganizations;
use crate::source::{DeadLetterTopic, MessageDecoder};
use crate::status::Status;

use shard_table::Slot;
pub use watermark::WatermarkRule;
pub use worker::Worker;

/// The ports of a worker, besides its source.
#[derive(Clone)]
pub struct StreamPorts {
    /// The ports of every owner of shards.
    pub shared: Ports,
    /// Decodes messages into events.
    pub decoder: Arc<dyn MessageDecoder>,
    /// The topic that gets dead letters besides the files, if any.
    pub letters: Option<Arc<dyn DeadLetterTopic>>,
    /// The status to which the worker reports.
    pub status: Arc<Status>,
}

/// A batch of messages that cannot be read and is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedBatch {
    /// The batch's topic.
    pub topic: Text,
    /// The batch's partition.
    pub partition: Shard,
    /// The batch's first offset.
    pub offset: i64,
    /// The batch's last offset.
    pub through: i64,
}

/// The options of a worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Random id of this process, of letters and digits; every claim adds its own number.
    pub owner: Text,
    /// Shards of the root, if configured.
    pub shards: Option<Shard>,
    /// Format to raise the root to; see [`crate::root::Root::raise`]. 0 leaves the format as it is.
    pub root_format: u32,
    /// Rules for hours that have none yet.
    pub rules: Rules,
    /// The parameters of the watermark.
    pub watermark: WatermarkRule,
    /// The furthest that an event may lie in the future.
    pub max_clock_skew: Duration,
    /// The most hours before the wall clock at which a shard that has closed no hour may begin.
    pub max_history_hours: i64,
    /// Most time between two checkpoints of a shard with new input.
    pub checkpoint_interval: Duration,
    /// Bytes of new events of a shard that make a checkpoint due.
    pub checkpoint_bytes: u64,
    /// Most time that closed hours with late events wait to be written again, while late events keep coming.
    pub max_restate_delay: Duration,
    /// Bytes of memory that the process should stay within.
    pub memory_limit: u64,
    /// The part of `memory_limit` that the source may hold, in bytes.
    pub queue_bytes: u64,
    /// Bytes of memory that the process holds now; 0 if not known.
    pub resident: fn() -> u64,
    /// Rows of `cost_allocation` in memory at a time, as far as hours can be divided.
    pub rows_in_flight: u64,
    /// The silence of the source after which the last record read is compared again.
    pub compare_after: Duration,
    /// Whether to continue from the earliest message if Kafka lost the next one.
    pub go_on_without_lost: bool,
    /// The organizations that topics may bring.
    pub organizations: TopicOrganizations,
    /// Batches of messages to skip if they cannot be read.
    pub skip_batches: Vec<SkippedBatch>,
    /// The consumer that has read for the root, if this worker's consumer is to replace it:
    /// [`crate::source::ConsumerId`] as displayed. Empty if there is none.
    pub moved_from: String,
    /// Topics that were read before and are no longer read.
    pub retired_topics: Vec<Text>,
    /// Most time that a clean stop may take.
    pub drain_timeout: Duration,
}

impl WorkerOptions {
    /// Creates the default options of an owner.
    pub fn new(owner: Text) -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        let watermark = WatermarkRule {
            out_of_orderness: minutes(5),
            idle_timeout: minutes(5),
            max_watermark_hold: minutes(60),
        };
        Self {
            owner,
            shards: None,
            root_format: 0,
            rules: Rules::default(),
            watermark,
            max_clock_skew: Duration::from_secs(600),
            max_history_hours: 8_784,
            checkpoint_interval: Duration::from_secs(60),
            checkpoint_bytes: 64 << 20,
            max_restate_delay: minutes(6 * 60),
            memory_limit: 1 << 30,
            queue_bytes: 64 << 20,
            resident: || 0,
            rows_in_flight: 100_000,
            compare_after: Duration::from_secs(15),
            go_on_without_lost: false,
            organizations: TopicOrganizations::default(),
            skip_batches: Vec::new(),
            moved_from: String::new(),
            retired_topics: Vec::new(),
            drain_timeout: Duration::from_secs(30),
        }
    }
}
