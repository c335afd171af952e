//! Arbitrary sets of lines of bills, and closings of months.

use proptest::prelude::*;
use proptest::sample::select;
use prorata_schemas::Text;
use prorata_schemas::event::{BillLine, BillSet, BillingPeriodClosed, ChargeCategory, Payload, UseStatus};
use prorata_schemas::ids::{CommitmentId, ReservationId};
use prorata_schemas::money::{Amount, Money, UnitPrice};
use prorata_schemas::time::{HOUR_MICROS, Hour, Timestamp};

use super::{TIME_LAST, decimal, key, maybe, text};

/// Longest charge period of a line, in hours.
const HOURS_MAX: i64 = 768;

const CATEGORIES: &[ChargeCategory] = &[
    ChargeCategory::Usage,
    ChargeCategory::Purchase,
    ChargeCategory::Tax,
    ChargeCategory::Credit,
    ChargeCategory::Adjustment,
];

/// Generates a set whose charge periods begin at the epoch. [`move_to`] moves them.
pub(super) fn bill_set() -> impl Strategy<Value = Payload> {
    let resource_key = prop_oneof![3 => key::<Text>(), 1 => Just(Text::from(""))];
    let lines = proptest::collection::vec(bill_line(), 1..4);
    (key(), key(), resource_key, text(), lines).prop_map(
        |(provider, billing_account_id, resource_key, currency, mut lines)| {
            for (index, line) in lines.iter_mut().enumerate() {
                // Two lines may have the same text, but an id is unique in its set.
                line.line_id = format!("{index}{}", line.line_id).into();
            }
            Payload::BillSet(Box::new(BillSet {
                provider,
                billing_account_id,
                resource_key,
                currency,
                lines,
            }))
        },
    )
}

/// Generates the closing of a month for an account.
pub(super) fn billing_period_closed() -> impl Strategy<Value = Payload> {
    (key(), key(), maybe(key())).prop_map(|(provider, billing_account_id, invoice_id)| {
        Payload::BillingPeriodClosed(BillingPeriodClosed { provider, billing_account_id, invoice_id })
    })
}

/// Moves the charge periods of a generated set to the hour of an instant, or to an earlier hour if they would
/// end after the year 9999. Returns the instant at which they begin.
pub(super) fn move_to(bill: &mut BillSet, instant: Timestamp) -> Timestamp {
    let last = Timestamp(TIME_LAST).hour().0 - HOURS_MAX;
    let begin = Hour(instant.hour().0.min(last)).start();
    for line in &mut bill.lines {
        line.period_end.0 += begin.0;
    }
    begin
}

fn bill_line() -> impl Strategy<Value = BillLine> {
    let hours = prop_oneof![2 => Just(1_i64), 2 => Just(24_i64), 1 => 1..=HOURS_MAX];
    let charge = (text(), hours, select(CATEGORIES), any::<bool>(), text(), maybe(text()));
    let ids = (maybe(key::<Text>()), maybe(key::<Text>()), maybe(key::<Text>()));
    let commitment = maybe((key::<CommitmentId>(), maybe(use_status())));
    let reservation = maybe((key::<ReservationId>(), use_status()));
    let usage = (maybe(decimal::<Amount>()), maybe(decimal::<UnitPrice>()));
    let costs = (cost(), cost(), cost());
    (charge, ids, commitment, reservation, usage, costs).prop_map(
        |(charge, ids, commitment, reservation, (hours, list_unit_price), costs)| {
            let (line_id, length, category, is_correction, service, description) = charge;
            let (sku_id, account_id, invoice_id) = ids;
            let (commitment_id, commitment_status) = commitment.unzip();
            let (reservation_id, reservation_status) = reservation.unzip();
            let (billed_cost, effective_cost, list_cost) = costs;
            BillLine {
                line_id,
                period_end: Timestamp(length * HOUR_MICROS),
                category,
                is_correction,
                service,
                sku_id,
                description,
                account_id,
                invoice_id,
                commitment_id,
                commitment_status: commitment_status.flatten(),
                reservation_id,
                reservation_status,
                hours,
                list_unit_price,
                billed_cost,
                effective_cost,
                list_cost,
            }
        },
    )
}

fn use_status() -> impl Strategy<Value = UseStatus> {
    prop_oneof![Just(UseStatus::Used), Just(UseStatus::Unused)]
}

/// Generates a cost of any size. Some are below zero.
fn cost() -> impl Strategy<Value = Money> {
    let credit = decimal::<Money>().prop_map(|cost| Money::from_atoms(-cost.atoms()).unwrap());
    prop_oneof![3 => decimal::<Money>(), 1 => credit]
}
