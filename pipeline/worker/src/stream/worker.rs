//! The loop of the worker: runs steps until the worker is asked to stop, then stops cleanly.

mod assignments;
mod budgets;
mod lost;
mod memory;
mod poll;
mod report;
mod schemas;
mod stopped;
mod tasks;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prorata_schemas::Text;
use prorata_schemas::time::{WallTime, micros};

use super::backlog::Backlog;
use super::shard::{Folding, LiveShard, RestatePace};
use super::shard_table::ShardTable;
use super::stopped::Stops;
use super::{StreamPorts, WorkerOptions, observed};
use crate::backoff::{self, Backoff};
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::root::consumer::Consumer;
use crate::root::{Root, SHARDS_DEFAULT};
use crate::shard::clock::WitnessedClock;
use crate::shard::rules::RuleBook;
use crate::shard::window::WindowLimits;
use crate::source::Source;
use crate::status::{Counts, Dependency, RecomputeGate};
use assignments::{check_partitions, partitions};
use budgets::Sending;
use poll::Contact;
use tasks::Tasks;

/// The time that a step waits for messages if there is nothing else to do.
const WAIT: Duration = Duration::from_millis(200);

/// The time without a checkpoint after which a shard is loaded again before it continues: one day, as the
/// protocol says. Objects that the shard's checkpoint names may be gone by then.
const STALE: Duration = Duration::from_secs(86_400);

/// The divisor of `checkpoint_interval` that gives the minimum time between checkpoints that can wait, while
/// messages flow. Hours close in batches, at most an eighth of the interval late.
const FLOWING_PART: i64 = 8;

/// The number of `checkpoint_interval`s between two checkpoints of a quiet shard. After a crash, the next
/// owner reads the events of the quiet shard from Kafka again. After a clean stop, it reads them from the
/// archive, like all events of open hours.
const QUIET_INTERVALS: i64 = 10;

/// The parts of a worker that stay the same once it is open.
struct Setup {
    ports: StreamPorts,
    /// The clock in `ports`, with access to its witness.
    clock: Arc<WitnessedClock>,
    options: WorkerOptions,
    root: Root,
    /// The consumer group that reads for the root.
    consumer: Consumer,
    topics: Vec<Text>,
}

/// A stream worker.
pub struct Worker<S> {
    setup: Setup,
    source: S,
    shards: ShardTable,
    rules: RuleBook,
    /// A counter of objects, over all shards and claims.
    counter: Arc<AtomicU64>,
    /// A counter of claims.
    claims: u64,
    /// Polled items that are not taken yet: messages may wait for a schema.
    backlog: Backlog,
    /// The back-offs of requests for schemas that the registry did not return, by schema id.
    asks: BTreeMap<u32, Backoff>,
    /// Recurring tasks.
    tasks: Tasks,
    /// Messages about exceeded budgets on their way to the topic.
    sending: Option<Sending>,
    /// The number of times that each shard was stopped.
    stops: BTreeMap<Shard, Stops>,
    /// The last known answers of the group and its brokers.
    contact: Contact,
    /// Whether messages came with the last poll: more may follow at once.
    flowing: bool,
    /// The time until which flowing messages have priority over checkpoints that can wait.
    rests_until: WallTime,
    /// Bytes of memory that the process held besides events, before this step.
    other_memory: u64,
}

