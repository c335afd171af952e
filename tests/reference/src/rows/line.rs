//! Rows of lines of bills that belong to no node (RULES.md, section 13): unused and bought commitments,
//! unused reservations, and shared charges.

use std::sync::Arc;

use num_traits::Zero;
use prorata_schemas::Text;
use prorata_schemas::rows::{BilledLine, RowKind};

use super::draft::{BillAmounts, Charge, Draft};
use crate::hour::{HourView, LinePart, line_key};

/// Drafts a row for each line, unless all of its costs in the hour are zero.
pub fn drafts(view: &HourView) -> Vec<Draft> {
    view.lines.iter().filter_map(draft).collect()
}

/// Drafts the row of a line; `None` if it has none.
fn draft(part: &LinePart) -> Option<Draft> {
    let kind = part.kind?;
    let [billed, effective, list, hours] = part.amounts.clone();
    if billed.is_zero() && effective.is_zero() && list.is_zero() {
        return None;
    }
    let line = part.line.line();
    let charge = Charge::Bill(None, Some(line_key(&part.line)));
    let mut draft = Draft::new(kind, resource_id(kind, &part.line), charge);
    draft.keep = true;
    draft.row.provider = part.line.set.provider.clone();
    draft.row.commitment_id = line.commitment_id.clone();
    draft.row.reservation_id = line.reservation_id.clone();
    draft.row.list_unit_price = line.list_unit_price.unwrap_or_default().into();
    draft.row.lines = Arc::from([part.line.clone()]);
    draft.quantity = hours;
    draft.cost = effective;
    draft.bill = Some(BillAmounts { billed, list, estimate: None });
    Some(draft)
}

/// Returns the commitment or the reservation that a row of this kind is about. Any other row is about the
/// resource of the bill.
fn resource_id(kind: RowKind, line: &BilledLine) -> Text {
    let agreement: Option<Text> = match kind {
        RowKind::CommitmentUnused | RowKind::CommitmentPurchase => {
            line.line().commitment_id.clone().map(Text::from)
        }
        RowKind::ReservationUnused => line.line().reservation_id.clone().map(Text::from),
        _ => None,
    };
    agreement.unwrap_or_else(|| line.set.resource_key.clone())
}
