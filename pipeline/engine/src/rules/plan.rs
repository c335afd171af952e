//! Savings plans (RULES.md, section 3, "Savings plans"), as AWS applies them.
//!
//! **Decides** which part of which usage each plan covers, after reserved capacity. The usage is nodes at
//! their own price, serverless pods at their rate, and unused units of reservations. Under one description, a
//! plan has its `hourly_commitment` times its effective time, and spends it at discounted prices until
//! nothing is left.
//!
//! **Precedence**: among pairs of plans and usage, plans that are limited to instance families come first.
//! Then the order is highest saving, lowest discounted price, plan by (starts_at, id), and nodes, pods,
//! reservations by id. For the last usage, a plan covers the same part at every instant.
//!
//! **Interval ends**: a plan covers usage in its effective time only. **Rounding**: none.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::Text;
use prorata_schemas::event::{
    CapacityType, CommitmentKind, CommitmentSet, DiscountTarget, DiscountedPrice, PlanDiscount, names,
};
use prorata_schemas::ids::{PodUid, ReservationId};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Timestamp;

use crate::currency::{counted, is_other, reason};
use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, HOUR_MICROS, atoms, ratio};
use crate::model::slices::{NodeSlice, PlanPart, PodSlice, ReservationSlice, Slices};
use crate::model::span::Span;
use crate::model::state::NodeKey;
use crate::rules::commitment::pot::{Pot, edges, parts, pots};
use crate::rules::commitment::quotient;
use crate::rules::reservation::unused_units;
use crate::rules::split::WeightScale;
use crate::trace::{ExactNumber, Focus, PlanStep, PlanUsage, Recorder};
use crate::work::Work;

/// The usage of one object in the hour: a node with its start, a serverless pod, or a reservation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UsageId {
    Node(NodeKey, Timestamp),
    Pod(PodUid),
    Reservation(ReservationId),
}

/// One slice of an object's usage.
#[derive(Debug)]
struct PricedUse {
    id: UsageId,
    /// The index among the slices of the object.
    slice: usize,
    span: Span,
    traits: Traits,
    /// The list price per hour, in atoms; above zero.
    price: RBig,
    /// The part of a node that reserved capacity leaves, or the number of unused units; above zero.
    amount: RBig,
    /// The part of the amount that no plan covers yet.
    left: RBig,
    /// Whether bills say what the usage costs, so that no plan covers it.
    is_billed: bool,
}

/// The properties by which a discount matches usage.
#[derive(Debug)]
struct Traits {
    target: DiscountTarget,
    provider: Text,
    region: Text,
    instance_family: Option<Text>,
    instance_type: Option<Text>,
    gpu_model: Option<Text>,
}

impl Traits {
    /// Returns the first discount of a plan that applies to the usage; `None` if no discount does.
    fn discount<'a>(&self, plan: &'a CommitmentSet) -> Option<&'a PlanDiscount> {
        if !names::same(&self.provider, &plan.provider, names::provider) {
            return None;
        }
        let same = |asked: &Option<Text>, mine: Option<&Text>, canonical| match asked {
            None => true,
            Some(asked) => mine.is_some_and(|mine| names::same(asked, mine, canonical)),
        };
        plan.discounts.iter().find(|discount| {
            discount.applies_to == self.target
                && same(&discount.region, Some(&self.region), names::place)
                && same(&discount.instance_family, self.instance_family.as_ref(), names::family)
                && same(&discount.instance_type, self.instance_type.as_ref(), names::family)
                && same(&discount.gpu_model, self.gpu_model.as_ref(), names::gpu_model)
        })
    }
}

/// The sort key of a pair of a plan and usage. It holds whether the plan is limited to instance families, the
/// saving, the discounted price, the plan's place and the usage.
type Order = (Reverse<bool>, Reverse<RBig>, RBig, usize, UsageId);

/// Pairs of plans and usage, with the indexes of the slices of the usage.
type Pairs = BTreeMap<Order, Vec<usize>>;

/// A function that returns the spend of a plan in an hour, in atoms.
type HourlySpend = fn(&CommitmentSet) -> RBig;

