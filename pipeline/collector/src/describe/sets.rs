//! Descriptions of quotas and pools.

use prorata_schemas::Text;
use prorata_schemas::event::{BudgetExceedStrategy, PoolSet, QosPrice, Quantities, QuotaKind, QuotaSet};
use prorata_schemas::money::{Money, Ratio, UnitPrice};
use prorata_schemas::quantity::{Quantity, TFLOPS, VRAM};
use prorata_schemas::reject::excerpt;

use super::pod::pool_id;
use super::price;
use crate::object::quantities;
use crate::object::{ElasticQuotaObject, GpuPoolObject, QuantityText, ResourceList};
use crate::options::CollectorOptions;

/// Returns the event of a quota.
///
/// # Errors
/// If a quantity does not parse.
pub fn quota(
    quota: &ElasticQuotaObject,
    kind: QuotaKind,
    options: &CollectorOptions,
) -> Result<QuotaSet, String> {
    let parse = |list| quantities::parse(list).map_err(|error| error.to_string());
    let namespaces = match kind {
        QuotaKind::ElasticQuota => vec![quota.metadata.namespace.as_str().into()],
        QuotaKind::CompositeElasticQuota => quota.spec.namespaces.clone(),
    };
    Ok(QuotaSet {
        cluster_id: options.cluster_id.clone(),
        quota_id: quota.metadata.uid.as_str().into(),
        kind,
        namespaces,
        min: parse(&quota.spec.min)?,
        max: quota.spec.max.as_ref().map(parse).transpose()?,
    })
}

/// Returns the event of a GPU pool. Missing percentages take TensorFusion's defaults.
///
/// # Errors
/// If a price, a capacity or a budget does not parse, or a capacity is above the maximum.
pub fn pool(pool: &GpuPoolObject, options: &CollectorOptions) -> Result<PoolSet, String> {
    let config = &pool.spec.capacity_config;
    let over = &config.oversubscription;
    let budget = &pool.spec.node_manager_config.node_provisioner.budget;
    let qos = &pool.spec.qos_config;
    let mut qos_pricing = Vec::new();
    for pricing in &qos.pricing {
        qos_pricing.push(QosPrice {
            qos: pricing.qos.clone(),
            per_fp16_tflop_hour: unit_price(&pricing.requests.per_tflop, "perFP16TFlopsPerHour")?,
            per_vram_gib_hour: unit_price(&pricing.requests.per_vram_gib, "perGBOfVRAMPerHour")?,
            limits_over_requests: ratio(pricing.limits_over_requests.as_deref())?,
        });
    }
    let default_qos = if qos.default_qos.is_empty() { "medium" } else { qos.default_qos.as_str() };
    let set = PoolSet {
        pool_id: pool_id(options, &pool.metadata.name).into(),
        cluster_id: options.cluster_id.clone(),
        provider: options.provider.clone(),
        default_qos: default_qos.into(),
        qos_pricing,
        tflops_oversell_percent: percent(over.tflops_oversell_ratio, 500)?,
        vram_expand_to_host_disk_percent: percent(over.vram_expand_to_host_disk, 70)?,
        vram_expand_to_host_mem_percent: percent(over.vram_expand_to_host_mem, 50)?,
        max_capacity: capacity(&config.max_resources, "maxResources")?,
        min_capacity: capacity(&config.min_resources, "minResources")?,
        warm_capacity: capacity(&config.warm_resources, "warmResources")?,
        budget_per_day: money(&budget.budget_per_day, "budgetPerDay")?,
        budget_per_month: money(&budget.budget_per_month, "budgetPerMonth")?,
        budget_per_quarter: money(&budget.budget_per_quarter, "budgetPerQuarter")?,
        budget_exceed_strategy: strategy(budget.budget_exceed_strategy.as_deref())?,
        currency: options.currency.clone(),
    };
    match set.fault_of_capacity() {
        Some((field, fault)) => Err(format!("{field}: {fault}")),
        None => Ok(set),
    }
}

/// Parses a capacity, and renames its resources as nodes and pods name them.
fn capacity(list: &ResourceList, field: &str) -> Result<Quantities, String> {
    let parse = |(name, text): (&Text, &QuantityText)| {
        let resource = match &**name {
            "tflops" => TFLOPS.into(),
            "vram" => VRAM.into(),
            _ => name.clone(),
        };
        let quantity = Quantity::parse(&resource, &text.0);
        Ok((resource, quantity.map_err(|error| format!("{field}.{name}: {error}"))?))
    };
    list.iter().map(parse).collect()
}

fn strategy(text: Option<&str>) -> Result<BudgetExceedStrategy, String> {
    match text {
        None | Some("" | "AlertOnly") => Ok(BudgetExceedStrategy::AlertOnly),
        Some("AlertAndTerminateVM") => Ok(BudgetExceedStrategy::AlertAndTerminateVm),
        Some(other) => Err(format!(
            "budgetExceedStrategy: '{}' is neither AlertOnly nor AlertAndTerminateVM",
            excerpt(other)
        )),
    }
}

/// Returns the pool id of a pool object.
pub fn id_of_pool(pool: &GpuPoolObject, options: &CollectorOptions) -> Text {
    pool_id(options, &pool.metadata.name)
}

fn unit_price(text: &Option<String>, name: &str) -> Result<UnitPrice, String> {
    let Some(text) = text else { return Err(format!("{name} is missing; a pool's price must be set")) };
    price(text).ok_or_else(|| format!("{name}: '{text}' is not a price such as \"0.0069\""))
}

fn money(text: &Option<String>, name: &str) -> Result<Option<Money>, String> {
    let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
    let parsed = price(text).and_then(|price| Money::from_atoms(price.atoms()));
    parsed.map(Some).ok_or_else(|| format!("{name}: '{text}' is not an amount such as \"100\""))
}

fn ratio(text: Option<&str>) -> Result<Ratio, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Ratio::from(1)) };
    let parsed = text.parse().ok().filter(|ratio| *ratio >= Ratio::ZERO);
    parsed.ok_or_else(|| format!("limitsOverRequests: '{text}' is not a ratio such as \"0.5\""))
}

fn percent(value: Option<i32>, default: i32) -> Result<i32, String> {
    let value = value.unwrap_or(default);
    if value < 0 { Err(format!("{value} percent is negative")) } else { Ok(value) }
}
