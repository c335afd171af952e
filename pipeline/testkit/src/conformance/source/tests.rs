//! Tests that the fake keeps the promises, whatever its polls report and however shards move. Sources that
//! break a promise are caught.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{ConsumerId, Message, Source, SourceError, SourceEvent, Start};

use super::{Harness, SourcePlace, source};
use crate::conformance::fault_double::{FaultDouble, assert_caught};
use crate::fakes::{FakeBroker, FakeSource, Record};

/// Makes places with the fake source; the source breaks a promise if there is a defect.
struct FakeSourceHarness {
    /// Seed of random polls; `None` if polls are not random.
    seed: Option<u64>,
    eager: bool,
    defect: Option<SourceDefect>,
    places: AtomicU64,
}

impl FakeSourceHarness {
    fn new(seed: Option<u64>, eager: bool, defect: Option<SourceDefect>) -> Self {
        Self { seed, eager, defect, places: AtomicU64::new(0) }
    }
}

struct FakeSourcePlace {
    broker: FakeBroker,
    defect: Option<SourceDefect>,
}

#[async_trait(?Send)]
impl Harness for FakeSourceHarness {
    type Place = dyn SourcePlace;

    async fn place(&self) -> Result<Box<dyn SourcePlace>, String> {
        let number = self.places.fetch_add(1, Ordering::Relaxed);
        let broker = self.seed.map_or_else(FakeBroker::default, |seed| FakeBroker::seeded(seed + number));
        broker.set_eager(self.eager);
        Ok(Box::new(FakeSourcePlace { broker, defect: self.defect }))
    }
}

#[async_trait(?Send)]
impl SourcePlace for FakeSourcePlace {
    async fn create_topic(&self, name: &str, partitions: Shard) -> Result<Text, String> {
        self.broker.set_partitions(name, partitions);
        Ok(name.into())
    }

    async fn produce(&self, message: Message) -> Result<i64, String> {
        let Message { topic, partition, timestamp_millis, key, value, headers, .. } = message;
        let record = Record { timestamp_millis, key, value, headers };
        self.broker.produce(&topic, partition, record).map_err(|error| error.to_string())
    }

    async fn skip_offsets(&self, topic: &Text, partition: Shard) -> Result<bool, String> {
        self.broker.skip_offsets(topic, partition, 2).map_err(|error| error.to_string())?;
        Ok(true)
    }

    async fn delete_before(&self, topic: &Text, partition: Shard, offset: i64) -> Result<(), String> {
        self.broker.delete_before(topic, partition, offset).map_err(|error| error.to_string())
    }

    async fn end(&self, topic: &Text, partition: Shard) -> Result<i64, String> {
        self.broker.bounds(topic, partition).map(|(_, end)| end).map_err(|error| error.to_string())
    }

    async fn member(&self, name: &str, topics: &[Text]) -> Result<Box<dyn Source>, String> {
        let topics: Vec<&str> = topics.iter().map(|topic| &**topic).collect();
        let honest = self.broker.source(name, &topics);
        Ok(match self.defect {
            Some(defect) => Box::new(FaultDouble { honest, defect, memory: Vec::new() }),
            None => Box::new(honest),
        })
    }

    fn polls_max(&self) -> Option<u32> {
        Some(300)
    }

    fn silence(&self) -> u32 {
        20
    }

    async fn expire(&self, name: &str) -> Result<bool, String> {
        Ok(self.broker.expire(name))
    }
}

/// A promise that a source breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceDefect {
    /// Loses a message.
    Skips,
    /// Reports messages twice.
    Repeats,
    /// Reports messages in the wrong order.
    Disorders,
    /// Reports an end before the messages that precede the end.
    EndsEarly,
    /// Reports each end once.
    EndsOnce,
    /// Starts at the committed offset.
    ReadsCommits,
    /// Does not report lost offsets.
    HidesLostOffsets,
    /// Continues with messages of a shard after its revocation.
    ReportsRevoked,
    /// Releases shards as soon as they are revoked.
    ReleasesAtOnce,
    /// Does not report lost shards.
    HidesLoss,
    /// Starts all shards on its own.
    StartsByItself,
    /// Counts one partition too many.
    Miscounts,
    /// Reads only one of the topics.
    HalvesShards,
    /// Believes that it still has all shards it once had.
    BelievesItself,
    /// Drops headers.
    DropsHeaders,
}

