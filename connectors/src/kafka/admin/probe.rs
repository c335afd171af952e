//! The thread that sends requests to the brokers. An answer may take seconds; neither the thread that owns
//! the consumer nor the worker can wait that long.

use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use prorata_worker::source::SourceError;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::metadata::MetadataClient;
use crate::kafka::client::settings::Connection;

/// The interval at which the idle client is polled, so that it logs and renews its token.
const IDLE: Duration = Duration::from_secs(1);

/// Maximum time that a query waits for its answer, in timeouts of the connection.
const ANSWERS: u32 = 3;

/// Maximum number of queries in the queue.
const QUERIES_MAX: usize = 64;

type MetadataQuery = Box<dyn FnOnce(&MetadataClient) + Send>;

/// A handle to the thread that sends requests.
#[derive(Clone)]
pub(crate) struct Probe {
    queries: SyncSender<MetadataQuery>,
    /// Maximum time to wait for an answer. Other queries may be answered first.
    patience: Duration,
}

impl Probe {
    /// Starts the thread, which ends when the last handle is dropped.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] if the client cannot be made.
    pub(crate) fn start(connection: &Connection) -> Result<Self, SourceError> {
        let client = MetadataClient::new(connection)?;
        let (sender, queries) = mpsc::sync_channel::<MetadataQuery>(QUERIES_MAX);
        let run = move || {
            loop {
                match queries.recv_timeout(IDLE) {
                    Ok(query) => query(&client),
                    Err(RecvTimeoutError::Timeout) => client.serve(),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let spawned = thread::Builder::new().name("kafka-probe".into()).spawn(run);
        spawned.map_err(|error| SourceError::Unavailable(format!("a thread cannot be started: {error}")))?;
        Ok(Self { queries: sender, patience: ANSWERS * connection.timeout })
    }

    /// Queues a query if there is room. Returns whether there was room.
    pub(crate) fn submit(&self, query: impl FnOnce(&MetadataClient) + Send + 'static) -> bool {
        self.queries.try_send(Box::new(query)).is_ok()
    }

    /// Queues a query whose answer a caller awaits, if there is room. Returns whether there was room. The
    /// query is skipped if the caller has given up in the meantime.
    pub(crate) fn submit_for<T: Send + 'static>(
        &self,
        answer: oneshot::Sender<Result<T, SourceError>>,
        query: impl FnOnce(&MetadataClient) -> Result<T, SourceError> + Send + 'static,
    ) -> bool {
        self.submit(move |client| {
            if !answer.is_closed() {
                // The caller may have given up.
                let _ = answer.send(query(client));
            }
        })
    }

    /// Sends a query and waits for its answer, for at most [`ANSWERS`] timeouts of the connection.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        query: impl FnOnce(&MetadataClient) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let (answer, answered) = oneshot::channel();
        let unavailable = |why: &str| Err(SourceError::Unavailable(why.into()));
        if !self.submit_for(answer, query) {
            return unavailable("too many queries to the brokers are waiting for answers");
        }
        match timeout(self.patience, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => unavailable("the thread that asks the brokers has ended"),
            Err(_) => unavailable("brokers take too long to answer earlier queries"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_question_is_given_up_after_a_while_and_never_asked_then() {
        let nobody = Connection { timeout: Duration::from_secs(1), ..Connection::plaintext("127.0.0.1:1") };
        let probe = Probe::start(&nobody).unwrap();
        let (unblock, stands) = mpsc::channel::<()>();
        // This query runs until the other end is dropped.
        assert!(probe.submit(move |_| assert!(stands.recv().is_err())));
        let asked = Arc::new(AtomicU32::new(0));
        let ask = || {
            let asked = Arc::clone(&asked);
            probe.ask(move |_| Ok(asked.fetch_add(1, Ordering::SeqCst)))
        };
        let late = SourceError::Unavailable("brokers take too long to answer earlier queries".into());
        assert_eq!(ask().await, Err(late));
        drop(unblock);
        assert_eq!(ask().await, Ok(0), "the first that is asked");
    }
}
