//! Entries of the configuration that divide shared charges of bills over pods (RULES.md, section 13).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Text;
use crate::event::{BillLine, BillSet, ChargeCategory, names};
use crate::ids::{ClusterId, OrganizationId};
use crate::reject::excerpt;

/// Maximum number of entries in `rules.shared_charges`.
pub const DIVISIONS_MAX: usize = 1_000;

/// An entry that divides lines of bills over pods. A line matches if it has every value that the entry names.
/// A `*` at the end of a value stands for any rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChargeDivision {
    /// The organization of the line; `None` for any.
    pub organization_id: Option<OrganizationId>,
    /// The provider that sent the bill, in any spelling; `None` for any.
    pub provider: Option<Text>,
    /// The account that the provider bills; `None` for any.
    pub billing_account_id: Option<Text>,
    /// The account, project or subscription of the line; `None` for any, and for a line without one.
    pub account_id: Option<Text>,
    /// The service of the line; `None` for any.
    pub service: Option<Text>,
    /// The category of the line; `None` for any.
    pub category: Option<ChargeCategory>,
    /// The resource of the line; `None` for any, and for charges of no resource.
    pub resource_key: Option<Text>,
    /// The cluster whose pods bear the charge; `None` for all clusters.
    pub cluster_id: Option<ClusterId>,
    /// The namespace whose pods bear the charge; `None` for all namespaces.
    pub namespace: Option<Text>,
    /// The weight of a pod.
    pub over: DivideOver,
}

/// The weight by which pods divide a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DivideOver {
    /// The effective cost of the pod's other rows.
    Cost,
    /// The vCPU-hours that the pod was allocated.
    Cpu,
    /// The GiB-hours that the pod was allocated.
    Memory,
    /// The GPU-hours that the pod was allocated.
    Gpu,
    /// The running time of the pod.
    Pods,
}

impl DivideOver {
    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Gpu => "gpu",
            Self::Pods => "pods",
        }
    }
}

impl ChargeDivision {
    /// Returns whether the entry matches a line of a set of this organization.
    pub fn matches(&self, organization_id: &str, set: &BillSet, line: &BillLine) -> bool {
        is_named(self.organization_id.as_deref(), Some(organization_id))
            && self.category.is_none_or(|category| category == line.category)
            && is_named(self.service.as_deref(), Some(&*line.service))
            && is_named(self.account_id.as_deref(), line.account_id.as_deref())
            && is_named(self.resource_key.as_deref(), Some(&*set.resource_key))
            && is_named(self.billing_account_id.as_deref(), Some(&*set.billing_account_id))
            && self.provider.as_deref().is_none_or(|provider| is_provider(provider, &set.provider))
    }

    /// Returns whether pods of this cluster and namespace bear the charge.
    pub fn has_pods_of(&self, cluster_id: &ClusterId, namespace: &Text) -> bool {
        self.cluster_id.as_ref().is_none_or(|wanted| wanted == cluster_id)
            && self.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
    }

    /// Returns the fault of the first text that no line or pod can have, as the name of its key and a
    /// message.
    fn fault(&self) -> Option<(&'static str, String)> {
        let patterns = [
            ("organization_id", self.organization_id.as_deref()),
            ("provider", self.provider.as_deref()),
            ("billing_account_id", self.billing_account_id.as_deref()),
            ("account_id", self.account_id.as_deref()),
            ("service", self.service.as_deref()),
            ("resource_key", self.resource_key.as_deref()),
        ];
        let names = [("cluster_id", self.cluster_id.as_deref()), ("namespace", self.namespace.as_deref())];
        let faults = patterns.into_iter().map(|(key, text)| (key, text.and_then(fault_of_pattern)));
        let mut faults = faults.chain(names.map(|(key, text)| (key, text.and_then(fault_of_name))));
        faults.find_map(|(key, fault)| Some((key, fault?)))
    }
}

/// Returns whether a value is the wanted text, or begins with it if it ends in `*`. Every value is wanted if
/// no text is.
fn is_named(wanted: Option<&str>, found: Option<&str>) -> bool {
    let Some(wanted) = wanted else { return true };
    found.is_some_and(|found| match wanted.strip_suffix('*') {
        Some(start) => found.starts_with(start),
        None => found == wanted,
    })
}

/// Returns whether a provider is the wanted one by its canonical name.
fn is_provider(wanted: &str, found: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(start) => names::provider(found).starts_with(&*names::provider(start)),
        None => names::same(found, wanted, names::provider),
    }
}

fn fault_of_pattern(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(EMPTY.to_owned());
    }
    let stem = text.strip_suffix('*').unwrap_or(text);
    let what = "has a * before its end, but only the last character may be one";
    stem.contains('*').then(|| format!("'{}' {what}", excerpt(text)))
}

fn fault_of_name(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(EMPTY.to_owned());
    }
    text.contains('*').then(|| format!("'{}' has a *, but it names one: write another entry", excerpt(text)))
}

/// Message for a text without characters.
const EMPTY: &str = "is empty; leave the key out to match every value";

/// The fault of a list of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DivisionFault(String);

impl fmt::Display for DivisionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rules.shared_charges{}", self.0)
    }
}

impl std::error::Error for DivisionFault {}

/// Checks the entries of a configuration. Entries count from 1 in the message.
///
/// # Errors
/// If there are too many entries, or if a text of an entry is empty or has a `*` at a wrong place.
pub fn check_divisions(entries: &[ChargeDivision]) -> Result<(), DivisionFault> {
    if entries.len() > DIVISIONS_MAX {
        let count = entries.len();
        return Err(DivisionFault(format!(" has {count} entries, above the limit of {DIVISIONS_MAX}")));
    }
    for (number, entry) in (1..).zip(entries) {
        if let Some((key, what)) = entry.fault() {
            return Err(DivisionFault(format!(", entry {number}: {key} {what}")));
        }
    }
    Ok(())
}
