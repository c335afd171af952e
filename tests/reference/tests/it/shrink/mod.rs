//! Shrinks a failing history, and shows the history and the differences.

use std::fmt::{Debug, Write};

use prorata_reference::scenario::Scenario;
use prorata_reference::text::print;
use prorata_schemas::event::{EventRecord, Payload};
use prorata_schemas::rows::{HourRow, HourTables};
use prorata_schemas::rules::Rules;

/// Drops events, then quantities and rules, while the history still fails.
pub fn shrink(mut scenario: Scenario, fails: impl Fn(&Scenario) -> bool) -> Scenario {
    let with = |scenario: &Scenario, records: Vec<EventRecord>| Scenario {
        records,
        rules: scenario.rules.clone(),
        through: scenario.through,
    };
    let mut step = scenario.records.len();
    while step > 0 {
        let mut at = 0;
        while at < scenario.records.len() {
            let mut fewer = scenario.records.clone();
            fewer.drain(at..(at + step).min(fewer.len()));
            let smaller = with(&scenario, fewer);
            if !smaller.records.is_empty() && fails(&smaller) {
                scenario = smaller;
            } else {
                at += step;
            }
        }
        step /= 2;
    }
    for index in 0..scenario.records.len() {
        for plainer in plainer(&scenario.records[index]) {
            let mut records = scenario.records.clone();
            records[index] = plainer;
            let smaller = with(&scenario, records);
            if fails(&smaller) {
                scenario = smaller;
            }
        }
    }
    let mut entry = 0;
    while entry < scenario.rules.shared_charges.len() {
        let mut smaller = with(&scenario, scenario.records.clone());
        smaller.rules.shared_charges.remove(entry);
        if fails(&smaller) {
            scenario = smaller;
        } else {
            entry += 1;
        }
    }
    let plain =
        Scenario { rules: Rules::default(), records: scenario.records.clone(), through: scenario.through };
    if fails(&plain) { plain } else { scenario }
}

/// Returns simpler variants of an event: without some of its quantities, or without optional fields.
fn plainer(record: &EventRecord) -> Vec<EventRecord> {
    let mut plainer = Vec::new();
    let mut push = |change: &dyn Fn(&mut Payload)| {
        let mut event = record.event.clone();
        change(&mut event.payload);
        if event != record.event {
            plainer.push(EventRecord::new(event));
        }
    };
    push(&|payload| match payload {
        Payload::NodeStarted(node) => node.capacity.clear(),
        Payload::PodStarted(pod) => pod.requests.clear(),
        Payload::QuotaSet(quota) => quota.max = None,
        Payload::CommitmentSet(commitment) => commitment.allowed_utilization = None,
        Payload::BillSet(bill) => bill.lines.truncate(1),
        _ => {}
    });
    push(&|payload| match payload {
        Payload::NodeStarted(node) => node.pool_id = None,
        Payload::PodStarted(pod) => pod.limits.clear(),
        Payload::CommitmentSet(commitment) => commitment.assignments.clear(),
        _ => {}
    });
    push(&|payload| {
        if let Payload::PodStarted(pod) = payload {
            pod.eviction_protected_until = None;
            pod.zone = None;
        }
    });
    push(&|payload| {
        if let Payload::PodStarted(pod) = payload {
            pod.volume_keys.clear();
        }
    });
    plainer
}

/// Returns the history as text, earliest event first.
pub fn show(scenario: &Scenario) -> String {
    let mut records = scenario.records.clone();
    records.sort_by_key(|record| record.event.event_time);
    let mut text = format!("through hour {}, {:?}\n", scenario.through, scenario.rules);
    for record in &records {
        let _ = writeln!(text, "{}", print(&record.event));
    }
    text
}

/// Returns the differences between two runs, line by line, for the rows that differ.
pub fn differences(left: &[HourTables], right: &[HourTables], names: (&str, &str)) -> String {
    let mut text = String::new();
    if left.len() != right.len() {
        let _ = writeln!(text, "{} has {} hours, {} has {}", names.0, left.len(), names.1, right.len());
    }
    for (left, right) in left.iter().zip(right) {
        let hour = left.hour;
        rows(
            &mut text,
            &format!("{hour} cost_allocation"),
            &left.cost_allocation,
            &right.cost_allocation,
            names,
        );
        rows(
            &mut text,
            &format!("{hour} reservation_usage"),
            &left.reservation_usage,
            &right.reservation_usage,
            names,
        );
        let (ours, theirs) = (&left.commitment_utilization, &right.commitment_utilization);
        rows(&mut text, &format!("{hour} commitment_utilization"), ours, theirs, names);
        rows(&mut text, &format!("{hour} quota_usage"), &left.quota_usage, &right.quota_usage, names);
        rows(&mut text, &format!("{hour} pool_usage"), &left.pool_usage, &right.pool_usage, names);
        let totals = |tables: &HourTables| -> Vec<HourRow> { vec![tables.totals.clone()] };
        rows(&mut text, &format!("{hour} hours"), &totals(left), &totals(right), names);
    }
    text
}

/// Writes the rows of one table that only one side has, with the fields in which the n-th rows of both sides
/// differ.
fn rows<R: Debug + PartialEq>(text: &mut String, table: &str, left: &[R], right: &[R], names: (&str, &str)) {
    let only = |of: &[R], other: &[R]| -> Vec<String> {
        of.iter().filter(|row| !other.contains(row)).map(|row| format!("{row:#?}")).collect()
    };
    let (only_left, only_right) = (only(left, right), only(right, left));
    for index in 0..only_left.len().max(only_right.len()) {
        match (only_left.get(index), only_right.get(index)) {
            (Some(ours), Some(theirs)) => {
                let _ = writeln!(text, "{table}, a row that differs ({}/{}):", names.0, names.1);
                let pairs = ours.lines().zip(theirs.lines());
                for (ours, theirs) in pairs.filter(|(ours, theirs)| ours != theirs).take(12) {
                    let _ = writeln!(text, "    {} / {}", ours.trim(), theirs.trim());
                }
            }
            (Some(ours), None) => drop(writeln!(text, "{table}, only in {}:\n{ours}", names.0)),
            (None, Some(theirs)) => drop(writeln!(text, "{table}, only in {}:\n{theirs}", names.1)),
            (None, None) => {}
        }
    }
    if only_left.is_empty() && only_right.is_empty() && left != right {
        let _ = writeln!(text, "{table}: the same rows in another order");
    }
}
