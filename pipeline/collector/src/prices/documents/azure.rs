//! Azure: pages of the retail prices API.
//!
//! Hourly prices of virtual machines by consumption are taken, spot prices as such. Prices of low priority,
//! reservations and development are left out.

use std::fmt;
use std::io::BufRead;

use prorata_schemas::event::CapacityType;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::json::{NumbersAsText, elements};
use super::{Found, ImportError, Importer};

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
                "Items" => map.next_value_seed(elements(|item| take(self.0, &item)))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

fn take(import: &mut Importer, item: &Item) -> Result<(), String> {
    let is_machine = item.service_name == "Virtual Machines"
        && item.unit_of_measure == "1 Hour"
        && item.r#type == "Consumption"
        && item.is_primary_meter_region != Some(false)
        && !item.sku_name.ends_with(" Low Priority")
        && !item.product_name.contains("CloudServices")
        && !item.arm_sku_name.is_empty()
        && !item.arm_region_name.is_empty();
    if !is_machine {
        import.skip("not priced per hour of a virtual machine");
        return Ok(());
    }
    if item.currency_code != import.currency {
        import.skip(super::OTHER_CURRENCY);
        return Ok(());
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
    })
}
