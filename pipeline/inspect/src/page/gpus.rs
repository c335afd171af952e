//! GPU-hours of nodes by model: the hours of physical cards, and the GPU-hours that pods held, which may
//! exceed them under time-slicing.

use std::collections::{BTreeMap, HashMap};

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::time::Hour;
use serde_json::Value;

use super::Report;
use crate::Sum;

/// Difference in atoms of GPU-hours that rounding errors of the rows of a node and hour never reach.
const ROUNDING_ATOMS: i128 = 1_000;

/// GPU-hours of the nodes of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuSharing {
    /// Hours of the nodes' physical cards.
    pub physical_hours: Sum,
    /// GPU-hours that were allocated to pods.
    pub allocated_hours: Sum,
    /// Part of the allocated hours that exceeds the physical hours, by node and hour.
    pub oversubscribed_hours: Sum,
}

/// GPU-hours by node and hour in one file. All rows of a node and hour are in the same file.
#[derive(Default)]
pub struct NodeHours {
    nodes: BTreeMap<(String, Hour, String, String), NodeHour>,
    /// Thousandths of cards by the text of SkuPriceDetails, because most rows share a few texts.
    cards: HashMap<String, i128>,
}

#[derive(Default)]
struct NodeHour {
    model: String,
    /// In thousandths of a card.
    physical: Sum,
    allocated: Sum,
}

/// The columns of a row of a node that count here.
pub struct NodeRow<'a> {
    /// The organization.
    pub organization: &'a str,
    /// The hour.
    pub hour: Hour,
    /// The cluster.
    pub cluster: &'a str,
    /// Id of the node.
    pub node: &'a str,
    /// GPU model of the node; empty if it is not known.
    pub model: &'a str,
    /// Size of the node, as JSON.
    pub details: &'a str,
    /// Node-hours.
    pub quantity: Decimal12,
    /// GPU-hours that were allocated to a pod.
    pub gpu_hours: Decimal12,
}

impl NodeHours {
    /// Adds a row of `pod_node` or `node_idle`. The row of a node without cards adds nothing.
    pub fn add(&mut self, row: &NodeRow<'_>) {
        let cards = match self.cards.get(row.details) {
            Some(cards) => *cards,
            None => *self.cards.entry(row.details.to_owned()).or_insert(card_thousandths(row.details)),
        };
        if cards == 0 {
            return;
        }
        let key = (row.organization.to_owned(), row.hour, row.cluster.to_owned(), row.node.to_owned());
        let node = self.nodes.entry(key).or_default();
        if node.model.is_empty() {
            row.model.clone_into(&mut node.model);
        }
        node.physical.add(product(row.quantity, cards));
        node.allocated.add(row.gpu_hours);
    }

    /// Adds the hours of the file's nodes to the report, by organization and model.
    pub fn add_to(self, report: &mut Report) {
        for ((organization, ..), node) in self.nodes {
            let sharing = report.gpu_sharing.entry((organization, node.model)).or_default();
            let physical = node.physical.divided_by_thousand();
            let above = node.allocated.minus(physical);
            sharing.physical_hours.add(physical);
            sharing.allocated_hours.add(node.allocated);
            if above.amount().is_none_or(|above| above.atoms() > ROUNDING_ATOMS) {
                sharing.oversubscribed_hours.add(above);
            }
        }
    }
}

/// Returns the thousandths of cards in the SkuPriceDetails of a node; 0 if there are none.
fn card_thousandths(details: &str) -> i128 {
    let details = serde_json::from_str::<Value>(details).unwrap_or_default();
    let cards = details.get("GpuCount").and_then(|cards| cards.to_string().parse::<Decimal12>().ok());
    cards.unwrap_or_default().atoms() / 1_000_000_000
}

/// Returns node-hours times thousandths of cards.
fn product(hours: Decimal12, thousandths: i128) -> Sum {
    Sum::checked(hours.atoms().checked_mul(thousandths).map(Decimal12::from_atoms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::ReportOptions;

    fn decimal(text: &str) -> Decimal12 {
        text.parse().unwrap()
    }

    #[test]
    fn hours_above_the_cards_of_a_node_count_by_node_and_hour() {
        let row = |hour, node, gpus: &'static str, quantity, gpu_hours| NodeRow {
            organization: "acme",
            hour: Hour(hour),
            cluster: "prod",
            node,
            model: "A100",
            details: gpus,
            quantity: decimal(quantity),
            gpu_hours: decimal(gpu_hours),
        };
        let (two, none) = (r#"{"CoreCount":8,"GpuCount":2,"x_GpuModel":"A100"}"#, r#"{"CoreCount":8}"#);
        let mut nodes = NodeHours::default();
        // Pods hold two cards three times, which is one GPU-hour too many.
        nodes.add(&row(1, "shared", two, "0.666666666667", "2"));
        nodes.add(&row(1, "shared", two, "0.333333333333", "1"));
        // The same node is half empty an hour later, which does not reduce the excess.
        nodes.add(&row(2, "shared", two, "1", "1"));
        // Rows that were rounded up do not count as excess.
        nodes.add(&row(1, "whole", two, "1", "2.000000000003"));
        nodes.add(&row(1, "part", r#"{"GpuCount":0.125}"#, "0.5", "0"));
        nodes.add(&row(1, "no cards", none, "1", "0"));
        let mut report = Report::new(&ReportOptions::of_tests(), None);
        nodes.add_to(&mut report);
        let expected = GpuSharing {
            physical_hours: decimal("6.0625").into(),
            allocated_hours: decimal("6.000000000003").into(),
            oversubscribed_hours: decimal("1").into(),
        };
        assert_eq!(report.gpu_sharing, [(("acme".to_owned(), "A100".to_owned()), expected)].into());
    }
}
