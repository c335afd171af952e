//! One way in which pods share GPUs: the places where nodes and pods name the number of cards and the part
//! that each pod holds.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::event::Quantities;
use serde::{Deserialize, Serialize};

use super::expression::{Expression, ExpressionError, Objects, Value, like};
use super::ratio::Ratio;
use super::{FaultReason, NodeGpus, PodGpus, ShareFault};

/// A way in which pods share GPUs, and the places where objects name the part that a pod holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuScheme {
    /// Name of the scheme in events.
    pub scheme: Text,
    /// Namespace of the pods. `None` for all pods, and for the cards of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Text>,
    /// Condition that the node must meet. `None` if the names that a pod uses are sufficient.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Condition>,
    /// Annotation of the node that lists its devices, as HAMi writes it. If set, the scheme applies only to
    /// nodes with this annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<Text>,
    /// Number of physical cards of the node. If `None`, `shares` count them in the node's capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cards: Option<Expression>,
    /// Expressions for the part of a card that a pod holds; the largest value counts.
    pub shares: Vec<Expression>,
    /// Number of cards, if the pod holds the same part of several cards. The part is then at most one card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Expression>,
    /// Annotation of the pod that lists its assigned devices. It takes precedence over `shares`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<Text>,
}

/// A condition of a node: `label NAME`, `label NAME = VALUE` or `capacity NAME`. A NAME and a VALUE may have
/// one `*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Condition {
    is_label: bool,
    name: Text,
    value: Option<Text>,
}

impl GpuScheme {
    pub(super) fn new(scheme: &str, shares: &[&str]) -> Self {
        Self {
            scheme: scheme.into(),
            namespace: None,
            node: None,
            register: None,
            cards: None,
            shares: shares.iter().filter_map(|text| Expression::try_from((*text).to_owned()).ok()).collect(),
            times: None,
            allocated: None,
        }
    }

    pub(super) fn of_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    pub(super) fn on(self, node: &str) -> Self {
        Self { node: Condition::try_from(node.to_owned()).ok(), ..self }
    }

    pub(super) fn cards(self, cards: &str) -> Self {
        Self { cards: Expression::try_from(cards.to_owned()).ok(), ..self }
    }

    pub(super) fn times(self, times: &str) -> Self {
        Self { times: Expression::try_from(times.to_owned()).ok(), ..self }
    }

    pub(super) fn registered(self, register: &str, allocated: Option<&str>) -> Self {
        let allocated = allocated.map(Text::from);
        Self { register: Some(register.into()), allocated, ..self }.cards("devices")
    }

    /// Returns the expressions that read pods.
    pub(super) fn of_pods(&self) -> impl Iterator<Item = &Expression> {
        self.shares.iter().chain(&self.times)
    }

    pub(super) fn reads_annotation(&self, name: &str) -> bool {
        self.allocated.as_deref() == Some(name) || self.of_pods().any(|of| of.reads_annotation(name))
    }

    pub(super) fn reads_label(&self, name: &str) -> bool {
        let of_node =
            self.node.as_ref().is_some_and(|node| node.is_label && like(&node.name, name).is_some());
        of_node || self.of_pods().chain(&self.cards).any(|of| of.reads_label(name))
    }

    /// Returns whether the scheme applies to the pods of a namespace.
    pub(super) fn is_about(&self, namespace: &str) -> bool {
        self.namespace.as_ref().is_none_or(|only| **only == *namespace)
    }

    pub(super) fn holds_on(&self, node: &NodeGpus) -> bool {
        let listed = self.register.as_ref().is_none_or(|name| node.registers.contains_key(name));
        listed && self.node.as_ref().is_none_or(|condition| condition.holds(node))
    }

