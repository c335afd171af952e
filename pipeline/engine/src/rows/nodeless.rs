//! Rows of pods that name no node: serverless pods at their rate (RULES.md, section 2) and pool pods at their
//! charge (section 5).
//!
//! A serverless pod pays `(vCPU x per_vcpu_hour + GiB x per_gib_hour + GPUs x per_gpu_hour) x hours` for
//! every instant, matched or not. Rows split where the reservation, the rate or the label changes, and over
//! the savings plans that pay parts of them. These pods pay by request, so their allocated amounts are their
//! requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{Labels, PodStarted, PoolSet, RateSet};
use prorata_schemas::ids::{ClusterId, CommitmentId, PodUid, QuotaId, ReservationId};
use prorata_schemas::rows::{CostRow, QuotaState, RowKind, Unpriced};
use prorata_schemas::rules::Rules;

use crate::currency::reason;
use crate::error::EngineError;
use crate::exact::{Fraction, HOUR_MICROS, hours, round};
use crate::model::per_resource::PerResource;
use crate::model::pool_price::PoolPricing;
use crate::model::samples::Samples;
use crate::model::slices::{PlanPart, PodSlice, own_part};
use crate::model::span::Span;
use crate::rows::draft::{Draft, Paid, UNKNOWN_PROVIDER};
use crate::rows::group::{PlacedPod, add_use, ratio_hours};
use crate::rules::commitment::quotient;
use crate::rules::pool::charges;

/// The properties that two spans of a pod must share to form one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowKey {
    kind: RowKind,
    cluster_id: ClusterId,
    commitment_id: Option<CommitmentId>,
    reservation_id: Option<ReservationId>,
    quota_id: Option<QuotaId>,
    quota_state: Option<QuotaState>,
    unit_price: Decimal12,
    unpriced: Option<&'static str>,
    labels: Labels,
}

/// The sums over the spans that form one row, with the description, reason, rate and pool of the row.
#[derive(Debug)]
struct RowSum {
    description: Arc<PodStarted>,
    unpriced: Option<Unpriced>,
    rate: Option<Arc<RateSet>>,
    pool: Option<Arc<PoolSet>>,
    micros: RBig,
    requested: PerResource<RBig>,
    used: Option<PerResource<RBig>>,
    /// The cost in atoms.
    cost: RBig,
    /// The cost by resource; `None` for a pool pod. A pool charge is for TFLOPs and VRAM, so it has no such
    /// parts.
    by_resource: Option<PerResource<RBig>>,
    /// The payment, if a savings plan pays.
    paid: Option<Paid>,
}

/// A span at one price.
pub(crate) struct PricedSpan {
    pub(crate) span: Span,
    /// Cost per hour in atoms.
    pub(crate) hourly: RBig,
    by_resource: Option<PerResource<RBig>>,
    unpriced: Option<Unpriced>,
    rate: Option<Arc<RateSet>>,
    pool: Option<Arc<PoolSet>>,
}

/// Drafts the rows of the slices in which a pod names no node.
///
/// # Errors
/// If an amount does not fit its column.
pub(crate) fn draft(pod: &PlacedPod<'_>, rules: &Rules) -> Result<Vec<Draft>, EngineError> {
    let mut sums: BTreeMap<RowKey, RowSum> = BTreeMap::new();
    for slice in &pod.slices {
        for span in priced_spans(slice, rules) {
            for plan in &slice.plans {
                add(&mut sums, slice, &span, Some(plan), pod.samples)?;
            }
            add(&mut sums, slice, &span, None, pod.samples)?;
        }
    }
    sums.into_iter().map(|(key, sum)| row(pod.uid, key, sum)).collect()
}

/// Cuts a slice of a pod that names no node at the instants at which the pod's price changes.
pub(crate) fn priced_spans(slice: &PodSlice, rules: &Rules) -> Vec<PricedSpan> {
    if slice.spec.is_serverless() { vec![serverless(slice)] } else { pool(slice, rules) }
}

fn serverless(slice: &PodSlice) -> PricedSpan {
    let found = slice.status.rate.clone();
    let unpriced = match &found {
        None => Some(Unpriced::NoRate),
        Some(rate) => slice.unknown_share().or(reason(&rate.currency)),
    };
    let rate = found.filter(|rate| reason(&rate.currency).is_none());
    let by_resource = rate.as_ref().map(|rate| slice.spec.hourly_cost(rate)).unwrap_or_default();
    PricedSpan {
        span: slice.span,
        hourly: by_resource.sum(),
        by_resource: Some(by_resource),
        unpriced,
        rate,
        pool: None,
    }
}

