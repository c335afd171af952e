//! Tests of `prorata generate`: files, messages, arguments.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use prorata_connectors::messages::{MessageEncoder, SingleObjectMessages};
use prorata_schemas::body;
use prorata_schemas::event::{Event, EventKind};
use prorata_worker::source::MessageDecoder;

use super::files::{FilesError, Written, generate};
use super::kafka::{EventSink, Sent, send};
use super::*;

fn load() -> Load {
    Load {
        organizations: 3,
        pods: 12,
        hours: 6,
        seed: 9,
        start: "2026-11-01T00".parse().unwrap(),
        late_per_million: 20_000,
        duplicates_per_million: 20_000,
        usage_interval: None,
    }
}

/// Joins bodies one after another, in place of the archive's format.
fn joined(bodies: &[(EventKind, &[u8])]) -> std::io::Result<Vec<u8>> {
    Ok(bodies.iter().flat_map(|(_, body)| body.iter().copied()).collect())
}

fn write(folder: &Path) -> Result<Written, FilesError> {
    generate(&load(), folder, 100, &joined)
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for organization in std::fs::read_dir(folder).unwrap() {
        for file in std::fs::read_dir(organization.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), bytes);
        }
    }
    found
}

#[test]
fn an_interval_of_use_lies_between_a_second_and_an_hour() {
    assert_eq!(parse_usage_interval("1m"), Ok(Duration::from_secs(60)));
    assert_eq!(parse_usage_interval("1h"), Ok(Duration::from_secs(3600)));
    for text in ["", "60", "1M", "500ms", "61m"] {
        assert_eq!(parse_usage_interval(text), Err(ParseIntervalError), "{text}");
    }
}

#[test]
fn equal_arguments_make_equal_files() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let written = write(one.path()).unwrap();
    assert_eq!(write(two.path()).unwrap(), written);
    let (one, two) = (files(one.path()), files(two.path()));
    assert_eq!(one, two);
    assert_eq!(u64::try_from(one.len()).unwrap(), written.files);
    assert!(one.len() > 6, "{}", one.len());
}

#[test]
fn a_full_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("other"), "x").unwrap();
    assert!(matches!(write(folder.path()), Err(FilesError::FolderNotEmpty(_))));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A sink that keeps the messages, and fails after `room` messages.
struct FakeSink {
    messages: Vec<(String, String, Event)>,
    decoder: SingleObjectMessages,
    room: usize,
    flushed: usize,
}

impl FakeSink {
    fn new() -> Self {
        let decoder = SingleObjectMessages::new().unwrap();
        Self { messages: Vec::new(), decoder, room: usize::MAX, flushed: 0 }
    }
}

impl EventSink for FakeSink {
    fn send(&mut self, topic: &str, key: &str, value: &[u8]) -> Result<(), Failure> {
        if self.messages.len() == self.room {
            return Err(Failure::storage("Kafka is unavailable"));
        }
        let record = self.decoder.decode(value).unwrap().into_owned();
        self.messages.push((topic.to_owned(), key.to_owned(), record.event));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.flushed += 1;
        Ok(())
    }
}

fn send_to(load: &Load, topics: &[&str], sink: &mut FakeSink) -> Result<Sent, Failure> {
    let topics: Vec<String> = topics.iter().map(|&topic| topic.to_owned()).collect();
    send(load, None, &topics, &MessageEncoder::single_object(), sink)
}

/// Returns the bodies of every organization, in the order of its files.
fn bodies_of_files(load: &Load) -> BTreeMap<String, Vec<Vec<u8>>> {
    let folder = tempfile::tempdir().unwrap();
    let seen = Mutex::new(BTreeMap::<String, Vec<Vec<u8>>>::new());
    generate(load, folder.path(), 1_000_000, &|bodies: &[(EventKind, &[u8])]| {
        let organization = body::decode(bodies[0].0, bodies[0].1).unwrap().organization_id.to_string();
        let bodies = bodies.iter().map(|(_, body)| body.to_vec());
        seen.lock().unwrap().entry(organization).or_default().extend(bodies);
        Ok(Vec::new())
    })
    .unwrap();
    seen.into_inner().unwrap()
}

#[test]
fn kafka_gets_the_events_of_the_files_in_their_order() {
    let mut sink = FakeSink::new();
    let sent = send_to(&load(), &["events"], &mut sink).unwrap();
    assert_eq!((sent.events, sink.flushed), (sink.messages.len() as u64, 1));
    let mut bodies = BTreeMap::<String, Vec<Vec<u8>>>::new();
    for (topic, key, event) in &sink.messages {
        assert_eq!((topic.as_str(), key.as_str()), ("events", &*event.organization_id));
        bodies.entry(key.clone()).or_default().push(body::encode(event));
    }
    assert_eq!(bodies.len(), 3);
    assert_eq!(bodies, bodies_of_files(&load()));
}

#[test]
fn equal_arguments_send_equal_messages() {
    let (mut one, mut two) = (FakeSink::new(), FakeSink::new());
    send_to(&load(), &["events"], &mut one).unwrap();
    send_to(&load(), &["events"], &mut two).unwrap();
    assert_eq!(one.messages, two.messages);
}

#[test]
fn every_type_has_its_topic() {
    let mut sink = FakeSink::new();
    let day = Load { hours: 24, ..load() };
    send_to(&day, &["a", "b", "c"], &mut sink).unwrap();
    let mut topic_of = BTreeMap::new();
    for (topic, _, event) in sink.messages {
        topic_of.entry(event.payload.kind()).or_insert_with(|| topic.clone());
        assert_eq!(topic_of[&event.payload.kind()], topic);
    }
    let expected = EventKind::ALL.into_iter().zip(["a", "b", "c"].into_iter().cycle());
    // Bills come from providers.
    let is_of_bills = |kind: EventKind| matches!(kind, EventKind::BillSet | EventKind::BillingPeriodClosed);
    let expected = expected.filter(|(kind, _)| !is_of_bills(*kind));
    assert_eq!(topic_of, expected.map(|(kind, topic)| (kind, topic.to_owned())).collect());
}

#[test]
fn a_sink_that_fails_ends_the_run() {
    let mut sink = FakeSink { room: 10, ..FakeSink::new() };
    let failure = send_to(&load(), &["events"], &mut sink).unwrap_err();
    assert_eq!(failure.to_string(), "Kafka is unavailable");
    assert_eq!((sink.messages.len(), sink.flushed), (10, 0));
}

#[test]
fn arguments_are_refused_with_what_they_should_be() {
    assert_eq!(parse_share("0.015"), Ok(15_000));
    assert_eq!(parse_share("1"), Ok(1_000_000));
    for wrong in ["1.1", "-0.1", "ten"] {
        assert!(parse_share(wrong).is_err(), "{wrong}");
    }
}
