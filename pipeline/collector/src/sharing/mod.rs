//! Parts of GPUs: the number of cards of a node, and the part of the cards that a pod holds. Schemes
//! determine both if resource names do not.
//!
//! The objects to read depend on the software that shares the cards. A [`GpuScheme`] describes them as data,
//! so that a new scheme needs no release.

mod defaults;
mod expression;
mod ratio;
mod register;
mod scheme;

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::event::Quantities;
use prorata_schemas::quantity::{GPU_MEMORY, Quantity};
use prorata_schemas::rules::bounds::DEVICES_MAX;
use prorata_schemas::size::MIG_PREFIX;

use crate::object::quantities::parse as parse_list;
use crate::object::{Container, NodeObject, PodObject};

pub use defaults::schemes;
pub use expression::{Expression, ExpressionError};
use expression::{Value, like};
pub(crate) use ratio::Ratio;
use register::Register;
pub use scheme::{Condition, GpuScheme};

/// The options of a cluster that decide about parts of GPUs.
#[derive(Clone, Copy, Debug)]
pub struct GpuOptions<'a> {
    /// Resource names whose units are GPUs.
    pub gpu_resources: &'a [Text],
    /// Schemes by which pods share GPUs, in the order in which they are tried.
    pub gpu_sharing: &'a [GpuScheme],
    /// Name patterns of resources that look like parts of GPUs.
    pub gpu_share_names: &'a [Text],
    /// Domain of the labels and annotations of TensorFusion.
    pub tensor_fusion_domain: &'a str,
}

/// Maximum number of GPUs in an event, in thousandths.
const GPU_MILLIS_MAX: u128 = DEVICES_MAX * 1000;

/// The scheme in events if no scheme is known.
const UNKNOWN: &str = "unknown";

/// The reason why a part of a GPU is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultReason {
    /// The node lacks a label, an annotation or a resource that the scheme needs.
    MissingLabel,
    /// A value is not a number, or is negative.
    Unreadable,
    /// The part is larger than its card, or than all cards of the node.
    AboveCard,
    /// A pod requests a resource that looks like a part of a GPU, and no scheme knows it.
    UnknownScheme,
}

impl FaultReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::MissingLabel, Self::Unreadable, Self::AboveCard, Self::UnknownScheme];

    /// Returns the name in metrics, logs and the status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MissingLabel => "missing_label",
            Self::Unreadable => "unreadable",
            Self::AboveCard => "above_card",
            Self::UnknownScheme => "unknown_scheme",
        }
    }
}

/// The fault that makes a part of a GPU or a number of cards unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareFault {
    /// The reason that it is not known.
    pub reason: FaultReason,
    /// The cause, for people.
    pub what: String,
}

/// The values of a node that the schemes read.
#[derive(Clone, Debug, Default)]
pub struct NodeGpus {
    labels: BTreeMap<Text, Text>,
    capacity: Quantities,
    registers: BTreeMap<Text, Option<Register>>,
    /// Number of physical cards. `None` if the node's capacity determines the number.
    pub cards: Option<Quantity>,
    /// The reason why the number of cards is not known, although a scheme applies.
    pub fault: Option<ShareFault>,
}

/// The values of a pod that the schemes read.
#[derive(Clone, Debug)]
pub struct PodGpus {
    /// Requests of containers that run together.
    running: Vec<Quantities>,
    /// Requests of init containers, each of which runs alone.
    starting: Vec<Quantities>,
    annotations: BTreeMap<Text, Text>,
    namespace: Text,
}

/// The part of GPUs that a pod holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodShare {
    /// Name of the scheme.
    pub scheme: Text,
    /// Number of physical cards, or the reason why it is not known.
    pub gpus: Result<Quantity, ShareFault>,
}

/// Returns a quantity of thousandths of a GPU.
pub(crate) fn gpus(millis: u128) -> Quantity {
    let text = if millis.is_multiple_of(1000) { (millis / 1000).to_string() } else { format!("{millis}m") };
    Quantity { text: text.into(), amount: millis }
}

impl NodeGpus {
    /// Reads a node, and counts its cards by the first scheme that applies to the node and knows their
    /// number.
    pub fn read(node: &NodeObject, capacity: &Quantities, options: GpuOptions<'_>) -> Self {
        let schemes = options.gpu_sharing;
        let labels = node.metadata.labels.iter();
        let read = labels.filter(|(name, _)| schemes.iter().any(|scheme| scheme.reads_label(name)));
        let registers = schemes.iter().filter_map(|scheme| {
            let name = scheme.register.clone()?;
            let text = node.metadata.annotations.get(&name)?;
            Some((name, Register::parse(text)))
        });
        let mut gpus = Self {
            labels: read.map(|(name, value)| (name.clone(), value.clone())).collect(),
            capacity: capacity.clone(),
            registers: registers.collect(),
            cards: None,
            fault: None,
        };
        (gpus.cards, gpus.fault) = gpus.counted(schemes);
        gpus
    }

    /// Returns the number of the node's cards, in thousandths: its physical cards, or else the whole GPUs of
    /// its capacity. `None` if there are none.
    fn all_millis(&self, options: GpuOptions<'_>) -> Option<u128> {
        let whole = || {
            let named = options.gpu_resources.iter().filter_map(|name| self.capacity.get(name));
            named.map(|quantity| quantity.amount).sum()
        };
        Some(self.cards.as_ref().map_or_else(whole, |cards| cards.amount)).filter(|millis| *millis > 0)
    }

