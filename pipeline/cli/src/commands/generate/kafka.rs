//! Generated events as messages. Organizations are the keys, event types are spread over topics, and the rate
//! is limited.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use prorata_connectors::kafka::{Connection, KafkaProducer};
use prorata_connectors::messages::MessageEncoder;
use prorata_generate::Load;
use prorata_schemas::event::EventKind;
use prorata_schemas::time::HOUR_MICROS;
use prorata_schemas::{Text, body};

use super::pace::Pace;
use super::{GenerateArgs, progress_bar};
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::wiring::{self, kafka, registry};
use crate::{logging, report};

/// Arguments of `prorata generate --output kafka`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "With --output kafka")]
pub struct KafkaArgs {
    /// Configuration file, with sections kafka and registry
    ///
    /// With registry.url, schemas are registered there and messages use the Confluent wire format. Otherwise,
    /// messages use Avro single-object encoding.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Brokers as host:port, separated by commas [default: kafka.bootstrap_servers]
    #[arg(long, value_name = "BROKERS")]
    pub bootstrap_servers: Option<String>,
    /// Topic to send to, which must exist; can be repeated [default: the first of kafka.topics]
    ///
    /// With several topics, event type i goes to topic i modulo the number of topics. Both are counted from
    /// 0, and types are in the order of prorata schemas. Message keys are organizations. If all topics have
    /// the same number of partitions, an organization has the same partition number in each.
    #[arg(long, value_name = "NAME")]
    pub topic: Vec<String>,
    /// Maximum number of events to send per second [default: no limit]
    #[arg(long, value_name = "EVENTS_PER_SECOND")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: Option<u32>,
}

/// Destination of messages.
pub trait EventSink {
    /// Sends a message, and waits for room in the queue if it is full.
    fn send(&mut self, topic: &str, key: &str, value: &[u8]) -> Result<(), Failure>;

    /// Waits until all messages are stored.
    fn flush(&mut self) -> Result<(), Failure>;
}

/// Totals of the sent messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of messages.
    pub events: u64,
    /// Bytes of the messages' values.
    pub bytes: u64,
}

/// Sends the events, and prints how many there are.
///
/// # Errors
/// If the configuration is wrong, or Kafka or the registry is unavailable.
pub fn run(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    let mut config = config::load(args.kafka.config.as_deref())?.config;
    logging::start(&config.log)?;
    let topics = topics(&args.kafka, &config)?;
    if let Some(brokers) = &args.kafka.bootstrap_servers {
        config.kafka.bootstrap_servers.clone_from(brokers);
    }
    if config.kafka.bootstrap_servers.is_empty() {
        let message =
            "no brokers: name them with --bootstrap-servers, or as kafka.bootstrap_servers with --config";
        return Err(Failure::usage(message).into());
    }
    let (encoder, mut producer) = connect(&config, &topics)?;
    let sent = send(&args.load(), args.kafka.rate, &topics, &encoder, &mut producer)?;
    report::print(&format!("{} events, {} bytes, to {}", sent.events, sent.bytes, topics.join(", ")))?;
    Ok(ExitCode::SUCCESS)
}

/// Maximum time that a message may wait for a slow broker before it counts as failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

impl EventSink for KafkaProducer {
    fn send(&mut self, topic: &str, key: &str, value: &[u8]) -> Result<(), Failure> {
        KafkaProducer::send(self, topic, key.as_bytes(), value).map_err(kafka::failure)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        KafkaProducer::flush(self).map(|_messages| ()).map_err(kafka::failure)
    }
}

/// Sends events one by one, at most as many a second as the arguments say.
pub struct EventSender {
    topics: Vec<String>,
    encoder: MessageEncoder,
    producer: KafkaProducer,
    pace: Pace,
}

impl EventSender {
    /// Connects to the brokers of the arguments, and checks the topics.
    ///
    /// # Errors
    /// If the configuration is wrong, or Kafka or the registry is unavailable.
    pub fn open(args: &KafkaArgs) -> anyhow::Result<Self> {
        let mut config: Config = config::load(args.config.as_deref())?.config;
        if let Some(brokers) = &args.bootstrap_servers {
            config.kafka.bootstrap_servers.clone_from(brokers);
        }
        let topics = topics(args, &config)?;
        let (encoder, producer) = connect(&config, &topics)?;
        Ok(Self { topics, encoder, producer, pace: Pace::new(args.rate, Instant::now()) })
    }

    /// Sends an event with this canonical body.
    ///
    /// # Errors
    /// If an earlier message was not stored.
    pub fn send(&mut self, kind: EventKind, organization_id: &str, body: &[u8]) -> Result<(), Failure> {
        let wait = self.pace.wait(Instant::now());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
        let (topic, value) = (topic_of(&self.topics, kind), self.encoder.encode(kind, body));
        self.producer.send(topic, organization_id.as_bytes(), &value).map_err(kafka::failure)
    }

