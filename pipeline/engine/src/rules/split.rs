//! Node split (RULES.md, section 1): how the cost of a node divides over resources, price components and
//! pods.
//!
//! **Decides** which part of a node's cost each resource carries, which price component pays it, and which
//! part of a resource each pod bears. It is AWS split cost allocation for accelerated instances.
//!
//! - Stretches: the time at one price is one stretch, and divides on its own. `C`, `A`, `W` and `a` below are
//!   amounts of a stretch. A node whose price does not change has one stretch.
//! - Resources: `g_r = w_r A_r / W` of the cost at every instant, by weight and capacity. Where W = 0, all of
//!   the cost is idle.
//! - Components: where commitments cover the node, its own price keeps `(1 - f_r) g_r` of each resource, and
//!   each commitment brings its money by resource. Commitments follow their own order of precedence (section
//!   3); here no component takes precedence over another.
//! - Pods: a pod was allocated `a_r = max(request x runtime, use)` in the stretch. Its split is `a_r / T_r`
//!   with `T_r = max(A_r, sum a_r)`, and its unused part is `a_r / sum a_r` of what nobody was allocated. The
//!   two add up to `a_r / sum a_r`, so [`Shares`] divides by this sum alone and splits the two apart only
//!   where both exist. A pod's part of a resource splits that resource's part of every component.
//! - Idle: a resource that nobody was allocated goes to the node's idle row.
//!
//! **Interval ends**: a slice includes its start and excludes its end, so a new price counts from its instant
//! on. **Rounding**: none. Everything is an exact fraction; rows are rounded in `rows/draft.rs`.

mod billed;
mod stretch_times;

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::Text;
use prorata_schemas::event::{CommitmentSet, NodeStarted};
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::Unpriced;
use prorata_schemas::rules::Weights;
use prorata_schemas::time::Timestamp;

use crate::currency::{counted, reason};
use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, HOUR_MICROS, atoms, gcd, hours, ratio};
use crate::model::per_resource::{PARTS_PER_UNIT, PerResource};
use crate::model::slices::{COVERAGE_SCALE, CommitmentHour, NodeSlice, own_part};
use crate::model::spec::BillKey;
use crate::rules::bill::{LinePart, NodeParts};
use crate::rules::commitment::money_parts;
pub(crate) use billed::ComponentBill;
pub(crate) use stretch_times::StretchTimes;

/// Integer weights with which `sum(w_r x amount_r)` is exact for amounts in thousandths and bytes.
#[derive(Clone, Debug)]
pub(crate) struct WeightScale(PerResource<UBig>);

/// One price component of a stretch: the node's own price, or one commitment.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    /// The commitment's last description. `None` for the node's own price.
    pub(crate) commitment: Option<Arc<CommitmentSet>>,
    /// The node's hourly cost, no matter who pays; zero if it is not in the hour's currency.
    pub(crate) unit_price: UnitPrice,
    /// The reason for which the node or the commitment had no price at some time; `None` if both always had
    /// one.
    pub(crate) unpriced: Option<Unpriced>,
    /// Hours of the node by resource.
    pub(crate) quantity: PerResource<RBig>,
    /// Cost by resource, in atoms.
    pub(crate) cost: PerResource<RBig>,
    /// Hours of the commitment by resource, or spend of a savings plan.
    pub(crate) commitment_quantity: PerResource<RBig>,
    /// Hours in which no resource of the node had any weight (W = 0). These hours are all idle.
    pub(crate) weightless_quantity: RBig,
    /// The cost of these hours, in atoms.
    pub(crate) weightless_cost: RBig,
    /// The spend of a savings plan on these hours.
    pub(crate) weightless_commitment_quantity: RBig,
    /// The amounts of a billed component, whose `cost` is only a magnitude; `None` if the cost is an
    /// estimate.
    pub(crate) bill: Option<Box<ComponentBill>>,
}

/// A node's hour.
#[derive(Clone, Debug)]
pub(crate) struct NodeHour {
    /// The node's last description.
    pub(crate) description: Arc<NodeStarted>,
    /// The stretches by price.
    pub(crate) stretches: Vec<Stretch>,
    /// The time of each stretch. Empty if there is only one stretch.
    pub(crate) times: StretchTimes,
}

/// The property that all time of a stretch shares: the key of the bill's lines for the node, or the node's
/// price. Keys sort as stretches do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StretchKey {
    bill: Option<BillKey>,
    /// The node's price; zero in billed time, whatever the price is.
    pub(crate) price: UnitPrice,
}

