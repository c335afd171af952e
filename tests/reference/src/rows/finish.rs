//! The step from drafts to rows: sorts them, rounds each charge once, and splits it over its rows.

use std::collections::BTreeMap;

use num_traits::Zero;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::{CostRow, ResourceRatios, RowKind};

use super::draft::{BillAmounts, Charge, Draft, grain, resource_hours};
use crate::hour::line_key;
use crate::names;
use crate::rounding::{Exact, half_even, largest_remainder, whole, zero};

/// Drops rows without quantity and cost, sorts the others by grain and rounds them.
pub fn finish(mut drafts: Vec<Draft>) -> Vec<CostRow> {
    drafts.retain(|draft| draft.keep || !draft.quantity.is_zero() || !draft.cost.is_zero());
    drafts.sort_by_key(|draft| grain(&draft.row));
    split_charges(&mut drafts);
    split_bills(&mut drafts);
    split_ratios(&mut drafts);
    split_pool_charges(&mut drafts);
    drafts.iter_mut().for_each(|draft| names::show_provider(&mut draft.row));
    drafts.into_iter().map(round).collect()
}

/// Rounds each charge once and splits it over its rows.
fn split_charges(drafts: &mut [Draft]) {
    let group = |draft: &Draft| match &draft.charge {
        Charge::Row => None,
        charge => Some((charge.clone(), draft.row.kind == RowKind::CommitmentPurchase)),
    };
    for (indexes, shares) in split_groups(drafts, group, |draft| draft.cost.clone()) {
        for (index, share) in indexes.into_iter().zip(shares) {
            set_cost(&mut drafts[index], share);
        }
    }
    for draft in drafts.iter_mut().filter(|draft| draft.charge == Charge::Row) {
        let cost = half_even(&draft.cost);
        set_cost(draft, cost);
    }
}

/// Sets the rounded cost of a row. A billed row has an effective cost here. Of the other rows, a purchase has
/// a billed cost, a committed row has an effective cost, and any other row has both.
fn set_cost(draft: &mut Draft, cost: Decimal12) {
    if draft.bill.is_some() {
        draft.row.effective_cost = cost;
        return;
    }
    let purchase = draft.row.kind == RowKind::CommitmentPurchase;
    let committed = draft.row.commitment_id.is_some() && !purchase;
    draft.row.effective_cost = if purchase { Decimal12::ZERO } else { cost };
    draft.row.billed_cost = if committed { Decimal12::ZERO } else { cost };
}

/// An amount of a billed row, and its column.
type BillColumn = (fn(&BillAmounts) -> Option<&Exact>, fn(&mut CostRow, Decimal12));

/// The amounts of a billed row, besides the effective cost.
const BILL_COLUMNS: [BillColumn; 3] = [
    (|bill| Some(&bill.billed), |row, cost| row.billed_cost = cost),
    (|bill| Some(&bill.list), |row, cost| row.list_cost = cost),
    (|bill| bill.estimate.as_ref(), |row, cost| row.estimated_cost = Some(cost)),
];

/// Splits the other amounts of each billed component over its rows.
fn split_bills(drafts: &mut [Draft]) {
    for (amount, set) in BILL_COLUMNS {
        let part = |draft: &Draft| draft.bill.as_ref().and_then(amount).cloned();
        let group = |draft: &Draft| part(draft).map(|_| draft.charge.clone());
        for (indexes, shares) in split_groups(drafts, group, |draft| part(draft).unwrap_or_else(zero)) {
            for (index, share) in indexes.into_iter().zip(shares) {
                set(&mut drafts[index].row, share);
            }
        }
    }
}

/// Splits ratios, so that the ratios of one origin sum to exactly 1. The origin is a node, its commitment if
/// it has one, its unit price, and its lines if it is billed.
fn split_ratios(drafts: &mut [Draft]) {
    let origin = |draft: &Draft| {
        let row = &draft.row;
        let node = (row.cluster_id.clone(), row.resource_id.clone());
        let terms = (row.commitment_id.clone(), row.list_unit_price, row.lines.first().map(line_key));
        draft.ratio.is_some().then_some((node, terms))
    };
    for (indexes, shares) in split_groups(drafts, origin, |draft| draft.ratio.clone().unwrap_or_else(zero)) {
        for (index, share) in indexes.into_iter().zip(shares) {
            drafts[index].row.allocated_ratio = Some(share);
        }
    }
}

/// Rounds the pool charge of each pod once over all the pod's rows on nodes, and splits it over these rows.
fn split_pool_charges(drafts: &mut [Draft]) {
    let pod = |draft: &Draft| {
        let charged = draft.row.kind == RowKind::PodNode && draft.pool_charge.is_some();
        charged.then(|| draft.row.pod_uid.clone())
    };
    for (indexes, shares) in split_groups(drafts, pod, |draft| draft.pool_charge.clone().unwrap_or_else(zero))
    {
        for (index, share) in indexes.into_iter().zip(shares) {
            drafts[index].row.pool_charge = Some(share);
        }
    }
}

/// Groups drafts in row order, rounds each group's sum once and splits it by largest remainder.
fn split_groups<K: Ord>(
    drafts: &[Draft],
    key: impl Fn(&Draft) -> Option<K>,
    part: impl Fn(&Draft) -> Exact,
) -> Vec<(Vec<usize>, Vec<Decimal12>)> {
    let mut groups: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        if let Some(key) = key(draft) {
            groups.entry(key).or_default().push(index);
        }
    }
    let mut split = Vec::new();
    for indexes in groups.into_values() {
        let parts: Vec<Exact> = indexes.iter().map(|&index| part(&drafts[index])).collect();
        let sum = half_even(&parts.iter().sum());
        split.push((indexes, largest_remainder(sum, &parts)));
    }
    split
}

/// Rounds everything that is rounded row by row. Parts of EffectiveCost split the rounded EffectiveCost.
fn round(draft: Draft) -> CostRow {
    let mut row = draft.row;
    row.pricing_quantity = half_even(&draft.quantity);
    if draft.bill.is_none() {
        row.list_cost = draft.list_cost.as_ref().map_or(row.effective_cost, half_even);
        if row.kind == RowKind::CommitmentPurchase {
            row.list_cost = row.billed_cost;
        }
    }
    row.commitment_quantity = draft.commitment_quantity.as_ref().map(half_even);
    if let Some(parts) = &draft.split_unused {
        let split = largest_remainder(row.effective_cost, parts);
        row.split_cost = split.first().copied();
        row.unused_cost = split.get(1).copied();
    }
    if let Some(parts) = &draft.by_resource {
        let split = largest_remainder(row.effective_cost, parts);
        row.cpu_cost = split.first().copied();
        row.memory_cost = split.get(1).copied();
        row.gpu_cost = split.get(2).copied();
    }
    row.allocated = draft.allocated.as_ref().map(resource_hours);
    row.requested = draft.requested.as_ref().map(resource_hours);
    row.used = draft.used.as_ref().map(resource_hours);
    let ratios = draft.ratios.map(|of| {
        let [cpu, memory, gpu] = of.map(|ratio| ratio.as_ref().map(half_even));
        ResourceRatios { cpu, memory, gpu }
    });
    [row.split_usage, row.unused] = ratios;
    row.running_seconds = draft.running.map(|hours| half_even(&(hours * whole(3600))));
    if row.kind == RowKind::PodPool && row.unpriced.is_none() {
        row.pool_charge = Some(row.effective_cost);
    }
    row
}
