//! Events that a test sends one by one, or writes into files.

use prorata_connectors::archive::write_events;
use prorata_connectors::messages::MessageEncoder;
use prorata_connectors::registry::{Registry, Settings};
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_testkit::wait::PATIENCE;
use prorata_worker::root::Root;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::topics::client;
use super::{SHARDS, World, variable};

/// Writes a folder with these events.
pub fn write<'a>(world: &World, name: &str, events: impl IntoIterator<Item = &'a EventRecord>) -> String {
    let folder = world.folder.path().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let body = |record: &'a EventRecord| (record.event.payload.kind(), &*record.body);
    let bodies: Vec<(EventKind, &[u8])> = events.into_iter().map(body).collect();
    std::fs::write(folder.join("events.avro"), write_events(&bodies).unwrap()).unwrap();
    folder.to_str().unwrap().to_owned()
}

/// Sends messages to the world's first topic as a producer does.
pub struct Sender {
    encoder: MessageEncoder,
    producer: BaseProducer,
    topic: String,
}

impl Sender {
    /// Registers our schemas. Also returns the registry.
    pub fn new(world: &World) -> (Self, Registry) {
        let settings = Settings { url: variable("PRORATA_TEST_REGISTRY"), ..Settings::default() };
        let registry = Registry::new(&settings).unwrap();
        let encoder = world.runtime.block_on(MessageEncoder::registered(&registry)).unwrap();
        (Self { encoder, producer: client().create().unwrap(), topic: world.topics[0].clone() }, registry)
    }

    /// Sends a value under a key to the partition of an organization.
    pub fn send(&self, organization: &str, key: &str, value: &[u8]) {
        let partition = Root::new(SHARDS).shard_of(organization);
        let record = BaseRecord::to(&self.topic).partition(partition.into()).key(key).payload(value);
        self.producer.send(record).map_err(|(error, _)| error).unwrap();
        self.producer.flush(PATIENCE).unwrap();
    }

    /// Sends an event under a key to the partition of its organization.
    pub fn event(&self, key: &str, record: &EventRecord) {
        let value = self.encoder.encode(record.event.payload.kind(), &record.body);
        self.send(&record.event.organization_id, key, &value);
    }
}
