//! Every row of `cost_allocation` of one hour: nodes, pods on no node, reservations, commitments, and lines
//! of bills that belong to no node.

mod division;
pub mod draft;
mod finish;
mod line;
mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use num_traits::Zero;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{CommitmentSet, PodStarted, ReservationSet};
use prorata_schemas::ids::{ClusterId, CommitmentId, PodUid, ReservationId};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::{CostRow, RowKind, Unpriced};

use self::draft::{Charge, Draft};
use crate::hour::{HourView, Label, Slice, Usage, counted};
use crate::resources::{Three, add, is_share_unknown, none, of_pod};
use crate::rounding::{Exact, exact, half_even, hours, whole, zero};
use crate::rules::bill::{bills_commitment, bills_reservation};
use crate::rules::commitment;
use crate::rules::plan::{self, Covered};
use crate::rules::pool;
use crate::rules::quota;
use crate::rules::reservation::free_units;
use crate::usage;
use crate::world::{Billing, rate_key};

/// Returns all rows of the hour, in row order.
pub fn cost_rows(view: &HourView) -> Vec<CostRow> {
    let mut drafts = node::drafts(view);
    drafts.extend(pods_on_no_node(view));
    drafts.extend(unused_reservations(view));
    let commitments: BTreeSet<&CommitmentId> =
        view.slices.iter().flat_map(|slice| slice.world.commitments.keys()).collect();
    for id in commitments {
        drafts.extend(commitment_rows(view, id));
    }
    let mut rows = finish::finish(drafts);
    // Shared charges divide over pods by rounded rows of other kinds.
    let lines = finish::finish(line::drafts(view, &rows));
    rows.extend(lines);
    rows.sort_by_key(draft::grain);
    rows
}

/// Finds the draft of a key, or creates it.
fn entry<K: Ord>(drafts: &mut BTreeMap<K, Draft>, key: K, make: impl FnOnce() -> Draft) -> &mut Draft {
    drafts.entry(key).or_insert_with(make)
}

/// Key of a row of a pod on no node. It holds whether the pod is a pool pod, then the cluster, uid, plan,
/// reservation, label and rounded rate.
type PodKey = (bool, ClusterId, PodUid, Option<CommitmentId>, Option<ReservationId>, Label, Decimal12);

/// Drafts the rows `pod_serverless` and `pod_pool`.
fn pods_on_no_node(view: &HourView) -> Vec<Draft> {
    let mut drafts: BTreeMap<PodKey, Draft> = BTreeMap::new();
    for (place, slice) in view.slices.iter().enumerate() {
        for (uid, running) in &slice.world.pods {
            match slice.world.billing(&running.set) {
                Billing::Pool => pool_pod(&mut drafts, view, slice, uid, &running.set),
                Billing::Serverless => serverless_pod(&mut drafts, view, place, uid, &running.set),
                Billing::Node(_) | Billing::UnknownNode(_) => {}
            }
        }
    }
    drafts.into_values().collect()
}

/// Adds one slice of a pool pod that names no node. The pod's charge is its cost.
fn pool_pod(
    drafts: &mut BTreeMap<PodKey, Draft>,
    view: &HourView,
    slice: &Slice,
    uid: &PodUid,
    pod: &Arc<PodStarted>,
) {
    let charge = pool::charge(&slice.world, pod, slice.from, view).unwrap_or(Err(Unpriced::UnknownPool));
    let (rate, pool, reason) = match charge {
        Ok((rate, pool)) => (rate, Some(pool), None),
        Err(reason) => (zero(), None, Some(reason)),
    };
    let label = label(slice, pod, reason);
    let key = (true, pod.cluster_id.clone(), uid.clone(), None, None, label, half_even(&rate));
    let draft = pod_draft(drafts, key, pod);
    if let Some(pool) = pool {
        draft.row.provider = pool.provider.clone();
        draft.row.pool = Some(pool);
    }
    extend(draft, view, slice, pod, &whole(1));
    draft.cost += rate * hours(slice.to - slice.from);
}

