//! The collector, which `prorata collect` runs. It follows a Kubernetes cluster until a stop is requested,
//! and writes the cluster's events to Kafka or to files that `prorata backfill` folds.
//!
//! `cluster` opens the cluster, `start` asks the API server, and `options` reads the configuration. `journal`
//! defines what is stored in which order, `files` and `topics` define where, and `destination` chooses one of
//! them. `usage` reads measured use. `follow` is the loop.

mod cluster;
mod destination;
mod files;
mod follow;
mod journal;
mod options;
mod start;
mod topics;
mod usage;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use prorata_collector::prices::PriceBook;
use prorata_collector::{CollectorOptions, CollectorState};
use prorata_connectors::kubernetes::KubeCluster;
use prorata_schemas::time::Timestamp;
use tokio::sync::watch;

use crate::config::Config;
use crate::operations::collector::{self, CollectorReport, SharedReport};
use crate::{operations, report, wiring};
use destination::Opened;
use follow::{Following, Periods, stopped};
use start::Start;
use usage::UsageRounds;

pub use destination::{Destination, EventTopic};

/// Maximum time that a clean stop waits for the last response of the probes.
const LAST_ANSWER: Duration = Duration::from_secs(2);

/// Follows the configured cluster until a stop is requested. Serves probes, metrics and status at `listen`,
/// unless it is `None`.
///
/// # Errors
/// If the configuration or a permission is wrong, the cluster does not respond at the start, another
/// collector has begun, or the events cannot be stored during a stop.
pub async fn run(config: &Config, destination: Destination, listen: Option<&str>) -> anyhow::Result<()> {
    let cluster = cluster::open(&config.collect).await?;
    let stop = Arc::new(AtomicBool::new(false));
    wiring::stop_on_signals(&stop)?;
    let ended = watch::Sender::new(false);
    let report = SharedReport::default();
    let serving = match listen {
        None => None,
        Some(listen) => {
            let mut watch = ended.subscribe();
            let ended = async move { while !*watch.borrow_and_update() && watch.changed().await.is_ok() {} };
            Some(operations::serve_router(listen, collector::router(&report), ended).await?)
        }
    };
    if let Some(serving) = &serving {
        tracing::info!(address = %serving.address, "serving probes, metrics and status");
    }
    let begun = tokio::select! {
        begun = begin(config, cluster, destination, &report) => begun.map(Some),
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

/// A collector that is ready to follow its cluster.
struct Begun {
    following: Following,
    options: CollectorOptions,
    prices: PriceBook,
    state: CollectorState,
    /// Name of the destination, for messages.
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
    config: &Config,
    cluster: KubeCluster,
    destination: Destination,
    report: &SharedReport,
) -> anyhow::Result<Begun> {
    let collect = &config.collect;
    let start = Start::of(&cluster);
    start.reach().await.map_err(cluster::failure)?;
    let cluster_id = start.cluster_id(&collect.cluster_id).await?;
    let watched = start.watched().await.map_err(cluster::failure)?;
    let mut options = options::options(config, &cluster_id, watched)?;
    let prices = options::prices(collect, &options.currency)?;
    let organization_id = collect.organization_id.as_str();
    let Opened { mut journal, name: to, store_every } = destination.open(collect, &cluster_id)?;
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
    let periods = Periods { store_every, relist_interval: collect.relist_interval };
    let usage = UsageRounds::new(&cluster, collect)?;
    let following = Following::new(cluster, journal, Arc::clone(report), collect.clone(), periods, usage);
    Ok(Begun { following, options, prices, state, to })
}
