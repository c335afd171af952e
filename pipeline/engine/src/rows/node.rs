//! Rows of one stretch of a node (RULES.md, sections 1 and 10). There is a row for each combination of price
//! component, pod and label, and there are idle rows.
//!
//! A pod's cost and quantities divide over components by the component's part of each resource, and over
//! labels by running time. Until a row is written, all numbers stay fractions over few common denominators:
//! see [`Fraction`].

use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::NodeStarted;
use prorata_schemas::ids::PodUid;
use prorata_schemas::rows::{CostRow, RowKind};
use prorata_schemas::rules::Rules;

use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, Fraction, atoms, gcd, largest_remainder, seconds, total};
use crate::model::per_resource::PerResource;
use crate::model::slices::NodeSlice;
use crate::model::state::NodeKey;
use crate::rows::bill::BillAmounts;
use crate::rows::draft::{ChargeKey, Draft, RowBook, SplitUnused};
use crate::rows::group::{LabelKey, LabelTime, PodHours, resource_hours};
use crate::rows::ratios::RatioBases;
use crate::rules::split::{Component, Shares, Stretch};
use crate::trace::NodeStep;

/// A value by resource over one denominator.
#[derive(Clone, Debug)]
struct Parts {
    numerators: PerResource<UBig>,
    denominator: UBig,
}

impl Parts {
    fn new(parts: &PerResource<RBig>) -> Self {
        Self::over(common_denominator(parts.iter()), parts)
    }

    /// Converts parts to this denominator, which must be a multiple of the denominator of every part.
    fn over(denominator: UBig, parts: &PerResource<RBig>) -> Self {
        let numerators = parts.as_ref().map(|part| {
            let Fraction { numerator, denominator: own } = Fraction::of(part);
            numerator * (&denominator / own)
        });
        Self { numerators, denominator }
    }

    /// Returns the part of these values that a pod bears.
    fn of_pod(&self, pod: &PerResource<UBig>, shares: &Shares) -> Self {
        let pairs = self.numerators.as_ref().zip(pod.as_ref());
        let numerators = pairs.map(|(numerator, part)| numerator * part);
        Self { numerators, denominator: &self.denominator * &shares.denominator }
    }

    fn scaled(&self, factor: Option<&Fraction>) -> Self {
        let Some(factor) = factor else { return self.clone() };
        let numerators = self.numerators.as_ref().map(|numerator| numerator * &factor.numerator);
        Self { numerators, denominator: &self.denominator * &factor.denominator }
    }

    fn total(&self) -> Fraction {
        Fraction::new(self.numerators.sum(), self.denominator.clone())
    }

    fn fractions(self) -> PerResource<Fraction> {
        let denominator = self.denominator;
        self.numerators.map(|numerator| Fraction::new(numerator, denominator.clone()))
    }
}

/// Returns the least common multiple of all denominators.
fn common_denominator<'a>(ratios: impl Iterator<Item = &'a RBig>) -> UBig {
    ratios.fold(UBig::ONE, |denominator, ratio| {
        let divisor = gcd(&denominator, ratio.denominator());
        denominator / divisor * ratio.denominator()
    })
}

/// The quantity, cost and commitment quantity of one component by resource.
struct ComponentParts {
    /// The quantity, over a denominator that all components of the stretch share.
    quantity: Parts,
    cost: Parts,
    commitment_quantity: Parts,
}

impl ComponentParts {
    /// Returns the parts of each component of a node.
    fn of_all(components: &[Component]) -> Vec<Self> {
        let hours = common_denominator(components.iter().flat_map(|component| component.quantity.iter()));
        let parts = components.iter().map(|component| Self {
            quantity: Parts::over(hours.clone(), &component.quantity),
            cost: Parts::new(&component.cost),
            commitment_quantity: Parts::new(&component.commitment_quantity),
        });
        parts.collect()
    }

    fn of_pod(&self, pod: &PerResource<UBig>, shares: &Shares) -> PodShare {
        PodShare {
            quantity: self.quantity.of_pod(pod, shares).total(),
            cost: self.cost.of_pod(pod, shares),
            commitment_quantity: self.commitment_quantity.of_pod(pod, shares).total(),
        }
    }
}

/// One pod's exact share of one component.
struct PodShare {
    quantity: Fraction,
    cost: Parts,
    commitment_quantity: Fraction,
}

impl PodShare {
    fn is_empty(&self) -> bool {
        self.quantity.is_zero() && self.cost.numerators.iter().all(UBig::is_zero)
    }
}

