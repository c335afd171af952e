//! Rows before they are rounded, and the one place where they are (RULES.md, section 8).
//!
//! A charge is a node's own price at one unit price, a commitment-hour, or any other row by itself. A charge
//! is rounded once; its rows split the rounded charge by largest remainder in table order, and inside a row
//! the parts split the row's cost likewise. So every sum over rows is right to the last digit.

use std::collections::BTreeMap;

use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::{CommitmentId, PodUid};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::{CostRow, RowKind};

use crate::error::EngineError;
use crate::exact::{Fraction, largest_remainder, total};
use crate::per_resource::PerResource;
use crate::timeline::state::NodeKey;

/// Provider of rows without a price.
pub(crate) const UNKNOWN_PROVIDER: &str = "unknown";

/// What a row's cost is a part of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChargeKey {
    /// What commitments leave of a node, at one unit price.
    Uncovered(NodeKey, UnitPrice),
    /// A commitment in the hour: its Used and Unused rows.
    Commitment(CommitmentId),
    /// The same, as it is bought.
    Purchase(CommitmentId),
    /// A row by itself.
    Row,
}

/// Exact totals of the charges that several rows split, in atoms.
pub(crate) type ChargeTotals = BTreeMap<ChargeKey, RBig>;

/// A row with its exact cost, in atoms.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) row: CostRow,
    pub(crate) charge: ChargeKey,
    pub(crate) cost: Fraction,
    /// Exact hours, on rows of nodes.
    pub(crate) quantity: Fraction,
    /// Exact split and unused cost, where any of the cost is unused.
    pub(crate) split: Option<SplitUnused>,
    /// Exact cost by resource, of kinds that have it.
    pub(crate) resources: Option<PerResource<Fraction>>,
    /// Exact pool charge of a pod on a node.
    pub(crate) pool_charge: Option<RBig>,
}

/// The two parts of a pod's cost on a node.
#[derive(Clone, Debug)]
pub(crate) struct SplitUnused {
    pub(crate) split: Fraction,
    pub(crate) unused: Fraction,
}

impl Draft {
    /// A row that is a part of a charge and has nothing else to split.
    pub(crate) const fn new(row: CostRow, charge: ChargeKey, cost: Fraction) -> Self {
        let quantity = Fraction::zero();
        Self { row, charge, cost, quantity, split: None, resources: None, pool_charge: None }
    }

    /// A row that is a charge by itself.
    pub(crate) const fn of_row(row: CostRow, cost: Fraction) -> Self {
        Self::new(row, ChargeKey::Row, cost)
    }
}

/// Sorts the rows into table order and rounds them.
///
/// # Errors
/// When an amount passes its column, or a charge's rows do not add up to it.
pub(crate) fn round_rows(mut drafts: Vec<Draft>, totals: &ChargeTotals) -> Result<Vec<CostRow>, EngineError> {
    drafts.sort_by(|a, b| grain(&a.row).cmp(&grain(&b.row)));
    let mut shared: BTreeMap<&ChargeKey, Vec<usize>> = BTreeMap::new();
    let mut costs = vec![Decimal12::ZERO; drafts.len()];
    for (index, draft) in drafts.iter().enumerate() {
        match draft.charge {
            ChargeKey::Row => costs[index] = draft.cost.round_atoms()?,
            ChargeKey::Uncovered(..) | ChargeKey::Commitment(_) | ChargeKey::Purchase(_) => {
                shared.entry(&draft.charge).or_default().push(index);
            }
        }
    }
    for (charge, indices) in shared {
        let total =
            totals.get(charge).ok_or_else(|| EngineError::Conservation(format!("no total of {charge:?}")))?;
        let parts: Vec<&Fraction> = indices.iter().map(|index| &drafts[*index].cost).collect();
        for (index, cost) in indices.iter().zip(largest_remainder(round_total(total)?, &parts)?) {
            costs[*index] = cost;
        }
    }
    round_pool_charges(&mut drafts)?;
    drafts.into_iter().zip(costs).map(|(draft, cost)| finish(draft, cost)).collect()
}

/// A charge rounded, half to even.
pub(crate) fn round_total(total: &RBig) -> Result<Decimal12, EngineError> {
    Fraction::of(total).round_atoms()
}

/// The order of rows (RULES.md, section 10): the grain, null first, text as UTF-8 bytes.
fn grain(row: &CostRow) -> impl Ord + '_ {
    (
        (row.kind, &row.cluster_id, &row.resource_id, &row.pod_uid, &row.commitment_id, &row.reservation_id),
        (&row.quota_id, row.quota_state, row.list_unit_price, row.unpriced.map(|reason| reason.name())),
    )
}

/// A pod's charge on nodes is rounded once and split over its rows.
fn round_pool_charges(drafts: &mut [Draft]) -> Result<(), EngineError> {
    let mut pods: BTreeMap<PodUid, Vec<usize>> = BTreeMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        if let (Some(_), Some(uid)) = (&draft.pool_charge, &draft.row.pod_uid) {
            pods.entry(uid.clone()).or_default().push(index);
        }
    }
    for indices in pods.into_values() {
        let parts: Vec<&RBig> =
            indices.iter().filter_map(|index| drafts[*index].pool_charge.as_ref()).collect();
        let charge = round_total(&total(parts.iter().copied()))?;
        let parts: Vec<Fraction> = parts.into_iter().map(Fraction::of).collect();
        let shares = largest_remainder(charge, &parts.iter().collect::<Vec<_>>())?;
        for (index, share) in indices.into_iter().zip(shares) {
            drafts[index].row.pool_charge = Some(share);
        }
    }
    Ok(())
}

fn finish(draft: Draft, cost: Decimal12) -> Result<CostRow, EngineError> {
    let mut row = draft.row;
    row.effective_cost = cost;
    match row.kind {
        // The commitment has been billed as a purchase.
        RowKind::PodNode | RowKind::NodeIdle => {
            row.billed_cost = if row.commitment_id.is_some() { Decimal12::ZERO } else { cost };
        }
        RowKind::PodServerless | RowKind::ReservationUnused => row.billed_cost = cost,
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
    }
    if row.kind == RowKind::PodNode {
        let [split, unused] = match &draft.split {
            Some(SplitUnused { split, unused }) => split_row(cost, [split, unused])?,
            None => [cost, Decimal12::ZERO],
        };
        row.split_cost = Some(split);
        row.unused_cost = Some(unused);
    }
    if let Some(PerResource { cpu, memory, gpu }) = &draft.resources {
        let parts = split_row(cost, [cpu, memory, gpu])?;
        [row.cpu_cost, row.memory_cost, row.gpu_cost] = parts.map(Some);
    }
    Ok(row)
}

/// Splits a row's rounded cost over a fixed number of parts.
fn split_row<const N: usize>(cost: Decimal12, parts: [&Fraction; N]) -> Result<[Decimal12; N], EngineError> {
    let mut split = [Decimal12::ZERO; N];
    for (slot, share) in split.iter_mut().zip(largest_remainder(cost, &parts)?) {
        *slot = share;
    }
    Ok(split)
}
