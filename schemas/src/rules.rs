//! The configurable rules, stored by version under `rules/` in the root. Each hour has one version.

pub mod bounds;
pub mod division;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Text;
use crate::body::EventRef;
use crate::event::Event;
use crate::ids::OrganizationId;
use crate::money::{Ratio, Weight};
use crate::reject::{Reason, Reject, excerpt};
use bounds::{check_bounds, check_usage_bounds};
use division::ChargeDivision;

/// The configurable part of the rules. Rules are data: an hour is always folded under the version listed for
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Name of this version, as in `rules/<version>.json` and in column `x_RulesVersion`.
    pub version: Text,
    /// Weights of the resources of a node.
    pub weights: Weights,
    /// The rule that decides how much of a node a pod is allocated.
    pub allocation: Allocation,
    /// Resource names that count as whole GPUs.
    pub gpu_resources: Vec<Text>,
    /// Gigabytes of `nos.nebuly.com/gpu-memory` that one `nvidia.com/gpu` stands for.
    pub gpu_memory_gb: u32,
    /// Factor on a pool pod's charge while the pod is protected from eviction; at least 0.
    pub eviction_protection_ratio: Ratio,
    /// Currency of every organization that `currencies` does not name (ISO 4217).
    pub currency: Text,
    /// Currency by organization id.
    pub currencies: BTreeMap<OrganizationId, Text>,
    /// Entries that divide shared charges of bills over pods. The first entry that matches a line divides it.
    pub shared_charges: Vec<ChargeDivision>,
}

/// Weights that divide a node's cost over its resources (AWS split cost allocation). Only the ratios between
/// weights matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Weights {
    /// Weight of one GPU.
    pub gpu: Weight,
    /// Weight of one vCPU.
    pub cpu: Weight,
    /// Weight of one GiB of memory.
    pub memory: Weight,
}

/// The rule that decides how much of a node a pod is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Allocation {
    /// The larger of request and measured use, each over the hour.
    Max,
    /// The pod's requests alone.
    Requests,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            gpu: Weight::from(9),
            cpu: Weight::from_nanos(900_000_000),
            memory: Weight::from_nanos(100_000_000),
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        let gpu_resources = ["nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "google.com/tpu"];
        Self {
            version: "1".into(),
            weights: Weights::default(),
            allocation: Allocation::Max,
            gpu_resources: gpu_resources.map(Text::from).to_vec(),
            gpu_memory_gb: 32,
            eviction_protection_ratio: Ratio::from_nanos(1_200_000_000),
            currency: "USD".into(),
            currencies: BTreeMap::new(),
            shared_charges: Vec::new(),
        }
    }
}

impl Rules {
    /// Returns the currency in which every price of this organization must be.
    pub fn currency_of(&self, organization_id: &str) -> &Text {
        self.currencies.get(organization_id).unwrap_or(&self.currency)
    }

    /// Checks an event against the rules: its values must be within [`bounds`], and its prices in the
    /// organization's currency. An event is checked once, when it is accepted.
    ///
    /// # Errors
    /// `invalid_field` or `currency_mismatch`.
    pub fn check(&self, event: &Event) -> Result<(), Reject> {
        check_bounds(event, self)?;
        self.check_currency(event)
    }

    /// Checks an event whose texts may be borrowed.
    ///
    /// # Errors
    /// Returns the errors of [`Rules::check`].
    pub fn check_ref(&self, event: &EventRef<'_>) -> Result<(), Reject> {
        match event {
            EventRef::PodUsage { organization_id, usage, .. } => {
                check_usage_bounds(organization_id, *usage, self)
            }
            EventRef::Event(event) => self.check(event),
        }
    }

    /// Checks that the currency of an event's prices is the organization's configured currency.
    ///
    /// # Errors
    /// `currency_mismatch`.
    pub fn check_currency(&self, event: &Event) -> Result<(), Reject> {
        let Some(currency) = event.payload.currency() else { return Ok(()) };
        let ours = self.currency_of(&event.organization_id);
        if currency == ours {
            return Ok(());
        }
        let what = format!(
            "'{}' is not '{ours}', the currency configured for organization '{}'",
            excerpt(currency),
            excerpt(&event.organization_id)
        );
        let message = format!("{}.currency: {what}", event.payload.kind().name());
        Err(Reject::new(Reason::CurrencyMismatch, message))
    }
}
