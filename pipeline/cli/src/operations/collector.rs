//! Endpoints of a collector: the four paths of a worker, with responses made from a copy of
//! [`CollectorReport`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Registry, Unit};
use prorata_collector::FaultReason;
use serde::Serialize;

use super::metrics::{Labels, Out, PREFIX};
use super::{JSON, LIVE_WITHIN, OPEN_METRICS, TEXT, answer, elsewhere, probe};

/// The state of following one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindReport {
    /// Number of complete lists.
    pub lists: u64,
    /// Number of changes that the watch delivered.
    pub changes: u64,
    /// Time of the last list or change from the API server, or of a watch that showed no change.
    pub last_contact_at: Option<String>,
    /// Whether the server does not serve the kind, or the collector may not list it.
    pub absent: bool,
    /// Current error.
    pub error: Option<String>,
}

/// The state of reading measured use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageReport {
    /// Number of rounds of reads.
    pub rounds: u64,
    /// End of the last round.
    pub round_end: Option<String>,
    /// Number of responses that were read.
    pub responses: u64,
    /// Number of failed reads. Their pods have no interval in that round.
    pub failed_reads: u64,
    /// Number of intervals of measured use.
    pub intervals: u64,
    /// Number of incomplete samples. Their pods have no interval in that round.
    pub incomplete_samples: u64,
    /// Number of samples of pods that, according to events, do not run.
    pub unknown_pods: u64,
    /// Number of gaps without samples between two rounds.
    pub gaps: u64,
    /// Errors of the last round, at most five.
    pub errors: Vec<String>,
}

/// A collector's report, for probes, metrics and people.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CollectorReport {
    /// Id of the cluster in events.
    pub cluster_id: String,
    /// URL of the API server.
    pub api_server: String,
    /// Time of the loop's last iteration.
    #[serde(skip)]
    pub heartbeat: Option<Instant>,
    /// Whether nodes and pods are known, and their events are written.
    pub ready: bool,
    /// Whether a stop was requested.
    pub stopping: bool,
    /// State of each kind.
    pub kinds: BTreeMap<String, KindReport>,
    /// Number of queued changes.
    pub queue_depth: usize,
    /// Number of running pods.
    pub pods: usize,
    /// Number of running nodes.
    pub nodes: usize,
    /// Number of pods that wait for their node or claims.
    pub waiting_pods: usize,
    /// Nodes without a price, each with the entry that the price list lacks.
    pub unpriced_nodes: BTreeMap<String, String>,
    /// Nodes with parts of GPUs that are not known: for each node, the reasons, each with the first cause.
    pub unknown_gpu_shares: BTreeMap<String, BTreeMap<String, String>>,
    /// Number of events written.
    pub events: u64,
    /// Time of the last write.
    pub stored_at: Option<String>,
    /// Lag of the written events behind the API server, in seconds.
    pub lag_seconds: f64,
    /// Error that currently prevents events from being written.
    pub write_error: Option<String>,
    /// Number of objects whose stop was missed, so that only their absence from a list showed it.
    pub missed_stops: u64,
    /// Number of objects whose change the watch missed and a list repaired.
    pub repaired_objects: u64,
    /// Number of lists that were not accepted at once.
    pub suspect_lists: u64,
    /// Number of fields of objects that could not be read.
    pub unreadable_fields: u64,
    /// State of reading measured use; `None` if it is not read.
    pub usage: Option<UsageReport>,
    /// Error that prevented the price list from being read again.
    pub price_list_error: Option<String>,
}

/// The report, shared between the loop and the handlers.
pub type SharedReport = Arc<Mutex<CollectorReport>>;

/// Builds the router of the four paths.
pub fn router(report: &SharedReport) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .fallback(elsewhere)
        .with_state((Arc::clone(report), Instant::now()))
}

type ReportState = State<(SharedReport, Instant)>;

fn copy(report: &SharedReport) -> CollectorReport {
    report.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

async fn livez(State((report, started)): ReportState) -> Response {
    let age = copy(&report).heartbeat.unwrap_or(started).elapsed();
    let since = format!("the collector's loop iterated {} s ago", age.as_secs());
    probe(if age <= LIVE_WITHIN { Ok(format!("live: {since}")) } else { Err(format!("not live: {since}")) })
}

async fn readyz(State((report, _)): ReportState) -> Response {
    let report = copy(&report);
    probe(match (&report.write_error, report.stopping, report.ready) {
        (_, true, _) => Err("not ready: the collector is stopping".to_owned()),
        (Some(problem), ..) => Err(format!("not ready: {problem}")),
        (None, _, false) => Err("not ready: nodes and pods are not listed yet".to_owned()),
        (None, _, true) => Ok(format!("ready: {} pods are running on {} nodes", report.pods, report.nodes)),
    })
}

async fn status(State((report, _)): ReportState) -> Response {
    match serde_json::to_string_pretty(&copy(&report)) {
        Ok(text) => answer(StatusCode::OK, JSON, format!("{text}\n")),
        Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("no status: {error}\n")),
    }
}