/// Adds one slice of a serverless pod. The pod pays its own rate, whether it is matched or not. Savings plans
/// pay parts of the cost.
fn serverless_pod(
    drafts: &mut BTreeMap<PodKey, Draft>,
    view: &HourView,
    place: usize,
    uid: &PodUid,
    pod: &Arc<PodStarted>,
) {
    let slice = &view.slices[place];
    let key = |region| rate_key(region, pod.gpu_model.as_ref(), &pod.qos);
    let rate = pod.region.as_ref().and_then(|region| slice.world.rates.get(&key(region)));
    let prices = rate.map_or_else(none, |rate| {
        let (_, other) = counted(view, rate.per_vcpu_hour, &rate.currency);
        if other {
            return none();
        }
        [exact(rate.per_vcpu_hour), exact(rate.per_gib_hour), exact(rate.per_gpu_hour)]
    });
    let [cpu, memory, gpu] = of_pod(pod, view.rules);
    let per_hour: Three = [cpu * &prices[0], memory * &prices[1], gpu * &prices[2]];
    let list_price: Exact = per_hour.iter().sum();
    let other = rate.is_some_and(|rate| counted(view, rate.per_vcpu_hour, &rate.currency).1);
    let reason = match rate {
        None => Some(Unpriced::NoRate),
        Some(_) if is_share_unknown(pod, view.rules) => Some(Unpriced::UnknownGpuShare),
        Some(_) => other.then_some(Unpriced::OtherCurrency),
    };
    let rate = rate.filter(|_| !other);
    let reservation = slice.world.matches.get(uid).map(|held| held.reservation_id.clone());
    let label = label(slice, pod, reason);
    let time = hours(slice.to - slice.from);
    let mut row = |plan: Option<&Covered<'_>>, part: &Exact, cost_per_hour: Three| {
        let id = plan.map(|plan| plan.set.commitment_id.clone());
        let (cluster, reservation) = (pod.cluster_id.clone(), reservation.clone());
        let unit_price = half_even(&list_price);
        let key = (false, cluster, uid.clone(), id, reservation, label.clone(), unit_price);
        let draft = pod_draft(drafts, key, pod);
        if let Some(rate) = rate {
            draft.row.provider = rate.provider.clone();
            draft.row.rate = Some(Arc::clone(rate));
        }
        extend(draft, view, slice, pod, part);
        draft.cost += cost_per_hour.iter().sum::<Exact>() * &time;
        add(draft.by_resource.get_or_insert_with(none), &cost_per_hour, &time);
        if let Some(plan) = plan {
            pay(draft, plan, &(&list_price * part * &time), &(&plan.spend * &time));
        }
    };
    let mut own_part = whole(1);
    for plan in plan::covered(view, place, &Usage::Pod(uid.clone())) {
        own_part -= plan.part;
        let (hourly_cost, _) = counted(view, plan.set.hourly_cost, &plan.set.currency);
        let cost = &plan.of_plan * exact(hourly_cost);
        row(Some(&plan), plan.part, per_hour.clone().map(|price| price / &list_price * &cost));
    }
    if !own_part.is_zero() {
        row(None, &own_part.clone(), per_hour.map(|price| price * &own_part));
    }
}

/// Marks a row as paid by a plan, and adds the list cost and the spend to the row.
fn pay(draft: &mut Draft, plan: &Covered<'_>, list_cost: &Exact, spend: &Exact) {
    let id = &plan.set.commitment_id;
    draft.charge = Charge::Commitment(id.clone());
    draft.row.commitment_id = Some(id.clone());
    draft.row.commitment = Some(Arc::clone(plan.set));
    draft.list_cost = Some(draft.list_cost.take().unwrap_or_else(zero) + list_cost);
    draft.commitment_quantity = Some(draft.commitment_quantity.take().unwrap_or_else(zero) + spend);
}

/// Returns the pod's label in this slice.
fn label(slice: &Slice, pod: &PodStarted, reason: Option<Unpriced>) -> Label {
    let (quota_id, state) = quota::label(&slice.quotas, &pod.cluster_id, &pod.pod_uid).unzip();
    Label { quota_id, state, reason, labels: pod.labels.clone() }
}

/// Finds the draft of this key, or creates it.
fn pod_draft<'a>(
    drafts: &'a mut BTreeMap<PodKey, Draft>,
    key: PodKey,
    pod: &Arc<PodStarted>,
) -> &'a mut Draft {
    let (in_pool, cluster_id, uid, _, reservation, label, unit_price) = key.clone();
    let kind = if in_pool { RowKind::PodPool } else { RowKind::PodServerless };
    let draft = entry(drafts, key, || {
        let mut draft = Draft::new(kind, uid.clone().into(), Charge::Row).labelled(&label);
        draft.row.cluster_id = Some(cluster_id);
        draft.row.pod_uid = Some(uid);
        draft.row.reservation_id = reservation;
        draft.row.list_unit_price = unit_price;
        draft.requested = Some(none());
        draft.running = Some(zero());
        draft
    });
    draft.row.pod = Some(Arc::clone(pod));
    draft
}

/// Adds a part of one slice's time and quantities. The allocated amounts are the requests.
fn extend(draft: &mut Draft, view: &HourView, slice: &Slice, pod: &PodStarted, part: &Exact) {
    let time = hours(slice.to - slice.from) * part;
    draft.quantity += &time;
    draft.running = Some(draft.running.take().unwrap_or_else(zero) + &time);
    add(draft.requested.get_or_insert_with(none), &of_pod(pod, view.rules), &time);
    draft.allocated.clone_from(&draft.requested);
    if let Some(used) = usage::used(view.samples, &pod.pod_uid, slice.from, slice.to) {
        add(draft.used.get_or_insert_with(none), &used, part);
    }
}

