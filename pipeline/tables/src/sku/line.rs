//! Rows that are lines of bills: their lines, categories and SKUs.

use prorata_schemas::event::{BillLine, ChargeCategory};
use prorata_schemas::rows::{BilledLine, CostRow, RowKind};

use super::{Sku, joined};

/// Returns the first line that a row consists of. Only a pod's part of a shared charge may have several.
/// `None` on an estimated row and on a row of a node.
pub fn line_of(row: &CostRow) -> Option<&BilledLine> {
    match row.kind {
        RowKind::PodNode | RowKind::NodeIdle => None,
        _ => row.lines.first(),
    }
}

/// Returns the category of a row, which all lines of a shared charge have. An estimated row and a row of a
/// node are usage, or the purchase of a commitment.
pub fn category_of(row: &CostRow) -> ChargeCategory {
    match line_of(row) {
        Some(billed) => billed.line().category,
        None if row.kind == RowKind::CommitmentPurchase => ChargeCategory::Purchase,
        None => ChargeCategory::Usage,
    }
}

impl Sku {
    /// Returns the SKU of a row with this first line, as the bill names it. If the bill names none, or the
    /// row has several lines, the service is the SKU.
    pub(super) fn line(provider: &str, line: &BillLine, has_several: bool) -> Self {
        let id = match line.sku_id.as_deref() {
            Some(id) if !id.is_empty() && !has_several => id.to_owned(),
            _ => joined(["bill", &line.service], ""),
        };
        Self { price_id: joined([provider, &id], ""), id, meter: "Billed Hours", details: None }
    }
}
