//! A tenant that may write to a topic sends one hostile input after another. Its own shard may stop. The
//! other shards close their hours meanwhile, and the worker reports what happened.

use std::path::Path;

use prorata_connectors::archive::write_events;
use prorata_connectors::messages::MessageEncoder;
use prorata_connectors::registry::{Registry, Settings};
use prorata_samples::trace::{node, pod};
use prorata_schemas::avsc;
use prorata_schemas::body::encode;
use prorata_schemas::event::{Event, EventKind, EventRecord, Payload};
use prorata_schemas::time::{Hour, Timestamp};
use prorata_testkit::wait::{PATIENCE, eventually};
use prorata_tests::registry::fake::{self, Fake, Reply, Request};
use prorata_tests::registry::producer::framed;
use prorata_worker::root::Root;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::{Value, json};

use crate::world::topics::client;
use crate::world::worker::Worker;
use crate::world::{SHARDS, World};

/// The tenant.
const EVIL: &str = "evil";

/// First of the ids to which the registry gives odd answers.
const ODD: u32 = 500_000;

/// First of the ids of the schemas in the fuzz target's corpus.
const CORPUS: u32 = 600_000;

/// The id of a recursive schema.
const LIST: u32 = 700_000;

/// First of the unknown ids of a flood, and their number.
const UNKNOWN: u32 = 800_000;
const FLOOD: u32 = 2_000;

const MIB: usize = 1 << 20;

/// Messages that are sent together, and the codec of their batches.
struct Input {
    name: &'static str,
    messages: Vec<(String, Vec<u8>)>,
    codec: &'static str,
}

fn input(name: &'static str, values: impl IntoIterator<Item = Vec<u8>>) -> Input {
    let messages = values.into_iter().map(|value| (EVIL.to_owned(), value)).collect();
    Input { name, messages, codec: "none" }
}

/// Returns the registry's replies to odd ids. The last reply never comes.
fn odd() -> [Reply; 6] {
    [
        Reply::error(403, 40301, "User is denied Read"),
        Reply::error(500, 50001, "Error in the backend data store"),
        Reply::json(200, json!({ "schema": 7 })),
        Reply::typed(200, "text/html", "<html>log in</html>"),
        Reply { cut: Some(5), ..Reply::json(200, json!({ "schema": "x" })) },
        Reply { delay: PATIENCE, ..Reply::json(200, "{}") },
    ]
}

/// Returns the hostile schemas of the fuzz corpus.
fn corpus() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/corpus/schema");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned()).collect()
}

/// Returns our schema with a list in front, whose length the message sets.
fn list() -> String {
    let mut schema: Value = serde_json::from_str(avsc(EventKind::NodeStopped)).unwrap();
    let next = json!([{ "name": "next", "type": ["null", "L"] }]);
    let list = json!({ "name": "list", "type": { "type": "record", "name": "L", "fields": next } });
    schema["fields"].as_array_mut().unwrap().insert(0, list);
    schema.to_string()
}

fn registry() -> Fake {
    let (ours, odd, corpus) = (fake::registry(), odd(), corpus());
    Fake::answering(move |request: &Request| {
        if request.path == "/schemas/types" {
            return Reply::json(200, json!(["AVRO"]));
        }
        let id = request.path.strip_prefix("/schemas/ids/");
        let id = id.and_then(|id| id.split('?').next()?.parse::<u32>().ok()).unwrap_or_default();
        let of = |first: u32| id.checked_sub(first).map(|at| at as usize);
        let schema = |text: &str| Reply::json(200, json!({ "schema": text }));
        if id == LIST {
            schema(&list())
        } else if let Some(text) = of(CORPUS).and_then(|at| corpus.get(at)) {
            schema(text)
        } else if let Some(reply) = of(ODD).and_then(|at| odd.get(at)) {
            reply.clone()
        } else {
            ours(request)
        }
    })
}

/// Returns an organization of a shard.
fn organization_of(shard: u16, name: &str) -> String {
    let root = Root::new(SHARDS);
    (0..).map(|number| format!("{name}-{number}")).find(|name| root.shard_of(name) == shard).unwrap()
}

struct Hostile<'a> {
    encoder: &'a MessageEncoder,
    now: Timestamp,
    partition: u16,
}

