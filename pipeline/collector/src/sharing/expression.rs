//! Expressions of the configuration that combine numbers of nodes and pods: `request example.com/slice /
//! label example.com/slices-per-card`.

use std::collections::BTreeMap;
use std::fmt;

use prorata_schemas::Text;
use prorata_schemas::event::Quantities;
use prorata_schemas::quantity::AmountUnit;
use serde::{Deserialize, Serialize};

use super::ratio::Ratio;
use super::register::Register;
use super::{FaultReason, ShareFault};

/// An expression of terms that are multiplied and divided from left to right:
///
/// | term | is |
/// |---|---|
/// | `8` | a number |
/// | `request NAME` | amount of a resource that a container requests |
/// | `gigabytes NAME` | amount as for `request NAME`, times the number at the `*` of NAME |
/// | `annotation NAME` | number in an annotation of the pod |
/// | `label NAME` | number in a label of the node |
/// | `label-gb NAME` | number of MiB in a label of the node, as whole GiB, rounded up |
/// | `capacity NAME` | amount of a resource of the node |
/// | `devices` | number of devices in the register of the node |
/// | `memory` | memory of a device in the register of the node |
///
/// A NAME may have one `*`, which stands for any text; amounts of all names that match are added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Expression {
    text: String,
    /// Whether the term divides, and the term.
    terms: Vec<(bool, Operand)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operand {
    Number(Ratio),
    Request(Text),
    Gigabytes(Text),
    Annotation(Text),
    Label(Text),
    LabelGb(Text),
    Capacity(Text),
    Devices,
    Memory,
}

/// The value of an expression.
pub(super) enum Value {
    Is(Ratio),
    /// The pod does not name it.
    Absent,
    Fault(ShareFault),
}

/// Objects that an expression reads.
pub(super) struct Objects<'a> {
    pub requests: &'a Quantities,
    /// Annotations of the pod.
    pub annotations: &'a BTreeMap<Text, Text>,
    pub labels: &'a BTreeMap<Text, Text>,
    pub capacity: &'a Quantities,
    pub register: Option<&'a Register>,
}

impl Expression {
    /// Returns whether the expression reads this resource of a pod.
    pub(super) fn reads_request(&self, name: &str) -> bool {
        self.any(
            |term| matches!(term, Operand::Request(of) | Operand::Gigabytes(of) if like(of, name).is_some()),
        )
    }

    /// Returns whether the expression reads this annotation of a pod.
    pub(super) fn reads_annotation(&self, name: &str) -> bool {
        self.any(|term| matches!(term, Operand::Annotation(of) if like(of, name).is_some()))
    }

    /// Returns whether the expression reads this label of a node.
    pub(super) fn reads_label(&self, name: &str) -> bool {
        self.any(|term| matches!(term, Operand::Label(of) | Operand::LabelGb(of) if like(of, name).is_some()))
    }

    /// Returns whether the expression reads requests of containers.
    pub(super) fn is_of_containers(&self) -> bool {
        self.any(|term| matches!(term, Operand::Request(_) | Operand::Gigabytes(_)))
    }

    fn any(&self, is: impl Fn(&Operand) -> bool) -> bool {
        self.terms.iter().any(|(_, term)| is(term))
    }

    /// Returns the value for these objects. An absent term of the pod takes precedence over a fault of the
    /// node.
    pub(super) fn value(&self, objects: &Objects<'_>) -> Value {
        let values: Vec<_> =
            self.terms.iter().map(|(divides, term)| (divides, term.value(objects))).collect();
        if values.iter().any(|(_, value)| matches!(value, Value::Absent)) {
            return Value::Absent;
        }
        let mut product = Ratio::ONE;
        for (divides, value) in values {
            let value = match value {
                Value::Is(value) => value,
                other => return other,
            };
            let next = if *divides { product.divided(value) } else { product.times(value) };
            let Some(next) = next else {
                return unreadable(format!("'{}' is not a finite number", self.text));
            };
            product = next;
        }
        Value::Is(product)
    }
}

