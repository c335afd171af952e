//! From slices to the hour's rows of `cost_allocation`.

pub(crate) mod draft;
pub(crate) mod node;
pub(crate) mod pod_hours;
pub(crate) mod podless;

use std::collections::BTreeMap;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::PodUid;
use prorata_schemas::rows::{CostRow, RowKind};
use prorata_schemas::rules::Rules;

use crate::error::EngineError;
use crate::exact::{Fraction, round, units};
use crate::rows::draft::{Charge, Draft, Totals};
use crate::rows::node::NodeRows;
use crate::rows::pod_hours::{PodHours, hours, resource_hours};
use crate::rules::commitment::{History, money_parts};
use crate::rules::split::{NodeHour, scale_of};
use crate::timeline::slices::{PodSlice, ReservationSlice, Slices};
use crate::timeline::state::{NodeKey, Sample};

/// Provider of rows without a price.
pub(crate) const UNKNOWN: &str = "unknown";

/// A row that is a charge by itself.
pub(crate) fn alone(row: CostRow, cost: Fraction) -> Draft {
    let quantity = Fraction::zero();
    Draft { row, charge: Charge::Alone, cost, quantity, split: None, resources: None, pool_charge: None }
}

/// All rows of an hour before rounding, with the totals of shared charges.
pub(crate) struct Drafts {
    pub(crate) rows: Vec<Draft>,
    pub(crate) totals: Totals,
    /// The nodes that ran, for the tables.
    pub(crate) nodes: BTreeMap<NodeKey, NodeHour>,
}

/// A pod's slices by the node that it names.
type Placed<'a> = BTreeMap<&'a NodeKey, Vec<(&'a PodUid, Vec<&'a PodSlice>)>>;

/// Drafts the rows of nodes and of the pods on them, and of pods on none.
pub(crate) fn draft(
    slices: &Slices,
    samples: &BTreeMap<PodUid, Vec<Sample>>,
    rules: &Rules,
) -> Result<Drafts, EngineError> {
    let scale = scale_of(rules);
    let mut drafts = Drafts { rows: Vec::new(), totals: Totals::new(), nodes: BTreeMap::new() };
    let mut placed = Placed::new();
    let mut strayed = Placed::new();
    let none = Vec::new();
    for (uid, pod_slices) in &slices.pods {
        let mut own = Vec::new();
        for slice in pod_slices {
            let by_node = match (&slice.shape.node, slice.standing.node_runs) {
                (Some(node), true) => placed.entry(node).or_default(),
                (Some(node), false) => strayed.entry(node).or_default(),
                (None, _) => {
                    own.push(slice);
                    continue;
                }
            };
            match by_node.last_mut() {
                Some((last, list)) if *last == uid => list.push(slice),
                _ => by_node.push((uid, vec![slice])),
            }
        }
        podless::draft(uid, &own, samples.get(uid).unwrap_or(&none), rules, &mut drafts.rows)?;
    }
    let gather = |pods: Vec<(&PodUid, Vec<&PodSlice>)>| -> Vec<(PodUid, PodHours)> {
        let gathered = pods.into_iter().filter_map(|(uid, list)| {
            let samples = samples.get(uid).unwrap_or(&none);
            Some((uid.clone(), PodHours::gather(&list, samples, rules)?))
        });
        gathered.collect()
    };
    let mut idle = Vec::new();
    for (key, node_slices) in &slices.nodes {
        let Some(node) = NodeHour::new(node_slices, &scale) else { continue };
        let pods = gather(placed.remove(key).unwrap_or_default());
        NodeRows { key, node: &node, pods: &pods, rules }.draft(
            &mut drafts.rows,
            &mut idle,
            &mut drafts.totals,
        )?;
        drafts.nodes.insert(key.clone(), node);
    }
    for (key, pods) in strayed {
        for (uid, pod) in gather(pods) {
            drafts.rows.extend(unknown_node(key, &uid, &pod, rules)?);
        }
    }
    drafts.rows.append(&mut idle);
    Ok(drafts)
}

/// Rows of a pod for the instants at which the node that it names is not running: no cost.
fn unknown_node(
    key: &NodeKey,
    uid: &PodUid,
    pod: &PodHours,
    rules: &Rules,
) -> Result<Vec<Draft>, EngineError> {
    let mut drafts = Vec::new();
    for ((quota_id, quota_state, _), time) in &pod.labels {
        let part = RBig::from_parts(UBig::from(time.micros).into(), UBig::from(pod.micros));
        let factors = [part.clone(), part.clone(), part];
        let factors = (time.micros != pod.micros).then_some(&factors);
        let row = CostRow {
            cluster_id: Some(key.0.clone()),
            pod_uid: Some(uid.clone()),
            quota_id: quota_id.clone(),
            quota_state: *quota_state,
            unpriced: time.unpriced,
            pricing_quantity: round(&hours(time.micros))?,
            allocated: Some(resource_hours(pod.allocated(rules), factors)?),
            requested: Some(resource_hours(pod.requested, factors)?),
            used: pod.used.map(|used| resource_hours(used, factors)).transpose()?,
            running_seconds: Some(seconds(time.micros)),
            pod: Some(pod.description.clone()),
            ..CostRow::new(RowKind::PodNode, key.1.clone().into(), UNKNOWN.into())
        };
        let mut draft = alone(row, Fraction::zero());
        draft.resources = Some([Fraction::zero(), Fraction::zero(), Fraction::zero()]);
        draft.pool_charge = time.charge.clone();
        drafts.push(draft);
    }
    Ok(drafts)
}

