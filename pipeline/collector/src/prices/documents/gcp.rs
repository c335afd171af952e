//! Google Cloud: pages of the catalogue's SKUs of Compute Engine.
//!
//! The catalogue has no machine types, but vCPUs, GiB and GPUs by family and region. A machine's price is
//! their sum, by the table of families below. A machine is priced where all its parts are, from the latest of
//! their instants on.

use std::collections::BTreeMap;
use std::fmt;
use std::io::BufRead;

use prorata_schemas::event::CapacityType;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::time::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::json::{NumbersAsText, elements};
use super::{Found, ImportError, Importer};
use crate::instant::parse_instant;

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
    resource_family: String,
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

/// What a family's machines are made of.
struct Family {
    name: &'static str,
    /// How descriptions of its vCPUs begin.
    core: &'static str,
    /// How descriptions of its memory begin.
    ram: &'static str,
    /// Kinds with their GiB for each vCPU, in hundredths, and the vCPUs of their sizes.
    kinds: &'static [(&'static str, u64, &'static [u64])],
}

const SMALL: &[u64] = &[2, 4, 8, 16];
const USUAL: &[u64] = &[2, 4, 8, 16, 32, 48, 64, 80, 96, 128];

const FAMILIES: &[Family] = &[
    Family {
        name: "e2",
        core: "E2 Instance Core",
        ram: "E2 Instance Ram",
        kinds: &[("standard", 400, &[2, 4, 8, 16, 32]), ("highmem", 800, SMALL), ("highcpu", 100, SMALL)],
    },
    Family {
        name: "n1",
        core: "N1 Predefined Instance Core",
        ram: "N1 Predefined Instance Ram",
        kinds: &[
            ("standard", 375, &[1, 2, 4, 8, 16, 32, 64, 96]),
            ("highmem", 650, &[2, 4, 8, 16, 32, 64, 96]),
            ("highcpu", 90, &[2, 4, 8, 16, 32, 64, 96]),
        ],
    },
    Family {
        name: "n2",
        core: "N2 Instance Core",
        ram: "N2 Instance Ram",
        kinds: &[("standard", 400, USUAL), ("highmem", 800, USUAL), ("highcpu", 100, USUAL)],
    },
    Family {
        name: "n2d",
        core: "N2D AMD Instance Core",
        ram: "N2D AMD Instance Ram",
        kinds: &[("standard", 400, USUAL), ("highmem", 800, USUAL), ("highcpu", 100, USUAL)],
    },
    Family {
        name: "t2d",
        core: "T2D AMD Instance Core",
        ram: "T2D AMD Instance Ram",
        kinds: &[("standard", 400, &[1, 2, 4, 8, 16, 32, 48, 60])],
    },
    Family {
        name: "c2",
        core: "Compute optimized Core",
        ram: "Compute optimized Ram",
        kinds: &[("standard", 400, &[4, 8, 16, 30, 60])],
    },
];

/// Machines with GPUs: name, vCPUs, GiB, GPUs, and how descriptions of vCPUs, memory and GPUs begin.
type Accelerated = (&'static str, u64, u64, u64, [&'static str; 3]);

const A2: [&str; 3] = ["A2 Instance Core", "A2 Instance Ram", "Nvidia Tesla A100 GPU"];
const A2_ULTRA: [&str; 3] = ["A2 Instance Core", "A2 Instance Ram", "Nvidia Tesla A100 80GB GPU"];
const G2: [&str; 3] = ["G2 Instance Core", "G2 Instance Ram", "Nvidia L4 GPU"];

const ACCELERATED: &[Accelerated] = &[
    ("a2-highgpu-1g", 12, 85, 1, A2),
    ("a2-highgpu-2g", 24, 170, 2, A2),
    ("a2-highgpu-4g", 48, 340, 4, A2),
    ("a2-highgpu-8g", 96, 680, 8, A2),
    ("a2-ultragpu-1g", 12, 170, 1, A2_ULTRA),
    ("a2-ultragpu-2g", 24, 340, 2, A2_ULTRA),
    ("a2-ultragpu-4g", 48, 680, 4, A2_ULTRA),
    ("a2-ultragpu-8g", 96, 1360, 8, A2_ULTRA),
    ("g2-standard-4", 4, 16, 1, G2),
    ("g2-standard-8", 8, 32, 1, G2),
    ("g2-standard-12", 12, 48, 1, G2),
    ("g2-standard-16", 16, 64, 1, G2),
    ("g2-standard-24", 24, 96, 2, G2),
    ("g2-standard-32", 32, 128, 1, G2),
    ("g2-standard-48", 48, 192, 4, G2),
    ("g2-standard-96", 96, 384, 8, G2),
];