/// The input of the rows of one stretch.
pub(crate) struct StretchRows<'a> {
    pub(crate) key: &'a NodeKey,
    /// The node's last description.
    pub(crate) description: &'a Arc<NodeStarted>,
    pub(crate) stretch: &'a Stretch,
    /// The pods that ran in the stretch.
    pub(crate) pods: &'a [(PodUid, PodHours)],
    pub(crate) rules: &'a Rules,
    /// The node's slices. `None` if the steps are not wanted.
    pub(crate) trace: Option<&'a [NodeSlice]>,
}

impl StretchRows<'_> {
    /// Returns the number of rows that the pods may have in the stretch, besides the first row of each pod.
    pub(crate) fn further_rows(&self) -> usize {
        let components = self.stretch.components.len();
        let of_pod = |(_, pod): &(PodUid, PodHours)| (components * pod.labels.len()).saturating_sub(1);
        self.pods.iter().map(of_pod).sum()
    }

    /// Adds the rows of the pods and the idle rows to the book. Returns the steps; `None` if they are not
    /// wanted.
    ///
    /// # Errors
    /// If an amount does not fit its column, or the rows do not sum to the cost that commitments do not pay.
    pub(crate) fn draft(&self, book: &mut RowBook) -> Result<Option<NodeStep>, EngineError> {
        let components = &self.stretch.components;
        let allocated: Vec<PerResource<UBig>> =
            self.pods.iter().map(|(_, pod)| pod.allocated(self.rules)).collect();
        let shares = Shares::new(&allocated, &self.stretch.available);
        let bases = RatioBases::new(&allocated, &self.stretch.available);
        let trace = self.trace.map(|slices| self.step(slices, &allocated, &shares));
        let parts = ComponentParts::of_all(components);
        // Most pods have one row for each component, and most components have one idle row.
        let rows = self.pods.len() + 1;
        let mut by_component: Vec<Vec<Draft>> = parts.iter().map(|_| Vec::with_capacity(rows)).collect();
        for (((uid, pod), allocated), part) in self.pods.iter().zip(&allocated).zip(&shares.parts) {
            let pod_shares: Vec<PodShare> =
                parts.iter().map(|component| component.of_pod(part, &shares)).collect();
            let pod = Pod { uid, hours: pod, allocated, bases: &bases, shares: &pod_shares };
            self.draft_pod(&pod, &parts, &shares, &mut by_component)?;
        }
        for (component, mut rows) in components.iter().zip(by_component) {
            rows.extend(self.draft_idle(component, &shares)?);
            set_ratios(component, &mut rows)?;
            match (&component.bill, &component.commitment) {
                (Some(bill), _) => book.add_billed(BillAmounts::of_component(bill), rows)?,
                (None, None) => book.add_node(&component.total_cost(), rows)?,
                (None, Some(commitment)) => {
                    let charge = ChargeKey::Commitment(commitment.commitment_id.clone());
                    rows.into_iter().for_each(|draft| book.add_open(charge.clone(), draft));
                }
            }
        }
        Ok(trace)
    }

    fn draft_pod(
        &self,
        pod: &Pod<'_>,
        parts: &[ComponentParts],
        shares: &Shares,
        by_component: &mut [Vec<Draft>],
    ) -> Result<(), EngineError> {
        let kept: Vec<usize> = (0..pod.shares.len()).filter(|index| !pod.shares[*index].is_empty()).collect();
        let Some(&first) = kept.first() else {
            // A pod without a share of anything still has one row, with all its time in the stretch.
            if let Some((label, time)) = pod.hours.labels.iter().next() {
                let charges = pod.hours.labels.values().filter_map(|time| time.charge.clone());
                let charge = charges.reduce(|a, b| a + b);
                let time = LabelTime { micros: pod.hours.micros, charge, ..time.clone() };
                let row = PodRow { pod, label, time: &time, component: 0, factors: None };
                by_component[0].push(self.pod_row(&row, shares)?);
            }
            return Ok(());
        };
        let factors = component_factors(parts, pod.shares, &kept, first);
        for component in kept {
            for (label, time) in &pod.hours.labels {
                let factors = factors.as_ref().map(|factors| &factors[component]);
                let row = PodRow { pod, label, time, component, factors };
                by_component[component].push(self.pod_row(&row, shares)?);
            }
        }
        Ok(())
    }

    fn pod_row(&self, row: &PodRow<'_>, shares: &Shares) -> Result<Draft, EngineError> {
        let component = &self.stretch.components[row.component];
        let share = &row.pod.shares[row.component];
        let label_part = row.label_part();
        let scaled = |fraction: &Fraction| match &label_part {
            Some(part) => fraction.product(part),
            None => fraction.clone(),
        };
        let resources = share.cost.scaled(label_part.as_ref());
        let cost = resources.total();
        let split = shares.split.as_ref().map(|parts| {
            let pairs = resources.numerators.as_ref().zip(parts.numerators.as_ref());
            let split = pairs.map(|(cost, part)| cost * part).sum();
            let unused = &cost.numerator * &parts.denominator - &split;
            let denominator = &cost.denominator * &parts.denominator;
            SplitUnused {
                split: Fraction::new(split, denominator.clone()),
                unused: Fraction::new(unused, denominator),
            }
        });
        let mut draft = self.component_row(component, RowKind::PodNode, scaled(&share.quantity), cost)?;
        if component.commitment.is_some() {
            draft.row.commitment_quantity = Some(scaled(&share.commitment_quantity).round()?);
        }
        draft.cost.split = split;
        draft.cost.resources = Some(resources.fractions());
        fill_pod(&mut draft, row, label_part.as_ref())?;
        Ok(draft)
    }

    fn draft_idle(&self, component: &Component, shares: &Shares) -> Result<Option<Draft>, EngineError> {
        let idle = |parts: &PerResource<RBig>, weightless: &RBig| {
            let parts = parts.as_ref().zip(shares.allocated).into_iter();
            let idle = parts.filter(|(_, allocated)| !allocated).map(|(part, _)| part);
            Fraction::of(&(total(idle) + weightless))
        };
        let quantity = idle(&component.quantity, &component.weightless_quantity);
        let cost = idle(&component.cost, &component.weightless_cost);
        if quantity.is_zero() && cost.is_zero() {
            return Ok(None);
        }
        let mut draft = self.component_row(component, RowKind::NodeIdle, quantity, cost)?;
        if component.commitment.is_some() {
            let hours = idle(&component.commitment_quantity, &component.weightless_commitment_quantity);
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
        let node = self.description;
        let list = quantity.times(&atoms(component.unit_price));
        let row = CostRow {
            cluster_id: Some(self.key.0.clone()),
            commitment_id: component.commitment.as_ref().map(|commitment| commitment.commitment_id.clone()),
            list_unit_price: component.unit_price.into(),
            unpriced: component.unpriced,
            pricing_quantity: quantity.round()?,
            list_cost: list.round_atoms()?,
            node: Some(node.clone()),
            commitment: component.commitment.clone(),
            ..CostRow::new(kind, self.key.1.clone().into(), node.provider.clone())
        };
        let row = match component.bill.as_deref() {
            Some(bill) => CostRow {
                commitment_id: bill.commitment_id.clone(),
                commitment: bill.commitment.clone(),
                lines: bill.lines.clone(),
                ..row
            },
            None => row,
        };
        Ok(Draft { quantity, ..Draft::new(row, cost) })
    }
}

