//! Spend that savings plans cover (RULES.md, section 3), as AWS documents it in "Understanding how Savings
//! Plans apply to your usage".

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use num_traits::Zero;
use prorata_schemas::Text;
use prorata_schemas::event::{
    CapacityType, CommitmentKind, CommitmentSet, DiscountTarget, DiscountedPrice, PlanDiscount, RateSet,
};
use prorata_schemas::ids::CommitmentId;

use crate::hour::{HourView, PlanCover, PlanTotals, Plans, Slice, Usage, counted};
use crate::names;
use crate::resources::{Three, of_node, of_pod};
use crate::rounding::{Exact, exact, fraction, hours, smaller, whole, zero};
use crate::rules::bill::{billed_key, bills_commitment, bills_reservation};
use crate::rules::commitment::{self, effective};
use crate::rules::reservation::free_units;
use crate::world::{Billing, NodeKey, rate_key};

/// Returns the spend that a plan commits to in an hour.
pub fn committed(set: &CommitmentSet) -> Exact {
    set.hourly_commitment.map_or_else(zero, exact)
}

/// Returns the spend that an autoscaler may plan with in an hour.
pub fn planned(set: &CommitmentSet) -> Exact {
    let allowed = if set.enabled { set.allowed_utilization.map_or(whole(1), exact) } else { zero() };
    committed(set) * allowed
}

/// A usage in one slice, with description, list price and amount.
struct Found {
    usage: Usage,
    target: DiscountTarget,
    provider: Text,
    region: Text,
    family: Option<Text>,
    instance_type: Option<Text>,
    model: Option<Text>,
    price: Exact,
    amount: Exact,
    is_billed: bool,
}

impl Found {
    /// Returns the first discount of the plan that applies to the usage; `None` if no discount does.
    fn discount<'a>(&self, set: &'a CommitmentSet) -> Option<&'a PlanDiscount> {
        if names::provider(&self.provider) != names::provider(&set.provider) {
            return None;
        }
        let same = |asked: &Option<Text>, mine: Option<&Text>, canonical: fn(&str) -> String| match asked {
            None => true,
            Some(asked) => mine.is_some_and(|mine| canonical(mine) == canonical(asked)),
        };
        set.discounts.iter().find(|discount| {
            discount.applies_to == self.target
                && same(&discount.region, Some(&self.region), names::place)
                && same(&discount.instance_family, self.family.as_ref(), names::family)
                && same(&discount.instance_type, self.instance_type.as_ref(), names::family)
                && same(&discount.gpu_model, self.model.as_ref(), names::gpu_model)
        })
    }
}

/// Returns all usage of one slice that plans may cover. Usage without a price is not included.
fn usage(view: &HourView, slice: &Slice) -> Vec<Found> {
    let mut found = nodes(view, slice);
    found.extend(pods(view, slice));
    found.extend(reservations(view, slice));
    found.retain(|one| !one.price.is_zero() && !one.amount.is_zero());
    found
}

fn nodes(view: &HourView, slice: &Slice) -> Vec<Found> {
    let on_demand =
        slice.world.nodes.iter().filter(|(_, node)| node.set.capacity_type == CapacityType::OnDemand);
    let found = on_demand.map(|(key, node)| {
        let set = &node.set;
        Found {
            usage: Usage::Node(key.clone(), node.start),
            target: DiscountTarget::Node,
            provider: set.provider.clone(),
            region: set.region.clone(),
            family: Some(set.instance_family.clone()),
            instance_type: Some(set.instance_type.clone()),
            model: set.gpu_model.clone(),
            price: exact(counted(view, set.hourly_cost, &set.currency).0),
            amount: uncovered(view, slice, key, &of_node(set, view.rules)),
            is_billed: billed_key(&slice.world, slice.from, set).is_some(),
        }
    });
    found.collect()
}

/// Returns the part of a node's cost that reserved capacity leaves.
fn uncovered(view: &HourView, slice: &Slice, key: &NodeKey, capacity: &Three) -> Exact {
    let weights = &view.rules.weights;
    let weights = [exact(weights.cpu), exact(weights.memory), exact(weights.gpu)];
    let all: Exact = (0..3).map(|resource| &weights[resource] * &capacity[resource]).sum();
    let mut left = whole(1);
    for cover in slice.covers.iter().filter(|cover| cover.node == *key) {
        for (weight, amount) in weights.iter().zip(&cover.amount) {
            left -= fraction(&(weight * amount), &all);
        }
    }
    left
}