    fn objects<'a>(
        &self,
        node: &'a NodeGpus,
        requests: &'a Quantities,
        annotations: &'a BTreeMap<Text, Text>,
    ) -> Objects<'a> {
        let register = self.register.as_ref().and_then(|name| node.registers.get(name)?.as_ref());
        Objects { requests, annotations, labels: &node.labels, capacity: &node.capacity, register }
    }

    /// Returns whether the scheme reads requests of containers, and not only annotations.
    pub(super) fn is_of_containers(&self) -> bool {
        self.of_pods().any(Expression::is_of_containers)
    }

    /// Returns the number of cards of a node on which the scheme holds.
    pub(super) fn cards_of(&self, node: &NodeGpus) -> Value {
        let none = BTreeMap::new();
        let objects = self.objects(node, &node.capacity, &none);
        if let Some(cards) = &self.cards {
            return cards.value(&objects);
        }
        let mut sum: Option<Ratio> = None;
        for share in &self.shares {
            match share.value(&objects) {
                Value::Absent => {}
                Value::Is(part) => match sum.unwrap_or(Ratio::ZERO).plus(part) {
                    None => return unreadable("the capacity is too large".to_owned()),
                    larger => sum = larger,
                },
                fault @ Value::Fault(_) => return fault,
            }
        }
        sum.map_or(Value::Absent, Value::Is)
    }

    /// Returns the part of GPUs that a pod holds; [`Value::Absent`] if the pod names nothing of the scheme.
    pub(super) fn part(&self, pod: &PodGpus, node: &NodeGpus) -> Value {
        let got = self
            .allocated
            .as_ref()
            .and_then(|name| pod.annotations.get(name))
            .filter(|text| !text.is_empty());
        if let (Some(text), Some(register)) = (got, &self.register) {
            let register = node.registers.get(register).and_then(Option::as_ref);
            let parts = register.and_then(|register| register.allocated(text));
            let sum = parts.and_then(|parts| parts.into_iter().try_fold(Ratio::ZERO, Ratio::plus));
            return sum.map_or_else(
                || unreadable(format!("'{text}' does not name devices of the node and parts of them")),
                Value::Is,
            );
        }
        if !self.is_of_containers() {
            return self.part_of(&Quantities::new(), pod, node);
        }
        let mut sum = None;
        let (mut running, mut starting) = (Ratio::ZERO, Ratio::ZERO);
        for (requests, alone) in
            pod.running.iter().map(|of| (of, false)).chain(pod.starting.iter().map(|of| (of, true)))
        {
            let part = match self.part_of(requests, pod, node) {
                Value::Is(part) => part,
                Value::Absent => continue,
                fault @ Value::Fault(_) => return fault,
            };
            let total = if alone { starting.larger(part) } else { running.plus(part) };
            let Some(total) = total else { return unreadable("the requests are too large".to_owned()) };
            *(if alone { &mut starting } else { &mut running }) = total;
            sum = running.larger(starting);
        }
        sum.map_or(Value::Absent, Value::Is)
    }

    /// Returns the part that one container holds, or that annotations give the pod.
    fn part_of(&self, requests: &Quantities, pod: &PodGpus, node: &NodeGpus) -> Value {
        let objects = self.objects(node, requests, &pod.annotations);
        let mut largest: Option<Ratio> = None;
        for share in &self.shares {
            match share.value(&objects) {
                Value::Absent => {}
                Value::Is(part) => match largest.map_or(Some(part), |largest| largest.larger(part)) {
                    None => return unreadable(format!("'{share}' is too large")),
                    larger => largest = larger,
                },
                fault @ Value::Fault(_) => return fault,
            }
        }
        let Some(times) = &self.times else { return largest.map_or(Value::Absent, Value::Is) };
        let count = match times.value(&objects) {
            Value::Is(count) => Some(count),
            Value::Absent => None,
            fault @ Value::Fault(_) => return fault,
        };
        let part = match (largest, count) {
            (Some(part), _) => part,
            (None, Some(_)) if times.is_of_containers() => Ratio::ONE,
            (None, _) => return Value::Absent,
        };
        match (part.exceeds(Ratio::ONE), part.times(count.unwrap_or(Ratio::ONE))) {
            (Some(false), Some(all)) => Value::Is(all),
            (Some(true), Some(_)) => Value::Fault(ShareFault {
                reason: FaultReason::AboveCard,
                what: format!(
                    "a part of {} thousandths of one card",
                    part.thousandths().unwrap_or(u128::MAX)
                ),
            }),
            _ => unreadable("the part is too large".to_owned()),
        }
    }
}

fn unreadable(what: String) -> Value {
    Value::Fault(ShareFault { reason: FaultReason::Unreadable, what })
}

impl Condition {
    fn holds(&self, node: &NodeGpus) -> bool {
        if !self.is_label {
            return node.capacity.iter().any(|(name, _)| like(&self.name, name).is_some());
        }
        let is = |value: &Text| self.value.as_ref().is_none_or(|wanted| like(wanted, value).is_some());
        node.labels.iter().any(|(name, value)| like(&self.name, name).is_some() && is(value))
    }
}

impl TryFrom<String> for Condition {
    type Error = ExpressionError;

    fn try_from(text: String) -> Result<Self, ExpressionError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (is_label, name, value) = match words.as_slice() {
            ["label", name] => (true, *name, None),
            ["label", name, "=", value] => (true, *name, Some(Text::from(*value))),
            ["capacity", name] => (false, *name, None),
            _ => return Err(ExpressionError(text)),
        };
        Ok(Self { is_label, name: name.into(), value })
    }
}

impl From<Condition> for String {
    fn from(condition: Condition) -> Self {
        let kind = if condition.is_label { "label" } else { "capacity" };
        match condition.value {
            Some(value) => format!("{kind} {} = {value}", condition.name),
            None => format!("{kind} {}", condition.name),
        }
    }
}
