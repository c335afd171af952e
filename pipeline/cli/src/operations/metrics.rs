//! The worker's metrics for Prometheus, in OpenMetrics text. `README.md` in this folder lists them, and a
//! test compares the two.
//!
//! Labels are bounded: shards of the root, configured topics, event types and reasons. Only the metrics of
//! costs and budgets (`costs`) name organizations, and `http.cost_series` bounds them.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use prorata_schemas::event::EventKind;
use prorata_schemas::reject::Reason;
use prorata_schemas::time::{Timestamp, WallTime};
use prorata_worker::status::{DURATION_BOUNDS, Dependency, Durations, RequestKind, ShardStatus};

use super::view::Snapshot;

/// Prefix of every name.
pub(super) const PREFIX: &str = "prorata";

/// Labels of a sample.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Formats all metrics as text.
pub(super) fn text(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        self.put_worker(&mut out)?;
        self.put_ages(&mut out)?;
        self.put_shards(&mut out)?;
        self.put_costs(&mut out)?;
        self.put_counts(&mut out)?;
        self.put_durations(&mut out)
    }
}

impl Snapshot {
    fn put_worker(&self, out: &mut Out<'_>) -> fmt::Result {
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        let mut info = out.0.encode_descriptor("build", "Version of the program", None, MetricType::Info)?;
        info.encode_info(&version)?;
        let flag = |set: bool| [(Labels::new(), f64::from(u8::from(set)))];
        let status = &self.status;
        let ready = "1 if shards are assigned and loaded, and the worker is not stopping";
        out.gauge("ready", ready, None, flag(self.ready().is_ok()))?;
        let waiting = "1 while the worker waits for a dependency; /status says which";
        out.gauge("waiting", waiting, None, flag(!status.waits.is_empty()))?;
        let help = "1 while the worker waits for this dependency for a reason of this kind: transient \
                    resolves on its own; permission, missing and invalid need a person";
        out.gauge("waiting_for", help, None, self.waits())?;
        let tick =
            "Time since the last iteration of the worker's loop or response of storage; /livez depends on it";
        out.gauge(
            "heartbeat_age",
            tick,
            Some(Unit::Seconds),
            [(Labels::new(), self.heartbeat_age.as_secs_f64())],
        )?;
        let help = "Seconds that the clock of this machine is ahead of the store's, if that is more than \
                    work.max_clock_skew; otherwise 0";
        let ahead = [(Labels::new(), status.clock_skew_seconds as f64)];
        out.gauge("clock_skew", help, Some(Unit::Seconds), ahead)?;
        let loaded = self.loaded();
        let stopped = self.stopped().count();
        let loading = status.shards.len() - loaded - stopped;
        let states = [("loaded", loaded), ("loading", loading), ("stopped", stopped)];
        let states = states.map(|(state, count)| (vec![("state", state.to_owned())], count as f64));
        out.gauge("shards", "Shards held, by whether their state is loaded", None, states)?;
        let help =
            "1 while the shard is stopped for this reason and the others continue; /status says what to do";
        let stopped = self.stopped().map(|(shard, stop)| {
            (vec![("shard", shard.to_string()), ("reason", stop.reason.name().to_owned())], 1.0)
        });
        out.gauge("shard_stopped", help, None, stopped)
    }

    /// Returns one sample for each dependency and kind of reason: 1 if the worker waits.
    fn waits(&self) -> impl Iterator<Item = (Labels, f64)> {
        Dependency::ALL.into_iter().flat_map(|dependency| {
            let waits = self.status.waits.get(&dependency).map(|wait| wait.kind);
            dependency.kinds().iter().map(move |kind| {
                let labels =
                    vec![("dependency", dependency.name().to_owned()), ("kind", kind.name().to_owned())];
                (labels, f64::from(u8::from(waits == Some(*kind))))
            })
        })
    }

