//! Rows that are lines of bills, and their SKUs.

use prorata_schemas::event::BillLine;
use prorata_schemas::rows::{BilledLine, CostRow, RowKind};

use super::{Sku, joined};

/// Returns the line that a row consists of. `None` on an estimated row, and on a row of a node, which may be
/// a part of several lines.
pub fn line_of(row: &CostRow) -> Option<&BilledLine> {
    match row.kind {
        RowKind::PodNode | RowKind::NodeIdle => None,
        _ => row.lines.first(),
    }
}

impl Sku {
    /// Returns the SKU of a line, as the bill names it. If the bill names none, the service is the SKU.
    pub(super) fn line(provider: &str, line: &BillLine) -> Self {
        let id = match line.sku_id.as_deref() {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => joined(["bill", &line.service], ""),
        };
        Self { price_id: joined([provider, &id], ""), id, meter: "Billed Hours", details: None }
    }
}
