//! Events of prices: GPU pools, and the rate card.

use serde::{Deserialize, Serialize};

use super::Quantities;
use crate::Text;
use crate::ids::{ClusterId, PoolId};
use crate::money::{Money, Ratio, UnitPrice};
use crate::reject::excerpt;

/// Prices of one quality of service in a GPU pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosPrice {
    /// The quality of service that pods name in their `qos`.
    pub qos: Text,
    /// Price of one requested FP16 TFLOP for an hour, in the pool's currency; zero or more.
    pub per_fp16_tflop_hour: UnitPrice,
    /// Price of one requested GiB of VRAM for an hour, in the pool's currency; zero or more.
    pub per_vram_gib_hour: UnitPrice,
    /// The part of these prices that applies between request and limit; zero or more, 1 for the full price.
    pub limits_over_requests: Ratio,
}

/// The action of a pool's owner when one of the pool's budgets is exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BudgetExceedStrategy {
    /// Raises an alert.
    #[default]
    AlertOnly,
    /// Raises an alert and terminates the pool's machines.
    AlertAndTerminateVm,
}

impl BudgetExceedStrategy {
    /// Returns the name in events and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AlertOnly => "ALERT_ONLY",
            Self::AlertAndTerminateVm => "ALERT_AND_TERMINATE_VM",
        }
    }
}

/// A GPU pool with its prices, capacities and budgets. Natural key: pool_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSet {
    /// The pool id. Nodes and pods refer to it in their `pool_id`.
    pub pool_id: PoolId,
    /// The cluster under which the pool is reported. The pool's nodes and pods may be in any cluster.
    pub cluster_id: ClusterId,
    /// The provider that bills the pool's pods that run on no node.
    pub provider: Text,
    /// Quality of service for pods whose own quality of service is empty or `default`.
    pub default_qos: Text,
    /// Prices by quality of service. A pod whose quality of service is not listed has no price.
    pub qos_pricing: Vec<QosPrice>,
    /// Virtual TFLOPs in percent of the nodes' physical TFLOPs; zero or more, 100 without overselling.
    pub tflops_oversell_percent: i32,
    /// Percent of the nodes' ephemeral storage that is added to virtual VRAM; zero or more.
    pub vram_expand_to_host_disk_percent: i32,
    /// Percent of the nodes' memory that is added to virtual VRAM; zero or more.
    pub vram_expand_to_host_mem_percent: i32,
    /// Maximum capacity that the pool may grow to; reported and not enforced. A resource that is not named
    /// here has no maximum.
    pub max_capacity: Quantities,
    /// Minimum capacity that the pool keeps; reported and not enforced. It is at most `max_capacity`.
    pub min_capacity: Quantities,
    /// The capacity that the pool keeps free on purpose, for future pods. It is at most `max_capacity`.
    pub warm_capacity: Quantities,
    /// Budget for node cost in a UTC day, in `currency`; zero or more; `None` if there is none.
    pub budget_per_day: Option<Money>,
    /// Budget for node cost in a UTC calendar month, in `currency`; zero or more; `None` if there is none.
    pub budget_per_month: Option<Money>,
    /// Budget for node cost in a UTC calendar quarter, in `currency`; zero or more; `None` if there is none.
    pub budget_per_quarter: Option<Money>,
    /// The owner's action when a budget is exceeded; reported only.
    pub budget_exceed_strategy: BudgetExceedStrategy,
    /// Currency of prices and budgets (ISO 4217), which must be the organization's configured currency.
    pub currency: Text,
}

impl PoolSet {
    /// Returns the field of the first capacity that is above `max_capacity`, and a description of the fault.
    /// Returns `None` if no capacity is.
    pub fn fault_of_capacity(&self) -> Option<(&'static str, String)> {
        let capacities = [("min_capacity", &self.min_capacity), ("warm_capacity", &self.warm_capacity)];
        capacities.into_iter().find_map(|(field, capacity)| {
            let (name, above, max) = capacity.iter().find_map(|(name, quantity)| {
                let max = self.max_capacity.get(name).filter(|max| quantity.amount > max.amount)?;
                Some((name, quantity, max))
            })?;
            let [name, above, max] = [name, &above.text, &max.text].map(|text| excerpt(text));
            Some((field, format!("{name} '{above}' is above max_capacity, '{max}'")))
        })
    }
}

/// A pool is deleted: its pods have no price from now on. Natural key: pool_id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDeleted {
    /// The pool that ends. Nothing happens if it does not exist.
    pub pool_id: PoolId,
}

/// One rate of the rate card, which prices serverless pods (no node and no pool). A rate is never deleted.
///
/// Natural key: region, gpu_model, qos.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateSet {
    /// The provider that bills the pods. It is reported and never compared.
    pub provider: Text,
    /// Region of the pods that the rate prices; never empty.
    pub region: Text,
    /// GPU model of the pods that the rate prices, never empty; `None` for pods that ask for no GPU model.
    pub gpu_model: Option<Text>,
    /// Quality of service of the pods that the rate prices, never empty; `default` unless the producer sets
    /// it.
    pub qos: Text,
    /// Price of one requested vCPU for an hour, in `currency`; zero or more.
    pub per_vcpu_hour: UnitPrice,
    /// Price of one requested GiB of memory for an hour, in `currency`; zero or more.
    pub per_gib_hour: UnitPrice,
    /// Price of one requested GPU for an hour, in `currency`; zero or more.
    pub per_gpu_hour: UnitPrice,
    /// Currency of the prices (ISO 4217), which must be the organization's configured currency.
    pub currency: Text,
}
