//! What a collector serves: the same four paths as a worker, made from a copy of [`CollectorReport`].

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
use serde::Serialize;

use super::metrics::{Labels, Out, PREFIX};
use super::{JSON, LIVE_WITHIN, OPEN_METRICS, TEXT, answer, elsewhere, probe};

/// How one kind is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindReport {
    /// Complete lists.
    pub lists: u64,
    /// Changes that a watch told.
    pub changes: u64,
    /// When the API server last told anything.
    pub heard: Option<String>,
    /// The server does not have it, or it may not be listed.
    pub absent: bool,
    /// What is wrong now.
    pub problem: Option<String>,
}

/// How measured use is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageReport {
    /// Rounds that were read.
    pub rounds: u64,
    /// End of the last one.
    pub round_end: Option<String>,
    /// Answers that were read.
    pub answers: u64,
    /// Reads that failed: their pods have no interval of that round.
    pub failed_reads: u64,
    /// Intervals that were made.
    pub intervals: u64,
    /// Readings of pods that lacked a part: these have no interval of that round.
    pub incomplete: u64,
    /// Readings of pods that do not run, as events say.
    pub unknown_pods: u64,
    /// Rounds that lay so far apart that the time between has no sample.
    pub pauses: u64,
    /// What failed in the last round; at most five.
    pub problems: Vec<String>,
}

/// What a collector reports: for probes, metrics and people.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CollectorReport {
    /// The cluster's id in events.
    pub cluster_id: String,
    /// Where its API server is.
    pub api_server: String,
    /// When the loop last made a round.
    #[serde(skip)]
    pub ticked: Option<Instant>,
    /// Nodes and pods are known, and what they became is stored.
    pub ready: bool,
    /// A stop was asked for.
    pub stopping: bool,
    /// By kind.
    pub kinds: BTreeMap<String, KindReport>,
    /// Changes that wait to be looked at.
    pub queue: usize,
    /// Pods that run, as events say.
    pub pods: usize,
    /// Nodes that run, as events say.
    pub nodes: usize,
    /// Pods that wait for their node or their claims.
    pub waiting_pods: usize,
    /// Nodes without a price, with what a price list would have to have.
    pub held_nodes: BTreeMap<String, String>,
    /// Events that were stored.
    pub events: u64,
    /// When anything was last stored.
    pub stored: Option<String>,
    /// How far behind the API server what is stored is, in seconds.
    pub behind_seconds: f64,
    /// Why nothing can be stored now.
    pub storing_problem: Option<String>,
    /// Objects whose end nobody saw: a list lacked them.
    pub lost_stops: u64,
    /// Objects that a check has found to be otherwise than was told.
    pub repaired: u64,
    /// Lists that were not believed.
    pub held_lists: u64,
    /// Parts of objects that could not be read.
    pub unreadable: u64,
    /// How measured use is read; none: it is not.
    pub usage: Option<UsageReport>,
    /// Why the price list was not read again.
    pub price_problem: Option<String>,
}

/// The report, as it is shared.
pub type SharedReport = Arc<Mutex<CollectorReport>>;

/// The four paths.
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
    let age = copy(&report).ticked.unwrap_or(started).elapsed();
    let since = format!("the collector's loop iterated {} s ago", age.as_secs());
    probe(if age <= LIVE_WITHIN { Ok(format!("live: {since}")) } else { Err(format!("not live: {since}")) })
}

async fn readyz(State((report, _)): ReportState) -> Response {
    let report = copy(&report);
    probe(match (&report.storing_problem, report.stopping, report.ready) {
        (_, true, _) => Err("not ready: the collector is stopping".to_owned()),
        (Some(problem), ..) => Err(format!("not ready: {problem}")),
        (None, _, false) => Err("not ready: nodes and pods are not listed yet".to_owned()),
        (None, _, true) => Ok(format!("ready: {} pods on {} nodes run", report.pods, report.nodes)),
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
        out.gauge("collector_storing_fails", help, None, flag(self.storing_problem.is_some()))?;
        let help = "How far behind the API server what is stored is";
        out.gauge("collector_behind", help, Some(Unit::Seconds), plain(self.behind_seconds))?;
        let help = "Changes that wait to be looked at";
        out.gauge("collector_queue", help, None, plain(self.queue as f64))?;
        out.gauge("collector_pods", "Pods that run", None, plain(self.pods as f64))?;
        out.gauge("collector_nodes", "Nodes that run", None, plain(self.nodes as f64))?;
        let help = "Pods that wait for their node or their claims";
        out.gauge("collector_waiting_pods", help, None, plain(self.waiting_pods as f64))?;
        let help = "Nodes that are held back because they have no price";
        out.gauge("collector_held_nodes", help, None, plain(self.held_nodes.len() as f64))?;
        let problems = self.kinds.iter().map(|(kind, report)| {
            (vec![("kind", kind.clone())], f64::from(u8::from(report.problem.is_some())))
        });
        out.gauge("collector_watch_fails", "1 while this kind cannot be followed", None, problems)?;
        let lists = self.kinds.iter().map(|(kind, report)| (vec![("kind", kind.clone())], report.lists));
        out.counter("collector_lists", "Complete lists", lists)?;
        let changes = self.kinds.iter().map(|(kind, report)| (vec![("kind", kind.clone())], report.changes));
        out.counter("collector_changes", "Changes that a watch told", changes)?;
        let counters = [
            ("collector_events", "Events that were stored", self.events),
            ("collector_lost_stops", "Objects whose end nobody saw", self.lost_stops),
            ("collector_repaired", "Objects that a check has found otherwise than told", self.repaired),
            ("collector_held_lists", "Lists that were not believed at once", self.held_lists),
            ("collector_unreadable", "Parts of objects that could not be read", self.unreadable),
        ];
        for (name, help, count) in counters {
            out.counter(name, help, [(Labels::new(), count)])?;
        }
        self.usage.as_ref().map_or(Ok(()), |usage| usage_metrics(&mut out, usage))
    }
}

fn usage_metrics(out: &mut Out<'_>, usage: &UsageReport) -> fmt::Result {
    let fails = [(Labels::new(), f64::from(u8::from(!usage.problems.is_empty())))];
    let help = "1 while measured use cannot be read everywhere; /status says where";
    out.gauge("collector_usage_fails", help, None, fails)?;
    for (name, help, count) in [
        ("collector_usage_rounds", "Rounds of reads of measured use", usage.rounds),
        ("collector_usage_failed_reads", "Reads of measured use that failed", usage.failed_reads),
        ("collector_usage_intervals", "Intervals of measured use", usage.intervals),
        ("collector_usage_incomplete", "Readings of pods that lacked a part", usage.incomplete),
        ("collector_usage_unknown_pods", "Readings of pods that do not run", usage.unknown_pods),
        ("collector_usage_pauses", "Times without samples between two rounds", usage.pauses),
    ] {
        out.counter(name, help, [(Labels::new(), count)])?;
    }
    Ok(())
}