impl Hostile<'_> {
    fn message(&self, mut record: EventRecord, change: impl FnOnce(&mut Event)) -> Vec<u8> {
        record.event.event_time = self.now;
        change(&mut record.event);
        self.encoder.encode(record.event.payload.kind(), &encode(&record.event))
    }

    fn named(&self, bytes: usize) -> Vec<u8> {
        self.message(pod(EVIL, 0, "pod", 1), |event| {
            let Payload::PodStarted(pod) = &mut event.payload else { unreachable!() };
            pod.namespace = "n".repeat(bytes).as_str().into();
        })
    }

    /// Returns inputs whose messages all become dead letters.
    fn inputs(&self) -> Vec<Input> {
        let good = || self.message(node(EVIL, 0, 1), |_| {});
        let at = |time: Timestamp| self.message(node(EVIL, 0, 1), |event| event.event_time = time);
        let stranger = organization_of(self.partition, "stranger");
        let foreign = self.message(node(&stranger, 0, 1), |_| {});
        let ids = |first: u32, count: usize| (first..).take(count).map(|id| framed(id, &[1]));
        let cut = good().len() - 1;
        let huge = [&good()[..5], &[0xff; 9], &[1]].concat();
        let malformed =
            [Vec::new(), b"{}".to_vec(), good()[..cut].to_vec(), [good(), vec![0]].concat(), huge];
        vec![
            input("malformed bodies", malformed),
            input("events of other times", [at(Timestamp(self.now.0 + 3 * 3_600_000_000)), at(Timestamp(0))]),
            input("long names", [self.named(1_025), self.named(MIB / 2)]),
            Input { messages: vec![(stranger, foreign)], ..input("a foreign organization", []) },
            input("deep nesting", [framed(LIST, &[2; 900_000])]),
            input("schemas of writers", ids(CORPUS, corpus().len())),
            input("odd answers of the registry", ids(ODD, odd().len())),
            input("a flood of unknown schemas", ids(UNKNOWN, FLOOD as usize)),
            Input { codec: "gzip", ..input("a batch that unpacks to much", [vec![0; 8 * MIB]]) },
        ]
    }

    /// Returns a batch that unpacks to more bytes than a client accepts.
    fn bomb() -> Input {
        Input { codec: "zstd", ..input("a batch that does not unpack", [vec![0; 110 * MIB]]) }
    }

    fn send(&self, topic: &str, input: &Input) {
        let producer: BaseProducer = client()
            .set("message.max.bytes", "1000000000")
            .set("queue.buffering.max.kbytes", "2000000")
            .set("compression.type", input.codec)
            .set("enable.idempotence", "true")
            .create()
            .unwrap();
        for (key, value) in &input.messages {
            let record = BaseRecord::to(topic).partition(self.partition.into()).key(key).payload(value);
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(PATIENCE).unwrap();
        assert_eq!(producer.in_flight_count(), 0, "{}", input.name);
    }
}

/// The organizations of the other shards. One node of each organization starts again every hour.
struct Others {
    organizations: Vec<(u16, String)>,
    sent: Vec<EventRecord>,
    next: Hour,
}

impl Others {
    fn new(evil: u16, first: Hour) -> Self {
        let shards = (0..SHARDS).filter(|shard| *shard != evil);
        let organizations = shards.map(|shard| (shard, organization_of(shard, "good"))).collect();
        Self { organizations, sent: Vec::new(), next: first }
    }

    /// Sends the events of the next hour.
    fn send(&mut self, topic: &str, encoder: &MessageEncoder) {
        let producer: BaseProducer = client().create().unwrap();
        for (shard, organization) in &self.organizations {
            let mut record = node(organization, 0, 1);
            record.event.event_time = Timestamp(self.next.start().0 + 60_000_000);
            let value = encoder.encode(EventKind::NodeStarted, &encode(&record.event));
            let to = BaseRecord::to(topic).partition((*shard).into()).key(organization).payload(&value);
            producer.send(to).map_err(|(error, _)| error).unwrap();
            self.sent.push(record);
        }
        producer.flush(PATIENCE).unwrap();
        self.next = Hour(self.next.0 + 1);
    }

    /// Returns the last hour that closes with the events sent so far.
    fn closed(&self) -> Hour {
        Hour(self.next.0 - 2)
    }

