//! Three accounts of what pods did: an undisturbed watch of the API server, the collected events, and the
//! table that they fold into.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_cast::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;
use kube::core::WatchEvent;
use kube::core::params::WatchParams;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use prorata_connectors::archive::read_events;
use prorata_schemas::event::{Event, Payload};
use prorata_schemas::time::Timestamp;
use prorata_testkit::wait::eventually;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::cluster::Cluster;

/// A pod's start and end, in whole seconds as Kubernetes writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    pub start: String,
    pub end: Option<String>,
}

/// Lives of pods, by uid.
pub type Lives = BTreeMap<String, Life>;

/// An undisturbed watch of all pods in a namespace, from now on.
pub struct Watcher {
    lives: Arc<Mutex<Lives>>,
    /// Latest version of each pod, by uid.
    shown: Arc<Mutex<BTreeMap<String, Value>>>,
    task: JoinHandle<()>,
}

impl Watcher {
    pub fn start(cluster: &Cluster, pods: &str) -> Self {
        let version = cluster.get(pods).unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let (client, pods) = (cluster.client.clone(), pods.to_owned());
        let lives = Arc::<Mutex<Lives>>::default();
        let shown = Arc::<Mutex<BTreeMap<String, Value>>>::default();
        let (seen, last) = (Arc::clone(&lives), Arc::clone(&shown));
        let task = cluster.runtime().spawn(async move {
            let params = WatchParams::default().timeout(290);
            let mut version = version;
            loop {
                let request = kube::core::Request::new(pods.as_str()).watch(&params, &version).unwrap();
                let mut events = std::pin::pin!(client.request_events::<Value>(request).await.unwrap());
                while let Some(event) = events.try_next().await.unwrap() {
                    let (pod, is_gone) = match event {
                        WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, false),
                        WatchEvent::Deleted(pod) => (pod, true),
                        WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(status) => panic!("{status}"),
                    };
                    version = text(&pod["metadata"]["resourceVersion"]).unwrap();
                    note(&mut seen.lock().unwrap(), &pod, is_gone);
                    last.lock().unwrap().insert(text(&pod["metadata"]["uid"]).unwrap(), pod);
                }
            }
        });
        Self { lives, shown, task }
    }

    /// Returns the lives that the watch has seen so far.
    pub fn lives_so_far(&self) -> Lives {
        assert!(!self.task.is_finished(), "the watcher has ended");
        self.lives.lock().unwrap().clone()
    }

    /// Waits until the watch has seen every pod end. Returns the lives of the pods.
    pub fn lives(&self) -> Lives {
        eventually("the watch has shown all ends", || {
            let lives = self.lives_so_far();
            let mut running = lives.iter().filter(|(_, life)| life.end.is_none());
            match running.next() {
                None => Ok(lives),
                Some((uid, _)) => Err(format!("{:#}", self.shown.lock().unwrap()[uid])),
            }
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn note(lives: &mut Lives, pod: &Value, is_gone: bool) {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let scheduled = conditions.iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "True");
    let start = scheduled.and_then(|scheduled| text(&scheduled["lastTransitionTime"]));
    let uid = text(&pod["metadata"]["uid"]).unwrap();
    // A scheduler whose connection breaks while it binds a pod takes the condition back, but the pod runs.
    let Some(first) = lives.get(&uid).map(|life| life.start.clone()).or(start.clone()) else { return };
    assert!(start.is_none_or(|start| start == first), "the time of a binding stays");
    let life = lives.entry(uid).or_insert_with(|| Life { start: first, end: None });
    if life.end.is_some() {
        return;
    }
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let containers = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    let finished = containers.iter().filter_map(|one| text(&one["state"]["terminated"]["finishedAt"])).max();
    if ["Succeeded", "Failed"].contains(&phase) {
        life.end = finished;
    } else if is_gone {
        life.end = text(&pod["metadata"]["deletionTimestamp"]);
    }
}

/// Formats a time as Kubernetes does, in whole seconds.
pub fn second_of(at: Timestamp) -> String {
    format!("{}Z", &at.to_string()[..19])
}

/// Waits until events report the end of a pod.
pub fn wait_for_end(folder: &Path, namespace: &str, uid: &str) {
    eventually("its end is reported", || said(&events(folder), namespace)[uid].end.is_some());
}

/// Returns all events of a folder, each as often as it was written.
pub fn events(folder: &Path) -> Vec<Event> {
    let mut events = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|name| name == "avro") {
                let file = std::fs::File::open(&path).unwrap();
                read_events(file, &mut |_, record| events.push(record.unwrap().event.into_owned())).unwrap();
            }
        }
    }
    events
}

