//! Azure: reservations as the API lists them (`az reservations reservation list`), and the CSV export of the
//! portal's page of reservations.

use std::cell::Cell;
use std::io::Read;

use serde_json::Value;

use super::bounded::{Bounded, ELEMENT_BYTES_MAX};
use super::{AgreementsImporter, DAMAGED, NOT_ACTIVE, ReservedMachines, last, text};

/// Columns that are read, in the order of [`read_export`]. In the file, they may have any order.
const COLUMNS: [&str; 8] = [
    "Reservation Id",
    "Type",
    "Status",
    "Product name",
    "Quantity",
    "Region",
    "Purchase date",
    "Expiration date",
];

/// Takes a reservation of the API.
pub fn take(import: &mut AgreementsImporter, value: &Value) {
    let properties = value.get("properties").unwrap_or(&Value::Null);
    let first = |keys: [&str; 2]| keys.map(|key| text(properties, key)).into_iter().find(|t| !t.is_empty());
    let reserved = ReservedMachines {
        provider: "azure",
        id: last(text(value, "name")),
        machine: value.get("sku").map_or("", |sku| text(sku, "name")),
        count: text(properties, "quantity"),
        region: text(value, "location"),
        // `effectiveDateTime` is the time of the reservation's last change.
        from: first(["benefitStartTime", "effectiveDateTime"]).unwrap_or_default(),
        to: first(["expiryDateTime", "expiryDate"]).unwrap_or_default(),
        hourly_cost: None,
    };
    let (kind, state) = (text(properties, "reservedResourceType"), text(properties, "provisioningState"));
    reserve(import, &reserved, kind, state);
}

/// Reads an export of the portal once. Fields that are missing at the end of a line count as empty.
pub fn read_export(import: &mut AgreementsImporter, name: &str, from: impl Read) {
    let left = Cell::new(ELEMENT_BYTES_MAX);
    let mut builder = csv::ReaderBuilder::new();
    let mut reader = builder
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(Bounded { from, left: &left });
    let mut places: Option<[usize; COLUMNS.len()]> = None;
    let mut record = csv::ByteRecord::new();
    loop {
        left.set(ELEMENT_BYTES_MAX);
        match reader.read_byte_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return import.skip(DAMAGED, || format!("'{name}': {error}")),
        }
        let line = csv::StringRecord::from_byte_record_lossy(record.clone());
        if let Some(places) = places {
            let [id, kind, state, machine, count, region, from, to] =
                places.map(|place| line.get(place).unwrap_or_default());
            let (provider, hourly_cost) = ("azure", None);
            let reserved = ReservedMachines { provider, id, machine, count, region, from, to, hourly_cost };
            reserve(import, &reserved, kind, state);
            continue;
        }
        let place = |column: &str| line.iter().position(|found| found.eq_ignore_ascii_case(column));
        let missing: Vec<&str> = COLUMNS.into_iter().filter(|column| place(column).is_none()).collect();
        if !missing.is_empty() {
            let reason =
                "a document that is neither JSON nor Azure's export with all columns; export it again";
            return import.skip(reason, || format!("'{name}': without the column {}", missing.join(", ")));
        }
        places = Some(COLUMNS.map(|column| place(column).unwrap_or_default()));
    }
}

fn reserve(import: &mut AgreementsImporter, reserved: &ReservedMachines<'_>, kind: &str, state: &str) {
    let id = reserved.id;
    if kind != "VirtualMachines" {
        return import.skip("not a reservation of virtual machines", || format!("{id}: '{kind}'"));
    }
    // A reservation is `Expiring` in its last month.
    if !matches!(state, "Succeeded" | "Expiring") {
        return import.skip(NOT_ACTIVE, || format!("{id}: state '{state}'"));
    }
    import.reserve(reserved);
}