impl<S: Source> Worker<S> {
    /// Creates a worker: opens the root, or creates it, and compares it with the topics.
    ///
    /// # Errors
    /// If a topic is missing or has another number of partitions than the root has shards, or storage or
    /// Kafka is unavailable.
    pub async fn open(mut source: S, ports: StreamPorts, options: WorkerOptions) -> Result<Self> {
        let mut ports = observed::observed(ports);
        let clock = WitnessedClock::new(Arc::clone(&ports.shared.clock), options.max_clock_skew);
        let clock = Arc::new(clock);
        ports.shared.clock = Arc::<WitnessedClock>::clone(&clock);
        let topics = source.partitions().await?;
        if let Some(topic) = options.retired_topics.iter().find(|topic| topics.contains_key(*topic)) {
            return Err(WorkerError::Configuration(format!(
                "kafka.topics and kafka.retired_topics both name topic '{topic}'; remove it from one of them"
            )));
        }
        let store = &*ports.shared.store;
        let root = match Root::find(store, options.shards).await? {
            Some(root) => {
                check_partitions(&topics, &root)?;
                root
            }
            None => {
                // A root keeps the choices with which it is created, so the topics are compared first.
                let new = Root::new(options.shards.or(partitions(&topics)).unwrap_or(SHARDS_DEFAULT));
                check_partitions(&topics, &new)?;
                new.create(store).await?
            }
        };
        let own = source.consumer().await?;
        let consumer = Consumer::open(store, own, &options.moved_from).await?;
        let root = root.raise(options.root_format)?;
        let mut rules = RuleBook::default();
        rules.store(&*ports.shared.store, &options.rules).await?;
        let now = ports.shared.clock.now();
        Ok(Self {
            setup: Setup { ports, clock, options, root, consumer, topics: topics.into_keys().collect() },
            source,
            shards: ShardTable::default(),
            rules,
            counter: Arc::default(),
            claims: 0,
            backlog: Backlog::default(),
            asks: BTreeMap::new(),
            tasks: Tasks::default(),
            sending: None,
            stops: BTreeMap::new(),
            contact: Contact::new(now),
            flowing: false,
            rests_until: now,
            other_memory: 0,
        })
    }

    /// Returns the source, for a caller that drives the worker step by step.
    pub fn source(&mut self) -> &mut S {
        &mut self.source
    }
}

impl<S: Source> Worker<S> {
    /// Runs until `stop` is set, then stops cleanly, as [`Self::drain`] does. A clean stop takes at most
    /// `drain_timeout`, including the current step. After an error no checkpoint is made, and the next owner
    /// continues from the decided checkpoints.
    ///
    /// # Errors
    /// Returns an error that no retry can fix: see [`WorkerError`].
    pub async fn run(mut self, stop: &AtomicBool) -> Result<()> {
        let patience = self.setup.options.drain_timeout;
        let overdue = async {
            while !stop.load(Ordering::Relaxed) {
                tokio::time::sleep(WAIT).await;
            }
            tokio::time::sleep(patience).await;
        };
        tokio::select! {
            outcome = self.serve(stop) => outcome,
            () = overdue => {
                tracing::warn!("clean stop took too long; the next owner continues from the last checkpoint");
                self.source.close().await;
                Ok(())
            }
        }
    }

    async fn serve(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut busy = false;
        while !stop.load(Ordering::Relaxed) {
            // A step is never interrupted: what it has taken from memory would be lost.
            match self.step(if busy { Duration::ZERO } else { WAIT }).await {
                Ok(more) => busy = more,
                Err(error) => {
                    self.source.close().await;
                    return Err(error);
                }
            }
        }
        self.setup.ports.status.lock().draining = true;
        self.drain().await;
        Ok(())
    }

    /// Runs one round: load, take, checkpoint, publish. Returns whether there is more to do at once. After an
    /// error, the shards are released, and the worker must not be used any more.
    ///
    /// # Errors
    /// Returns an error that no retry can fix, or the error that stopped a shard if no other shard is left:
    /// see [`WorkerError`].
    pub async fn step(&mut self, wait: Duration) -> Result<bool> {
        let done = self.round(wait).await;
        if done.is_err() {
            self.release_all().await;
        }
        done
    }

    async fn round(&mut self, wait: Duration) -> Result<bool> {
        self.other_memory = (self.setup.options.resident)().saturating_sub(self.bytes());
        self.look_at_stopped().await?;
        self.load_waiting().await?;
        self.start_unread().await?;
        self.poll_if_room(wait).await?;
        let more = self.take_backlog().await?;
        self.move_watermarks();
        let due = self.due();
        let began = self.setup.ports.shared.clock.now();
        for shard in &due {
            if let Err(error) = self.checkpoint(*shard, false).await {
                self.stop_shard(*shard, error).await?;
            }
        }
        if !due.is_empty() {
            // If messages flow, they are taken before the next checkpoints, for as long as these checkpoints
            // took.
            let now = self.setup.ports.shared.clock.now();
            self.rests_until = WallTime(now.0.saturating_add(now.micros_since(began)));
        }
        self.publish().await?;
        self.forward_dead_letters().await;
        self.read_costs().await;
        self.send_budgets().await;
        self.collect_garbage().await;
        self.evict();
        self.report_status();
        if let Some(error) = self.all_stopped() {
            return Err(error);
        }
        let decides = !due.is_empty() && !self.shards.live().any(|live| live.backoff().failures() > 0);
        Ok(more || decides)
    }

