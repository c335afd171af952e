//! Random bills: lines of nodes and agreements, in sets that are sent again and retracted. Random closings of
//! months.

use prorata_schemas::Text;
use prorata_schemas::event::{
    BillLine, BillSet, BillingPeriodClosed, ChargeCategory, Event, EventRecord, NodeStarted, Payload,
    Recording, UseStatus,
};
use prorata_schemas::ids::{CommitmentId, ReservationId};
use prorata_schemas::money::Money;
use prorata_schemas::time::{HOUR_MICROS, Hour, Timestamp};
use rand::Rng;

use super::choices::Choices;
use crate::text::ORGANIZATION;

/// Keys of nodes. Several nodes may have the same key.
const KEYS: [&str; 3] = ["i-1", "i-2", "vmss"];

/// Keys of bills: of nodes, of nothing that is known, and of charges without a resource.
const BILLED: [&str; 6] = ["i-1", "i-2", "vmss", "vmss", "disk", ""];

/// Costs of lines. The parts of the smallest costs in an hour are less than the last decimal.
const COSTS: [&str; 12] = [
    "1",
    "0.1",
    "24",
    "98.32",
    "7.123456789012",
    "-0.3",
    "-7.123456789012",
    "0",
    "0.000000000001",
    "0.000000000018",
    "-0.000000000007",
    "3",
];

/// Gives nodes the keys of bills, and adds bills to the records. Some bills begin in each of these hours.
pub(super) fn add(world: &mut Choices, records: &mut Vec<EventRecord>, first: i64, hours: i64) {
    let is_shared = world.pick(&[false, false, true]);
    for record in records.iter_mut() {
        let Payload::NodeStarted(node) = &record.event.payload else { continue };
        let resource_key = key_of_node(world, node, is_shared);
        let node = NodeStarted { resource_key, ..(**node).clone() };
        let payload = Payload::NodeStarted(Box::new(node));
        *record = EventRecord::new(Event { payload, ..record.event.clone() });
    }
    for _ in 0..world.rng.random_range(1..9) {
        let hour = first + world.rng.random_range(0..hours) - world.pick(&[0, 0, 0, 0, 1, 2, 23]);
        let bill = set(world, hour * HOUR_MICROS);
        insert(world, records, bill, hour * HOUR_MICROS);
    }
}

/// Inserts the events of a bill anywhere among the records.
pub(super) fn insert(world: &mut Choices, records: &mut Vec<EventRecord>, bill: BillSet, start: i64) {
    for bill in versions(world, bill, start) {
        insert_anywhere(world, records, bill);
    }
}

/// Closes months of the history: for most accounts that have a bill, and for some that have none. Some
/// closings are retracted. Most of the months begin in the history, because a closing brings all hours since
/// the first of its month.
pub(super) fn close(world: &mut Choices, records: &mut Vec<EventRecord>, first: i64, hours: i64) {
    let month = Hour(first + hours - 1).date().month_start().start();
    let begins_within = month >= Hour(first).start();
    if !world.rng.random_bool(if begins_within { 0.8 } else { 0.1 }) {
        return;
    }
    let mut closings: Vec<BillingPeriodClosed> = Vec::new();
    let mut close = |provider: Text, billing_account_id: Text| {
        closings.push(BillingPeriodClosed { provider, billing_account_id, invoice_id: None });
    };
    for record in records.iter() {
        if let Payload::BillSet(bill) = &record.event.payload
            && world.rng.random_bool(0.9)
        {
            close(bill.provider.clone(), bill.billing_account_id.clone());
        }
    }
    if world.rng.random_bool(0.3) {
        close(world.provider(), world.text(&["a", "b", "other"]));
    }
    for closing in closings {
        let event = Event::new(ORGANIZATION.into(), month, Payload::BillingPeriodClosed(closing));
        if world.rng.random_bool(0.05) {
            let retraction = Recording::new(Some(Timestamp(month.0 + HOUR_MICROS)), true);
            insert_anywhere(world, records, event.clone().recorded(retraction));
        }
        insert_anywhere(world, records, event);
    }
}

fn insert_anywhere(world: &mut Choices, records: &mut Vec<EventRecord>, event: Event) {
    let place = world.rng.random_range(0..=records.len());
    records.insert(place, EventRecord::new(event));
}

/// Returns the key of a node: mostly a key of its own, in some histories the key of a scale set.
fn key_of_node(world: &mut Choices, node: &NodeStarted, is_shared: bool) -> Option<Text> {
    let own = match &*node.node_id {
        "n1" => KEYS[0],
        "n2" => KEYS[1],
        _ => KEYS[2],
    };
    match world.rng.random_range(0..12) {
        0 => None,
        1 => Some("".into()),
        2 => Some(world.text(&KEYS)),
        _ if is_shared => Some(KEYS[2].into()),
        _ => Some(own.into()),
    }
}

