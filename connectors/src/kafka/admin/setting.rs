//! What a topic is set to.

use prorata_worker::source::SourceError;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::kafka::client::context::Watch;
use crate::kafka::client::failure;
use crate::kafka::client::settings::Connection;

/// The value of a topic's setting; none if it has none, or may not be asked for.
///
/// # Errors
/// [`SourceError::Unavailable`] without an answer in time, [`SourceError::Configuration`] when there can be
/// none.
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
        // Most users of a topic need not describe it.
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
