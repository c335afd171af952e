//! Readings of pods in one round, added from the answers of all sources.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::quantity::{MEMORY, Quantity, QuantityError};
use prorata_schemas::time::Timestamp;
use serde::Deserialize;

use super::prometheus::{Sample, SampleError, samples};
use crate::object::ResourceList;

/// An error that makes a source's answer unusable. No part of the answer is used.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The answer is not in the text format of Prometheus.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The answer is not a list of `PodMetrics`.
    #[error("it is not a list of PodMetrics: {0}")]
    PodMetrics(#[from] serde_json::Error),
    /// A quantity does not parse.
    #[error("{pod}: {source}")]
    Quantity {
        /// Namespace and name of the pod.
        pod: String,
        /// The error.
        source: QuantityError,
    },
}

/// Bytes in a MiB.
const MIB: f64 = 1_048_576.0;

/// Namespace and name.
type PodKey = (String, String);

/// The readings of one round, by namespace and name.
#[derive(Clone, Debug, Default)]
pub struct UsageRound {
    pub(super) pods: BTreeMap<PodKey, Reading>,
    /// Whether a source of GPU metrics was not read. Pods without GPU readings may then have used GPUs.
    pub(super) lacks_gpus: bool,
}

/// The readings of one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// CPU seconds since the pod started, and the time at which they were counted.
    pub cpu_seconds: Option<(f64, Option<Timestamp>)>,
    /// Present CPU usage, in thousandths of a vCPU.
    pub cpu_millis: Option<f64>,
    pub memory_bytes: Option<f64>,
    /// The pod's current use of each GPU or MIG instance, in thousandths of a GPU.
    gpus: BTreeMap<GpuKey, f64>,
    /// The pod's current use of the memory of each GPU or MIG instance, in bytes.
    gpu_memory: BTreeMap<GpuKey, f64>,
}

impl Reading {
    /// Sums all GPUs. Returns `None` if none was measured.
    pub fn gpu_millis(&self) -> Option<f64> {
        (!self.gpus.is_empty()).then(|| self.gpus.values().sum())
    }

    /// Sums the memory in use of all GPUs. Returns `None` if none was measured.
    pub fn gpu_memory_bytes(&self) -> Option<f64> {
        (!self.gpu_memory.is_empty()).then(|| self.gpu_memory.values().sum())
    }
}

/// UUID of a GPU, and the id of a MIG instance or an empty string.
type GpuKey = (String, String);

/// One GPU or MIG instance, as one exporter describes it.
#[derive(Default)]
struct Gpu {
    /// `DCGM_FI_DEV_GPU_UTIL`.
    utilization: Values,
    /// `DCGM_FI_PROF_GR_ENGINE_ACTIVE`.
    activity: Values,
    /// `DCGM_FI_DEV_FB_USED`, in bytes.
    memory: Values,
}

/// Values of one metric of a GPU: in thousandths of a GPU, unless a field says otherwise.
#[derive(Default)]
struct Values {
    /// The value of the line that names no pod.
    gpu: Option<f64>,
    /// Values of lines that name a pod: a copy of the GPU's value, or the usage of the pod's own processes.
    pods: BTreeMap<PodKey, f64>,
}

impl Values {
    fn add(&mut self, pod: Option<PodKey>, amount: f64) {
        let value = match pod {
            Some(pod) => self.pods.entry(pod).or_default(),
            None => self.gpu.get_or_insert_default(),
        };
        *value = value.max(amount);
    }

    /// Returns the value of the GPU: the line that names no pod, or else the largest value of a pod. Returns
    /// `None` if there are no lines.
    fn whole(&self) -> Option<f64> {
        self.gpu.or_else(|| self.pods.values().copied().reduce(f64::max))
    }
}

impl Gpu {
    /// Returns the use of the GPU by each pod that holds it, in proportion to the usage of the pod's own
    /// processes.
    fn parts(&self) -> Vec<(PodKey, f64)> {
        let whole = self.activity.whole().or_else(|| self.utilization.whole()).unwrap_or_default();
        let used = &self.utilization.pods;
        divided(whole, used, used.keys().chain(self.activity.pods.keys()).collect())
    }

