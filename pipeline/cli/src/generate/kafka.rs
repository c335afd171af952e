//! Generated events as messages: keyed by organization, spread over topics by type, no faster than asked for.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use prorata_connectors::kafka::{Connection, KafkaProducer};
use prorata_connectors::messages::MessageEncoder;
use prorata_schemas::event::EventKind;
use prorata_schemas::{Text, body};

use super::arrivals::Arrivals;
use super::text::HOUR;
use super::{GenerateArgs, progress_bar};
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::{kafka, logging, registry};

/// How far behind its rate a run may fall and still make up for it; what is lost beyond is not sent in a burst.
const CATCH_UP: Duration = Duration::from_millis(100);
/// Waits shorter than this are saved up: timers are no finer.
const WAIT_MIN: Duration = Duration::from_millis(2);

/// Arguments of `prorata generate --to kafka`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "With --to kafka")]
pub struct KafkaArgs {
    /// Configuration file: its sections `kafka` and `registry` say where to send and how to log in
    ///
    /// Where `registry.url` is set, the schemas are registered there and messages are in Confluent's wire format; else
    /// they are in Avro single-object encoding.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Brokers as host:port, separated by commas; by default kafka.bootstrap_servers
    #[arg(long, value_name = "BROKERS")]
    pub bootstrap_servers: Option<String>,
    /// Topic to send to, which must exist; by default the first of kafka.topics. May be given several times
    ///
    /// Of several topics, event type number i goes to topic number i modulo their count, both from 0, types in the
    /// order of `prorata schemas`. Keys are organizations, so topics with equally many partitions keep an organization
    /// on one partition number.
    #[arg(long, value_name = "NAME")]
    pub topic: Vec<String>,
    /// Most events sent in a second; by default as many as Kafka takes
    #[arg(long, value_name = "EVENTS_PER_SECOND", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: Option<u32>,
}

/// Where messages go.
pub trait EventSink {
    /// Takes a message; waits while there is no room for it.
    fn send(&mut self, topic: &str, key: &str, value: &[u8]) -> Result<(), Failure>;

    /// Returns once all that was taken is stored.
    fn flush(&mut self) -> Result<(), Failure>;
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Messages.
    pub events: u64,
    /// Bytes of their values.
    pub bytes: u64,
}

/// Sends the events and says how many there are.
///
/// # Errors
/// When the configuration is wrong, or Kafka or the registry is unavailable.
pub fn run(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    let mut config = config::load(args.kafka.config.as_deref())?.config;
    logging::start(&config.log)?;
    let topics = topics(&args.kafka, &config)?;
    if let Some(brokers) = &args.kafka.bootstrap_servers {
        config.kafka.bootstrap_servers.clone_from(brokers);
    }
    if config.kafka.bootstrap_servers.is_empty() {
        let sentence =
            "no brokers: name them with --bootstrap-servers, or as kafka.bootstrap_servers with --config";
        return Err(Failure::usage(sentence).into());
    }
    let connection = kafka::connection(&config.kafka)?;
    let encoder = encoder(&config)?;
    check_topics(&connection, &topics)?;
    let mut producer = KafkaProducer::new(&connection, PATIENCE).map_err(kafka::failure)?;
    let sent = send(args, &topics, &encoder, &mut producer)?;
    println!("{} events, {} bytes, to {}", sent.events, sent.bytes, topics.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// What waits for a slow broker, at most: a message that no broker has taken by then has failed.
const PATIENCE: Duration = Duration::from_secs(30);

impl EventSink for KafkaProducer {
    fn send(&mut self, topic: &str, key: &str, value: &[u8]) -> Result<(), Failure> {
        KafkaProducer::send(self, topic, key.as_bytes(), value).map_err(kafka::failure)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        KafkaProducer::flush(self).map(|_messages| ()).map_err(kafka::failure)
    }
}

/// The topics asked for, else the first that is configured.
fn topics(args: &KafkaArgs, config: &Config) -> Result<Vec<String>, Failure> {
    let topics = match args.topic.as_slice() {
        [] => config.kafka.topics.iter().take(1).cloned().collect(),
        named => named.to_vec(),
    };
    if topics.is_empty() || topics.iter().any(String::is_empty) {
        return Err(Failure::usage("no topic: name one with --topic, or in kafka.topics with --config"));
    }
    Ok(topics)
}

/// What no producer is told before its messages have waited for long: whether brokers let it in and have the topics. And
/// what readers refuse: one organization's events on several partition numbers.
fn check_topics(connection: &Connection, topics: &[String]) -> Result<(), Failure> {
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
            "topic {first} has {count} partitions and {topic} has {other}: give all topics as many, so that an \
             organization has one partition number"
        ))),
    }
}

/// In the wire format that readers expect: with a registry, schemas are registered there first.
fn encoder(config: &Config) -> anyhow::Result<MessageEncoder> {
    let Some(registry) = registry::open(&config.registry)? else {
        return Ok(MessageEncoder::single_object());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let registered = runtime.block_on(MessageEncoder::registered(&registry));
    Ok(registered.map_err(registry::failure)?)
}

/// Generates and sends all events; returns once all of them are stored.
///
/// # Errors
/// Those of the sink.
pub fn send(
    args: &GenerateArgs,
    topics: &[String],
    encoder: &MessageEncoder,
    sink: &mut impl EventSink,
) -> Result<Sent, Failure> {
    let mut sent = Sent::default();
    let mut pace = Pace::new(args.kafka.rate, Instant::now());
    let mut arrivals = Arrivals::new(args);
    let progress = progress_bar(args.hours);
    let (start, mut shown) = (args.start.start().0, 0);
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
        let hour = u64::try_from((clock - start) / HOUR).unwrap_or(0);
        if hour > shown {
            progress.set_position(hour);
            shown = hour;
        }
    }
    sink.flush()?;
    progress.finish_and_clear();
    Ok(sent)
}

/// The topic of a type of event, as the help of `--topic` says.
fn topic_of(topics: &[String], kind: EventKind) -> &str {
    // Kinds are declared in the order of ALL.
    topics.get(kind as usize % topics.len().max(1)).map_or("", String::as_str)
}

/// Spreads events evenly over time.
pub struct Pace {
    /// Time between two events; none: no limit.
    every: Option<Duration>,
    /// When the next event is due.
    due: Instant,
}

impl Pace {
    /// At most `rate` events in a second, from `now` on.
    pub fn new(rate: Option<u32>, now: Instant) -> Self {
        Self { every: rate.map(|rate| Duration::from_secs(1) / rate.max(1)), due: now }
    }

    /// How long to wait from `now` before one more event is sent.
    pub fn wait(&mut self, now: Instant) -> Duration {
        let Some(every) = self.every else { return Duration::ZERO };
        self.due = self.due.max(now.checked_sub(CATCH_UP).unwrap_or(now)) + every;
        let wait = self.due.saturating_duration_since(now + every);
        if wait < WAIT_MIN { Duration::ZERO } else { wait }
    }
}
