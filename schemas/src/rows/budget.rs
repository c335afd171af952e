//! Budgets of pools, and the spend against them (RULES.md, section 5).

use crate::decimal::Decimal12;
use crate::ids::{OrganizationId, PoolId};
use crate::time::{Date, Hour};

/// The period of a budget, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Period {
    Day,
    Month,
    Quarter,
}

impl Period {
    /// All periods, in the order of `budget_exceeded`.
    pub const ALL: [Self; 3] = [Self::Day, Self::Month, Self::Quarter];

    /// Returns the name, as in column `budget_exceeded`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Quarter => "quarter",
        }
    }

    /// Returns the first day of the period that contains the hour.
    pub const fn start(self, hour: Hour) -> Date {
        match self {
            Self::Day => hour.date(),
            Self::Month => hour.date().month_start(),
            Self::Quarter => hour.date().quarter_start(),
        }
    }
}

/// One budget of a pool, and the spend of its period through an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetUse {
    /// The pool's organization.
    pub organization_id: OrganizationId,
    /// The pool.
    pub pool_id: PoolId,
    /// The period.
    pub period: Period,
    /// Node cost of the pool since the start of the period, including this hour.
    pub spend: Decimal12,
    /// The budget.
    pub budget: Decimal12,
}

impl BudgetUse {
    /// Returns whether the spend is strictly above the budget.
    pub fn is_exceeded(&self) -> bool {
        self.spend > self.budget
    }
}