    fn put_ages(&self, out: &mut Out<'_>) -> fmt::Result {
        let seconds = || Some(Unit::Seconds);
        let of = |at: fn(&ShardStatus) -> Option<f64>| self.by_shard(at);
        let age = |at: fn(&ShardStatus) -> Option<Timestamp>| {
            self.by_shard(move |shard| at(shard).map(|then| self.age_seconds(then)))
        };
        let help = "Lag of the shard's watermark behind the wall clock";
        out.gauge("watermark_lag", help, seconds(), age(|shard| shard.watermark))?;
        let help = "Time since the last checkpoint of the shard";
        out.gauge(
            "checkpoint_age",
            help,
            seconds(),
            age(|shard| shard.checkpoint_at.map(WallTime::event_time)),
        )?;
        let help = "Time since the tables were last known to be equal to the shard's checkpoint";
        out.gauge("publish_lag", help, seconds(), age(|shard| shard.published_at.map(WallTime::event_time)))?;
        let help = "Time since the start of the shard's oldest open hour with events; no sample if there is \
                    none";
        out.gauge(
            "oldest_open_hour_age",
            help,
            seconds(),
            age(|shard| shard.oldest_open_hour.map(|hour| hour.start())),
        )?;
        let help = "End of the last closed hour of the shard, in Unix time";
        out.gauge(
            "closed_through_timestamp",
            help,
            seconds(),
            of(|shard| shard.closed_through.map(|hour| hour.end().seconds() as f64)),
        )?;
        let lags = self.status.shards.iter().flat_map(|(shard, status)| {
            status.topics.iter().filter_map(move |(topic, status)| {
                let labels = vec![("shard", shard.to_string()), ("topic", topic.to_string())];
                Some((labels, self.lag_seconds(status)?))
            })
        });
        let help =
            "Lag of the largest event time read from the topic partition behind the wall clock; 0 at its end";
        out.gauge("lag", help, seconds(), lags)
    }

    fn put_shards(&self, out: &mut Out<'_>) -> fmt::Result {
        let bytes = || Some(Unit::Bytes);
        let help = "Size of the shard's state when last written";
        out.gauge("state", help, bytes(), self.by_shard(|shard| Some(shard.state_bytes as f64)))?;
        let help = "Events of open hours of the shard in memory";
        out.gauge("open_events", help, bytes(), self.by_shard(|shard| Some(shard.open_events_bytes as f64)))?;
        let help = "Organizations in the shard's state";
        out.gauge("organizations", help, None, self.by_shard(|shard| Some(shard.organizations as f64)))?;
        let help = "Held organizations of the shard: the engine refused one of their hours";
        out.gauge("organizations_held", help, None, self.by_shard(|shard| Some(shard.held as f64)))?;
        let help = "Closed hours of the shard that wait to be recomputed";
        out.gauge("dirty_hours", help, None, self.by_shard(|shard| Some(shard.dirty_hours as f64)))?;
        let help = "How long the first of these hours has been waiting; no sample if there is none";
        let age = |shard: &ShardStatus| Some(self.age_seconds(shard.dirty_since?.event_time()));
        out.gauge("dirty_age", help, Some(Unit::Seconds), self.by_shard(age))
    }

