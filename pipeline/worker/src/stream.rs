//! The stream worker: the same fold as a backfill's, fed by Kafka, one owner of each shard that its group assigns.
//!
//! One task loops [`Worker::step`]: take what the source tells, checkpoint the shards that are due, publish them
//! together, fold a slice of dirty hours again. All that is decided is decided by checkpoints; whatever a crash leaves
//! half done is taken up by the next owner.

mod close;
mod decide;
mod flush;
mod heard;
mod intake;
mod memory;
mod progress;
mod recover;
mod run;
mod shard;
mod signals;
mod slots;
mod tell;
mod window;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prorata_schemas::Text;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Timestamp;

use crate::backoff;
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::root::Root;
use crate::rules::RuleBook;
use crate::shard::Ports;
use crate::source::{DeadLetterTopic, Message, MessageDecoder, Source};
use crate::status::Status;

use memory::Taken;
pub use progress::{LastRecord, Offsets, WatermarkRule};
use shard::LiveShard;

/// What a worker runs on, beside its source.
#[derive(Clone)]
pub struct StreamPorts {
    /// What every owner of shards runs on.
    pub shared: Ports,
    /// Messages into events.
    pub decoder: Arc<dyn MessageDecoder>,
    /// Where dead letters go beside the files, if anywhere.
    pub letters: Option<Arc<dyn DeadLetterTopic>>,
    /// Who is told how the worker does.
    pub status: Arc<Status>,
}

/// How a worker runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Random id of this process: letters and digits; every claim adds its own number.
    pub owner: Text,
    /// Shards of the root, where configured.
    pub shards: Option<Shard>,
    /// Rules for hours that have none yet.
    pub rules: Rules,
    /// How the watermark is found.
    pub watermark: WatermarkRule,
    /// How far an event may lie in the future.
    pub max_clock_skew: Duration,
    /// How many hours before the wall clock a shard that has closed none may begin.
    pub hours_max: i64,
    /// Most time between two checkpoints of a shard with news.
    pub checkpoint_every: Duration,
    /// Bytes of new events of a shard that make a checkpoint due.
    pub checkpoint_bytes: u64,
    /// Bytes of memory that the process should stay within.
    pub memory_limit: u64,
    /// Bytes of them that the source may hold.
    pub queue_bytes: u64,
    /// Bytes of memory that the process holds now; 0: not known.
    pub resident: fn() -> u64,
    /// Rows of `cost_allocation` in memory at a time, as far as hours can be divided.
    pub rows_in_flight: u64,
    /// How long the source may go unheard before what was read last is compared once more.
    pub compare_after: Duration,
    /// Whether to go on from the earliest message where Kafka lost the next.
    pub go_on_without_lost: bool,
    /// Most time that a clean stop may take.
    pub drain_timeout: Duration,
}