    /// Waits until the other shards have closed this hour. Probes are answered meanwhile.
    fn close(&self, worker: &mut Worker, meanwhile: &str) {
        let wanted = self.closed().to_string();
        eventually(&format!("the other shards close {wanted} next to {meanwhile}"), || {
            assert_eq!(worker.get("/livez").map(|(code, _)| code), Some(200), "{meanwhile}");
            let status = worker.status();
            let closed = |shard: u16| {
                let shards = status["shards"].as_array().unwrap();
                let found = shards.iter().find(|found| found["shard"] == shard);
                found.is_some_and(|found| found["closed_through"].as_str() >= Some(&*wanted))
            };
            let behind: Vec<u16> =
                self.organizations.iter().map(|(shard, _)| *shard).filter(|shard| !closed(*shard)).collect();
            if behind.is_empty() { Ok(()) } else { Err(format!("shards {behind:?} have not: {status}")) }
        });
    }

    /// Writes all sent events into a file of a folder.
    fn write(&self, folder: &Path) {
        let bodies: Vec<Vec<u8>> = self.sent.iter().map(|record| encode(&record.event)).collect();
        let bodies: Vec<_> = bodies.iter().map(|body| (EventKind::NodeStarted, body.as_slice())).collect();
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("good.avro"), write_events(&bodies).unwrap()).unwrap();
    }
}

/// Waits until this many messages are dead letters, according to both status and metrics.
fn rejected(worker: &mut Worker, count: u64, input: &str) {
    eventually(&format!("{input}: dead letters"), || {
        let status = worker.status();
        let counts = status["counts"]["dead_letters"].as_object().unwrap();
        let found: u64 = counts.values().map(|count| count.as_u64().unwrap()).sum();
        let metric = worker.counter("dead_letters");
        if (found, metric) == (count, count) {
            return Ok(());
        }
        assert!(found <= count, "{input}: {counts:?}");
        Err(format!("{found} of {count}, {metric} by metrics: {status}{}", worker.program.tail()))
    });
}

#[test]
fn hostile_inputs_stop_no_other_shard_and_are_reported() {
    let mut world = World::new("hostile");
    let registry = registry();
    world.set("registry.url", json!(registry.url()));
    world.set("registry.timeout", json!("2s"));
    // Only events close hours, one after another.
    world.set("work.max_watermark_hold", json!("48h"));
    let mut topics = json!(world.topics);
    topics[0] = json!({ "name": world.topics[0], "organizations": [EVIL, "good-*"] });
    world.set("kafka.topics", topics);
    let topic = world.topics[0].clone();
    let client = Registry::new(&Settings { url: registry.url(), ..Settings::default() }).unwrap();
    let encoder = &world.runtime.block_on(MessageEncoder::registered(&client)).unwrap();
    let partition = Root::new(SHARDS).shard_of(EVIL);
    let hostile = Hostile { encoder, now: Timestamp(world.now.start().0 - 60_000_000), partition };
    let inputs = hostile.inputs();
    // There is one hour before the first input, one for each input, and two for the batch that stops the
    // shard.
    let first = Hour(world.now.0 - 4 - i64::try_from(inputs.len()).unwrap());
    let mut others = Others::new(partition, first);

    let mut worker = world.worker();
    worker.ready();
    others.send(&topic, encoder);
    let mut letters = 0;
    for input in &inputs {
        hostile.send(&topic, input);
        others.send(&topic, encoder);
        others.close(&mut worker, input.name);
        letters += input.messages.len() as u64;
        rejected(&mut worker, letters, input.name);
    }
    assert_eq!(worker.stopped_shards(), Vec::<String>::new());

    let bomb = Hostile::bomb();
    hostile.send(&topic, &bomb);
    others.send(&topic, encoder);
    others.close(&mut worker, bomb.name);
    let place = format!("unreadable: topic {topic}, partition {partition}, offset {letters}");
    eventually("the shard is stopped", || match &worker.stopped_shards()[..] {
        [message] if message.contains(&place) => Ok(()),
        other => Err(format!("{other:?}{}", worker.program.tail())),
    });
    let stopped = format!("prorata_shard_stopped{{shard=\"{partition}\",reason=\"unreadable\"}} 1");
    let (_, metrics) = worker.get("/metrics").unwrap();
    assert!(metrics.lines().any(|line| line.starts_with(&stopped)), "{metrics}");
    others.send(&topic, encoder);
    others.close(&mut worker, "a shard that is stopped");
    assert_eq!((worker.counter("dead_letters"), worker.counter("late_events")), (letters, 0));
    let through = others.closed();
    worker.stops_loudly(&[&place]);

    let folder = world.folder.path().join("good");
    others.write(&folder);
    let expected = world.backfill(folder.to_str().unwrap(), "expected");
    world.lake().assert_equals(&expected, through);
}
