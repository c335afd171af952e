//! Rows of one node: the product of its price components with its pods and their labels, and its idle rows.

use dashu_int::UBig;
use dashu_int::ops::Gcd;
use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::PodUid;
use prorata_schemas::rows::{CostRow, RowKind};
use prorata_schemas::rules::Rules;

use crate::error::EngineError;
use crate::exact::{Fraction, largest_remainder, one, ratio, round, units};
use crate::rows::draft::{Charge, Draft, Totals};
use crate::rows::pod_hours::{LabelKey, LabelTime, PodHours, resource_hours};
use crate::rules::split::{Component, NodeHour, RESOURCES, gcd};
use crate::timeline::state::NodeKey;

/// How pods share the resources of a node. A pod's part of a sum `x_r` over resources is
/// `sum(x_r x part_pr) / whole`.
struct Shares {
    /// By pod and resource.
    parts: Vec<[UBig; RESOURCES]>,
    whole: UBig,
    /// Whether anybody was allocated the resource.
    allocated: [bool; RESOURCES],
    /// Split part of each resource, where any is not wholly split: over and under.
    split: Option<([UBig; RESOURCES], UBig)>,
}

impl Shares {
    fn new(pods: &[[u128; RESOURCES]], available: [u128; RESOURCES]) -> Self {
        let mut sums = [0_u128; RESOURCES];
        let mut divisors = [0_u128; RESOURCES];
        for amounts in pods {
            for index in 0..RESOURCES {
                sums[index] += amounts[index];
                divisors[index] = gcd(divisors[index], amounts[index]);
            }
        }
        let reduced = |amount: u128, index: usize| UBig::from(amount / divisors[index].max(1));
        let mut whole = UBig::ONE;
        for index in (0..RESOURCES).filter(|index| sums[*index] > 0) {
            whole *= reduced(sums[index], index);
        }
        let mut others: [UBig; RESOURCES] = Default::default();
        for index in (0..RESOURCES).filter(|index| sums[*index] > 0) {
            others[index] = &whole / reduced(sums[index], index);
        }
        let parts = pods.iter().map(|amounts| {
            let mut part: [UBig; RESOURCES] = Default::default();
            for index in 0..RESOURCES {
                part[index] = &others[index] * reduced(amounts[index], index);
            }
            part
        });
        Self {
            parts: parts.collect(),
            whole,
            allocated: sums.map(|sum| sum > 0),
            split: split_parts(sums, available),
        }
    }
}

/// Split parts `S_r / T_r` over a common denominator; none when all are 1.
fn split_parts(sums: [u128; RESOURCES], available: [u128; RESOURCES]) -> Option<([UBig; RESOURCES], UBig)> {
    let partial = |index: usize| sums[index] > 0 && sums[index] < available[index];
    if !(0..RESOURCES).any(partial) {
        return None;
    }
    let mut fractions = [(1_u128, 1_u128); RESOURCES];
    for index in (0..RESOURCES).filter(|index| partial(*index)) {
        let divisor = gcd(sums[index], available[index]).max(1);
        fractions[index] = (sums[index] / divisor, available[index] / divisor);
    }
    let under: UBig = fractions.iter().map(|(_, under)| UBig::from(*under)).product();
    let over = fractions.map(|(over, part)| UBig::from(over) * (&under / UBig::from(part)));
    Some((over, under))
}

/// A component's parts by resource over one denominator.
struct Parts {
    over: [UBig; RESOURCES],
    under: UBig,
}

impl Parts {
    fn new(parts: &[RBig; RESOURCES]) -> Self {
        let mut under = UBig::ONE;
        for part in parts {
            let divisor = (&under).gcd(part.denominator());
            under = &under / divisor * part.denominator();
        }
        let mut over: [UBig; RESOURCES] = Default::default();
        for (slot, part) in over.iter_mut().zip(parts) {
            *slot = Fraction::of(part).over * (&under / part.denominator());
        }
        Self { over, under }
    }

    fn of_pod(&self, shares: &Shares, pod: &[UBig; RESOURCES]) -> [Fraction; RESOURCES] {
        let under = &self.under * &shares.whole;
        let mut parts = [Fraction::zero(), Fraction::zero(), Fraction::zero()];
        for index in 0..RESOURCES {
            parts[index] = Fraction::new(&self.over[index] * &pod[index], under.clone());
        }
        parts
    }
}

