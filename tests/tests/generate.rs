//! Checks `prorata generate` and `prorata agreements --output kafka` on real Kafka with a real registry. The
//! topics contain the events of the files. The events of an organization are in order and on one partition
//! number.
//!
//! `tests/python/servers.py --kafka 1 --registry` starts the servers, so these tests need the feature
//! `servers`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use prorata_connectors::Secret;
use prorata_connectors::archive::read_events;
use prorata_connectors::messages::{ConfluentMessages, SingleObjectMessages, Times};
use prorata_connectors::registry::{Registry, Settings};
use prorata_schemas::event::{Event, EventRecord};
use prorata_testkit::wait::{Deadline, PATIENCE};
use prorata_tests::kafka::admin;
use prorata_worker::source::{DecodeFailure, MessageDecoder};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

/// Number of partitions of every topic.
const PARTITIONS: i32 = 4;
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run tests/python/servers.py --kafka 1 --registry cargo test ..")
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the path of the program: the binary that `PRORATA_BINARY` names, or else a binary that is built
/// from the working tree.
fn program() -> PathBuf {
    std::env::var_os("PRORATA_BINARY").map_or_else(
        || {
            let build = ["build", "--quiet", "-p", "prorata"];
            assert!(Command::new(env!("CARGO")).args(build).current_dir(root()).status().unwrap().success());
            let profile = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
            profile.with_file_name("debug").join("prorata")
        },
        PathBuf::from,
    )
}

fn run(args: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(program()).args(args).envs(variables.iter().copied()).output().unwrap()
}

fn generate(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let estate = ["generate", "--organizations", "5", "--pods", "8", "--hours", "6", "--seed", "5"];
    let disorder = ["--late-rate", "0.05", "--duplicate-rate", "0.05"];
    run(&[&estate[..], &disorder, args].concat(), variables)
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Checks the exit code. Returns the last line, which says what went wrong.
fn failure(output: &Output, code: i32) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said.lines().last().unwrap().to_owned()
}

/// Returns every organization's events in the order of its files.
fn events_of_files() -> BTreeMap<String, Vec<Event>> {
    let folder = tempfile::tempdir().unwrap();
    succeeded(&generate(&["--output", folder.path().to_str().unwrap(), "--events-per-file", "500"], &[]));
    events_in(folder.path())
}

fn events_in(folder: &Path) -> BTreeMap<String, Vec<Event>> {
    let mut found = BTreeMap::<String, Vec<Event>>::new();
    for organization in std::fs::read_dir(folder).unwrap() {
        let mut files: Vec<PathBuf> = std::fs::read_dir(organization.unwrap().path())
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        for file in files {
            read_events(&mut File::open(file).unwrap(), &mut |_, record| {
                let event = record.unwrap().event.into_owned();
                found.entry(event.organization_id.to_string()).or_default().push(event);
            })
            .unwrap();
        }
    }
    found
}

/// A message as the test read it.
struct Read {
    topic: String,
    partition: i32,
    key: String,
    value: Vec<u8>,
    /// Time at which the message was sent, in milliseconds since 1970.
    millis: i64,
}

/// Reads this many messages of the topics, ordered within each partition.
fn read(topics: &[&str], count: usize) -> Vec<Read> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", variable("PRORATA_TEST_KAFKA")).set("group.id", "none");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut list = TopicPartitionList::new();
    for topic in topics {
        for partition in 0..PARTITIONS {
            list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
    }
    consumer.assign(&list).unwrap();
    let (deadline, mut found) = (Deadline::start(), Vec::new());
    // Waits a moment longer for messages that should not arrive.
    let mut wait = PATIENCE;
    while let Some(message) = consumer.poll(wait) {
        let message = message.unwrap();
        let key = String::from_utf8(message.key().unwrap().to_vec()).unwrap();
        let value = message.payload().unwrap().to_vec();
        let millis = message.timestamp().to_millis().unwrap();
        let (topic, partition) = (message.topic().into(), message.partition());
        found.push(Read { topic, partition, key, value, millis });
        assert!(!deadline.passed(), "{} of {count} messages", found.len());
        if found.len() >= count {
            wait = Duration::from_millis(500);
        }
    }
    assert_eq!(found.len(), count);
    found
}

