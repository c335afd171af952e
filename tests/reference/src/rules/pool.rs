//! The charge of a pool pod (RULES.md, section 5).

use std::sync::Arc;

use prorata_schemas::event::{PodStarted, PoolSet, QosPrice};
use prorata_schemas::rows::Unpriced;

use crate::hour::HourView;
use crate::resources::{GIB, pool_amounts, pool_count};
use crate::rounding::{Exact, exact, larger, ratio, whole};
use crate::world::World;

/// The charge of a pool pod per hour, and the pool that charges it, or the reason for which there is no
/// price.
pub type PoolCharge = Result<(Exact, Arc<PoolSet>), Unpriced>;

/// Returns the charge of this pod per hour at this instant. `None` for a pod without a pool.
pub fn charge(world: &World, pod: &PodStarted, at: i64, view: &HourView) -> Option<PoolCharge> {
    let rules = view.rules;
    let pool_id = pod.pool_id.as_ref()?;
    let Some(pool) = world.pools.get(pool_id) else { return Some(Err(Unpriced::UnknownPool)) };
    if *pool.currency != **rules.currency_of(view.organization_id) {
        return Some(Err(Unpriced::OtherCurrency));
    }
    let Some(price) = price(pool, &pod.qos) else { return Some(Err(Unpriced::NoQosPrice)) };
    let (request_tflops, request_vram) = pool_amounts(&pod.requests);
    let (limit_tflops, limit_vram) = limits(pod);
    let gib = |bytes: Exact| bytes * ratio(1, GIB);
    let (tflop_price, vram_price) = (exact(price.per_fp16_tflop_hour), exact(price.per_vram_gib_hour));
    let requested = &request_tflops * &tflop_price + gib(request_vram.clone()) * &vram_price;
    let above = (limit_tflops - request_tflops) * &tflop_price + gib(limit_vram - request_vram) * &vram_price;
    let protected =
        pod.eviction_protected_until.is_some_and(|until| at < until.0) && &*price.qos != "critical";
    let factor = if protected { exact(rules.eviction_protection_ratio) } else { whole(1) };
    let one = requested + exact(price.limits_over_requests) * above;
    Some(Ok((pool_count(&pod.requests) * one * factor, Arc::clone(pool))))
}

/// Returns TFLOPs and bytes of VRAM of one GPU's limits. A limit below its request counts as equal to the
/// request.
pub fn limits(pod: &PodStarted) -> (Exact, Exact) {
    let (request_tflops, request_vram) = pool_amounts(&pod.requests);
    let (limit_tflops, limit_vram) = pool_amounts(&pod.limits);
    (larger(limit_tflops, request_tflops), larger(limit_vram, request_vram))
}

/// Returns the prices of a quality of service. "" and "default" mean the pool's default, unless the pool
/// prices that very name. `None` if there are no such prices.
fn price<'a>(pool: &'a PoolSet, qos: &str) -> Option<&'a QosPrice> {
    let named = |name: &str| pool.qos_pricing.iter().find(|price| *price.qos == *name);
    match qos {
        "" | "default" => named(qos).or_else(|| named(&pool.default_qos)),
        name => named(name),
    }
}