/// Covers usage with savings plans, and sets the spend of each plan. Cuts slices where a description of a
/// plan becomes effective or stops being effective.
///
/// # Errors
/// If plans and usage form too many pairs.
pub(crate) fn cover(
    slices: &mut Slices,
    rules: &Rules,
    trace: &mut Recorder<PlanStep>,
) -> Result<(), EngineError> {
    let pots = pots(&slices.commitments, |set| set.kind == CommitmentKind::SavingsPlan);
    if pots.is_empty() {
        return Ok(());
    }
    let work = Work::of_plans();
    let mut uses = uses(slices, &pots, &WeightScale::new(&rules.weights), &work)?;
    let mut provisioned = vec![RBig::ZERO; pots.len()];
    let pairs = pairs(&pots, &uses, &mut provisioned, &work)?;
    let planned = match pots.iter().all(|pot| planned(&pot.description) == committed(&pot.description)) {
        true => None,
        false => {
            let spent = walk(&pots, &pairs, &mut uses, planned, |_| {});
            uses.iter_mut().for_each(|one| one.left = RBig::ONE);
            Some(spent)
        }
    };
    let covered = walk(&pots, &pairs, &mut uses, committed, |step| {
        if trace.wants(|focus| step.is_in(focus)) {
            trace.push(step.traced());
        }
        for (slice, part) in step.covered {
            if let Some(plans) = plans_of(slices, step.usage, slice) {
                plans.push(plan_part(&step.pot.description, part, step.rate));
            }
        }
    });
    let planned = planned.unwrap_or_else(|| covered.clone());
    for (((pot, covered), planned), provisioned) in pots.iter().zip(covered).zip(planned).zip(provisioned) {
        let micros = UBig::from(pot.micros());
        for slice in pot.slices_in(&mut slices.commitments) {
            slice.spend.covered = &covered / &micros;
            slice.spend.planned = &planned / &micros;
            slice.spend.provisioned = &provisioned / &micros;
        }
    }
    Ok(())
}

/// Returns the committed spend of an hour, in atoms. The spend is zero if it is not in the hour's currency,
/// because it cannot be compared with prices.
fn committed(plan: &CommitmentSet) -> RBig {
    match plan.hourly_commitment {
        Some(spend) if !is_other(&plan.currency) => RBig::from(atoms(spend)),
        _ => RBig::ZERO,
    }
}

/// Returns the spend of an hour that an autoscaler may plan with, in atoms. It is the committed spend times
/// `allowed_utilization`, not rounded, and zero for a disabled plan.
fn planned(plan: &CommitmentSet) -> RBig {
    match plan.allowed_utilization {
        _ if !plan.enabled => RBig::ZERO,
        Some(allowed) => committed(plan) * ratio(atoms(allowed), ATOMS_IN_ONE),
        None => committed(plan),
    }
}

/// Cuts the slices that plans may cover, wherever a plan becomes effective or stops being effective. Returns
/// the slices with their prices.
fn uses(
    slices: &mut Slices,
    pots: &[Pot],
    scale: &WeightScale,
    work: &Work,
) -> Result<Vec<PricedUse>, EngineError> {
    let edges = edges(pots);
    let mut uses = Vec::new();
    for (key, nodes) in &mut slices.nodes {
        let with = |slice: &NodeSlice, span| NodeSlice { span, ..slice.clone() };
        cut(nodes, |slice| parts(slice.span, &edges), with, work)?;
        let found = nodes.iter().enumerate();
        uses.extend(found.filter_map(|(index, slice)| node_use(key, index, slice, scale)));
    }
    for (uid, pods) in &mut slices.pods {
        if !pods.iter().any(|slice| slice.spec.is_serverless()) {
            continue;
        }
        let with = |slice: &PodSlice, span| PodSlice { span, ..slice.clone() };
        cut(pods, |slice| parts(slice.span, &edges), with, work)?;
        uses.extend(pods.iter().enumerate().filter_map(|(index, slice)| pod_use(uid, index, slice)));
    }
    for (id, units) in &mut slices.reservations {
        let with = |slice: &ReservationSlice, span| ReservationSlice { span, ..slice.clone() };
        cut(units, |slice| parts(slice.span, &edges), with, work)?;
        uses.extend(units.iter().enumerate().filter_map(|(index, slice)| unit_use(id, index, slice)));
    }
    uses.retain(|one| !one.price.is_zero() && !one.amount.is_zero());
    Ok(uses)
}

/// Cuts slices into parts. Leaves a slice of one part as it is.
fn cut<T>(
    slices: &mut Vec<T>,
    parts: impl Fn(&T) -> Vec<Span>,
    with: impl Fn(&T, Span) -> T,
    work: &Work,
) -> Result<(), EngineError> {
    let mut cut = Vec::with_capacity(slices.len());
    for slice in std::mem::take(slices) {
        match parts(&slice).as_slice() {
            [] | [_] => cut.push(slice),
            parts => {
                work.add(parts.len() - 1)?;
                cut.extend(parts.iter().map(|span| with(&slice, *span)));
            }
        }
    }
    *slices = cut;
    Ok(())
}

