//! What one pod did in one place in an hour: time, requests, use, and its labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::PodStarted;
use prorata_schemas::ids::QuotaId;
use prorata_schemas::rows::{QuotaState, ResourceHours, Unpriced};
use prorata_schemas::rules::{Allocation, Rules};

use crate::error::EngineError;
use crate::exact::{Fraction, HOUR_MICROS, ratio, round};
use crate::rules::pool::charges;
use crate::rules::split::RESOURCES;
use crate::timeline::slices::{PodSlice, PoolPricing, Span};
use crate::timeline::state::Sample;

/// Parts of a unit in which each resource is counted: thousandths, bytes of a GiB, thousandths.
const PER_UNIT: [u64; RESOURCES] = [1000, 1 << 30, 1000];

/// Quota, state, and reason for having no price. Sorts as rows do.
pub(crate) type LabelKey = (Option<QuotaId>, Option<QuotaState>, Option<&'static str>);

/// Time under one label.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelTime {
    pub(crate) micros: u128,
    /// Pool charge accrued, in units of 10^-12; none without a pool price.
    pub(crate) charge: Option<RBig>,
    pub(crate) unpriced: Option<Unpriced>,
}

/// One pod's hour in one place. Amounts are thousandths or bytes, times microseconds.
#[derive(Clone, Debug)]
pub(crate) struct PodHours {
    /// As last described there.
    pub(crate) description: Arc<PodStarted>,
    pub(crate) micros: u128,
    pub(crate) requested: [u128; RESOURCES],
    pub(crate) used: Option<[u128; RESOURCES]>,
    pub(crate) labels: BTreeMap<LabelKey, LabelTime>,
}

impl PodHours {
    /// Adds up slices of one pod, which must not be empty.
    pub(crate) fn gather(slices: &[&PodSlice], samples: &[Sample], rules: &Rules) -> Option<Self> {
        let last = slices.last()?;
        let mut hours = Self {
            description: last.shape.description.clone(),
            micros: 0,
            requested: [0; RESOURCES],
            used: None,
            labels: BTreeMap::new(),
        };
        for slice in slices {
            hours.add(slice, samples, rules);
        }
        Some(hours)
    }

    fn add(&mut self, slice: &PodSlice, samples: &[Sample], rules: &Rules) {
        let micros = slice.span.micros();
        self.micros += micros;
        for (sum, amount) in self.requested.iter_mut().zip(slice.shape.requests.amounts()) {
            *sum += amount * micros;
        }
        add_use(&mut self.used, slice.span, samples);
        let unpriced = match (&slice.shape.node, slice.standing.node_runs, &slice.standing.pool) {
            (Some(_), false, _) => Some(Unpriced::UnknownNode),
            (_, _, PoolPricing::Unpriced(reason)) => Some(*reason),
            (_, _, PoolPricing::None | PoolPricing::Priced(_)) => None,
        };
        let label = slice.standing.label.as_ref();
        let key = (
            label.map(|label| label.quota.1.clone()),
            label.map(|label| label.state),
            unpriced.map(Unpriced::name),
        );
        let time = self.labels.entry(key).or_default();
        time.micros += micros;
        time.unpriced = unpriced;
        if let PoolPricing::Priced(price) = &slice.standing.pool {
            let spans = charges(slice, price, rules);
            let charge =
                spans.iter().fold(RBig::ZERO, |sum, span| sum + &span.hourly * hours(span.span.micros()));
            time.charge = Some(time.charge.take().unwrap_or_default() + charge);
        }
    }

    /// What the pod was allocated: the larger of request and use, or its requests alone.
    pub(crate) fn allocated(&self, rules: &Rules) -> [u128; RESOURCES] {
        let mut allocated = self.requested;
        if let (Allocation::Max, Some(used)) = (rules.allocation, self.used) {
            for (amount, used) in allocated.iter_mut().zip(used) {
                *amount = (*amount).max(used);
            }
        }
        allocated
    }
}

/// Adds the use of samples that overlap a span.
pub(crate) fn add_use(used: &mut Option<[u128; RESOURCES]>, span: Span, samples: &[Sample]) {
    for sample in samples {
        let overlap = Span::new(sample.from, sample.to).and_then(|sample| sample.overlap(span));
        let Some(overlap) = overlap else { continue };
        let sums = used.get_or_insert([0; RESOURCES]);
        for (sum, amount) in sums.iter_mut().zip(sample.use_amounts) {
            *sum += u128::from(amount) * overlap.micros();
        }
    }
}

/// Microseconds as hours.
pub(crate) fn hours(micros: u128) -> RBig {
    ratio(UBig::from(micros), UBig::from(HOUR_MICROS))
}

/// Hours of the three resources, each scaled by its own factor (none: 1) and rounded.
///
/// # Errors
/// Past 38 digits.
pub(crate) fn resource_hours(
    amounts: [u128; RESOURCES],
    factors: Option<&[RBig; RESOURCES]>,
) -> Result<ResourceHours, EngineError> {
    let mut rounded = [Decimal12::ZERO; RESOURCES];
    for index in 0..RESOURCES {
        let under = UBig::from(PER_UNIT[index]) * UBig::from(HOUR_MICROS);
        let plain = Fraction::new(UBig::from(amounts[index]), under);
        rounded[index] = match factors {
            Some(factors) => round(&(ratio(plain.over, plain.under) * &factors[index]))?,
            None => plain.round()?,
        };
    }
    let [cpu_core_hours, memory_gib_hours, gpu_hours] = rounded;
    Ok(ResourceHours { cpu_core_hours, memory_gib_hours, gpu_hours })
}
