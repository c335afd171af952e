//! Sets of lines of bills: their periods, ids and statuses, and costs below zero.

use prorata_samples::bill::bill_line;
use prorata_schemas::body::wire::put_decimal;
use prorata_schemas::body::{decode, encode};
use prorata_schemas::event::{BillLine, BillSet, Event, EventKind, Payload, UseStatus};
use prorata_schemas::money::{Amount, Money, UnitPrice};
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::rules::Rules;
use prorata_schemas::rules::bounds::{BILL_COST_MAX, BILL_HOURS_MAX, PRICE_MAX, check_bounds};
use prorata_schemas::time::{HOUR_MICROS, Hour, Timestamp};

/// The hour at whose start the charge periods begin.
const BEGIN: Hour = Hour(490_000);

/// Returns a set with two lines of one hour.
fn bill() -> Event {
    let line = |id: &str| bill_line(id, BEGIN.end(), "0");
    let set = BillSet {
        provider: "aws".into(),
        billing_account_id: "444455556666".into(),
        resource_key: "i-0123456789abcdef0".into(),
        currency: "USD".into(),
        lines: vec![line("one"), line("two")],
    };
    Event::new("acme".into(), BEGIN.start(), Payload::BillSet(Box::new(set)))
}

/// Returns the set after `change`.
fn changed(change: impl FnOnce(&mut BillSet)) -> Event {
    let mut event = bill();
    let Payload::BillSet(set) = &mut event.payload else { unreachable!() };
    change(set);
    event
}

/// Returns the message of the fault with which an event is rejected; empty if it is valid.
fn fault(judged: Result<(), Reject>) -> String {
    judged.map_or_else(
        |reject| {
            assert_eq!(reject.reason, Reason::InvalidField, "{reject}");
            reject.message
        },
        |()| String::new(),
    )
}

/// Returns the fault of a body. A valid body must read back as the event.
fn fault_of_body(event: &Event) -> String {
    fault(decode(EventKind::BillSet, &encode(event)).map(|read| assert_eq!(read, *event)))
}

fn fault_of_bound(event: &Event) -> String {
    fault(check_bounds(event, &Rules::default()))
}

#[test]
fn charge_periods_are_full_hours_of_at_most_32_days() {
    let fault = |begin: i64, length: i64| {
        let mut event = bill();
        event.event_time.0 += begin;
        let Payload::BillSet(set) = &mut event.payload else { unreachable!() };
        set.lines[1].period_end = Timestamp(BEGIN.start().0 + length);
        fault_of_body(&event)
    };
    for length in [1, 24, 768] {
        assert_eq!(fault(0, length * HOUR_MICROS), "");
    }
    let wrong = [
        (1, HOUR_MICROS, "BillSet.event_time: ", "is not a full hour"),
        (0, HOUR_MICROS + 1, "BillSet.lines.period_end: ", "is not a full hour"),
        (0, 0, "BillSet.lines.period_end: ", "is not after event_time, "),
        (0, -HOUR_MICROS, "BillSet.lines.period_end: ", "is not after event_time, "),
        (0, 769 * HOUR_MICROS, "BillSet.lines.period_end: ", "is more than 32 days after event_time, "),
    ];
    for (begin, length, field, why) in wrong {
        let fault = fault(begin, length);
        assert!(fault.starts_with(field) && fault.contains(why), "{begin} {length}: {fault}");
    }
}

#[test]
fn a_set_has_at_least_one_line_and_each_line_its_own_id() {
    let empty = fault_of_body(&changed(|set| set.lines.clear()));
    assert!(empty.starts_with("BillSet.lines: empty, but a set has at least one line"), "{empty}");
    let twice = fault_of_body(&changed(|set| set.lines[1].line_id = "one".into()));
    assert!(twice.starts_with("BillSet.lines.line_id: 'one' is on two lines"), "{twice}");
    assert_eq!(fault_of_body(&changed(|set| set.lines.truncate(1))), "");
}

