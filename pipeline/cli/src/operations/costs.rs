//! Metrics of costs and budgets. Organizations and pools come from input, so the number of series is bounded.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::registry::Unit;
use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::budget::BudgetUse;

use super::metrics::{Labels, Out};
use super::view::Snapshot;

/// Number of atoms of a [`Decimal12`] in one unit of a currency.
const ATOMS: f64 = 1e12;

impl Snapshot {
    pub(super) fn put_costs(&self, out: &mut Out<'_>) -> fmt::Result {
        let help = "Allocated cost of the UTC day of the last published hour, by organization and currency; \
                    organizations beyond http.cost_series are together, with an empty name";
        out.gauge("day_cost", help, None, self.day_costs())?;
        let help = "Spend of a pool as a share of its budget for the day, month or quarter of the last \
                    published hour; above 1 if the budget is exceeded. The http.cost_series largest shares";
        out.gauge("budget_used", help, Some(Unit::Other("ratio".to_owned())), self.used_shares())
    }

    /// Returns one sample for each of the largest costs, and one for all other organizations of each
    /// currency.
    fn day_costs(&self) -> Vec<(Labels, f64)> {
        let mut costs: Vec<(&OrganizationId, &Text, Decimal12)> = Vec::new();
        for shard in self.status.shards.values() {
            costs.extend(shard.costs.day.iter().map(|((id, currency), cost)| (id, currency, *cost)));
        }
        costs.sort_by(|(_, _, one), (_, _, other)| other.cmp(one));
        let named = costs.iter().take(self.cost_series());
        let mut samples: Vec<(Labels, f64)> =
            named.map(|(id, currency, cost)| (day_labels(id, currency), units(*cost))).collect();
        let mut others: BTreeMap<&Text, f64> = BTreeMap::new();
        for (_, currency, cost) in costs.iter().skip(self.cost_series()) {
            *others.entry(currency).or_default() += units(*cost);
        }
        if self.cost_series() > 0 {
            samples.extend(others.into_iter().map(|(currency, cost)| (day_labels("", currency), cost)));
        }
        samples
    }

    /// Returns the largest shares of budgets.
    fn used_shares(&self) -> Vec<(Labels, f64)> {
        let budgets = self.status.shards.values().flat_map(|shard| &shard.costs.budgets);
        let mut shares: Vec<(&BudgetUse, f64)> = budgets.map(|used| (used, share(used))).collect();
        shares.sort_by(|(_, one), (_, other)| other.partial_cmp(one).unwrap_or(Ordering::Equal));
        shares.truncate(self.cost_series());
        let labels = |used: &BudgetUse| {
            vec![
                ("organization", used.organization_id.to_string()),
                ("pool", used.pool_id.to_string()),
                ("period", used.period.name().to_owned()),
            ]
        };
        shares.into_iter().map(|(used, share)| (labels(used), share)).collect()
    }
}

fn day_labels(organization: &str, currency: &str) -> Labels {
    vec![("organization", organization.to_owned()), ("currency", currency.to_owned())]
}

/// Converts money to the float that Prometheus expects.
fn units(money: Decimal12) -> f64 {
    money.atoms() as f64 / ATOMS
}

/// Returns spend divided by budget. It is 0 without spend, and infinite if only the budget is 0.
fn share(used: &BudgetUse) -> f64 {
    if used.spend == Decimal12::ZERO { 0.0 } else { units(used.spend) / units(used.budget) }
}