fn node_use(key: &NodeKey, index: usize, slice: &NodeSlice, scale: &WeightScale) -> Option<PricedUse> {
    let node = &slice.spec.description;
    let traits = || Traits {
        target: DiscountTarget::Node,
        provider: node.provider.clone(),
        region: node.region.clone(),
        instance_family: Some(node.instance_family.clone()),
        instance_type: Some(node.instance_type.clone()),
        gpu_model: node.gpu_model.clone(),
    };
    (node.capacity_type == CapacityType::OnDemand).then(|| PricedUse {
        id: UsageId::Node(key.clone(), slice.start),
        slice: index,
        span: slice.span,
        traits: traits(),
        price: RBig::from(atoms(slice.unit_price())),
        amount: scale.uncovered_part(slice),
        left: RBig::ONE,
        is_billed: slice.spec.bill.is_some(),
    })
}

fn pod_use(uid: &PodUid, index: usize, slice: &PodSlice) -> Option<PricedUse> {
    let pod = &slice.spec.description;
    let rate = slice.status.rate.as_ref().filter(|rate| reason(&rate.currency).is_none())?;
    Some(PricedUse {
        id: UsageId::Pod(uid.clone()),
        slice: index,
        span: slice.span,
        traits: Traits {
            target: DiscountTarget::Pod,
            provider: rate.provider.clone(),
            region: pod.region.clone()?,
            instance_family: None,
            instance_type: None,
            gpu_model: pod.gpu_model.clone(),
        },
        price: slice.spec.hourly_cost(rate).sum(),
        amount: RBig::ONE,
        left: RBig::ONE,
        is_billed: false,
    })
}

fn unit_use(id: &ReservationId, index: usize, slice: &ReservationSlice) -> Option<PricedUse> {
    let set = &slice.description;
    Some(PricedUse {
        id: UsageId::Reservation(id.clone()),
        slice: index,
        span: slice.span,
        traits: Traits {
            target: DiscountTarget::Reservation,
            provider: set.provider.clone(),
            region: set.region.clone(),
            instance_family: None,
            instance_type: None,
            gpu_model: Some(set.gpu_model.clone()),
        },
        price: RBig::from(atoms(counted(set.unit_hourly_price, &set.currency))),
        amount: RBig::from(unused_units(slice)),
        left: RBig::ONE,
        is_billed: slice.is_billed,
    })
}

/// Returns all pairs of plans and usage in the order in which they are covered. Adds the spend of all
/// matching usage, times microseconds, to `provisioned`. A discounted price above the list price applies to
/// nothing.
fn pairs(
    pots: &[Pot],
    uses: &[PricedUse],
    provisioned: &mut [RBig],
    work: &Work,
) -> Result<Pairs, EngineError> {
    let mut pairs = Pairs::new();
    for ((place, pot), provisioned) in pots.iter().enumerate().zip(provisioned) {
        let plan = &*pot.description;
        if committed(plan).is_zero() {
            continue;
        }
        work.add(uses.len())?;
        let is_limited = plan.discounts.iter().all(|discount| discount.instance_family.is_some());
        for (index, one) in uses.iter().enumerate().filter(|(_, one)| pot.holds(one.span.from)) {
            let Some(discount) = one.traits.discount(plan) else { continue };
            let rate = match discount.price {
                DiscountedPrice::Saving(saving) => {
                    &one.price * (RBig::ONE - ratio(atoms(saving), ATOMS_IN_ONE))
                }
                DiscountedPrice::Rate(rate) => RBig::from(atoms(rate)),
            };
            if rate > one.price {
                continue;
            }
            *provisioned += &one.amount * &rate * UBig::from(one.span.micros());
            if pot.is_billed || one.is_billed {
                continue;
            }
            let saving = RBig::ONE - &rate / &one.price;
            let order = (Reverse(is_limited), Reverse(saving), rate, place, one.id.clone());
            pairs.entry(order).or_default().push(index);
        }
    }
    Ok(pairs)
}

/// One step of the walk. Spend is in atoms, times microseconds.
struct PairStep<'a> {
    pot: &'a Pot,
    usage: &'a UsageId,
    saving: &'a RBig,
    rate: &'a RBig,
    plan_left: RBig,
    wanted: RBig,
    taken: RBig,
    /// The parts of the usage that the plan covers, by the index of the slice.
    covered: Vec<(usize, RBig)>,
}

