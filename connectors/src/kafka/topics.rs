//! Making topics.

use prorata_worker::source::SourceError;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::RDKafkaErrorCode as Code;

use super::context::Watch;
use super::failure;
use super::settings::{Connection, wrong};

/// Creates topics; those that are there stay as they are.
///
/// # Errors
/// When a topic cannot be created, or no broker answers in time.
pub async fn create_topics(
    connection: &Connection,
    names: &[&str],
    partitions: i32,
    replication: i32,
) -> Result<(), SourceError> {
    let config = connection.client()?;
    let admin = AdminClient::from_config_and_context(&config, Watch::new(connection));
    let admin = admin.map_err(|error| failure::creation(&error))?;
    let topics: Vec<NewTopic<'_>> = names
        .iter()
        .map(|name| NewTopic::new(name, partitions, TopicReplication::Fixed(replication)))
        .collect();
    let timeout = Some(connection.timeout);
    let options = AdminOptions::new().request_timeout(timeout).operation_timeout(timeout);
    let created = admin.create_topics(&topics, &options).await.map_err(|error| {
        let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
        failure::at_start(connection, code, &error.to_string())
    })?;
    for topic in created {
        match topic {
            Ok(_) | Err((_, Code::TopicAlreadyExists)) => {}
            Err((name, code)) => return Err(wrong(format!("topic {name} cannot be created: {code}"))),
        }
    }
    Ok(())
}