/// Every defect, and the promise that it breaks.
const DEFECTS: [(SourceDefect, &str); 15] = [
    (SourceDefect::Skips, "every message is reported once"),
    (SourceDefect::Repeats, "offset 2 of nodes, partition 1 came when 3 or later was due"),
    (SourceDefect::Disorders, "offset 1 of nodes, partition 1 came when 3 or later was due"),
    (SourceDefect::EndsEarly, "offset 0 of nodes, partition 1 came when 3 or later was due"),
    (SourceDefect::EndsOnce, "this has not come: the end of nodes, partition 0, twice"),
    (SourceDefect::ReadsCommits, "commits are never read back"),
    (SourceDefect::HidesLostOffsets, "this has not come: two lost offsets"),
    (
        SourceDefect::ReportsRevoked,
        "shards move whole, and only when they are released: messages of nodes, partition 2 came",
    ),
    (SourceDefect::ReleasesAtOnce, "were assigned before they were released"),
    (SourceDefect::HidesLoss, "a member that was taken for dead learns of it"),
    (SourceDefect::StartsByItself, "nothing is reported before a start"),
    (SourceDefect::Miscounts, "partitions of every topic are counted"),
    (SourceDefect::HalvesShards, "this has not come: the end of nodes"),
    (SourceDefect::BelievesItself, "the group, asked again, disagrees"),
    (SourceDefect::DropsHeaders, "every message is reported once"),
];

/// A source with a defect. It remembers events that it may report after a revocation.
type Double = FaultDouble<FakeSource, SourceDefect, Vec<SourceEvent>>;

#[async_trait]
impl Source for Double {
    async fn consumer(&mut self) -> Result<ConsumerId, SourceError> {
        self.honest.consumer().await
    }

    async fn partitions(&mut self) -> Result<BTreeMap<Text, u32>, SourceError> {
        let mut counts = self.honest.partitions().await?;
        if self.defect == SourceDefect::Miscounts {
            counts.values_mut().for_each(|count| *count += 1);
        }
        Ok(counts)
    }

    async fn poll(&mut self, wait: Duration) -> Result<Vec<SourceEvent>, SourceError> {
        let mut signals = self.honest.poll(wait).await?;
        match self.defect {
            SourceDefect::EndsEarly => {
                signals.sort_by_key(|signal| !matches!(signal, SourceEvent::End { .. }))
            }
            SourceDefect::EndsOnce => signals.retain(|signal| {
                let again = matches!(signal, SourceEvent::End { .. }) && self.memory.contains(signal);
                self.memory.push(signal.clone());
                !again
            }),
            SourceDefect::HidesLostOffsets => {
                signals.retain(|signal| !matches!(signal, SourceEvent::OffsetsLost { .. }))
            }
            SourceDefect::HidesLoss => signals.retain(|signal| !matches!(signal, SourceEvent::Lost(_))),
            SourceDefect::ReleasesAtOnce => self.release_at_once(&signals).await,
            SourceDefect::StartsByItself => self.start_by_itself(&signals).await?,
            SourceDefect::ReportsRevoked => self.report_revoked(&mut signals),
            _ => signals.iter_mut().for_each(|signal| {
                if let SourceEvent::Messages(messages) = signal {
                    tamper(self.defect, messages);
                }
            }),
        }
        signals.retain(|signal| !matches!(signal, SourceEvent::Messages(messages) if messages.is_empty()));
        Ok(signals)
    }

