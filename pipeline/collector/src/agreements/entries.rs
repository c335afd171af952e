//! Entries of a file of agreements. Except for the times, fields match the fields of the events.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::event::{
    Assignment, BudgetExceedStrategy, CommitmentKind, DiscountTarget, DiscountedPrice, PlanDiscount, PoolSet,
    QosPrice, Quantities,
};
use prorata_schemas::ids::{ClusterId, CommitmentId, PoolId, ReservationId};
use prorata_schemas::money::{Amount, Money, Ratio, UnitPrice};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::time::Timestamp;
use serde::{Deserialize, Deserializer};

use super::specs;
use crate::instant::{parse_date, parse_instant};
use crate::object::QuantityText;

/// An instant as people write it: RFC 3339, or a date, which means its first instant in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(pub Timestamp);

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let instant = parse_instant(&text).or_else(|| Some(parse_date(&text)?.start()));
        instant.filter(|instant| instant.0 >= 0).map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "'{text}' is not a time such as 2026-11-01 or 2026-11-01T08:00:00Z"
            ))
        })
    }
}

/// A capacity reservation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservationEntry {
    /// Id of the reservation.
    pub id: ReservationId,
    /// Start, inclusive.
    pub from: Day,
    /// End, exclusive. `None` if the reservation does not end.
    pub to: Option<Day>,
    /// Name of the reservation.
    #[serde(default)]
    pub name: Text,
    /// Provider that bills the reservation.
    pub provider: Text,
    /// Region of the reservation.
    pub region: Text,
    /// Zone of the reservation. `None` if it covers any zone.
    pub zone: Option<Text>,
    /// Name of a unit that a provider sells, such as `P16EN x2`, instead of `gpu_model` and `capacity`.
    pub spec: Option<Text>,
    /// GPU model of the units. `None` if `spec` is given.
    pub gpu_model: Option<Text>,
    /// Capacity of one unit. `None` if `spec` is given.
    pub capacity: Option<BTreeMap<Text, QuantityText>>,
    /// Number of units.
    pub quantity: i32,
    /// Price of an unused unit per hour.
    pub unit_hourly_price: UnitPrice,
    /// Time of purchase. `None` if it is the start.
    pub created_at: Option<Day>,
}

impl ReservationEntry {
    /// Returns the GPU model and the capacity of a unit.
    pub(super) fn unit(&self) -> Result<(Text, Quantities), String> {
        let (model, capacity) = match (&self.spec, &self.gpu_model, &self.capacity) {
            (Some(spec), None, None) => specs::unit(spec)?,
            (None, Some(model), Some(capacity)) => (model.clone(), capacity.clone()),
            _ => return Err("give either 'spec', or 'gpu_model' and 'capacity'".to_owned()),
        };
        Ok((model, quantities(&capacity)?))
    }
}

/// A commitment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitmentEntry {
    /// Id of the commitment.
    pub id: CommitmentId,
    /// Start, inclusive.
    pub from: Day,
    /// End, exclusive. `None` if the commitment does not end.
    pub to: Option<Day>,
    /// Name of the commitment.
    #[serde(default)]
    pub name: Text,
    /// Provider of the covered nodes.
    pub provider: Text,
    /// Kind of the commitment, in its provider's terms.
    pub kind: KindEntry,
    /// Region of the covered nodes. It has no meaning for a savings plan.
    #[serde(default)]
    pub region: Text,
    /// Instance family of the covered nodes. It has no meaning for a savings plan.
    #[serde(default)]
    pub instance_family: Text,
    /// Number of committed vCPUs.
    #[serde(default)]
    pub vcpu: Amount,
    /// Committed memory in GiB.
    #[serde(default)]
    pub memory_gib: Amount,
    /// Number of committed GPUs.
    #[serde(default)]
    pub gpu: i32,
    /// Model of the GPUs. `None` if the commitment covers any model.
    pub gpu_model: Option<Text>,
    /// Amortized cost of the whole commitment per hour.
    pub hourly_cost: UnitPrice,
    /// Whether the commitment covers nodes.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The part of the commitment that may be used. `None` if the whole commitment may be used.
    pub allowed_utilization: Option<Ratio>,
    /// Clusters that are covered first.
    #[serde(default)]
    pub assignments: Vec<AssignmentEntry>,
    /// Spend per hour that a savings plan commits to, at discounted prices.
    pub hourly_commitment: Option<UnitPrice>,
    /// Discounted prices of a savings plan.
    #[serde(default)]
    pub discounts: Vec<DiscountEntry>,
}

