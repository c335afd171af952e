//! Rows of shared charges (RULES.md, section 13): a row for each pod that bears a part of a charge, and one
//! row for each line that no pod bears. Weights are figures of all other rows, so these rows come last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dashu_int::UBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::PodUid;
use prorata_schemas::rows::{BilledLine, CostRow, RowKind};
use prorata_schemas::rules::Rules;
use prorata_schemas::rules::division::{ChargeDivision, DivideOver};

use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, Fraction, HOUR_MICROS, atoms, divide, ratio, sum};
use crate::model::slices::PodSlice;
use crate::model::state::LineAmounts;
use crate::rows::bill::{draft_line, magnitude};
use crate::rows::draft::{BillCost, Draft, RoundedRows, RowBook};
use crate::rows::in_order;
use crate::rules::bill::{HourBills, LinePart};
use crate::rules::division::{ChargeNames, Divisor, HourPod, SharedCharges};
use crate::timeline::Timeline;
use crate::trace::{DivisionStep, ExactNumber, Focus, RowStep};
use crate::work::Work;

/// The rows of shared charges, with the steps to the rows in focus.
#[derive(Debug)]
pub(crate) struct SharedRows {
    pub(crate) rounded: RoundedRows,
    pub(crate) steps: Vec<RowStep>,
    pub(crate) divisions: Vec<DivisionStep>,
}

/// Returns the rows of shared charges. `others` are the rounded rows of all other kinds.
///
/// # Errors
/// If an amount does not fit its column, or pods have too many rows.
pub(crate) fn rows(
    timeline: &Timeline,
    bills: &HourBills,
    rules: &Rules,
    others: &[Box<CostRow>],
    focus: Option<&Arc<Focus>>,
) -> Result<SharedRows, EngineError> {
    let pods = &timeline.slices.pods;
    let charges = SharedCharges::new(bills, pods, timeline.state.organization_id(), rules);
    let mut undivided = RowBook::default().traced(focus);
    charges.alone.iter().try_for_each(|part| draft_line(RowKind::SharedCharge, part, &mut undivided))?;
    let bearers = all_bearers(&charges, pods, others, rules)?;
    let work = Work::of_divided_rows(pods.len());
    let mut divided = Vec::new();
    for (names, parts) in &charges.divided {
        let Some(bearers) = bearers.get(&names.divisor).filter(|bearers| !bearers.pods.is_empty()) else {
            parts.iter().try_for_each(|part| draft_line(RowKind::SharedCharge, part, &mut undivided))?;
            continue;
        };
        let amounts = LineAmounts::sum_of(parts)?;
        if !amounts.is_free() {
            work.add(bearers.pods.len())?;
            divided.push(PodCharge { names, parts, amounts, bearers, rules });
        }
    }
    let drafted = in_order(&divided, 1, |charges| {
        let (mut book, mut steps) = (RowBook::default().traced(focus), Vec::new());
        for charge in charges {
            charge.draft(&mut book)?;
            steps.extend(focus.and_then(|focus| charge.step(focus)));
        }
        Ok((book, steps))
    })?;
    let (books, divisions): (Vec<RowBook>, Vec<Vec<DivisionStep>>) = drafted.into_iter().unzip();
    let mut book = RowBook::of(std::iter::once(undivided).chain(books).collect(), focus)?;
    let steps = book.take_trace();
    Ok(SharedRows { rounded: book.finish()?, steps, divisions: divisions.into_iter().flatten().collect() })
}

/// The pods that bear a charge, with their weights above zero, in order of the pods.
#[derive(Debug)]
struct Bearers<'a> {
    pods: Vec<(HourPod<'a>, UBig)>,
    /// The sum of the weights.
    total: UBig,
    /// The amount of weight that counts as 1 in an explanation.
    unit: UBig,
}

