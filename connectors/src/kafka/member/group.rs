//! The thread that owns the consumer. It polls, answers the group, assigns and reads, in this order, and
//! never waits long for anything.
//!
//! Assignment is eager: the group revokes everything before it assigns anything. The first answer to an
//! assignment is to read nothing. A shard is read once the worker starts it, from the offsets that the worker
//! names, never from the group's. A revocation is answered once the worker has released the shards or their
//! time is over. Until then the library is polled as before, so that the member stays in the group.

mod partitions;
mod poll;
mod rebalance;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::{Duration, Instant};

use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{SourceError, Start};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::oneshot;

use self::partitions::PartitionCounts;
use super::context::Member;
use super::queue::Queue;
use super::tracks::{Question, Tracks};
use crate::kafka::admin::{MetadataClient, Probe};
use crate::kafka::client::batch::Batch;
use crate::kafka::client::failure;
use crate::kafka::client::settings::KafkaSettings;

/// The time that one round waits for messages.
const ROUND: Duration = Duration::from_millis(20);

/// Maximum number of commands of one round.
const COMMANDS_MAX: usize = 1_024;

/// Maximum number of events that one round takes from the library. A request for an event costs almost
/// nothing.
const EVENTS: usize = 8;

/// A request from the worker's side.
pub(super) enum Command {
    /// Read a shard; `reading` is the number of the new reading.
    Start { shard: Shard, reading: u64, from: BTreeMap<Text, Start> },
    /// Stop reading shards, and give them up if the group revokes them.
    Release(Vec<Shard>),
    /// Commit a shard's progress to the group.
    Commit { shard: Shard, next: BTreeMap<Text, i64> },
    /// Ask the group whether a shard is still ours.
    Assigned { shard: Shard, answer: Reply },
    /// Leave the group and end the thread.
    Close,
}

pub(super) type Reply = oneshot::Sender<Result<bool, SourceError>>;

/// Ends of partitions, and whether the brokers confirm them.
type Confirmed = Vec<(Question, bool)>;

/// A revocation that the group waits for.
struct Revocation {
    waiting: BTreeSet<Shard>,
    until: Instant,
}

/// The thread's state.
pub(super) struct Group<'c> {
    settings: &'c KafkaSettings,
    consumer: &'c Arc<BaseConsumer<Member>>,
    batch: Batch<'c, Member>,
    queue: Arc<Queue>,
    commands: Receiver<Command>,
    probe: Probe,
    answers: (Sender<Confirmed>, Receiver<Confirmed>),
    asking: bool,
    counts: PartitionCounts,
    assigned: BTreeSet<Shard>,
    revoking: Option<Revocation>,
    tracks: Tracks,
    /// Whether the library's assignment differs from `tracks`.
    stale: bool,
    /// The next offsets as last committed to the group, by shard and topic.
    committed: BTreeMap<Shard, BTreeMap<Text, i64>>,
    /// The last reason why a broker could not be reached.
    disconnected: String,
    failed: bool,
}

impl<'c> Group<'c> {
    /// Returns the state of a member without shards; `None` if the library is out of memory.
    pub(super) fn new(
        settings: &'c KafkaSettings,
        consumer: &'c Arc<BaseConsumer<Member>>,
        queue: Arc<Queue>,
        commands: Receiver<Command>,
        probe: Probe,
        counts: BTreeMap<Text, u32>,
    ) -> Option<Self> {
        Some(Self {
            settings,
            consumer,
            batch: Batch::new(consumer)?,
            queue,
            commands,
            probe,
            answers: std::sync::mpsc::channel(),
            asking: false,
            counts: PartitionCounts::new(counts),
            assigned: BTreeSet::new(),
            revoking: None,
            tracks: Tracks::default(),
            stale: false,
            committed: BTreeMap::new(),
            disconnected: String::new(),
            failed: false,
        })
    }

    /// Runs until the worker closes the source or drops it. Then the consumer has no assignment and can be
    /// dropped.
    pub(super) fn run(mut self) {
        while self.commands() {
            self.events();
            self.rebalance();
            self.finish_revocation();
            self.assign();
            if self.queue.has_room() {
                self.read();
            } else if !self.wait() {
                break;
            }
            self.ends();
            self.count_partitions();
        }
        self.consumer.context().close();
        // The group may wait for the answer to an assignment or to a revocation.
        for answered in [self.consumer.assign(&TopicPartitionList::new()), self.consumer.unassign()] {
            if let Err(error) = answered {
                tracing::debug!("while closing: {error}");
            }
        }
    }