fn pool(slice: &PodSlice, rules: &Rules) -> Vec<PricedSpan> {
    let unpriced = |reason| PricedSpan {
        span: slice.span,
        hourly: RBig::ZERO,
        by_resource: None,
        unpriced: Some(reason),
        rate: None,
        pool: None,
    };
    match &slice.status.pool {
        PoolPricing::None => vec![unpriced(Unpriced::UnknownPool)],
        PoolPricing::Unpriced(reason) => vec![unpriced(*reason)],
        PoolPricing::Priced(price) => {
            let spans = charges(&slice.spec.description, slice.span, price, rules).into_iter();
            let priced = spans.map(|charge| PricedSpan {
                span: charge.span,
                hourly: charge.hourly,
                by_resource: None,
                unpriced: None,
                rate: None,
                pool: Some(price.pool.clone()),
            });
            priced.collect()
        }
    }
}

/// Adds the part of a span that `plan` pays. If `plan` is `None`, adds the part that no plan pays.
fn add(
    sums: &mut BTreeMap<RowKey, RowSum>,
    slice: &PodSlice,
    priced: &PricedSpan,
    plan: Option<&PlanPart>,
    samples: Option<&Samples>,
) -> Result<(), EngineError> {
    let part = plan.map_or_else(|| own_part(&slice.plans), |plan| plan.part.clone());
    if part.is_zero() {
        return Ok(());
    }
    let label = slice.status.label.as_ref();
    let key = RowKey {
        kind: if slice.spec.is_serverless() { RowKind::PodServerless } else { RowKind::PodPool },
        cluster_id: slice.spec.description.cluster_id.clone(),
        commitment_id: plan.map(|plan| plan.plan.commitment_id.clone()),
        reservation_id: slice.status.reservation.clone(),
        quota_id: label.map(|label| label.quota.1.clone()),
        quota_state: label.map(|label| label.state),
        unit_price: Fraction::of(&priced.hourly).round_atoms()?,
        unpriced: priced.unpriced.map(Unpriced::name),
        labels: slice.spec.description.labels.clone(),
    };
    let sum = sums.entry(key).or_insert_with(|| RowSum {
        description: slice.spec.description.clone(),
        unpriced: priced.unpriced,
        rate: None,
        pool: None,
        micros: RBig::ZERO,
        requested: PerResource::default(),
        used: None,
        cost: RBig::ZERO,
        by_resource: priced.by_resource.as_ref().map(|_| PerResource::default()),
        paid: None,
    });
    sum.description = slice.spec.description.clone();
    sum.rate = priced.rate.clone();
    sum.pool = priced.pool.clone();
    let micros = &part * UBig::from(priced.span.micros());
    sum.requested += slice.spec.requests.map(|amount| &micros * UBig::from(amount));
    let mut used = None;
    add_use(&mut used, priced.span, samples);
    if let Some(used) = used {
        *sum.used.get_or_insert_default() += used.map(|amount| &part * amount);
    }
    let time = &micros / UBig::from(HOUR_MICROS);
    sum.micros += micros;
    // The cost of the part is its list price, or the plan's cost for the part if a plan pays.
    let cost = &time * &priced.hourly;
    let factor = plan.map(|plan| {
        Paid::add(&mut sum.paid, plan, &cost, &(&plan.spend * hours(priced.span.micros())));
        quotient(&plan.cost, &(&part * &priced.hourly))
    });
    let factored = |cost: RBig| match &factor {
        Some(factor) => cost * factor,
        None => cost,
    };
    sum.cost += factored(cost);
    if let (Some(sums), Some(hourly)) = (&mut sum.by_resource, &priced.by_resource) {
        *sums += hourly.as_ref().map(|hourly| factored(hourly * &time));
    }
    Ok(())
}

fn row(uid: &PodUid, key: RowKey, sum: RowSum) -> Result<Draft, EngineError> {
    let provider = match (&sum.rate, &sum.pool) {
        (Some(rate), _) => rate.provider.clone(),
        (None, Some(pool)) => pool.provider.clone(),
        (None, None) => UNKNOWN_PROVIDER.into(),
    };
    let cost = Fraction::of(&sum.cost);
    let requested = ratio_hours(&sum.requested)?;
    let row = CostRow {
        cluster_id: Some(key.cluster_id),
        pod_uid: Some(uid.clone()),
        reservation_id: key.reservation_id,
        quota_id: key.quota_id,
        quota_state: key.quota_state,
        list_unit_price: key.unit_price,
        unpriced: sum.unpriced,
        pricing_quantity: round(&(&sum.micros / UBig::from(HOUR_MICROS)))?,
        list_cost: cost.round_atoms()?,
        allocated: Some(requested),
        requested: Some(requested),
        used: sum.used.as_ref().map(ratio_hours).transpose()?,
        running_seconds: Some(round(&(&sum.micros / UBig::from(1_000_000_u32)))?),
        pod: Some(sum.description),
        rate: sum.rate,
        pool: sum.pool,
        ..CostRow::new(key.kind, uid.clone().into(), provider)
    };
    let resources = sum.by_resource.map(|parts| parts.as_ref().map(Fraction::of));
    let mut draft = Draft::new(row, cost);
    draft.cost.resources = resources;
    if let Some(paid) = sum.paid {
        paid.set(&mut draft.row)?;
    }
    Ok(draft)
}