impl StretchKey {
    /// Returns the stretch of a slice.
    pub(crate) fn of(slice: &NodeSlice) -> Self {
        match &slice.spec.bill {
            Some(bill) => Self { bill: Some(bill.clone()), price: UnitPrice::ZERO },
            None => Self { bill: None, price: slice.unit_price() },
        }
    }

    /// Returns the key of the resource in a bill; `None` if the stretch is not billed.
    pub(crate) fn resource_key(&self) -> Option<&Text> {
        self.bill.as_ref().map(|(_, key)| key)
    }
}

/// A node's time at one price, or under one key of a bill: its components in row order, and its capacity over
/// time.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pub(crate) key: StretchKey,
    pub(crate) components: Vec<Component>,
    /// Capacity times microseconds: A_r.
    pub(crate) available: PerResource<UBig>,
}

impl WeightScale {
    /// Scales weights per vCPU, GiB and GPU to thousandths and bytes, and reduces them to lowest terms: only
    /// their ratios matter.
    pub(crate) fn new(weights: &Weights) -> Self {
        // The weight of a part is the unit's weight divided by the parts in a unit. Times all parts, the
        // three are integers.
        let per_unit = PerResource { cpu: weights.cpu, memory: weights.memory, gpu: weights.gpu }.map(atoms);
        let all_parts: UBig = PARTS_PER_UNIT.iter().map(|parts| UBig::from(*parts)).product();
        let scaled = per_unit.zip(PARTS_PER_UNIT).map(|(weight, parts)| weight * (&all_parts / parts));
        let divisor = scaled.iter().fold(UBig::ZERO, |divisor, weight| gcd(&divisor, weight));
        if divisor.is_zero() { Self(scaled) } else { Self(scaled.map(|weight| weight / &divisor)) }
    }

    fn weigh(&self, amounts: &PerResource<UBig>) -> PerResource<UBig> {
        self.0.as_ref().zip(amounts.as_ref()).map(|(weight, amount)| weight * amount)
    }

    /// Returns the part of a slice's cost that reserved capacity leaves.
    pub(crate) fn uncovered_part(&self, slice: &NodeSlice) -> RBig {
        let all = self.weigh(&slice.spec.capacity.map(|amount| UBig::from(amount) * COVERAGE_SCALE)).sum();
        let covered = slice.coverage.iter().map(|coverage| self.weigh_covered(&coverage.amounts).sum());
        let covered = covered.fold(RBig::ZERO, |sum, covered| sum + covered);
        if all.is_zero() { RBig::ONE } else { RBig::ONE - covered / all }
    }

    fn weigh_covered(&self, amounts: &PerResource<RBig>) -> PerResource<RBig> {
        self.0.as_ref().zip(amounts.as_ref()).map(|(weight, amount)| amount * weight)
    }
}

impl Component {
    fn new(unit_price: UnitPrice) -> Self {
        Self {
            commitment: None,
            unit_price,
            unpriced: None,
            quantity: PerResource::default(),
            cost: PerResource::default(),
            commitment_quantity: PerResource::default(),
            weightless_quantity: RBig::ZERO,
            weightless_cost: RBig::ZERO,
            weightless_commitment_quantity: RBig::ZERO,
            bill: None,
        }
    }

    /// Returns all hours of the node that the component pays for.
    pub(crate) fn total_quantity(&self) -> RBig {
        self.quantity.sum() + &self.weightless_quantity
    }

    /// Returns the total cost, in atoms.
    pub(crate) fn total_cost(&self) -> RBig {
        self.cost.sum() + &self.weightless_cost
    }

    fn is_empty(&self) -> bool {
        self.total_quantity().is_zero() && self.total_cost().is_zero()
    }
}

/// Components by commitment, in row order: the node's own price comes first.
type Components = BTreeMap<Option<CommitmentId>, Component>;

