//! The settings of a topic.

use prorata_worker::source::SourceError;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::kafka::client::context::Watch;
use crate::kafka::client::failure;
use crate::kafka::client::settings::Connection;

/// Returns the value of a topic's setting; `None` if it has no value or this client may not read it.
///
/// # Errors
/// [`SourceError::Unavailable`] if no answer comes in time, [`SourceError::Configuration`] if no later
/// attempt can succeed.
pub async fn topic_setting(
    connection: &Connection,
    topic: &str,
    setting: &str,
) -> Result<Option<String>, SourceError> {
    let admin: AdminClient<Watch> = connection
        .client()?
        .create_with_context(Watch::new(connection))
        .map_err(|error| failure::creation(&error))?;
    let options = AdminOptions::new().request_timeout(Some(connection.timeout));
    let asked = admin.describe_configs([&ResourceSpecifier::Topic(topic)], &options).await;
    let failed = |code: Code| match code {
        // Most users of a topic do not need the permission to describe it.
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => Ok(None),
        code => Err(failure::at_start(connection, code, &format!("topic {topic}: {code}"))),
    };
    match asked.map(|found| found.into_iter().next()) {
        Err(error) => failed(error.rdkafka_error_code().unwrap_or(Code::Unknown)),
        Ok(Some(Err(code))) => failed(code),
        Ok(None) => Ok(None),
        Ok(Some(Ok(found))) => Ok(found.get(setting).and_then(|entry| entry.value.clone())),
    }
}
