//! Checks of everything that could fail at a worker's start, without consuming anything.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use prorata_connectors::SystemClock;
use prorata_connectors::kafka::{partitions, topic_setting};
use prorata_connectors::store::Store;
use prorata_schemas::Text;
use prorata_worker::WorkerError;
use prorata_worker::names;
use prorata_worker::ports::{Clock, ObjectStore};
use prorata_worker::root::Root;

use crate::config::{self, Config, Loaded, TopicConfig, exposed};
use crate::failure::Failure;
use crate::wiring::{self, kafka, registry};

/// Maximum size of a compressed batch, in bytes. An event has a few kB, and gzip compresses up to a
/// thousandfold.
const BATCH_BYTES: u64 = 256 << 10;

/// Folder of the object that shows the store's time.
const PROBE: &str = "probe/";

/// Result of the check of one thing that a start needs.
pub struct StartCheck {
    /// Name of the check.
    pub name: &'static str,
    /// Outcome of the check.
    pub outcome: CheckOutcome,
}

/// The outcome of a check.
pub enum CheckOutcome {
    /// The thing works.
    Good(String),
    /// The thing works, but a person should look at it.
    Warned(String),
    /// The thing is not configured.
    Skipped(&'static str),
    /// The thing does not work.
    Failed(Failure),
}

impl CheckOutcome {
    /// Returns the name and the message of the check.
    pub fn name_and_message(&self) -> (&'static str, String) {
        match self {
            Self::Good(what) => ("ok", what.clone()),
            Self::Warned(what) => ("warning", what.clone()),
            Self::Skipped(why) => ("skipped", (*why).to_owned()),
            Self::Failed(failure) => ("failed", failure.to_string()),
        }
    }
}

impl From<Result<String, Failure>> for CheckOutcome {
    fn from(result: Result<String, Failure>) -> Self {
        result.map_or_else(Self::Failed, Self::Good)
    }
}

/// Runs all checks, even after one has failed.
pub async fn check(loaded: &Loaded) -> Vec<StartCheck> {
    let config = &loaded.config;
    let mut checks = Vec::new();
    let mut add = |name, outcome| checks.push(StartCheck { name, outcome });
    let mut shards = loaded.shards_given.then_some(config.root.shards);
    match store(&config.root.url) {
        Ok(store) => {
            add("storage", storage(&store).await.into());
            add("clock", clock(&store, config.work.max_clock_skew).await.into());
            let root = root(&store, shards).await;
            add(
                "root",
                root.map(|(found, message)| {
                    shards = found.or(shards);
                    message
                })
                .into(),
            );
        }
        Err(failure) => add("storage", CheckOutcome::Failed(failure)),
    }
    add("registry", ask_registry(config).await);
    let found = topics(config, shards);
    let readable = found.is_ok();
    add("topics", found.into());
    if readable {
        add("batches", batches(config).await);
    }
    let unset = "kafka.dead_letter_topic is not set: dead letters stay in the lake";
    add("dead-letter topic", output_topic(config, &config.kafka.dead_letter_topic, unset));
    let unset = "kafka.budget_topic is not set: nobody gets messages about exceeded budgets";
    add("budget topic", output_topic(config, &config.kafka.budget_topic, unset));
    let connections = [exposed::kafka(&config.kafka), exposed::registry(&config.registry)];
    let given_away = connections.into_iter().flatten().map(str::to_owned).chain(exposed::store());
    given_away.for_each(|what| add("security", CheckOutcome::Warned(what)));
    checks
}

fn store(url: &str) -> Result<Store, Failure> {
    if url.is_empty() {
        return Err(Failure::usage("root.url is not set; name the folder or URL of the lake"));
    }
    wiring::store(url)
}

fn failed(error: impl Into<WorkerError>) -> Failure {
    Failure::from_worker(&error.into())
}

async fn storage(store: &Store) -> Result<String, Failure> {
    store.probe().await.map_err(failed)?;
    Ok("objects can be created once, read, listed and deleted".to_owned())
}

/// Compares this machine's clock with the store's.
async fn clock(store: &Store, max_skew: Duration) -> Result<String, Failure> {
    let clock = SystemClock;
    let path = format!("{PROBE}clock-{}-{}", std::process::id(), clock.now().0);
    let before = clock.now();
    store.put_if_absent(&path, Bytes::from_static(b"clock")).await.map_err(failed)?;
    let after = clock.now();
    let listed = store.list(PROBE).await.map_err(failed)?;
    store.delete(&path).await.map_err(failed)?;
    let Some(object) = listed.into_iter().find(|object| object.path == path) else {
        return Err(Failure::usage(
            "the store does not list an object right after its creation; use a store with consistent \
             listings",
        ));
    };
    // Stores may round times down to whole seconds.
    let skew = before.since(object.modified).max(object.modified.since(after));
    if skew > max_skew + Duration::from_secs(1) {
        let skew = humantime::format_duration(Duration::from_secs(skew.as_secs()));
        return Err(Failure::usage(format!(
            "this machine's clock and the store's differ by {skew}, more than work.max_clock_skew; correct \
             the machine's clock"
        )));
    }
    Ok("this machine's clock agrees with the store's".to_owned())
}

/// Returns the number of shards of the root and the message of the check. The number is `None` if the root
/// does not exist.
async fn root(
    store: &Store,
    shards: Option<names::Shard>,
) -> Result<(Option<names::Shard>, String), Failure> {
    Ok(match Root::find(store, shards).await.map_err(failed)? {
        Some(root) => (Some(root.shards), format!("format {}, {} shards", root.format, root.shards)),
        None => (None, "not created yet; the first worker or backfill creates it".to_owned()),
    })
}

async fn ask_registry(config: &Config) -> CheckOutcome {
    match registry::open(&config.registry) {
        Ok(None) => CheckOutcome::Skipped("registry.url is not set: messages are in single-object encoding"),
        Ok(Some(client)) => match client.check().await {
            Ok(()) => CheckOutcome::Good(format!("{} answers", config.registry.url)),
            Err(fault) => CheckOutcome::Failed(registry::failure(fault)),
        },
        Err(failure) => CheckOutcome::Failed(failure),
    }
}

fn ask_partitions(config: &Config, topics: &[Text]) -> Result<BTreeMap<Text, u32>, Failure> {
    if config.kafka.bootstrap_servers.is_empty() {
        return Err(Failure::usage("kafka.bootstrap_servers is not set; name brokers as host:port"));
    }
    partitions(&kafka::connection(&config.kafka)?, topics).map_err(kafka::failure)
}

/// Checks that all topics exist, with as many partitions as the root has shards. Returns the message of the
/// check.
fn topics(config: &Config, shards: Option<names::Shard>) -> Result<String, Failure> {
    if config.kafka.topics.is_empty() {
        return Err(Failure::usage("kafka.topics is not set; name the topics with events"));
    }
    let named: Vec<Text> = config.kafka.topics.iter().map(|topic| Text::from(topic.name())).collect();
    config.kafka.organizations()?;
    let found = ask_partitions(config, &named)?;
    let wanted = shards.map(u32::from).or_else(|| found.values().next().copied()).unwrap_or_default();
    match found.iter().find(|(_, partitions)| **partitions == 0 || **partitions != wanted) {
        Some((topic, 0)) => Err(Failure::usage(format!(
            "there is no topic {topic}: create it with as many partitions as root.shards, or correct \
             kafka.topics"
        ))),
        Some((topic, partitions)) => Err(Failure::usage(format!(
            "topic {topic} has {partitions} partitions, but the root has {wanted} shards: the numbers must \
             be equal"
        ))),
        None => Ok(format!(
            "{} with {wanted} partitions each",
            config::topic_names(&config.kafka.topics).join(", ")
        )),
    }
}

/// Checks that the size of a topic's batches is bounded. A compressed batch may unpack to a thousand times
/// its size.
async fn batches(config: &Config) -> CheckOutcome {
    let connection = match kafka::connection(&config.kafka) {
        Ok(connection) => connection,
        Err(failure) => return CheckOutcome::Failed(failure),
    };
    let mut large = Vec::new();
    for topic in config.kafka.topics.iter().map(TopicConfig::name) {
        match topic_setting(&connection, topic, "max.message.bytes").await {
            Ok(Some(bytes)) if bytes.parse().is_ok_and(|bytes: u64| bytes > BATCH_BYTES) => {
                large.push(topic);
            }
            Ok(_) => {}
            Err(error) => return CheckOutcome::Failed(kafka::failure(error)),
        }
    }
    if large.is_empty() {
        return CheckOutcome::Good(format!("max.message.bytes of each topic is at most {BATCH_BYTES}"));
    }
    CheckOutcome::Warned(format!(
        "max.message.bytes of {} is above {BATCH_BYTES}: one compressed batch may unpack to more memory than \
         the worker has; if not all producers are trusted, set it to {BATCH_BYTES}",
        large.join(", ")
    ))
}

/// Checks that an output topic of the worker exists. `unset` is the message if no topic is configured.
fn output_topic(config: &Config, topic: &str, unset: &'static str) -> CheckOutcome {
    if topic.is_empty() {
        return CheckOutcome::Skipped(unset);
    }
    let found = ask_partitions(config, &[Text::from(topic)]);
    CheckOutcome::from(found.and_then(|found| match found.values().next() {
        Some(0) | None => Err(Failure::usage(format!("there is no topic {topic}: create it"))),
        Some(partitions) => Ok(format!("{topic} with {partitions} partitions")),
    }))
}