    /// Returns the bytes that each pod that holds the GPU uses.
    fn memory_parts(&self) -> Vec<(PodKey, f64)> {
        let used = &self.memory.pods;
        divided(self.memory.whole().unwrap_or_default(), used, used.keys().collect())
    }
}

/// Divides the value of a GPU among its pods, in whole numbers that add up to the value. The parts are
/// proportional to the pods' usage, or equal if the usage is not known.
fn divided(whole: f64, used: &BTreeMap<PodKey, f64>, pods: BTreeSet<&PodKey>) -> Vec<(PodKey, f64)> {
    let is_known = pods.len() == used.len() && used.values().any(|used| *used > 0.0);
    let weight = |pod: &PodKey| if is_known { used.get(pod).copied().unwrap_or_default() } else { 1.0 };
    let total: f64 = pods.iter().map(|pod| weight(pod)).sum();
    let (mut weights, mut given) = (0.0, 0.0);
    let parts = pods.into_iter().map(|pod| {
        weights += weight(pod);
        let upto = (whole * (weights / total)).round();
        let part = upto - given;
        given = upto;
        (pod.clone(), part)
    });
    parts.collect()
}

#[derive(Deserialize)]
struct PodMetricsList {
    items: Vec<PodMetrics>,
}

#[derive(Deserialize)]
struct PodMetrics {
    metadata: PodName,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize)]
struct PodName {
    name: String,
    namespace: String,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    #[serde(default)]
    usage: ResourceList,
}

impl UsageRound {
    /// Creates an empty round.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that a source of GPU metrics could not be read.
    pub const fn lose_gpus(&mut self) {
        self.lacks_gpus = true;
    }

    /// Adds a list of `PodMetrics` of `metrics.k8s.io/v1beta1`: CPU over the last window, and memory.
    ///
    /// # Errors
    /// If the text is not such a list. Nothing is added in that case.
    pub fn add_pod_metrics(&mut self, json: &[u8]) -> Result<(), UsageError> {
        let list: PodMetricsList = serde_json::from_slice(json)?;
        let mut read = Vec::with_capacity(list.items.len());
        for pod in list.items {
            let name = (pod.metadata.namespace, pod.metadata.name);
            let (mut cpu, mut memory) = (0.0, 0.0);
            for container in &pod.containers {
                let fault = |source| UsageError::Quantity { pod: format!("{}/{}", name.0, name.1), source };
                for (resource, text) in &container.usage {
                    match &**resource {
                        // Parsed in billionths, because `12345n` is less than a thousandth.
                        "cpu" => cpu += nano_cpus(&text.0).map_err(fault)? / 1e6,
                        MEMORY => memory += Quantity::amount_of(MEMORY, &text.0).map_err(fault)? as f64,
                        _ => {}
                    }
                }
            }
            read.push((name, cpu, memory));
        }
        for (name, cpu, memory) in read {
            let reading = self.pods.entry(name).or_default();
            (reading.cpu_millis, reading.memory_bytes) = (Some(cpu), Some(memory));
        }
        Ok(())
    }