async fn metrics(State((report, _)): ReportState) -> Response {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(copy(&report)));
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => answer(StatusCode::OK, OPEN_METRICS, text),
        Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("no metrics: {error}\n")),
    }
}

impl Collector for CollectorReport {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        let plain = |value: f64| [(Labels::new(), value)];
        let flag = |set: bool| [(Labels::new(), f64::from(u8::from(set)))];
        out.gauge("collector_ready", "1 when nodes and pods are known", None, flag(self.ready))?;
        let help = "1 while nothing can be stored; /status says why";
        out.gauge("collector_write_failing", help, None, flag(self.write_error.is_some()))?;
        let help = "How far the stored state is behind the API server";
        out.gauge("collector_lag", help, Some(Unit::Seconds), plain(self.lag_seconds))?;
        let help = "Changes waiting to be processed";
        out.gauge("collector_queue_depth", help, None, plain(self.queue_depth as f64))?;
        out.gauge("collector_pods", "Running pods", None, plain(self.pods as f64))?;
        out.gauge("collector_nodes", "Running nodes", None, plain(self.nodes as f64))?;
        let help = "Pods waiting for their node or their claims";
        out.gauge("collector_waiting_pods", help, None, plain(self.waiting_pods as f64))?;
        let help = "Nodes held back because they have no price";
        out.gauge("collector_unpriced_nodes", help, None, plain(self.unpriced_nodes.len() as f64))?;
        let with = |reason: FaultReason| {
            let nodes = self.unknown_gpu_shares.values().filter(|of| of.contains_key(reason.name()));
            (vec![("reason", reason.name().to_owned())], nodes.count() as f64)
        };
        let help = "Nodes with a part of a GPU that is not known";
        out.gauge("collector_unknown_gpu_shares", help, None, FaultReason::ALL.map(with))?;
        let problems = self.kinds.iter().map(|(kind, report)| {
            (vec![("kind", kind.clone())], f64::from(u8::from(report.error.is_some())))
        });
        out.gauge("collector_watch_failing", "1 while this kind cannot be watched", None, problems)?;
        let lists = self.kinds.iter().map(|(kind, report)| (vec![("kind", kind.clone())], report.lists));
        out.counter("collector_lists", "Complete lists", lists)?;
        let changes = self.kinds.iter().map(|(kind, report)| (vec![("kind", kind.clone())], report.changes));
        out.counter("collector_changes", "Changes reported by a watch", changes)?;
        let counters = [
            ("collector_events", "Events stored", self.events),
            ("collector_missed_stops", "Objects whose end was not seen", self.missed_stops),
            (
                "collector_repaired_objects",
                "Objects that a check found to differ from what the watch reported",
                self.repaired_objects,
            ),
            (
                "collector_suspect_lists",
                "Lists that would have ended too many objects, and were requested again",
                self.suspect_lists,
            ),
            (
                "collector_unreadable_fields",
                "Parts of objects that could not be read",
                self.unreadable_fields,
            ),
        ];
        for (name, help, count) in counters {
            out.counter(name, help, [(Labels::new(), count)])?;
        }
        self.usage.as_ref().map_or(Ok(()), |usage| usage_metrics(&mut out, usage))
    }
}

fn usage_metrics(out: &mut Out<'_>, usage: &UsageReport) -> fmt::Result {
    let fails = [(Labels::new(), f64::from(u8::from(!usage.errors.is_empty())))];
    let help = "1 while some measured use cannot be read; /status says which";
    out.gauge("collector_usage_failing", help, None, fails)?;
    for (name, help, count) in [
        ("collector_usage_rounds", "Rounds of reads of measured use", usage.rounds),
        ("collector_usage_failed_reads", "Reads of measured use that failed", usage.failed_reads),
        ("collector_usage_intervals", "Intervals of measured use", usage.intervals),
        (
            "collector_usage_incomplete_samples",
            "Readings of pods that lacked a part",
            usage.incomplete_samples,
        ),
        ("collector_usage_unknown_pods", "Readings of pods that are not running", usage.unknown_pods),
        ("collector_usage_gaps", "Gaps without samples between two rounds", usage.gaps),
    ] {
        out.counter(name, help, [(Labels::new(), count)])?;
    }
    Ok(())
}
