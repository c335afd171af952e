//! GPU pools (TensorFusion): what a pool pod is charged.
//!
//! `count x hours x [reqT pT + reqV pV + rho ((limT - reqT) pT + (limV - reqV) pV)] x e`, with the prices of the pod's
//! quality of service. Requests and limits are per GPU; a limit below its request counts as equal to it; count is
//! `nvidia.com/gpu`, 1 when missing or zero; V is in GiB; e applies until the eviction protection ends, unless the
//! quality of service is critical. Nothing is rounded here.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::event::{PodStarted, PoolSet, QosPrice};
use prorata_schemas::ids::PoolId;
use prorata_schemas::quantity::{NVIDIA_GPU, TFLOPS, VRAM};
use prorata_schemas::rows::Unpriced;
use prorata_schemas::rules::Rules;

use crate::exact::{one, ratio, units};
use crate::timeline::size::amount;
use crate::timeline::slices::{PodSlice, PoolPricing, Span};

/// Bytes in a GiB.
const GIB: u64 = 1 << 30;

/// The prices of one quality of service in a pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolPrice {
    pub(crate) pool: Arc<PoolSet>,
    price: QosPrice,
}

/// What a pod asks of each of its GPUs, and how many it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerGpu {
    /// Thousandths of a GPU, 1000 when the pod names none.
    pub(crate) count: u128,
    /// Requested thousandths of a TFLOP and bytes of VRAM.
    pub(crate) requests: [u128; 2],
    /// Limits, at least the requests.
    pub(crate) limits: [u128; 2],
}

/// A span in which a pod's charge rate is constant.
#[derive(Clone, Debug)]
pub(crate) struct ChargeSpan {
    pub(crate) span: Span,
    /// Charge per hour in units of 10^-12.
    pub(crate) hourly: RBig,
}

impl PerGpu {
    /// Reads a pod's description.
    pub(crate) fn of(pod: &PodStarted) -> Self {
        let requests = [amount(&pod.requests, TFLOPS), amount(&pod.requests, VRAM)];
        let [limit_tflops, limit_vram] = [amount(&pod.limits, TFLOPS), amount(&pod.limits, VRAM)];
        let [request_tflops, request_vram] = requests;
        let count = match amount(&pod.requests, NVIDIA_GPU) {
            0 => 1000,
            gpus => gpus,
        };
        Self { count, requests, limits: [limit_tflops.max(request_tflops), limit_vram.max(request_vram)] }
    }
}

/// The prices that a pod's pool has for it. A qos of "" or "default" means the pool's default, unless the pool prices
/// that very name.
pub(crate) fn pricing(pools: &BTreeMap<PoolId, Arc<PoolSet>>, pod: &PodStarted) -> PoolPricing {
    let Some(pool_id) = &pod.pool_id else { return PoolPricing::None };
    let Some(pool) = pools.get(pool_id) else { return PoolPricing::Unpriced(Unpriced::UnknownPool) };
    let named = |qos: &str| pool.qos_pricing.iter().find(|price| &*price.qos == qos);
    let unnamed = pod.qos.is_empty() || &*pod.qos == "default";
    let price = named(&pod.qos).or_else(|| if unnamed { named(&pool.default_qos) } else { None });
    match price {
        Some(price) => PoolPricing::Priced(Arc::new(PoolPrice { pool: pool.clone(), price: price.clone() })),
        None => PoolPricing::Unpriced(Unpriced::NoQosPrice),
    }
}

/// A priced slice's charge rates: two where its eviction protection ends inside it.
pub(crate) fn charges(slice: &PodSlice, price: &PoolPrice, rules: &Rules) -> Vec<ChargeSpan> {
    let pod = &slice.shape.description;
    let plain = hourly_charge(&price.price, PerGpu::of(pod));
    let until = match pod.eviction_protected_until {
        Some(until) if &*price.price.qos != "critical" => until,
        _ => slice.span.from,
    };
    let factor = ratio(units(rules.eviction_protection_ratio), one());
    let edge = until.max(slice.span.from).min(slice.span.to);
    let protected = Span::new(slice.span.from, edge).map(|span| ChargeSpan { span, hourly: &plain * factor });
    let free = Span::new(edge, slice.span.to).map(|span| ChargeSpan { span, hourly: plain });
    protected.into_iter().chain(free).collect()
}

/// Charge per hour before eviction protection, in units of 10^-12.
fn hourly_charge(price: &QosPrice, pod: PerGpu) -> RBig {
    let value = |[tflops, vram]: [u128; 2]| {
        UBig::from(tflops) * UBig::from(GIB) * units(price.per_fp16_tflop_hour)
            + UBig::from(vram) * UBig::from(1000u32) * units(price.per_vram_gib_hour)
    };
    let [request_tflops, request_vram] = pod.requests;
    let [limit_tflops, limit_vram] = pod.limits;
    let above = [limit_tflops - request_tflops, limit_vram - request_vram];
    let weighed = value(pod.requests) * one() + value(above) * units(price.limits_over_requests);
    let scale = UBig::from(1000u32) * UBig::from(1000u32) * UBig::from(GIB) * one();
    ratio(weighed * UBig::from(pod.count), scale)
}
