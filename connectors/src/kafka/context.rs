//! What the client library calls back: logs, errors, tokens and rebalances. All of it is only noted here, for the
//! thread that polls to act on.

use std::collections::VecDeque;
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel as Level;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;

use super::settings::{Connection, Login};
use super::token;

/// Most errors that wait to be looked at; further ones push out the oldest.
const ERRORS_MAX: usize = 64;

/// Locks, also after a panic elsewhere: what these locks guard is never left half-written.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What every client needs: errors are kept, logs go to ours, tokens come from their file.
#[derive(Debug)]
pub(super) struct Watch {
    token: Option<PathBuf>,
    errors: Mutex<VecDeque<(RDKafkaErrorCode, String)>>,
}

impl Watch {
    pub(super) fn new(connection: &Connection) -> Self {
        let token = match &connection.security.login {
            Login::Token { file } => Some(file.clone()),
            _ => None,
        };
        Self { token, errors: Mutex::default() }
    }

    /// Errors since the last call, oldest first.
    pub(super) fn errors(&self) -> Vec<(RDKafkaErrorCode, String)> {
        lock(&self.errors).drain(..).collect()
    }
}

impl ClientContext for Watch {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: Level, facility: &str, message: &str) {
        match level {
            Level::Emerg | Level::Alert | Level::Critical => tracing::error!("{facility}: {message}"),
            Level::Error | Level::Warning => tracing::warn!("{facility}: {message}"),
            Level::Notice | Level::Info => tracing::info!("{facility}: {message}"),
            Level::Debug => tracing::debug!("{facility}: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        if code == RDKafkaErrorCode::PartitionEOF {
            return;
        }
        tracing::debug!("{code:?}: {reason}");
        let mut errors = lock(&self.errors);
        if errors.len() >= ERRORS_MAX {
            errors.pop_front();
        }
        errors.push_back((code, reason.to_owned()));
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let file = self.token.as_ref().ok_or("no kafka.sasl_token_file is configured")?;
        Ok(token::read(file)?)
    }
}

impl ConsumerContext for Watch {}

/// A change of what the group assigns to this member.
#[derive(Debug)]
pub(super) enum Rebalance {
    /// These topic partitions, and no others.
    Assign(Vec<(String, i32)>),
    /// None any more.
    Revoke,
}

/// What a group member needs beside.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) watch: Watch,
    rebalances: Mutex<VecDeque<Rebalance>>,
    closing: AtomicBool,
}

impl Member {
    pub(super) fn new(connection: &Connection) -> Self {
        Self { watch: Watch::new(connection), rebalances: Mutex::default(), closing: AtomicBool::new(false) }
    }

    /// The oldest rebalance that nobody has acted on.
    pub(super) fn rebalance(&self) -> Option<Rebalance> {
        lock(&self.rebalances).pop_front()
    }

    /// From now on partitions are let go of at once: nobody acts on rebalances any more.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }
}

impl ClientContext for Member {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: Level, facility: &str, message: &str) {
        self.watch.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.watch.error(error, reason);
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.watch.generate_oauth_token(config)
    }
}

impl ConsumerContext for Member {
    /// The library waits for an assignment, or for its end, until we call it: the thread that polls does, when it has
    /// done what belongs to it. Nothing blocks here, and the library is polled all the while.
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        code: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        if self.closing.load(Ordering::Acquire) {
            if let Err(error) = consumer.unassign() {
                tracing::debug!("while closing: {error}");
            }
            return;
        }
        let rebalance = match code {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                let elements = partitions.elements();
                Rebalance::Assign(
                    elements.iter().map(|one| (one.topic().to_owned(), one.partition())).collect(),
                )
            }
            _ => Rebalance::Revoke,
        };
        lock(&self.rebalances).push_back(rebalance);
    }
}