/// A discounted price of a savings plan: `saving` or `rate`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscountEntry {
    /// Kind of usage.
    pub applies_to: TargetEntry,
    /// Region of the usage. `None` for any region.
    pub region: Option<Text>,
    /// Instance family of the nodes. `None` for any family.
    pub instance_family: Option<Text>,
    /// Instance type of the nodes. `None` for any type.
    pub instance_type: Option<Text>,
    /// GPU model of the usage. `None` for any model.
    pub gpu_model: Option<Text>,
    /// The price.
    #[serde(flatten)]
    pub price: DiscountedPriceEntry,
}

/// A discounted price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiscountedPriceEntry {
    /// The part of the list price that is saved.
    Saving(Ratio),
    /// The price per hour of a node or a reserved unit.
    Rate(UnitPrice),
}

/// Kind of usage that a discounted price applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TargetEntry {
    /// On-demand nodes.
    Node,
    /// Serverless pods.
    Pod,
    /// Unused units of reservations.
    Reservation,
}

impl DiscountEntry {
    pub(super) fn payload(&self) -> PlanDiscount {
        PlanDiscount {
            applies_to: match self.applies_to {
                TargetEntry::Node => DiscountTarget::Node,
                TargetEntry::Pod => DiscountTarget::Pod,
                TargetEntry::Reservation => DiscountTarget::Reservation,
            },
            region: self.region.clone(),
            instance_family: self.instance_family.clone(),
            instance_type: self.instance_type.clone(),
            gpu_model: self.gpu_model.clone(),
            price: match self.price {
                DiscountedPriceEntry::Saving(saving) => DiscountedPrice::Saving(saving),
                DiscountedPriceEntry::Rate(rate) => DiscountedPrice::Rate(rate),
            },
        }
    }
}

const fn yes() -> bool {
    true
}

/// A provider's term for a commitment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum KindEntry {
    /// Reserved instances.
    ReservedInstance,
    /// A committed-use discount.
    CommittedUseDiscount,
    /// A savings plan.
    SavingsPlan,
}

impl From<KindEntry> for CommitmentKind {
    fn from(kind: KindEntry) -> Self {
        match kind {
            KindEntry::ReservedInstance => Self::ReservedInstance,
            KindEntry::CommittedUseDiscount => Self::CommittedUseDiscount,
            KindEntry::SavingsPlan => Self::SavingsPlan,
        }
    }
}

/// A cluster that a commitment is assigned to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssignmentEntry {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// Rank of the cluster. `None` if it comes after all clusters with a rank.
    pub priority: Option<i32>,
}

impl AssignmentEntry {
    pub(super) fn payload(&self) -> Assignment {
        Assignment { cluster_id: self.cluster_id.clone(), priority: self.priority }
    }
}

/// A rate of the rate card, valid until the next rate of the same region, GPU model and quality of service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateEntry {
    /// Start, inclusive.
    pub from: Day,
    /// Provider that bills the pods.
    pub provider: Text,
    /// Region of the pods.
    pub region: Text,
    /// GPU model of the pods. `None` if the rate is for pods without a GPU model.
    pub gpu_model: Option<Text>,
    /// Quality of service of the pods.
    #[serde(default = "default_qos")]
    pub qos: Text,
    /// Price of a vCPU per hour.
    pub per_vcpu_hour: UnitPrice,
    /// Price of a GiB of memory per hour.
    pub per_gib_hour: UnitPrice,
    /// Price of a GPU per hour.
    #[serde(default)]
    pub per_gpu_hour: UnitPrice,
}

fn default_qos() -> Text {
    "default".into()
}

