//! Rows before they are rounded, and the one place that rounds them (RULES.md, section 8).
//!
//! A charge is a node's own price at one unit price, a commitment-hour, or any other single row. A charge
//! is rounded once. Its rows split the rounded charge by largest remainder in table order. The parts inside a
//! row split the row's cost in the same way. So every sum over rows is right to the last digit.
//!
//! A row is finished as soon as its whole charge is known: with its node, or alone. Charges that many
//! nodes share stay open until the hour is drafted: the charges of commitments, and of pool pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::CommitmentSet;
use prorata_schemas::ids::{CommitmentId, PodUid};
use prorata_schemas::rows::{BilledLine, CostRow, RowKind};

use crate::error::EngineError;
use crate::exact::{Fraction, largest_remainder, sum, total};
use crate::model::per_resource::PerResource;
use crate::model::slices::PlanPart;
use crate::trace::{ExactNumber, Focus, Recorder, RowStep};

/// The provider of rows without a price.
pub(crate) const UNKNOWN_PROVIDER: &str = "unknown";

/// A charge of a commitment, which rows of many nodes split.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChargeKey {
    /// The Used and Unused rows of a commitment in the hour.
    Commitment(CommitmentId),
    /// The purchase of a commitment in the hour.
    Purchase(CommitmentId),
}

/// A row with its exact cost, in atoms. A billed row has the magnitude of its cost.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) row: Box<CostRow>,
    /// Exact hours, on rows of nodes.
    pub(crate) quantity: Fraction,
    pub(crate) cost: DraftCost,
    /// Exact pool charge of a pod on a node; `None` if there is none.
    pub(crate) pool_charge: Option<RBig>,
}

/// A row's exact cost and the parts that it splits into, in atoms.
#[derive(Clone, Debug)]
pub(crate) struct DraftCost {
    pub(crate) whole: Fraction,
    /// Split and unused cost; `None` if none of the cost is unused.
    pub(crate) split: Option<SplitUnused>,
    /// Cost by resource; `None` if rows of this kind do not have it.
    pub(crate) resources: Option<PerResource<Fraction>>,
}

/// The two parts of a pod's cost on a node.
#[derive(Clone, Debug)]
pub(crate) struct SplitUnused {
    pub(crate) split: Fraction,
    pub(crate) unused: Fraction,
}

/// The rows of an hour while they are drafted.
#[derive(Debug, Default)]
pub(crate) struct RowBook {
    /// Rows that are finished, except for the parts in the next two fields.
    rows: Vec<Box<CostRow>>,
    /// Rows whose charge is still open.
    open: Vec<OpenRow>,
    /// Pool charges of pods on nodes, each with the index of its row.
    pool_charges: Vec<(usize, RBig)>,
    /// Exact totals of the charges of commitments, in atoms.
    totals: BTreeMap<ChargeKey, RBig>,
    node_cost: Decimal12,
    bill: BillCost,
    trace: Recorder<RowStep>,
}

#[derive(Debug)]
struct OpenRow {
    row: usize,
    charge: ChargeKey,
    cost: DraftCost,
}

/// The rounded rows of an hour.
#[derive(Debug)]
pub(crate) struct RoundedRows {
    /// The rows in table order.
    pub(crate) rows: Vec<Box<CostRow>>,
    /// The part of all nodes' cost that commitments do not pay.
    pub(crate) node_cost: Decimal12,
    /// The purchase cost of all commitments.
    pub(crate) commitment_cost: Decimal12,
    /// The cost of all lines of bills.
    pub(crate) bill: BillCost,
}

/// The cost of the lines of bills.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BillCost {
    pub(crate) effective: Decimal12,
    pub(crate) billed: Decimal12,
}

impl RoundedRows {
    /// Adds rows that follow all rows in table order.
    ///
    /// # Errors
    /// If a sum has more than 38 digits.
    pub(super) fn append(&mut self, later: Self) -> Result<(), EngineError> {
        let Self { mut rows, node_cost, commitment_cost, bill } = later;
        self.rows.append(&mut rows);
        self.node_cost = sum([self.node_cost, node_cost])?;
        self.commitment_cost = sum([self.commitment_cost, commitment_cost])?;
        self.bill.add(bill)
    }
}

