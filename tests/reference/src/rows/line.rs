//! Rows of lines of bills that belong to no node (RULES.md, section 13): unused and bought commitments,
//! unused reservations, and shared charges. Some shared charges divide over pods.

use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::rows::{BilledLine, CostRow, RowKind};

use super::division::{ChargeShare, DividedCharge, divide};
use super::draft::{BillAmounts, Charge, Draft};
use crate::hour::{HourView, LineAmounts, LinePart, has_cost, line_key};

/// Drafts a row for each share of a divided charge, and for each other line. A charge has no rows if all of
/// its costs in the hour are zero. The rows that are given are all other rows of the hour.
pub fn drafts(view: &HourView, rows: &[CostRow]) -> Vec<Draft> {
    let (charges, lines) = divide(view, rows);
    let mut drafts: Vec<Draft> = lines.into_iter().filter_map(draft).collect();
    for charge in &charges {
        if charge.shares.iter().any(|share| has_cost(&share.amounts)) {
            drafts.extend(charge.shares.iter().filter_map(|share| share_draft(charge, share)));
        }
    }
    drafts
}

/// Drafts the row of a line; `None` if it has none.
fn draft(part: &LinePart) -> Option<Draft> {
    let kind = part.kind?;
    let line = part.line.line();
    let mut draft = line_draft(kind, resource_id(kind, &part.line), &part.line, &part.amounts);
    draft.row.reservation_id = line.reservation_id.clone();
    draft.row.list_unit_price = line.list_unit_price.unwrap_or_default().into();
    draft.row.lines = Arc::from([part.line.clone()]);
    Some(draft)
}

/// Drafts the row of a pod's share of a divided charge; `None` if the charge has no lines.
fn share_draft(charge: &DividedCharge, share: &ChargeShare) -> Option<Draft> {
    let (first, resource) = (charge.lines.first()?, charge.resource_key.clone());
    let mut draft = line_draft(RowKind::SharedCharge, resource, first, &share.amounts);
    draft.row.cluster_id = Some(share.pod.cluster_id.clone());
    draft.row.pod_uid = Some(share.pod.pod_uid.clone());
    draft.row.pod = Some(Arc::clone(&share.pod));
    draft.row.lines = Arc::clone(&charge.lines);
    // The shares of a charge sum to one over all clusters, so the ratio is not rounded again.
    draft.row.allocated_ratio = Some(share.ratio);
    Some(draft)
}

/// Creates a draft of a row with these amounts, whose first line is given.
fn line_draft(kind: RowKind, resource_id: Text, first: &BilledLine, amounts: &LineAmounts) -> Draft {
    let mut draft = Draft::new(kind, resource_id, Charge::Bill(None, Some(line_key(first))));
    let [billed, effective, list, hours] = amounts.clone();
    draft.keep = true;
    draft.row.provider = first.set.provider.clone();
    draft.row.commitment_id = first.line().commitment_id.clone();
    draft.quantity = hours;
    draft.cost = effective;
    draft.bill = Some(BillAmounts { billed, list, estimate: None });
    draft
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