/// Factors of one component for a pod's time and quantities.
#[derive(Clone, Debug)]
struct Factors {
    time: Fraction,
    resources: PerResource<Fraction>,
}

/// Returns the factors by which a pod's quantities divide over components. Each resource divides by the
/// component's part of the resource. Time, and a resource that the node lacks, divide by the pod's quantity.
/// Returns `None` if there is only one component.
///
/// All quantities of a stretch's components share one denominator, and so do the quantities of a pod. So the
/// numerators are enough for the factors.
fn component_factors(
    parts: &[ComponentParts],
    pod_shares: &[PodShare],
    kept: &[usize],
    first: usize,
) -> Option<Vec<Factors>> {
    if pod_shares.len() == 1 {
        return None;
    }
    let all: UBig = pod_shares.iter().map(|share| &share.quantity.numerator).sum();
    // Count only components for which the pod has a row: a quantity must not go to a row that does not exist.
    let mut sums = PerResource::<UBig>::default();
    for index in kept {
        sums += parts[*index].quantity.numerators.as_ref();
    }
    let factors = pod_shares.iter().zip(parts).enumerate().map(|(index, (share, component))| {
        let time = if !all.is_zero() {
            Fraction::new(share.quantity.numerator.clone(), all.clone())
        } else if index == first {
            Fraction::one()
        } else {
            Fraction::zero()
        };
        let resources = component.quantity.numerators.as_ref().zip(sums.as_ref());
        let resources = resources.map(|(part, sum)| {
            if sum.is_zero() { time.clone() } else { Fraction::new(part.clone(), sum.clone()) }
        });
        Factors { time, resources }
    });
    Some(factors.collect())
}

