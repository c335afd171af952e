//! Laws of generated messages.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use prorata_connectors::messages::{MessageEncoder, SingleObjectMessages};
use prorata_schemas::body;
use prorata_schemas::event::{Event, EventKind};
use prorata_worker::source::MessageDecoder;

use super::kafka::{EventSink, Pace, Sent, send};
use super::tests::args;
use super::*;

/// Keeps what is sent, and refuses what comes after `room` messages.
struct Memory {
    messages: Vec<(String, String, Event)>,
    decoder: SingleObjectMessages,
    room: usize,
    flushed: usize,
}

impl Memory {
    fn new() -> Self {
        let decoder = SingleObjectMessages::new().unwrap();
        Self { messages: Vec::new(), decoder, room: usize::MAX, flushed: 0 }
    }
}

impl EventSink for Memory {
    fn send(&mut self, topic: &str, key: &str, value: &[u8]) -> Result<(), Failure> {
        if self.messages.len() == self.room {
            return Err(Failure::storage("Kafka is unavailable"));
        }
        let record = self.decoder.decode(value).unwrap();
        self.messages.push((topic.to_owned(), key.to_owned(), record.event));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.flushed += 1;
        Ok(())
    }
}

fn topics(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn sent(args: &GenerateArgs, names: &[&str], sink: &mut Memory) -> Result<Sent, Failure> {
    send(args, &topics(names), &MessageEncoder::single_object(), sink)
}

fn to_kafka() -> GenerateArgs {
    args(Path::new(KAFKA))
}

/// Bodies of every organization in the order of its files.
fn bodies_of_files(args: &GenerateArgs) -> BTreeMap<String, Vec<Vec<u8>>> {
    let folder = tempfile::tempdir().unwrap();
    let seen = Mutex::new(BTreeMap::<String, Vec<Vec<u8>>>::new());
    let args = GenerateArgs { to: folder.path().to_owned(), events_per_file: 1_000_000, ..args.clone() };
    generate(&args, &|bodies: &[(EventKind, &[u8])]| {
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
    let mut sink = Memory::new();
    let sent = sent(&to_kafka(), &["events"], &mut sink).unwrap();
    assert_eq!((sent.events, sink.flushed), (sink.messages.len() as u64, 1));
    let mut bodies = BTreeMap::<String, Vec<Vec<u8>>>::new();
    for (topic, key, event) in &sink.messages {
        assert_eq!((topic.as_str(), key.as_str()), ("events", &*event.organization_id));
        bodies.entry(key.clone()).or_default().push(body::encode(event));
    }
    assert_eq!(bodies.len(), 3);
    assert_eq!(bodies, bodies_of_files(&to_kafka()));
}

#[test]
fn organizations_send_at_once_and_equal_arguments_send_equal_messages() {
    let (mut one, mut two) = (Memory::new(), Memory::new());
    let in_order = GenerateArgs { late_rate: 0, duplicate_rate: 0, ..to_kafka() };
    sent(&in_order, &["events"], &mut one).unwrap();
    sent(&in_order, &["events"], &mut two).unwrap();
    assert_eq!(one.messages, two.messages);
    let mut latest = 0;
    // Measured use is sent when its interval has ended.
    let at_once = one.messages.iter().map(|(_, _, event)| event);
    for event in at_once.filter(|event| event.payload.kind() != EventKind::PodUsage) {
        assert!(event.event_time.0 > latest - 2 * MINUTE, "{event:?} comes after {latest}");
        latest = latest.max(event.event_time.0);
    }
}

#[test]
fn every_type_has_its_topic() {
    let mut sink = Memory::new();
    let day = GenerateArgs { hours: 24, ..to_kafka() };
    sent(&day, &["a", "b", "c"], &mut sink).unwrap();
    let mut topic_of = BTreeMap::new();
    for (topic, _, event) in sink.messages {
        topic_of.entry(event.payload.kind()).or_insert_with(|| topic.clone());
        assert_eq!(topic_of[&event.payload.kind()], topic);
    }
    let expected = EventKind::ALL.into_iter().zip(["a", "b", "c"].into_iter().cycle());
    assert_eq!(topic_of, expected.map(|(kind, topic)| (kind, topic.to_owned())).collect());
}

#[test]
fn a_sink_that_fails_ends_the_run() {
    let mut sink = Memory { room: 10, ..Memory::new() };
    let failure = sent(&to_kafka(), &["events"], &mut sink).unwrap_err();
    assert_eq!(failure.to_string(), "Kafka is unavailable");
    assert_eq!((sink.messages.len(), sink.flushed), (10, 0));
}

#[test]
fn no_more_is_sent_in_a_second_than_asked_for() {
    for rate in [7, 100, 3_000, 250_000] {
        let start = Instant::now();
        let (mut now, mut pace) = (start, Pace::new(Some(rate), start));
        let events = rate * 3;
        for _ in 0..events {
            now += pace.wait(now) + Duration::from_nanos(100);
        }
        let (took, near) = (now - start, Duration::from_millis(200));
        assert!(took.abs_diff(Duration::from_secs(3)) < near, "{events} at {rate}/s in {took:?}");
    }
}

#[test]
fn time_lost_to_a_slow_broker_is_not_made_up_in_a_burst() {
    let start = Instant::now();
    let mut pace = Pace::new(Some(1_000), start);
    pace.wait(start);
    let late = start + Duration::from_secs(60);
    let at_once = (0..1_000).take_while(|_| pace.wait(late).is_zero()).count();
    assert!((100..110).contains(&at_once), "{at_once} events at once");
}

#[test]
fn without_a_rate_nothing_waits() {
    let mut pace = Pace::new(None, Instant::now());
    assert!((0..1_000).all(|_| pace.wait(Instant::now()).is_zero()));
}
