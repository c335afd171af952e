//! The loop: it reads changes and passes batches to the journal. While a batch is being stored, nothing is
//! read, the queue fills, and the watches wait.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use prorata_collector::object::ObjectKind;
use prorata_collector::prices::PriceBook;
use prorata_collector::{Batch, Change, Collector, CollectorOptions, CollectorState, Notice};
use prorata_connectors::kubernetes::{KubeCluster, Observation, Watches};
use prorata_schemas::Text;
use prorata_schemas::event::Event;
use prorata_schemas::time::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep};

use super::journal::{Journal, NotStored};
use super::options;
use super::start::KINDS;
use super::usage::UsageRounds;
use crate::config::CollectConfig;
use crate::failure::Failure;
use crate::operations::collector::{CollectorReport, KindReport, SharedReport};

/// Maximum number of changes in the queue. A pod takes about a kilobyte.
const QUEUE: usize = 1_024;
/// Number of changes after which a batch is stored early. The events and state changes of the batch stay in
/// memory until then.
const BATCH_CHANGES: usize = 2_000;
/// Time between two ticks of the collector, and between two checks of the price list.
const TICK: Duration = Duration::from_secs(10);
/// Time between two checks for a stop.
const ROUND: Duration = Duration::from_millis(250);
/// Minimum time between two reports, because a report counts all pods.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// First wait between attempts to store a batch.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// Maximum time that a stop waits for a failing journal. After a restart, a watch or a list delivers the
/// changes that were not stored.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
/// Time after which a suspect list is requested again.
const DOUBTED_AFTER: Duration = Duration::from_secs(60);

/// Time between recurring actions.
#[derive(Clone, Copy, Debug)]
pub struct Periods {
    /// Time between two batches.
    pub store_every: Duration,
    /// Time between two checks of a kind.
    pub relist_interval: Duration,
}

/// A cluster that is followed, and the destination of its events.
pub struct Following {
    cluster: KubeCluster,
    journal: Box<dyn Journal>,
    report: SharedReport,
    config: CollectConfig,
    periods: Periods,
    usage: Option<UsageRounds>,
}

/// The state of one run.
struct Progress {
    collector: Collector,
    watches: Watches,
    currency: Text,
    prices: PriceBook,
    /// Time and size of the price list's file when it was last read.
    price_stamp: Option<(SystemTime, u64)>,
    /// Time of the last change. It never decreases.
    now: Timestamp,
    /// Changes since the last batch.
    changes: usize,
    stored: Instant,
    events: u64,
    /// Whether nodes and pods are known.
    is_ready: bool,
    /// Time up to which all changes of pods are stored.
    stored_to: Option<Timestamp>,
    /// Intervals of measured use since the last batch.
    measured: Vec<Event>,
}

impl Following {
    /// Creates the loop for a cluster and the destination of its events.
    pub fn new(
        cluster: KubeCluster,
        journal: Box<dyn Journal>,
        report: SharedReport,
        config: CollectConfig,
        periods: Periods,
        usage: Option<UsageRounds>,
    ) -> Self {
        Self { cluster, journal, report, config, periods, usage }
    }

    /// Follows the cluster until a stop is requested. Returns the number of stored events.
    ///
    /// # Errors
    /// If another collector has begun, or the journal fails during a stop.
    pub async fn run(
        &mut self,
        options: CollectorOptions,
        prices: PriceBook,
        state: CollectorState,
        stop: &AtomicBool,
    ) -> Result<u64, Failure> {
        let (sender, mut queue) = mpsc::channel(QUEUE);
        let version = state.pods_version.clone();
        let watches = Watches::start(&self.cluster, &KINDS, version, &sender, self.periods.relist_interval);
        let mut run = Progress {
            currency: options.currency.clone(),
            collector: Collector::new(options, Arc::new(prices.clone()), state),
            watches,
            prices,
            price_stamp: None,
            now: Timestamp(0),
            changes: 0,
            stored: Instant::now(),
            events: 0,
            is_ready: false,
            stored_to: None,
            measured: Vec::new(),
        };
        let (mut rounds, mut ticked, mut shown) = (interval(ROUND), Instant::now(), Instant::now());
        while !stop.load(Ordering::Relaxed) {
            tokio::select! {
                Some(observation) = queue.recv() => {
                    run.take(observation);
                    // This function holds a sender, so the queue never closes.
                    while run.changes < BATCH_CHANGES && let Ok(observation) = queue.try_recv() {
                        run.take(observation);
                    }
                }
                _ = rounds.tick() => {}
            }
            if shown.elapsed() >= SHOW_EVERY {
                shown = Instant::now();
                self.show(&run, &queue);
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.tick(&mut run);
            }
            self.measure(&mut run);
            let is_due = run.changes > 0 && run.stored.elapsed() >= self.periods.store_every;
            if is_due || run.changes >= BATCH_CHANGES {
                // If this batch makes the collector ready, the report already shows the objects in the batch.
                self.show(&run, &queue);
                self.store(&mut run, &queue, stop).await?;
            }
        }
        self.note(|report| report.stopping = true);
        self.store(&mut run, &queue, stop).await?;
        Ok(run.events)
    }

