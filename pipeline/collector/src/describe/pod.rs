//! Pods: when they start and end, and their description.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::event::{Labels, PodStarted, Quantities};
use prorata_schemas::quantity::{NVIDIA_GPU, Quantity, TFLOPS, VRAM};
use prorata_schemas::time::Timestamp;

use super::quantities::raise;
use super::{requests, workload};
use crate::instant::Instant;
use crate::object::{ContainerState, ContainerStatus, ObjectKind, PodCondition, PodObject};
use crate::options::{CollectorOptions, StartAt};

/// What a pod says of itself.
#[derive(Clone, Debug)]
pub struct PodFacts {
    /// Its uid.
    pub uid: Text,
    /// Name of its node; empty: not bound.
    pub node_name: Text,
    /// When it starts to count; none: not yet, or never.
    pub starts: Option<Timestamp>,
    /// Set once its phase is terminal.
    pub ended: Option<PodEnd>,
    /// When it last changed.
    pub changed: Option<Timestamp>,
    /// When it was removed, if this is its last revision.
    pub removed: Option<Timestamp>,
    /// Claims by `namespace/name`; none of one: it is not made yet.
    pub claims: Vec<Option<Text>>,
    /// Facts from its annotations, if they name a pool. They count only if the pool is known.
    pub pool: Option<PoolFacts>,
    /// Its description without what its node, its pool and its claims add.
    pub description: PodStarted,
    /// Since when it waits for its node, its pool or its claims, or lacks one of them.
    pub waits_since: Option<Timestamp>,
    /// What could not be read, for people.
    pub faults: Vec<String>,
}

/// How a pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEnd {
    /// When; none: the object does not say.
    pub at: Option<Timestamp>,
    /// Why.
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
        };
        Self {
            uid: meta.uid.as_str().into(),
            node_name: pod.spec.node_name.as_str().into(),
            starts,
            ended: ended(pod),
            changed: meta.changed(),
            removed: meta.removed(),
            claims: claims(pod),
            pool,
            description,
            waits_since: None,
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

/// When a pod starts to count. The time of the binding is the API server's; pods that were made with their
/// node, as a static pod is, have none.
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

/// How a pod ended: the last end of any of its containers. A pod that was evicted before it started, or
/// whose node is gone, has none.
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

/// The claims that a pod's containers use.
fn claims(pod: &PodObject) -> Vec<Option<Text>> {
    let made = |name: &str| pod.status.resource_claim_statuses.iter().find(|status| status.name == name);
    let mut claims = Vec::new();
    for claim in &pod.spec.resource_claims {
        let name = match (&claim.resource_claim_name, made(&claim.name)) {
            (Some(name), _) => Some(name),
            // The template made none, because the pod needs none.
            (None, Some(status)) if status.resource_claim_name.is_none() => continue,
            (None, status) => status.and_then(|status| status.resource_claim_name.as_ref()),
        };
        claims.push(name.map(|name| Text::from(format!("{}/{name}", pod.metadata.namespace))));
    }
    claims
}

/// What a pod's annotations add if its pool is known. The creator of the pod writes them.
#[derive(Clone, Debug, Default)]
pub struct PoolFacts {
    /// Id of the pool.
    pub id: Text,
    /// TFLOPs and VRAM per GPU, as the engine counts them, and GPUs.
    requests: Quantities,
    limits: Quantities,
    gpu_model: Option<Text>,
    qos: Option<Text>,
    protected_until: Option<Timestamp>,
}

impl PoolFacts {
    /// Adds them to a description. A request is never lowered: the scheduler has counted it on the node, and
    /// others would pay for what the annotation leaves out.
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

/// TensorFusion's annotations of a pod that names a pool.
struct Annotations<'p> {
    all: &'p BTreeMap<Text, Text>,
    domain: &'p str,
    pool: &'p str,
}

impl<'p> Annotations<'p> {
    /// Returns `None` if the pod names no pool, or pools are not watched.
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

/// Id of a pool of this cluster: its name alone is not unique among clusters.
pub fn pool_id(options: &CollectorOptions, name: &str) -> Text {
    format!("{}/{name}", options.cluster_id).into()
}

fn protected_until(text: Text, from: Timestamp) -> Option<Timestamp> {
    Some(Timestamp(from.0.checked_add(duration_micros(&text)?)?))
}

/// A duration as Go writes it, such as `1h30m` or `90s`, in microseconds.
fn duration_micros(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut micros = 0i64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let (digits, behind) = rest.split_at(end);
        let unit = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        let each = match unit {
            "h" => 3_600_000_000,
            "m" => 60_000_000,
            "s" => 1_000_000,
            "ms" => 1_000,
            _ => return None,
        };
        micros = micros.checked_add(digits.parse::<i64>().ok()?.checked_mul(each)?)?;
        rest = behind;
    }
    (!text.is_empty()).then_some(micros)
}
