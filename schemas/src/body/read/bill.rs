//! Reads sets of lines of bills, and closings of months.

use std::collections::BTreeSet;

use crate::Text;
use crate::body::fields::Fields;
use crate::event::{BillLine, BillSet, BillingPeriodClosed, ChargeCategory, UseStatus};
use crate::money::{Amount, Money, UnitPrice};
use crate::reject::{Reject, excerpt};
use crate::time::{HOUR_MICROS, Timestamp};

/// Longest charge period of a line: 32 days, so that a month fits.
const PERIOD_MICROS_MAX: i64 = 32 * 24 * HOUR_MICROS;

/// Reads a set of lines whose charge periods begin at `event_time`.
pub fn bill_set(f: &mut Fields<'_, '_>, event_time: Timestamp) -> Result<BillSet, Reject> {
    if !is_full_hour(event_time) {
        f.invalid(
            "event_time",
            format_args!("{event_time} is not a full hour, but charge periods begin at one"),
        );
    }
    let bill = BillSet {
        provider: f.key("provider")?,
        billing_account_id: f.key("billing_account_id")?,
        resource_key: f.text("resource_key")?,
        currency: f.text("currency")?,
        lines: f.array(|f| bill_line(f, event_time))?,
    };
    if bill.lines.is_empty() {
        f.invalid("lines", "empty, but a set has at least one line: to take a set back, retract it");
    }
    if let Some(id) = repeated_id(&bill.lines).map(excerpt) {
        f.invalid("lines.line_id", format_args!("'{id}' is on two lines, but an id is unique in its set"));
    }
    Ok(bill)
}

/// Reads the closing of a month, which begins at `event_time`.
pub fn billing_period_closed(
    f: &mut Fields<'_, '_>,
    event_time: Timestamp,
) -> Result<BillingPeriodClosed, Reject> {
    if event_time != event_time.hour().date().month_start().start() {
        f.invalid(
            "event_time",
            format_args!("{event_time} is not the first instant of a calendar month in UTC"),
        );
    }
    Ok(BillingPeriodClosed {
        provider: f.key("provider")?,
        billing_account_id: f.key("billing_account_id")?,
        invoice_id: f.optional("invoice_id", Fields::key)?,
    })
}

/// Returns the first id that is on two lines.
fn repeated_id(lines: &[BillLine]) -> Option<&str> {
    let mut ids = BTreeSet::new();
    lines.iter().map(|line| &*line.line_id).find(|id| !ids.insert(*id))
}

fn bill_line(f: &mut Fields<'_, '_>, begins_at: Timestamp) -> Result<BillLine, Reject> {
    let line = BillLine {
        // Only later exports of the same bill repeat the id, so it is not shared.
        line_id: f.key_ref("lines.line_id").map(Text::from)?,
        period_end: f.time("lines.period_end")?,
        category: match f.symbol("lines.category", 5)? {
            0 => ChargeCategory::Usage,
            1 => ChargeCategory::Purchase,
            2 => ChargeCategory::Tax,
            3 => ChargeCategory::Credit,
            _ => ChargeCategory::Adjustment,
        },
        is_correction: f.boolean()?,
        service: f.text("lines.service")?,
        sku_id: f.optional("lines.sku_id", Fields::key)?,
        description: f.optional("lines.description", Fields::text)?,
        account_id: f.optional("lines.account_id", Fields::key)?,
        invoice_id: f.optional("lines.invoice_id", Fields::key)?,
        commitment_id: f.optional("lines.commitment_id", Fields::key)?,
        commitment_status: f.optional("lines.commitment_status", use_status)?,
        reservation_id: f.optional("lines.reservation_id", Fields::key)?,
        reservation_status: f.optional("lines.reservation_status", use_status)?,
        hours: f.optional("lines.hours", |f, field| f.decimal(field, Amount::from_atoms))?,
        list_unit_price: f
            .optional("lines.list_unit_price", |f, field| f.decimal(field, UnitPrice::from_atoms))?,
        billed_cost: f.signed_decimal("lines.billed_cost", Money::from_atoms)?,
        effective_cost: f.signed_decimal("lines.effective_cost", Money::from_atoms)?,
        list_cost: f.signed_decimal("lines.list_cost", Money::from_atoms)?,
    };
    judge_period(f, begins_at, line.period_end);
    judge_agreements(f, &line);
    Ok(line)
}

fn use_status(f: &mut Fields<'_, '_>, field: &str) -> Result<UseStatus, Reject> {
    Ok(match f.symbol(field, 2)? {
        0 => UseStatus::Used,
        _ => UseStatus::Unused,
    })
}

/// Checks that a charge period ends at a full hour, after its begin and at most 32 days later.
fn judge_period(f: &mut Fields<'_, '_>, begins_at: Timestamp, ends_at: Timestamp) {
    const FIELD: &str = "lines.period_end";
    if !is_full_hour(ends_at) {
        f.invalid(FIELD, format_args!("{ends_at} is not a full hour, but charge periods end at one"));
    } else if ends_at <= begins_at {
        f.invalid(FIELD, format_args!("{ends_at} is not after event_time, {begins_at}"));
    } else if ends_at.0 - begins_at.0 > PERIOD_MICROS_MAX {
        f.invalid(FIELD, format_args!("{ends_at} is more than 32 days after event_time, {begins_at}"));
    }
}

/// Checks that a line has a status only of an agreement, and the status of its reservation.
fn judge_agreements(f: &mut Fields<'_, '_>, line: &BillLine) {
    if line.commitment_id.is_none() && line.commitment_status.is_some() {
        f.invalid("lines.commitment_status", "set, but the line has no commitment_id");
    }
    match (&line.reservation_id, line.reservation_status) {
        (Some(_), None) => {
            f.invalid("lines.reservation_status", "null, but a line with a reservation_id has a status");
        }
        (None, Some(_)) => f.invalid("lines.reservation_status", "set, but the line has no reservation_id"),
        _ => {}
    }
}

fn is_full_hour(instant: Timestamp) -> bool {
    instant == instant.hour().start()
}