    async fn start(&mut self, shard: Shard, mut from: BTreeMap<Text, Start>) -> Result<(), SourceError> {
        match self.defect {
            SourceDefect::ReadsCommits => from.iter_mut().for_each(|(topic, start)| {
                if let Some(next) = COMMITTED.with_borrow(|committed| committed.get(topic).copied()) {
                    *start = Start::At(next);
                }
            }),
            SourceDefect::HalvesShards => from.retain(|topic, _| &**topic != "nodes"),
            _ => {}
        }
        self.honest.start(shard, from).await
    }

    async fn release(&mut self, shards: &[Shard]) {
        self.honest.release(shards).await;
    }

    async fn assigned(&mut self, shard: Shard) -> Result<bool, SourceError> {
        let honest = self.honest.assigned(shard).await?;
        Ok(honest || self.defect == SourceDefect::BelievesItself)
    }

    fn commit(&mut self, shard: Shard, next: &BTreeMap<Text, i64>) {
        COMMITTED.with_borrow_mut(|committed| committed.extend(next.clone()));
        self.honest.commit(shard, next);
    }

    async fn close(&mut self) {
        self.honest.close().await;
    }
}

thread_local! {
    /// Offsets that doubles have committed.
    static COMMITTED: RefCell<BTreeMap<Text, i64>> = const { RefCell::new(BTreeMap::new()) };
}

fn tamper(defect: SourceDefect, messages: &mut Vec<Message>) {
    match defect {
        SourceDefect::Skips => messages.retain(|message| message.offset != 2),
        SourceDefect::Repeats => messages.extend(messages.last().cloned()),
        SourceDefect::Disorders => messages.reverse(),
        SourceDefect::DropsHeaders => messages.iter_mut().for_each(|message| message.headers.clear()),
        _ => {}
    }
}

impl Double {
    async fn release_at_once(&mut self, signals: &[SourceEvent]) {
        for signal in signals {
            if let SourceEvent::Revoked(shards) = signal {
                self.honest.release(shards).await;
            }
        }
    }

    async fn start_by_itself(&mut self, signals: &[SourceEvent]) -> Result<(), SourceError> {
        let topics: Vec<Text> = self.honest.partitions().await?.into_keys().collect();
        for signal in signals {
            let SourceEvent::Assigned(shards) = signal else { continue };
            for shard in shards {
                let from = topics.iter().map(|topic| (topic.clone(), Start::Earliest)).collect();
                self.honest.start(*shard, from).await?;
            }
        }
        Ok(())
    }

    /// Reports one more message of each revoked shard.
    fn report_revoked(&mut self, signals: &mut Vec<SourceEvent>) {
        let mut late = Vec::new();
        for signal in &*signals {
            match signal {
                SourceEvent::Messages(messages) => {
                    self.memory.push(SourceEvent::Messages(messages.last().cloned().into_iter().collect()));
                }
                SourceEvent::Revoked(shards) => {
                    let revoked = |message: &Message| shards.contains(&message.partition);
                    late.extend(self.memory.extract_if(.., |kept| match kept {
                        SourceEvent::Messages(messages) => messages.iter().any(revoked),
                        _ => false,
                    }));
                }
                _ => {}
            }
        }
        signals.extend(late);
    }
}

#[tokio::test]
async fn the_fake_of_kafka_keeps_its_promises() {
    for eager in [false, true] {
        let left_out = source(&FakeSourceHarness::new(None, eager, None)).await.unwrap();
        assert!(left_out.is_empty(), "{left_out:?}");
    }
}

#[tokio::test]
async fn the_fake_of_kafka_keeps_its_promises_however_polls_fall_out() {
    for seed in 0..50 {
        let fake = FakeSourceHarness::new(Some(seed * 1_000), seed % 2 == 0, None);
        let left_out = source(&fake).await.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        assert!(left_out.is_empty(), "{left_out:?}");
    }
}

#[tokio::test]
async fn a_source_that_breaks_any_promise_is_caught() {
    let suite = async |defect| {
        COMMITTED.with_borrow_mut(BTreeMap::clear);
        source(&FakeSourceHarness::new(None, false, Some(defect))).await
    };
    assert_caught(&DEFECTS, suite).await;
}