fn pods(view: &HourView, slice: &Slice) -> Vec<Found> {
    let mut found = Vec::new();
    for (uid, pod) in &slice.world.pods {
        let set = &pod.set;
        let (Billing::Serverless, Some(region)) = (slice.world.billing(set), &set.region) else { continue };
        let key = rate_key(region, set.gpu_model.as_ref(), &set.qos);
        let Some(rate) = slice.world.rates.get(&key) else { continue };
        found.push(Found {
            usage: Usage::Pod(uid.clone()),
            target: DiscountTarget::Pod,
            provider: rate.provider.clone(),
            region: region.clone(),
            family: None,
            instance_type: None,
            model: set.gpu_model.clone(),
            price: price_of_pod(view, rate, &of_pod(set, view.rules)),
            amount: whole(1),
            is_billed: false,
        });
    }
    found
}

fn price_of_pod(view: &HourView, rate: &RateSet, requests: &Three) -> Exact {
    let prices = [rate.per_vcpu_hour, rate.per_gib_hour, rate.per_gpu_hour];
    let cost = prices.into_iter().zip(requests);
    cost.map(|(price, amount)| exact(counted(view, price, &rate.currency).0) * amount).sum()
}

fn reservations(view: &HourView, slice: &Slice) -> Vec<Found> {
    let effective = slice.world.reservations.iter().filter(|(_, reservation)| reservation.effective);
    let found = effective.map(|(id, reservation)| {
        let set = &reservation.set;
        Found {
            usage: Usage::Reservation(id.clone()),
            target: DiscountTarget::Reservation,
            provider: set.provider.clone(),
            region: set.region.clone(),
            family: None,
            instance_type: None,
            model: Some(set.gpu_model.clone()),
            price: exact(counted(view, set.unit_hourly_price, &set.currency).0),
            amount: whole(free_units(&slice.world, id, set)),
            is_billed: bills_reservation(&slice.world, slice.from, id),
        }
    });
    found.collect()
}

/// A plan in one hour under one description.
struct PlanPot<'a> {
    set: &'a Arc<CommitmentSet>,
    slices: Vec<usize>,
}

fn pots<'a>(view: &HourView<'a>) -> Vec<PlanPot<'a>> {
    let mut pots: Vec<PlanPot<'a>> = Vec::new();
    for (place, slice) in view.slices.iter().enumerate() {
        let sets = slice.world.commitments.values();
        for set in sets.filter(|set| set.kind == CommitmentKind::SavingsPlan && effective(set, slice.from)) {
            let last = pots.iter_mut().rev().find(|pot| pot.set.commitment_id == set.commitment_id);
            match last.filter(|pot| pot.set == set) {
                Some(pot) => pot.slices.push(place),
                None => pots.push(PlanPot { set, slices: vec![place] }),
            }
        }
    }
    pots.sort_by_key(|pot| (pot.set.starts_at, pot.set.commitment_id.clone(), pot.slices.clone()));
    pots
}

/// The order in which pairs of plans and usage are covered. Plans that are limited to a family come first.
/// Then the order is highest saving, lowest rate, the plan's place, and the usage.
type Order = (Reverse<bool>, Reverse<Exact>, Exact, usize, Usage);

