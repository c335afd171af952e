//! Rows of pods on no node: serverless pods at their rate (ACS), pool pods at their charge.
//!
//! A serverless pod pays `(vCPU x per_vcpu_hour + GiB x per_gib_hour + GPUs x per_gpu_hour) x hours` for every instant,
//! matched or not. Rows split where the reservation, the rate or the label changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{PodStarted, PoolSet, RateSet};
use prorata_schemas::ids::{ClusterId, PodUid, QuotaId, ReservationId};
use prorata_schemas::rows::{CostRow, QuotaState, RowKind, Unpriced};
use prorata_schemas::rules::Rules;

use crate::error::EngineError;
use crate::exact::{Fraction, ratio, round, units};
use crate::rows::draft::Draft;
use crate::rows::pod_hours::{add_use, hours, resource_hours};
use crate::rows::{UNKNOWN, alone, seconds};
use crate::rules::pool::charges;
use crate::rules::split::RESOURCES;
use crate::timeline::size::Shape;
use crate::timeline::slices::{PodSlice, PoolPricing, Span};
use crate::timeline::state::Sample;

/// What two spans of a pod must share to be one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: RowKind,
    cluster_id: ClusterId,
    reservation_id: Option<ReservationId>,
    quota_id: Option<QuotaId>,
    quota_state: Option<QuotaState>,
    unit_price: Decimal12,
    unpriced: Option<&'static str>,
}

/// One row in the making.
#[derive(Debug)]
struct Gathered {
    description: Arc<PodStarted>,
    unpriced: Option<Unpriced>,
    rate: Option<Arc<RateSet>>,
    pool: Option<Arc<PoolSet>>,
    micros: u128,
    requested: [u128; RESOURCES],
    used: Option<[u128; RESOURCES]>,
    /// In units of 10^-12; a pool pod's charge stands in the first.
    cost: [RBig; RESOURCES],
}

/// A span at one price.
struct Priced {
    span: Span,
    /// Cost per hour by resource, in units of 10^-12.
    hourly: [RBig; RESOURCES],
    unpriced: Option<Unpriced>,
    rate: Option<Arc<RateSet>>,
    pool: Option<Arc<PoolSet>>,
}

/// Drafts the rows of one pod's slices on no node.
pub(crate) fn draft(
    uid: &PodUid,
    slices: &[&PodSlice],
    samples: &[Sample],
    rules: &Rules,
    drafts: &mut Vec<Draft>,
) -> Result<(), EngineError> {
    let mut rows: BTreeMap<Key, Gathered> = BTreeMap::new();
    for slice in slices {
        let priced = if slice.shape.is_serverless() { vec![serverless(slice)] } else { pool(slice, rules) };
        for price in priced {
            gather(&mut rows, slice, price, samples)?;
        }
    }
    for (key, gathered) in rows {
        drafts.push(row(uid, key, gathered)?);
    }
    Ok(())
}

fn serverless(slice: &PodSlice) -> Priced {
    let rate = slice.standing.rate.clone();
    let zeros = [RBig::ZERO, RBig::ZERO, RBig::ZERO];
    Priced {
        span: slice.span,
        hourly: rate.as_ref().map_or(zeros, |rate| hourly(rate, slice.shape.requests)),
        unpriced: if rate.is_none() { Some(Unpriced::NoRate) } else { None },
        rate,
        pool: None,
    }
}

fn hourly(rate: &RateSet, requests: Shape) -> [RBig; RESOURCES] {
    let part = |price: Decimal12, amount: u128, per_unit: u64| {
        ratio(units(price) * UBig::from(amount), UBig::from(per_unit))
    };
    [
        part(rate.per_vcpu_hour, requests.cpu, 1000),
        part(rate.per_gib_hour, requests.memory, 1 << 30),
        part(rate.per_gpu_hour, requests.gpu, 1000),
    ]
}

