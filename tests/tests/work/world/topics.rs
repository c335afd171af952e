//! Changes topics as administrators of Kafka do, and reads them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prorata_connectors::messages::SingleObjectMessages;
use prorata_schemas::event::EventRecord;
use prorata_testkit::wait::{PATIENCE, eventually};
use prorata_worker::names::Shard;
use prorata_worker::source::MessageDecoder;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::runtime::Runtime;

use super::{SHARDS, World, variable};

/// Offsets by topic and partition.
pub type Offsets = BTreeMap<(String, Shard), i64>;

/// A client of the test's brokers.
pub fn client() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", variable("PRORATA_TEST_KAFKA"));
    config
}

/// An administrator.
pub struct Admin {
    client: AdminClient<DefaultClientContext>,
    consumer: BaseConsumer,
    runtime: Arc<Runtime>,
}

impl Admin {
    /// An administrator of a world's brokers.
    pub fn new(world: &World) -> Self {
        let mut config = client();
        config.set("group.id", format!("{}-admin", world.name)).set("auto.offset.reset", "error");
        let consumer = config.create().unwrap();
        Self { client: client().create().unwrap(), consumer, runtime: Arc::clone(&world.runtime) }
    }

    fn options() -> AdminOptions {
        AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
    }

    /// Returns the state of a consumer group, as its coordinator names it, and the number of members.
    pub fn group(&self, name: &str) -> (String, usize) {
        let groups = self.consumer.fetch_group_list(Some(name), PATIENCE).unwrap();
        let group = groups.groups().iter().find(|group| group.name() == name);
        group.map_or_else(Default::default, |group| (group.state().to_owned(), group.members().len()))
    }

    /// Returns the earliest offset and the end of each partition of these topics.
    pub fn ranges(&self, topics: &[String]) -> (Offsets, Offsets) {
        let (mut earliest, mut ends) = (Offsets::new(), Offsets::new());
        for topic in topics {
            for shard in 0..SHARDS {
                let (low, high) = eventually("where a partition begins and ends", || {
                    let range = self.consumer.fetch_watermarks(topic, i32::from(shard), PATIENCE);
                    range.map_err(|error| error.to_string())
                });
                earliest.insert((topic.clone(), shard), low);
                ends.insert((topic.clone(), shard), high);
            }
        }
        (earliest, ends)
    }

    /// Deletes the records before these offsets.
    pub fn delete_before(&self, offsets: &Offsets) {
        let mut list = TopicPartitionList::new();
        for ((topic, shard), offset) in offsets {
            list.add_partition_offset(topic, i32::from(*shard), Offset::Offset(*offset)).unwrap();
        }
        let deleted = self.runtime.block_on(self.client.delete_records(&list, &Self::options())).unwrap();
        for element in deleted.elements() {
            element.error().unwrap();
            let shard = Shard::try_from(element.partition()).unwrap();
            let wanted = offsets[&(element.topic().to_owned(), shard)];
            assert_eq!(element.offset(), Offset::Offset(wanted), "{} {shard}", element.topic());
        }
    }

    /// Deletes a topic, and creates an empty topic with the same name.
    pub fn recreate(&self, world: &World, topic: &str) {
        let deleted = self.client.delete_topics(&[topic], &Self::options());
        for deleted in self.runtime.block_on(deleted).unwrap() {
            deleted.unwrap();
        }
        let partitions = || {
            let metadata = self.consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            found.filter(|found| found.error().is_none()).map_or(0, |found| found.partitions().len())
        };
        let there = |wanted: usize| {
            eventually("the brokers know of it", || match partitions() {
                count if count == wanted => Ok(()),
                count => Err(format!("{topic} has {count} partitions")),
            });
        };
        there(0);
        world.create(&[topic.to_owned()], SHARDS);
        there(usize::from(SHARDS));
        let (_, ends) = self.ranges(&[topic.to_owned()]);
        assert!(ends.values().all(|end| *end == 0), "{ends:?}");
    }

    /// Gives a topic more partitions.
    pub fn widen(&self, topic: &str, partitions: u16) {
        let (wanted, options) = ([NewPartitions::new(topic, usize::from(partitions))], Self::options());
        for widened in self.runtime.block_on(self.client.create_partitions(&wanted, &options)).unwrap() {
            widened.unwrap();
        }
        eventually("the brokers know of it", || {
            let metadata = self.consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
            match metadata.topics()[0].partitions().len() {
                count if count == usize::from(partitions) => Ok(()),
                count => Err(format!("{topic} has {count} partitions")),
            }
        });
    }

    /// Passes every record of the topics to `visit`.
    pub fn read(&self, topics: &[String], mut visit: impl FnMut(&BorrowedMessage<'_>)) {
        let (earliest, ends) = self.ranges(topics);
        for ((topic, shard), end) in &ends {
            let mut next = earliest[&(topic.clone(), *shard)];
            let mut list = TopicPartitionList::new();
            list.add_partition_offset(topic, i32::from(*shard), Offset::Offset(next)).unwrap();
            self.consumer.assign(&list).unwrap();
            eventually("the records of a partition", || {
                while next < *end {
                    let waiting = || format!("{topic} {shard} is read up to {next} of {end}");
                    let message =
                        self.consumer.poll(Duration::from_millis(100)).ok_or_else(waiting)?.unwrap();
                    if message.topic() == topic && message.partition() == i32::from(*shard) {
                        next = message.offset() + 1;
                        visit(&message);
                    }
                }
                Ok::<(), String>(())
            });
        }
    }

    /// Returns the events of topics whose messages need no registry.
    pub fn events(&self, topics: &[String]) -> Vec<EventRecord> {
        let decoder = SingleObjectMessages::new().unwrap();
        let mut events = Vec::new();
        self.read(topics, |message| {
            events.push(decoder.decode(message.payload().unwrap()).unwrap().into_owned());
        });
        events
    }
}
