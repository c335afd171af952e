//! Sends messages that cannot become events: none is lost, none stops a shard, and none reaches the tables.

use std::collections::BTreeMap;
use std::time::Duration;

use prorata_connectors::archive::read_dead_letters;
use prorata_connectors::messages::MessageEncoder;
use prorata_connectors::registry::{Registry, Settings};
use prorata_schemas::body::encode;
use prorata_schemas::event::{Event, NodeStopped, Payload, PodUsage, RateSet};
use prorata_schemas::reject::Reason;
use prorata_schemas::time::{Hour, Timestamp};
use prorata_testkit::wait::eventually;
use prorata_worker::names::DEAD_LETTERS;
use prorata_worker::ports::Origin;
use prorata_worker::root::Root;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{Value, json};

use super::world::topics::client;
use super::world::{Load, SHARDS, World, variable};

const ORGANIZATION: &str = "letters";

/// An organization that the topic may not contain.
const FOREIGN: &str = "stranger";

/// Age of the organization's history in hours: beyond the horizon.
const OLD_HOURS: i64 = 36 * 24;

/// A sent message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sent {
    partition: i32,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

/// A report of a dead letter. The number in the headers of the message identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeadLetter {
    reason: String,
    partition: String,
    offset: i64,
    key: Option<Vec<u8>>,
    bytes: Vec<u8>,
    own_headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Makes bad messages for every reason.
struct Bad {
    encoder: MessageEncoder,
    partition: u16,
    now: Timestamp,
}

impl Bad {
    fn event(&self, time: Timestamp, payload: Payload) -> Vec<u8> {
        self.event_of(ORGANIZATION, time, payload)
    }

    fn event_of(&self, organization: &str, time: Timestamp, payload: Payload) -> Vec<u8> {
        let kind = payload.kind();
        let event = Event::new(organization.into(), time, payload);
        self.encoder.encode(kind, &encode(&event))
    }

    fn foreign(&self) -> Sent {
        let stopped = NodeStopped { cluster_id: "cluster".into(), node_id: "node".into() };
        let value = self.event_of(FOREIGN, self.now, Payload::NodeStopped(stopped));
        let partition = Root::new(SHARDS).shard_of(FOREIGN).into();
        Sent { partition, key: Some(FOREIGN.as_bytes().to_vec()), value: Some(value) }
    }

    fn good(&self, time: Timestamp) -> Vec<u8> {
        let stopped = NodeStopped { cluster_id: "cluster".into(), node_id: "node".into() };
        self.event(time, Payload::NodeStopped(stopped))
    }

    /// Returns a message to the right partition with the right key.
    fn sent(&self, value: Vec<u8>) -> Sent {
        let key = Some(ORGANIZATION.as_bytes().to_vec());
        Sent { partition: self.partition.into(), key, value: Some(value) }
    }

    fn rate(&self, currency: &str) -> Vec<u8> {
        let rate = RateSet {
            provider: "aws".into(),
            region: "eu".into(),
            gpu_model: None,
            qos: "default".into(),
            per_vcpu_hour: 1.into(),
            per_gib_hour: 1.into(),
            per_gpu_hour: 1.into(),
            currency: currency.into(),
        };
        self.event(self.now, Payload::RateSet(Box::new(rate)))
    }

    fn usage(&self, interval_end: Timestamp) -> Vec<u8> {
        let usage = PodUsage {
            pod_uid: "pod".into(),
            interval_end,
            cpu_millis: 1,
            memory_bytes: 1,
            gpu_millis: 0,
            gpu_memory_bytes: None,
        };
        self.event(self.now, Payload::PodUsage(usage))
    }