    fn put_counts(&self, out: &mut Out<'_>) -> fmt::Result {
        let counts = &self.status.counts;
        let events = EventKind::ALL.map(|kind| {
            let count = counts.events.get(&kind).copied().unwrap_or_default();
            (vec![("event_type", kind.name().to_owned())], count)
        });
        out.counter("events", "Accepted events, by type", events)?;
        let letters = Reason::ALL.map(|reason| {
            let count = counts.dead_letters.get(&reason).copied().unwrap_or_default();
            (vec![("reason", reason.code().to_owned())], count)
        });
        out.counter("dead_letters", "Messages that could not become events, by reason", letters)?;
        let plain: [(&str, &str, u64); 14] = [
            ("late_events", "New events that arrived after their hour had closed", counts.late_events),
            (
                "late_duplicates",
                "Events of closed hours that the archive already had",
                counts.late_duplicates,
            ),
            ("hours_closed", "Hours closed, counted once per shard", counts.closed_hours),
            (
                "unpriced_pod_hours",
                "Pod-hours without a price, counted when their hour closed",
                counts.unpriced_pod_hours,
            ),
            (
                "hours_restated",
                "Hours whose rows changed when they were recomputed, counted once per shard",
                counts.restated_hours,
            ),
            (
                "organization_hours_folded",
                "Organization-hours folded, for the first time or again",
                counts.folded_organization_hours,
            ),
            (
                "full_restatements",
                "Restatements that recomputed all organizations of a shard",
                counts.full_restatements,
            ),
            ("checkpoints", "Checkpoints made", counts.checkpoints),
            ("table_commits", "Commits to tables", counts.commits),
            (
                "conflicts",
                "Checkpoints lost to another owner, and shards fenced by a table",
                counts.conflicts,
            ),
            ("rebalances", "Assignments and revocations of shards by the consumer group", counts.rebalances),
            ("retries", "Retries after failures of storage, Kafka or the schema registry", counts.retries),
            (
                "budget_messages",
                "Messages about exceeded budgets that kafka.budget_topic has",
                counts.budget_messages,
            ),
            (
                "budget_message_failures",
                "Failed attempts to send messages about exceeded budgets",
                counts.budget_failures,
            ),
        ];
        for (name, help, count) in plain {
            out.counter(name, help, [(Labels::new(), count)])?;
        }
        let requests = RequestKind::ALL.map(|kind| {
            let count = counts.requests.get(&kind).copied().unwrap_or_default();
            (vec![("kind", kind.name().to_owned())], count)
        });
        let help = "Requests to the object store, by kind: providers charge each of them";
        out.counter("storage_requests", help, requests)
    }

    fn put_durations(&self, out: &mut Out<'_>) -> fmt::Result {
        let counts = &self.status.counts;
        out.histogram("fold_duration", "Time to fold a window of hours", &counts.fold)?;
        out.histogram(
            "checkpoint_duration",
            "Time to make a checkpoint, from its first write",
            &counts.checkpoint,
        )?;
        out.histogram("publish_duration", "Time to publish checkpoints to the tables", &counts.publish)
    }

    /// Returns one sample for each shard that has a value.
    fn by_shard<'a>(
        &'a self,
        value: impl Fn(&ShardStatus) -> Option<f64> + 'a,
    ) -> impl Iterator<Item = (Labels, f64)> + 'a {
        let shards = self.status.shards.iter();
        shards.filter_map(move |(shard, status)| Some((vec![("shard", shard.to_string())], value(status)?)))
    }
}

/// A writer of whole metrics.
pub(super) struct Out<'a>(pub(super) DescriptorEncoder<'a>);

impl Out<'_> {
    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (labels, value) in samples {
            labelled(&mut metric, &labels, |sample| sample.encode_gauge(&value))?;
        }
        Ok(())
    }

    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            labelled(&mut metric, &labels, |sample| {
                sample.encode_counter::<NoLabelSet, u64, f64>(&value, None)
            })?;
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, durations: &Durations) -> fmt::Result {
        let unit = Unit::Seconds;
        let mut metric = self.0.encode_descriptor(name, help, Some(&unit), MetricType::Histogram)?;
        let bounds = DURATION_BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(durations.buckets).collect();
        let count = durations.buckets.iter().sum();
        metric.encode_histogram::<NoLabelSet>(durations.sum, count, &buckets, None)
    }
}

/// Writes a sample; an empty set of labels is written as no labels.
fn labelled(
    metric: &mut MetricEncoder<'_>,
    labels: &Labels,
    put: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.is_empty() { put(metric) } else { put(&mut metric.encode_family(labels)?) }
}