/// A part of machines: how its description begins, its region, and how it is bought.
pub type Part = (&'static str, String, CapacityType);

/// Prices of parts.
pub type Parts = BTreeMap<Part, (UnitPrice, Timestamp)>;

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
                "skus" => map.next_value_seed(elements(|sku| take(self.0, &sku)))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// All beginnings of descriptions that count.
fn beginnings() -> impl Iterator<Item = &'static str> {
    let families = FAMILIES.iter().flat_map(|family| [family.core, family.ram]);
    families.chain([A2, A2_ULTRA, G2].into_iter().flatten())
}

fn take(import: &mut Importer, sku: &Sku) -> Result<(), String> {
    let capacity_type = match sku.category.usage_type.as_str() {
        "OnDemand" => Some(CapacityType::OnDemand),
        "Preemptible" => Some(CapacityType::Spot),
        _ => None,
    };
    let description = sku.description.strip_prefix("Spot Preemptible ").unwrap_or(&sku.description);
    // `running in` follows at once: `N2 Instance Core running in Frankfurt`.
    let is_of =
        |begin: &&str| description.strip_prefix(begin).is_some_and(|rest| rest.starts_with(" running"));
    let part = beginnings().find(is_of).filter(|_| sku.category.resource_family == "Compute");
    let (Some(part), Some(capacity_type)) = (part, capacity_type) else {
        import.skip("not vCPU, memory or GPU of a known family");
        return Ok(());
    };
    let Some(info) = sku.pricing_info.last() else {
        import.skip("without a price");
        return Ok(());
    };
    let expression = &info.pricing_expression;
    let Some(rate) = expression.tiered_rates.last().filter(|_| expression.usage_unit.ends_with('h')) else {
        import.skip("not priced by the hour");
        return Ok(());
    };
    if rate.unit_price.currency_code != import.currency {
        import.skip(super::OTHER_CURRENCY);
        return Ok(());
    }
    let fault = |what: &str| format!("{}: {what}", sku.description);
    let price = price(&rate.unit_price).ok_or_else(|| fault("units or nanos is not a number"))?;
    let from = parse_instant(&info.effective_time).ok_or_else(|| fault("effectiveTime is not a time"))?;
    for region in &sku.service_regions {
        let before = import.parts.insert((part, region.clone(), capacity_type), (price, from));
        if before.is_some_and(|(before, _)| before != price) {
            return Err(fault("a second SKU has another price for this region"));
        }
    }
    Ok(())
}

/// Units and billionths.
fn price(price: &GooglePrice) -> Option<UnitPrice> {
    let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u32>().ok() };
    let (units, nanos) =
        (number(&price.units)?, number(&price.nanos).filter(|nanos| *nanos < 1_000_000_000)?);
    UnitPrice::from_atoms(i128::from(units) * 1_000_000_000_000 + i128::from(nanos) * 1_000)
}

/// Every machine whose parts are all priced.
pub fn add_machines(import: &mut Importer) -> Result<(), String> {
    let parts = std::mem::take(&mut import.parts);
    let places: std::collections::BTreeSet<(&String, CapacityType)> =
        parts.keys().map(|(_, region, capacity_type)| (region, *capacity_type)).collect();
    for (region, capacity_type) in places {
        let part = |begin| parts.get(&(begin, region.clone(), capacity_type)).copied();
        for family in FAMILIES {
            let (Some(core), Some(ram)) = (part(family.core), part(family.ram)) else { continue };
            for (kind, gib_hundredths, sizes) in family.kinds {
                for vcpus in *sizes {
                    let name = format!("{}-{kind}-{vcpus}", family.name);
                    let amounts = [(core, vcpus * 100), (ram, vcpus * gib_hundredths)];
                    add(import, &name, (region, capacity_type), &amounts)?;
                }
            }
        }
        for (name, vcpus, gib, gpus, begins) in ACCELERATED {
            let found = begins.map(part);
            let [Some(core), Some(ram), Some(gpu)] = found else { continue };
            let amounts = [(core, vcpus * 100), (ram, gib * 100), (gpu, gpus * 100)];
            add(import, name, (region, capacity_type), &amounts)?;
        }
    }
    Ok(())
}

/// Adds the sum of parts, their amounts in hundredths.
fn add(
    import: &mut Importer,
    name: &str,
    (region, capacity_type): (&String, CapacityType),
    amounts: &[((UnitPrice, Timestamp), u64)],
) -> Result<(), String> {
    // Prices are whole billionths, so that hundredths of them are exact.
    let atoms: i128 =
        amounts.iter().map(|((price, _), amount)| price.atoms() * i128::from(*amount) / 100).sum();
    let from = amounts.iter().map(|((_, from), _)| *from).max().unwrap_or_default();
    let hourly =
        UnitPrice::from_atoms(atoms).ok_or_else(|| format!("{name}: the sum has more than 28 digits"))?;
    import.add(&Found {
        provider: "gce",
        region,
        instance_type: name,
        os: "linux",
        capacity_type,
        hourly: &hourly.to_string(),
        valid_from: &from.to_string(),
    })
}
