//! Entries of the rules that divide shared charges: texts such as `cpu:service=support*:cluster=c`.

use prorata_schemas::event::ChargeCategory;
use prorata_schemas::rules::division::{ChargeDivision, DivideOver};

use super::bill::{CATEGORIES, named};
use super::fields::LineFields;

/// Reads an entry. Only the first word, which is the weight of pods, must be there.
///
/// # Errors
/// Returns a message that describes what cannot be read.
pub fn parse_division(text: &str) -> Result<ChargeDivision, String> {
    let mut words = text.split(':');
    let over = match words.next() {
        Some("cost") => DivideOver::Cost,
        Some("cpu") => DivideOver::Cpu,
        Some("memory") => DivideOver::Memory,
        Some("gpu") => DivideOver::Gpu,
        Some("pods") => DivideOver::Pods,
        _ => return Err(format!("'{text}' does not begin with cost, cpu, memory, gpu or pods")),
    };
    let mut fields = LineFields::new(words);
    Ok(ChargeDivision {
        organization_id: fields.text("organization"),
        provider: fields.text("provider"),
        billing_account_id: fields.text("billing-account"),
        account_id: fields.text("account"),
        service: fields.text("service"),
        category: named(&CATEGORIES, ChargeCategory::name, fields.text("category"))?,
        resource_key: fields.text("resource"),
        cluster_id: fields.text("cluster"),
        namespace: fields.text("ns"),
        over,
    })
}
