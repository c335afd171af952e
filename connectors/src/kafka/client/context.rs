//! The client library's callbacks: logs, errors, tokens. The callbacks only note errors; the code that uses
//! the client acts on them.

use std::collections::VecDeque;
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel as Level;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::settings::{Connection, Login};
use super::token;

/// Maximum number of errors that wait to be read; each further error pushes out the oldest. The library
/// reports an error for each attempt to reach a broker, at most a few a second. The client's users read them
/// several times a second.
const ERRORS_MAX: usize = 64;

/// Locks a mutex, even after a panic elsewhere, because the guarded data is never half-written.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The context of every client. It keeps errors, forwards the library's logs to ours, and reads tokens from
/// their file.
#[derive(Debug)]
pub(crate) struct Watch {
    token: Option<PathBuf>,
    errors: Mutex<VecDeque<(RDKafkaErrorCode, String)>>,
}

impl Watch {
    pub(crate) fn new(connection: &Connection) -> Self {
        let token = match &connection.security.login {
            Login::Token { file } => Some(file.clone()),
            _ => None,
        };
        Self { token, errors: Mutex::default() }
    }

    /// Returns the errors since the last call, oldest first.
    pub(crate) fn errors(&self) -> Vec<(RDKafkaErrorCode, String)> {
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
