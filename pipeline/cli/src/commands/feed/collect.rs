//! `prorata collect`: the collector's arguments, configuration and destination. `crate::collect` runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::collect::{self, Destination, EventTopic};
use crate::commands::generate::kafka as sending;
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::logging;
use crate::wiring::{self, kafka};

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
    let destination = match &args.output {
        Some(folder) => Destination::Folder(folder.clone()),
        None => Destination::Topic(Box::new(topic(&config)?)),
    };
    let listen = args.config.as_ref().map(|_file| config.http.listen.as_str());
    let listen = listen.filter(|listen| !listen.is_empty());
    let (runtime, _threads) = wiring::runtime(0)?;
    let outcome = runtime.block_on(collect::run(&config, destination, listen));
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

/// Returns the configured topic of events, after checking that the brokers have it.
fn topic(config: &Config) -> anyhow::Result<EventTopic> {
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
    let name = config.kafka.topics.first().map(|topic| topic.name().to_owned()).unwrap_or_default();
    sending::check_topics(&connection, std::slice::from_ref(&name))?;
    Ok(EventTopic { connection, encoder, name })
}
