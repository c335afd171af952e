//! Bills: lines such as `od:hours=1:price=0.2:cost=0.18`, between commas. Closings of months.

use prorata_schemas::Text;
use prorata_schemas::event::{BillLine, BillSet, BillingPeriodClosed, ChargeCategory, UseStatus};
use prorata_schemas::money::Money;
use prorata_schemas::time::{HOUR_MICROS, Timestamp};

use super::fields::{LineFields, parse_duration};

/// The id that stands for charges of no resource.
pub(super) const NO_RESOURCE: &str = "-";

/// All categories of charges.
pub(super) const CATEGORIES: [ChargeCategory; 5] = [
    ChargeCategory::Usage,
    ChargeCategory::Purchase,
    ChargeCategory::Tax,
    ChargeCategory::Credit,
    ChargeCategory::Adjustment,
];

const STATUSES: [UseStatus; 2] = [UseStatus::Used, UseStatus::Unused];

/// Reads the fields of a set whose lines begin at `at`.
pub(super) fn parse(at: Timestamp, id: &str, fields: &mut LineFields) -> Result<BillSet, String> {
    let resource_key = if id == NO_RESOURCE { "" } else { id };
    let mut lines = Vec::new();
    for line in fields.list("lines") {
        lines.push(parse_line(at, &line)?);
    }
    Ok(BillSet {
        provider: fields.text_or("provider", "aws"),
        billing_account_id: fields.text_or("account", "a"),
        resource_key: resource_key.into(),
        currency: "USD".into(),
        lines,
    })
}

/// Reads the closing of a month for an account such as `aws:1234`.
pub(super) fn parse_closed(id: &str, fields: &mut LineFields) -> Result<BillingPeriodClosed, String> {
    let (provider, account) =
        id.split_once(':').ok_or_else(|| format!("'{id}' is not an account such as aws:1234"))?;
    Ok(BillingPeriodClosed {
        provider: provider.into(),
        billing_account_id: account.into(),
        invoice_id: fields.text("invoice"),
    })
}

/// Reads one line. The default of its length is one hour, and the default of its billed and list cost is its
/// effective cost.
fn parse_line(at: Timestamp, text: &str) -> Result<BillLine, String> {
    let mut words = text.split(':');
    let line_id = words.next().unwrap_or_default().into();
    let mut fields = LineFields::new(words);
    let length = match fields.text::<String>("for") {
        Some(text) => {
            parse_duration(&text).ok_or_else(|| format!("'{text}' is not a duration such as 24h"))?
        }
        None => HOUR_MICROS,
    };
    let effective_cost: Money = fields.decimal("cost")?.unwrap_or_default();
    Ok(BillLine {
        line_id,
        period_end: Timestamp(at.0 + length),
        category: named(&CATEGORIES, ChargeCategory::name, fields.text("category"))?
            .unwrap_or(ChargeCategory::Usage),
        is_correction: fields.flag("correction"),
        service: fields.text_or("service", ""),
        sku_id: fields.text("sku"),
        description: fields.text("text"),
        account_id: fields.text("account"),
        invoice_id: fields.text("invoice"),
        commitment_id: fields.text("commitment"),
        commitment_status: named(&STATUSES, UseStatus::name, fields.text("commitment-status"))?,
        reservation_id: fields.text("reservation"),
        reservation_status: named(&STATUSES, UseStatus::name, fields.text("reservation-status"))?,
        hours: fields.decimal("hours")?,
        list_unit_price: fields.decimal("price")?,
        billed_cost: fields.decimal("billed")?.unwrap_or(effective_cost),
        effective_cost,
        list_cost: fields.decimal("list")?.unwrap_or(effective_cost),
    })
}

/// Returns the value with a name, in lower case; `None` if there is no name.
pub(super) fn named<T: Copy>(
    values: &[T],
    name: fn(T) -> &'static str,
    text: Option<String>,
) -> Result<Option<T>, String> {
    let Some(text) = text else { return Ok(None) };
    let found = values.iter().find(|value| name(**value).to_ascii_lowercase() == text);
    found.copied().map(Some).ok_or_else(|| format!("'{text}' is not a category or a status"))
}

/// Returns the text of a line of a set whose lines begin at `at`.
pub(super) fn print_line(at: Timestamp, line: &BillLine) -> String {
    let mut text = line.line_id.to_string();
    let mut add = |key: &str, value: Option<String>| {
        value.iter().for_each(|value| text.push_str(&format!(":{key}={value}")));
    };
    let length = (line.period_end.0 - at.0) / HOUR_MICROS;
    let named = |name: &str| Some(name.to_ascii_lowercase());
    let plain = |text: &Option<Text>| text.as_ref().map(ToString::to_string);
    let cost = |cost: Money, default: Money| (cost != default).then(|| cost.to_string());
    add("for", (length != 1).then(|| format!("{length}h")));
    add("category", named(line.category.name()).filter(|_| line.category != ChargeCategory::Usage));
    add("service", Some(line.service.to_string()).filter(|service| !service.is_empty()));
    add("sku", plain(&line.sku_id));
    add("text", plain(&line.description));
    add("account", plain(&line.account_id));
    add("invoice", plain(&line.invoice_id));
    add("commitment", line.commitment_id.as_ref().map(ToString::to_string));
    add("commitment-status", line.commitment_status.and_then(|status| named(status.name())));
    add("reservation", line.reservation_id.as_ref().map(ToString::to_string));
    add("reservation-status", line.reservation_status.and_then(|status| named(status.name())));
    add("hours", line.hours.map(|hours| hours.to_string()));
    add("price", line.list_unit_price.map(|price| price.to_string()));
    add("cost", cost(line.effective_cost, Money::ZERO));
    add("billed", cost(line.billed_cost, line.effective_cost));
    add("list", cost(line.list_cost, line.effective_cost));
    if line.is_correction {
        text.push_str(":correction");
    }
    text
}
