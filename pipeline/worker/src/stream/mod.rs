//! The stream worker: the same fold as a backfill's, fed by Kafka, one owner of each shard that its group
//! assigns.
//!
//! One task loops [`Worker::step`]: take what the source says, checkpoint the shards that are due, publish
//! them together, recompute a slice of dirty hours. All that is decided is decided by checkpoints; the next
//! owner takes up whatever a crash leaves half done.
//!
//! Read in this order: `worker` (the loop), `poll` and `intake` (messages into a shard), `shard` (what is
//! held of one, and what it comes to), `watermark`, `tasks` (publish and what else recurs), `assignments`
//! (shards come and go), `stopped` (shards that cannot go on), `memory` and `report`.

mod assignments;
mod intake;
mod memory;
mod observed;
mod poll;
mod report;
mod shard;
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

pub use watermark::WatermarkRule;
use worker::Slot;
pub use worker::Worker;

/// What a worker runs on, besides its source.
#[derive(Clone)]
pub struct StreamPorts {
    /// What every owner of shards runs on.
    pub shared: Ports,
    /// Messages into events.
    pub decoder: Arc<dyn MessageDecoder>,
    /// Where dead letters go besides the files, if anywhere.
    pub letters: Option<Arc<dyn DeadLetterTopic>>,
    /// Where the worker reports how it does.
    pub status: Arc<Status>,
}

/// A batch of messages that cannot be read, and that is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedBatch {
    /// Its topic.
    pub topic: Text,
    /// Its partition.
    pub partition: Shard,
    /// Its first offset.
    pub offset: i64,
    /// Its last offset.
    pub through: i64,
}

/// How a worker runs.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Random id of this process: letters and digits; every claim adds its own number.
    pub owner: Text,
    /// Shards of the root, where configured.
    pub shards: Option<Shard>,
    /// Format to raise the root to; see [`crate::root::Root::raise`]. 0: as it is.
    pub root_format: u32,
    /// Rules for hours that have none yet.
    pub rules: Rules,
    /// How the watermark is found.
    pub watermark: WatermarkRule,
    /// How far an event may lie in the future.
    pub max_clock_skew: Duration,
    /// How many hours before the wall clock a shard that has closed none may begin.
    pub max_history_hours: i64,
    /// Most time between two checkpoints of a shard with news.
    pub checkpoint_interval: Duration,
    /// Bytes of new events of a shard that make a checkpoint due.
    pub checkpoint_bytes: u64,
    /// Most time that closed hours with late events wait to be written again, while late events never end.
    pub max_restate_delay: Duration,
    /// Bytes of memory that the process should stay within.
    pub memory_limit: u64,
    /// Bytes of them that the source may hold.
    pub queue_bytes: u64,
    /// Bytes of memory that the process holds now; 0: not known.
    pub resident: fn() -> u64,
    /// Rows of `cost_allocation` in memory at a time, as far as hours can be divided.
    pub rows_in_flight: u64,
    /// How long the source may be silent before the last record read is compared once more.
    pub compare_after: Duration,
    /// Whether to go on from the earliest message where Kafka lost the next.
    pub go_on_without_lost: bool,
    /// The organizations that topics may bring.
    pub organizations: TopicOrganizations,
    /// Batches of messages to pass over where they cannot be read.
    pub skip_batches: Vec<SkippedBatch>,
    /// The consumer that has read for the root, where this worker's is to take its place:
    /// [`crate::source::ConsumerId`] as displayed. Empty: none.
    pub moved_from: String,
    /// Topics that were read before and are not read any more.
    pub retired_topics: Vec<Text>,
    /// Most time that a clean stop may take.
    pub drain_timeout: Duration,
}

impl WorkerOptions {
    /// Defaults for an owner.
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