/// Microseconds as seconds: exact in twelve decimals.
pub(crate) fn seconds(micros: u128) -> Decimal12 {
    Decimal12::from_units(i128::try_from(micros).unwrap_or(i128::MAX).saturating_mul(1_000_000))
}

/// Rows of a reservation's unused units: one for each price.
pub(crate) fn draft_reservation(slices: &[ReservationSlice]) -> Result<Vec<Draft>, EngineError> {
    let mut by_price: BTreeMap<Decimal12, (u128, &ReservationSlice)> = BTreeMap::new();
    for slice in slices {
        let entry = by_price.entry(slice.description.unit_hourly_price).or_insert((0, slice));
        entry.0 += unused_units(slice) * slice.span.micros();
        entry.1 = slice;
    }
    let mut drafts = Vec::new();
    for (price, (unit_micros, slice)) in by_price {
        if unit_micros == 0 {
            continue;
        }
        let reservation = &slice.description;
        let quantity = hours(unit_micros);
        let cost = Fraction::of(&(&quantity * RBig::from(units(price))));
        let row = CostRow {
            reservation_id: Some(reservation.reservation_id.clone()),
            list_unit_price: price,
            pricing_quantity: round(&quantity)?,
            list_cost: cost.round_units()?,
            reservation: Some(reservation.clone()),
            ..CostRow::new(
                RowKind::ReservationUnused,
                reservation.reservation_id.clone().into(),
                reservation.provider.clone(),
            )
        };
        drafts.push(alone(row, cost));
    }
    Ok(drafts)
}

/// Units of a slice that no pod holds.
pub(crate) fn unused_units(slice: &ReservationSlice) -> u128 {
    let units = u128::try_from(slice.description.quantity).unwrap_or(0);
    units.saturating_sub(u128::from(slice.used))
}

/// A commitment's purchase rows, one for each price, and its unused row; `totals` learns its charge.
pub(crate) fn draft_commitment(history: &History, totals: &mut Totals) -> Result<Vec<Draft>, EngineError> {
    let Some(last) = history.slices.last() else { return Ok(Vec::new()) };
    let mut purchases: BTreeMap<Decimal12, (u128, &crate::timeline::slices::CommitmentSlice)> =
        BTreeMap::new();
    let (mut unused_hours, mut unused_cost) = (RBig::ZERO, RBig::ZERO);
    for slice in &history.slices {
        let price = slice.description.hourly_cost;
        let entry = purchases.entry(price).or_insert((0, slice));
        entry.0 += slice.span.micros();
        entry.1 = slice;
        let used = money_parts(&slice.description, &slice.covered)
            .into_iter()
            .fold(RBig::ZERO, |sum, part| sum + part);
        let unused = (RBig::ONE - used) * hours(slice.span.micros());
        unused_cost += &unused * RBig::from(units(price));
        unused_hours += unused;
    }
    let id = history.description.commitment_id.clone();
    let mut total = RBig::ZERO;
    let mut drafts = Vec::new();
    for (price, (micros, slice)) in purchases {
        let cost = hours(micros) * RBig::from(units(price));
        let quantity = round(&hours(micros))?;
        let row = commitment_row(RowKind::CommitmentPurchase, slice, quantity);
        let cost_part = Fraction::of(&cost);
        drafts.push(Draft { charge: Charge::Purchase(id.clone()), ..alone(row, cost_part) });
        total += cost;
    }
    if unused_hours != RBig::ZERO {
        let cost = Fraction::of(&unused_cost);
        // The last price on all unused hours: a row's list cost is its own price times its own quantity.
        let list = &unused_hours * RBig::from(units(last.description.hourly_cost));
        let row = CostRow {
            list_cost: Fraction::of(&list).round_units()?,
            ..commitment_row(RowKind::CommitmentUnused, last, round(&unused_hours)?)
        };
        drafts.push(Draft { charge: Charge::Commitment(id.clone()), ..alone(row, cost) });
    }
    totals.insert(Charge::Purchase(id.clone()), total.clone());
    totals.insert(Charge::Commitment(id), total);
    Ok(drafts)
}

fn commitment_row(
    kind: RowKind,
    slice: &crate::timeline::slices::CommitmentSlice,
    quantity: Decimal12,
) -> CostRow {
    let commitment = &slice.description;
    CostRow {
        commitment_id: Some(commitment.commitment_id.clone()),
        list_unit_price: commitment.hourly_cost,
        pricing_quantity: quantity,
        commitment_quantity: Some(quantity),
        commitment: Some(commitment.clone()),
        ..CostRow::new(kind, commitment.commitment_id.clone().into(), commitment.provider.clone())
    }
}