/// The sum of fractions of one denominator.
fn total(parts: &[Fraction; RESOURCES]) -> Fraction {
    let [first, second, third] = parts;
    Fraction::new(&first.over + &second.over + &third.over, first.under.clone())
}

/// One pod's exact share of one component.
struct PodShare {
    quantity: Fraction,
    cost: [Fraction; RESOURCES],
    commitment_hours: Fraction,
}

impl PodShare {
    fn is_empty(&self) -> bool {
        self.quantity.is_zero() && self.cost.iter().all(Fraction::is_zero)
    }
}

/// Everything that the rows of one node are made from.
pub(crate) struct NodeRows<'a> {
    pub(crate) key: &'a NodeKey,
    pub(crate) node: &'a NodeHour,
    pub(crate) pods: &'a [(PodUid, PodHours)],
    pub(crate) rules: &'a Rules,
}

impl NodeRows<'_> {
    /// Adds the rows of the node's pods to `drafts`, its idle rows to `idle` (so that both stay nearly in table order),
    /// and its own-price charges to `totals`.
    pub(crate) fn draft(
        &self,
        drafts: &mut Vec<Draft>,
        idle: &mut Vec<Draft>,
        totals: &mut Totals,
    ) -> Result<(), EngineError> {
        let allocated: Vec<[u128; RESOURCES]> =
            self.pods.iter().map(|(_, pod)| pod.allocated(self.rules)).collect();
        let shares = Shares::new(&allocated, self.node.available);
        let mut by_component: Vec<Vec<Draft>> = self.node.components.iter().map(|_| Vec::new()).collect();
        let parts: Vec<[Parts; 3]> = self.node.components.iter().map(component_parts).collect();
        for (index, (uid, pod)) in self.pods.iter().enumerate() {
            let pod_shares: Vec<PodShare> =
                parts.iter().map(|parts| pod_share(parts, &shares, &shares.parts[index])).collect();
            self.draft_pod(uid, pod, allocated[index], (&shares, &pod_shares), &mut by_component)?;
        }
        for (component, mut rows) in self.node.components.iter().zip(by_component) {
            rows.extend(self.draft_idle(component, &shares)?);
            set_ratios(component, &mut rows)?;
            if component.commitment.is_none() {
                let charge = Charge::Own(self.key.clone(), component.unit_price);
                totals.insert(charge, component.total_cost());
            }
            let pods = rows.iter().take_while(|draft| draft.row.kind == RowKind::PodNode).count();
            idle.extend(rows.drain(pods..));
            drafts.append(&mut rows);
        }
        Ok(())
    }

    fn draft_pod(
        &self,
        uid: &PodUid,
        pod: &PodHours,
        allocated: [u128; RESOURCES],
        (shares, pod_shares): (&Shares, &[PodShare]),
        by_component: &mut [Vec<Draft>],
    ) -> Result<(), EngineError> {
        let kept: Vec<usize> = (0..pod_shares.len()).filter(|index| !pod_shares[*index].is_empty()).collect();
        let Some(&first) = kept.first() else {
            // A pod with no share of anything still has one row, with all its time.
            if let Some((label, time)) = pod.labels.iter().next() {
                let charges = pod.labels.values().filter_map(|time| time.charge.clone());
                let time =
                    LabelTime { micros: pod.micros, charge: charges.reduce(|a, b| a + b), ..time.clone() };
                let row =
                    PodRow { uid, pod, allocated, shares, label, time: &time, component: 0, factors: None };
                by_component[0].push(self.pod_row(&row, &pod_shares[0])?);
            }
            return Ok(());
        };
        let factors = self.component_factors(pod_shares, &kept, first);
        for index in kept {
            for (label, time) in &pod.labels {
                let factors = factors.as_ref().map(|factors| &factors[index]);
                let row = PodRow { uid, pod, allocated, shares, label, time, component: index, factors };
                by_component[index].push(self.pod_row(&row, &pod_shares[index])?);
            }
        }
        Ok(())
    }

    /// How a pod's quantities divide over components: each resource by the component's part of it, time and what the
    /// node has none of by the pod's quantity. None with one component.
    fn component_factors(
        &self,
        pod_shares: &[PodShare],
        kept: &[usize],
        first: usize,
    ) -> Option<Vec<Factors>> {
        if pod_shares.len() == 1 {
            return None;
        }
        let quantities: Vec<RBig> = pod_shares
            .iter()
            .map(|share| ratio(share.quantity.over.clone(), share.quantity.under.clone()))
            .collect();
        let all = quantities.iter().fold(RBig::ZERO, |sum, part| sum + part);
        let mut factors = Vec::with_capacity(pod_shares.len());
        for (index, quantity) in quantities.iter().enumerate() {
            let time = if all == RBig::ZERO {
                if index == first { RBig::ONE } else { RBig::ZERO }
            } else {
                quantity / &all
            };
            let mut resources = [time.clone(), time.clone(), time.clone()];
            for (resource, factor) in resources.iter_mut().enumerate() {
                // Only components of which the pod has a row: a quantity must not go to a row that is not there.
                let parts = kept.iter().map(|index| &self.node.components[*index].quantity[resource]);
                let sum = parts.fold(RBig::ZERO, |sum, part| sum + part);
                if sum != RBig::ZERO {
                    *factor = &self.node.components[index].quantity[resource] / sum;
                }
            }
            factors.push(Factors { time, resources });
        }
        Some(factors)
    }

    fn pod_row(&self, row: &PodRow<'_>, share: &PodShare) -> Result<Draft, EngineError> {
        let component = &self.node.components[row.component];
        let label_part = row.label_part();
        let scale = |fraction: &Fraction| match &label_part {
            Some((over, under)) => Fraction::new(&fraction.over * over, &fraction.under * under),
            None => fraction.clone(),
        };
        let [cpu, memory, gpu] = &share.cost;
        let resources = [scale(cpu), scale(memory), scale(gpu)];
        let cost = total(&resources);
        let split = row.shares.split.as_ref().map(|(over, under)| {
            let split =
                resources.iter().zip(over).fold(UBig::ZERO, |sum, (part, over)| sum + &part.over * over);
            let under = &cost.under * under;
            let unused = &cost.over * (&under / &cost.under) - &split;
            [Fraction::new(split, under.clone()), Fraction::new(unused, under)]
        });
        let mut draft = self.component_row(component, RowKind::PodNode, scale(&share.quantity), cost)?;
        if component.commitment.is_some() {
            draft.row.commitment_quantity = Some(scale(&share.commitment_hours).round()?);
        }
        draft.split = split;
        draft.resources = Some(resources);
        self.fill_pod(&mut draft, row, label_part.map(|(over, under)| ratio(over, under)))?;
        Ok(draft)
    }

    fn fill_pod(&self, draft: &mut Draft, row: &PodRow<'_>, label: Option<RBig>) -> Result<(), EngineError> {
        let factors = match (row.factors, &label) {
            (None, None) => None,
            (Some(factors), None) => Some(factors.clone()),
            (factors, Some(label)) => Some(Factors::by_label(factors, label)),
        };
        let resources = factors.as_ref().map(|factors| &factors.resources);
        let out = &mut draft.row;
        out.pod_uid = Some(row.uid.clone());
        out.pod = Some(row.pod.description.clone());
        (out.quota_id, out.quota_state) = (row.label.0.clone(), row.label.1);
        out.unpriced = row.time.unpriced;
        out.allocated = Some(resource_hours(row.allocated, resources)?);
        out.requested = Some(resource_hours(row.pod.requested, resources)?);
        out.used = row.pod.used.map(|used| resource_hours(used, resources)).transpose()?;
        let seconds = ratio(UBig::from(row.pod.micros), UBig::from(1_000_000u32));
        out.running_seconds = Some(match &factors {
            Some(factors) => round(&(seconds * &factors.time))?,
            None => round(&seconds)?,
        });
        // The charge has been accrued by label already; only components divide it.
        draft.pool_charge = row.time.charge.as_ref().map(|charge| match row.factors {
            Some(factors) => charge * &factors.time,
            None => charge.clone(),
        });
        Ok(())
    }

    fn draft_idle(&self, component: &Component, shares: &Shares) -> Result<Option<Draft>, EngineError> {
        let idle = |parts: &[RBig; RESOURCES], bare: &RBig| {
            let idle = parts.iter().zip(shares.allocated).filter(|(_, allocated)| !allocated);
            Fraction::of(&idle.fold(bare.clone(), |sum, (part, _)| sum + part))
        };
        let quantity = idle(&component.quantity, &component.bare_quantity);
        let cost = idle(&component.cost, &component.bare_cost);
        if quantity.is_zero() && cost.is_zero() {
            return Ok(None);
        }
        let mut draft = self.component_row(component, RowKind::NodeIdle, quantity, cost)?;
        if component.commitment.is_some() {
            let hours = idle(&component.commitment_hours, &RBig::ZERO);
            draft.row.commitment_quantity = Some(hours.round()?);
        }
        Ok(Some(draft))
    }

    fn component_row(
        &self,
        component: &Component,
        kind: RowKind,
        quantity: Fraction,
        cost: Fraction,
    ) -> Result<Draft, EngineError> {
        let node = &self.node.description;
        let list = quantity.times(&units(component.unit_price));
        let row = CostRow {
            cluster_id: Some(self.key.0.clone()),
            commitment_id: component.commitment.as_ref().map(|commitment| commitment.commitment_id.clone()),
            list_unit_price: component.unit_price,
            pricing_quantity: quantity.round()?,
            list_cost: list.round_units()?,
            node: Some(node.clone()),
            commitment: component.commitment.clone(),
            ..CostRow::new(kind, self.key.1.clone().into(), node.provider.clone())
        };
        let charge = match &component.commitment {
            Some(commitment) => Charge::Commitment(commitment.commitment_id.clone()),
            None => Charge::Own(self.key.clone(), component.unit_price),
        };
        Ok(Draft { row, charge, cost, quantity, split: None, resources: None, pool_charge: None })
    }
}