    fn note(&self, change: impl FnOnce(&mut CollectorReport)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// If the existing pods are known, takes the events of a finished round of measured use, and begins the
    /// next round.
    fn measure(&mut self, run: &mut Progress) {
        let Some(usage) = self.usage.as_mut().filter(|_| run.is_ready) else { return };
        let mut events = usage.finish(&run.collector);
        run.changes += events.len();
        run.measured.append(&mut events);
        usage.begin(self.cluster.now(), &run.collector);
    }

    /// Advances the collector's time, and reads prices that may have changed.
    fn tick(&self, run: &mut Progress) {
        self.read_prices(run);
        run.apply(Change::Tick, self.cluster.now());
    }

    /// Reads the price list if its file has changed since the last time.
    fn read_prices(&self, run: &mut Progress) {
        let stamp = options::price_stamp(&self.config);
        if self.config.price_list.is_empty() || (stamp.is_some() && stamp == run.price_stamp) {
            return;
        }
        match options::prices(&self.config, &run.currency) {
            Ok(prices) => {
                run.price_stamp = stamp;
                if prices != run.prices {
                    tracing::info!(prices = prices.list.len(), "price list changed");
                    run.apply(Change::Prices(Arc::new(prices.clone())), self.cluster.now());
                    run.prices = prices;
                }
                self.note(|report| report.price_list_error = None);
            }
            // The known prices stay in force.
            Err(failure) => {
                tracing::warn!(%failure, "price list not read again; keeping the known prices");
                run.price_stamp = None;
                self.note(|report| report.price_list_error = Some(failure.to_string()));
            }
        }
    }

    /// Stores the pending changes, and repeats failed attempts until they succeed. Fails if another collector
    /// has begun, or after `STOP_PATIENCE` during a stop.
    async fn store(
        &mut self,
        run: &mut Progress,
        queue: &mpsc::Receiver<Observation>,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let mut batch = run.collector.take_batch();
        batch.events.append(&mut run.measured);
        self.log(run, &batch);
        let (mut wait, mut stopping) = (RETRY_FIRST, None);
        while let Err(fault) = self.journal.store(&batch, run.collector.state()).await {
            let failure = match fault {
                NotStored::ShutOut(failure) => return Err(failure),
                NotStored::Fails(failure) => failure,
            };
            tracing::warn!(%failure, "storing failed; trying again in {wait:?}");
            let behind = run.lag_seconds(queue.len(), self.cluster.now());
            self.note(|report| {
                report.write_error = Some(failure.to_string());
                report.lag_seconds = behind;
                report.queue_depth = queue.len();
                report.heartbeat = Some(std::time::Instant::now());
            });
            if stop.load(Ordering::Relaxed)
                && stopping.get_or_insert_with(Instant::now).elapsed() > STOP_PATIENCE
            {
                return Err(failure);
            }
            tokio::select! {
                () = sleep(wait) => wait = (2 * wait).min(RETRY_MAX),
                () = stopped(stop), if stopping.is_none() => wait = RETRY_FIRST,
            }
        }
        run.events += batch.events.len() as u64;
        run.stored = Instant::now();
        run.changes = 0;
        let caught_up = batch.caught_up.get(&ObjectKind::Pod).copied();
        let is_ready = caught_up.is_some() && batch.caught_up.contains_key(&ObjectKind::Node);
        (run.is_ready, run.stored_to) = (is_ready, caught_up);
        let (events, now) = (run.events, self.cluster.now());
        let behind = run.lag_seconds(queue.len(), now);
        self.note(|report| {
            report.write_error = None;
            report.events = events;
            report.ready = is_ready;
            report.stored_at = Some(now.to_string());
            report.lag_seconds = behind;
        });
        Ok(())
    }

    /// Logs the notices of a batch and counts them in the report.
    fn log(&self, run: &mut Progress, batch: &Batch) {
        let (mut missed_stops, mut repaired, mut suspect_lists, mut unreadable) = (0, 0, 0, 0);
        for notice in &batch.notices {
            match notice {
                Notice::Unreadable { kind, name, fault } => {
                    unreadable += 1;
                    tracing::warn!(?kind, name, fault, "part of an object skipped: it cannot be read");
                }
                Notice::UnpricedNode { name, wanted } => {
                    tracing::warn!(
                        node = &**name,
                        wanted,
                        "node held back: it has no price; add it to the price list"
                    );
                }
                Notice::UnmappedDevices { pod, devices } => {
                    let devices = devices.join(", ");
                    tracing::warn!(pod, devices, "devices have no resource name; set collect.device_classes");
                }
                Notice::SentWithout { pod, missing } => {
                    tracing::warn!(
                        pod,
                        missing,
                        "pod sent without what it names: it waited for five minutes"
                    );
                }
                Notice::UnknownGpuShare { node, reason, what } => {
                    let reason = reason.name();
                    tracing::warn!(
                        node = &**node,
                        reason,
                        what,
                        "part of a GPU not known; see collect.gpu_sharing"
                    );
                }
                Notice::MissedStop { kind, id, earliest, latest } => {
                    missed_stops += 1;
                    tracing::info!(?kind, id = &**id, %earliest, %latest, "end of an object not seen");
                }
                Notice::Repaired { kind, name } => {
                    repaired += 1;
                    tracing::warn!(?kind, name, "change found by a check: the watch had not reported it");
                }
                Notice::SuspectList { kind, stops, running } => {
                    suspect_lists += 1;
                    tracing::warn!(?kind, stops, running, "list would end too many objects; listing again");
                    run.watches.list_again(*kind, DOUBTED_AFTER);
                }
                Notice::Relist(kind) => run.watches.list_again(*kind, Duration::ZERO),
            }
        }
        self.note(|report| {
            report.missed_stops += missed_stops;
            report.repaired_objects += repaired;
            report.suspect_lists += suspect_lists;
            report.unreadable_fields += unreadable;
        });
    }

    /// Updates the report.
    fn show(&self, run: &Progress, queue: &mpsc::Receiver<Observation>) {
        let kinds = run.watches.status().into_iter().map(|(kind, status)| {
            let report = KindReport {
                lists: status.lists,
                changes: status.changes,
                last_contact_at: status.last_contact.map(|at| at.to_string()),
                absent: status.is_absent,
                error: status.error,
            };
            (format!("{kind:?}"), report)
        });
        let held = run.collector.unpriced_nodes().map(|(name, wanted)| (name.to_string(), wanted));
        let (kinds, unpriced_nodes) = (kinds.collect(), held.collect());
        let mut gpu_shares: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for (node, reason, what) in run.collector.gpu_faults() {
            let of_node = gpu_shares.entry(node.to_string()).or_default();
            of_node.insert(reason.name().to_owned(), what.to_owned());
        }
        let running = |kind| run.collector.running(kind);
        let (pods, nodes) = (running(ObjectKind::Pod), running(ObjectKind::Node));
        let usage = self.usage.as_ref().map(|usage| usage.report().clone());
        let behind = run.lag_seconds(queue.len(), self.cluster.now());
        self.note(|report| {
            report.usage = usage;
            report.heartbeat = Some(std::time::Instant::now());
            report.kinds = kinds;
            report.unpriced_nodes = unpriced_nodes;
            report.unknown_gpu_shares = gpu_shares;
            report.queue_depth = queue.len();
            report.lag_seconds = behind;
            report.pods = pods;
            report.nodes = nodes;
            report.waiting_pods = run.collector.waiting_pods();
        });
    }
}

/// Returns the seconds from the later of `stored_to` and `contact` to `now`; 0 if nothing was stored yet.
fn lag_seconds(stored_to: Option<Timestamp>, contact: Option<Timestamp>, now: Timestamp) -> f64 {
    let known = stored_to.map(|stored| contact.unwrap_or(stored).max(stored));
    let behind = known.map_or(0, |at| now.0.saturating_sub(at.0).max(0));
    Duration::from_micros(behind.unsigned_abs()).as_secs_f64()
}

/// Waits until a stop is requested.
pub async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        sleep(ROUND).await;
    }
}