impl NodeHour {
    /// Builds the stretches of a node from its slices. Returns `None` if the node did not run.
    ///
    /// # Errors
    /// If an amount of a bill does not fit its column.
    pub(crate) fn new(
        slices: &[NodeSlice],
        bills: &NodeBills<'_>,
        scale: &WeightScale,
    ) -> Result<Option<Self>, EngineError> {
        let Some(last) = slices.last() else { return Ok(None) };
        let mut by_key: BTreeMap<StretchKey, Vec<Run<'_>>> = BTreeMap::new();
        for run in runs(slices) {
            by_key.entry(StretchKey::of(run.slice)).or_default().push(run);
        }
        let mut stretches = Vec::with_capacity(by_key.len());
        for (key, runs) in by_key {
            let mut available = PerResource::<UBig>::default();
            for run in &runs {
                available += run.slice.spec.capacity.map(|amount| UBig::from(amount) * run.micros);
            }
            let components = match &key.bill {
                Some(bill) => billed::components(&runs, bills.parts(bill), bills.commitments, scale)?,
                None => components(&runs, key.price, scale),
            };
            stretches.push(Stretch { key, components, available });
        }
        let times = StretchTimes::new(changes(&stretches, slices));
        Ok(Some(Self { description: last.spec.description.clone(), stretches, times }))
    }
}

/// The bills of a node in the hour.
pub(crate) struct NodeBills<'a> {
    /// The parts of lines for the node; `None` if there are none.
    pub(crate) parts: Option<&'a NodeParts>,
    /// All commitments of the hour.
    pub(crate) commitments: &'a BTreeMap<CommitmentId, CommitmentHour>,
}

impl NodeBills<'_> {
    fn parts(&self, key: &BillKey) -> &[LinePart] {
        self.parts.and_then(|parts| parts.get(key)).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Returns the components of a stretch at one price, in row order.
fn components(runs: &[Run<'_>], price: UnitPrice, scale: &WeightScale) -> Vec<Component> {
    let mut components = Components::new();
    runs.iter().for_each(|run| add_run(&mut components, run, price, scale));
    components.into_values().filter(|component| !component.is_empty()).collect()
}

/// Returns the instants from which stretches hold, each with the index of its stretch; empty if there is only
/// one stretch.
fn changes(stretches: &[Stretch], slices: &[NodeSlice]) -> Vec<(Timestamp, usize)> {
    let mut changes: Vec<(Timestamp, usize)> = Vec::new();
    if stretches.len() < 2 {
        return changes;
    }
    for slice in slices {
        let key = StretchKey::of(slice);
        let stretch = stretches.partition_point(|stretch| stretch.key < key);
        if changes.last().is_none_or(|(_, last)| *last != stretch) {
            changes.push((slice.span.from, stretch));
        }
    }
    changes
}

impl NodeSlice {
    /// Returns the node's hourly cost; zero if it is not in the hour's currency.
    pub(crate) fn unit_price(&self) -> UnitPrice {
        let node = &self.spec.description;
        counted(node.hourly_cost, &node.currency)
    }
}

/// Joined slices that differ in nothing that a component reads. A node may be described often without a new
/// price or capacity. The joined slices cost one step of rational arithmetic instead of many.
struct Run<'a> {
    micros: u128,
    slice: &'a NodeSlice,
}

fn runs(slices: &[NodeSlice]) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for slice in slices {
        let same = |run: &Run<'_>| {
            run.slice.spec.capacity == slice.spec.capacity
                && run.slice.spec.description.hourly_cost == slice.spec.description.hourly_cost
                && run.slice.spec.description.currency == slice.spec.description.currency
                && run.slice.spec.bill == slice.spec.bill
                && run.slice.coverage == slice.coverage
                && run.slice.plans == slice.plans
        };
        match runs.last_mut().filter(|run| same(run)) {
            Some(run) => run.micros += slice.span.micros(),
            None => runs.push(Run { micros: slice.span.micros(), slice }),
        }
    }
    runs
}

