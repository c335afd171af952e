//! Prices of nodes: from the price list, or by capacity if the list has no price.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::event::{CapacityType, Quantities, names};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::quantity::{CPU, MEMORY};
use prorata_schemas::time::Timestamp;

use super::list::{PriceList, PricedType};

/// Rates that price a node by its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityRates {
    /// Price of a vCPU per hour.
    pub per_vcpu_hour: UnitPrice,
    /// Price of a GiB of memory per hour.
    pub per_gib_hour: UnitPrice,
    /// Price of a GPU per hour.
    pub per_gpu_hour: UnitPrice,
}

/// The properties of a node that determine its price.
#[derive(Clone, Copy, Debug)]
pub struct PricedNode<'n> {
    /// Provider.
    pub provider: &'n Text,
    /// Region.
    pub region: &'n Text,
    /// Zone, if known.
    pub zone: Option<&'n Text>,
    /// Instance type.
    pub instance_type: &'n Text,
    /// Operating system.
    pub os: &'n Text,
    /// On demand or spot.
    pub capacity_type: CapacityType,
    /// The whole capacity of the node.
    pub capacity: &'n Quantities,
    /// Number of GPUs of the node, in thousandths.
    pub gpu_millis: u128,
}

/// The sources of node prices, besides the nodes themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceBook {
    /// The list, which takes precedence.
    pub list: PriceList,
    /// Rates for nodes whose price is not in the list.
    pub rates: Option<CapacityRates>,
}

impl PriceBook {
    /// Returns the price of a node at an instant, or `None` if neither the list nor the rates give a price.
    pub fn price(&self, node: &PricedNode<'_>, at: Timestamp) -> Option<UnitPrice> {
        let listed = self.listed(node).and_then(|prices| prices.range(..=at).next_back());
        listed.map(|(_, price)| *price).or_else(|| by_capacity(self.rates?, node))
    }

    /// Returns the instants after `after`, up to `until`, at which the list changes the price of this node.
    pub fn changes(&self, node: &PricedNode<'_>, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let later = Timestamp(after.0.saturating_add(1));
        let Some(prices) = self.listed(node).filter(|_| later <= until) else { return Vec::new() };
        prices.range(later..=until).map(|(from, _)| *from).collect()
    }

    fn listed(&self, node: &PricedNode<'_>) -> Option<&BTreeMap<Timestamp, UnitPrice>> {
        self.list.prices_of(&PricedType {
            provider: node.provider.clone(),
            region: priced_region(node.provider, node.region, node.zone),
            instance_type: node.instance_type.clone(),
            os: node.os.clone(),
            capacity_type: node.capacity_type,
        })
    }
}

/// Returns the region by which lists price a node. In a Local Zone or Wavelength Zone of AWS, this is the
/// zone without its letter (`us-west-2-lax-1` for `us-west-2-lax-1a`). Machines there have their own prices.
pub fn priced_region(provider: &str, region: &Text, zone: Option<&Text>) -> Text {
    if names::provider(provider) != "aws" {
        return region.clone();
    }
    let of_region = names::place(region);
    let zone = zone.map(|zone| names::place(zone));
    let is_local = |zone: &str| zone.strip_prefix(&*of_region).is_some_and(|rest| rest.starts_with('-'));
    let Some(zone) = zone.filter(|zone| is_local(zone)) else { return region.clone() };
    let group = zone.trim_end_matches(|c: char| c.is_ascii_lowercase());
    if group.ends_with(|c: char| c.is_ascii_digit()) { group.into() } else { zone.into() }
}

/// Returns the sum of the prices of vCPUs, memory and GPUs, each rounded down to 10^-12. Returns `None` if
/// the sum exceeds 28 digits.
fn by_capacity(rates: CapacityRates, node: &PricedNode<'_>) -> Option<UnitPrice> {
    const GIB: u128 = 1 << 30;
    let amount = |name: &str| node.capacity.get(name).map_or(0, |quantity| quantity.amount);
    let part = |amount: u128, rate: UnitPrice, unit: u128| -> Option<u128> {
        let atoms = u128::try_from(rate.atoms()).ok()?;
        Some(amount.checked_mul(atoms)? / unit)
    };
    let vcpu = part(amount(CPU), rates.per_vcpu_hour, 1000)?;
    let memory = part(amount(MEMORY), rates.per_gib_hour, GIB)?;
    let gpu = part(node.gpu_millis, rates.per_gpu_hour, 1000)?;
    UnitPrice::from_atoms(i128::try_from(vcpu.checked_add(memory)?.checked_add(gpu)?).ok()?)
}