impl Factors {
    fn by_label(factors: Option<&Self>, label: &Fraction) -> Self {
        match factors {
            Some(factors) => Self {
                time: factors.time.product(label),
                resources: factors.resources.as_ref().map(|factor| factor.product(label)),
            },
            None => Self { time: label.clone(), resources: PerResource::all(label.clone()) },
        }
    }
}

/// One pod in the stretch.
struct Pod<'a> {
    uid: &'a PodUid,
    hours: &'a PodHours,
    allocated: &'a PerResource<UBig>,
    bases: &'a RatioBases,
    /// The pod's share of each component.
    shares: &'a [PodShare],
}

/// One row of the product of a pod's components and labels.
struct PodRow<'a> {
    pod: &'a Pod<'a>,
    label: &'a LabelKey,
    time: &'a LabelTime,
    /// The index of the component.
    component: usize,
    factors: Option<&'a Factors>,
}

impl PodRow<'_> {
    /// Returns the label's part of the pod's time. `None` if it is all of the time.
    fn label_part(&self) -> Option<Fraction> {
        let (part, whole) = (self.time.micros, self.pod.hours.micros);
        (part != whole).then(|| Fraction::new(UBig::from(part), UBig::from(whole)))
    }
}

/// Fills in the fields of a row that describe the pod: label, time and quantities.
fn fill_pod(draft: &mut Draft, row: &PodRow<'_>, label: Option<&Fraction>) -> Result<(), EngineError> {
    let factors = match (row.factors, label) {
        (None, None) => None,
        (Some(factors), None) => Some(factors.clone()),
        (factors, Some(label)) => Some(Factors::by_label(factors, label)),
    };
    let resources = factors.as_ref().map(|factors| &factors.resources);
    let hours = row.pod.hours;
    let out = &mut draft.row;
    out.pod_uid = Some(row.pod.uid.clone());
    out.pod = Some(row.time.description.clone());
    (out.quota_id, out.quota_state) = (row.label.quota_id.clone(), row.label.quota_state);
    out.unpriced = row.time.unpriced.or(out.unpriced);
    out.allocated = Some(resource_hours(row.pod.allocated, resources)?);
    out.requested = Some(resource_hours(&hours.requested, resources)?);
    out.used = hours.used.as_ref().map(|used| resource_hours(used, resources)).transpose()?;
    [out.split_usage, out.unused] = row.pod.bases.of(row.pod.allocated, resources)?;
    let running = seconds(hours.micros)?;
    out.running_seconds = Some(match &factors {
        Some(factors) => factors.time.times(&atoms(running)).round_atoms()?,
        None => running,
    });
    // The charge is already accrued by label. Only components divide it.
    draft.pool_charge = row.time.charge.as_ref().map(|charge| match row.factors {
        Some(factors) => charge * factors.time.reduced(),
        None => charge.clone(),
    });
    Ok(())
}

/// Sets each row's part of the component: by cost, or by quantity if the component costs nothing. The parts
/// sum to 1.
fn set_ratios(component: &Component, rows: &mut [Draft]) -> Result<(), EngineError> {
    let cost = component.total_cost();
    let by_cost = !cost.is_zero() && component.bill.is_none();
    let whole = if by_cost { cost } else { component.total_quantity() };
    if rows.is_empty() || whole.is_zero() {
        return Ok(());
    }
    let part = |row: &Draft| if by_cost { row.cost.whole.clone() } else { row.quantity.clone() };
    let parts = parts_of_one(rows.iter().map(part).collect(), &whole);
    let shares = largest_remainder(Decimal12::ONE, &parts.iter().collect::<Vec<_>>())?;
    for (row, share) in rows.iter_mut().zip(shares) {
        row.row.allocated_ratio = Some(share);
    }
    Ok(())
}

/// Returns each part divided by the whole, in atoms. The parts add up to the whole.
fn parts_of_one(mut parts: Vec<Fraction>, whole: &RBig) -> Vec<Fraction> {
    let Some(first) = parts.first().map(|part| part.denominator.clone()) else { return parts };
    if parts.iter().all(|part| part.denominator == first) {
        // The whole is the sum of the numerators over that denominator.
        let sum: UBig = parts.iter().map(|part| &part.numerator).sum();
        for part in &mut parts {
            part.numerator *= ATOMS_IN_ONE;
            part.denominator = sum.clone();
        }
        return parts;
    }
    let whole = Fraction::of(whole);
    for part in &mut parts {
        part.numerator *= &whole.denominator * ATOMS_IN_ONE;
        part.denominator *= &whole.numerator;
    }
    parts
}