/// Adds the cost of a run of slices to the components that pay for it.
fn add_run(components: &mut Components, run: &Run<'_>, price: UnitPrice, scale: &WeightScale) {
    let node = &run.slice.spec.description;
    let time = hours(run.micros);
    let weighed = scale.weigh(&run.slice.spec.capacity.map(|amount| UBig::from(amount) * COVERAGE_SCALE));
    // Hours of the node by resource are weighed amounts times time over W, all in the scale of coverage.
    let all = weighed.sum();
    let is_weightless = all.is_zero();
    let hours_of_weight = ratio(UBig::from(run.micros), all * UBig::from(HOUR_MICROS));
    let node_hours = |weighed: PerResource<RBig>| weighed.map(|amount| amount * &hours_of_weight);
    let mut uncovered = weighed.map(RBig::from);
    for coverage in run.slice.coverage.iter() {
        let commitment = &coverage.commitment;
        let key = Some(commitment.commitment_id.clone());
        let component = components.entry(key).or_insert_with(|| Component::new(price));
        component.commitment = Some(commitment.clone());
        let unpriced = reason(&node.currency).or(reason(&commitment.currency));
        component.unpriced = component.unpriced.or(unpriced);
        let covered = scale.weigh_covered(&coverage.amounts);
        uncovered = uncovered.zip(covered.as_ref()).map(|(left, covered)| left - covered);
        component.quantity += node_hours(covered);
        let commitment_hours = money_parts(commitment, &coverage.amounts).map(|part| part * &time);
        let hourly_cost = RBig::from(atoms(counted(commitment.hourly_cost, &commitment.currency)));
        component.cost += commitment_hours.as_ref().map(|hours| hours * &hourly_cost);
        component.commitment_quantity += commitment_hours;
    }
    let left = Left { hours: node_hours(uncovered), weightless: is_weightless.then_some(time) };
    for part in &run.slice.plans {
        let key = Some(part.plan.commitment_id.clone());
        let component = components.entry(key).or_insert_with(|| Component::new(price));
        component.commitment = Some(part.plan.clone());
        left.pay(component, &part.part, &part.cost, &(&part.spend / ATOMS_IN_ONE));
    }
    let component = components.entry(None).or_insert_with(|| Component::new(price));
    component.unpriced = component.unpriced.or(reason(&node.currency));
    let price = RBig::from(atoms(price));
    match run.slice.plans.as_slice() {
        [] => left.pay(component, &RBig::ONE, &price, &RBig::ZERO),
        plans => {
            let own = own_part(plans);
            left.pay(component, &own, &(&own * price), &RBig::ZERO);
        }
    }
}

/// Hours of a node that reserved capacity leaves.
struct Left {
    /// Hours by resource.
    hours: PerResource<RBig>,
    /// All hours if no resource of the node has any weight; `None` otherwise.
    weightless: Option<RBig>,
}

impl Left {
    /// Adds a part of the hours to the component that pays for it. `cost` and `quantity` are the cost and the
    /// quantity of the commitment for each of the hours.
    fn pay(&self, component: &mut Component, part: &RBig, cost: &RBig, quantity: &RBig) {
        if let Some(hours) = &self.weightless {
            component.weightless_quantity += hours * part;
            component.weightless_cost += hours * cost;
            component.weightless_commitment_quantity += hours * quantity;
            return;
        }
        let of_hours = |factor: &RBig| self.hours.as_ref().map(|hours| hours * factor);
        component.quantity += of_hours(part);
        component.cost += of_hours(cost);
        if !quantity.is_zero() {
            component.commitment_quantity += of_hours(quantity);
        }
    }
}

/// The shares of pods in the resources of a node. A pod's part of a sum over resources of `x_r` is `sum(x_r x
/// part_r) / denominator`.
///
/// One denominator for all pods and resources avoids greatest common divisors in rows: a pod's cost is three
/// products and two sums of integers.
pub(crate) struct Shares {
    /// For each pod, `a_r / sum a_r` times the denominator.
    pub(crate) parts: Vec<PerResource<UBig>>,
    pub(crate) denominator: UBig,
    /// Whether any pod was allocated the resource.
    pub(crate) allocated: PerResource<bool>,
    /// `None` if no resource has an unused part.
    pub(crate) split: Option<SplitParts>,
}

/// For each resource, the split part of the cost that pods bear: `min(1, sum a_r / A_r)`. The rest is unused.
pub(crate) struct SplitParts {
    pub(crate) numerators: PerResource<UBig>,
    pub(crate) denominator: UBig,
}

impl Shares {
    /// Computes the shares from the amounts that each pod was allocated and the node's capacity, both times
    /// microseconds.
    pub(crate) fn new(pods: &[PerResource<UBig>], available: &PerResource<UBig>) -> Self {
        let mut sums = PerResource::<UBig>::default();
        let mut divisors = PerResource::<UBig>::default();
        for amounts in pods {
            sums += amounts.as_ref();
            divisors = divisors.zip(amounts.as_ref()).map(|(divisor, amount)| gcd(&divisor, amount));
        }
        // Requests are round numbers, so dividing by their common divisor keeps the denominator small.
        let reduced = |(amount, divisor): (&UBig, &UBig)| {
            if divisor.is_zero() { UBig::ZERO } else { amount / divisor }
        };
        let reduced_sums = sums.as_ref().zip(divisors.as_ref()).map(reduced);
        let denominator: UBig = reduced_sums.iter().filter(|sum| !sum.is_zero()).product();
        let others = reduced_sums.map(|sum| if sum.is_zero() { UBig::ZERO } else { &denominator / sum });
        let parts = pods.iter().map(|amounts| {
            let reduced = amounts.as_ref().zip(divisors.as_ref()).map(reduced);
            reduced.zip(others.as_ref()).map(|(amount, others)| amount * others)
        });
        Self {
            parts: parts.collect(),
            denominator,
            allocated: sums.as_ref().map(|sum| !sum.is_zero()),
            split: SplitParts::new(&sums, available),
        }
    }
}

