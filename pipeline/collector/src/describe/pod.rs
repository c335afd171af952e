//! Start, end and description of pods.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::event::{Labels, PodStarted, Quantities};
use prorata_schemas::quantity::{NVIDIA_GPU, Quantity, TFLOPS, VRAM};
use prorata_schemas::time::Timestamp;

use super::{requests, workload};
use crate::instant::Instant;
use crate::object::quantities::raise;
use crate::object::{
    ContainerState, ContainerStatus, ObjectKind, ObjectMeta, PodCondition, PodObject, PodVolume,
};
use crate::options::{CollectorOptions, StartAt};
use crate::sharing::PodGpus;

/// Facts from a pod object.
#[derive(Clone, Debug)]
pub struct PodFacts {
    /// Uid of the pod.
    pub uid: Text,
    /// Name of the pod's node; empty if the pod is not bound.
    pub node_name: Text,
    /// The instant from which the pod counts. `None` if it does not count yet, or never will.
    pub starts: Option<Timestamp>,
    /// The end of the pod, once its phase is terminal.
    pub ended: Option<PodEnd>,
    /// Time at which the pod last changed.
    pub changed: Option<Timestamp>,
    /// Time of removal, if this is the last revision.
    pub removed: Option<Timestamp>,
    /// Claims for devices by `namespace/name`. `None` if a claim is not created yet.
    pub claims: Vec<Option<Text>>,
    /// Claims for volumes by `namespace/name`. Empty if volumes are not watched.
    pub volumes: Vec<Text>,
    /// Facts from the annotations; `None` if they name no pool. The facts count only if the pool is known.
    pub pool: Option<PoolFacts>,
    /// Values that may name parts of GPUs. Their meaning depends on the node.
    pub gpus: Option<PodGpus>,
    /// The description, without additions from the node, the pool, the claims and the volumes.
    pub description: PodStarted,
    /// The instant from which the pod waits for its node, its pool or its claims, or lacks one of them.
    pub waits_since: Option<Timestamp>,
    /// Whether a list has shown the pod as it is. `false` if a watch may repeat an earlier revision.
    pub is_current: bool,
    /// Values that could not be read, for messages.
    pub faults: Vec<String>,
}

/// The end of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEnd {
    /// Time of the end. `None` if the object does not have it.
    pub at: Option<Timestamp>,
    /// Reason for the end.
    pub reason: Option<Text>,
}

impl PodFacts {
    /// Reads a pod.
    pub fn read(pod: &PodObject, options: &CollectorOptions) -> Self {
        let meta = &pod.metadata;
        let mut faults = Vec::new();
        let (requests, limits) = requests::effective(pod).unwrap_or_else(|error| {
            faults.push(error.to_string());
            Default::default()
        });
        let label = |name: &Option<Text>| name.as_ref().and_then(|name| meta.labels.get(name)).cloned();
        let (model, qos) = (label(&options.gpu_model_label), label(&options.qos_label));
        let workload = workload::of(meta);
        let starts = starts(pod, options.start);
        let pool = Annotations::of(pod, options).map(|annotations| PoolFacts {
            gpu_model: annotations.text("gpu-model").filter(|_| model.is_none()),
            qos: annotations.text("qos").filter(|_| qos.is_none()),
            ..annotations.pool(starts, options, &mut faults)
        });
        let description = PodStarted {
            cluster_id: options.cluster_id.clone(),
            namespace: meta.namespace.as_str().into(),
            pod_name: meta.name.as_str().into(),
            pod_uid: meta.uid.as_str().into(),
            created_at: meta.creation_timestamp.map_or(Timestamp(0), |time| time.0),
            priority: pod.spec.priority.unwrap_or(0),
            node_id: None,
            region: None,
            zone: None,
            pool_id: label(&options.pool_label).map(Into::into),
            qos: qos.unwrap_or_else(|| "default".into()),
            gpu_model: model.map(|model| options.gpu_model(&model)),
            requests,
            limits,
            workload_kind: workload.as_ref().map(|(kind, _)| kind.clone()),
            workload_name: workload.map(|(_, name)| name),
            labels: sent_labels(&meta.labels, options),
            eviction_protected_until: None,
            gpus: None,
            gpu_sharing: None,
            volume_keys: Vec::new(),
        };
        Self {
            uid: meta.uid.as_str().into(),
            node_name: pod.spec.node_name.as_str().into(),
            starts,
            ended: ended(pod),
            changed: meta.changed(),
            removed: meta.removed(),
            claims: claims(pod),
            volumes: volumes(pod, options),
            pool,
            gpus: PodGpus::read(pod, options.gpus()),
            description,
            waits_since: None,
            is_current: false,
            faults,
        }
    }
}

