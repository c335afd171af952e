//! Costs by basis, by day and by cluster: what bills say of nodes, with the estimate of the same rows, and
//! what is still estimated.

use std::collections::BTreeMap;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::CostBasis;
use prorata_schemas::time::Date;

use super::CostBearer;
use crate::Sum;

/// Costs by basis. Without `estimate`, which is no cost, the sums add up to the cost of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BasisSums {
    /// Whether any row is billed.
    pub is_billed: bool,
    /// Cost of billed rows of nodes.
    pub nodes: Sum,
    /// Cost that the billed rows of nodes would have by the own prices of the nodes.
    pub estimate: Sum,
    /// Cost of billed rows of commitments and reservations, which have no estimate.
    pub agreements: Sum,
    /// Shared charges, which have no estimate.
    pub shared: Sum,
    /// Cost of rows that are still estimated.
    pub estimated: Sum,
}

/// Costs by basis on the page; empty if no row is billed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BilledCosts {
    /// Costs by organization, currency and day.
    pub days: BTreeMap<(String, String, Date), BasisSums>,
    /// Costs by organization, currency and cluster. The cluster is empty for costs of no cluster.
    pub clusters: BTreeMap<(String, String, String), BasisSums>,
}

impl BasisSums {
    /// Returns the sums of one row.
    pub fn of_row(basis: Option<&str>, row_kind: &str, cost: Decimal12, estimate: Decimal12) -> Self {
        let is_billed = basis == Some(CostBasis::Billed.name());
        let mut sums = Self { is_billed, ..Self::default() };
        match row_kind {
            _ if !is_billed => sums.estimated.add(cost),
            "pod_node" | "node_idle" => {
                sums.nodes.add(cost);
                sums.estimate.add(estimate);
            }
            "shared_charge" => sums.shared.add(cost),
            _ => sums.agreements.add(cost),
        }
        sums
    }

    /// Adds the sums of other rows.
    pub fn add(&mut self, other: &Self) {
        self.is_billed |= other.is_billed;
        self.nodes.add(other.nodes);
        self.estimate.add(other.estimate);
        self.agreements.add(other.agreements);
        self.shared.add(other.shared);
        self.estimated.add(other.estimated);
    }

    /// Returns the cost of all rows.
    pub fn cost(&self) -> Sum {
        self.nodes.plus(self.agreements).plus(self.shared).plus(self.estimated)
    }
}

impl BilledCosts {
    /// Adds the sums of a row of a bearer on a day.
    pub fn add(&mut self, bearer: &CostBearer, date: Date, sums: &BasisSums) {
        let CostBearer { organization, currency, cluster, .. } = bearer;
        let day = (organization.clone(), currency.clone(), date);
        self.days.entry(day).or_default().add(sums);
        let cluster = (organization.clone(), currency.clone(), cluster.clone());
        self.clusters.entry(cluster).or_default().add(sums);
    }

    /// Removes all costs if no row is billed, because then there is nothing to compare.
    pub fn clear_unless_billed(&mut self) {
        if !self.days.values().any(|sums| sums.is_billed) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use prorata_schemas::time::Hour;

    use super::*;

    fn decimal(text: &str) -> Decimal12 {
        text.parse().unwrap()
    }

    fn sum(text: &str) -> Sum {
        decimal(text).into()
    }

    /// Adds a row of a cluster with a cost and an estimate.
    fn add(
        costs: &mut BilledCosts,
        (cluster, hour): (&str, i64),
        basis: Option<&str>,
        kind: &str,
        amounts: [&str; 2],
    ) {
        let bearer = CostBearer {
            organization: "acme".to_owned(),
            currency: "USD".to_owned(),
            kind: "pod",
            group: String::new(),
            cluster: cluster.to_owned(),
            namespace: String::new(),
            name: String::new(),
            uid: String::new(),
            gpu_model: String::new(),
        };
        let [cost, estimate] = amounts.map(decimal);
        costs.add(&bearer, Hour(hour).date(), &BasisSums::of_row(basis, kind, cost, estimate));
    }

    #[test]
    fn costs_are_added_up_by_basis_for_each_day_and_cluster() {
        let (mut costs, billed) = (BilledCosts::default(), Some("billed"));
        add(&mut costs, ("prod", 0), billed, "pod_node", ["1.5", "2"]);
        add(&mut costs, ("prod", 23), billed, "node_idle", ["0.5", "0.25"]);
        add(&mut costs, ("prod", 24), Some("estimated"), "pod_node", ["3", "0"]);
        add(&mut costs, ("", 24), billed, "shared_charge", ["-0.75", "0"]);
        add(&mut costs, ("", 24), billed, "commitment_purchase", ["4", "0"]);
        add(&mut costs, ("", 25), None, "commitment_unused", ["5", "0"]);
        let nodes =
            BasisSums { is_billed: true, nodes: sum("2"), estimate: sum("2.25"), ..BasisSums::default() };
        let (agreements, shared) = (sum("4"), sum("-0.75"));
        let others = BasisSums { is_billed: true, agreements, shared, ..BasisSums::default() };
        let (acme, usd) = ("acme".to_owned(), "USD".to_owned());
        let day = |hour: i64| (acme.clone(), usd.clone(), Hour(hour).date());
        let expected = [(day(0), nodes), (day(24), BasisSums { estimated: sum("8"), ..others })];
        assert_eq!(costs.days, expected.into());
        assert_eq!(costs.days[&day(24)].cost(), sum("11.25"));
        let cluster = |name: &str| (acme.clone(), usd.clone(), name.to_owned());
        let expected = [
            (cluster(""), BasisSums { estimated: sum("5"), ..others }),
            (cluster("prod"), BasisSums { estimated: sum("3"), ..nodes }),
        ];
        assert_eq!(costs.clusters, expected.into());
        let before = costs.clone();
        costs.clear_unless_billed();
        assert_eq!(costs, before);
    }

    #[test]
    fn nothing_is_left_without_a_billed_row() {
        let mut costs = BilledCosts::default();
        add(&mut costs, ("prod", 0), Some("estimated"), "pod_node", ["1", "0"]);
        costs.clear_unless_billed();
        assert_eq!(costs, BilledCosts::default());
    }
}
