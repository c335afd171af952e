//! Conformance of the source, on real Kafka.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use prorata_connectors::kafka::KafkaSource;
use prorata_schemas::Text;
use prorata_testkit::conformance::Harness;
use prorata_testkit::conformance::source::{SourcePlace, source};
use prorata_testkit::wait::{Deadline, PATIENCE, eventually_async};
use prorata_worker::names::Shard;
use prorata_worker::source::{Message, Source};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::reading::delete_before;
use crate::{producer, settings, variable};

struct Real {
    places: AtomicU64,
}

struct Topics {
    /// Prefix of the names of the topics, and name of the group that reads them.
    name: String,
    producer: BaseProducer,
    client: BaseConsumer,
}

#[async_trait(?Send)]
impl Harness for Real {
    type Place = dyn SourcePlace;

    async fn place(&self) -> Result<Box<dyn SourcePlace>, String> {
        let name = format!("contract-{}", self.places.fetch_add(1, Ordering::Relaxed));
        let client = config().create().map_err(text)?;
        Ok(Box::new(Topics { name, producer: producer(&[("linger.ms", "0")]), client }))
    }
}

fn config() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", variable("PRORATA_TEST_KAFKA"));
    config
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[async_trait(?Send)]
impl SourcePlace for Topics {
    async fn create_topic(&self, name: &str, partitions: Shard) -> Result<Text, String> {
        let name = format!("{}-{name}", self.name);
        let admin: AdminClient<DefaultClientContext> = config().create().map_err(text)?;
        // The suite's messages are older than the brokers' default retention.
        let topic =
            NewTopic::new(&name, partitions.into(), TopicReplication::Fixed(1)).set("retention.ms", "-1");
        let created = admin.create_topics([&topic], &AdminOptions::new()).await.map_err(text)?;
        created.into_iter().try_for_each(|one| one.map(drop).map_err(|(_, code)| text(code)))?;
        Ok(name.into())
    }

    async fn produce(&self, message: Message) -> Result<i64, String> {
        let mut record = BaseRecord::to(&message.topic)
            .partition(message.partition.into())
            .timestamp(message.timestamp_millis)
            .headers(message.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                headers.insert(Header { key, value: value.as_ref() })
            }));
        record.key = message.key.as_deref();
        record.payload = message.value.as_deref();
        self.producer.send(record).map_err(|(error, _)| text(error))?;
        // Flushing would wait for a tenth of a second at a time.
        let deadline = Deadline::start();
        while self.producer.in_flight_count() > 0 && !deadline.passed() {
            self.producer.poll(Duration::from_millis(1));
        }
        Ok(self.end(&message.topic, message.partition).await? - 1)
    }

    async fn skip_offsets(&self, topic: &Text, partition: Shard) -> Result<bool, String> {
        let producer = producer(&[("transactional.id", &format!("{topic}-{partition}"))]);
        producer.init_transactions(PATIENCE).map_err(text)?;
        producer.begin_transaction().map_err(text)?;
        let record = BaseRecord::to(topic).partition(partition.into()).key("key").payload("aborted");
        producer.send(record).map_err(|(error, _)| text(error))?;
        producer.flush(PATIENCE).map_err(text)?;
        producer.abort_transaction(PATIENCE).map_err(text)?;
        // The marker is written a moment later.
        let all: BaseConsumer = config().set("isolation.level", "read_uncommitted").create().map_err(text)?;
        eventually_async("the marker of an aborted transaction is written", async || {
            let (_, high) = all.fetch_watermarks(topic, partition.into(), PATIENCE).map_err(text)?;
            let end = self.end(topic, partition).await?;
            if end == high { Ok(()) } else { Err(format!("the end is {end} of {high}")) }
        })
        .await;
        Ok(true)
    }

    async fn delete_before(&self, topic: &Text, partition: Shard, offset: i64) -> Result<(), String> {
        delete_before(topic, partition.into(), offset).await;
        Ok(())
    }

    async fn end(&self, topic: &Text, partition: Shard) -> Result<i64, String> {
        self.client.fetch_watermarks(topic, partition.into(), PATIENCE).map(|(_, high)| high).map_err(text)
    }

    async fn member(&self, name: &str, topics: &[Text]) -> Result<Box<dyn Source>, String> {
        let mut settings = settings(&topics.iter().map(|topic| &**topic).collect::<Vec<_>>());
        settings.group.clone_from(&self.name);
        settings.instance = Some(name.into());
        // The group waits this long for a member that has left.
        settings.session_timeout = Duration::from_secs(3);
        KafkaSource::connect(settings).await.map(|source| Box::new(source) as Box<dyn Source>).map_err(text)
    }

    fn polls_max(&self) -> Option<u32> {
        None
    }

    fn silence(&self) -> u32 {
        15
    }

    async fn expire(&self, _: &str) -> Result<bool, String> {
        // A member lives however rarely it is polled, and a member that was declared dead joins again on its
        // own.
        Ok(false)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_kafka_keeps_the_promises_of_a_source() {
    let left_out = source(&Real { places: AtomicU64::new(0) }).await.unwrap();
    assert_eq!(left_out, ["members whose session ends"]);
}