impl SplitParts {
    fn new(sums: &PerResource<UBig>, available: &PerResource<UBig>) -> Option<Self> {
        let pairs = sums.as_ref().zip(available.as_ref());
        let is_partial = |(sum, available): (&UBig, &UBig)| !sum.is_zero() && sum < available;
        if !pairs.into_iter().any(is_partial) {
            return None;
        }
        let fractions = pairs.map(|(sum, available)| {
            if !is_partial((sum, available)) {
                return (UBig::ONE, UBig::ONE);
            }
            let divisor = gcd(sum, available);
            (sum / &divisor, available / divisor)
        });
        let denominator: UBig = fractions.iter().map(|(_, denominator)| denominator).product();
        let numerators = fractions.map(|(numerator, part)| numerator * (&denominator / part));
        Some(Self { numerators, denominator })
    }
}

#[cfg(test)]
mod tests {
    use prorata_schemas::money::Weight;

    use super::*;

    fn amounts(cpu: u64, memory: u64, gpu: u64) -> PerResource<UBig> {
        PerResource { cpu, memory, gpu }.map(UBig::from)
    }

    fn parts(shares: &Shares, pod: usize) -> PerResource<RBig> {
        shares.parts[pod].clone().map(|part| ratio(part, shares.denominator.clone()))
    }

    fn fraction(numerator: u64, denominator: u64) -> RBig {
        ratio(UBig::from(numerator), UBig::from(denominator))
    }

    #[test]
    fn weights_are_scaled_to_parts_and_reduced() {
        // The weights are 0.9 a vCPU and 0.1 a GiB. A thousandth of a vCPU weighs as much as 9 x 2^30 / 1000
        // bytes.
        let scale = WeightScale::new(&Weights::default());
        let weighed = scale.weigh(&amounts(1000, 9 << 30, 100));
        assert_eq!(weighed.cpu, weighed.memory);
        assert_eq!(weighed.cpu, weighed.gpu);
        let none = Weights { gpu: Weight::ZERO, cpu: Weight::ZERO, memory: Weight::ZERO };
        assert_eq!(WeightScale::new(&none).weigh(&amounts(1, 2, 3)), PerResource::default());
    }

    #[test]
    fn pods_share_what_they_were_allocated_and_nobody_gets_the_rest() {
        let shares = Shares::new(&[amounts(10, 5, 0), amounts(30, 0, 0)], &amounts(80, 5, 8));
        assert_eq!(
            parts(&shares, 0),
            PerResource { cpu: fraction(1, 4), memory: RBig::ONE, gpu: RBig::ZERO }
        );
        assert_eq!(parts(&shares, 1), PerResource { cpu: fraction(3, 4), ..PerResource::default() });
        assert_eq!(shares.allocated, PerResource { cpu: true, memory: true, gpu: false });
        let split = shares.split.unwrap();
        assert_eq!(ratio(split.numerators.cpu, split.denominator.clone()), fraction(1, 2));
        assert_eq!(ratio(split.numerators.memory, split.denominator), RBig::ONE);
    }

    #[test]
    fn a_node_that_is_full_or_overcommitted_has_nothing_unused() {
        let pods = [amounts(70, 5, 1), amounts(30, 5, 1)];
        assert!(Shares::new(&pods, &amounts(80, 10, 2)).split.is_none());
        assert!(Shares::new(&[], &amounts(80, 10, 2)).split.is_none());
    }

    #[test]
    fn allocated_time_beyond_128_bits_is_exact() {
        let huge = UBig::from(u128::MAX) * UBig::from(HOUR_MICROS);
        let pod = PerResource { gpu: huge.clone(), ..PerResource::default() };
        let shares = Shares::new(&[pod.clone(), pod], &PerResource { gpu: huge, ..PerResource::default() });
        assert_eq!(parts(&shares, 0).gpu, fraction(1, 2));
    }
}