impl Operand {
    fn value(&self, objects: &Objects<'_>) -> Value {
        match self {
            Self::Number(number) => Value::Is(*number),
            Self::Request(name) => sum(objects.requests, name, |_| Some(1)).map_or(Value::Absent, Value::Is),
            Self::Gigabytes(name) => {
                let digits = |middle: &str| middle.parse::<u32>().ok().map(u128::from);
                sum(objects.requests, name, digits).map_or(Value::Absent, Value::Is)
            }
            Self::Annotation(name) => {
                numbers(objects.annotations, name, "annotation").unwrap_or(Value::Absent)
            }
            Self::Label(name) => {
                numbers(objects.labels, name, "label").unwrap_or_else(|| missing("label", name))
            }
            Self::LabelGb(name) => match numbers(objects.labels, name, "label") {
                Some(Value::Is(mib)) => mib.divided(Ratio::whole(1024)).map_or_else(
                    || unreadable(format!("label {name} is too large")),
                    |gib| Value::Is(Ratio::whole(gib.ceiling())),
                ),
                Some(other) => other,
                None => missing("label", name),
            },
            Self::Capacity(name) => {
                sum(objects.capacity, name, |_| Some(1)).map_or_else(|| missing("resource", name), Value::Is)
            }
            Self::Devices => of_register(objects, |register| Some(Ratio::whole(register.devices() as u128))),
            Self::Memory => of_register(objects, |register| register.memory().map(Ratio::whole)),
        }
    }
}

/// Returns the text at the `*` of a pattern, or an empty text if there is no `*`. `None` if the name does not
/// match.
pub(super) fn like<'n>(pattern: &str, name: &'n str) -> Option<&'n str> {
    match pattern.split_once('*') {
        None => (pattern == name).then_some(""),
        Some((before, after)) => name.strip_prefix(before)?.strip_suffix(after),
    }
}

fn sum(of: &Quantities, pattern: &str, factor: impl Fn(&str) -> Option<u128>) -> Option<Ratio> {
    let mut sum = None;
    for (name, quantity) in of {
        let Some(factor) = like(pattern, name).and_then(&factor) else { continue };
        let amount = quantity.amount.checked_mul(factor)?;
        let amount = Ratio::new(amount, AmountUnit::of(name).per_one().into())?;
        sum = Some(sum.unwrap_or(Ratio::ZERO).plus(amount)?);
    }
    sum
}

/// Returns the sum of the numbers whose names match; `None` if there are none.
fn numbers(texts: &BTreeMap<Text, Text>, pattern: &str, kind: &str) -> Option<Value> {
    let mut sum = None;
    for (name, text) in texts.iter().filter(|(name, _)| like(pattern, name).is_some()) {
        let number = match Ratio::parse(text) {
            Ok(number) => number,
            Err(why) => return Some(unreadable(format!("{kind} {name}: '{text}' {why}"))),
        };
        let Some(next) = sum.unwrap_or(Ratio::ZERO).plus(number) else {
            return Some(unreadable(format!("{kind} {name}: '{text}' is too large")));
        };
        sum = Some(next);
    }
    sum.map(Value::Is)
}

fn of_register(objects: &Objects<'_>, read: impl Fn(&Register) -> Option<Ratio>) -> Value {
    objects.register.and_then(read).map_or_else(|| missing("annotation", "of the register"), Value::Is)
}

fn missing(kind: &str, name: &str) -> Value {
    Value::Fault(ShareFault {
        reason: FaultReason::MissingLabel,
        what: format!("the node has no {kind} {name}"),
    })
}

fn unreadable(what: String) -> Value {
    Value::Fault(ShareFault { reason: FaultReason::Unreadable, what })
}

/// A text of the configuration that is not an expression or a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not of the form 'request example.com/slice / label example.com/slices-per-card'")]
pub struct ExpressionError(pub(super) String);

impl TryFrom<String> for Expression {
    type Error = ExpressionError;

    fn try_from(text: String) -> Result<Self, ExpressionError> {
        let mut words = text.split_whitespace().peekable();
        let mut terms = Vec::new();
        let mut divides = false;
        let parsed = loop {
            let Some(term) = term(&mut words) else { break false };
            terms.push((divides, term));
            divides = match words.next() {
                None => break true,
                Some("*") => false,
                Some("/") => true,
                Some(_) => break false,
            };
        };
        if parsed { Ok(Self { text, terms }) } else { Err(ExpressionError(text)) }
    }
}

fn term<'t>(words: &mut impl Iterator<Item = &'t str>) -> Option<Operand> {
    let kind = words.next()?;
    let mut name = || words.next().filter(|name| !matches!(*name, "*" | "/")).map(Text::from);
    Some(match kind {
        "request" => Operand::Request(name()?),
        "gigabytes" => Operand::Gigabytes(name()?),
        "annotation" => Operand::Annotation(name()?),
        "label" => Operand::Label(name()?),
        "label-gb" => Operand::LabelGb(name()?),
        "capacity" => Operand::Capacity(name()?),
        "devices" => Operand::Devices,
        "memory" => Operand::Memory,
        number => Operand::Number(Ratio::parse(number).ok()?),
    })
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Expression> for String {
    fn from(expression: Expression) -> Self {
        expression.text
    }
}
