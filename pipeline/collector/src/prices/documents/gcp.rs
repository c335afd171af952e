//! Google Cloud: pages of the catalogue of Compute Engine SKUs.
//!
//! The catalogue has no machine types; it has vCPUs, GiB and GPUs by family and region. A machine's price is
//! the sum of its parts, from the table of machine types in `gcp/machines.txt`. A machine has a price if all
//! its parts have a price. The machine's price is valid from the latest instant at which a part's price
//! begins. If SKUs contradict each other, machines with these parts are left out.

mod machines;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::BufRead;

use prorata_schemas::event::CapacityType;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::time::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::json::{NumbersAsText, elements};
use super::{Found, ImportError, Importer, UNREADABLE};
use crate::instant::parse_instant;
use machines::MachineType;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Sku {
    description: String,
    category: Category,
    service_regions: Vec<String>,
    pricing_info: Vec<PricingInfo>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Category {
    usage_type: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PricingInfo {
    effective_time: String,
    pricing_expression: PricingExpression,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PricingExpression {
    usage_unit: String,
    tiered_rates: Vec<TieredRate>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct TieredRate {
    unit_price: GooglePrice,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct GooglePrice {
    currency_code: String,
    units: String,
    nanos: String,
}

/// Prices of parts of machines.
#[derive(Debug)]
pub struct Parts {
    machines: Vec<MachineType>,
    /// The description prefixes of all parts.
    known: BTreeSet<&'static str>,
    prices: BTreeMap<Part, PartPrice>,
}

/// A part of machines: description prefix, region, and capacity type.
type Part = (&'static str, String, CapacityType);

/// The price of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartPrice {
    /// Price for a number of hours, from an instant on.
    One { price: UnitPrice, hours: u32, from: Timestamp },
    /// SKUs give two different prices.
    Two,
}

impl Default for Parts {
    fn default() -> Self {
        let machines = machines::read();
        let known = machines.iter().flat_map(MachineType::parts).flatten().copied().collect();
        Self { machines, known, prices: BTreeMap::new() }
    }
}

/// Reads the parts of a page.
pub fn read(from: impl BufRead, import: &mut Importer) -> Result<(), ImportError> {
    let mut deserializer = serde_json::Deserializer::from_reader(NumbersAsText::new(from));
    CataloguePage(import).deserialize(&mut deserializer)?;
    Ok(deserializer.end()?)
}

struct CataloguePage<'i>(&'i mut Importer);

impl<'de> DeserializeSeed<'de> for CataloguePage<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for CataloguePage<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page of Google's catalogue")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "skus" => map.next_value_seed(elements(|sku| match sku {
                    Ok(sku) => take(self.0, &sku),
                    Err(error) => self.0.skip(UNREADABLE, || error),
                }))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Returns the prefix of a SKU's description, which names a part of machines, and whether it is spot
/// capacity. Returns `None` if it is other capacity. Examples: `N2 Instance Core running in Iowa`, `Nvidia L4
/// GPU attached to Spot Preemptible VMs running in Iowa`, `SSD backed Local Storage in Iowa`.
fn described(description: &str) -> Option<(&str, bool)> {
    const SPOT: &str = "Spot Preemptible ";
    let (text, is_spot) = description.strip_prefix(SPOT).map_or((description, false), |text| (text, true));
    let ends = [" attached to ", " running in ", " in "].into_iter().filter_map(|end| text.find(end));
    let (part, rest) = text.split_at(ends.min().unwrap_or(text.len()));
    match rest.strip_prefix(" attached to ") {
        None => Some((part, is_spot)),
        Some(machines) => machines.starts_with(SPOT).then_some((part, true)),
    }
}

/// Returns the hours of a usage unit, or `None` if it is not a unit of time. Google's monthly prices are for
/// 730 hours.
fn hours_of(usage_unit: &str) -> Option<u32> {
    match usage_unit {
        "h" | "GiBy.h" => Some(1),
        "GiBy.mo" => Some(HOURS_IN_MONTH),
        _ => None,
    }
}

const HOURS_IN_MONTH: u32 = 730;

fn take(import: &mut Importer, sku: &Sku) {
    let part = described(&sku.description)
        .and_then(|(part, is_spot)| Some((*import.parts.known.get(part)?, is_spot)));
    let example = || sku.description.clone();
    if sku.category.usage_type.starts_with("Commit") {
        return import.skip("a commitment's price, which belongs in agreements", example);
    }
    let Some((part, is_spot)) = part else {
        return import.skip("not a part of a known machine type", example);
    };
    let capacity_type = match sku.category.usage_type.as_str() {
        "Preemptible" => CapacityType::Spot,
        "OnDemand" if is_spot => CapacityType::Spot,
        "OnDemand" => CapacityType::OnDemand,
        _ => return import.skip("neither on demand nor spot", example),
    };
    let Some(info) = sku.pricing_info.last() else { return import.skip("without a price", example) };
    let expression = &info.pricing_expression;
    let rate = expression.tiered_rates.last();
    let (Some(rate), Some(hours)) = (rate, hours_of(&expression.usage_unit)) else {
        return import.skip("not priced by time", example);
    };
    if rate.unit_price.currency_code != import.currency {
        return import.skip_currency(&rate.unit_price.currency_code, example);
    }
    let Some(price) = price(&rate.unit_price) else {
        return import.skip(UNREADABLE, || format!("{}: units or nanos is not a number", sku.description));
    };
    if price == UnitPrice::ZERO {
        return import.skip("price 0", example);
    }
    let Some(from) = parse_instant(&info.effective_time) else {
        return import.skip(UNREADABLE, || format!("{}: effectiveTime is not a time", sku.description));
    };
    for region in &sku.service_regions {
        let now = PartPrice::One { price, hours, from };
        let key = (part, region.clone(), capacity_type);
        match import.parts.prices.get_mut(&key) {
            Some(before) => {
                let is_same = matches!(before, PartPrice::One { price: other, hours: of, .. }
                    if (*other, *of) == (price, hours));
                *before = if is_same { now } else { PartPrice::Two };
                if !is_same {
                    import.skip("a part with two prices", || format!("{} in {region}", sku.description));
                }
            }
            None => drop(import.parts.prices.insert(key, now)),
        }
    }
}

/// Parses a price of units and billionths; `None` if it is not valid.
fn price(price: &GooglePrice) -> Option<UnitPrice> {
    let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u32>().ok() };
    let (units, nanos) =
        (number(&price.units)?, number(&price.nanos).filter(|nanos| *nanos < 1_000_000_000)?);
    UnitPrice::from_atoms(i128::from(units) * 1_000_000_000_000 + i128::from(nanos) * 1_000)
}