/// Factors of one component for a pod's time and quantities.
#[derive(Clone, Debug)]
struct Factors {
    time: RBig,
    resources: [RBig; RESOURCES],
}

impl Factors {
    fn by_label(factors: Option<&Self>, label: &RBig) -> Self {
        match factors {
            Some(factors) => Self {
                time: &factors.time * label,
                resources: factors.resources.clone().map(|factor| factor * label),
            },
            None => Self { time: label.clone(), resources: [label.clone(), label.clone(), label.clone()] },
        }
    }
}

/// One row of the product of a pod's components and labels.
struct PodRow<'a> {
    uid: &'a PodUid,
    pod: &'a PodHours,
    allocated: [u128; RESOURCES],
    shares: &'a Shares,
    label: &'a LabelKey,
    time: &'a LabelTime,
    component: usize,
    factors: Option<&'a Factors>,
}

impl PodRow<'_> {
    /// The label's part of the pod's time; none when it is all of it.
    fn label_part(&self) -> Option<(UBig, UBig)> {
        let whole = self.time.micros == self.pod.micros;
        (!whole).then(|| (UBig::from(self.time.micros), UBig::from(self.pod.micros)))
    }
}

fn component_parts(component: &Component) -> [Parts; 3] {
    [Parts::new(&component.quantity), Parts::new(&component.cost), Parts::new(&component.commitment_hours)]
}