/// Returns everything that savings plans cover in the hour, up to their totals.
pub fn plans(view: &HourView, total: fn(&CommitmentSet) -> Exact) -> Plans {
    let usage: Vec<Vec<Found>> = view.slices.iter().map(|slice| usage(view, slice)).collect();
    let time = |slice: usize| hours(view.slices[slice].to - view.slices[slice].from);
    let pots = pots(view);
    let mut left: Vec<Exact> = Vec::new();
    let mut spends: BTreeMap<CommitmentId, PlanTotals> = BTreeMap::new();
    let mut pairs: BTreeMap<Order, Vec<(usize, Exact)>> = BTreeMap::new();
    for (place, PlanPot { set, slices }) in pots.iter().enumerate() {
        let effective: Exact = slices.iter().map(|slice| time(*slice)).sum();
        let spend = spends.entry(set.commitment_id.clone()).or_default();
        spend.committed += committed(set) * &effective;
        let (_, other) = counted(view, set.hourly_cost, &set.currency);
        // A spend that is not in our currency cannot be compared with our prices.
        left.push(if other { zero() } else { total(set) * effective });
        let limited = set.discounts.iter().all(|discount| discount.instance_family.is_some());
        for slice in slices.iter().filter(|_| !other) {
            let here = &view.slices[*slice];
            let is_billed = bills_commitment(&here.world, here.from, &set.commitment_id);
            for found in &usage[*slice] {
                let Some(discount) = found.discount(set) else { continue };
                let rate = match discount.price {
                    DiscountedPrice::Saving(saving) => &found.price * (whole(1) - exact(saving)),
                    DiscountedPrice::Rate(rate) => exact(rate),
                };
                // Nobody pays more than the list price.
                if rate > found.price {
                    continue;
                }
                spend.provisioned += time(*slice) * &found.amount * &rate;
                if is_billed || found.is_billed {
                    continue;
                }
                let saving = whole(1) - fraction(&rate, &found.price);
                let order = (Reverse(limited), Reverse(saving), rate, place, found.usage.clone());
                pairs.entry(order).or_default().push((*slice, found.amount.clone()));
            }
        }
    }
    let mut uncovered: BTreeMap<(usize, Usage), Exact> = BTreeMap::new();
    let mut covers = Vec::new();
    for ((_, _, rate, place, usage), slices) in pairs {
        let set = pots[place].set;
        let mut wanted = zero();
        for (slice, amount) in &slices {
            let open = uncovered.entry((*slice, usage.clone())).or_insert_with(|| whole(1));
            wanted += time(*slice) * amount * &*open * &rate;
        }
        let taken = smaller(wanted.clone(), left[place].clone());
        left[place] -= &taken;
        let part = fraction(&taken, &wanted);
        spends.entry(set.commitment_id.clone()).or_default().covered += &taken;
        for (slice, _) in slices.into_iter().filter(|_| !taken.is_zero()) {
            let Some(open) = uncovered.get_mut(&(slice, usage.clone())) else { continue };
            let covered = &*open * &part;
            *open -= &covered;
            let commitment_id = set.commitment_id.clone();
            covers.push(PlanCover {
                slice,
                commitment_id,
                usage: usage.clone(),
                part: covered,
                rate: rate.clone(),
            });
        }
    }
    covers.retain(|cover| !cover.part.is_zero());
    Plans { covers, spends }
}

/// The part of a usage that a plan covers in one slice, with the spend per hour of all of the usage.
pub struct Covered<'a> {
    /// The plan, as described in the slice.
    pub set: &'a Arc<CommitmentSet>,
    /// The covered part.
    pub part: &'a Exact,
    /// The spend per hour of the usage.
    pub spend: Exact,
    /// The spend as a part of the plan's hour.
    pub of_plan: Exact,
}

/// Returns the parts of a usage that plans cover in one slice.
pub fn covered<'a>(view: &'a HourView, place: usize, usage: &Usage) -> Vec<Covered<'a>> {
    let mine = view.plans.covers.iter().filter(|cover| cover.slice == place && cover.usage == *usage);
    let covered = mine.filter_map(|cover| {
        let set = view.slices[place].world.commitments.get(&cover.commitment_id)?;
        let spend = &cover.part * &cover.rate;
        let of_plan = fraction(&spend, &committed(set));
        Some(Covered { set, part: &cover.part, spend, of_plan })
    });
    covered.collect()
}

/// Returns the part of a commitment's time in one slice that covers something, for any kind of commitment.
pub fn used_part(view: &HourView, place: usize, id: &CommitmentId, set: &CommitmentSet) -> Exact {
    let slice = &view.slices[place];
    let covers = slice.covers.iter().filter(|cover| cover.commitment_id == *id);
    let reserved: Exact =
        covers.map(|cover| commitment::parts(set, &cover.amount).iter().sum::<Exact>()).sum();
    let amount_of = |usage: &Usage| {
        let found = self::usage(view, slice).into_iter().find(|found| found.usage == *usage);
        found.map_or_else(zero, |found| found.amount)
    };
    let covers = view.plans.covers.iter().filter(|cover| cover.slice == place && cover.commitment_id == *id);
    let spend: Exact = covers.map(|cover| &cover.part * &cover.rate * amount_of(&cover.usage)).sum();
    reserved + fraction(&spend, &committed(set))
}