/// Adds every machine whose parts each have exactly one price.
pub fn add_machines(import: &mut Importer) {
    let Parts { machines, prices, .. } = std::mem::take(&mut import.parts);
    let places: BTreeSet<(&String, CapacityType)> =
        prices.keys().map(|(_, region, capacity_type)| (region, *capacity_type)).collect();
    for (region, capacity_type) in places {
        let priced = |part: &&'static str| prices.get(&(*part, region.clone(), capacity_type)).copied();
        for machine in &machines {
            let found: Vec<_> = machine.parts().map(|names| names.iter().find_map(priced)).collect();
            let example = || format!("{} in {region}", machine.name);
            if found.first().is_none_or(Option::is_none) {
                // The region does not have the family.
            } else if found.contains(&Some(PartPrice::Two)) {
                import.skip("a machine with a part with two prices", example);
            } else if found.contains(&None) {
                import.skip("a machine with a part without a price", example);
            } else {
                let found = found.into_iter().flatten();
                add(import, machine, region, capacity_type, found.zip(machine.hundredths()));
            }
        }
    }
}

/// Adds a machine's price: the sum of the prices of its parts, rounded once, half to even. The amounts of the
/// parts are in hundredths.
fn add(
    import: &mut Importer,
    machine: &MachineType,
    region: &str,
    capacity_type: CapacityType,
    parts: impl Iterator<Item = (PartPrice, u32)>,
) {
    let (mut sum, mut valid_from) = (0_i128, Timestamp(0));
    for (part, hundredths) in parts {
        if let PartPrice::One { price, hours, from } = part {
            sum += price.atoms() * i128::from(hundredths) * i128::from(HOURS_IN_MONTH / hours);
            valid_from = valid_from.max(from);
        }
    }
    let whole = i128::from(HOURS_IN_MONTH) * 100;
    let (floor, rest) = (sum / whole, sum % whole);
    let is_up = rest * 2 > whole || (rest * 2 == whole && floor % 2 == 1);
    let example = || format!("{} in {region}: its sum has more than 28 digits", machine.name);
    let Some(hourly) = UnitPrice::from_atoms(floor + i128::from(is_up)) else {
        return import.skip(UNREADABLE, example);
    };
    import.add(&Found {
        provider: "gce",
        region,
        instance_type: machine.name,
        os: "linux",
        capacity_type,
        hourly: &hourly.to_string(),
        valid_from: &valid_from.to_string(),
    });
}