/// Returns the events of a bill. Some bills are sent again with other lines, and some are retracted.
fn versions(world: &mut Choices, bill: BillSet, start: i64) -> Vec<Event> {
    let event = |bill: BillSet, recorded: Option<i64>, is_retraction: bool| {
        let event = Event::new(ORGANIZATION.into(), Timestamp(start), Payload::BillSet(Box::new(bill)));
        event.recorded(Recording::new(recorded.map(Timestamp), is_retraction))
    };
    let day = 24 * HOUR_MICROS;
    let mut events = Vec::new();
    if world.rng.random_bool(0.4) {
        let lines = set(world, start).lines;
        let again = BillSet { lines, ..bill.clone() };
        let recorded = world.pick(&[None, Some(start), Some(start + 2 * day)]);
        events.push(event(again, recorded, false));
    }
    if world.rng.random_bool(0.1) {
        events.push(event(bill.clone(), Some(start + 3 * day), true));
    }
    let recorded = world.pick(&[None, Some(start + day)]);
    events.push(event(bill, recorded, false));
    events
}

/// Returns a set of lines that begin at an instant.
pub(super) fn set(world: &mut Choices, start: i64) -> BillSet {
    let ids = ["1", "2", "3"];
    let count = world.rng.random_range(1..=ids.len());
    let mut lines: Vec<BillLine> = ids.iter().take(count).map(|id| line(world, start, id)).collect();
    // Providers bill the unused part of a commitment next to the used part.
    if let Some(used) = lines.iter().find(|line| line.commitment_status == Some(UseStatus::Used)).cloned()
        && world.rng.random_bool(0.5)
    {
        let (line_id, commitment_status) = ("4".into(), Some(UseStatus::Unused));
        lines.push(BillLine { line_id, commitment_status, ..used });
    }
    BillSet {
        provider: world.provider(),
        billing_account_id: world.text(&["a", "a", "b"]),
        resource_key: world.text(&BILLED),
        currency: "USD".into(),
        lines,
    }
}

fn line(world: &mut Choices, start: i64, id: &str) -> BillLine {
    let hours = world.pick(&[1, 1, 1, 1, 1, 2, 2, 3, 24, 24, 48, 768]);
    let category = world.agreed(&[
        ChargeCategory::Usage,
        ChargeCategory::Usage,
        ChargeCategory::Purchase,
        ChargeCategory::Tax,
        ChargeCategory::Credit,
        ChargeCategory::Adjustment,
    ]);
    let is_purchase = category == ChargeCategory::Purchase || world.rng.random_bool(0.1);
    let statuses = [UseStatus::Used, UseStatus::Used, UseStatus::Unused];
    let commitment_id: Option<CommitmentId> = world.maybe(0.4, &["k1", "k2", "k3", "other"]);
    let commitment_status = Some(world.pick(&statuses)).filter(|_| commitment_id.is_some() && !is_purchase);
    let reservation_id: Option<ReservationId> = world.maybe(0.25, &["r1", "r2", "r3", "other"]);
    let reservation_status = Some(world.pick(&statuses)).filter(|_| reservation_id.is_some());
    let effective_cost: Money = world.decimal(&COSTS);
    let other_cost: Money = world.decimal(&COSTS);
    BillLine {
        line_id: id.into(),
        period_end: Timestamp(start + hours * HOUR_MICROS),
        category: if is_purchase { ChargeCategory::Purchase } else { category },
        is_correction: world.rng.random_bool(0.1),
        service: world.text(&["", "compute"]),
        sku_id: world.maybe(0.2, &["sku"]),
        description: world.maybe(0.2, &["text"]),
        account_id: world.maybe(0.2, &["project"]),
        invoice_id: world.maybe(0.2, &["invoice"]),
        commitment_id,
        commitment_status,
        reservation_id,
        reservation_status,
        hours: world.maybe_decimal(&[
            None,
            Some("0"),
            Some("1"),
            Some("1"),
            Some("2"),
            Some("0.5"),
            Some("2.333333333333"),
            Some("24"),
        ]),
        list_unit_price: world.maybe_decimal(&[None, Some("0.2"), Some("0.2"), Some("1"), Some("10")]),
        billed_cost: if is_purchase || world.rng.random_bool(0.3) { other_cost } else { effective_cost },
        effective_cost,
        list_cost: world.decimal(&COSTS),
    }
}