impl BillCost {
    fn add(&mut self, other: Self) -> Result<(), EngineError> {
        self.effective = sum([self.effective, other.effective])?;
        self.billed = sum([self.billed, other.billed])?;
        Ok(())
    }
}

impl Draft {
    /// Creates a draft with only a cost: no quantity, no parts and no pool charge.
    pub(crate) fn new(row: CostRow, cost: Fraction) -> Self {
        let cost = DraftCost { whole: cost, split: None, resources: None };
        Self { row: Box::new(row), quantity: Fraction::zero(), cost, pool_charge: None }
    }
}

/// The total payment of a savings plan for a row.
#[derive(Debug)]
pub(crate) struct Paid {
    /// The last description.
    plan: Arc<CommitmentSet>,
    /// The list cost and the spend, in atoms.
    list_cost: RBig,
    spend: RBig,
}

impl Paid {
    /// Adds the list cost and the spend for a part of a row, in atoms, to `sum`.
    pub(crate) fn add(sum: &mut Option<Self>, part: &PlanPart, list_cost: &RBig, spend: &RBig) {
        let zero = || Self { plan: part.plan.clone(), list_cost: RBig::ZERO, spend: RBig::ZERO };
        let sum = sum.get_or_insert_with(zero);
        sum.plan = part.plan.clone();
        sum.list_cost += list_cost;
        sum.spend += spend;
    }

    /// Marks a row as paid by the plan, and sets the row's list cost and commitment quantity.
    ///
    /// # Errors
    /// If an amount does not fit its column.
    pub(crate) fn set(self, row: &mut CostRow) -> Result<(), EngineError> {
        row.commitment_id = Some(self.plan.commitment_id.clone());
        row.list_cost = Fraction::of(&self.list_cost).round_atoms()?;
        row.commitment_quantity = Some(Fraction::of(&self.spend).round_atoms()?);
        row.commitment = Some(self.plan);
        Ok(())
    }
}

impl RowStep {
    /// Describes a row before it is rounded.
    pub(crate) fn of(draft: &Draft) -> Self {
        let row = &draft.row;
        let cost = &draft.cost;
        Self {
            kind: row.kind.name(),
            line_id: row.lines.first().map(|line| line.line().line_id.clone()),
            cluster_id: row.cluster_id.clone(),
            resource_id: row.resource_id.clone(),
            pod_uid: row.pod_uid.clone(),
            commitment_id: row.commitment_id.clone(),
            reservation_id: row.reservation_id.clone(),
            quota_id: row.quota_id.clone(),
            quota_state: row.quota_state.map(|state| state.name()),
            list_unit_price: row.list_unit_price,
            labels: row.pod.as_ref().map(|pod| pod.labels.clone()),
            unpriced: row.unpriced.map(|reason| reason.name()),
            cost: ExactNumber::of_fraction(&cost.whole),
            split_and_unused: cost.split.as_ref().map(|parts| {
                [ExactNumber::of_fraction(&parts.split), ExactNumber::of_fraction(&parts.unused)]
            }),
            by_resource: cost.resources.as_ref().map(|parts| parts.as_ref().map(ExactNumber::of_fraction)),
            quantity: (!draft.quantity.is_zero()).then(|| ExactNumber::new(draft.quantity.reduced())),
        }
    }

    /// Returns the step with all costs below zero. Drafts hold magnitudes.
    fn negated(self) -> Self {
        let negated = |number: &ExactNumber| number.times(&-RBig::ONE);
        Self {
            cost: negated(&self.cost),
            split_and_unused: self.split_and_unused.map(|parts| parts.each_ref().map(negated)),
            by_resource: self.by_resource.map(|parts| parts.as_ref().map(negated)),
            ..self
        }
    }
}