#[test]
fn a_line_has_no_status_without_its_agreement() {
    let fault = |change: fn(&mut BillLine)| fault_of_body(&changed(|set| change(&mut set.lines[0])));
    let (used, unused) = (Some(UseStatus::Used), Some(UseStatus::Unused));
    let no_commitment = fault(|line| line.commitment_status = Some(UseStatus::Used));
    assert!(no_commitment.starts_with("BillSet.lines.commitment_status: set, but"), "{no_commitment}");
    assert_eq!(fault(|line| line.commitment_id = Some("c1".into())), "", "a purchase has no status");
    let no_reservation = fault(|line| line.reservation_status = Some(UseStatus::Unused));
    assert!(no_reservation.starts_with("BillSet.lines.reservation_status: set, but"), "{no_reservation}");
    let no_status = fault(|line| line.reservation_id = Some("r1".into()));
    assert!(no_status.starts_with("BillSet.lines.reservation_status: null, but"), "{no_status}");
    for (commitment, reservation) in [(used, unused), (unused, used)] {
        let both = changed(|set| {
            let line = &mut set.lines[0];
            (line.commitment_id, line.commitment_status) = (Some("c1".into()), commitment);
            (line.reservation_id, line.reservation_status) = (Some("r1".into()), reservation);
        });
        assert_eq!(fault_of_body(&both), "");
    }
}

#[test]
fn every_cost_may_be_below_zero_and_has_at_most_28_digits() {
    let largest = 10_i128.pow(28) - 1;
    let money = |atoms: i128| Money::from_atoms(atoms).unwrap();
    for atoms in [-1, -largest, largest] {
        let costs = changed(|set| {
            let line = &mut set.lines[0];
            (line.billed_cost, line.effective_cost) = (money(atoms), money(atoms / 2));
            line.list_cost = money(-atoms);
        });
        assert_eq!(fault_of_body(&costs), "");
    }
    let bytes_of = |atoms: i128| {
        let mut bytes = Vec::new();
        put_decimal(&mut bytes, atoms);
        bytes
    };
    let known = -1_234_567_890_123_456_789;
    let costs: [fn(&mut BillLine) -> &mut Money; 3] =
        [|line| &mut line.billed_cost, |line| &mut line.effective_cost, |line| &mut line.list_cost];
    for (cost, field) in costs.into_iter().zip(["billed_cost", "effective_cost", "list_cost"]) {
        let body = encode(&changed(|set| *cost(&mut set.lines[0]) = money(known)));
        let old = bytes_of(known);
        let at = body.windows(old.len()).position(|window| window == old).unwrap();
        for atoms in [largest + 1, -largest - 1] {
            let mut body = body.clone();
            body.splice(at..at + old.len(), bytes_of(atoms));
            let reject = decode(EventKind::BillSet, &body).unwrap_err();
            let why = format!("BillSet.lines.{field}: not a decimal of at most 28 digits");
            assert_eq!((reject.reason, reject.message), (Reason::InvalidField, why));
        }
    }
}

#[test]
fn costs_hours_and_prices_of_a_line_are_judged_at_their_bounds() {
    let atoms = |whole: i64| i128::from(whole) * 1_000_000_000_000;
    let costs: [fn(&mut BillLine) -> &mut Money; 3] =
        [|line| &mut line.billed_cost, |line| &mut line.effective_cost, |line| &mut line.list_cost];
    for (cost, field) in costs.into_iter().zip(["billed_cost", "effective_cost", "list_cost"]) {
        for sign in [1, -1] {
            let fault = |beyond: i128| {
                let value = Money::from_atoms(sign * (atoms(BILL_COST_MAX) + beyond)).unwrap();
                fault_of_bound(&changed(|set| *cost(&mut set.lines[1]) = value))
            };
            assert_eq!(fault(0), "");
            let minus = if sign < 0 { "-" } else { "" };
            let why = format!("the magnitude of {minus}1000000000000.000000000001 is above the limit of");
            assert_eq!(fault(1), format!("BillSet.lines.{field}: {why} 1000000000000"));
        }
    }
    let hours = |beyond: i128| {
        let value = Amount::from_atoms(atoms(BILL_HOURS_MAX.into()) + beyond);
        fault_of_bound(&changed(|set| set.lines[1].hours = value))
    };
    let price = |beyond: i128| {
        let value = UnitPrice::from_atoms(atoms(PRICE_MAX) + beyond);
        fault_of_bound(&changed(|set| set.lines[1].list_unit_price = value))
    };
    assert_eq!((hours(0), price(0)), (String::new(), String::new()));
    let why = "1000000000.000000000001 is above the limit of 1000000000";
    assert_eq!(hours(1), format!("BillSet.lines.hours: {why}"));
    assert_eq!(price(1), format!("BillSet.lines.list_unit_price: {why}"));
}