fn pool(slice: &PodSlice, rules: &Rules) -> Vec<Priced> {
    let unpriced = |reason| Priced {
        span: slice.span,
        hourly: [RBig::ZERO, RBig::ZERO, RBig::ZERO],
        unpriced: Some(reason),
        rate: None,
        pool: None,
    };
    match &slice.standing.pool {
        PoolPricing::None => vec![unpriced(Unpriced::UnknownPool)],
        PoolPricing::Unpriced(reason) => vec![unpriced(*reason)],
        PoolPricing::Priced(price) => {
            let spans = charges(slice, price, rules).into_iter();
            let priced = spans.map(|charge| Priced {
                span: charge.span,
                hourly: [charge.hourly, RBig::ZERO, RBig::ZERO],
                unpriced: None,
                rate: None,
                pool: Some(price.pool.clone()),
            });
            priced.collect()
        }
    }
}

fn gather(
    rows: &mut BTreeMap<Key, Gathered>,
    slice: &PodSlice,
    price: Priced,
    samples: &[Sample],
) -> Result<(), EngineError> {
    let [cpu, memory, gpu] = &price.hourly;
    let unit_price = Fraction::of(&(cpu + memory + gpu)).round_units()?;
    let kind = if slice.shape.is_serverless() { RowKind::PodServerless } else { RowKind::PodPool };
    let label = slice.standing.label.as_ref();
    let key = Key {
        kind,
        cluster_id: slice.shape.description.cluster_id.clone(),
        reservation_id: slice.standing.reservation.clone(),
        quota_id: label.map(|label| label.quota.1.clone()),
        quota_state: label.map(|label| label.state),
        unit_price,
        unpriced: price.unpriced.map(Unpriced::name),
    };
    let gathered = rows.entry(key).or_insert_with(|| Gathered {
        description: slice.shape.description.clone(),
        unpriced: price.unpriced,
        rate: None,
        pool: None,
        micros: 0,
        requested: [0; RESOURCES],
        used: None,
        cost: [RBig::ZERO, RBig::ZERO, RBig::ZERO],
    });
    let micros = price.span.micros();
    gathered.description = slice.shape.description.clone();
    gathered.rate = price.rate;
    gathered.pool = price.pool;
    gathered.micros += micros;
    for (sum, amount) in gathered.requested.iter_mut().zip(slice.shape.requests.amounts()) {
        *sum += amount * micros;
    }
    add_use(&mut gathered.used, price.span, samples);
    for (sum, hourly) in gathered.cost.iter_mut().zip(price.hourly) {
        *sum += hourly * hours(micros);
    }
    Ok(())
}

fn row(uid: &PodUid, key: Key, gathered: Gathered) -> Result<Draft, EngineError> {
    let provider = match (&gathered.rate, &gathered.pool) {
        (Some(rate), _) => rate.provider.clone(),
        (None, Some(pool)) => pool.provider.clone(),
        (None, None) => UNKNOWN.into(),
    };
    let [cpu, memory, gpu] = &gathered.cost;
    let cost = Fraction::of(&(cpu + memory + gpu));
    let requested = resource_hours(gathered.requested, None)?;
    let row = CostRow {
        cluster_id: Some(key.cluster_id),
        pod_uid: Some(uid.clone()),
        reservation_id: key.reservation_id,
        quota_id: key.quota_id,
        quota_state: key.quota_state,
        list_unit_price: key.unit_price,
        unpriced: gathered.unpriced,
        pricing_quantity: round(&hours(gathered.micros))?,
        list_cost: cost.round_units()?,
        allocated: Some(requested),
        requested: Some(requested),
        used: gathered.used.map(|used| resource_hours(used, None)).transpose()?,
        running_seconds: Some(seconds(gathered.micros)),
        pod: Some(gathered.description),
        rate: gathered.rate,
        pool: gathered.pool,
        ..CostRow::new(key.kind, uid.clone().into(), provider)
    };
    let mut draft = alone(row, cost);
    if key.kind == RowKind::PodServerless {
        draft.resources = Some([Fraction::of(cpu), Fraction::of(memory), Fraction::of(gpu)]);
    }
    Ok(draft)
}
