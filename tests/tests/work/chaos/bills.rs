//! A month's bill and a second export of it arrive in any order, while the worker is killed again and again.

use std::slice::from_mut;

use prorata_samples::bill::bill_line;
use prorata_samples::trace;
use prorata_schemas::event::{
    BillLine, BillSet, ChargeCategory, Event, EventRecord, NodeStopped, Payload, Recording, UseStatus,
};
use prorata_schemas::money::Money;
use prorata_schemas::time::Hour;
use prorata_worker::names::DEAD_LETTERS;

use super::Dice;
use crate::world::events::{Sender, write};
use crate::world::{World, rounds};

/// Number of hours in which nodes run. They end an hour before the test began.
const HOURS: i64 = 36;

/// Length of the charge periods of a month, in hours. They end after the test.
const MONTH: i64 = 31 * 24;

const ORGANIZATIONS: [&str; 2] = ["bills-a", "bills-b"];

/// A node of each organization.
struct Node {
    id: &'static str,
    /// Id in the bill.
    key: Option<&'static str>,
    /// The minutes in which it runs.
    from: i64,
    to: i64,
}

const NODES: [Node; 5] = [
    Node { id: "one", key: Some("i-one"), from: 0, to: HOURS * 60 },
    // Two nodes that the bill does not distinguish.
    Node { id: "first", key: Some("set"), from: 0, to: HOURS * 60 },
    Node { id: "second", key: Some("set"), from: 90, to: 1_000 },
    // The line of its day bills 2.75 hours.
    Node { id: "part", key: Some("i-part"), from: 330, to: 495 },
    Node { id: "estimated", key: None, from: 0, to: HOURS * 60 },
];

/// Returns the events of an organization's nodes and pods. Each node has a pod for all of its time, and
/// another one for an hour.
fn cluster(organization: &str, first: Hour) -> Vec<EventRecord> {
    let mut records = Vec::new();
    for Node { id, key, from, to } in NODES {
        let mut started = trace::node(organization, from, 2);
        if let Payload::NodeStarted(node) = &mut started.event.payload {
            (node.node_id, node.resource_key) = (id.into(), key.map(Into::into));
        }
        let mut stopped = trace::node_stop(organization, to);
        stopped.event.payload =
            Payload::NodeStopped(NodeStopped { cluster_id: "c".into(), node_id: id.into() });
        let [whole, brief] = ["whole", "brief"].map(|name| format!("{id}-{name}"));
        records.extend([
            started,
            trace::pod_on(id, organization, from, &whole, 1),
            trace::pod_on(id, organization, from + 45, &brief, 2),
            trace::pod_stop(organization, from + 105, &brief),
            stopped,
        ]);
    }
    let shift = first.start().0 - Hour(trace::START).start().0;
    let moved = records.into_iter().map(|EventRecord { mut event, .. }| {
        event.event_time.0 += shift;
        EventRecord::new(event)
    });
    moved.collect()
}

/// Returns a cost of twelve decimals between 0.2 and 0.27.
fn cost(dice: &mut Dice) -> Money {
    let atoms = 200_000_000_000 + i128::try_from(dice.pick(1 << 36)).unwrap();
    Money::from_atoms(atoms).unwrap()
}

/// Returns a line whose charge period ends at the start of an hour.
fn line(id: &str, end: i64, dice: &mut Dice) -> BillLine {
    BillLine {
        billed_cost: cost(dice),
        effective_cost: cost(dice),
        list_cost: cost(dice),
        ..bill_line(id, Hour(end).start(), "0")
    }
}

fn credit(end: i64, dice: &mut Dice) -> BillLine {
    let cost = Money::from_atoms(-cost(dice).atoms()).unwrap();
    let category = ChargeCategory::Credit;
    BillLine { category, billed_cost: cost, effective_cost: cost, ..line("credit", end, dice) }
}

fn set(organization: &str, begin: i64, key: &str, lines: Vec<BillLine>) -> Event {
    let bill = BillSet {
        provider: "aws".into(),
        billing_account_id: "1".into(),
        resource_key: key.into(),
        currency: "USD".into(),
        lines,
    };
    Event::new(organization.into(), Hour(begin).start(), Payload::BillSet(Box::new(bill)))
}