    /// Waits until all messages are stored. Returns the topics, for the report.
    ///
    /// # Errors
    /// If a message was not stored.
    pub fn finish(self) -> Result<String, Failure> {
        self.producer.flush().map_err(kafka::failure)?;
        Ok(format!("to {}", self.topics.join(", ")))
    }
}

/// Connects to the brokers and the registry of a configuration, and checks the topics.
fn connect(config: &Config, topics: &[String]) -> anyhow::Result<(MessageEncoder, KafkaProducer)> {
    let connection = kafka::connection(&config.kafka)?;
    let encoder = encoder(config)?;
    check_topics(&connection, topics)?;
    let producer = KafkaProducer::new(&connection, PATIENCE).map_err(kafka::failure)?;
    Ok((encoder, producer))
}

/// Returns the topics of the arguments, or else the first configured topic.
pub fn topics(args: &KafkaArgs, config: &Config) -> Result<Vec<String>, Failure> {
    let topics = match args.topic.as_slice() {
        [] => config::topic_names(config.kafka.topics.get(..1).unwrap_or_default()),
        named => named.to_vec(),
    };
    if topics.is_empty() || topics.iter().any(String::is_empty) {
        return Err(Failure::usage("no topic: name one with --topic, or in kafka.topics with --config"));
    }
    Ok(topics)
}

/// Checks that brokers accept the login and have the topics. Otherwise, a producer would learn about such
/// errors only from timeouts. Also checks that an organization has the same partition number in all topics,
/// which readers require.
pub fn check_topics(connection: &Connection, topics: &[String]) -> Result<(), Failure> {
    let names: Vec<Text> = topics.iter().map(|topic| topic.as_str().into()).collect();
    let partitions = prorata_connectors::kafka::partitions(connection, &names).map_err(kafka::failure)?;
    let brokers = &connection.brokers;
    if let Some((topic, _)) = partitions.iter().find(|(_, count)| **count == 0) {
        return Err(Failure::usage(format!(
            "Kafka at {brokers} has no topic {topic}: create it, or correct --topic"
        )));
    }
    let mut counts = partitions.iter();
    let Some((first, count)) = counts.next() else { return Ok(()) };
    match counts.find(|(_, other)| *other != count) {
        None => Ok(()),
        Some((topic, other)) => Err(Failure::usage(format!(
            "topic {first} has {count} partitions and {topic} has {other}: give all topics the same number, \
             so that an organization has one partition number"
        ))),
    }
}

/// Returns the encoder of messages in the wire format that readers expect. If a registry is configured,
/// registers the schemas there first.
pub fn encoder(config: &Config) -> anyhow::Result<MessageEncoder> {
    let Some(registry) = registry::open(&config.registry)? else {
        return Ok(MessageEncoder::single_object());
    };
    let runtime = wiring::small_runtime()?;
    Ok(runtime.block_on(registry::ask(|| MessageEncoder::registered(&registry)))?)
}

/// Sends all events of this load, at most `per_second` a second. Returns when all of them are stored.
///
/// # Errors
/// Returns the errors of the sink.
pub fn send(
    load: &Load,
    per_second: Option<u32>,
    topics: &[String],
    encoder: &MessageEncoder,
    sink: &mut impl EventSink,
) -> Result<Sent, Failure> {
    let mut sent = Sent::default();
    let mut pace = Pace::new(per_second, Instant::now());
    let mut arrivals = load.arrivals();
    let progress = progress_bar(load.hours);
    let (start, mut shown) = (load.start.start().0, 0);
    while let Some(clock) = arrivals.clock() {
        let Some(event) = arrivals.next() else { break };
        let kind = event.payload.kind();
        let value = encoder.encode(kind, &body::encode(&event));
        sent.events += 1;
        sent.bytes += u64::try_from(value.len()).unwrap_or(u64::MAX);
        let wait = pace.wait(Instant::now());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
        sink.send(topic_of(topics, kind), &event.organization_id, &value)?;
        let hour = u64::try_from((clock.0 - start) / HOUR_MICROS).unwrap_or(0);
        if hour > shown {
            progress.set_position(hour);
            shown = hour;
        }
    }
    sink.flush()?;
    progress.finish_and_clear();
    Ok(sent)
}

/// Returns the topic of an event type, as the help of `--topic` documents it.
pub fn topic_of(topics: &[String], kind: EventKind) -> &str {
    // Kinds are declared in the order of ALL.
    topics.get(kind as usize % topics.len().max(1)).map_or("", String::as_str)
}
