//! Groups the slices of pods by place, and groups one pod's hour in one place by its quota labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use litemap::LiteMap;
use prorata_schemas::event::{Labels, PodStarted};
use prorata_schemas::ids::{PodUid, QuotaId};
use prorata_schemas::rows::{QuotaState, ResourceHours, Unpriced};
use prorata_schemas::rules::{Allocation, Rules};

use crate::error::EngineError;
use crate::exact::{Fraction, HOUR_MICROS, hours, round, round_quotient};
use crate::model::named_nodes::{ByNode, NamedNodes};
use crate::model::per_resource::{PARTS_PER_UNIT, PerResource};
use crate::model::pool_price::PoolPricing;
use crate::model::samples::Samples;
use crate::model::slices::PodSlice;
use crate::model::span::Span;
use crate::model::state::{NodeKey, Sample};
use crate::rules::pool::{ChargeSpan, charges};
use crate::rules::split::StretchTimes;

/// A pod in one place.
#[derive(Debug)]
pub(crate) struct PlacedPod<'a> {
    pub(crate) uid: &'a PodUid,
    /// The pod's slices in this place, in order of time.
    pub(crate) slices: Vec<&'a PodSlice>,
    /// The pod's measured use, wherever the pod was; `None` if it was not measured.
    pub(crate) samples: Option<&'a Samples>,
}

/// Slices of pods by the place where they count.
#[derive(Debug)]
pub(crate) struct Placement<'a> {
    /// Slices on the node that the pod names.
    pub(crate) on_nodes: ByNode<'a, Vec<PlacedPod<'a>>>,
    /// Slices in which the node that the pod names does not run.
    pub(crate) on_unknown_nodes: BTreeMap<&'a NodeKey, Vec<PlacedPod<'a>>>,
    /// Slices of pods that name no node.
    pub(crate) nodeless: Vec<PlacedPod<'a>>,
}

impl<'a> Placement<'a> {
    /// Places all slices. A pod that moves or changes its description may be in several places.
    pub(crate) fn new(
        pods: &'a [(PodUid, Vec<PodSlice>)],
        samples: &'a [(PodUid, Samples)],
        named: &'a NamedNodes,
    ) -> Self {
        let (on_nodes, nodeless) = (ByNode::new(named), Vec::new());
        let mut placement = Self { on_nodes, on_unknown_nodes: BTreeMap::new(), nodeless };
        // Both are sorted: walking them side by side is faster than looking each pod up.
        let mut samples = samples.iter().peekable();
        for (uid, slices) in pods {
            while samples.next_if(|(of, _)| of < uid).is_some() {}
            let samples = samples.next_if(|(of, _)| of == uid).map(|(_, samples)| samples);
            for slice in slices {
                let place = match (slice.spec.node, slice.status.node_runs) {
                    (Some(node), true) => placement.on_nodes.of_mut(node),
                    (Some(node), false) => placement.on_unknown_nodes.entry(named.key(node)).or_default(),
                    (None, _) => &mut placement.nodeless,
                };
                match place.last_mut() {
                    Some(last) if std::ptr::eq(last.uid, uid) => last.slices.push(slice),
                    _ => place.push(PlacedPod { uid, slices: vec![slice], samples }),
                }
            }
        }
        placement
    }
}

/// The properties of a pod that split its rows in one place. Keys sort as rows do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LabelKey {
    pub(crate) quota_id: Option<QuotaId>,
    pub(crate) quota_state: Option<QuotaState>,
    /// The reason for having no price.
    unpriced: Option<&'static str>,
    /// The Kubernetes labels.
    labels: Labels,
}

/// Time under one label.
#[derive(Clone, Debug)]
pub(crate) struct LabelTime {
    /// The last description under the label.
    pub(crate) description: Arc<PodStarted>,
    pub(crate) micros: u128,
    /// Accrued pool charge, in atoms. `None` without a pool price.
    pub(crate) charge: Option<RBig>,
    pub(crate) unpriced: Option<Unpriced>,
}

/// One pod's hour in one place, or its time in one stretch of a node. Amounts are in thousandths or bytes,
/// times microseconds.
#[derive(Clone, Debug)]
pub(crate) struct PodHours {
    pub(crate) micros: u128,
    pub(crate) requested: PerResource<UBig>,
    /// `None` if no sample overlaps.
    pub(crate) used: Option<PerResource<UBig>>,
    pub(crate) labels: LiteMap<LabelKey, LabelTime>,
}

