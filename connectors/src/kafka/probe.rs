//! Asking brokers about topics: how many partitions there are, and where they begin and end. Answers may take seconds,
//! so that a thread of its own waits for them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use prorata_schemas::Text;
use prorata_worker::source::SourceError;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::context::Watch;
use super::failure;
use super::settings::{Connection, wrong};

/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(1);

/// How often a topic that is not there is looked for: brokers learn of new topics one after another.
const LOOKS: u32 = 3;

/// How many answers, each as slow as may be, a question is waited for.
const ANSWERS: u32 = 3;

/// Most questions that wait.
const QUESTIONS_MAX: usize = 64;

/// Partition numbers are shards, and those have 16 bits.
const PARTITIONS_MAX: u32 = 65_535;

/// A client that is member of no group.
pub(super) struct Probe {
    client: BaseConsumer<Watch>,
    connection: Connection,
    /// Whether it ever had an answer: then its credentials are right, whatever a broker says later.
    answered: Cell<bool>,
}

impl Probe {
    /// Makes the client; it connects by itself.
    ///
    /// # Errors
    /// [`SourceError::Configuration`].
    pub(super) fn new(connection: &Connection) -> Result<Self, SourceError> {
        let mut config = connection.client()?;
        // Why a broker hangs up is told only so: it may be what connecting fails by.
        config.set("isolation.level", "read_committed").set("log.connection.close", "true");
        let client =
            config.create_with_context(Watch::new(connection)).map_err(|error| failure::creation(&error))?;
        Ok(Self { client, connection: connection.clone(), answered: Cell::new(false) })
    }

    /// Lets the client do what it cannot do by itself: log, renew tokens, tell errors.
    fn serve(&self) {
        for _ in 0..16 {
            // What it answers the context has noted.
            drop(self.client.poll(Duration::ZERO));
        }
    }

    /// Number of partitions of each topic; 0: there is none.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`] when there was no answer in time, [`SourceError::Configuration`] when there can be
    /// none.
    pub(super) fn partitions(&self, topics: &[Text]) -> Result<BTreeMap<Text, u32>, SourceError> {
        let deadline = Instant::now() + self.connection.timeout;
        if self.answered.get() {
            // They are old.
            self.client.context().errors();
        }
        let mut reason = "no broker answers".to_owned();
        let mut found = BTreeMap::new();
        for topic in topics {
            let mut looks = 0;
            let count = loop {
                match self.look(topic, deadline)? {
                    Ok(Some(count)) => break count,
                    Ok(None) if looks >= LOOKS => break 0,
                    Ok(None) => looks += 1,
                    Err(why) => reason = why.unwrap_or(reason),
                }
                if Instant::now() >= deadline {
                    let hint = "if brokers are up, check kafka.bootstrap_servers and kafka.security_protocol";
                    let brokers = &self.connection.brokers;
                    return Err(SourceError::Unavailable(format!("{brokers}: {reason}; {hint}")));
                }
                thread::sleep(Duration::from_millis(200));
            };
            if count > PARTITIONS_MAX {
                return Err(wrong(format!(
                    "topic {topic} has {count} partitions; at most {PARTITIONS_MAX} can be read"
                )));
            }
            found.insert(topic.clone(), count);
        }
        Ok(found)
    }

