//! The stream worker: the same fold as in a backfill, fed by Kafka. It owns each shard that its group
//! assigns.
//!
//! One task repeats [`Worker::step`], which takes the events of the source, checkpoints the due shards and
//! publishes them together. A checkpoint also recomputes a slice of dirty hours. Checkpoints alone decide;
//! the next owner completes whatever a crash leaves half done.
//!
//! Read in this order: `worker` (the loop), `worker/poll` and `intake` (messages into a shard), `shard` (the
//! state of one shard and its results), `shard_table` (the states of all shards), `watermark`, `worker/tasks`
//! (publishing and other recurring tasks), `worker/assignments` (shards that come and go), `worker/stopped`
//! (shards that cannot continue), `worker/memory` and `worker/report`.

mod backlog;
mod intake;
mod observed;
mod shard;
mod shard_table;
mod stopped;
mod watermark;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use prorata_schemas::Text;
use prorata_schemas::rules::Rules;
use serde::{Deserialize, Serialize};

use crate::checkpoint::retention::Retention;
use crate::names::Shard;
use crate::ports::{BudgetTopic, Ports, duration};
use crate::root::organizations::TopicOrganizations;
use crate::source::{DeadLetterTopic, MessageDecoder};
use crate::status::Status;

pub use watermark::WatermarkRule;
pub use worker::Worker;

/// The ports of a worker, besides its source.
#[derive(Clone)]
pub struct StreamPorts {
    /// The ports of every owner of shards.
    pub shared: Ports,
    /// Decodes messages into events.
    pub decoder: Arc<dyn MessageDecoder>,
    /// The topic that gets dead letters in addition to the files, if any.
    pub dead_letters: Option<Arc<dyn DeadLetterTopic>>,
    /// The topic that gets messages about exceeded budgets, if any.
    pub budgets: Option<Arc<dyn BudgetTopic>>,
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

/// The options of a worker. The serialized options are the section `work` of the configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerOptions {
    /// Random id of this process, of letters and digits; every claim adds its own number.
    #[serde(skip)]
    pub owner: Text,
    /// Number of shards of the root, if configured.
    #[serde(skip)]
    pub shards: Option<Shard>,
    /// Format to raise the root to; see [`crate::root::Root::raise`]. 0 leaves the format as it is.
    #[serde(skip)]
    pub root_format: u32,
    /// The time that hours stay in checkpoints.
    #[serde(skip)]
    pub retention: Retention,
    /// Rules for hours that have none yet.
    #[serde(skip)]
    pub rules: Rules,
    /// Maximum time by which events of one topic partition may be out of order without being late.
    #[serde(with = "duration")]
    pub out_of_orderness: Duration,
    /// The time without newer events after which a partition at its end is idle.
    #[serde(with = "duration")]
    pub idle_timeout: Duration,
    /// Maximum lag of the watermark, relative to the wall clock, that a partition read to its end can cause.
    #[serde(with = "duration")]
    pub max_watermark_hold: Duration,
    /// Maximum time by which an event may lie in the future.
    #[serde(with = "duration")]
    pub max_clock_skew: Duration,
    /// Maximum age, in hours, of the first hour of a shard in which no hour is closed.
    pub max_history_hours: i64,
    /// Maximum time between two checkpoints of a shard with new input. A shard whose new input is less than 4
    /// MiB and consists only of events of open hours waits ten times as long.
    #[serde(with = "duration")]
    pub checkpoint_interval: Duration,
    /// Bytes of new events of a shard that make a checkpoint due.
    pub checkpoint_bytes: u64,
    /// Maximum time that closed hours with late events wait to be written again, while late events keep
    /// coming.
    #[serde(with = "duration")]
    pub max_restate_delay: Duration,
    /// Bytes of memory that the process should stay within.
    pub memory_limit: u64,
    /// The part of `memory_limit` that the source may hold, in bytes.
    #[serde(skip)]
    pub queue_bytes: u64,
    /// A function that returns the bytes of memory that the process holds now; 0 if this is not known.
    #[serde(skip)]
    pub resident: fn() -> u64,
    /// Maximum number of rows of `cost_allocation` in memory at a time. Windows shrink down to one hour to
    /// stay within it, but an hour is never divided.
    pub rows_in_flight: u64,
    /// The silence of a topic partition after which the last record read is compared with Kafka's record
    /// again.
    #[serde(skip)]
    pub compare_after: Duration,
    /// Whether to continue from the earliest message if Kafka has lost the next message.
    #[serde(skip)]
    pub continue_without_lost: bool,
    /// The organizations whose events topics may bring.
    #[serde(skip)]
    pub organizations: TopicOrganizations,
    /// Batches of messages to skip if they cannot be read.
    #[serde(skip)]
    pub skip_batches: Vec<SkippedBatch>,
    /// The consumer that this worker's consumer is to replace as the reader of the root, as
    /// [`crate::source::ConsumerId`] displays it. Empty if there is none.
    #[serde(skip)]
    pub moved_from: String,
    /// Topics that were read before and are no longer read.
    #[serde(skip)]
    pub retired_topics: Vec<Text>,
    /// Whether to read costs and budgets of published hours for the status.
    #[serde(skip)]
    pub reads_costs: bool,
    /// Maximum time that a clean stop may take.
    #[serde(with = "duration")]
    pub drain_timeout: Duration,
    /// Number of threads for folding and encoding; 0 for one per core. The program starts them, not the
    /// worker.
    pub threads: usize,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self::new(Text::default())
    }
}

impl WorkerOptions {
    /// Creates the default options of an owner.
    pub fn new(owner: Text) -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        Self {
            owner,
            shards: None,
            root_format: 0,
            retention: Retention::default(),
            rules: Rules::default(),
            out_of_orderness: minutes(5),
            idle_timeout: minutes(5),
            max_watermark_hold: minutes(60),
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
            continue_without_lost: false,
            organizations: TopicOrganizations::default(),
            skip_batches: Vec::new(),
            moved_from: String::new(),
            retired_topics: Vec::new(),
            reads_costs: false,
            drain_timeout: Duration::from_secs(30),
            threads: 0,
        }
    }

    /// Returns the parameters of the watermark.
    pub const fn watermark(&self) -> WatermarkRule {
        WatermarkRule {
            out_of_orderness: self.out_of_orderness,
            idle_timeout: self.idle_timeout,
            max_watermark_hold: self.max_watermark_hold,
        }
    }
}