    fn all(&self, foreign_schema: u32) -> Vec<(Reason, Sent)> {
        let good = || self.good(self.now);
        let with_schema = |id: u32| [&[0][..], &id.to_be_bytes(), &[2, b'x']].concat();
        let of = |reason, value| (reason, self.sent(value));
        let elsewhere = (self.partition + 1) % SHARDS;
        vec![
            of(Reason::Malformed, Vec::new()),
            of(Reason::Malformed, b"no Avro at all".to_vec()),
            of(Reason::Malformed, good()[..good().len() - 1].to_vec()),
            of(Reason::Malformed, [good(), b"more".to_vec()].concat()),
            (Reason::Malformed, Sent { value: None, ..self.sent(Vec::new()) }),
            of(Reason::UnknownSchema, with_schema(0x7fff_0000)),
            of(Reason::UnknownEvent, with_schema(foreign_schema)),
            of(Reason::InvalidField, self.usage(Timestamp(self.now.0 - 1))),
            (Reason::KeyMismatch, Sent { key: Some(b"another".to_vec()), ..self.sent(good()) }),
            (Reason::KeyMismatch, Sent { key: None, ..self.sent(good()) }),
            (Reason::KeyMismatch, Sent { partition: elsewhere.into(), ..self.sent(good()) }),
            (Reason::ForeignOrganization, self.foreign()),
            of(Reason::CurrencyMismatch, self.rate("EUR")),
            of(Reason::InTheFuture, self.good(Timestamp(self.now.0 + 3 * 3_600_000_000))),
            of(Reason::TooLate, self.good(Hour(self.now.hour().0 - OLD_HOURS - 24).start())),
        ]
    }
}

fn own_headers(number: usize) -> Vec<(String, Option<Vec<u8>>)> {
    vec![("number".into(), Some(number.to_string().into_bytes())), ("empty".into(), None)]
}

/// Sends messages unchanged, each with headers of its own.
fn send(topic: &str, messages: &[Sent]) {
    let producer: BaseProducer = client().create().unwrap();
    for (number, sent) in messages.iter().enumerate() {
        let headers = own_headers(number).into_iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key: &key, value: value.as_ref() })
        });
        let mut record: BaseRecord<'_, Vec<u8>, Vec<u8>> =
            BaseRecord::to(topic).partition(sent.partition).headers(headers);
        record.key = sent.key.as_ref();
        record.payload = sent.value.as_ref();
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(Duration::from_secs(30)).unwrap();
    assert_eq!(producer.in_flight_count(), 0);
}

/// Returns the letters on the topic of dead letters, by number. A letter may occur several times, but every
/// copy is equal.
fn on_topic(topic: &str, count: usize) -> BTreeMap<usize, DeadLetter> {
    let consumer: BaseConsumer = client().set("group.id", topic).create().unwrap();
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
    consumer.assign(&partitions).unwrap();
    let mut found = BTreeMap::new();
    eventually("the topic of dead letters", || {
        while let Some(message) = consumer.poll(Duration::from_millis(500)) {
            let message = message.unwrap();
            let headers = message.headers().unwrap();
            let all: Vec<(String, Option<Vec<u8>>)> = headers
                .iter()
                .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
                .collect();
            let text = |name: &str| -> String {
                let header = all.iter().find(|(key, _)| key == name);
                let value = header.unwrap_or_else(|| panic!("no {name} in {all:?}")).1.clone();
                String::from_utf8(value.unwrap()).unwrap()
            };
            assert!(!text("prorata.message").is_empty() && !text("prorata.version").is_empty());
            assert!(text("prorata.topic").ends_with("-a"), "{}", text("prorata.topic"));
            let dead_letter = DeadLetter {
                reason: text("prorata.reason"),
                partition: text("prorata.partition"),
                offset: text("prorata.offset").parse().unwrap(),
                key: message.key().map(<[u8]>::to_vec),
                bytes: message.payload().unwrap_or_default().to_vec(),
                own_headers: all.iter().filter(|(name, _)| !name.starts_with("prorata.")).cloned().collect(),
            };
            let before = found.insert(text("number").parse().unwrap(), dead_letter.clone());
            assert!(before.is_none_or(|before| before == dead_letter));
        }
        if found.len() == count { Ok(()) } else { Err(format!("has {} of {count} letters", found.len())) }
    });
    found
}

