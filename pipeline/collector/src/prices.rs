//! What nodes cost: the price list, and rates by capacity for what no list has.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::event::{CapacityType, Quantities};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::quantity::{CPU, MEMORY};
use prorata_schemas::time::Timestamp;

/// What a price is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PricedType {
    /// Provider, as in node events.
    pub provider: Text,
    /// Region.
    pub region: Text,
    /// Instance type.
    pub instance_type: Text,
    /// Operating system, as the label `kubernetes.io/os` has it.
    pub os: Text,
    /// On demand or spot.
    pub capacity_type: CapacityType,
}

/// Prices by type, each valid from an instant until the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceList(BTreeMap<PricedType, BTreeMap<Timestamp, UnitPrice>>);

/// Why a list cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PriceListError {
    /// A type has two prices from one instant on.
    #[error("{instance_type} in {region} has two prices from {valid_from}: {one} and {other}; keep one")]
    TwoPrices {
        /// The type.
        instance_type: Text,
        /// Its region.
        region: Text,
        /// From when on.
        valid_from: Timestamp,
        /// The price that came first.
        one: UnitPrice,
        /// The other.
        other: UnitPrice,
    },
}

impl PriceList {
    /// Adds a price. The same price twice is one.
    ///
    /// # Errors
    /// When the list has another price of this type from the same instant.
    pub fn add(
        &mut self,
        of: PricedType,
        valid_from: Timestamp,
        hourly: UnitPrice,
    ) -> Result<(), PriceListError> {
        let (instance_type, region) = (of.instance_type.clone(), of.region.clone());
        match self.0.entry(of).or_default().insert(valid_from, hourly) {
            Some(one) if one != hourly => {
                Err(PriceListError::TwoPrices { instance_type, region, valid_from, one, other: hourly })
            }
            _ => Ok(()),
        }
    }

    /// Prices in the order of their types and instants.
    pub fn iter(&self) -> impl Iterator<Item = (&PricedType, Timestamp, UnitPrice)> {
        let prices = |(of, prices)| BTreeMap::iter(prices).map(move |(from, hourly)| (of, *from, *hourly));
        self.0.iter().flat_map(prices)
    }

    /// Number of prices.
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Rates that price a node by its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityRates {
    /// Of a vCPU for an hour.
    pub per_vcpu_hour: UnitPrice,
    /// Of a GiB of memory for an hour.
    pub per_gib_hour: UnitPrice,
    /// Of a GPU for an hour.
    pub per_gpu_hour: UnitPrice,
}

/// A node as prices are found for it.
#[derive(Clone, Copy, Debug)]
pub struct PricedNode<'n> {
    /// Provider.
    pub provider: &'n Text,
    /// Region.
    pub region: &'n Text,
    /// Instance type.
    pub instance_type: &'n Text,
    /// Operating system.
    pub os: &'n Text,
    /// On demand or spot.
    pub capacity_type: CapacityType,
    /// Its whole capacity.
    pub capacity: &'n Quantities,
    /// Its GPUs, in thousandths.
    pub gpu_millis: u128,
}

/// Where prices of nodes come from, besides the nodes themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceBook {
    /// The list, which comes first.
    pub list: PriceList,
    /// Rates for what the list does not have.
    pub rates: Option<CapacityRates>,
}

impl PriceBook {
    /// The price of a node at an instant; none: nothing says.
    pub fn price(&self, node: &PricedNode<'_>, at: Timestamp) -> Option<UnitPrice> {
        let listed = self.listed(node).and_then(|prices| prices.range(..=at).next_back());
        listed.map(|(_, price)| *price).or_else(|| by_capacity(self.rates?, node))
    }

    /// Instants after `after`, up to `until`, from which the list has another price of this node.
    pub fn changes(&self, node: &PricedNode<'_>, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let later = Timestamp(after.0.saturating_add(1));
        let Some(prices) = self.listed(node).filter(|_| later <= until) else { return Vec::new() };
        prices.range(later..=until).map(|(from, _)| *from).collect()
    }

    fn listed(&self, node: &PricedNode<'_>) -> Option<&BTreeMap<Timestamp, UnitPrice>> {
        self.list.0.get(&PricedType {
            provider: node.provider.clone(),
            region: node.region.clone(),
            instance_type: node.instance_type.clone(),
            os: node.os.clone(),
            capacity_type: node.capacity_type,
        })
    }
}

/// The sum over vCPUs, memory and GPUs, each rounded down to 10^-12; none where it passes 28 digits.
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