    /// Executes the waiting commands. Returns whether to continue.
    fn commands(&mut self) -> bool {
        for _ in 0..COMMANDS_MAX {
            match self.commands.try_recv() {
                Ok(command) => {
                    if !self.execute(command) {
                        return false;
                    }
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    /// Waits for a command or for room in the queue. Returns whether to continue.
    fn wait(&mut self) -> bool {
        match self.commands.recv_timeout(ROUND / 2) {
            Ok(command) => self.execute(command),
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    fn execute(&mut self, command: Command) -> bool {
        match command {
            Command::Start { shard, reading, from } => {
                if self.holds(shard) {
                    for (topic, start) in &from {
                        if let Start::At(offset) = start {
                            self.committed.entry(shard).or_default().entry(topic.clone()).or_insert(*offset);
                        }
                        self.batch.include(topic, i32::from(shard));
                    }
                    self.tracks.begin(shard, reading, from);
                    self.stale = true;
                }
            }
            Command::Release(shards) => {
                for shard in shards {
                    self.stale |= self.tracks.end(shard);
                    if let Some(revoking) = &mut self.revoking {
                        revoking.waiting.remove(&shard);
                    }
                }
            }
            Command::Commit { shard, next } => {
                if self.assigned.contains(&shard) {
                    // The library logs what the group refuses.
                    if let Err(error) = self.consumer.commit(&offsets(shard, &next), CommitMode::Async) {
                        tracing::info!("offsets of shard {shard} were not committed: {error}");
                    }
                    self.committed.insert(shard, next);
                }
            }
            Command::Assigned { shard, answer } => self.check(shard, answer),
            Command::Close => return false,
        }
        true
    }

    /// Returns whether the group assigns a shard and does not revoke it.
    fn holds(&self, shard: Shard) -> bool {
        self.assigned.contains(&shard) && self.revoking.is_none() && !self.failed
    }

    /// Takes the library's events.
    fn events(&mut self) {
        for _ in 0..EVENTS {
            // Messages arrive only in batches, because partitions are forwarded before they are assigned. A
            // message that arrives here anyway is read again. The context has noted the errors.
            if let Some(Ok(message)) = self.consumer.poll(Duration::ZERO)
                && let Some((_, track)) = self.tracks.get_mut(message.topic(), message.partition())
            {
                track.fail(Instant::now());
            }
        }
        let member = Arc::clone(self.consumer.context());
        for (code, reason) in member.watch.errors() {
            self.error(code, &reason);
        }
    }

    fn error(&mut self, code: Code, reason: &str) {
        if let Some((code, reason)) = self.consumer.client().fatal_error() {
            if !self.failed {
                self.failed = true;
                self.lose();
                self.queue.fail(failure::fatal(self.settings, code, &reason));
            }
            return;
        }
        let reason = match code {
            // The other brokers may answer: this error is only reported if none does.
            Code::BrokerTransportFailure | Code::Resolve | Code::Authentication | Code::SSL => {
                reason.clone_into(&mut self.disconnected);
                return;
            }
            Code::AllBrokersDown if !self.disconnected.is_empty() => self.disconnected.as_str(),
            _ => reason,
        };
        match failure::running(&self.settings.connection, code, reason) {
            SourceError::Unavailable(_) if code == Code::PollExceeded => {}
            unavailable @ SourceError::Unavailable(_) => self.queue.set_unavailable(unavailable),
            failure => self.queue.fail(failure),
        }
    }

    /// Checks by a commit whether a shard is still ours, because the group accepts commits only from its
    /// members.
    fn check(&self, shard: Shard, answer: Reply) {
        // The caller may have given up on the answer.
        if !self.holds(shard) || self.consumer.assignment_lost() {
            let _ = answer.send(Ok(false));
            return;
        }
        let known = self.committed.get(&shard).cloned();
        let topics: Vec<Text> = self.settings.topics.iter().map(|topic| Text::from(topic.as_str())).collect();
        let consumer = Arc::clone(self.consumer);
        self.probe.submit_for(answer, move |client: &MetadataClient| {
            // The check must commit some offset again. For a shard that nobody has read, this is its
            // beginning.
            let earliest = |topic: Text| client.range(&topic, i32::from(shard)).map(|(low, _)| (topic, low));
            let next = known.map_or_else(|| topics.into_iter().map(earliest).collect(), Ok);
            next.and_then(|next| accepts(&consumer, &offsets(shard, &next)))
        });
    }
}

/// Commits these offsets, and returns whether the group accepts them from this member.
fn accepts(consumer: &BaseConsumer<Member>, offsets: &TopicPartitionList) -> Result<bool, SourceError> {
    let Err(error) = consumer.commit(offsets, CommitMode::Sync) else { return Ok(true) };
    match error.rdkafka_error_code() {
        Some(Code::RebalanceInProgress) => Ok(true),
        Some(Code::UnknownMemberId | Code::IllegalGeneration | Code::FencedInstanceId) => Ok(false),
        _ => Err(SourceError::Unavailable(format!("the group did not answer: {error}"))),
    }
}

/// Returns the next offsets of a shard in the library's form.
fn offsets(shard: Shard, next: &BTreeMap<Text, i64>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (topic, next) in next {
        if let Err(error) = list.add_partition_offset(topic, i32::from(shard), Offset::Offset(*next)) {
            tracing::warn!("offset {next} of topic {topic}, partition {shard} cannot be committed: {error}");
        }
    }
    list
}
