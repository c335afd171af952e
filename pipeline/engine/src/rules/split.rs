//! Nodes: split cost allocation (AWS SCAD for accelerated instances).
//!
//! A node's cost divides over GPUs, vCPU and memory by weight, `g_r = w_r A_r / W`, at every instant. A pod's part of a
//! resource is what it was allocated in the hour, `a_r = max(request x runtime, use)`, over what all pods were: its
//! split `a_r / T_r` with `T_r = max(A_r, sum a_r)`, and its part of what nobody was allocated. A resource allocated to
//! nobody goes to the node's idle row, and so does everything where W = 0.
//!
//! Where commitments cover the node, it has components: its own price keeps `(1 - f_r) g_r` of each resource, and each
//! commitment brings its money by resource. A pod's part of a resource splits that resource's part of every component.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_int::ops::Gcd;
use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{CommitmentSet, NodeStarted};
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::rules::{Rules, Weights};

use crate::exact::{HOUR_MICROS, one, ratio, units};
use crate::rules::commitment::money_parts;
use crate::timeline::size::Shape;
use crate::timeline::slices::NodeSlice;

/// Resources by index: cpu, memory, gpu.
pub(crate) const RESOURCES: usize = 3;

/// Integer weights that make `sum(w_r x amount_r)` exact for amounts in thousandths and bytes.
#[derive(Clone, Debug)]
pub(crate) struct WeightScale([UBig; RESOURCES]);

/// One price component of a node in the hour.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    pub(crate) commitment: Option<Arc<CommitmentSet>>,
    pub(crate) unit_price: Decimal12,
    /// Hours of the node by resource.
    pub(crate) quantity: [RBig; RESOURCES],
    /// Cost by resource, in units of 10^-12.
    pub(crate) cost: [RBig; RESOURCES],
    /// Hours of the commitment by resource.
    pub(crate) commitment_hours: [RBig; RESOURCES],
    /// Hours while the node had nothing of weight: idle whole.
    pub(crate) bare_quantity: RBig,
    /// What those cost.
    pub(crate) bare_cost: RBig,
}

/// A node's hour: its components in row order, and its capacity over time.
#[derive(Clone, Debug)]
pub(crate) struct NodeHour {
    pub(crate) description: Arc<NodeStarted>,
    pub(crate) components: Vec<Component>,
    /// Capacity times microseconds.
    pub(crate) available: [u128; RESOURCES],
}

impl WeightScale {
    /// Scales weights per vCPU, GiB and GPU to thousandths and bytes.
    pub(crate) fn new(weights: &Weights) -> Self {
        let gib = UBig::from(1_u64 << 30);
        let scaled = [
            units(weights.cpu) * &gib,
            units(weights.memory) * UBig::from(1000u32),
            units(weights.gpu) * &gib,
        ];
        let mut divisor = UBig::ZERO;
        for weight in scaled.iter().filter(|weight| **weight != UBig::ZERO) {
            divisor = if divisor == UBig::ZERO { weight.clone() } else { divisor.gcd(weight) };
        }
        if divisor == UBig::ZERO {
            divisor = UBig::ONE;
        }
        Self(scaled.map(|weight| weight / &divisor))
    }

    fn weigh(&self, amounts: &[UBig; RESOURCES]) -> [UBig; RESOURCES] {
        let mut weighed: [UBig; RESOURCES] = Default::default();
        for ((part, weight), amount) in weighed.iter_mut().zip(&self.0).zip(amounts) {
            *part = weight * amount;
        }
        weighed
    }
}

impl Component {
    fn new(commitment: Option<Arc<CommitmentSet>>, unit_price: Decimal12) -> Self {
        let zeros = || [RBig::ZERO, RBig::ZERO, RBig::ZERO];
        Self {
            commitment,
            unit_price,
            quantity: zeros(),
            cost: zeros(),
            commitment_hours: zeros(),
            bare_quantity: RBig::ZERO,
            bare_cost: RBig::ZERO,
        }
    }

    /// All hours of the node that it covers.
    pub(crate) fn total_quantity(&self) -> RBig {
        self.quantity.iter().fold(self.bare_quantity.clone(), |sum, part| sum + part)
    }

    /// All its cost.
    pub(crate) fn total_cost(&self) -> RBig {
        self.cost.iter().fold(self.bare_cost.clone(), |sum, part| sum + part)
    }

