//! Rows before they are rounded, and the one place where they are.
//!
//! A charge is a node's own-price component at one unit price, a commitment-hour, or any other row by itself. A charge
//! is rounded once; its rows split the rounded charge by largest remainder in table order, and inside a row the parts
//! split the row's cost likewise.

use std::collections::BTreeMap;

use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::{CommitmentId, PodUid};
use prorata_schemas::rows::{CostRow, RowKind};

use crate::error::EngineError;
use crate::exact::{Fraction, largest_remainder};
use crate::timeline::state::NodeKey;

/// What a row's cost is a part of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Charge {
    /// A node's own price, at one unit price.
    Own(NodeKey, Decimal12),
    /// A commitment in the hour: its Used and Unused rows.
    Commitment(CommitmentId),
    /// The same, as it is bought.
    Purchase(CommitmentId),
    /// A row by itself.
    Alone,
}

/// A row with its exact cost, in units of 10^-12.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) row: CostRow,
    pub(crate) charge: Charge,
    pub(crate) cost: Fraction,
    /// Exact hours, on rows of nodes.
    pub(crate) quantity: Fraction,
    /// Exact split and unused cost, where the two differ from all and nothing.
    pub(crate) split: Option<[Fraction; 2]>,
    /// Exact cpu, memory and GPU cost.
    pub(crate) resources: Option<[Fraction; 3]>,
    /// Exact pool charge of a pod on a node.
    pub(crate) pool_charge: Option<RBig>,
}

/// Exact totals of the charges that several rows split, in units of 10^-12.
pub(crate) type Totals = BTreeMap<Charge, RBig>;

/// Sorts the rows into table order and rounds them.
///
/// # Errors
/// When an amount passes its column, or a charge's rows do not add up to it.
pub(crate) fn settle(mut drafts: Vec<Draft>, totals: &Totals) -> Result<Vec<CostRow>, EngineError> {
    drafts.sort_by(|a, b| grain(&a.row).cmp(&grain(&b.row)));
    let mut shared: BTreeMap<&Charge, Vec<usize>> = BTreeMap::new();
    let mut costs = vec![Decimal12::ZERO; drafts.len()];
    for (index, draft) in drafts.iter().enumerate() {
        match draft.charge {
            Charge::Alone => costs[index] = draft.cost.round_units()?,
            Charge::Own(..) | Charge::Commitment(_) | Charge::Purchase(_) => {
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
    settle_pool_charges(&mut drafts)?;
    drafts.into_iter().zip(costs).map(|(draft, cost)| finish(draft, cost)).collect()
}

/// A charge rounded, half to even.
pub(crate) fn round_total(total: &RBig) -> Result<Decimal12, EngineError> {
    Fraction::of(total).round_units()
}

/// The order of rows: the grain, null first, text as UTF-8 bytes.
fn grain(row: &CostRow) -> impl Ord + '_ {
    (
        (row.kind, &row.cluster_id, &row.resource_id, &row.pod_uid, &row.commitment_id, &row.reservation_id),
        (&row.quota_id, row.quota_state, row.list_unit_price, row.unpriced.map(|reason| reason.name())),
    )
}

/// A pod's charge on nodes is rounded once and split over its rows.
fn settle_pool_charges(drafts: &mut [Draft]) -> Result<(), EngineError> {
    let mut pods: BTreeMap<PodUid, Vec<usize>> = BTreeMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        if let (Some(_), Some(uid)) = (&draft.pool_charge, &draft.row.pod_uid) {
            pods.entry(uid.clone()).or_default().push(index);
        }
    }
    for indices in pods.into_values() {
        let parts: Vec<RBig> =
            indices.iter().filter_map(|index| drafts[*index].pool_charge.clone()).collect();
        let total = round_total(&parts.iter().fold(RBig::ZERO, |sum, part| sum + part))?;
        let parts: Vec<Fraction> = parts.iter().map(Fraction::of).collect();
        let shares = largest_remainder(total, &parts.iter().collect::<Vec<_>>())?;
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
        let (split, unused) = match &draft.split {
            Some([split, unused]) => pair(cost, split, unused)?,
            None => (cost, Decimal12::ZERO),
        };
        row.split_cost = Some(split);
        row.unused_cost = Some(unused);
    }
    if let Some([cpu, memory, gpu]) = &draft.resources {
        let shares = largest_remainder(cost, &[cpu, memory, gpu])?;
        row.cpu_cost = shares.first().copied();
        row.memory_cost = shares.get(1).copied();
        row.gpu_cost = shares.get(2).copied();
    }
    Ok(row)
}

fn pair(cost: Decimal12, first: &Fraction, second: &Fraction) -> Result<(Decimal12, Decimal12), EngineError> {
    let shares = largest_remainder(cost, &[first, second])?;
    let first = shares.first().copied().unwrap_or_default();
    Ok((first, Decimal12::from_units(cost.units() - first.units())))
}

/// The sum of decimals.
///
/// # Errors
/// Past 128 bits.
pub(crate) fn sum(values: impl IntoIterator<Item = Decimal12>) -> Result<Decimal12, EngineError> {
    let mut total = Decimal12::ZERO;
    for value in values {
        total = total.checked_add(value).ok_or_else(|| EngineError::Range(format!("{total} + {value}")))?;
    }
    Ok(total)
}
