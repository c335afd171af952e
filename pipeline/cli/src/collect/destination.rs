//! Destination of a collector's events: a folder of files, or a topic.

use std::time::Duration;

use prorata_connectors::kafka::Connection;
use prorata_connectors::messages::MessageEncoder;
use prorata_schemas::Text;

use super::files::FileJournal;
use super::journal::Journal;
use super::topics::TopicJournal;
use crate::config::CollectConfig;
use crate::failure::Failure;
use crate::wiring;

/// Time between two sends of messages.
const SEND_EVERY: Duration = Duration::from_secs(1);

/// Destination of events and of the collector's state.
pub enum Destination {
    /// Files in this folder or at this URL.
    Folder(String),
    /// Messages in a topic of Kafka.
    Topic(Box<EventTopic>),
}

/// A topic of events.
pub struct EventTopic {
    /// Connection to the brokers.
    pub connection: Connection,
    /// Encoder of the messages.
    pub encoder: MessageEncoder,
    /// Name of the topic.
    pub name: String,
}

/// A destination that is ready to be written to.
pub struct Opened {
    /// Journal that writes to the destination.
    pub journal: Box<dyn Journal>,
    /// Name of the destination, for messages.
    pub name: String,
    /// Time between two batches.
    pub store_every: Duration,
}

impl Destination {
    /// Opens the destination for the events of a cluster. Nothing is read or written yet.
    ///
    /// # Errors
    /// If the name of the folder is wrong.
    pub fn open(self, collect: &CollectConfig, cluster_id: &Text) -> Result<Opened, Failure> {
        let organization_id = collect.organization_id.as_str();
        Ok(match self {
            Self::Folder(folder) => Opened {
                journal: Box::new(FileJournal::new(wiring::store(&folder)?, organization_id, cluster_id)),
                name: folder,
                store_every: collect.file_rotation_interval,
            },
            Self::Topic(topic) => {
                let EventTopic { connection, encoder, name: topic } = *topic;
                let name = format!("topic {topic}");
                let topics = (topic, collect.state_topic.clone());
                let cluster_id = cluster_id.clone();
                let journal = TopicJournal::new(connection, encoder, topics, organization_id, cluster_id);
                Opened { journal: Box::new(journal), name, store_every: SEND_EVERY }
            }
        })
    }
}
