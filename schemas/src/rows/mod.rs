//! Rows of the hourly tables, as the engine makes them: rounded, complete, in table order.
//!
//! `cost_allocation` carries the descriptions that its text columns are taken from; turning rows into columns
//! is the table writer's work. Costs and quantities are [`crate::decimal::Decimal12`]; `None` is SQL null.

mod cost;
mod usage;

pub use cost::{CostRow, QuotaState, ResourceHours, RowKind, Unpriced};
pub use usage::{
    ClusterCover, CommitmentState, CommitmentUtilizationRow, HourRow, PoolUsageRow, QuotaUsageRow,
    ReservationUsageRow,
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
    /// Its currency.
    pub currency: Text,
    /// Version of the rules it was folded under.
    pub rules_version: Text,
    /// Resources that these rules count as GPUs, for the sizes in `cost_allocation`.
    pub gpu_resources: Vec<Text>,
    /// The hour.
    pub hour: Hour,
    /// `cost_allocation`, sorted by grain. Rows are large, and many parts of an hour put theirs together:
    /// each stays where it was made.
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
    /// An hour that has events and is not folded: no rows, and sums of nothing.
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