/// Decodes a value as the worker does. If the decoder needs a schema, fetches it and decodes again.
async fn decoded(messages: &dyn MessageDecoder, value: &[u8]) -> EventRecord {
    if let Err(DecodeFailure::NeedsSchema(id)) = messages.decode(value) {
        messages.fetch(id).await.unwrap();
    }
    messages.decode(value).unwrap().into_owned()
}

async fn topics(names: &[&str]) {
    admin::create_topics(&variable("PRORATA_TEST_KAFKA"), names, PARTITIONS, 1).await;
}

/// Returns the number of events that the program says it sent.
fn count(said: &str) -> usize {
    said.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn several_topics_get_the_events_of_the_files_with_registered_schemas() {
    let names = ["generate-a", "generate-b", "generate-c"];
    topics(&names).await;
    let (brokers, url) = (variable("PRORATA_TEST_KAFKA"), variable("PRORATA_TEST_REGISTRY"));
    let [user, password] = ["PRORATA_TEST_REGISTRY_USER", "PRORATA_TEST_REGISTRY_PASSWORD"]
        .map(|name| std::env::var(name).unwrap_or_default());
    let variables = [
        ("PRORATA_KAFKA__BOOTSTRAP_SERVERS", brokers.as_str()),
        ("PRORATA_REGISTRY__URL", &url),
        ("PRORATA_REGISTRY__USERNAME", &user),
        ("PRORATA_REGISTRY__PASSWORD", &password),
    ];
    let [a, b, c] = names;
    let args = ["--output", "kafka", "--topic", a, "--topic", b, "--topic", c];
    let said = succeeded(&generate(&args, &variables));
    assert!(said.trim_end().ends_with("to generate-a, generate-b, generate-c"), "{said}");

    let password = Secret::new(password);
    let settings = Settings { url, username: user, password, ..Settings::default() };
    let messages = ConfluentMessages::new(Registry::new(&settings).unwrap(), Times::AT_ONCE);
    let (mut partitions, mut events) = (BTreeMap::new(), BTreeMap::new());
    for message in read(&names, count(&said)) {
        let event = decoded(&messages, &message.value).await.event;
        assert_eq!(*message.key, *event.organization_id);
        partitions.entry(message.key.clone()).or_insert_with(BTreeSet::new).insert(message.partition);
        events.entry((message.key, message.topic)).or_insert_with(Vec::new).push(event);
    }
    for (organization, expected) in events_of_files() {
        assert_eq!(partitions[&organization].len(), 1, "{organization}: {partitions:?}");
        for (place, topic) in names.iter().enumerate() {
            let expected =
                expected.iter().filter(|event| event.payload.kind() as usize % names.len() == place);
            let found = events.remove(&(organization.clone(), (*topic).to_owned())).unwrap();
            assert!(found.iter().eq(expected), "{organization} on {topic}");
        }
    }
    assert!(events.is_empty());
    let used: BTreeSet<_> = partitions.values().collect();
    assert!(used.len() > 1, "organizations are spread: {partitions:?}");
}

#[tokio::test]
async fn without_a_registry_messages_say_by_themselves_how_they_were_written() {
    topics(&["generate-single"]).await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prorata.yaml");
    let section = format!(
        "kafka:\n  bootstrap_servers: {}\n  topics: [generate-single, generate-other]\n",
        variable("PRORATA_TEST_KAFKA")
    );
    std::fs::write(&config, section).unwrap();
    let said = succeeded(&generate(
        &["--output", "kafka", "--config", config.to_str().unwrap(), "--rate", "2000"],
        &[],
    ));
    let events = count(&said);
    let messages = SingleObjectMessages::new().unwrap();
    let mut found = BTreeMap::<String, Vec<Event>>::new();
    let read = read(&["generate-single"], events);
    let sent_at = || read.iter().map(|message| message.millis);
    let spread = sent_at().max().unwrap() - sent_at().min().unwrap();
    // A run that is late sends at most a tenth of a second's messages at once, and timers are not exact.
    assert!(spread + 110 >= events as i64 * 1_000 / 2_000, "{events} messages within {spread} ms");
    let decode = |value: &[u8]| messages.decode(value).unwrap().event.into_owned();
    for message in read {
        found.entry(message.key).or_default().push(decode(&message.value));
    }
    assert!(found == events_of_files());
}

/// A reservation and rates; one entry begins in the future.
const AGREEMENTS: &str = include_str!("../../testdata/agreements.yaml");

/// Kafka gets the same events as a file; a second run sends the same bytes again.
#[tokio::test]
async fn agreements_are_sent_as_they_are_written_to_files() {
    let names = ["agreements-a", "agreements-b"];
    topics(&names).await;
    let folder = tempfile::tempdir().unwrap();
    let (file, events) = (folder.path().join("agreements.yaml"), folder.path().join("events"));
    std::fs::write(&file, format!("{AGREEMENTS}recorded_at: 2026-02-01\n")).unwrap();
    std::fs::create_dir(&events).unwrap();
    let agreements = ["agreements", "--file", file.to_str().unwrap(), "--output"];
    succeeded(&run(&[&agreements[..], &[events.to_str().unwrap()]].concat(), &[]));
    let written = events_in(&events).remove("acme").unwrap();

    let brokers = variable("PRORATA_TEST_KAFKA");
    let [a, b] = names;
    let to = ["kafka", "--bootstrap-servers", &brokers, "--topic", a, "--topic", b];
    for _ in 0..2 {
        let said = succeeded(&run(&[&agreements[..], &to].concat(), &[]));
        assert!(said.starts_with("2 events, to agreements-a, agreements-b\n"), "{said}");
        assert!(said.contains("begins at 2126-01-01"), "{said}");
    }
    let messages = SingleObjectMessages::new().unwrap();
    let (mut found, mut places) = (BTreeMap::<String, Vec<Event>>::new(), BTreeSet::new());
    let decode = |value: &[u8]| messages.decode(value).unwrap().event.into_owned();
    for message in read(&names, 2 * written.len()) {
        assert_eq!(message.key, "acme");
        places.insert(message.partition);
        found.entry(message.topic).or_default().push(decode(&message.value));
    }
    assert_eq!(places.len(), 1, "one partition number: {places:?}");
    for (place, topic) in names.iter().enumerate() {
        let of = written.iter().filter(|event| event.payload.kind() as usize % names.len() == place);
        let expected: Vec<Event> = of.cloned().collect();
        assert_eq!(
            found.remove(*topic).unwrap_or_default(),
            [expected.clone(), expected].concat(),
            "{topic}"
        );
    }

    let nowhere = ["kafka", "--bootstrap-servers", &brokers, "--topic", "agreements-nowhere"];
    let message = failure(&run(&[&agreements[..], &nowhere].concat(), &[]), 2);
    assert!(message.contains("has no topic agreements-nowhere"), "{message}");
}

#[tokio::test]
async fn missing_or_different_topics_are_reported_at_once() {
    let brokers = variable("PRORATA_TEST_KAFKA");
    let to = ["--output", "kafka", "--bootstrap-servers", &brokers];
    let message = failure(&generate(&[&to[..], &["--topic", "generate-nowhere"]].concat(), &[]), 2);
    assert!(message.contains("has no topic generate-nowhere: create it, or correct --topic"), "{message}");

    topics(&["generate-four"]).await;
    admin::create_topics(&brokers, &["generate-three"], 3, 1).await;
    let both = ["--topic", "generate-four", "--topic", "generate-three"];
    let message = failure(&generate(&[&to[..], &both].concat(), &[]), 2);
    assert!(message.contains("topic generate-four has 4 partitions and generate-three has 3"), "{message}");
}

#[test]
fn a_broker_that_is_down_is_unavailable() {
    let args = ["--output", "kafka", "--bootstrap-servers", "127.0.0.1:1", "--topic", "events"];
    let message = failure(&generate(&args, &[]), 4);
    assert!(message.contains("Kafka is unavailable: 127.0.0.1:1"), "{message}");
}