fn sent_labels(labels: &BTreeMap<Text, Text>, options: &CollectorOptions) -> Labels {
    let sent = labels.iter().filter(|(name, _)| options.sends_label(name));
    sent.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn condition<'p>(pod: &'p PodObject, kind: &str, status: &str) -> Option<&'p PodCondition> {
    pod.status.conditions.iter().find(|condition| condition.r#type == kind && condition.status == status)
}

fn statuses(pod: &PodObject) -> impl Iterator<Item = &ContainerStatus> {
    pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses)
}

/// Returns the instant from which a pod counts; `None` if it does not count yet. The API server sets the time
/// of the binding. Pods that are created with their node, such as static pods, have no such time.
fn starts(pod: &PodObject, start: StartAt) -> Option<Timestamp> {
    let bound = condition(pod, "PodScheduled", "True").and_then(|condition| condition.last_transition_time);
    let accepted = pod.status.start_time;
    let first_run = || {
        let states = statuses(pod).flat_map(|status| [&status.state, &status.last_state]);
        states.filter_map(started_at).min()
    };
    let at = match start {
        StartAt::Scheduled => bound.or(accepted).or(pod.metadata.creation_timestamp),
        StartAt::Started => accepted,
        StartAt::Running => first_run(),
    };
    at.map(|time| time.0)
}

fn started_at(state: &ContainerState) -> Option<Instant> {
    let running = state.running.as_ref().and_then(|running| running.started_at);
    running.or_else(|| state.terminated.as_ref()?.started_at)
}

/// Returns the end of a pod: the last end of any of its containers. `None` if the pod has not ended. A pod
/// that was evicted before it started, or whose node is gone, has no such end; the time of a condition counts
/// instead.
fn ended(pod: &PodObject) -> Option<PodEnd> {
    if !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
        return None;
    }
    let ends = statuses(pod).filter_map(|status| status.state.terminated.as_ref());
    let last = ends.filter(|end| end.finished_at.is_some()).max_by_key(|end| end.finished_at);
    let disrupted = condition(pod, "DisruptionTarget", "True");
    let not_ready = condition(pod, "Ready", "False");
    let transition = |condition: Option<&PodCondition>| condition?.last_transition_time;
    let at = last.and_then(|end| end.finished_at).or(transition(disrupted)).or(transition(not_ready));
    let reason = pod.status.reason.clone().or_else(|| disrupted?.reason.clone());
    Some(PodEnd { at: at.map(|time| time.0), reason: reason.or_else(|| last?.reason.clone()) })
}

/// Returns the claims of a pod as `namespace/name`; `None` for each claim that is not created yet.
fn claims(pod: &PodObject) -> Vec<Option<Text>> {
    let made = |name: &str| pod.status.resource_claim_statuses.iter().find(|status| status.name == name);
    let mut claims = Vec::new();
    for claim in &pod.spec.resource_claims {
        let name = match (&claim.resource_claim_name, made(&claim.name)) {
            (Some(name), _) => Some(name),
            // The template created no claim, because the pod needs none.
            (None, Some(status)) if status.resource_claim_name.is_none() => continue,
            (None, status) => status.and_then(|status| status.resource_claim_name.as_ref()),
        };
        claims.push(name.map(|name| Text::from(format!("{}/{name}", pod.metadata.namespace))));
    }
    claims
}

/// Returns the claims of a pod's volumes as `namespace/name`.
fn volumes(pod: &PodObject, options: &CollectorOptions) -> Vec<Text> {
    if !options.watched.contains(&ObjectKind::PersistentVolume) {
        return Vec::new();
    }
    let ObjectMeta { namespace, name, .. } = &pod.metadata;
    let claim_of = |volume: &PodVolume| match &volume.persistent_volume_claim {
        Some(claim) => Some(format!("{namespace}/{}", claim.claim_name)),
        None => volume.ephemeral.as_ref().map(|_| format!("{namespace}/{name}-{}", volume.name)),
    };
    pod.spec.volumes.iter().filter_map(claim_of).map(Text::from).collect()
}