impl Progress {
    fn take(&mut self, observation: Observation) {
        self.changes += 1;
        self.apply(observation.change, observation.at);
    }

    /// Returns the lag of the stored changes relative to the API server, in seconds. If nothing is left to
    /// store, the last contact counts, because pods that do not change have no bookmarks and cause no lag.
    fn lag_seconds(&self, queued: usize, now: Timestamp) -> f64 {
        let is_idle = self.changes == 0 && queued == 0;
        let status = is_idle.then(|| self.watches.status());
        let contact = status.and_then(|kinds| kinds.get(&ObjectKind::Pod)?.last_contact);
        lag_seconds(self.stored_to, contact, now)
    }

    fn apply(&mut self, change: Change, at: Timestamp) {
        self.now = self.now.max(at);
        self.collector.apply(change, self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_do_not_change_lag_nothing() {
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        let lag = |stored: Option<i64>, contact: Option<i64>| {
            lag_seconds(stored.map(at), contact.map(at), at(1_000)).to_string()
        };
        assert_eq!(lag(None, Some(990)), "0", "nothing was stored yet");
        assert_eq!(lag(Some(400), None), "600", "changes are left to store");
        assert_eq!(lag(Some(400), Some(990)), "10", "a watch was opened since, and showed nothing");
        assert_eq!(lag(Some(995), Some(990)), "5");
        assert_eq!(lag(Some(1_001), None), "0", "the clock was corrected");
    }
}