/// Returns the first export of an organization's bill.
fn export(organization: &str, first: Hour, dice: &mut Dice) -> Vec<Event> {
    let Hour(first) = first;
    let mut sets = Vec::new();
    for begin in first..first + HOURS {
        for (key, hours) in [("i-one", 1_i32), ("set", 2)] {
            let usage = line("usage", begin + 1, dice);
            let usage = BillLine { hours: Some(hours.into()), list_unit_price: Some(2.into()), ..usage };
            sets.push(set(organization, begin, key, vec![usage, credit(begin + 1, dice)]));
        }
    }
    let day = first + 24;
    let usage = BillLine { hours: Some("2.75".parse().unwrap()), ..line("usage", day, dice) };
    sets.push(set(organization, first, "i-part", vec![usage]));
    // No node has this key.
    sets.push(set(organization, first, "vol-1", vec![line("disk", day, dice)]));
    let fee = BillLine {
        category: ChargeCategory::Purchase,
        commitment_id: Some("plan".into()),
        ..line("fee", first + MONTH, dice)
    };
    let unused = BillLine {
        commitment_id: Some("plan".into()),
        commitment_status: Some(UseStatus::Unused),
        ..line("unused", day, dice)
    };
    let support = line("support", first + MONTH, dice);
    let tax = BillLine { category: ChargeCategory::Tax, ..line("tax", first + HOURS, dice) };
    sets.push(set(organization, first, "", vec![support, tax, fee, unused]));
    sets
}

/// Returns a later export: some of the sets with other costs, and retractions of others.
fn export_again(sets: &[Event], world: &World, dice: &mut Dice) -> Vec<Event> {
    let mut again = Vec::new();
    for set in sets {
        let is_retraction = match dice.pick(8) {
            0 => true,
            1 | 2 => false,
            _ => continue,
        };
        let mut set = set.clone().recorded(Recording::new(Some(world.now.start()), is_retraction));
        if let Payload::BillSet(bill) = &mut set.payload {
            bill.lines.iter_mut().for_each(|line| line.effective_cost = cost(dice));
        }
        again.push(set);
    }
    again
}

/// Returns both exports of all organizations in random order.
fn bills(world: &World, first: Hour, dice: &mut Dice) -> Vec<EventRecord> {
    let mut bills = Vec::new();
    for organization in ORGANIZATIONS {
        let sets = export(organization, first, dice);
        let again = export_again(&sets, world, dice);
        bills.extend(sets.into_iter().chain(again).map(EventRecord::new));
    }
    for last in (1..bills.len()).rev() {
        bills.swap(last, dice.pick(last + 1));
    }
    bills
}

#[test]
fn a_bill_that_arrives_while_the_worker_is_killed_counts_once() {
    let mut dice = Dice::new();
    let world = World::new("bills");
    let first = Hour(world.now.0 - 1 - HOURS);
    let cluster: Vec<EventRecord> =
        ORGANIZATIONS.iter().flat_map(|organization| cluster(organization, first)).collect();
    let bills = bills(&world, first, &mut dice);
    let (sender, _) = Sender::new(&world);
    let send = |records: &[EventRecord]| {
        records.iter().for_each(|record| sender.event(&record.event.organization_id, record));
    };
    // A static member has its shards again as soon as it is back.
    let start = || world.worker_with(&[("PRORATA_KAFKA__GROUP_INSTANCE_ID", &world.name)]);

    let mut worker = start();
    send(&cluster);
    let messages = i64::try_from(cluster.len()).unwrap();
    world.drained(from_mut(&mut worker), messages);
    let estimated = world.lake().files(world.through());

    let rounds = usize::try_from(rounds().max(1)).unwrap();
    for (round, batch) in bills.chunks(bills.len().div_ceil(rounds)).enumerate() {
        let (before, after) = batch.split_at(dice.pick(batch.len()));
        send(before);
        dice.sleep(200..3_000);
        println!("round {round} kills the worker after {} of {} sets", before.len(), batch.len());
        worker.program.kill();
        send(after);
        dice.sleep(0..1_000);
        worker = start();
    }
    world.drained(from_mut(&mut worker), messages + i64::try_from(bills.len()).unwrap());
    worker.stop();
    assert_ne!(world.lake().files(world.through()), estimated);
    assert_eq!(world.lake().list(DEAD_LETTERS), Vec::<String>::new());
    let events = write(&world, "events", cluster.iter().chain(&bills));
    world.lake().assert_equals(&world.backfill(&events, "expected"), world.through());
}