impl RowBook {
    /// Creates an empty book with room for `rows`.
    pub(crate) fn with_capacity(rows: usize) -> Self {
        Self { rows: Vec::with_capacity(rows), ..Self::default() }
    }

    /// Sets the book to record the rows in focus.
    #[must_use]
    pub(crate) fn traced(self, focus: Option<&Arc<Focus>>) -> Self {
        Self { trace: Recorder::new(focus), ..self }
    }

    /// Takes the recorded steps.
    pub(crate) fn take_trace(&mut self) -> Vec<RowStep> {
        std::mem::take(&mut self.trace).finish()
    }

    fn record(&mut self, draft: &Draft, is_negative: bool) {
        if self.trace.wants(|focus| focus.has_row(&draft.row)) {
            let step = RowStep::of(draft);
            self.trace.push(if is_negative { step.negated() } else { step });
        }
    }

    /// Joins books in order. At most one book may set the total of a charge.
    ///
    /// # Errors
    /// If an amount does not fit its column.
    pub(crate) fn of(books: Vec<Self>, focus: Option<&Arc<Focus>>) -> Result<Self, EngineError> {
        let mut all = Self::with_capacity(books.iter().map(|book| book.rows.len()).sum()).traced(focus);
        books.into_iter().try_for_each(|book| all.append(book))?;
        Ok(all)
    }

    fn append(&mut self, other: Self) -> Result<(), EngineError> {
        let Self { mut rows, open, pool_charges, totals, node_cost, bill, trace } = other;
        trace.finish().into_iter().for_each(|step| self.trace.push(step));
        let first = self.rows.len();
        self.rows.append(&mut rows);
        self.open.extend(open.into_iter().map(|open| OpenRow { row: first + open.row, ..open }));
        self.pool_charges.extend(pool_charges.into_iter().map(|(row, charge)| (first + row, charge)));
        self.totals.extend(totals);
        self.node_cost = sum([self.node_cost, node_cost])?;
        self.add_bill(bill)
    }

    /// Adds to the cost of lines of bills.
    ///
    /// # Errors
    /// If a sum has more than 38 digits.
    pub(super) fn add_bill(&mut self, bill: BillCost) -> Result<(), EngineError> {
        self.bill.add(bill)
    }

    /// Adds a row that is a whole charge.
    ///
    /// # Errors
    /// If an amount does not fit its column.
    pub(crate) fn add(&mut self, draft: Draft) -> Result<(), EngineError> {
        let cost = draft.cost.whole.round_atoms()?;
        self.close(draft, cost)
    }

    /// Adds a row that is a whole charge, or a part of the charge of the savings plan that pays it.
    ///
    /// # Errors
    /// If an amount does not fit its column.
    pub(crate) fn add_paid(&mut self, draft: Draft) -> Result<(), EngineError> {
        match draft.row.commitment_id.clone() {
            Some(id) => {
                self.add_open(ChargeKey::Commitment(id), draft);
                Ok(())
            }
            None => self.add(draft),
        }
    }

    /// Adds the part of a node's cost at one unit price that commitments do not pay, with all its rows in
    /// table order.
    ///
    /// # Errors
    /// If an amount does not fit its column, or the rows do not add up to the charge.
    pub(crate) fn add_node(&mut self, charge: &RBig, drafts: Vec<Draft>) -> Result<(), EngineError> {
        let charge = round_total(charge)?;
        self.node_cost = sum([self.node_cost, charge])?;
        let parts: Vec<&Fraction> = drafts.iter().map(|draft| &draft.cost.whole).collect();
        let costs = largest_remainder(charge, &parts)?;
        drafts.into_iter().zip(costs).try_for_each(|(draft, cost)| self.close(draft, cost))
    }

    /// Adds a row that is a part of a commitment's charge.
    pub(crate) fn add_open(&mut self, charge: ChargeKey, draft: Draft) {
        self.record(&draft, false);
        let Draft { row, cost, pool_charge, .. } = draft;
        self.open.push(OpenRow { row: self.rows.len(), charge, cost });
        self.note_pool_charge(pool_charge);
        self.rows.push(row);
    }