    /// One attempt: the topic's partitions, or none without such a topic, or why it is not known, if that is known.
    fn look(
        &self,
        topic: &Text,
        deadline: Instant,
    ) -> Result<Result<Option<u32>, Option<String>>, SourceError> {
        self.serve();
        let left =
            deadline.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(50), ATTEMPT);
        let metadata = match self.client.fetch_metadata(Some(topic), left) {
            Ok(metadata) => {
                self.answered.set(true);
                metadata
            }
            Err(error) => return self.why(&error).map(Err),
        };
        let Some(found) = metadata.topics().iter().find(|found| found.name() == &**topic) else {
            return Ok(Err(None));
        };
        match found.error().map(Code::from) {
            None => Ok(Ok(Some(u32::try_from(found.partitions().len()).unwrap_or(u32::MAX)))),
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Ok(Ok(None)),
            Some(Code::InvalidTopic) => {
                Err(wrong(format!("'{topic}' is no valid name of a topic: correct kafka.topics")))
            }
            Some(code) => {
                match failure::at_start(&self.connection, code, &format!("topic {topic}: {code}")) {
                    SourceError::Unavailable(reason) => Ok(Err(Some(reason))),
                    other => Err(other),
                }
            }
        }
    }

    fn meaning(&self, code: Code, reason: &str) -> SourceError {
        let meaning = if self.answered.get() { failure::running } else { failure::at_start };
        meaning(&self.connection, code, reason)
    }

    /// Why a request failed: what the client told since says more than the answer itself.
    fn why(&self, error: &KafkaError) -> Result<Option<String>, SourceError> {
        self.serve();
        let mut reason = None;
        for (code, text) in self.client.context().errors() {
            match self.meaning(code, &text) {
                SourceError::Unavailable(_) if code == Code::AllBrokersDown => {}
                SourceError::Unavailable(_) => reason = Some(text),
                other => return Err(other),
            }
        }
        tracing::debug!("{error}");
        Ok(reason)
    }

    /// The earliest offset of a topic partition, and its end.
    pub(super) fn range(&self, topic: &str, partition: i32) -> Result<(i64, i64), SourceError> {
        self.serve();
        self.client.fetch_watermarks(topic, partition, self.connection.timeout).map_err(|error| {
            let why = error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string());
            let sentence = format!("topic {topic}, partition {partition}: {why}");
            failure::running(&self.connection, error.rdkafka_error_code().unwrap_or(Code::Unknown), &sentence)
        })
    }

    /// Ends of topic partitions, as far as brokers answer in time.
    pub(super) fn ends(&self, of: &[(Text, i32)]) -> Vec<Option<i64>> {
        self.serve();
        let timeout = self.connection.timeout.min(5 * ATTEMPT);
        self.ends_at_once(of, timeout).unwrap_or_else(|error| {
            tracing::debug!("ends: {error}");
            // One partition without a leader must not hide the others' ends.
            let deadline = Instant::now() + timeout;
            let ask = |(topic, partition): &(Text, i32)| {
                let left = deadline.saturating_duration_since(Instant::now()).min(ATTEMPT / 2);
                let range =
                    (!left.is_zero()).then(|| self.client.fetch_watermarks(topic, *partition, left).ok());
                range.flatten().map(|(_, high)| high)
            };
            of.iter().map(ask).collect()
        })
    }

    /// All ends by one request to each broker.
    fn ends_at_once(&self, of: &[(Text, i32)], timeout: Duration) -> Result<Vec<Option<i64>>, KafkaError> {
        let mut list = TopicPartitionList::with_capacity(of.len());
        for (topic, partition) in of {
            list.add_partition_offset(topic, *partition, Offset::End)?;
        }
        let answered = self.client.offsets_for_times(list, timeout)?;
        let end = |(topic, partition): &(Text, i32)| {
            let found = answered.find_partition(topic, *partition)?;
            match (found.error(), found.offset()) {
                (Ok(()), Offset::Offset(end)) => Some(end),
                _ => None,
            }
        };
        Ok(of.iter().map(end).collect())
    }
}

type Question = Box<dyn FnOnce(&Probe) + Send>;

/// The thread that asks.
#[derive(Clone)]
pub(super) struct Asker {
    questions: SyncSender<Question>,
    /// How long an answer is waited for: others' questions may come first.
    patience: Duration,
}

impl Asker {
    /// Starts the thread; it ends with its last asker.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] when the client cannot be made.
    pub(super) fn start(connection: &Connection) -> Result<Self, SourceError> {
        let probe = Probe::new(connection)?;
        let (sender, questions) = mpsc::sync_channel::<Question>(QUESTIONS_MAX);
        let run = move || {
            loop {
                match questions.recv_timeout(ATTEMPT) {
                    Ok(question) => question(&probe),
                    Err(RecvTimeoutError::Timeout) => probe.serve(),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let spawned = thread::Builder::new().name("kafka-asker".into()).spawn(run);
        spawned.map_err(|error| SourceError::Unavailable(format!("no thread could be started: {error}")))?;
        Ok(Self { questions: sender, patience: ANSWERS * connection.timeout })
    }

    /// Hands over a question, if there is room. Answers whether it was.
    pub(super) fn tell(&self, question: impl FnOnce(&Probe) + Send + 'static) -> bool {
        self.questions.try_send(Box::new(question)).is_ok()
    }

    /// Hands over a question that somebody waits to be answered, if there is room; answers whether there was. Where
    /// they have gone before its turn, it is not asked.
    pub(super) fn answer<T: Send + 'static>(
        &self,
        answer: oneshot::Sender<Result<T, SourceError>>,
        question: impl FnOnce(&Probe) -> Result<T, SourceError> + Send + 'static,
    ) -> bool {
        self.tell(move |probe| {
            if !answer.is_closed() {
                // They may have gone meanwhile.
                let _ = answer.send(question(probe));
            }
        })
    }

    /// Asks, and waits for the answer a few times as long as one may take.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Probe) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let (answer, answered) = oneshot::channel();
        let unavailable = |why: &str| Err(SourceError::Unavailable(why.into()));
        if !self.answer(answer, question) {
            return unavailable("too many questions to the brokers wait for an answer");
        }
        match timeout(self.patience, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => unavailable("nobody asks the brokers any more"),
            Err(_) => unavailable("brokers take too long to answer what others ask"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_question_is_given_up_after_a_while_and_then_not_asked_any_more() {
        let nobody = Connection { timeout: Duration::from_secs(1), ..Connection::plaintext("127.0.0.1:1") };
        let asker = Asker::start(&nobody).unwrap();
        let (go_on, stands) = mpsc::channel::<()>();
        // It is asked until the other end is dropped.
        assert!(asker.tell(move |_| assert!(stands.recv().is_err())));
        let asked = Arc::new(AtomicU32::new(0));
        let ask = || {
            let asked = Arc::clone(&asked);
            asker.ask(move |_| Ok(asked.fetch_add(1, Ordering::SeqCst)))
        };
        let late = SourceError::Unavailable("brokers take too long to answer what others ask".into());
        assert_eq!(ask().await, Err(late));
        drop(go_on);
        assert_eq!(ask().await, Ok(0), "the first that is asked");
    }
}
