//! The steps of pods, reservations and commitments for [`crate::trace`]. They are read from the input and the
//! output of the rules after the hour has been cut into slices.

use std::collections::BTreeSet;

use dashu_ratio::RBig;
use prorata_schemas::event::RateSet;
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::rules::Rules;

use crate::currency::counted;
use crate::exact::{HOUR_MICROS, hours};
use crate::model::per_resource::PerResource;
use crate::model::pool_price::{PoolPrice, PoolPricing};
use crate::model::slices::{CommitmentSlice, PodSlice, Slices};
use crate::model::span::Span;
use crate::rows::nodeless;
use crate::rules::commitment::{committed, used_part};
use crate::rules::pool::{PerGpu, PerPoolResource, charges};
use crate::rules::reservation::unused_units;
use crate::trace::{
    CommitmentSpan, ExactNumber, Focus, PodSpan, PoolStep, PricedTime, RateStep, ReservationSpan,
    covered_units, in_units, money,
};

fn length(span: Span) -> ExactNumber {
    ExactNumber::over(span.micros(), u128::from(HOUR_MICROS))
}

/// Returns the spans of the pods in focus, one for each slice.
pub(crate) fn pods(slices: &Slices, focus: &Focus, rules: &Rules) -> Vec<PodSpan> {
    let of_focus = focus.pods.iter().filter_map(|uid| slices.of_pod(uid).map(|slices| (uid, slices)));
    let spans = of_focus.flat_map(|(uid, slices)| slices.iter().map(move |slice| (uid, slice)));
    let spans = spans.map(|(uid, slice)| PodSpan {
        pod_uid: uid.clone(),
        description: slice.spec.description.clone(),
        from: slice.span.from,
        to: slice.span.to,
        hours: length(slice.span),
        node: slice.spec.description.node_id.clone().map(|node| (node, slice.status.node_runs)),
        requests: in_units(&slice.spec.requests),
        reservation_id: slice.status.reservation.clone(),
        label: slice.status.label.as_ref().map(|label| (label.quota.1.clone(), label.state.name())),
        unpriced: slice.unpriced().map(|reason| reason.name()),
        rate: slice.status.rate.as_ref().map(|rate| self::rate(rate, slice)),
        pool: match &slice.status.pool {
            PoolPricing::Priced(price) => Some(pool(price, slice, rules)),
            PoolPricing::None | PoolPricing::Unpriced(_) => None,
        },
        priced: priced(slice, rules),
    });
    spans.collect()
}

fn rate(rate: &RateSet, slice: &PodSlice) -> RateStep {
    let prices = PerResource { cpu: rate.per_vcpu_hour, memory: rate.per_gib_hour, gpu: rate.per_gpu_hour };
    RateStep { prices: prices.map(ExactNumber::of_decimal), hourly: money(&slice.spec.hourly_cost(rate)) }
}

fn pool(price: &PoolPrice, slice: &PodSlice, rules: &Rules) -> PoolStep {
    let per_gpu = PerGpu::of(&slice.spec.description);
    let amounts = |amounts: PerPoolResource<u128>| {
        [ExactNumber::over(amounts.tflops, 1000), ExactNumber::over(amounts.vram, 1 << 30)]
    };
    let qos = &price.qos_price;
    PoolStep {
        pool_id: price.pool.pool_id.clone(),
        qos: qos.qos.clone(),
        per_tflop_hour: ExactNumber::of_decimal(qos.per_fp16_tflop_hour),
        per_vram_gib_hour: ExactNumber::of_decimal(qos.per_vram_gib_hour),
        limits_over_requests: ExactNumber::of_decimal(qos.limits_over_requests),
        count: ExactNumber::over(per_gpu.count, 1000),
        requests: amounts(per_gpu.requests),
        limits: amounts(per_gpu.limits),
        protection: ExactNumber::of_decimal(rules.eviction_protection_ratio),
    }
}

