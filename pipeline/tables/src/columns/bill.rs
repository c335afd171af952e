//! Columns of `cost_allocation` that lines of bills fill.

use prorata_schemas::event::BillLine;
use prorata_schemas::rows::{CostBasis, RowKind};

use super::charge::Charge;

impl Charge<'_> {
    /// Returns `billed` if lines of bills decide the cost of the row, and `estimated` otherwise.
    pub fn basis(&self) -> &'static str {
        let is_billed = !self.row.lines.is_empty();
        if is_billed { CostBasis::Billed.name() } else { CostBasis::Estimated.name() }
    }

    /// Returns `Correction` on lines that correct an earlier billing period; `None` on other rows.
    pub fn class(&self) -> Option<&'static str> {
        self.line().filter(|line| line.is_correction).map(|_| "Correction")
    }

    /// Returns the invoice of all lines of the row; `None` if they are of several invoices or of none.
    pub fn invoice_id(&self) -> Option<&str> {
        self.common(|line| line.invoice_id.as_deref())
    }

    /// Returns the id of the row's line; `None` if the row has no line or several.
    pub fn invoice_detail_id(&self) -> Option<&str> {
        match &*self.row.lines {
            [only] => Some(&*only.line().line_id),
            _ => None,
        }
    }

    /// Returns the account of all lines of the row. Without such an account, returns the account of the node,
    /// or `None` if it is not known.
    pub fn account_id(&self) -> Option<&str> {
        let of_node = || self.node().and_then(|node| node.account_id.as_deref());
        self.common(|line| line.account_id.as_deref()).or_else(of_node)
    }

    /// Returns the id of the resource in the bill; `None` if the lines of the row are of several resources.
    /// On estimated rows of a node, it is the id that the node names.
    pub fn resource_key(&self) -> Option<&str> {
        if self.row.lines.is_empty() {
            return self.node().and_then(|node| node.resource_key.as_deref());
        }
        self.row.resource_key().map(|key| &**key)
    }

    /// Returns the value that all lines of the row share; `None` if they differ, or there are none.
    fn common<'a>(&'a self, of: fn(&'a BillLine) -> Option<&'a str>) -> Option<&'a str> {
        let mut values = self.row.lines.iter().map(|billed| of(billed.line()));
        let first = values.next()?;
        if self.row.kind == RowKind::SharedCharge {
            // The lines of a charge share these values, and a charge of many pods may have many lines.
            return first;
        }
        if values.all(|other| other == first) { first } else { None }
    }
}