fn pod_share([quantity, cost, hours]: &[Parts; 3], shares: &Shares, pod: &[UBig; RESOURCES]) -> PodShare {
    PodShare {
        quantity: total(&quantity.of_pod(shares, pod)),
        cost: cost.of_pod(shares, pod),
        commitment_hours: total(&hours.of_pod(shares, pod)),
    }
}

/// Gives each row its part of the component, by cost, or by quantity where it costs nothing. They sum to 1.
fn set_ratios(component: &Component, rows: &mut [Draft]) -> Result<(), EngineError> {
    let cost = component.total_cost();
    let by_cost = cost != RBig::ZERO;
    let whole = if by_cost { cost } else { component.total_quantity() };
    if rows.is_empty() || whole == RBig::ZERO {
        return Ok(());
    }
    let whole = Fraction::of(&whole);
    let parts: Vec<Fraction> = rows
        .iter()
        .map(|row| {
            let part = if by_cost { row.cost.clone() } else { row.quantity.clone() };
            Fraction::new(part.over * &whole.under * one(), part.under * &whole.over)
        })
        .collect();
    let shares = largest_remainder(Decimal12::ONE, &parts.iter().collect::<Vec<_>>())?;
    for (row, share) in rows.iter_mut().zip(shares) {
        row.row.allocated_ratio = Some(share);
    }
    Ok(())
}