    /// Polls unless memory is full.
    async fn poll_if_room(&mut self, wait: Duration) -> Result<()> {
        let full = self.bytes() >= self.budget();
        let room = if full { Err("storage must accept events before more are read") } else { Ok(()) };
        self.setup.ports.status.lock().note_answer(Dependency::Memory, &room);
        self.flowing = false;
        if !full {
            return self.poll(wait).await;
        }
        if wait > Duration::ZERO {
            self.setup.ports.shared.clock.pause(wait).await;
        }
        Ok(())
    }

    fn move_watermarks(&mut self) {
        let (clock, rule) = (self.setup.clock.read(), self.setup.options.watermark());
        for live in self.shards.live_mut() {
            live.topics_mut().move_watermark(&clock, &rule);
        }
    }

    /// Returns the shards whose next checkpoint is due. While messages flow, as during catch-up, the worker
    /// closes hours and recomputes dirty hours only occasionally, in batches. Events that arrive in between
    /// are then not late, and there are fewer files.
    fn due(&self) -> Vec<Shard> {
        let now = self.setup.ports.shared.clock.now();
        let every = micros(self.setup.options.checkpoint_interval);
        // The clock's witness reads the time of a new object, and one shard is enough for that.
        let witness = self.shards.live().map(LiveShard::shard).next();
        let witness = witness.filter(|_| self.setup.clock.read().ahead_seconds.is_some());
        let crowded = self.bytes() >= self.budget() / 2;
        let is_due = |live: &LiveShard| {
            let age = now.micros_since(live.decided_at());
            let gate = live.recompute_gate(now, self.pace());
            let recompute = gate.is_some_and(RecomputeGate::wants_checkpoint);
            let waiting = live.closable().is_some() || recompute;
            let rested = age >= every / FLOWING_PART && now >= self.rests_until;
            let in_turn = waiting && (!self.flowing || rested);
            let new_bytes = live.new_bytes();
            let large = new_bytes >= self.setup.options.checkpoint_bytes || (crowded && new_bytes > 0);
            // Even an idle shard is checkpointed before it counts as stale.
            let in_doubt = witness == Some(live.shard());
            let wanted = live.has_news() || waiting || in_doubt || age >= micros(STALE / 2);
            let rests = live.is_quiet() && !waiting && !in_doubt;
            let old = wanted && age >= if rests { every.saturating_mul(QUIET_INTERVALS) } else { every };
            live.backoff().is_due(now) && (live.is_sealed() || in_turn || large || old)
        };
        self.shards.live().filter(|live| is_due(live)).map(LiveShard::shard).collect()
    }

    fn pace(&self) -> RestatePace {
        RestatePace {
            every: self.setup.options.checkpoint_interval,
            delay_max: self.setup.options.max_restate_delay,
        }
    }

    /// Makes and decides a shard's next checkpoint.
    async fn checkpoint(&mut self, shard: Shard, release: bool) -> Result<()> {
        let now = self.setup.ports.shared.clock.now();
        let stale = self.shards.get_live(shard).is_some_and(|live| now.since(live.decided_at()) >= STALE);
        if stale && release {
            tracing::info!(shard, "no checkpoint for a day; releasing the shard without one");
            return Ok(());
        }
        if stale {
            tracing::info!(shard, "no checkpoint for a day; loading the shard again");
            self.load_anew(shard, Backoff::not_before(backoff::STREAM, now)).await;
            return Ok(());
        }
        let outcome = self.try_checkpoint(shard, now, release).await;
        let Some(live) = self.shards.get_live(shard) else { return Ok(()) };
        match outcome {
            Ok(ours) => {
                live.backoff_mut().succeed();
                if !ours {
                    self.conflict(shard).await;
                }
                Ok(())
            }
            Err(error) => {
                live.backoff_mut().fail(now);
                match self.look_at_failure(shard, error).await {
                    Err(error @ (WorkerError::Store(_) | WorkerError::Tables(_))) => {
                        tracing::warn!(shard, %error, "checkpoint is waiting for storage");
                        self.setup.ports.status.lock().counts.retries += 1;
                        Ok(())
                    }
                    looked => looked,
                }
            }
        }
    }