impl PodHours {
    /// Adds up the slices of a pod. Returns `None` if there are none.
    pub(crate) fn gather(pod: &PlacedPod<'_>, rules: &Rules) -> Option<Self> {
        pod.slices.first()?;
        let mut hours = Self::new();
        for slice in &pod.slices {
            hours.add(slice, slice.span.micros());
            add_use(&mut hours.used, slice.span, pod.samples);
            for charge in charge_spans(slice, rules) {
                hours.label(slice).accrue(&charge, charge.span.micros());
            }
        }
        Some(hours)
    }

    /// Adds up the slices of a pod by stretches of its node. Returns the stretches in which the pod ran, by
    /// index.
    pub(crate) fn by_stretch(
        pod: &PlacedPod<'_>,
        times: &StretchTimes,
        rules: &Rules,
    ) -> BTreeMap<usize, Self> {
        let mut stretches: BTreeMap<usize, Self> = BTreeMap::new();
        let mut add = |span: Span, add: &dyn Fn(&mut Self, u128)| {
            for (stretch, micros) in times.within(span) {
                add(stretches.entry(stretch).or_insert_with(Self::new), micros);
            }
        };
        let parts = pod.samples.map(Samples::parts).unwrap_or_default();
        for slice in &pod.slices {
            add(slice.span, &|hours, micros| hours.add(slice, micros));
            for part in overlapping(&parts, slice.span) {
                if let Some(span) = Span::new(part.from, part.to).and_then(|part| part.overlap(slice.span)) {
                    let used = |micros| part.use_amounts.map(|amount| UBig::from(amount) * micros);
                    add(span, &|hours, micros| *hours.used.get_or_insert_default() += used(micros));
                }
            }
            for charge in charge_spans(slice, rules) {
                add(charge.span, &|hours, micros| hours.label(slice).accrue(&charge, micros));
            }
        }
        stretches
    }

    fn new() -> Self {
        Self {
            micros: 0,
            requested: PerResource::default(),
            used: None,
            // Most pods have one label.
            labels: LiteMap::with_capacity(1),
        }
    }

    /// Adds this much time of a slice.
    fn add(&mut self, slice: &PodSlice, micros: u128) {
        self.micros += micros;
        self.requested += slice.spec.requests.map(|amount| UBig::from(amount) * micros);
        self.label(slice).micros += micros;
    }

    /// Returns the time under the label of a slice, and updates the description and the reason with this
    /// slice. Slices must come in order of time.
    fn label(&mut self, slice: &PodSlice) -> &mut LabelTime {
        let unpriced = slice.unpriced();
        let label = slice.status.label.as_ref();
        let description = &slice.spec.description;
        let key = LabelKey {
            quota_id: label.map(|label| label.quota.1.clone()),
            quota_state: label.map(|label| label.state),
            unpriced: unpriced.map(Unpriced::name),
            labels: description.labels.clone(),
        };
        let time = self.labels.entry(key).or_insert_with(|| LabelTime {
            description: description.clone(),
            micros: 0,
            charge: None,
            unpriced,
        });
        time.description = description.clone();
        time.unpriced = unpriced;
        time
    }

    /// Returns the amounts that the pod was allocated by the configured rule: the larger of request and use,
    /// or only the request.
    pub(crate) fn allocated(&self, rules: &Rules) -> PerResource<UBig> {
        match (rules.allocation, &self.used) {
            (Allocation::Max, Some(used)) => {
                let pairs = self.requested.as_ref().zip(used.as_ref());
                pairs.map(|(requested, used)| requested.max(used).clone())
            }
            (Allocation::Max, None) | (Allocation::Requests, _) => self.requested.clone(),
        }
    }
}

impl LabelTime {
    /// Adds the charge of this much time.
    fn accrue(&mut self, charge: &ChargeSpan, micros: u128) {
        *self.charge.get_or_insert_default() += &charge.hourly * hours(micros);
    }
}

/// Returns the charge rates of a slice. There are none without a pool price.
fn charge_spans(slice: &PodSlice, rules: &Rules) -> Vec<ChargeSpan> {
    match &slice.status.pool {
        PoolPricing::Priced(price) => charges(&slice.spec.description, slice.span, price, rules),
        PoolPricing::None | PoolPricing::Unpriced(_) => Vec::new(),
    }
}

/// Returns the parts of samples that overlap a span. The parts must be in order of time and must not overlap.
pub(crate) fn overlapping(parts: &[Sample], span: Span) -> &[Sample] {
    let after = parts.get(parts.partition_point(|part| part.to <= span.from)..).unwrap_or_default();
    after.get(..after.partition_point(|part| part.from < span.to)).unwrap_or_default()
}