/// Reservation, plan, price, and whether the price is in another currency.
type UnusedKey = (ReservationId, Option<CommitmentId>, UnitPrice, bool);

/// Drafts the rows `reservation_unused`. They count each unit at each instant at which the reservation is
/// effective and no pod holds the unit. Savings plans pay parts of the units. Lines of bills replace all of
/// these rows.
fn unused_reservations(view: &HourView) -> Vec<Draft> {
    let mut drafts: BTreeMap<UnusedKey, Draft> = BTreeMap::new();
    for (place, slice) in view.slices.iter().enumerate() {
        for (id, reservation) in
            slice.world.reservations.iter().filter(|(_, reservation)| reservation.effective)
        {
            if bills_reservation(&slice.world, slice.from, id) {
                continue;
            }
            let set: &Arc<ReservationSet> = &reservation.set;
            let (price, other) = counted(view, set.unit_hourly_price, &set.currency);
            let unit_hours = whole(free_units(&slice.world, id, set)) * hours(slice.to - slice.from);
            let mut row = |plan: Option<&Covered<'_>>, part: &Exact, unit_cost: &Exact| {
                let plan_id = plan.map(|plan| plan.set.commitment_id.clone());
                let draft = entry(&mut drafts, (id.clone(), plan_id, price, other), || {
                    let mut draft = Draft::new(RowKind::ReservationUnused, id.clone().into(), Charge::Row);
                    draft.row.reservation_id = Some(id.clone());
                    draft.row.list_unit_price = price.into();
                    draft.row.unpriced = other.then_some(Unpriced::OtherCurrency);
                    draft
                });
                draft.row.provider = set.provider.clone();
                draft.row.reservation = Some(Arc::clone(set));
                draft.cost += &unit_hours * unit_cost;
                draft.quantity += &unit_hours * part;
                if let Some(plan) = plan {
                    pay(draft, plan, &(&unit_hours * part * exact(price)), &(&unit_hours * &plan.spend));
                }
            };
            let mut own_part = whole(1);
            for plan in plan::covered(view, place, &Usage::Reservation(id.clone())) {
                own_part -= plan.part;
                let (hourly_cost, _) = counted(view, plan.set.hourly_cost, &plan.set.currency);
                row(Some(&plan), plan.part, &(&plan.of_plan * exact(hourly_cost)));
            }
            if !own_part.is_zero() {
                row(None, &own_part, &(exact(price) * &own_part));
            }
        }
    }
    drafts.into_values().collect()
}

/// Drafts the rows of one commitment itself: for each price, one row `commitment_unused` and one row
/// `commitment_purchase`. Lines of bills replace them.
fn commitment_rows(view: &HourView, id: &CommitmentId) -> Vec<Draft> {
    let base = |kind: RowKind| Draft::new(kind, id.clone().into(), Charge::Commitment(id.clone()));
    let mut by_kind_and_price: BTreeMap<(RowKind, UnitPrice, bool), Draft> = BTreeMap::new();
    for (place, slice) in view.slices.iter().enumerate() {
        let Some(set) = slice.world.commitments.get(id) else { continue };
        let is_billed = bills_commitment(&slice.world, slice.from, id);
        if is_billed || !commitment::effective(set, slice.from) {
            continue;
        }
        let time = hours(slice.to - slice.from);
        let rest = whole(1) - plan::used_part(view, place, id, set);
        // The quantity of a plan is its spend; the quantity of any other commitment is its time.
        let per_hour = set.hourly_commitment.map_or_else(|| whole(1), exact);
        for (kind, part) in [(RowKind::CommitmentPurchase, whole(1)), (RowKind::CommitmentUnused, rest)] {
            let (price, other) = counted(view, set.hourly_cost, &set.currency);
            let draft = entry(&mut by_kind_and_price, (kind, price, other), || base(kind));
            draft.quantity += &time * &part;
            let quantity = draft.commitment_quantity.take().unwrap_or_else(zero);
            draft.commitment_quantity = Some(quantity + &time * &part * &per_hour);
            draft.cost += &time * part * exact(price);
            describe(draft, id, set);
            draft.row.list_unit_price = price.into();
            draft.row.unpriced = other.then_some(Unpriced::OtherCurrency);
        }
    }
    let mut drafts: Vec<Draft> = by_kind_and_price.into_values().collect();
    for draft in &mut drafts {
        draft.list_cost = Some(draft.cost.clone());
    }
    drafts
}

/// Sets the fields from the commitment's description.
fn describe(draft: &mut Draft, id: &CommitmentId, set: &Arc<CommitmentSet>) {
    draft.row.commitment_id = Some(id.clone());
    draft.row.provider = set.provider.clone();
    draft.row.list_unit_price = set.hourly_cost.into();
    draft.row.commitment = Some(Arc::clone(set));
}