impl<'a> Bearers<'a> {
    fn new(pods: impl Iterator<Item = (HourPod<'a>, UBig)>, unit: UBig) -> Self {
        let pods: Vec<(HourPod<'a>, UBig)> = pods.filter(|(_, weight)| !weight.is_zero()).collect();
        let total = pods.iter().map(|(_, weight)| weight).sum();
        Self { pods, total, unit }
    }

    /// Weighs the pods of a volume by their time with it.
    fn of_volume(pods: &[(HourPod<'a>, u128)]) -> Self {
        Self::new(pods.iter().map(|(pod, time)| (*pod, UBig::from(*time))), UBig::from(HOUR_MICROS))
    }

    /// Weighs the pods of an entry. `figures` has the figures of all pods of the hour.
    fn of_entry(entry: &ChargeDivision, pods: &[HourPod<'a>], figures: &[PodFigures]) -> Self {
        let is_in_scope =
            |pod: &HourPod<'_>| entry.has_pods_of(&pod.description.cluster_id, &pod.description.namespace);
        let pods = pods.iter().copied().filter(is_in_scope);
        if entry.over == DivideOver::Pods {
            return Self::new(pods.map(|pod| (pod, UBig::from(pod.micros()))), UBig::from(HOUR_MICROS));
        }
        let figure = |pod: &HourPod<'_>| {
            figures.get(pod.place).map(|figures| figures.weight(entry.over)).unwrap_or_default()
        };
        // A weight below zero counts as zero.
        Self::new(pods.map(|pod| (pod, atoms(figure(&pod)))), ATOMS_IN_ONE)
    }

    fn in_units(&self, weight: &UBig) -> ExactNumber {
        ExactNumber::new(ratio(weight.clone(), self.unit.clone()))
    }
}

/// Returns the bearers of the charges of each volume and entry.
///
/// # Errors
/// If a figure of a pod does not fit its column.
fn all_bearers<'a, 'c>(
    charges: &'c SharedCharges<'a>,
    pods: &[(PodUid, Vec<PodSlice>)],
    others: &[Box<CostRow>],
    rules: &Rules,
) -> Result<BTreeMap<&'c Divisor, Bearers<'a>>, EngineError> {
    let divisors: BTreeSet<&Divisor> = charges.divided.keys().map(|names| &names.divisor).collect();
    let entry = |divisor: &Divisor| match divisor {
        Divisor::Volume(_) => None,
        Divisor::Entry(index) => rules.shared_charges.get(*index),
    };
    let needs_figures = |divisor: &&Divisor| entry(divisor).is_some_and(|it| it.over != DivideOver::Pods);
    let figures = if divisors.iter().any(needs_figures) { figures_of(pods, others)? } else { Vec::new() };
    let bearers = divisors.into_iter().map(|divisor| {
        let bearers = match (divisor, entry(divisor)) {
            (_, Some(entry)) => Bearers::of_entry(entry, &charges.pods, &figures),
            (Divisor::Volume(key), None) => {
                Bearers::of_volume(charges.volumes.get(key).map(Vec::as_slice).unwrap_or_default())
            }
            (Divisor::Entry(_), None) => Bearers::of_volume(&[]),
        };
        (divisor, bearers)
    });
    Ok(bearers.collect())
}

/// The sums of a pod's rows of other kinds.
#[derive(Clone, Copy, Debug, Default)]
struct PodFigures {
    effective_cost: Decimal12,
    cpu: Decimal12,
    memory: Decimal12,
    gpu: Decimal12,
}

impl PodFigures {
    fn add(&mut self, row: &CostRow) -> Result<(), EngineError> {
        self.effective_cost = sum([self.effective_cost, row.effective_cost])?;
        if let Some(hours) = row.allocated {
            self.cpu = sum([self.cpu, hours.cpu_core_hours])?;
            self.memory = sum([self.memory, hours.memory_gib_hours])?;
            self.gpu = sum([self.gpu, hours.gpu_hours])?;
        }
        Ok(())
    }

    /// Returns the figure by which pods divide charges, which may be below zero.
    fn weight(&self, over: DivideOver) -> Decimal12 {
        match over {
            DivideOver::Cost => self.effective_cost,
            DivideOver::Cpu => self.cpu,
            DivideOver::Memory => self.memory,
            DivideOver::Gpu => self.gpu,
            // The running time is no sum of rows.
            DivideOver::Pods => Decimal12::ZERO,
        }
    }
}

/// Returns the figures of each pod, in the order of the pods.
fn figures_of(
    pods: &[(PodUid, Vec<PodSlice>)],
    rows: &[Box<CostRow>],
) -> Result<Vec<PodFigures>, EngineError> {
    let mut figures = vec![PodFigures::default(); pods.len()];
    for row in rows {
        let place = row.pod_uid.as_ref().and_then(|uid| pods.binary_search_by(|(of, _)| of.cmp(uid)).ok());
        if let Some(figures) = place.and_then(|place| figures.get_mut(place)) {
            figures.add(row)?;
        }
    }
    Ok(figures)
}

/// A charge that pods bear.
struct PodCharge<'a> {
    names: &'a ChargeNames,
    parts: &'a [&'a LinePart],
    /// The sums of the parts.
    amounts: LineAmounts,
    bearers: &'a Bearers<'a>,
    rules: &'a Rules,
}

impl PodCharge<'_> {
    /// Adds a row for each pod to the book. The rows split each amount by weight.
    ///
    /// # Errors
    /// If an amount does not fit its column.
    fn draft(&self, book: &mut RowBook) -> Result<(), EngineError> {
        let Self { names, amounts, bearers, .. } = self;
        book.add_bill(BillCost { effective: amounts.effective, billed: amounts.billed })?;
        let weights = bearers.pods.iter().map(|(_, weight)| Fraction::new(weight.clone(), UBig::ONE));
        let weights: Vec<Fraction> = weights.collect();
        let weights: Vec<&Fraction> = weights.iter().collect();
        let effective = divide(amounts.effective, &weights)?;
        let again = |amount| {
            if amount == amounts.effective { Ok(effective.clone()) } else { divide(amount, &weights) }
        };
        let (billed, list) = (again(amounts.billed)?, again(amounts.list)?);
        let (hours, ratios) = (divide(amounts.hours, &weights)?, divide(Decimal12::ONE, &weights)?);
        let whole = magnitude(amounts.effective);
        let resource = match &names.divisor {
            Divisor::Volume(key) => key.clone(),
            Divisor::Entry(_) => "".into(),
        };
        let lines: Arc<[BilledLine]> = self.parts.iter().map(|part| part.line.clone()).collect();
        for (index, (pod, weight)) in bearers.pods.iter().enumerate() {
            let row = CostRow {
                cluster_id: Some(pod.description.cluster_id.clone()),
                pod_uid: Some(pod.uid.clone()),
                commitment_id: names.commitment_id.clone(),
                lines: lines.clone(),
                pricing_quantity: hours[index],
                billed_cost: billed[index],
                list_cost: list[index],
                allocated_ratio: Some(ratios[index]),
                pod: Some(pod.description.clone()),
                ..CostRow::new(RowKind::SharedCharge, resource.clone(), names.provider.clone())
            };
            let cost = Fraction::new(&whole * weight, bearers.total.clone());
            book.close(Draft::new(row, cost), effective[index])?;
        }
        Ok(())
    }

    /// Returns the step of the charge; `None` if nothing of it is in focus.
    fn step(&self, focus: &Focus) -> Option<DivisionStep> {
        let Self { names, parts, amounts, bearers, rules } = self;
        let in_focus = bearers.pods.iter().filter(|(pod, _)| focus.pods.contains(pod.uid));
        let weights: Vec<(PodUid, ExactNumber)> =
            in_focus.map(|(pod, weight)| (pod.uid.clone(), bearers.in_units(weight))).collect();
        let has_line = || parts.iter().any(|part| focus.bills.contains(&part.line.set.resource_key));
        let has_commitment = || names.commitment_id.as_ref().is_some_and(|id| focus.commitments.contains(id));
        if weights.is_empty() && !has_line() && !has_commitment() {
            return None;
        }
        let (volume, entry) = match &names.divisor {
            Divisor::Volume(key) => (Some(key.clone()), None),
            Divisor::Entry(index) => (None, Some(*index)),
        };
        let over = entry.and_then(|index| rules.shared_charges.get(index)).map(|entry| entry.over.name());
        Some(DivisionStep {
            provider: names.provider.clone(),
            billing_account_id: names.billing_account_id.clone(),
            service: names.service.clone(),
            volume,
            entry: entry.map(|index| index + 1),
            over,
            lines: parts.iter().map(|part| part.line.line().line_id.clone()).collect(),
            amounts: (*amounts).into(),
            pods: bearers.pods.len(),
            total_weight: bearers.in_units(&bearers.total),
            weights,
        })
    }
}
