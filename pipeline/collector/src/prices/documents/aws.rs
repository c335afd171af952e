//! AWS: the bulk offer file of Amazon EC2 of one region.
//!
//! Products come first, then the terms with their prices, by SKU. On-demand prices of instances on shared
//! hardware are taken, for Linux and for Windows with its licence, without other software. The file has
//! neither spot prices nor savings plans, and reserved instances are agreements.

use std::collections::BTreeMap;
use std::fmt;
use std::io::BufRead;

use prorata_schemas::event::CapacityType;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::json::{NumbersAsText, entries};
use super::{Found, ImportError, Importer, UNREADABLE};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Product {
    product_family: String,
    attributes: Attributes,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Attributes {
    instance_type: String,
    region_code: String,
    location_type: String,
    operating_system: String,
    tenancy: String,
    pre_installed_sw: String,
    capacitystatus: String,
    license_model: String,
    marketoption: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    effective_date: String,
    price_dimensions: BTreeMap<String, PriceDimension>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PriceDimension {
    unit: String,
    price_per_unit: BTreeMap<String, String>,
}

/// Instance type, region and operating system of a product.
struct Machine {
    instance_type: String,
    region: String,
    os: &'static str,
}

/// Reads the document.
pub fn read(from: impl BufRead, import: &mut Importer) -> Result<(), ImportError> {
    let mut deserializer = serde_json::Deserializer::from_reader(NumbersAsText::new(from));
    Document { import, machines: BTreeMap::new() }.deserialize(&mut deserializer)?;
    Ok(deserializer.end()?)
}

struct Document<'i> {
    import: &'i mut Importer,
    /// Machines by SKU.
    machines: BTreeMap<String, Machine>,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an offer file of AWS")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut has_products = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "products" => {
                    has_products = true;
                    map.next_value_seed(entries(|sku, product| match product {
                        Ok(product) => self.product(sku, product),
                        Err(error) => self.import.skip(UNREADABLE, || format!("{sku}: {error}")),
                    }))?;
                }
                "terms" if !has_products => {
                    return Err(A::Error::custom("the terms come before the products"));
                }
                "terms" => map.next_value_seed(Terms(&mut self))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl Document<'_> {
    fn product(&mut self, sku: String, product: Product) {
        let os = match product.attributes.operating_system.as_str() {
            "Windows" => "windows",
            _ => "linux",
        };
        let reason = left_out(&product);
        let Attributes { instance_type, region_code: region, .. } = product.attributes;
        match reason {
            Some(reason) => self.import.skip(reason, || format!("{sku}, {instance_type} in {region}")),
            None => drop(self.machines.insert(sku, Machine { instance_type, region, os })),
        }
    }

    fn terms(&mut self, sku: &str, terms: &BTreeMap<String, Term>) {
        let Some(machine) = self.machines.get(sku) else { return };
        for term in terms.values() {
            for dimension in term.price_dimensions.values().filter(|dimension| dimension.unit == "Hrs") {
                let Some(hourly) = dimension.price_per_unit.get(&self.import.currency) else {
                    let currency = dimension.price_per_unit.keys().next().map_or("none", String::as_str);
                    let place = || format!("{} in {}", machine.instance_type, machine.region);
                    self.import.skip_currency(currency, place);
                    continue;
                };
                self.import.add(&Found {
                    provider: "aws",
                    region: &machine.region,
                    instance_type: &machine.instance_type,
                    os: machine.os,
                    capacity_type: CapacityType::OnDemand,
                    hourly,
                    valid_from: &term.effective_date,
                });
            }
        }
    }
}

/// Returns the reason why a product is left out, or `None` if its price belongs in the list.
fn left_out(product: &Product) -> Option<&'static str> {
    let Product { product_family, attributes: of } = product;
    let reasons = [
        (!product_family.starts_with("Compute Instance"), "not a virtual machine"),
        (
            !matches!(of.location_type.as_str(), "" | "AWS Region"),
            "in a Local Zone or Wavelength Zone, which needs a line of your own",
        ),
        (of.region_code.is_empty(), "without a region"),
        (of.tenancy != "Shared", "on dedicated hardware"),
        (of.capacitystatus != "Used", "of a capacity reservation"),
        (!matches!(of.marketoption.as_str(), "" | "OnDemand"), "neither on demand nor spot"),
        (!matches!(of.operating_system.as_str(), "Linux" | "Windows"), "neither Linux nor Windows"),
        (
            of.pre_installed_sw != "NA" || of.license_model == "Bring your own license",
            "with licensed software, or a licence of your own",
        ),
    ];
    reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
}

/// Terms by kind; only on-demand terms count.
struct Terms<'d, 'i>(&'d mut Document<'i>);

impl<'de> DeserializeSeed<'de> for Terms<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Terms<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("terms by kind")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(kind) = map.next_key::<String>()? {
            match kind.as_str() {
                "OnDemand" => map.next_value_seed(entries(|sku, terms| match terms {
                    Ok(terms) => self.0.terms(&sku, &terms),
                    Err(error) => self.0.import.skip(UNREADABLE, || format!("{sku}: {error}")),
                }))?,
                _ => {
                    for sku in map.next_value::<BTreeMap<String, IgnoredAny>>()?.into_keys() {
                        self.0.import.skip("a commitment's price, which belongs in agreements", || sku);
                    }
                }
            }
        }
        Ok(())
    }
}
