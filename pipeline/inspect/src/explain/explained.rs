//! The rows and charges of an explanation: rows compared with the table files, and charges with the rows that
//! split them.

use std::collections::BTreeMap;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::{CostRow, HourTables, RowKind};

use super::Subject;
use super::find::FIGURES;
use crate::Sum;

/// A row from the engine, compared with the same row in the table file.
#[derive(Clone, Debug)]
pub struct ExplainedRow {
    /// The row from the engine.
    pub row: CostRow,
    /// The differences from the table file; empty if the file has the row with equal numbers.
    pub differences: Vec<FigureDifference>,
}

/// A number that differs in the table file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FigureDifference {
    /// The column. `None` if the whole row is missing.
    pub column: Option<&'static str>,
    /// The number from the engine.
    pub computed: Option<Decimal12>,
    /// The number in the file.
    pub found: Option<Decimal12>,
}

/// A charge and the rows that split it. The rows add up to the charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitCharge {
    /// Name of the charge.
    pub name: String,
    /// The rounded cost.
    pub total: Sum,
    /// The bearers and their parts, the largest part first.
    pub parts: Vec<(String, Sum)>,
}

/// Returns the differences between a row and the figures that the table file has for the row. If the file
/// lacks the row, returns a single difference without a column.
pub fn differences(row: &CostRow, found: Option<Vec<Option<Decimal12>>>) -> Vec<FigureDifference> {
    let Some(found) = found else {
        return vec![FigureDifference { column: None, computed: Some(row.effective_cost), found: None }];
    };
    let pairs = FIGURES.iter().zip(found);
    let pairs = pairs.map(|((column, of), found)| FigureDifference {
        column: Some(column),
        computed: of(row),
        found,
    });
    pairs.filter(|pair| pair.computed != pair.found).collect()
}

/// Returns the charges that the rows are parts of, with all rows of these charges: own prices of nodes,
/// commitments, and components of billed nodes.
pub fn charges(subject: &Subject, tables: &HourTables, rows: &[ExplainedRow]) -> Vec<SplitCharge> {
    let mut charges: BTreeMap<String, BTreeMap<String, Sum>> = BTreeMap::new();
    for explained in rows {
        if !matches!(subject, Subject::Namespace(_))
            && let Some(name) = charge_of(&explained.row)
        {
            charges.entry(name).or_default();
        }
    }
    for row in &tables.cost_allocation {
        if let Some(parts) = charge_of(row).and_then(|name| charges.get_mut(&name)) {
            parts.entry(part_of(row)).or_default().add(row.effective_cost);
        }
    }
    let charges = charges.into_iter().map(|(name, parts)| {
        let mut total = Sum::default();
        parts.values().for_each(|part| total.add(*part));
        let mut parts: Vec<(String, Sum)> = parts.into_iter().collect();
        parts.sort_by(|a, b| b.1.magnitude().cmp(&a.1.magnitude()).then_with(|| a.0.cmp(&b.0)));
        SplitCharge { name, total, parts }
    });
    charges.collect()
}

/// Returns the charge that a row is a part of; `None` if no other row may be a part of the charge.
fn charge_of(row: &CostRow) -> Option<String> {
    let is_of_node = matches!(row.kind, RowKind::PodNode | RowKind::NodeIdle);
    if let Some(billed) = row.lines.first() {
        return is_of_node.then(|| billed_charge(row, &billed.set.resource_key));
    }
    match (row.kind, &row.commitment_id, &row.cluster_id) {
        (RowKind::CommitmentPurchase, ..) => None,
        (_, Some(commitment), _) => Some(format!("commitment {commitment}")),
        (RowKind::PodNode | RowKind::NodeIdle, None, Some(cluster)) if row.node.is_some() => {
            Some(format!("node {cluster}/{} at {} an hour", row.resource_id, row.list_unit_price))
        }
        _ => None,
    }
}

/// Returns the name of a component of a billed node.
fn billed_charge(row: &CostRow, key: &str) -> String {
    let (cluster, node) = (row.cluster_id.as_deref().unwrap_or_default(), &row.resource_id);
    let payer = row.commitment_id.as_ref().map(|id| format!(" and commitment {id}")).unwrap_or_default();
    format!("node {cluster}/{node} by the bill of {key}{payer}, at {} an hour", row.list_unit_price)
}

/// Returns the bearer of a row of a charge.
fn part_of(row: &CostRow) -> String {
    let cluster = row.cluster_id.as_deref().unwrap_or_default();
    match (&row.commitment_id, &row.pod, row.kind) {
        (Some(_), _, RowKind::CommitmentUnused) => "unused".to_owned(),
        (Some(_), ..) if row.lines.is_empty() => format!("node {cluster}/{}", row.resource_id),
        (_, Some(pod), _) => format!("pod {}/{}", pod.namespace, pod.pod_name),
        (_, None, _) => "idle".to_owned(),
    }
}
