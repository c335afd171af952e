//! Options of the collector from the section `collect` of the configuration, and prices from a file.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use prorata_collector::object::ObjectKind;
use prorata_collector::prices::{CapacityRates, PriceBook, PriceList, read_price_list};
use prorata_collector::{CollectorOptions, parse_instant};
use prorata_schemas::Text;
use prorata_schemas::money::UnitPrice;

use crate::config::{CollectConfig, Config};
use crate::failure::Failure;

/// Age below which a file may be written again without a change of its time, because file systems round
/// times.
const STAMP_AGE: Duration = Duration::from_secs(2);

/// Returns the collector's options. `watched` holds the kinds that the cluster serves.
///
/// # Errors
/// If a value is not valid for its key.
pub fn options(
    config: &Config,
    cluster_id: &str,
    watched: BTreeSet<ObjectKind>,
) -> Result<CollectorOptions, Failure> {
    let collect = &config.collect;
    let organization_id = collect.organization_id.as_str();
    let text = |text: &str| Text::from(text);
    let label = |text: &str| (!text.is_empty()).then(|| Text::from(text));
    let since = match collect.since.as_str() {
        "" => None,
        since => Some(parse_instant(since).ok_or_else(|| {
            Failure::usage(format!("collect.since '{since}' is not a time such as 2026-11-20T13:05:00Z"))
        })?),
    };
    let (name, value) = collect.virtual_node_label.split_once('=').ok_or_else(|| {
        let label = &collect.virtual_node_label;
        Failure::usage(format!("collect.virtual_node_label '{label}' is not name=value"))
    })?;
    let currency = config.rules.currency_of(organization_id).clone();
    Ok(CollectorOptions {
        provider: text(&collect.provider),
        account_id: (!collect.account_id.is_empty()).then(|| text(&collect.account_id)),
        region: text(&collect.region),
        instance_type: text(&collect.instance_type),
        since,
        start: collect.pod_start.into(),
        missed_stop: collect.missed_stop.into(),
        labels: collect.labels.clone(),
        virtual_node_label: (text(name), text(value)),
        qos_label: label(&collect.qos_label),
        gpu_model_label: label(&collect.gpu_model_label),
        pool_label: label(&collect.pool_label),
        price_annotation: text(&collect.price_annotation),
        tensor_fusion_domain: text(&collect.tensor_fusion_domain),
        gpu_models: collect.gpu_models.clone(),
        gpu_resources: collect.gpu_resources.clone(),
        device_classes: collect.device_classes.clone(),
        gpu_sharing: collect.gpu_sharing.clone(),
        gpu_share_names: collect.gpu_share_names.clone(),
        watched,
        mass_stop_percent: collect.mass_stop_percent,
        mass_stop_confirmations: collect.mass_stop_confirmations,
        ..CollectorOptions::new(organization_id.into(), cluster_id.into(), currency)
    })
}

/// Returns the modification time and the size of the price list's file. If both are equal to earlier values,
/// the list is unchanged. Returns `None` if they cannot be read, or if the file is so new that another write
/// may not change its time.
pub fn price_stamp(collect: &CollectConfig) -> Option<(SystemTime, u64)> {
    let found = std::fs::metadata(&collect.price_list).ok()?;
    let written = found.modified().ok()?;
    let is_old = written.elapsed().is_ok_and(|age| age > STAMP_AGE);
    is_old.then_some((written, found.len()))
}

/// Reads prices of nodes: the list of the file and the configured rates.
///
/// # Errors
/// If the file cannot be read, or a price is not valid.
pub fn prices(collect: &CollectConfig, currency: &Text) -> Result<PriceBook, Failure> {
    let mut list = PriceList::default();
    let file = collect.price_list.as_str();
    if !file.is_empty() {
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::usage(format!("the price list '{file}' cannot be used: {error}"))
        };
        let text = std::fs::read(Path::new(file)).map_err(|error| wrong(&error))?;
        read_price_list(text.as_slice(), &mut list).map_err(|error| wrong(&error))?;
        if let Some(other) = list.currency().filter(|other| *other != currency) {
            return Err(wrong(&format!(
                "its prices are in {other}, but the organization's currency is {currency}; import a list \
                 with --currency {currency}, or correct rules.currency"
            )));
        }
    }
    Ok(PriceBook { list, rates: rates(collect)? })
}

fn rates(collect: &CollectConfig) -> Result<Option<CapacityRates>, Failure> {
    let keys = [
        ("price_per_vcpu_hour", &collect.price_per_vcpu_hour),
        ("price_per_gib_hour", &collect.price_per_gib_hour),
        ("price_per_gpu_hour", &collect.price_per_gpu_hour),
    ];
    if keys.iter().all(|(_, text)| text.is_empty()) {
        return Ok(None);
    }
    let price = |(key, text): (&str, &String)| {
        let text = if text.is_empty() { "0" } else { text };
        text.parse::<UnitPrice>().map_err(|error| {
            Failure::usage(format!("collect.{key} '{text}' is not a price such as 0.03: {error}"))
        })
    };
    let [vcpu, gib, gpu] = keys;
    Ok(Some(CapacityRates {
        per_vcpu_hour: price(vcpu)?,
        per_gib_hour: price(gib)?,
        per_gpu_hour: price(gpu)?,
    }))
}