    /// Sets the exact total of a commitment's charge, to which the rows of the charge sum.
    pub(crate) fn set_total(&mut self, charge: ChargeKey, total: RBig) {
        self.totals.insert(charge, total);
    }

    /// Sorts the rows into table order and rounds the open charges.
    ///
    /// # Errors
    /// If an amount does not fit its column, or the rows of a charge do not add up to it.
    pub(crate) fn finish(mut self) -> Result<RoundedRows, EngineError> {
        self.sort();
        let purchases = self.totals.iter().filter(|(charge, _)| matches!(charge, ChargeKey::Purchase(_)));
        let purchases = purchases.map(|(_, total)| round_total(total)).collect::<Result<Vec<_>, _>>()?;
        self.close_open()?;
        self.round_pool_charges()?;
        let Self { rows, node_cost, bill, .. } = self;
        Ok(RoundedRows { rows, node_cost, commitment_cost: sum(purchases)?, bill })
    }

    /// Adds a row with its rounded cost.
    ///
    /// # Errors
    /// If a part of the cost does not fit its column.
    pub(super) fn close(&mut self, draft: Draft, cost: Decimal12) -> Result<(), EngineError> {
        self.record(&draft, cost.is_negative());
        let Draft { row, cost: parts, pool_charge, .. } = draft;
        self.note_pool_charge(pool_charge);
        self.rows.push(row);
        match self.rows.last_mut() {
            Some(row) => set_cost(row, cost, &parts),
            None => Ok(()),
        }
    }

    /// Notes the pool charge of the row that is added next.
    fn note_pool_charge(&mut self, charge: Option<RBig>) {
        self.pool_charges.extend(charge.map(|charge| (self.rows.len(), charge)));
    }

    /// Sorts the rows, and adapts the indexes that refer to them.
    fn sort(&mut self) {
        let rows = &self.rows;
        let mut order: Vec<usize> = (0..rows.len()).collect();
        // Rows of one kind are nearly in order, and sorting a sorted list takes one pass.
        order.sort_by_key(|row| rows[*row].kind);
        order.sort_by(|a, b| grain(&rows[*a]).cmp(&grain(&rows[*b])));
        let mut places = vec![0; order.len()];
        for (place, row) in order.into_iter().enumerate() {
            places[row] = place;
        }
        self.open.iter_mut().for_each(|open| open.row = places[open.row]);
        self.open.sort_unstable_by_key(|open| open.row);
        self.pool_charges.iter_mut().for_each(|(row, _)| *row = places[*row]);
        self.pool_charges.sort_unstable_by_key(|(row, _)| *row);
        put_in_place(&mut self.rows, places);
    }

    fn close_open(&mut self) -> Result<(), EngineError> {
        let mut shared: BTreeMap<&ChargeKey, Vec<&OpenRow>> = BTreeMap::new();
        for open in &self.open {
            shared.entry(&open.charge).or_default().push(open);
        }
        for (charge, open) in shared {
            let total = self.totals.get(charge);
            let total = total.ok_or_else(|| EngineError::Conservation(format!("no total for {charge:?}")))?;
            let parts: Vec<&Fraction> = open.iter().map(|open| &open.cost.whole).collect();
            for (open, cost) in open.iter().zip(largest_remainder(round_total(total)?, &parts)?) {
                set_cost(&mut self.rows[open.row], cost, &open.cost)?;
            }
        }
        Ok(())
    }

    /// Rounds each pod's pool charge on nodes once, and splits it over the pod's rows.
    fn round_pool_charges(&mut self) -> Result<(), EngineError> {
        let mut pods: BTreeMap<PodUid, Vec<&(usize, RBig)>> = BTreeMap::new();
        for charge in &self.pool_charges {
            if let Some(uid) = &self.rows[charge.0].pod_uid {
                pods.entry(uid.clone()).or_default().push(charge);
            }
        }
        for charges in pods.into_values() {
            let charge = round_total(&total(charges.iter().map(|(_, part)| part)))?;
            let parts: Vec<Fraction> = charges.iter().map(|(_, part)| Fraction::of(part)).collect();
            let shares = largest_remainder(charge, &parts.iter().collect::<Vec<_>>())?;
            for ((row, _), share) in charges.into_iter().zip(shares) {
                self.rows[*row].pool_charge = Some(share);
            }
        }
        Ok(())
    }
}