/// Adds to `used` the use that a pod's samples measured within a span. Each sample adds use only for the time
/// in which it counts.
pub(crate) fn add_use(used: &mut Option<PerResource<UBig>>, span: Span, samples: Option<&Samples>) {
    let mut sums: Option<PerResource<u128>> = None;
    let add = |part: Sample| {
        let overlap = Span::new(part.from, part.to).and_then(|part| part.overlap(span));
        let Some(overlap) = overlap else { return };
        // No two parts overlap, so their sum is at most 64 bits times the 32 bits of an hour in microseconds.
        let micros = overlap.micros();
        let sums = sums.get_or_insert_default();
        *sums = sums.zip(part.use_amounts).map(|(sum, amount)| sum + u128::from(amount) * micros);
    };
    if let Some(samples) = samples {
        samples.for_each_part(add);
    }
    if let Some(sums) = sums {
        *used.get_or_insert_default() += sums.map(UBig::from);
    }
}

/// Converts amounts in thousandths and bytes, times microseconds, to resource-hours, and rounds them.
///
/// # Errors
/// If an amount does not fit its column.
pub(crate) fn ratio_hours(amounts: &PerResource<RBig>) -> Result<ResourceHours, EngineError> {
    let hours = amounts
        .as_ref()
        .zip(PARTS_PER_UNIT)
        .try_map(|(amount, parts)| round(&(amount / (UBig::from(parts) * UBig::from(HOUR_MICROS)))))?;
    Ok(ResourceHours { cpu_core_hours: hours.cpu, memory_gib_hours: hours.memory, gpu_hours: hours.gpu })
}

/// Converts amounts times microseconds to hours of the three resources. Scales each by its factor, if there
/// are factors, and rounds it.
///
/// # Errors
/// If a figure has more than 38 digits.
pub(crate) fn resource_hours(
    amounts: &PerResource<UBig>,
    factors: Option<&PerResource<Fraction>>,
) -> Result<ResourceHours, EngineError> {
    let amounts =
        amounts.as_ref().zip(PARTS_PER_UNIT.map(|parts| u128::from(parts) * u128::from(HOUR_MICROS)));
    let rounded = match factors {
        None => amounts.try_map(|(amount, parts)| round_quotient(amount, parts))?,
        Some(factors) => amounts.zip(factors.as_ref()).try_map(|((amount, parts), factor)| {
            Fraction::new(amount.clone(), parts.into()).product(factor).round()
        })?,
    };
    let PerResource { cpu, memory, gpu } = rounded;
    Ok(ResourceHours { cpu_core_hours: cpu, memory_gib_hours: memory, gpu_hours: gpu })
}

#[cfg(test)]
mod tests {
    use super::*;
    use prorata_schemas::time::Timestamp;

    fn sample(from: i64, to: i64, cpu: u64) -> Sample {
        let use_amounts = PerResource { cpu, memory: 0, gpu: 0 };
        Sample { from: Timestamp(from), to: Timestamp(to), use_amounts, gpu_memory: None }
    }

    fn add(used: &mut Option<PerResource<UBig>>, span: Span, samples: [Sample; 2]) {
        add_use(used, span, Some(&Samples::carried(samples.to_vec())));
    }

    #[test]
    fn samples_count_for_their_part_of_the_span() {
        let span = Span::new(Timestamp(10), Timestamp(20)).unwrap();
        let mut used = None;
        add(&mut used, span, [sample(0, 10, 7), sample(20, 30, 7)]);
        assert_eq!(used, None);
        add(&mut used, span, [sample(0, 12, 5), sample(11, 40, 100)]);
        assert_eq!(used.unwrap().cpu, UBig::from(5_u64 + 100 * 9));
    }

    #[test]
    fn hours_of_amounts_beyond_128_bits_are_an_error_and_no_panic() {
        let amount = UBig::from(u128::MAX) * UBig::from(u128::MAX);
        let amounts = PerResource { gpu: amount, ..PerResource::default() };
        assert!(matches!(resource_hours(&amounts, None), Err(EngineError::Range(_))));
        let hour = PARTS_PER_UNIT.map(|parts| UBig::from(parts) * UBig::from(HOUR_MICROS));
        let half = PerResource::all(Fraction::new(1_u8.into(), 2_u8.into()));
        let hours = resource_hours(&hour, Some(&half)).unwrap();
        assert_eq!(hours.memory_gib_hours.to_string(), "0.5");
        assert_eq!(hours.cpu_core_hours, hours.gpu_hours);
    }
}
