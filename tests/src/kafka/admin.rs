//! Creates topics on real brokers.

use std::time::Duration;

use prorata_testkit::wait::{PATIENCE, eventually};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode as Code;

/// Creates topics; existing topics stay as they are.
pub async fn create_topics(brokers: &str, names: &[&str], partitions: i32, replication: i32) {
    create(brokers, names, (partitions, replication), "delete").await;
}

/// Creates topics that keep the last message of each key.
pub async fn create_compacted_topics(brokers: &str, names: &[&str], partitions: i32, replication: i32) {
    create(brokers, names, (partitions, replication), "compact").await;
}

async fn create(brokers: &str, names: &[&str], (partitions, replication): (i32, i32), policy: &str) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let new = |name| {
        NewTopic::new(name, partitions, TopicReplication::Fixed(replication)).set("cleanup.policy", policy)
    };
    let topics: Vec<NewTopic<'_>> = names.iter().copied().map(new).collect();
    let options = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
    for created in admin.create_topics(&topics, &options).await.unwrap() {
        assert!(matches!(created, Ok(_) | Err((_, Code::TopicAlreadyExists))), "{created:?}");
    }
    brokers.split(',').for_each(|broker| wait_until_known(broker, names));
}

/// Waits until a broker knows the topics. Brokers learn of new topics one after another.
fn wait_until_known(broker: &str, names: &[&str]) {
    // A client that knows one broker asks that broker.
    let client: BaseConsumer = ClientConfig::new().set("bootstrap.servers", broker).create().unwrap();
    for name in names {
        eventually("the broker knows the topic", || {
            let answer = client.fetch_metadata(Some(name), Duration::from_secs(5));
            let metadata = answer.map_err(|error| error.to_string())?;
            match metadata.topics().first() {
                Some(topic) if topic.error().is_none() => Ok(()),
                other => Err(format!("{broker}, topic {name}: {:?}", other.and_then(|topic| topic.error()))),
            }
        });
    }
}
