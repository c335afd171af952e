//! `prorata work`: the stream worker, its probes, and its clean stop.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use prorata_connectors::kafka::{KafkaBudgets, KafkaDeadLetters, KafkaSettings, KafkaSource};
use prorata_connectors::messages::{ConfluentMessages, SingleObjectMessages, Times};
use prorata_connectors::registry::RegistryFault;
use prorata_worker::WorkerError;
use prorata_worker::ports::BudgetTopic;
use prorata_worker::source::{DeadLetterTopic, MessageDecoder};
use prorata_worker::status::Status;
use prorata_worker::stream::{SkippedBatch, StreamPorts, Worker, WorkerOptions};
use tokio::sync::watch;

use crate::config::{self, Config, Loaded, OffsetsLost, SkippedBatchConfig};
use crate::failure::Failure;
use crate::wiring::{self, kafka, registry};
use crate::{logging, operations};

/// Maximum time that a clean stop waits for the last response of the probes.
const LAST_ANSWER: Duration = Duration::from_secs(2);

/// Arguments of `prorata work`.
#[derive(Clone, Debug, Args)]
pub struct WorkArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Runs a worker until it receives a request to stop.
///
/// # Errors
/// See [`WorkerError`].
pub fn run(args: &WorkArgs) -> anyhow::Result<ExitCode> {
    let loaded = load(&args.config)?;
    logging::start(&loaded.config.log)?;
    let (runtime, _threads) = wiring::runtime(loaded.config.work.threads)?;
    let outcome = runtime.block_on(work(&loaded));
    // If a stop takes too long, the unfinished work of other threads is abandoned.
    runtime.shutdown_background();
    outcome.map(|()| ExitCode::SUCCESS)
}

fn load(file: &Path) -> Result<Loaded, Failure> {
    let loaded = config::load(Some(file))?;
    let needed = [
        ("root.url", loaded.config.root.url.is_empty(), "the folder or URL of the lake"),
        ("kafka.bootstrap_servers", loaded.config.kafka.bootstrap_servers.is_empty(), "brokers as host:port"),
        ("kafka.topics", loaded.config.kafka.topics.is_empty(), "the topics with events"),
    ];
    match needed.iter().find(|(_, missing, _)| *missing) {
        Some((key, _, what)) => {
            let file = file.display();
            Err(Failure::usage(format!("{key} is not set; name {what} in '{file}' or in the environment")))
        }
        None => Ok(loaded),
    }
}

async fn work(loaded: &Loaded) -> anyhow::Result<()> {
    let config = &loaded.config;
    let status = Arc::new(Status::default());
    let (stop, stopped) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(false));
    let mut watch = stopped.subscribe();
    let serving = match config.http.listen.as_str() {
        "" => None,
        listen => {
            let ended = async move { while !*watch.borrow_and_update() && watch.changed().await.is_ok() {} };
            let limits =
                operations::Limits { cost_series: config.http.cost_series, ..operations::Limits::default() };
            Some(operations::serve(listen, Arc::clone(&status), limits, ended).await?)
        }
    };
    if let Some(serving) = &serving {
        tracing::info!(address = %serving.address, "serving probes, metrics and status");
    }
    wiring::stop_on_signals(&stop)?;
    let outcome = stream(loaded, Arc::clone(&status), &stop).await;
    let _nobody_listens = stopped.send(true);
    if let Some(serving) = serving {
        serving.finish(LAST_ANSWER).await;
    }
    outcome
}

async fn stream(loaded: &Loaded, status: Arc<Status>, stop: &AtomicBool) -> anyhow::Result<()> {
    let config = &loaded.config;
    let options = options(config, loaded.shards_given)?;
    let shared = wiring::ports(wiring::store(&config.root.url)?.counted(Arc::clone(&status))).await?;
    let decoder: Arc<dyn MessageDecoder> = match registry::open(&config.registry)? {
        Some(registry) => {
            match registry.check().await {
                Ok(()) => {}
                // The worker waits for the registry when it needs a schema.
                Err(fault @ RegistryFault::Unavailable(_)) => {
                    tracing::warn!(%fault, "schema registry does not answer yet")
                }
                Err(fault) => return Err(registry::failure(fault).into()),
            }
            Arc::new(ConfluentMessages::new(registry, Times::PATIENT))
        }
        None => Arc::new(SingleObjectMessages::new()?),
    };
    let connection = kafka::connection(&config.kafka)?;
    let dead_letters: Option<Arc<dyn DeadLetterTopic>> = match config.kafka.dead_letter_topic.as_str() {
        "" => None,
        topic => {
            let dead_letters = KafkaDeadLetters::connect(connection.clone(), topic).await;
            Some(Arc::new(dead_letters.map_err(WorkerError::Source)?))
        }
    };
    let budgets: Option<Arc<dyn BudgetTopic>> = match config.kafka.budget_topic.as_str() {
        "" => None,
        topic => Some(Arc::new(KafkaBudgets::new(&connection, topic).map_err(WorkerError::Source)?)),
    };
    let mut settings =
        KafkaSettings::new(connection, config::topic_names(&config.kafka.topics), &*config.kafka.group_id);
    settings.instance =
        (!config.kafka.group_instance_id.is_empty()).then(|| config.kafka.group_instance_id.clone());
    settings.session_timeout = config.kafka.session_timeout;
    settings.revoke_timeout = config.work.drain_timeout;
    settings.queue_bytes = config.kafka.queue_bytes;
    let source = KafkaSource::connect(settings).await.map_err(WorkerError::Source)?;
    let ports = StreamPorts { shared, decoder, dead_letters, budgets, status };
    let worker = Worker::open(source, ports, options).await?;
    worker.run(stop).await?;
    Ok(())
}

fn options(config: &Config, shards_given: bool) -> Result<WorkerOptions, Failure> {
    Ok(WorkerOptions {
        owner: wiring::owner(),
        shards: shards_given.then_some(config.root.shards),
        root_format: config.root.format,
        retention: config.root.horizon,
        rules: config.rules.clone(),
        queue_bytes: config.kafka.queue_bytes,
        resident,
        continue_without_lost: config.kafka.offsets_lost == OffsetsLost::Earliest,
        organizations: config.kafka.organizations()?,
        skip_batches: config.kafka.skip_batches.iter().map(skipped_batch).collect(),
        moved_from: config.kafka.moved_from.clone(),
        retired_topics: config.kafka.retired_topics.iter().map(|topic| topic.name().into()).collect(),
        reads_costs: config.http.cost_series > 0 && !config.http.listen.is_empty(),
        ..config.work.clone()
    })
}

fn skipped_batch(skipped: &SkippedBatchConfig) -> SkippedBatch {
    SkippedBatch {
        topic: skipped.topic.as_str().into(),
        partition: skipped.partition,
        offset: skipped.offset,
        through: skipped.through.unwrap_or(skipped.offset),
    }
}

/// Returns the resident memory of this process without mapped files, in bytes. Returns 0 if the system,
/// unlike Linux, does not report it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.map_or(0, |kib: u64| kib << 10)
}