/// Walks all pairs, and takes the covered parts from the usage. `hourly` returns the spend that each plan has
/// in an hour. Calls `step` for each pair in which the plan covers anything. Returns the covered spend of
/// each plan, times microseconds.
fn walk<'a>(
    pots: &'a [Pot],
    pairs: &'a Pairs,
    uses: &mut [PricedUse],
    hourly: HourlySpend,
    mut step: impl FnMut(PairStep<'a>),
) -> Vec<RBig> {
    let total = |pot: &Pot| hourly(&pot.description) * UBig::from(pot.micros());
    let mut left: Vec<RBig> = pots.iter().map(total).collect();
    let mut spent = vec![RBig::ZERO; pots.len()];
    for ((_, Reverse(saving), rate, place, usage), slices) in pairs {
        let (Some(pot), Some(left), Some(spent)) =
            (pots.get(*place), left.get_mut(*place), spent.get_mut(*place))
        else {
            continue;
        };
        let mut wanted = RBig::ZERO;
        for one in slices.iter().filter_map(|index| uses.get(*index)) {
            wanted += &one.amount * &one.left * rate * UBig::from(one.span.micros());
        }
        let taken = wanted.clone().min(left.clone());
        if taken.is_zero() {
            continue;
        }
        let part = quotient(&taken, &wanted);
        let mut covered = Vec::with_capacity(slices.len());
        for index in slices {
            let Some(one) = uses.get_mut(*index) else { continue };
            let part = &one.left * &part;
            one.left = &one.left - &part;
            if !part.is_zero() {
                covered.push((one.slice, part));
            }
        }
        let plan_left = left.clone();
        *left -= &taken;
        *spent += &taken;
        step(PairStep { pot, usage, saving, rate, plan_left, wanted, taken, covered });
    }
    spent
}

/// Returns the part of usage that a plan covers, with the spend and the cost. `rate` is the discounted price
/// per hour of the whole usage, in atoms.
fn plan_part(plan: &Arc<CommitmentSet>, part: RBig, rate: &RBig) -> PlanPart {
    let spend = &part * rate;
    let cost = atoms(counted(plan.hourly_cost, &plan.currency));
    let cost = &spend * ratio(cost, plan.hourly_commitment.map(atoms).unwrap_or_default());
    PlanPart { plan: Arc::clone(plan), part, spend, cost }
}

/// Returns the parts of a slice that plans cover; `None` if there is no such slice.
fn plans_of<'a>(slices: &'a mut Slices, id: &UsageId, index: usize) -> Option<&'a mut Vec<PlanPart>> {
    match id {
        UsageId::Node(key, _) => Some(&mut slices.nodes.get_mut(key)?.get_mut(index)?.plans),
        UsageId::Pod(uid) => {
            let place = slices.pods.binary_search_by(|(of, _)| of.cmp(uid)).ok()?;
            Some(&mut slices.pods.get_mut(place)?.1.get_mut(index)?.plans)
        }
        UsageId::Reservation(id) => Some(&mut slices.reservations.get_mut(id)?.get_mut(index)?.plans),
    }
}

impl PairStep<'_> {
    fn is_in(&self, focus: &Focus) -> bool {
        let has_usage = match self.usage {
            UsageId::Node(key, _) => focus.nodes.contains(key),
            UsageId::Pod(uid) => focus.pods.contains(uid),
            UsageId::Reservation(id) => focus.reservations.contains(id),
        };
        has_usage || focus.commitments.contains(&self.pot.description.commitment_id)
    }

    /// Returns the step for a trace.
    fn traced(&self) -> PlanStep {
        let money = |spend: &RBig| ExactNumber::of_atoms(spend / UBig::from(HOUR_MICROS));
        PlanStep {
            from: self.pot.spans.first().map_or(self.pot.description.starts_at, |span| span.from),
            to: self.pot.spans.last().map_or(self.pot.description.starts_at, |span| span.to),
            commitment_id: self.pot.description.commitment_id.clone(),
            usage: match self.usage {
                UsageId::Node((cluster_id, node_id), _) => {
                    PlanUsage::Node { cluster_id: cluster_id.clone(), node_id: node_id.clone() }
                }
                UsageId::Pod(uid) => PlanUsage::Pod { pod_uid: uid.clone() },
                UsageId::Reservation(id) => PlanUsage::Reservation { reservation_id: id.clone() },
            },
            saving: ExactNumber::new(self.saving.clone()),
            rate: ExactNumber::of_atoms(self.rate.clone()),
            plan_remaining: money(&self.plan_left),
            usage_remaining: money(&self.wanted),
            covered: money(&self.taken),
        }
    }
}
