//! Savings plans of AWS: the output of `aws savingsplans describe-savings-plans`, and of `aws savingsplans
//! describe-savings-plan-rates` for each plan, in any order.

use std::collections::BTreeMap;

use prorata_schemas::money::UnitPrice;
use prorata_schemas::rules::bounds::LIST_MAX;
use serde_json::Value;

use super::{AgreementsImporter, EMPTY, NOT_ACTIVE, TWICE, UNREADABLE, instant, quoted, text};
use crate::prices::decimal;

/// Reason for a plan without discounts.
const NO_RATES: &str = "a savings plan without rates; add the output of `aws savingsplans \
                        describe-savings-plan-rates --savings-plan-id ID`";
/// Reason for discounts without a plan.
const NO_PLAN: &str = "rates of a savings plan that no document describes; add the output of `aws \
                       savingsplans describe-savings-plans`";
/// Reason for a rate that is not for a machine of a node.
const OTHER_RATE: &str = "a rate for another product than Linux/UNIX on shared EC2 machines; add a discount \
                          by hand if it covers pods";
/// Reason for rates above the bound.
const TOO_MANY: &str = "more rates than a savings plan may have discounts; give --region, and the rates of \
                        other regions by hand";

/// Savings plans and discounts of the documents that were read so far.
#[derive(Debug, Default)]
pub struct FoundPlans {
    plans: BTreeMap<String, Plan>,
    /// Discounted prices by plan.
    rates: BTreeMap<String, Vec<Rate>>,
    /// Discounted prices of the document that is being read.
    of_document: Vec<Rate>,
}

#[derive(Debug)]
struct Plan {
    /// The lines of the plan's entry in the file of agreements, up to the discounts.
    head: String,
    /// The instance family to which the plan is limited; `None` if it covers any family.
    family: Option<String>,
}

#[derive(Debug)]
struct Rate {
    region: String,
    instance_type: String,
    rate: UnitPrice,
}

/// Takes a savings plan.
pub fn take(import: &mut AgreementsImporter, value: &Value) {
    let id = text(value, "savingsPlanId");
    let (state, kind) = (text(value, "state"), text(value, "savingsPlanType"));
    if !matches!(state, "active" | "queued") {
        return import.skip(NOT_ACTIVE, || format!("{id}: state '{state}'"));
    }
    if !matches!(kind, "Compute" | "EC2Instance") {
        return import.skip("a savings plan of another service", || format!("{id}: type '{kind}'"));
    }
    let currency = text(value, "currency");
    if currency != import.currency {
        let reason = "another currency; import it with --currency into a file of its own";
        return import.skip(reason, || format!("{id}: '{currency}'"));
    }
    let (start, end, commitment) = (text(value, "start"), text(value, "end"), text(value, "commitment"));
    for (field, value) in [("id", id), ("start", start), ("end", end), ("commitment", commitment)] {
        if value.is_empty() {
            return import.skip(EMPTY, || format!("'{id}': {field}"));
        }
    }
    let spend = decimal(commitment).filter(|spend| *spend > UnitPrice::ZERO);
    let (Some(from), Some(to), Some(spend)) = (instant(start), instant(end), spend) else {
        return import.skip(UNREADABLE, || format!("{id}: '{start}', '{end}' or '{commitment}'"));
    };
    if to <= from {
        return import.skip(UNREADABLE, || format!("{id}: ends at {to}, which is not after {from}"));
    }
    if import.plans.plans.contains_key(id) || import.entries.contains_key(id) {
        return import.skip(TWICE, || id.to_owned());
    }
    // The amortized cost of an hour is the commitment, regardless of the payment option.
    let cost = import.hourly_costs.get(id).copied().unwrap_or(spend);
    let head = format!(
        "  - {{id: {}, from: \"{from}\", to: \"{to}\",\n     provider: aws, kind: SAVINGS_PLAN, \
         hourly_commitment: \"{spend}\", hourly_cost: \"{cost}\",\n     discounts: [",
        quoted(id)
    );
    let family = (kind == "EC2Instance").then(|| text(value, "ec2InstanceFamily").to_owned());
    import.plans.plans.insert(id.to_owned(), Plan { head, family });
}

/// Takes a rate of the savings plan that the document names.
pub fn take_rate(import: &mut AgreementsImporter, value: &Value) {
    let properties = value.get("properties").and_then(Value::as_array);
    let property = |name: &str| {
        let mut found = properties.into_iter().flatten().filter(|property| text(property, "name") == name);
        found.next().map(|property| text(property, "value")).unwrap_or_default()
    };
    let (region, instance_type) = (property("region"), property("instanceType"));
    let is_machine = text(value, "productType") == "EC2"
        && text(value, "unit") == "Hrs"
        && text(value, "usageType").contains("BoxUsage")
        && property("productDescription") == "Linux/UNIX"
        && matches!(property("tenancy"), "shared" | "default")
        && !instance_type.is_empty();
    if !is_machine {
        return import
            .skip(OTHER_RATE, || format!("{} {}", text(value, "productType"), text(value, "usageType")));
    }
    if import.region.as_ref().is_some_and(|asked| asked != region) {
        return import.skip("a rate of another region than --region", || region.to_owned());
    }
    let Some(rate) = decimal(text(value, "rate")).filter(|rate| *rate > UnitPrice::ZERO) else {
        return import.skip(UNREADABLE, || format!("{instance_type}: rate '{}'", text(value, "rate")));
    };
    if import.plans.of_document.len() >= LIST_MAX {
        return import.skip(TOO_MANY, || instance_type.to_owned());
    }
    let (region, instance_type) = (region.to_owned(), instance_type.to_owned());
    import.plans.of_document.push(Rate { region, instance_type, rate });
}

/// Adds the rates of a document to the savings plan that the document names.
pub fn rates_of(import: &mut AgreementsImporter, document: &str, plan: Option<String>) {
    let rates = std::mem::take(&mut import.plans.of_document);
    if rates.is_empty() {
        return;
    }
    let Some(plan) = plan else {
        return import.skip("rates without savingsPlanId; fetch them again", || format!("'{document}'"));
    };
    // Documents may be the pages of one list.
    let of_plan = import.plans.rates.entry(plan).or_default();
    let room = LIST_MAX.saturating_sub(of_plan.len());
    let left_out = rates.len().saturating_sub(room);
    of_plan.extend(rates.into_iter().take(room));
    for _ in 0..left_out {
        import.skip(TOO_MANY, || format!("'{document}'"));
    }
}

/// Adds an entry for each plan that has discounts.
pub fn finish(import: &mut AgreementsImporter) {
    let FoundPlans { plans, mut rates, .. } = std::mem::take(&mut import.plans);
    for (id, plan) in plans {
        let Some(rates) = rates.remove(&id) else {
            import.skip(NO_RATES, || id.clone());
            continue;
        };
        let family = plan.family.map(|family| format!(" instance_family: {},", quoted(&family)));
        let family = family.unwrap_or_default();
        let discounts = rates.iter().map(|Rate { region, instance_type, rate }| {
            format!(
                "\n       {{applies_to: NODE, region: {},{family}\n        instance_type: {}, \
                 rate: \"{rate}\"}}",
                quoted(region),
                quoted(instance_type)
            )
        });
        let discounts: Vec<String> = discounts.collect();
        import.entries.insert(id, format!("{}{}]}}\n", plan.head, discounts.join(",")));
    }
    for id in rates.into_keys() {
        import.skip(NO_PLAN, || id.clone());
    }
}
