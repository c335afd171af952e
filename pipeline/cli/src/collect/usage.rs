//! Measured use: one round of reads in each period. The intervals between the ends of rounds cover time
//! without gaps.
//!
//! Rounds end at whole multiples of the period, by the API server's clock. So a restarted collector continues
//! where its predecessor stopped, and no two intervals of a pod overlap.

use std::time::Duration;

use prorata_collector::Collector;
use prorata_collector::usage::UsageTiles;
use prorata_connectors::kubernetes::{GpuExporters, KubeCluster, UsageRead, UsageReader, UsageSource};
use prorata_schemas::event::Event;
use prorata_schemas::time::Timestamp;
use tokio::task::JoinSet;

use super::cluster::failure;
use crate::config::{CollectConfig, MeasuredBy};
use crate::failure::Failure;
use crate::operations::collector::UsageReport;

/// Shortest and longest period. No interval may be longer than an hour.
const PERIODS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3_600)];

/// Rounds of reads.
pub struct UsageRounds {
    reader: UsageReader,
    tiles: UsageTiles,
    every: Duration,
    /// End of the latest round that was begun.
    begun: Option<Timestamp>,
    /// The round that is being read.
    reading: JoinSet<(Timestamp, UsageRead)>,
    report: UsageReport,
}

impl UsageRounds {
    /// Creates rounds as configured. Returns `None` if use is not measured.
    ///
    /// # Errors
    /// If a value is not valid for its key.
    pub fn new(cluster: &KubeCluster, config: &CollectConfig) -> Result<Option<Self>, Failure> {
        let exporters = (!config.dcgm_selector.is_empty()).then(|| GpuExporters {
            selector: config.dcgm_selector.clone(),
            namespace: Some(config.dcgm_namespace.clone()).filter(|namespace| !namespace.is_empty()),
            port: config.dcgm_port,
        });
        let source = match config.usage_source {
            MeasuredBy::MetricsApi => UsageSource::MetricsApi,
            MeasuredBy::Kubelet => UsageSource::Kubelet,
            MeasuredBy::None if exporters.is_none() => return Ok(None),
            MeasuredBy::None => {
                return Err(Failure::usage(
                    "collect.dcgm_selector is set, but collect.usage_source is none: set it to metrics_api \
                     or kubelet, so that CPU and memory are measured too",
                ));
            }
        };
        let [least, most] = PERIODS;
        let every = config.usage_interval;
        if every < least || every > most {
            return Err(Failure::usage("collect.usage_interval must be between 1s and 1h"));
        }
        let reader = UsageReader::new(cluster.clone(), source, exporters).map_err(failure)?;
        let tiles = UsageTiles::new(config.organization_id.as_str().into(), micros(every));
        let (begun, reading, report) = Default::default();
        Ok(Some(Self { reader, tiles, every, begun, reading, report }))
    }

    /// Begins a round if it is due and no round is being read.
    pub fn begin(&mut self, now: Timestamp, collector: &Collector) {
        let end = Timestamp(now.0 - now.0.rem_euclid(micros(self.every)));
        if !self.reading.is_empty() || self.begun.is_some_and(|begun| end <= begun) {
            return;
        }
        self.begun = Some(end);
        let (reader, every) = (self.reader.clone(), self.every);
        let nodes = collector.node_names().cloned().collect();
        self.reading.spawn(async move { (end, reader.read(nodes, every).await) });
    }

    /// Returns the intervals of a round that has been read completely; none if there is no such round.
    pub fn finish(&mut self, collector: &Collector) -> Vec<Event> {
        let Some(Ok((end, read))) = self.reading.try_join_next() else { return Vec::new() };
        for problem in &read.problems {
            tracing::warn!(problem, "measured use not read");
        }
        let running = collector.running_pods();
        let uid_of = |namespace: &str, name: &str| running.get(&(namespace, name)).map(|uid| (*uid).clone());
        let events = self.tiles.close(&read.round, end, uid_of);
        let totals = self.tiles.totals();
        let report = &mut self.report;
        report.rounds += 1;
        report.responses += read.answers;
        report.failed_reads += read.failed;
        report.errors = read.problems;
        report.round_end = Some(end.to_string());
        report.intervals = totals.intervals;
        report.incomplete_samples = totals.incomplete;
        report.gaps = totals.pauses;
        report.unknown_pods = totals.unknown_pods;
        events
    }

    /// Returns the state of reading measured use, for people.
    pub const fn report(&self) -> &UsageReport {
        &self.report
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
