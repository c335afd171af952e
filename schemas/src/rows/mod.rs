//! Rows of the hourly tables, as the engine computes them: rounded, complete, in table order.
//!
//! Rows of `cost_allocation` carry the descriptions that fill their text columns. The table writer turns rows
//! into columns. Costs and quantities are [`crate::decimal::Decimal12`]; `None` is SQL null.

pub mod budget;
mod cost;
mod usage;

pub use cost::{BilledLine, CostRow, QuotaState, ResourceHours, ResourceRatios, RowKind, Unpriced};
pub use usage::{
    ClusterCover, CommitmentState, CommitmentUtilizationRow, CostBasis, HourRow, PlanSpend, PoolUsageRow,
    QuotaUsageRow, ReservationUsageRow,
};

use crate::Text;
use crate::ids::OrganizationId;
use crate::rules::Rules;
use crate::time::Hour;

/// All rows of one organization and hour.
#[derive(Clone, Debug, PartialEq)]
pub struct HourTables {
    /// The organization.
    pub organization_id: OrganizationId,
    /// The organization's currency.
    pub currency: Text,
    /// Version of the rules under which the hour was folded.
    pub rules_version: Text,
    /// Resource names that these rules count as GPUs; `cost_allocation` needs them for sizes.
    pub gpu_resources: Vec<Text>,
    /// The hour.
    pub hour: Hour,
    /// `cost_allocation`, sorted by grain. Rows are large and many parts of an hour add rows, so each row is
    /// boxed and never moves.
    pub cost_allocation: Vec<Box<CostRow>>,
    /// `reservation_usage`, by reservation.
    pub reservation_usage: Vec<ReservationUsageRow>,
    /// `commitment_utilization`, by commitment.
    pub commitment_utilization: Vec<CommitmentUtilizationRow>,
    /// `quota_usage`, by cluster, quota and resource.
    pub quota_usage: Vec<QuotaUsageRow>,
    /// `pool_usage`, by pool.
    pub pool_usage: Vec<PoolUsageRow>,
    /// `hours`.
    pub totals: HourRow,
}

impl HourTables {
    /// Creates the tables of an hour that has events but was not folded: no rows, all sums zero.
    pub fn without_rows(organization_id: &OrganizationId, hour: Hour, rules: &Rules, events: i64) -> Self {
        Self {
            organization_id: organization_id.clone(),
            currency: rules.currency_of(organization_id).clone(),
            rules_version: rules.version.clone(),
            gpu_resources: rules.gpu_resources.clone(),
            hour,
            cost_allocation: Vec::new(),
            reservation_usage: Vec::new(),
            commitment_utilization: Vec::new(),
            quota_usage: Vec::new(),
            pool_usage: Vec::new(),
            totals: HourRow { events, ..HourRow::default() },
        }
    }
}