    /// Returns the number of cards from the first scheme that knows it, or else the first fault.
    fn counted(&self, schemes: &[GpuScheme]) -> (Option<Quantity>, Option<ShareFault>) {
        let mut first = None;
        let of_nodes = schemes.iter().filter(|scheme| scheme.namespace.is_none());
        for scheme in of_nodes.filter(|scheme| scheme.holds_on(self)) {
            match scheme.cards_of(self) {
                Value::Absent => {}
                Value::Is(cards) => {
                    let millis = cards.thousandths().filter(|millis| *millis <= GPU_MILLIS_MAX);
                    return (millis.map(gpus), None);
                }
                Value::Fault(ShareFault { reason, what }) => {
                    let what = format!("{}: {what}", scheme.scheme);
                    first.get_or_insert(ShareFault { reason, what });
                }
            }
        }
        (None, first)
    }
}

impl PodGpus {
    /// Reads a pod. Returns `None` if the pod names nothing that may be a part of a GPU.
    pub fn read(pod: &PodObject, options: GpuOptions<'_>) -> Option<Self> {
        let schemes = options.gpu_sharing;
        let reads = |name: &str| {
            looks_like_share(name, options)
                || options.gpu_resources.iter().any(|resource| **resource == *name)
                || schemes.iter().any(|scheme| scheme.of_pods().any(|of| of.reads_request(name)))
        };
        let requests = |container: &Container| -> Quantities {
            let all = parse_list(&container.resources.requests).unwrap_or_default();
            all.into_iter().filter(|(name, _)| reads(name)).collect()
        };
        let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let (sidecars, starting): (Vec<_>, Vec<_>) = pod.spec.init_containers.iter().partition(is_sidecar);
        let running = pod.spec.containers.iter().chain(sidecars).map(requests);
        let annotations = pod.metadata.annotations.iter();
        let read = annotations.filter(|(name, _)| schemes.iter().any(|scheme| scheme.reads_annotation(name)));
        let gpus = Self {
            running: running.filter(|requests| !requests.is_empty()).collect(),
            starting: starting.into_iter().map(requests).filter(|requests| !requests.is_empty()).collect(),
            annotations: read.map(|(name, value)| (name.clone(), value.clone())).collect(),
            namespace: pod.metadata.namespace.as_str().into(),
        };
        let is_none = gpus.running.is_empty() && gpus.starting.is_empty() && gpus.annotations.is_empty();
        (!is_none).then_some(gpus)
    }

    /// Returns the names of the resources that the pod requests.
    fn requested(&self) -> impl Iterator<Item = &Text> {
        self.running.iter().chain(&self.starting).flat_map(|requests| requests.iter().map(|(name, _)| name))
    }

    /// Returns the part of GPUs that the pod holds on a node. Returns `None` if the pod shares no GPU.
    pub fn share(&self, node: &NodeGpus, options: GpuOptions<'_>) -> Option<PodShare> {
        // The creator of a pod writes its annotations, and must not make whole cards cheaper with them.
        let has_whole = self.requested().any(|name| options.gpu_resources.contains(name));
        let holds = |scheme: &&GpuScheme| {
            let reads = scheme.is_of_containers() || !has_whole;
            reads && scheme.is_about(&self.namespace) && scheme.holds_on(node)
        };
        for scheme in options.gpu_sharing.iter().filter(holds) {
            let gpus = match scheme.part(self, node) {
                Value::Absent => continue,
                Value::Is(part) => on_cards(part, node.all_millis(options)),
                Value::Fault(fault) => Err(fault),
            };
            let gpus = gpus
                .map_err(|fault| ShareFault { what: format!("{}: {}", scheme.scheme, fault.what), ..fault });
            return Some(PodShare { scheme: scheme.scheme.clone(), gpus });
        }
        let name = self.requested().find(|name| looks_like_share(name, options))?;
        let fault = ShareFault {
            reason: FaultReason::UnknownScheme,
            what: format!("{name} looks like a part of a GPU, and no scheme of this node knows it"),
        };
        Some(PodShare { scheme: UNKNOWN.into(), gpus: Err(fault) })
    }
}

/// Returns the part as a quantity. The error is a fault: the part exceeds `cards`, the node's cards in
/// thousandths, or is too large.
fn on_cards(part: Ratio, cards: Option<u128>) -> Result<Quantity, ShareFault> {
    let millis = part.thousandths();
    match (millis, cards) {
        (Some(millis), Some(cards)) if millis > cards => Err(ShareFault {
            reason: FaultReason::AboveCard,
            what: format!("{} GPUs of a node that has {}", gpus(millis).text, gpus(cards).text),
        }),
        (Some(millis), _) if millis <= GPU_MILLIS_MAX => Ok(gpus(millis)),
        _ => Err(ShareFault { reason: FaultReason::Unreadable, what: "the part is too large".to_owned() }),
    }
}

/// Returns whether a resource looks like a part of a GPU. It matches a configured pattern, and is not counted
/// by another rule, as whole GPUs and MIG slices are.
fn looks_like_share(name: &str, options: GpuOptions<'_>) -> bool {
    let is_counted = name == GPU_MEMORY
        || name.starts_with(MIG_PREFIX)
        || name.starts_with(&format!("{}/", options.tensor_fusion_domain))
        || options.gpu_resources.iter().any(|resource| **resource == *name);
    !is_counted && is_gpu(name, options)
}

/// Returns whether the name of a resource or driver matches a configured pattern of GPUs.
pub(crate) fn is_gpu(name: &str, options: GpuOptions<'_>) -> bool {
    options.gpu_share_names.iter().any(|pattern| contains(pattern, name))
}

/// Returns whether a name matches a pattern with a `*` at its beginning, at its end, at both, or at neither.
fn contains(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) if pattern.len() > 1 => name.contains(pattern.trim_matches('*')),
        _ => like(pattern, name).is_some(),
    }
}

#[cfg(test)]
mod tests;
