//! The client library's callbacks for a group member: rebalances, and the notifications that every client
//! receives. The callbacks only note events; the polling thread acts on them.

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

/// A change of the group's assignment to this member.
#[derive(Debug)]
pub(super) enum Rebalance {
    /// Exactly these topic partitions.
    Assign(Vec<(String, i32)>),
    /// No topic partitions.
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

    /// Takes the oldest rebalance that is not handled yet; `None` if there is none.
    pub(super) fn rebalance(&self) -> Option<Rebalance> {
        lock(&self.rebalances).pop_front()
    }

    /// Answers revocations at once from now on, because nothing handles rebalances any longer.
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
    /// Notes a rebalance. The library waits with an assignment or a revocation until we answer it. The
    /// polling thread answers once it has handled the rebalance. Nothing blocks here, and polling of the
    /// library continues.
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