    /// Handles the error of a checkpoint. If an object is missing because the shard has a new owner, which
    /// may have merged archive files, drops the shard. Otherwise, returns the error.
    async fn look_at_failure(&mut self, shard: Shard, error: WorkerError) -> Result<()> {
        let WorkerError::Damaged { object, cause } = error else { return Err(error) };
        let store = &*self.setup.ports.shared.store;
        let Some(live) = self.shards.get_live(shard) else { return Ok(()) };
        if live.is_overtaken(store).await? {
            self.conflict(shard).await;
            return Ok(());
        }
        Err(WorkerError::Damaged { object, cause })
    }

    /// Completes and seals the draft, unless a checkpoint is sealed already, and decides the checkpoint.
    /// Returns `false` if another owner was first. After an error the shard keeps the parts that succeeded
    /// and is otherwise unchanged, and this can be called again.
    async fn try_checkpoint(&mut self, shard: Shard, now: WallTime, release: bool) -> Result<bool> {
        let pace = self.pace();
        let Some(live) = self.shards.get_live(shard) else { return Ok(true) };
        let mut counts = Counts::default();
        let outcome = async {
            if !live.is_sealed() {
                let mut folding = Folding {
                    ports: &self.setup.ports.shared,
                    rules: &mut self.rules,
                    configured: &self.setup.options.rules,
                    now,
                    limits: WindowLimits {
                        event_bytes: self.setup.options.checkpoint_bytes,
                        rows: self.setup.options.rows_in_flight,
                    },
                    pace,
                    counts: &mut counts,
                };
                // Late events still in memory are flushed after the slice, so that recomputation continues
                // however many come.
                let gate = live.recompute_gate(now, pace);
                if !release && gate.is_some_and(RecomputeGate::is_open) {
                    folding.recompute_slice(live).await?;
                }
                live.flush(&self.setup.ports, now, folding.counts).await?;
                if !release {
                    folding.close(live).await?;
                    live.merge_archive(&self.setup.ports).await;
                }
                live.seal(now, release, self.setup.ports.budgets.is_some());
            }
            let started = Instant::now();
            let clock = &*self.setup.ports.shared.clock;
            let (began, fails) = (clock.monotonic(), live.backoff().failures() > 0);
            let ours = live.decide(&*self.setup.ports.shared.store, || clock.now()).await?;
            if ours && !fails {
                let path = names::checkpoint(shard, live.decided().seq);
                let wrote = began..clock.monotonic();
                self.setup.clock.look(&*self.setup.ports.shared.store, &path, wrote).await?;
            }
            if ours {
                counts.checkpoints += 1;
                counts.checkpoint.observe(started.elapsed());
            }
            Ok(ours)
        }
        .await;
        if matches!(outcome, Ok(true)) {
            self.source.commit(shard, &live.topics().next_offsets());
        }
        self.setup.ports.status.lock().counts.add(counts);
        outcome
    }

    /// Makes the last checkpoints of revoked shards and publishes them. After an error the next owner
    /// continues from the decided checkpoints.
    async fn revoke(&mut self, shards: &[Shard]) {
        for shard in shards {
            let last = self.last_checkpoint(*shard).await;
            if let Err(error) = &last {
                tracing::warn!(shard, %error, "releasing a shard without its last events");
            }
            let waits = self.shards.get_live(*shard).is_some() && last.is_ok();
            if !waits && let Some(slot) = self.shards.remove(*shard) {
                self.release_slot(*shard, slot).await;
            }
        }
        if let Err(error) = self.publish().await {
            tracing::warn!(%error, "releasing shards unpublished");
        }
        self.forward_dead_letters().await;
        shards.iter().for_each(|shard| self.forget(*shard));
    }

    /// Decides the sealed checkpoint of a shard, if any, and then the checkpoint that releases the shard.
    async fn last_checkpoint(&mut self, shard: Shard) -> Result<()> {
        if self.shards.get_live(shard).is_some_and(|live| live.is_sealed()) {
            self.checkpoint(shard, true).await?;
        }
        self.checkpoint(shard, true).await
    }

    /// Stops cleanly: makes last checkpoints, releases the shards, and leaves the group.
    pub async fn drain(&mut self) {
        let shards = self.shards.shards();
        self.revoke(&shards).await;
        self.source.release(&shards).await;
        self.source.close().await;
    }
}
