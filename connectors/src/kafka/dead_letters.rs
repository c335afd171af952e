//! The topic of dead letters: messages as they came, with headers that say why they were rejected and where they were.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use prorata_schemas::Text;
use prorata_worker::ports::{DeadLetter, Origin};
use prorata_worker::source::{DeadLetterTopic, Header, SourceError};
use tokio::time::{Instant, sleep, timeout_at};

use super::context::lock;
use super::probe::Asker;
use super::producer::{Delivery, Record, Sender};
use super::settings::{Connection, wrong};

/// How long brokers may take for a message.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a full queue is waited for at a time.
const FULL: Duration = Duration::from_millis(5);

/// What our headers' names begin with. A letter that comes back and is rejected again gets new ones, not more.
const OURS: &str = "prorata.";

/// Where dead letters go on Kafka.
pub struct KafkaDeadLetters {
    connection: Connection,
    topic: String,
    sender: Mutex<Arc<Sender>>,
}

impl KafkaDeadLetters {
    /// Connects, and checks that the topic is there.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] without such a topic, or with wrong credentials; [`SourceError::Unavailable`] when
    /// no broker answers.
    pub async fn connect(connection: Connection, topic: impl Into<String>) -> Result<Self, SourceError> {
        let topic = topic.into();
        let asker = Asker::start(&connection)?;
        let asked = [Text::from(topic.as_str())];
        let found = asker.ask(move |probe| probe.partitions(&asked)).await?;
        if found.values().all(|partitions| *partitions == 0) {
            return Err(wrong(format!(
                "Kafka at {} has no topic {topic}: create it, or correct kafka.dead_letter_topic",
                connection.brokers
            )));
        }
        let sender = Mutex::new(Arc::new(Sender::new(&connection, PATIENCE)?));
        Ok(Self { connection, topic, sender })
    }

    /// The producer; made anew after one that has given up.
    fn sender(&self) -> Result<Arc<Sender>, SourceError> {
        let mut sender = lock(&self.sender);
        if sender.is_dead() {
            *sender = Arc::new(Sender::new(&self.connection, PATIENCE)?);
        }
        Ok(Arc::clone(&sender))
    }
}

#[async_trait]
impl DeadLetterTopic for KafkaDeadLetters {
    async fn send(&self, letters: &[DeadLetter]) -> Result<(), SourceError> {
        let sender = self.sender()?;
        let delivery = Arc::new(Delivery::default());
        let deadline = Instant::now() + PATIENCE + PATIENCE / 2;
        let late = || SourceError::Unavailable(format!("topic {}: brokers do not answer", self.topic));
        for letter in letters {
            let headers = headers(letter);
            let record = Record {
                topic: &self.topic,
                key: key(letter),
                value: Some(&letter.rejected.bytes),
                headers: &headers,
                timestamp_millis: None,
            };
            while !sender.offer(&record, &delivery)? {
                if Instant::now() >= deadline {
                    return Err(late());
                }
                sleep(FULL).await;
            }
        }
        timeout_at(deadline, delivery.done()).await.map_err(|_| late())?;
        delivery.failure().map_or(Ok(()), |(code, reason, _)| Err(sender.meaning(code, &reason)))
    }
}

fn key(letter: &DeadLetter) -> Option<&[u8]> {
    match &letter.origin {
        Origin::Message { key, .. } => key.as_deref(),
        Origin::File { .. } => None,
    }
}

/// The message's own headers, and ours in place of those that an earlier rejection added.
fn headers(letter: &DeadLetter) -> Vec<Header> {
    let ours = |name: &str, value: String| (format!("{OURS}{name}"), Some(value.into_bytes()));
    let (mut all, place) = match &letter.origin {
        Origin::Message { topic, partition, offset, headers, .. } => {
            let foreign = headers.iter().filter(|(name, _)| !name.starts_with(OURS));
            let place = [
                ("topic", topic.clone()),
                ("partition", partition.to_string()),
                ("offset", offset.to_string()),
            ];
            (foreign.cloned().collect(), place.to_vec())
        }
        Origin::File { path, position } => {
            let position = position.map(|position| ("position", position.to_string()));
            (Vec::new(), std::iter::once(("file", path.clone())).chain(position).collect())
        }
    };
    let reject = &letter.rejected.reject;
    all.extend([ours("reason", reject.reason.code().into()), ours("sentence", reject.sentence.clone())]);
    all.extend(place.into_iter().map(|(name, value)| ours(name, value)));
    all.push(ours("version", env!("CARGO_PKG_VERSION").into()));
    all
}

#[cfg(test)]
mod tests {
    use prorata_schemas::reject::Reject;
    use prorata_worker::ports::{Position, Rejected};

    use super::*;

    fn letter(origin: Origin) -> DeadLetter {
        DeadLetter {
            origin,
            rejected: Rejected { reject: Reject::malformed("no magic byte"), bytes: vec![1] },
        }
    }

    fn message(headers: Vec<Header>) -> DeadLetter {
        let (topic, key) = ("pods".to_owned(), Some(b"acme".to_vec()));
        letter(Origin::Message { topic, partition: 3, offset: 42, timestamp_millis: 7, key, headers })
    }

    fn shown(letter: &DeadLetter) -> String {
        let text = |value: &Option<Vec<u8>>| {
            String::from_utf8_lossy(value.as_deref().unwrap_or(b"none")).into_owned()
        };
        headers(letter).iter().map(|(name, value)| format!("{name}={}\n", text(value))).collect()
    }

    #[test]
    fn a_letter_keeps_its_headers_and_says_why_and_where_from() {
        let letter = message(vec![("trace".into(), Some(b"a".to_vec())), ("empty".into(), None)]);
        let expected = format!(
            "trace=a\nempty=none\nprorata.reason=malformed\nprorata.sentence=no magic byte\nprorata.topic=pods\n\
             prorata.partition=3\nprorata.offset=42\nprorata.version={}\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(shown(&letter), expected);
        assert_eq!(key(&letter), Some(&b"acme"[..]));
    }

    #[test]
    fn a_second_rejection_replaces_what_the_first_one_added() {
        let first = message(vec![("trace".into(), Some(b"a".to_vec()))]);
        assert_eq!(headers(&message(headers(&first))), headers(&first));
    }

    #[test]
    fn a_letter_of_a_file_names_the_file() {
        let position = Position { block: 1, byte: 99, record: None };
        let shown = shown(&letter(Origin::File { path: "a.avro".into(), position: Some(position) }));
        assert!(shown.contains("prorata.file=a.avro\nprorata.position=block 1 at byte 99\n"), "{shown}");
    }
}
