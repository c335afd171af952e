//! `prorata collect`: converts a Kubernetes cluster's changes to events, and writes them to Kafka or to files
//! that `prorata backfill` folds.
//!
//! `options` reads the configuration, and `start` asks the API server. `journal` defines what is stored in
//! which order, and `files` and `topics` define where. `usage` reads measured use. `follow` is the loop.

mod files;
mod follow;
mod journal;
mod options;
mod start;
mod topics;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use prorata_collector::prices::PriceBook;
use prorata_collector::{CollectorOptions, CollectorState};
use prorata_connectors::kubernetes::{KubeCluster, KubeFault, KubeSettings};
use prorata_schemas::time::Timestamp;
use tokio::sync::watch;

use crate::commands::generate::kafka as sending;
use crate::commands::work::stop_on_signals;
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::operations::collector::{self, CollectorReport, SharedReport};
use crate::wiring::{self, kafka};
use crate::{logging, operations, report};
use files::FileJournal;
use follow::{Following, Periods, stopped};
use journal::Journal;
use start::Start;
use topics::TopicJournal;
use usage::UsageRounds;

/// Maximum time that a clean stop waits for the last response of the probes.
const LAST_ANSWER: Duration = Duration::from_secs(2);
/// Time between two sends of messages.
const SEND_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `prorata collect`.
#[derive(Clone, Debug, Args)]
pub struct CollectArgs {
    /// Folder or URL to write files of events to [default: send them to Kafka]
    #[arg(long, alias = "to", value_name = "FOLDER|URL")]
    pub output: Option<String>,
    /// Configuration file, with section collect, and for Kafka sections kafka and registry
    ///
    /// With a configuration file, probes, metrics and status are served at http.listen.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Organization that owns the cluster [default: collect.organization_id]
    #[arg(long, value_name = "ID")]
    pub organization: Option<String>,
    /// Id of the cluster in events [default: collect.cluster_id, or the uid of namespace kube-system]
    #[arg(long, value_name = "ID")]
    pub cluster: Option<String>,
    /// Kubeconfig [default: collect.kubeconfig, or as kubectl finds it, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<String>,
    /// Context of the kubeconfig [default: collect.context, or the current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Price list, as written by prorata prices import [default: collect.price_list]
    #[arg(long, value_name = "FILE")]
    pub price_list: Option<String>,
}

/// Follows a cluster until a stop is requested.
///
/// # Errors
/// If the configuration or a permission is wrong, or the cluster does not respond at the start.
pub fn run(args: &CollectArgs) -> anyhow::Result<ExitCode> {
    let config = load(args)?;
    logging::start(&config.log)?;
    // The registry and Kafka's topics are checked outside of asynchronous code.
    let kafka = if args.output.is_none() { Some(kafka_parts(&config)?) } else { None };
    let (runtime, _threads) = wiring::runtime(0)?;
    let outcome = runtime.block_on(collect(args, &config, kafka));
    runtime.shutdown_background();
    outcome.map(|()| ExitCode::SUCCESS)
}

fn load(args: &CollectArgs) -> Result<Config, Failure> {
    let mut config = config::load(args.config.as_deref())?.config;
    let collect = &mut config.collect;
    for (key, given) in [
        (&mut collect.organization_id, &args.organization),
        (&mut collect.cluster_id, &args.cluster),
        (&mut collect.kubeconfig, &args.kubeconfig),
        (&mut collect.context, &args.context),
        (&mut collect.price_list, &args.price_list),
    ] {
        if let Some(given) = given {
            key.clone_from(given);
        }
    }
    if config.collect.organization_id.is_empty() {
        let message = "no organization: name it with --organization, or as collect.organization_id";
        return Err(Failure::usage(message));
    }
    Ok(config)
}

/// The parts of a journal on Kafka.
type KafkaParts =
    (prorata_connectors::kafka::Connection, prorata_connectors::messages::MessageEncoder, String);

fn kafka_parts(config: &Config) -> anyhow::Result<KafkaParts> {
    let needed = [
        ("kafka.bootstrap_servers", config.kafka.bootstrap_servers.is_empty()),
        ("kafka.topics", config.kafka.topics.is_empty()),
        ("collect.state_topic", config.collect.state_topic.is_empty()),
    ];
    if let Some((key, _)) = needed.iter().find(|(_, is_missing)| *is_missing) {
        let message =
            format!("{key} is not set: name a folder with --output, or set it in --config for Kafka");
        return Err(Failure::usage(message).into());
    }
    let connection = kafka::connection(&config.kafka)?;
    let encoder = sending::encoder(config)?;
    let topic = config.kafka.topics.first().map(|topic| topic.name().to_owned()).unwrap_or_default();
    sending::check_topics(&connection, std::slice::from_ref(&topic))?;
    Ok((connection, encoder, topic))
}