    fn is_empty(&self) -> bool {
        self.total_quantity() == RBig::ZERO && self.total_cost() == RBig::ZERO
    }
}

impl NodeHour {
    /// Builds the components of a node from its slices; none when it did not run.
    pub(crate) fn new(slices: &[NodeSlice], scale: &WeightScale) -> Option<Self> {
        let last = slices.last()?;
        let mut components: BTreeMap<(Option<CommitmentId>, Decimal12), Component> = BTreeMap::new();
        let mut available = [0; RESOURCES];
        for slice in merged(slices) {
            let micros = slice.span_micros;
            for (sum, amount) in available.iter_mut().zip(slice.capacity.amounts()) {
                *sum += amount * micros;
            }
            add_slice(&mut components, &slice, scale);
        }
        let components = components.into_values().filter(|component| !component.is_empty()).collect();
        Some(Self { description: last.shape.description.clone(), components, available })
    }
}

/// Slices that differ in nothing a component reads, taken together.
struct Stretch<'a> {
    span_micros: u128,
    capacity: Shape,
    slice: &'a NodeSlice,
}

fn merged(slices: &[NodeSlice]) -> Vec<Stretch<'_>> {
    let mut stretches: Vec<Stretch<'_>> = Vec::new();
    for slice in slices {
        let same = |stretch: &Stretch<'_>| {
            stretch.capacity == slice.shape.capacity
                && stretch.slice.shape.description.hourly_cost == slice.shape.description.hourly_cost
                && stretch.slice.cover == slice.cover
        };
        match stretches.last_mut().filter(|stretch| same(stretch)) {
            Some(stretch) => stretch.span_micros += slice.span.micros(),
            None => stretches.push(Stretch {
                span_micros: slice.span.micros(),
                capacity: slice.shape.capacity,
                slice,
            }),
        }
    }
    stretches
}

fn add_slice(
    components: &mut BTreeMap<(Option<CommitmentId>, Decimal12), Component>,
    stretch: &Stretch<'_>,
    scale: &WeightScale,
) {
    let price = stretch.slice.shape.description.hourly_cost;
    let micros = UBig::from(stretch.span_micros);
    let weighed = scale.weigh(&stretch.capacity.amounts().map(UBig::from));
    let whole: UBig = weighed.iter().fold(UBig::ZERO, |sum, part| sum + part);
    let fine_scale = one() * one();
    let mut own = weighed.map(|part| part * &fine_scale);
    // Hours by resource are weighed amounts x time over this.
    let under = &whole * &fine_scale * UBig::from(HOUR_MICROS);
    for cover in stretch.slice.cover.iter() {
        let key = (Some(cover.commitment.commitment_id.clone()), price);
        let component =
            components.entry(key).or_insert_with(|| Component::new(Some(cover.commitment.clone()), price));
        component.commitment = Some(cover.commitment.clone());
        let covered = scale.weigh(&cover.fine);
        let money = money_parts(&cover.commitment, &cover.fine);
        let hourly_cost = RBig::from(units(cover.commitment.hourly_cost));
        for index in 0..RESOURCES {
            own[index] -= &covered[index];
            component.quantity[index] += ratio(&covered[index] * &micros, under.clone());
            let hours = &money[index] * ratio(micros.clone(), UBig::from(HOUR_MICROS));
            component.cost[index] += &hours * &hourly_cost;
            component.commitment_hours[index] += hours;
        }
    }
    let component = components.entry((None, price)).or_insert_with(|| Component::new(None, price));
    let price = RBig::from(units(price));
    if whole == UBig::ZERO {
        let hours = ratio(micros, UBig::from(HOUR_MICROS));
        component.bare_cost += &hours * &price;
        component.bare_quantity += hours;
        return;
    }
    for (index, part) in own.into_iter().enumerate() {
        let hours = ratio(part * &micros, under.clone());
        component.cost[index] += &hours * &price;
        component.quantity[index] += hours;
    }
}

/// The weight scale of a set of rules.
pub(crate) fn scale_of(rules: &Rules) -> WeightScale {
    WeightScale::new(&rules.weights)
}

/// Greatest common divisor; that of zero and a number is the number.
pub(crate) fn gcd(a: u128, b: u128) -> u128 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
