//! GPU pools (RULES.md, section 5, TensorFusion's GPUPool): the charge of a pool pod.
//!
//! **Decides** the charge rate of a pod at every instant, with the prices of its quality of service in its
//! pool:
//!
//! ```text
//! count x [reqT pT + reqV pV + rho ((limT - reqT) pT + (limV - reqV) pV)] x e     per hour
//! ```
//!
//! Requests and limits are per GPU. A limit below its request counts as equal to the request. `count` is
//! `nvidia.com/gpu`, or 1 if it is missing or zero. V is in GiB.
//!
//! **Precedence**: a price for the pod's own qos takes precedence over the pool's default. Only a qos of ""
//! or "default" may fall back to the default. As the reason for having no price, an unknown pool takes
//! precedence over a missing price.
//!
//! **Interval ends**: e applies up to, not including, `eviction_protected_until`, and never to a critical
//! qos. A new description of the pool or the pod counts from its instant on.
//!
//! **Rounding**: none here. In `rows/draft.rs` a pod's charge on nodes is rounded once for the hour and split
//! over its rows. A pool pod that names no node is rounded row by row.

use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::event::{PodStarted, PoolSet, QosPrice};
use prorata_schemas::quantity::{NVIDIA_GPU, TFLOPS, VRAM};
use prorata_schemas::rows::Unpriced;
use prorata_schemas::rules::Rules;
use prorata_schemas::size::amount;
use prorata_schemas::time::Timestamp;

use crate::currency::reason;
use crate::exact::{ATOMS_IN_ONE, atoms, ratio};
use crate::model::pool_price::{PoolPrice, PoolPricing};
use crate::model::span::Span;

/// Bytes in a GiB.
const GIB: u64 = 1 << 30;

/// A value for each of the two resources that pools sell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PerPoolResource<T> {
    pub(crate) tflops: T,
    pub(crate) vram: T,
}

/// The amounts that a pod asks of each of its GPUs, and the number of its GPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerGpu {
    /// Number of GPUs in thousandths; 1000 if the pod names none.
    pub(crate) count: u128,
    /// Requested thousandths of a TFLOP and bytes of VRAM.
    pub(crate) requests: PerPoolResource<u128>,
    /// Limits, at least the requests.
    pub(crate) limits: PerPoolResource<u128>,
}

/// A span in which a pod's charge rate is constant.
#[derive(Clone, Debug)]
pub(crate) struct ChargeSpan {
    pub(crate) span: Span,
    /// Charge per hour in atoms.
    pub(crate) hourly: RBig,
}

impl<T> PerPoolResource<T> {
    /// Applies `f` to each value.
    pub(crate) fn map<U>(self, mut f: impl FnMut(T) -> U) -> PerPoolResource<U> {
        PerPoolResource { tflops: f(self.tflops), vram: f(self.vram) }
    }

    /// Pairs the values of each resource.
    pub(crate) fn zip<U>(self, other: PerPoolResource<U>) -> PerPoolResource<(T, U)> {
        PerPoolResource { tflops: (self.tflops, other.tflops), vram: (self.vram, other.vram) }
    }
}

impl PerGpu {
    /// Reads a pod's description.
    pub(crate) fn of(pod: &PodStarted) -> Self {
        let names = PerPoolResource { tflops: TFLOPS, vram: VRAM };
        let requests = names.map(|name| amount(&pod.requests, name));
        let limits = names.map(|name| amount(&pod.limits, name));
        let count = match amount(&pod.requests, NVIDIA_GPU) {
            0 => 1000,
            gpus => gpus,
        };
        Self { count, requests, limits: limits.zip(requests).map(|(limit, request)| limit.max(request)) }
    }
}

impl PoolPricing {
    /// Returns the pricing of a pod. `pool` is the pool that the pod names; `None` if that pool is not set.
    pub(crate) fn of(pod: &PodStarted, pool: Option<&Arc<PoolSet>>) -> Self {
        if pod.pool_id.is_none() {
            return Self::None;
        }
        let Some(pool) = pool else { return Self::Unpriced(Unpriced::UnknownPool) };
        if let Some(reason) = reason(&pool.currency) {
            return Self::Unpriced(reason);
        }
        let named = |qos: &str| pool.qos_pricing.iter().find(|price| &*price.qos == qos);
        let unnamed = pod.qos.is_empty() || &*pod.qos == "default";
        let price = named(&pod.qos).or_else(|| if unnamed { named(&pool.default_qos) } else { None });
        match price {
            Some(price) => Self::Priced(Arc::new(PoolPrice { pool: pool.clone(), qos_price: price.clone() })),
            None => Self::Unpriced(Unpriced::NoQosPrice),
        }
    }
}

/// Returns a pod's charge rates over a span in which the pod's description and price do not change. There are
/// two rates if the pod's eviction protection ends inside the span.
pub(crate) fn charges(pod: &PodStarted, span: Span, price: &PoolPrice, rules: &Rules) -> Vec<ChargeSpan> {
    let unprotected = hourly_charge(&price.qos_price, PerGpu::of(pod));
    let factor = ratio(atoms(rules.eviction_protection_ratio), ATOMS_IN_ONE);
    let [before, after] = protection(pod.eviction_protected_until, &price.qos_price.qos, span);
    let before = before.map(|span| ChargeSpan { span, hourly: &unprotected * factor });
    let after = after.map(|span| ChargeSpan { span, hourly: unprotected });
    before.into_iter().chain(after).collect()
}

/// Returns the protected part of a span, and the rest. A part is `None` if it is empty.
fn protection(until: Option<Timestamp>, qos: &str, span: Span) -> [Option<Span>; 2] {
    let until = match until {
        Some(until) if qos != "critical" => until.clamp(span.from, span.to),
        _ => span.from,
    };
    [Span::new(span.from, until), Span::new(until, span.to)]
}

/// Returns the charge per hour before eviction protection, in atoms.
fn hourly_charge(price: &QosPrice, pod: PerGpu) -> RBig {
    // A TFLOP has 1000 parts and a GiB 2^30. Each amount is multiplied by the other's parts, so that the two
    // can be added.
    let value = |amounts: PerPoolResource<u128>| {
        UBig::from(amounts.tflops) * UBig::from(GIB) * atoms(price.per_fp16_tflop_hour)
            + UBig::from(amounts.vram) * UBig::from(1000u32) * atoms(price.per_vram_gib_hour)
    };
    // Limits are never below requests: see `PerGpu`.
    let above = pod.limits.zip(pod.requests).map(|(limit, request)| limit - request);
    let weighed = value(pod.requests) * ATOMS_IN_ONE + value(above) * atoms(price.limits_over_requests);
    let scale = UBig::from(1000u32) * UBig::from(1000u32) * UBig::from(GIB) * ATOMS_IN_ONE;
    ratio(weighed * UBig::from(pod.count), scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_cut_where_its_protection_ends() {
        let (from, to) = (Timestamp(10), Timestamp(20));
        let lengths = |until: Option<i64>, qos: &str| {
            let spans = protection(until.map(Timestamp), qos, Span { from, to });
            spans.map(|span| span.map_or(0, Span::micros))
        };
        assert_eq!(lengths(Some(14), "high"), [4, 6]);
        assert_eq!(lengths(Some(10), "high"), [0, 10]);
        assert_eq!(lengths(Some(99), "high"), [10, 0]);
        assert_eq!(lengths(Some(14), "critical"), [0, 10]);
        assert_eq!(lengths(None, "high"), [0, 10]);
    }
}