async fn collect(args: &CollectArgs, config: &Config, kafka: Option<KafkaParts>) -> anyhow::Result<()> {
    let cluster = open(config).await?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(&stop)?;
    let ended = watch::Sender::new(false);
    let report = SharedReport::default();
    let serving = match (config.http.listen.as_str(), &args.config) {
        ("", _) | (_, None) => None,
        (listen, Some(_)) => {
            let mut watch = ended.subscribe();
            let ended = async move { while !*watch.borrow_and_update() && watch.changed().await.is_ok() {} };
            Some(operations::serve_router(listen, collector::router(&report), ended).await?)
        }
    };
    if let Some(serving) = &serving {
        tracing::info!(address = %serving.address, "serving probes, metrics and status");
    }
    let begun = tokio::select! {
        begun = begin(args, config, cluster, kafka, &report) => begun.map(Some),
        // The API server or the source of the state may not respond for a long time.
        () = stopped(&stop) => Ok(None),
    };
    let outcome = match begun {
        Ok(Some(begun)) => begun.follow(&stop).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    let _nobody_listens = ended.send(true);
    if let Some(serving) = serving {
        serving.finish(LAST_ANSWER).await;
    }
    outcome
}

/// Opens the cluster. No request is sent yet.
async fn open(config: &Config) -> Result<KubeCluster, Failure> {
    let collect = &config.collect;
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let kubeconfig = text(&collect.kubeconfig).map(PathBuf::from);
    let settings = KubeSettings { kubeconfig, context: text(&collect.context) };
    KubeCluster::open(&settings).await.map_err(failure)
}

/// A collector that is ready to follow its cluster.
struct Begun {
    following: Following,
    options: CollectorOptions,
    prices: PriceBook,
    state: CollectorState,
    /// Destination of events, for messages.
    to: String,
}

impl Begun {
    async fn follow(mut self, stop: &AtomicBool) -> anyhow::Result<()> {
        let events = self.following.run(self.options, self.prices, self.state, stop).await?;
        report::print(&format!("{events} events, to {}", self.to))?;
        Ok(())
    }
}

/// Reads everything that following needs from the API server and the stored state.
async fn begin(
    args: &CollectArgs,
    config: &Config,
    cluster: KubeCluster,
    kafka: Option<KafkaParts>,
    report: &SharedReport,
) -> anyhow::Result<Begun> {
    let collect = &config.collect;
    let start = Start::of(&cluster);
    start.reach().await.map_err(failure)?;
    let cluster_id = start.cluster_id(&collect.cluster_id).await?;
    let watched = start.watched().await.map_err(failure)?;
    let mut options = options::options(config, &cluster_id, watched)?;
    let prices = options::prices(collect, &options.currency)?;
    let organization_id = collect.organization_id.as_str();
    let (mut journal, to): (Box<dyn Journal>, String) = match (kafka, &args.output) {
        (Some((connection, encoder, topic)), _) => {
            let topics = (topic.clone(), collect.state_topic.clone());
            let journal = TopicJournal::new(connection, encoder, topics, organization_id, cluster_id.clone());
            (Box::new(journal), format!("topic {topic}"))
        }
        (None, to) => {
            let to = to.as_deref().unwrap_or_default();
            (Box::new(FileJournal::new(wiring::store(to)?, organization_id, &cluster_id)), to.to_owned())
        }
    };
    let every = if args.output.is_some() { collect.file_rotation_interval } else { SEND_EVERY };
    let state = journal.load().await?;
    // The server's time is not known to the second. Events from now on must not be cut off because of that.
    options.since = options.since.or(state.since).or_else(|| {
        let now = cluster.earliest_now();
        Some(Timestamp(now.seconds() * 1_000_000))
    });
    *report.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = CollectorReport {
        cluster_id: cluster_id.to_string(),
        api_server: cluster.url().to_owned(),
        ..CollectorReport::default()
    };
    report::print(&format!("following cluster {cluster_id} of {organization_id}, to {to}"))?;
    let periods = Periods { store_every: every, relist_interval: collect.relist_interval };
    let usage = UsageRounds::new(&cluster, collect)?;
    let following = Following::new(cluster, journal, Arc::clone(report), collect.clone(), periods, usage);
    Ok(Begun { following, options, prices, state, to })
}

/// Converts a fault of the cluster to a failure with an exit code.
fn failure(fault: KubeFault) -> Failure {
    match fault {
        KubeFault::Unavailable(_) => Failure::storage(fault),
        KubeFault::Permission(_) | KubeFault::Configuration(_) => Failure::usage(fault),
    }
}