/// Rounds a charge, half to even.
pub(crate) fn round_total(total: &RBig) -> Result<Decimal12, EngineError> {
    Fraction::of(total).round_atoms()
}

/// Moves each row to its place. Each swap brings one row to its final place.
fn put_in_place(rows: &mut [Box<CostRow>], mut places: Vec<usize>) {
    for row in 0..rows.len() {
        while places[row] != row {
            let place = places[row];
            rows.swap(row, place);
            places.swap(row, place);
        }
    }
}

/// Returns the sort key of a row (RULES.md, section 10). It is the grain, with null first and text as UTF-8
/// bytes.
fn grain(row: &CostRow) -> impl Ord + '_ {
    (
        (row.kind, &row.cluster_id, &row.resource_id, &row.pod_uid, &row.commitment_id, &row.reservation_id),
        (&row.quota_id, row.quota_state, row.list_unit_price, row.unpriced.map(|reason| reason.name())),
        row.pod.as_ref().map(|pod| &pod.labels),
        row.lines.first().map(BilledLine::key),
    )
}

/// Writes a row's rounded cost, and splits it over the row's parts.
fn set_cost(row: &mut CostRow, cost: Decimal12, parts: &DraftCost) -> Result<(), EngineError> {
    row.effective_cost = cost;
    if row.lines.is_empty() {
        set_estimated_cost(row, cost);
    }
    if row.kind == RowKind::PodNode {
        let [split, unused] = match &parts.split {
            Some(SplitUnused { split, unused }) => split_row(cost, [split, unused])?,
            None => [cost, Decimal12::ZERO],
        };
        row.split_cost = Some(split);
        row.unused_cost = Some(unused);
    }
    if let Some(PerResource { cpu, memory, gpu }) = &parts.resources {
        let costs = split_row(cost, [cpu, memory, gpu])?;
        [row.cpu_cost, row.memory_cost, row.gpu_cost] = costs.map(Some);
    }
    Ok(())
}

/// Sets the other costs of a row whose cost is an estimate.
fn set_estimated_cost(row: &mut CostRow, cost: Decimal12) {
    match row.kind {
        // The commitment has been billed as a purchase.
        RowKind::PodNode | RowKind::NodeIdle | RowKind::PodServerless | RowKind::ReservationUnused => {
            row.billed_cost = if row.commitment_id.is_some() { Decimal12::ZERO } else { cost };
        }
        RowKind::PodPool => {
            row.billed_cost = cost;
            row.pool_charge = if row.unpriced.is_some() { None } else { Some(cost) };
        }
        RowKind::CommitmentUnused => row.billed_cost = Decimal12::ZERO,
        RowKind::CommitmentPurchase => {
            row.billed_cost = cost;
            row.list_cost = cost;
            row.effective_cost = Decimal12::ZERO;
        }
        // A shared charge has lines, so its cost is no estimate.
        RowKind::SharedCharge => row.billed_cost = cost,
    }
}

/// Splits a row's rounded cost over a fixed number of parts, in proportion to them.
fn split_row<const N: usize>(cost: Decimal12, parts: [&Fraction; N]) -> Result<[Decimal12; N], EngineError> {
    let mut split = [Decimal12::ZERO; N];
    let magnitude = Decimal12::from_atoms(cost.atoms().saturating_abs());
    for (slot, share) in split.iter_mut().zip(largest_remainder(magnitude, &parts)?) {
        *slot = if cost.is_negative() { Decimal12::from_atoms(-share.atoms()) } else { share };
    }
    Ok(split)
}
