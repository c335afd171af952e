//! Rows that bills decide (RULES.md, section 13): how rows split the amounts of lines, and the rows of single
//! lines. Rows of pods that divide lines are in `shared.rs`.

use std::sync::Arc;

use dashu_int::UBig;
use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::{CostRow, RowKind};

use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, Fraction, atoms, divide};
use crate::model::state::LineAmounts;
use crate::rows::draft::{BillCost, Draft, RowBook};
use crate::rules::bill::{HourBills, LinePart};
use crate::rules::split::ComponentBill;

/// The amounts that the rows of a line or of a billed component split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BillAmounts {
    amounts: LineAmounts,
    /// The cost by the node's own price; `None` on rows of lines.
    estimate: Option<Decimal12>,
}

impl BillAmounts {
    /// Creates the amounts of a line.
    pub(crate) const fn of(amounts: &LineAmounts) -> Self {
        Self { amounts: *amounts, estimate: None }
    }

    /// Creates the amounts of a component of a node.
    pub(crate) const fn of_component(bill: &ComponentBill) -> Self {
        Self { amounts: bill.amounts, estimate: Some(bill.estimate) }
    }
}

impl RowBook {
    /// Adds the rows of a line, or of a billed component of a node in table order. The rows split the amounts
    /// by their exact quantity.
    ///
    /// # Errors
    /// If an amount does not fit its column, or there is an amount and no row.
    pub(crate) fn add_billed(&mut self, bill: BillAmounts, drafts: Vec<Draft>) -> Result<(), EngineError> {
        let BillAmounts { amounts, estimate } = bill;
        self.add_bill(BillCost { effective: amounts.effective, billed: amounts.billed })?;
        let quantities: Vec<&Fraction> = drafts.iter().map(|draft| &draft.quantity).collect();
        let effective = divide(amounts.effective, &quantities)?;
        let again = |amount| {
            if amount == amounts.effective { Ok(effective.clone()) } else { divide(amount, &quantities) }
        };
        let (billed, list) = (again(amounts.billed)?, again(amounts.list)?);
        let estimates = estimate.map(|estimate| divide(estimate, &quantities)).transpose()?;
        for (index, mut draft) in drafts.into_iter().enumerate() {
            let row = &mut draft.row;
            (row.billed_cost, row.list_cost) = (billed[index], list[index]);
            row.estimated_cost = estimates.as_ref().map(|estimates| estimates[index]);
            self.close(draft, effective[index])?;
        }
        Ok(())
    }
}

/// Adds a row for each line that no node has to the book, except for shared charges.
///
/// # Errors
/// If a sum does not fit its column.
pub(crate) fn draft(bills: &HourBills, book: &mut RowBook) -> Result<(), EngineError> {
    let mut rows = bills.rows.iter().filter(|(kind, _)| *kind != RowKind::SharedCharge);
    rows.try_for_each(|(kind, part)| draft_line(*kind, part, book))
}

/// Adds the row of a line to the book.
///
/// # Errors
/// If a sum does not fit its column.
pub(super) fn draft_line(kind: RowKind, part: &LinePart, book: &mut RowBook) -> Result<(), EngineError> {
    let cost = Fraction::new(magnitude(part.amounts.effective), UBig::ONE);
    let quantity = Fraction::new(atoms(part.amounts.hours), ATOMS_IN_ONE);
    let draft = Draft { quantity, ..Draft::new(row(kind, part), cost) };
    book.add_billed(BillAmounts::of(&part.amounts), vec![draft])
}

/// Returns the magnitude of a cost in atoms.
pub(super) fn magnitude(cost: Decimal12) -> UBig {
    UBig::from(cost.atoms().unsigned_abs())
}

fn row(kind: RowKind, part: &LinePart) -> CostRow {
    let set = &part.line.set;
    let line = part.line.line();
    let agreement: Option<Text> = match kind {
        RowKind::CommitmentUnused | RowKind::CommitmentPurchase => line.commitment_id.clone().map(Into::into),
        RowKind::ReservationUnused => line.reservation_id.clone().map(Into::into),
        RowKind::SharedCharge
        | RowKind::PodNode
        | RowKind::NodeIdle
        | RowKind::PodServerless
        | RowKind::PodPool => None,
    };
    let resource = agreement.unwrap_or_else(|| set.resource_key.clone());
    CostRow {
        commitment_id: line.commitment_id.clone(),
        reservation_id: line.reservation_id.clone(),
        list_unit_price: line.list_unit_price.unwrap_or_default().into(),
        pricing_quantity: part.amounts.hours,
        lines: Arc::from([part.line.clone()]),
        ..CostRow::new(kind, resource, set.provider.clone())
    }
}