/// Additions from a pod's annotations that apply if its pool is known. The creator of the pod writes them.
#[derive(Clone, Debug, Default)]
pub struct PoolFacts {
    /// Id of the pool.
    pub id: Text,
    /// GPUs, and TFLOPs and VRAM per GPU in the engine's units.
    requests: Quantities,
    limits: Quantities,
    gpu_model: Option<Text>,
    qos: Option<Text>,
    protected_until: Option<Timestamp>,
}

impl PoolFacts {
    /// Adds the facts to a description. A request is never lowered: the scheduler has counted it on the node,
    /// and other pods would pay for the difference.
    pub fn apply(&self, description: &mut PodStarted, options: &CollectorOptions) {
        raise(&mut description.requests, &self.requests);
        raise(&mut description.limits, &self.limits);
        description.pool_id = Some(self.id.clone().into());
        if let Some(model) = &self.gpu_model {
            description.gpu_model = Some(options.gpu_model(model));
        }
        if let Some(qos) = &self.qos {
            description.qos = qos.clone();
        }
        description.eviction_protected_until = self.protected_until;
    }
}

/// TensorFusion's annotations on a pod that names a pool.
struct Annotations<'p> {
    all: &'p BTreeMap<Text, Text>,
    domain: &'p str,
    pool: &'p str,
}

impl<'p> Annotations<'p> {
    /// Returns `None` if the pod names no pool, or if pools are not watched.
    fn of(pod: &'p PodObject, options: &'p CollectorOptions) -> Option<Self> {
        let (all, domain) = (&pod.metadata.annotations, &*options.tensor_fusion_domain);
        let pool = all.get(format!("{domain}/gpupool").as_str()).filter(|name| !name.is_empty())?;
        options.watched.contains(&ObjectKind::GpuPool).then_some(Self { all, domain, pool })
    }

    fn text(&self, name: &str) -> Option<Text> {
        self.all.get(format!("{}/{name}", self.domain).as_str()).cloned()
    }

    fn quantities(&self, names: &[(&str, &str)], faults: &mut Vec<String>) -> Quantities {
        let mut quantities = Quantities::new();
        for (resource, annotation) in names {
            let Some(text) = self.text(annotation) else { continue };
            match Quantity::parse(resource, &text) {
                Ok(quantity) => drop(quantities.insert((*resource).into(), quantity)),
                Err(error) => faults.push(format!("annotation {}/{annotation}: {error}", self.domain)),
            }
        }
        quantities
    }

    fn pool(
        &self,
        starts: Option<Timestamp>,
        options: &CollectorOptions,
        faults: &mut Vec<String>,
    ) -> PoolFacts {
        let requests = [(TFLOPS, "tflops-request"), (VRAM, "vram-request"), (NVIDIA_GPU, "gpu-count")];
        let protection = self.text("eviction-protection");
        PoolFacts {
            id: pool_id(options, self.pool),
            requests: self.quantities(&requests, faults),
            limits: self.quantities(&[(TFLOPS, "tflops-limit"), (VRAM, "vram-limit")], faults),
            protected_until: protection.and_then(|text| protected_until(text, starts?)),
            ..PoolFacts::default()
        }
    }
}

/// Returns the id of a pool of this cluster. The id includes the cluster, because pool names are not unique
/// among clusters.
pub fn pool_id(options: &CollectorOptions, name: &str) -> Text {
    format!("{}/{name}", options.cluster_id).into()
}

fn protected_until(text: Text, from: Timestamp) -> Option<Timestamp> {
    Some(Timestamp(from.0.checked_add(duration_micros(&text)?)?))
}

/// Parses a duration in Go's form, such as `1h30m` or `90s`, in microseconds.
fn duration_micros(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut micros = 0i64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let (digits, tail) = rest.split_at(end);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let each = match unit {
            "h" => 3_600_000_000,
            "m" => 60_000_000,
            "s" => 1_000_000,
            "ms" => 1_000,
            _ => return None,
        };
        micros = micros.checked_add(digits.parse::<i64>().ok()?.checked_mul(each)?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(micros)
}
