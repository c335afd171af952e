//! Creates topics on real brokers.

use prorata_testkit::wait::PATIENCE;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
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
}
