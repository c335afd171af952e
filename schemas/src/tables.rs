//! Names of the hourly tables.

use serde::{Deserialize, Serialize};

/// The hourly tables, in the order in which they are published; `hours` is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is described by its row type in `rows`")]
pub enum Table {
    CostAllocation,
    ReservationUsage,
    CommitmentUtilization,
    QuotaUsage,
    PoolUsage,
    Hours,
}

impl Table {
    /// Every table, `hours` last.
    pub const ALL: [Self; 6] = [
        Self::CostAllocation,
        Self::ReservationUsage,
        Self::CommitmentUtilization,
        Self::QuotaUsage,
        Self::PoolUsage,
        Self::Hours,
    ];

    /// Its name, which is also its folder under the root.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CostAllocation => "cost_allocation",
            Self::ReservationUsage => "reservation_usage",
            Self::CommitmentUtilization => "commitment_utilization",
            Self::QuotaUsage => "quota_usage",
            Self::PoolUsage => "pool_usage",
            Self::Hours => "hours",
        }
    }
}