/// Returns the letters in the lake's files by number.
fn in_files(world: &World) -> BTreeMap<usize, DeadLetter> {
    let lake = world.lake();
    let mut found = BTreeMap::new();
    for path in lake.list(DEAD_LETTERS) {
        for letter in read_dead_letters(&*lake.object(&path)).unwrap() {
            let Origin::Message { topic, partition, offset, key, headers, .. } = letter.origin else {
                panic!("{path}: {letter:?}")
            };
            assert_eq!(topic, world.topics[0]);
            let number = headers.iter().find(|(name, _)| name == "number").unwrap().1.clone().unwrap();
            let dead_letter = DeadLetter {
                reason: letter.rejected.reject.reason.code().to_owned(),
                partition: partition.to_string(),
                offset,
                key,
                bytes: letter.rejected.bytes,
                own_headers: headers,
            };
            let number = String::from_utf8(number).unwrap().parse().unwrap();
            assert_eq!(found.insert(number, dead_letter), None, "{path} repeats letter {number}");
        }
    }
    found
}

fn bad(world: &World) -> (Bad, Registry) {
    let settings = Settings { url: variable("PRORATA_TEST_REGISTRY"), ..Settings::default() };
    let registry = Registry::new(&settings).unwrap();
    let encoder = world.runtime.block_on(MessageEncoder::registered(&registry)).unwrap();
    let root = Root::new(SHARDS);
    let now = Timestamp(world.now.start().0 - 60_000_000);
    (Bad { encoder, partition: root.shard_of(ORGANIZATION), now }, registry)
}

#[test]
fn every_bad_message_becomes_a_dead_letter_and_changes_no_table() {
    let mut world = World::new("letters");
    let dead = format!("{}-dead", world.name);
    world.create(std::slice::from_ref(&dead), 1);
    world.set("kafka.dead_letter_topic", json!(dead));
    let mut topics = json!(world.topics);
    topics[0] = json!({ "name": world.topics[0], "organizations": [ORGANIZATION, "org-*"] });
    world.set("kafka.topics", topics);
    let (bad, registry) = bad(&world);
    let other =
        json!({ "type": "record", "name": "letters.Other", "fields": [{ "name": "x", "type": "string" }] });
    let subject = format!("letters.{}", world.name);
    let foreign = world.runtime.block_on(registry.register(&subject, &other.to_string())).unwrap();

    let mut worker = world.worker();
    let old = bad.good(Hour(world.now.0 - OLD_HOURS).start());
    send(&world.topics[0], &[bad.sent(old), bad.sent(bad.good(bad.now))]);
    let messages = 2 + world.send(Load::small(51));
    world.drained(std::slice::from_mut(&mut worker), messages);
    let before = world.lake().files(world.through());
    // The load may arrive after hours that the first two messages closed.
    let late = worker.counter("late_events");

    let sent = bad.all(foreign);
    let values: Vec<Sent> = sent.iter().map(|(_, sent)| sent.clone()).collect();
    send(&world.topics[0], &values);
    let all = messages + i64::try_from(values.len()).unwrap();
    world.drained(std::slice::from_mut(&mut worker), all);
    assert_eq!(worker.counter("dead_letters"), values.len() as u64);
    assert_eq!(worker.counter("late_events"), late);

    let files = in_files(&world);
    assert_eq!(files.len(), sent.len());
    for ((number, dead_letter), (reason, sent)) in files.iter().zip(&sent) {
        assert_eq!(dead_letter.reason, reason.code(), "letter {number}");
        assert_eq!(dead_letter.partition, sent.partition.to_string(), "letter {number}");
        assert_eq!(dead_letter.key, sent.key, "letter {number}");
        assert_eq!(dead_letter.bytes, sent.value.clone().unwrap_or_default(), "letter {number}");
        assert_eq!(dead_letter.own_headers, own_headers(*number));
    }
    assert_eq!(on_topic(&dead, sent.len()), files);
    worker.stop();
    assert_eq!(world.lake().files(world.through()), before);
    listed(&world, &sent);
}

/// Checks that `prorata dead-letters` counts the letters by reason.
fn listed(world: &World, sent: &[(Reason, Sent)]) {
    let config = world.config();
    let listing = world.run(&["dead-letters", "--json", "--config", config.to_str().unwrap()]).succeeded();
    let listing: Value = serde_json::from_str(&listing).unwrap();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (reason, _) in sent {
        *counts.entry(reason.code()).or_default() += 1;
    }
    assert_eq!(counts.len(), Reason::ALL.len(), "a reason has no bad message: {counts:?}");
    let found: BTreeMap<&str, u64> = listing["reasons"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(reason, of)| (reason.as_str(), of["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, counts, "{listing}");
}
