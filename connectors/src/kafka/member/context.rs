//! What the client library calls back on behalf of a group member: rebalances, and what every client is
//! notified of. They are only noted here, for the thread that polls to act on.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel as Level;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;

use crate::kafka::client::context::{Watch, lock};
use crate::kafka::client::settings::Connection;

/// A change of what the group assigns to this member.
#[derive(Debug)]
pub(super) enum Rebalance {
    /// Exactly these topic partitions.
    Assign(Vec<(String, i32)>),
    /// Nothing.
    Revoke,
}

/// The context of a group member.
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

    /// The oldest rebalance that is not handled yet.
    pub(super) fn rebalance(&self) -> Option<Rebalance> {
        lock(&self.rebalances).pop_front()
    }

    /// From now on revocations are answered at once, because nothing handles rebalances any longer.
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
    /// The library waits with an assignment, or with its end, until we answer it. The thread that polls does
    /// so once it has done its part. Nothing blocks here, and the library is polled all the while.
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
