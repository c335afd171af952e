//! Helpers that listen to sources, on brokers in memory and on real ones.

pub mod admin;
pub mod topic;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prorata_connectors::kafka::{Connection, KafkaSettings, KafkaSource};
use prorata_schemas::Text;
use prorata_testkit::wait::Deadline;
use prorata_worker::source::{Message, Source, SourceEvent, Start};

/// Settings of a group with short intervals.
pub fn hurried(connection: Connection, topics: &[&str], group: impl Into<String>) -> KafkaSettings {
    let topics = topics.iter().map(|&topic| topic.into()).collect();
    let mut settings = KafkaSettings::new(connection, topics, group);
    settings.session_timeout = Duration::from_secs(6);
    settings.revoke_timeout = Duration::from_secs(20);
    settings.end_every = Duration::from_millis(500);
    settings
}

/// Polls until `granted` accepts an event. Returns all events up to this event.
pub async fn until(
    source: &mut KafkaSource,
    mut granted: impl FnMut(&SourceEvent) -> bool,
) -> Vec<SourceEvent> {
    let (deadline, mut seen) = (Deadline::start(), Vec::new());
    loop {
        let mut done = false;
        for signal in source.poll(Duration::from_millis(200)).await.unwrap_or_default() {
            done |= granted(&signal);
            seen.push(signal);
        }
        if done {
            return seen;
        }
        assert!(!deadline.passed(), "{seen:?}");
    }
}

/// Returns all events that arrive in this time. Tests use it to assert that nothing arrives.
pub async fn signals_for(source: &mut KafkaSource, time: Duration) -> Vec<SourceEvent> {
    let (deadline, mut seen) = (Deadline::after(time), Vec::new());
    while !deadline.passed() {
        seen.extend(source.poll(Duration::from_millis(100)).await.unwrap_or_default());
    }
    seen
}

/// Waits for an assignment. Returns its shards.
pub async fn assigned(source: &mut KafkaSource) -> BTreeSet<u16> {
    let seen = until(source, |signal| matches!(signal, SourceEvent::Assigned(_))).await;
    let Some(SourceEvent::Assigned(shards)) = seen.last() else { panic!("{seen:?}") };
    shards.iter().copied().collect()
}

/// Connects a member of the group, and waits until shards are assigned to it.
pub async fn joined(settings: KafkaSettings) -> KafkaSource {
    let mut source = KafkaSource::connect(settings).await.unwrap();
    assigned(&mut source).await;
    source
}

/// Returns this start for each of these topics.
pub fn from(topics: &[&str], start: Start) -> BTreeMap<Text, Start> {
    topics.iter().map(|&topic| (topic.into(), start)).collect()
}

/// The messages among these events.
pub fn messages(signals: &[SourceEvent]) -> Vec<&Message> {
    fn of(signal: &SourceEvent) -> &[Message] {
        if let SourceEvent::Messages(messages) = signal { messages } else { &[] }
    }
    signals.iter().flat_map(of).collect()
}

/// Returns whether the event reports that a topic ends at this offset.
pub fn is_end(signal: &SourceEvent, at: i64) -> bool {
    matches!(signal, SourceEvent::End { offset, .. } if *offset == at)
}
