//! Azure: pages of the retail prices API.
//!
//! Hourly consumption prices of virtual machines are taken, and spot prices are marked as spot. Prices of low
//! priority, reservations, savings plans and development are left out: a purchase for a term is an agreement.

use std::fmt;
use std::io::BufRead;

use prorata_schemas::event::CapacityType;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::json::{NumbersAsText, elements};
use super::{Found, ImportError, Importer, UNREADABLE};

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Item {
    currency_code: String,
    retail_price: String,
    arm_region_name: String,
    effective_start_date: String,
    sku_name: String,
    product_name: String,
    service_name: String,
    unit_of_measure: String,
    r#type: String,
    is_primary_meter_region: Option<bool>,
    arm_sku_name: String,
}

/// Reads a page.
pub fn read(from: impl BufRead, import: &mut Importer) -> Result<(), ImportError> {
    let mut deserializer = serde_json::Deserializer::from_reader(NumbersAsText::new(from));
    AzurePage(import).deserialize(&mut deserializer)?;
    Ok(deserializer.end()?)
}

struct AzurePage<'i>(&'i mut Importer);

impl<'de> DeserializeSeed<'de> for AzurePage<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for AzurePage<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page of Azure's retail prices")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "Items" => map.next_value_seed(elements(|item| match item {
                    Ok(item) => take(self.0, &item),
                    Err(error) => self.0.skip(UNREADABLE, || error),
                }))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Returns the reason why a price is left out, or `None` if it belongs in the list.
fn left_out(item: &Item) -> Option<&'static str> {
    let is_machine = item.service_name == "Virtual Machines" && !item.product_name.contains("CloudServices");
    let reasons = [
        (!is_machine || item.arm_sku_name.is_empty(), "not a virtual machine"),
        (item.arm_region_name.is_empty(), "without a region"),
        (item.r#type == "Reservation", "a commitment's price, which belongs in agreements"),
        (item.r#type != "Consumption", "for development and tests only"),
        (item.unit_of_measure != "1 Hour", "not priced by the hour"),
        (item.is_primary_meter_region == Some(false), "of a meter that is not the region's own"),
        (item.sku_name.ends_with(" Low Priority"), "of low priority"),
    ];
    reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
}

fn take(import: &mut Importer, item: &Item) {
    let place = || format!("{} {} in {}", item.product_name, item.sku_name, item.arm_region_name);
    if let Some(reason) = left_out(item) {
        return import.skip(reason, place);
    }
    if item.currency_code != import.currency {
        return import.skip_currency(&item.currency_code, place);
    }
    let is_spot = item.sku_name.ends_with(" Spot");
    import.add(&Found {
        provider: "azure",
        region: &item.arm_region_name,
        instance_type: &item.arm_sku_name,
        os: if item.product_name.contains("Windows") { "windows" } else { "linux" },
        capacity_type: if is_spot { CapacityType::Spot } else { CapacityType::OnDemand },
        hourly: &item.retail_price,
        valid_from: &item.effective_start_date,
    });
}