impl Options {
    /// Defaults for an owner.
    pub fn new(owner: Text) -> Self {
        const MINUTE: i64 = 60_000_000;
        let watermark =
            WatermarkRule { out_of_orderness: 5 * MINUTE, idle_after: 5 * MINUTE, max_hold: 60 * MINUTE };
        Self {
            owner,
            shards: None,
            rules: Rules::default(),
            watermark,
            max_clock_skew: Duration::from_secs(600),
            hours_max: 100_000,
            checkpoint_every: Duration::from_secs(60),
            checkpoint_bytes: 64 << 20,
            memory_limit: 1 << 30,
            queue_bytes: 64 << 20,
            resident: || 0,
            rows_in_flight: 100_000,
            compare_after: Duration::from_secs(15),
            go_on_without_lost: false,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// A shard that the group has assigned.
enum Slot {
    /// It is to be claimed and loaded, not before this time; and, where so noted, only if the group still assigns it.
    Waiting { retry_at: Timestamp, failures: u32, ask: bool },
    /// It is held and read.
    Live(Box<LiveShard>),
}

/// What waits to be taken, in its order.
enum Item {
    Message(Message),
    End { topic: Text, shard: Shard, offset: i64 },
    Lost { topic: Text, shard: Shard, cause: String },
}

impl Item {
    fn shard(&self) -> Shard {
        match self {
            Self::Message(message) => message.partition,
            Self::End { shard, .. } | Self::Lost { shard, .. } => *shard,
        }
    }
}

/// A stream worker.
pub struct Worker<S> {
    source: S,
    ports: StreamPorts,
    options: Options,
    root: Root,
    topics: Vec<Text>,
    slots: BTreeMap<Shard, Slot>,
    rules: RuleBook,
    /// Counts objects, over all shards and claims.
    counter: Arc<AtomicU64>,
    claims: u64,
    /// What was heard and is not taken yet: messages may wait for a schema.
    backlog: VecDeque<Item>,
    /// Whether messages came when last listened: more may follow at once.
    flowing: bool,
    /// When the source last said something of what is read.
    heard_at: Timestamp,
    /// Until when messages that flow go before checkpoints that can wait.
    rests_until: Timestamp,
    /// Bytes of memory that the process held beside events, before this step.
    beside: u64,
    /// When the registry may be asked again, and how often it has failed.
    registry_at: Timestamp,
    registry_failures: u32,
    /// When tables may be committed to again, and how often that has failed.
    publish_at: Timestamp,
    publish_failures: u32,
    /// When the topic of dead letters may be tried again, and how often it has failed.
    feed_at: Timestamp,
    feed_failures: u32,
    /// Whether the group has assigned anything yet, be it nothing.
    assigned: bool,
    /// Whether the group has taken all shards away, and has not assigned any since, be it nothing.
    cut_off: bool,
    /// When the source was last listened to.
    listened_at: Timestamp,
    /// Since when Kafka has been listened to, and has said nothing.
    deaf_since: Option<Timestamp>,
}

impl<S: Source> Worker<S> {
    /// Opens the root and compares it with the topics.
    ///
    /// # Errors
    /// When a topic is missing or has another number of partitions than the root has shards, or storage or Kafka is
    /// unavailable.
    pub async fn open(mut source: S, ports: StreamPorts, options: Options) -> Result<Self> {
        let ports = heard::heard(ports);
        let topics = source.partitions().await?;
        let root = Root::open(&*ports.shared.store, options.shards).await?;
        check_partitions(&topics, &root)?;
        let mut rules = RuleBook::default();
        rules.store(&*ports.shared.store, &options.rules).await?;
        let now = ports.shared.clock.now();
        Ok(Self {
            source,
            ports,
            options,
            root,
            topics: topics.into_keys().collect(),
            slots: BTreeMap::new(),
            rules,
            counter: Arc::default(),
            claims: 0,
            backlog: VecDeque::new(),
            flowing: false,
            heard_at: now,
            rests_until: now,
            beside: 0,
            registry_at: now,
            registry_failures: 0,
            publish_at: now,
            publish_failures: 0,
            feed_at: now,
            feed_failures: 0,
            assigned: false,
            cut_off: false,
            listened_at: now,
            deaf_since: None,
        })
    }

    /// The source, for whoever drives a worker step by step.
    pub fn source(&mut self) -> &mut S {
        &mut self.source
    }

    fn live(&self) -> impl Iterator<Item = &LiveShard> {
        self.slots.values().filter_map(|slot| match slot {
            Slot::Live(live) => Some(&**live),
            Slot::Waiting { .. } => None,
        })
    }

    fn live_mut(&mut self, shard: Shard) -> Option<&mut LiveShard> {
        match self.slots.get_mut(&shard) {
            Some(Slot::Live(live)) => Some(live),
            _ => None,
        }
    }

    /// Bytes of events in memory.
    fn bytes(&self) -> u64 {
        self.live().map(LiveShard::bytes).sum()
    }

    /// Bytes of events that may be in memory.
    fn budget(&self) -> u64 {
        Taken {
            states: self.live().map(|live| live.state_bytes).sum(),
            queue: self.options.queue_bytes,
            beside: self.beside,
        }
        .budget(self.options.memory_limit)
    }
}

/// Every topic must have as many partitions as the root has shards.
fn check_partitions(topics: &BTreeMap<Text, u32>, root: &Root) -> Result<()> {
    let sentence = |topic: &Text, partitions: u32| match partitions {
        0 => format!(
            "Kafka has no topic '{topic}'; create it with {} partitions, or mend kafka.topics",
            root.shards
        ),
        _ => format!(
            "topic '{topic}' has {partitions} partitions, the root {} shards; all topics of one root need as many \
             partitions as it has shards: for more, make new topics and fold the events into a new root",
            root.shards
        ),
    };
    let wrong = topics.iter().find(|(_, partitions)| **partitions != u32::from(root.shards));
    match wrong {
        Some((topic, partitions)) => Err(WorkerError::Configuration(sentence(topic, *partitions))),
        None if topics.is_empty() => {
            Err(WorkerError::Configuration("kafka.topics names no topic; name those with events".into()))
        }
        None => Ok(()),
    }
}

/// A duration in microseconds; one that does not fit is for ever.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// When to try again after so many failures in a row before this one.
fn retry_at(now: Timestamp, failures: u32) -> Timestamp {
    Timestamp(now.0.saturating_add(micros(backoff::STREAM.delay(failures + 1))))
}
