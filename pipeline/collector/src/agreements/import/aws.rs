//! AWS: the output of `aws ec2 describe-reserved-instances`. Savings plans are in `plans.rs`.

use prorata_schemas::money::UnitPrice;
use serde_json::Value;

use super::{AgreementsImporter, NOT_ACTIVE, ReservedMachines, UNREADABLE, text, whole};
use crate::prices::decimal;

/// Takes reserved instances.
pub fn take(import: &mut AgreementsImporter, value: &Value) {
    let id = text(value, "ReservedInstancesId");
    let state = text(value, "State");
    if !matches!(state, "active" | "queued") {
        return import.skip(NOT_ACTIVE, || format!("{id}: state '{state}'"));
    }
    let (product, tenancy) = (text(value, "ProductDescription"), text(value, "InstanceTenancy"));
    if !product.starts_with("Linux/UNIX") || !matches!(tenancy, "" | "default") {
        let reason = "not for Linux/UNIX on shared hardware; add the entry by hand if it covers nodes";
        return import.skip(reason, || format!("{id}: '{product}', tenancy '{tenancy}'"));
    }
    let currency = text(value, "CurrencyCode");
    if currency != import.currency {
        let reason = "another currency; import it with --currency into a file of its own";
        return import.skip(reason, || format!("{id}: '{currency}'"));
    }
    // A regional reservation does not name its region. The name of a zone is its region and a letter.
    let region = match text(value, "AvailabilityZone") {
        "" => import.region.clone(),
        zone => Some(zone.trim_end_matches(|c: char| c.is_ascii_lowercase()).to_owned()),
    };
    let Some(region) = region else {
        return import.skip("without a region; give --region", || id.to_owned());
    };
    let Some(cost) = hourly_cost(value) else {
        return import.skip(UNREADABLE, || format!("{id}: a price or Duration"));
    };
    import.reserve(&ReservedMachines {
        provider: "aws",
        id,
        machine: text(value, "InstanceType"),
        count: text(value, "InstanceCount"),
        region: &region,
        from: text(value, "Start"),
        to: text(value, "End"),
        hourly_cost: Some(cost),
    });
}

/// Returns the hourly cost of the reserved instances, rounded down to 10^-12; `None` if a value is not valid.
/// It is the number of instances times the sum of the hourly part of the upfront price, the recurring charges
/// and the usage price.
fn hourly_cost(value: &Value) -> Option<UnitPrice> {
    let atoms = |value: &Value, key: &str| match text(value, key) {
        "" => Some(0),
        price => decimal(price).map(UnitPrice::atoms),
    };
    let seconds = whole(text(value, "Duration")).filter(|seconds| *seconds > 0)?;
    let mut sum = atoms(value, "FixedPrice")?.checked_mul(3_600)?.checked_div(seconds)?;
    sum = sum.checked_add(atoms(value, "UsagePrice")?)?;
    for charge in value.get("RecurringCharges").and_then(Value::as_array).into_iter().flatten() {
        if text(charge, "Frequency") != "Hourly" {
            return None;
        }
        sum = sum.checked_add(atoms(charge, "Amount")?)?;
    }
    UnitPrice::from_atoms(sum.checked_mul(whole(text(value, "InstanceCount"))?)?)
}