/// A GPU pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolEntry {
    /// Id of the pool.
    pub id: PoolId,
    /// Start, inclusive.
    pub from: Day,
    /// End, exclusive. `None` if the pool does not end.
    pub to: Option<Day>,
    /// The cluster under which the pool is reported.
    pub cluster_id: ClusterId,
    /// Provider that bills the pool's pods without a node.
    pub provider: Text,
    /// Default quality of service, for pods that do not name a quality.
    pub default_qos: Text,
    /// Prices by quality of service.
    pub qos_pricing: Vec<QosEntry>,
    /// TFLOPs that are sold, in percent of the TFLOPs that exist.
    #[serde(default = "tflops_oversell")]
    pub tflops_oversell_percent: i32,
    /// Part of the host's disk that counts as additional VRAM, in percent.
    #[serde(default = "host_disk")]
    pub vram_expand_to_host_disk_percent: i32,
    /// Part of the host's memory that counts as additional VRAM, in percent.
    #[serde(default = "host_mem")]
    pub vram_expand_to_host_mem_percent: i32,
    /// Maximum capacity to which the pool may grow.
    #[serde(default)]
    pub max_capacity: BTreeMap<Text, QuantityText>,
    /// Minimum capacity that the pool keeps.
    #[serde(default)]
    pub min_capacity: BTreeMap<Text, QuantityText>,
    /// The capacity that the pool keeps free for future pods.
    #[serde(default)]
    pub warm_capacity: BTreeMap<Text, QuantityText>,
    /// Budget for a day.
    pub budget_per_day: Option<Money>,
    /// Budget for a month.
    pub budget_per_month: Option<Money>,
    /// Budget for a quarter.
    pub budget_per_quarter: Option<Money>,
    /// The action when a budget is exceeded.
    #[serde(default)]
    pub budget_exceed_strategy: StrategyEntry,
}

/// The action of a pool's owner when a budget is exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StrategyEntry {
    /// Raises an alert.
    #[default]
    AlertOnly,
    /// Raises an alert and terminates the pool's machines.
    AlertAndTerminateVm,
}

impl From<StrategyEntry> for BudgetExceedStrategy {
    fn from(strategy: StrategyEntry) -> Self {
        match strategy {
            StrategyEntry::AlertOnly => Self::AlertOnly,
            StrategyEntry::AlertAndTerminateVm => Self::AlertAndTerminateVm,
        }
    }
}

const fn tflops_oversell() -> i32 {
    500
}

const fn host_disk() -> i32 {
    70
}

const fn host_mem() -> i32 {
    50
}

/// Prices of one quality of service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QosEntry {
    /// The quality of service.
    pub qos: Text,
    /// Price of a TFLOP per hour.
    pub per_fp16_tflop_hour: UnitPrice,
    /// Price of a GiB of VRAM per hour.
    pub per_vram_gib_hour: UnitPrice,
    /// The price of the amount between request and limit, as a fraction of the price of requests.
    #[serde(default = "one")]
    pub limits_over_requests: Ratio,
}

fn one() -> Ratio {
    Ratio::from(1)
}

impl PoolEntry {
    pub(super) fn payload(&self, currency: &Text) -> Result<PoolSet, String> {
        let price = |entry: &QosEntry| QosPrice {
            qos: entry.qos.clone(),
            per_fp16_tflop_hour: entry.per_fp16_tflop_hour,
            per_vram_gib_hour: entry.per_vram_gib_hour,
            limits_over_requests: entry.limits_over_requests,
        };
        Ok(PoolSet {
            pool_id: self.id.clone(),
            cluster_id: self.cluster_id.clone(),
            provider: self.provider.clone(),
            default_qos: self.default_qos.clone(),
            qos_pricing: self.qos_pricing.iter().map(price).collect(),
            tflops_oversell_percent: self.tflops_oversell_percent,
            vram_expand_to_host_disk_percent: self.vram_expand_to_host_disk_percent,
            vram_expand_to_host_mem_percent: self.vram_expand_to_host_mem_percent,
            max_capacity: quantities(&self.max_capacity)?,
            min_capacity: quantities(&self.min_capacity)?,
            warm_capacity: quantities(&self.warm_capacity)?,
            budget_per_day: self.budget_per_day,
            budget_per_month: self.budget_per_month,
            budget_per_quarter: self.budget_per_quarter,
            budget_exceed_strategy: self.budget_exceed_strategy.into(),
            currency: currency.clone(),
        })
    }
}

/// Parses the quantities of an entry.
fn quantities(list: &BTreeMap<Text, QuantityText>) -> Result<Quantities, String> {
    let parse = |(name, text): (&Text, &QuantityText)| {
        let quantity = Quantity::parse(name, &text.0).map_err(|error| format!("{name}: {error}"))?;
        Ok((name.clone(), quantity))
    };
    list.iter().map(parse).collect()
}