/// Returns the prices of a pod over time. For a pod that names no node, they are the pod's cost. For a pod on
/// a node, they are the charge of the pod's pool, if there is one.
fn priced(slice: &PodSlice, rules: &Rules) -> Vec<PricedTime> {
    let time = |span: Span, hourly| PricedTime {
        hours: length(span),
        cost: ExactNumber::of_atoms(&hourly * hours(span.micros())),
        hourly: ExactNumber::of_atoms(hourly),
    };
    match (&slice.spec.node, &slice.status.pool) {
        (None, _) => {
            let spans = nodeless::priced_spans(slice, rules).into_iter();
            spans.map(|priced| time(priced.span, priced.hourly)).collect()
        }
        (Some(_), PoolPricing::Priced(price)) => {
            let spans = charges(&slice.spec.description, slice.span, price, rules).into_iter();
            spans.map(|charge| time(charge.span, charge.hourly)).collect()
        }
        (Some(_), PoolPricing::None | PoolPricing::Unpriced(_)) => Vec::new(),
    }
}

/// Returns the spans of the reservations in focus, one for each slice.
pub(crate) fn reservations(slices: &Slices, focus: &Focus) -> Vec<ReservationSpan> {
    let of_focus = focus.reservations.iter().filter_map(|id| slices.reservations.get_key_value(id));
    let spans = of_focus.flat_map(|(id, slices)| slices.iter().map(move |slice| (id, slice)));
    let spans = spans.map(|(id, slice)| {
        let set = &slice.description;
        let unused = hours(unused_units(slice) * slice.span.micros());
        let price = ExactNumber::of_decimal(counted(set.unit_hourly_price, &set.currency));
        ReservationSpan {
            reservation_id: id.clone(),
            description: set.clone(),
            from: slice.span.from,
            to: slice.span.to,
            hours: length(slice.span),
            units: set.quantity,
            used_units: slice.used_units,
            cost: price.times(&unused),
            unused_hours: ExactNumber::new(unused),
            unit_hourly_price: price,
        }
    });
    spans.collect()
}

/// Returns the spans of the commitments in focus, and of the commitments that cover anything in focus.
pub(crate) fn commitments(slices: &Slices, focus: &Focus) -> Vec<CommitmentSpan> {
    let nodes = focus.nodes.iter().filter_map(|key| slices.nodes.get(key)).flatten();
    let covering = nodes.clone().flat_map(|slice| slice.coverage.iter());
    let covering = covering.map(|coverage| &coverage.commitment.commitment_id);
    let paying = nodes.clone().flat_map(|slice| &slice.plans);
    let pods = focus.pods.iter().filter_map(|uid| slices.of_pod(uid)).flatten();
    let units = focus.reservations.iter().filter_map(|id| slices.reservations.get(id)).flatten();
    let paying =
        paying.chain(pods.flat_map(|slice| &slice.plans)).chain(units.flat_map(|slice| &slice.plans));
    let paying = paying.map(|part| &part.plan.commitment_id);
    let ids: BTreeSet<&CommitmentId> = focus.commitments.iter().chain(covering).chain(paying).collect();
    let of_focus = ids.into_iter().filter_map(|id| slices.commitments.get_key_value(id));
    let spans =
        of_focus.flat_map(|(id, hour)| merged(&hour.slices).into_iter().map(move |slice| (id, slice)));
    let spans = spans.map(|(id, slice)| {
        let set = &slice.description;
        let used = used_part(&slice);
        let price = ExactNumber::of_decimal(counted(set.hourly_cost, &set.currency));
        let unused = (RBig::ONE - &used) * hours(slice.span.micros());
        CommitmentSpan {
            commitment_id: id.clone(),
            description: set.clone(),
            from: slice.span.from,
            to: slice.span.to,
            hours: length(slice.span),
            enabled: set.enabled,
            committed: covered_units(committed(set).map(RBig::from)),
            covered: covered_units(slice.covered.clone()),
            hourly_commitment: set.hourly_commitment.map(ExactNumber::of_decimal),
            spend: ExactNumber::of_atoms(slice.spend.covered.clone()),
            utilization: ExactNumber::new(used),
            unused_cost: price.times(&unused),
            hourly_cost: price,
        }
    });
    spans.collect()
}

/// Joins consecutive slices with equal description, cover and spend.
fn merged(slices: &[CommitmentSlice]) -> Vec<CommitmentSlice> {
    let mut merged: Vec<CommitmentSlice> = Vec::new();
    for slice in slices {
        let same = |last: &CommitmentSlice| {
            last.span.to == slice.span.from
                && last.description == slice.description
                && last.covered == slice.covered
                && last.spend == slice.spend
        };
        match merged.last_mut().filter(|last| same(last)) {
            Some(last) => last.span.to = slice.span.to,
            None => merged.push(slice.clone()),
        }
    }
    merged
}