/// Returns the lives of a namespace's pods according to the events. Fails if a pod has no start.
pub fn said(events: &[Event], namespace: &str) -> Lives {
    let (lives, only_stopped) = said_by_killed(events, namespace);
    assert!(only_stopped.is_empty(), "stops without a start: {only_stopped:?}");
    lives
}

/// Returns the lives of a namespace's pods according to the events of a killed collector, and the pods that
/// have only a stop. A collector that was killed while it sent a start may find the pod gone. It then does
/// not know whether the start was sent. Each start and each stop of a pod has one time, however often it was
/// sent.
pub fn said_by_killed(events: &[Event], namespace: &str) -> (Lives, BTreeSet<String>) {
    let mut starts = BTreeMap::<String, BTreeSet<String>>::new();
    let mut stops = BTreeMap::<String, BTreeSet<String>>::new();
    let seconds = |event: &Event| second_of(event.event_time);
    for event in events {
        match &event.payload {
            Payload::PodStarted(pod) if *pod.namespace == *namespace => {
                starts.entry(pod.pod_uid.to_string()).or_default().insert(seconds(event));
            }
            Payload::PodStopped(pod) if *pod.namespace == *namespace => {
                stops.entry(pod.pod_uid.to_string()).or_default().insert(seconds(event));
            }
            _ => {}
        }
    }
    let mut lives = Lives::new();
    for (uid, starts) in starts {
        let stops = stops.remove(&uid).unwrap_or_default();
        assert!(stops.len() <= 1, "{uid} stops at {stops:?}");
        let start = starts.first().unwrap().clone();
        lives.insert(uid, Life { start, end: stops.first().cloned() });
    }
    (lives, stops.into_keys().collect())
}

/// Returns the seconds that each pod of a namespace ran, according to the table `cost_allocation` of a lake.
pub fn running_seconds(lake: &Path, namespace: &str) -> BTreeMap<String, u64> {
    let whole = |text: &str| text.split('.').next().unwrap().parse::<u64>().unwrap();
    let mut seconds = BTreeMap::new();
    for (uid, text) in column(lake, namespace, "x_RunningSeconds") {
        *seconds.entry(uid).or_insert(0) += whole(&text);
    }
    seconds
}

/// Returns the sums of a column of `cost_allocation`, by pod of a namespace.
pub fn column_sums(lake: &Path, namespace: &str, name: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (uid, text) in column(lake, namespace, name) {
        *sums.entry(uid).or_insert(0.0) += text.parse::<f64>().unwrap();
    }
    sums
}

/// Returns the values of a column of `cost_allocation` for pods of a namespace, each with the uid of the pod.
/// Nulls are left out.
pub fn column(lake: &Path, namespace: &str, name: &str) -> Vec<(String, String)> {
    let mut values = Vec::new();
    let mut folders = vec![lake.join("cost_allocation")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("_delta_log") {
                folders.push(path);
            } else if path.extension().is_some_and(|name| name == "parquet") {
                add(&mut values, &path, (namespace, name));
            }
        }
    }
    values
}

fn add(values: &mut Vec<(String, String)>, path: &Path, (namespace, name): (&str, &str)) {
    let options = FormatOptions::new().with_null("");
    let file = std::fs::File::open(path).unwrap();
    for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
        let batch = batch.unwrap();
        let column = |name: &str| {
            let column = batch.column_by_name(name).unwrap_or_else(|| panic!("no column {name}"));
            ArrayFormatter::try_new(column, &options).unwrap()
        };
        let (uids, namespaces, wanted) = (column("x_PodUid"), column("x_Namespace"), column(name));
        for row in 0..batch.num_rows() {
            let (uid, text) = (uids.value(row).to_string(), wanted.value(row).to_string());
            if !uid.is_empty() && !text.is_empty() && namespaces.value(row).to_string() == namespace {
                values.push((uid, text));
            }
        }
    }
}

/// Returns the seconds from the start of a pod to its end; `None` if the pod has not ended.
pub fn seconds_of(life: &Life) -> Option<u64> {
    let at = |text: &str| prorata_collector::parse_instant(text).unwrap().0 / 1_000_000;
    Some(u64::try_from(at(life.end.as_ref()?) - at(&life.start)).unwrap())
}