    /// Adds a kubelet's resource metrics (`/metrics/resource`): CPU seconds and the working set of each pod.
    ///
    /// # Errors
    /// Returns the first line that is not a sample. In that case, nothing is added.
    pub fn add_kubelet(&mut self, text: &str) -> Result<(), UsageError> {
        for sample in samples(text).collect::<Result<Vec<_>, _>>()? {
            let Some(name) = pod_of(&sample, &[("namespace", "pod")]) else { continue };
            if !is_amount(sample.value) {
                continue;
            }
            match sample.name {
                "pod_cpu_usage_seconds_total" => {
                    self.pods.entry(name).or_default().cpu_seconds = Some((sample.value, sample.at));
                }
                "pod_memory_working_set_bytes" => {
                    self.pods.entry(name).or_default().memory_bytes = Some(sample.value);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds DCGM exporter's metrics. The share of time in which a GPU's engine was active
    /// (`DCGM_FI_PROF_GR_ENGINE_ACTIVE`) counts if it is present, otherwise the GPU's utilization
    /// (`DCGM_FI_DEV_GPU_UTIL`). A MIG instance of `n` of seven slices counts as `n` sevenths of its GPU.
    /// `DCGM_FI_DEV_FB_USED` is the memory in use, in MiB. The value of a GPU that several pods hold is
    /// divided among them.
    ///
    /// # Errors
    /// Returns the first line that is not a sample. In that case, nothing is added.
    pub fn add_dcgm(&mut self, text: &str) -> Result<(), UsageError> {
        const NAMES: &[(&str, &str)] =
            &[("exported_namespace", "exported_pod"), ("namespace", "pod"), ("pod_namespace", "pod_name")];
        let mut gpus: BTreeMap<GpuKey, Gpu> = BTreeMap::new();
        for sample in samples(text).collect::<Result<Vec<_>, _>>()? {
            let millis = |per_whole: f64| (sample.value * per_whole).min(1_000.0) * slices(&sample);
            let (values, amount): (fn(&mut Gpu) -> &mut Values, f64) = match sample.name {
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE" => (|gpu| &mut gpu.activity, millis(1_000.0)),
                "DCGM_FI_DEV_GPU_UTIL" => (|gpu| &mut gpu.utilization, millis(10.0)),
                "DCGM_FI_DEV_FB_USED" => (|gpu| &mut gpu.memory, sample.value * MIB),
                _ => continue,
            };
            if !is_amount(sample.value) {
                continue;
            }
            let uuid = sample.label("UUID").or_else(|| sample.label("gpu")).unwrap_or_default().to_owned();
            let instance = sample.label("GPU_I_ID").unwrap_or_default().to_owned();
            values(gpus.entry((uuid, instance)).or_default()).add(pod_of(&sample, NAMES), amount);
        }
        for (key, gpu) in gpus {
            for (pod, millis) in gpu.parts() {
                self.pods.entry(pod).or_default().gpus.insert(key.clone(), millis);
            }
            for (pod, bytes) in gpu.memory_parts() {
                self.pods.entry(pod).or_default().gpu_memory.insert(key.clone(), bytes);
            }
        }
        Ok(())
    }
}

/// Returns the namespace and the name of a sample's pod, from the first pair of labels that the sample has.
/// Returns `None` if it has no such pair.
fn pod_of(sample: &Sample<'_>, names: &[(&str, &str)]) -> Option<PodKey> {
    names.iter().find_map(|(namespace, pod)| {
        Some((sample.label(namespace)?.to_owned(), sample.label(pod)?.to_owned()))
    })
}

/// Returns how large a part of its GPU a MIG instance is, such as one seventh for `1g.10gb`; 1 for a whole
/// GPU.
fn slices(sample: &Sample<'_>) -> f64 {
    let profile = sample.label("GPU_I_PROFILE").and_then(|profile| profile.split_once("g."));
    let slices = profile.and_then(|(slices, _)| slices.parse::<u8>().ok()).filter(|slices| *slices <= 7);
    slices.map_or(1.0, |slices| f64::from(slices) / 7.0)
}

/// Returns whether a value is finite and not negative.
fn is_amount(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

/// Parses CPU, in billionths of a vCPU.
fn nano_cpus(text: &str) -> Result<f64, QuantityError> {
    if let Some(nanos) = text.strip_suffix('n').and_then(|digits| digits.parse::<u64>().ok()) {
        return Ok(nanos as f64);
    }
    if let Some(micros) = text.strip_suffix('u').and_then(|digits| digits.parse::<u64>().ok()) {
        return Ok(micros as f64 * 1e3);
    }
    Quantity::amount_of("cpu", text).map(|millis| millis as f64 * 1e6)
}
