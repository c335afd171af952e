//! Explanations of random histories. Their figures add up exactly to the rows of the tables, and every number
//! in a text is a number of the steps.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_engine::trace::{BillFigures, BillStep, ExactNumber, NodeStep, RowStep};
use prorata_engine::{HourEvents, PerResource, State, close_hour, has_hour};
use prorata_inspect::explain::{Answer, Found, Subject, TableRow, figures, from_input, grain};
use prorata_reference::scenario::scenario;
use prorata_reference::text::ORGANIZATION;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::Event;
use prorata_schemas::rows::{CostRow, HourTables, RowKind};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, HourRange};
use prorata_worker::root::look::{ArchivedEvents, HourInput};
use serde_json::Value;

/// Number of histories to explain; `PRORATA_SEEDS` overrides it.
const SEEDS: u64 = 60;

/// An hour of a history, with the input that it was folded from.
struct Folded {
    input: HourInput,
    tables: HourTables,
}

fn input(hour: Hour, state: &State, rules: &Rules, events: Vec<Event>) -> HourInput {
    HourInput {
        organization_id: ORGANIZATION.into(),
        shard: 0,
        hour,
        closed_through: Some(hour),
        is_dirty: false,
        rules: Some(Arc::new(rules.clone())),
        before: Some(state.clone()),
        hold: None,
        base: None,
        snapshot: Vec::new(),
        files: vec![ArchivedEvents { path: "events/one.avro".to_owned(), events }],
    }
}

fn hours(seed: u64) -> Vec<Folded> {
    let history = scenario(seed);
    let times = history.records.iter().map(|record| record.event.event_time.hour());
    let Some(first) = times.min() else { return Vec::new() };
    let mut state = State::new(ORGANIZATION.into());
    let mut folded = Vec::new();
    for hour in HourRange::new(first, history.through) {
        let here = history.records.iter().filter(|record| record.event.event_time.hour() == hour);
        let events: Vec<Event> = here.map(|record| record.event.clone()).collect();
        let taken = HourEvents::of(hour, events.clone());
        if !has_hour(&state, &taken) {
            state = State::new(ORGANIZATION.into());
            continue;
        }
        let input = input(hour, &state, &history.rules, events);
        let Ok((next, tables)) = close_hour(state, taken, &history.rules) else { break };
        state = next;
        folded.push(Folded { input, tables });
    }
    folded
}

fn table_row(row: &CostRow) -> TableRow {
    let pod = row.pod.as_ref();
    TableRow {
        organization: ORGANIZATION.to_owned(),
        grain: grain(row),
        pod: pod.map_or_else(Default::default, |pod| (pod.namespace.to_string(), pod.pod_name.to_string())),
        figures: figures(row),
    }
}

/// Returns the subjects in the rows of an hour.
fn subjects(tables: &HourTables) -> Vec<Subject> {
    let mut subjects = BTreeMap::new();
    for row in &tables.cost_allocation {
        let mut add = |subject: Subject| subjects.insert(format!("{subject:?}"), subject);
        if let (Some(uid), Some(pod)) = (&row.pod_uid, &row.pod) {
            add(Subject::Pod(uid.to_string()));
            add(Subject::Namespace(pod.namespace.to_string()));
        }
        row.commitment_id.iter().for_each(|id| drop(add(Subject::Commitment(id.to_string()))));
        row.reservation_id.iter().for_each(|id| drop(add(Subject::Reservation(id.to_string()))));
        if row.kind == RowKind::NodeIdle {
            add(Subject::Node(row.resource_id.to_string()));
        }
        row.lines.iter().for_each(|billed| drop(add(Subject::Bill(billed.set.resource_key.to_string()))));
    }
    subjects.into_values().collect()
}

fn answer(folded: &Folded, subject: Subject, change: impl Fn(&mut TableRow)) -> Answer {
    let rows = folded.tables.cost_allocation.iter().map(|row| table_row(row));
    let rows = rows.filter(|row| subject.has(&row.grain, &row.pod.0, &row.pod.1));
    let rows = rows.map(|mut row| {
        change(&mut row);
        ("cost_allocation/one.parquet".to_owned(), row)
    });
    let found = Found::new(ORGANIZATION.into(), rows);
    from_input(subject, folded.input.clone().into(), found).unwrap()
}

/// Checks a law for every explanation of the histories, and returns the number of explanations.
fn for_all(law: impl Fn(&Folded, &Answer)) -> usize {
    let seeds = std::env::var("PRORATA_SEEDS").ok().map_or(SEEDS, |text| text.parse().unwrap());
    let mut answers = 0;
    for seed in 0..seeds {
        for folded in hours(seed) {
            for subject in subjects(&folded.tables) {
                law(&folded, &answer(&folded, subject, |_| {}));
                answers += 1;
            }
        }
    }
    answers
}

fn sum<'a>(numbers: impl IntoIterator<Item = &'a ExactNumber>) -> ExactNumber {
    numbers.into_iter().fold(ExactNumber::default(), |sum, number| sum + number)
}

/// Returns whether a rounded number is the exact number rounded, up to one unit of the last decimal, which
/// the largest-remainder method may change.
fn is_near(rounded: Decimal12, exact: &ExactNumber) -> bool {
    (rounded.atoms() - exact.rounded().atoms()).abs() <= 1
}

/// Returns the step of a row. Lines of a bill may have several rows that their steps do not distinguish, but
/// by their cost.
fn step<'a>(answer: &'a Answer, row: &CostRow) -> Option<&'a RowStep> {
    let of = |step: &&RowStep| {
        step.kind == row.kind.name()
            && step.cluster_id == row.cluster_id
            && step.resource_id == row.resource_id
            && step.pod_uid == row.pod_uid
            && step.commitment_id == row.commitment_id
            && step.reservation_id == row.reservation_id
            && step.quota_id == row.quota_id
            && step.quota_state == row.quota_state.map(|state| state.name())
            && step.list_unit_price == row.list_unit_price
            && step.unpriced == row.unpriced.map(|reason| reason.name())
            && step.labels.as_ref() == row.pod.as_ref().map(|pod| &pod.labels)
    };
    let steps = answer.trace.rows.iter().filter(of);
    steps.min_by_key(|step| step.cost.rounded().atoms().abs_diff(row.effective_cost.atoms()))
}

/// Returns whether lines of a bill may decide the cost of a stretch.
fn may_be_billed(answer: &Answer, node: &NodeStep) -> bool {
    let mut given = answer.trace.bills.iter().flat_map(|step| &step.nodes);
    let is_given = given.any(|(cluster, id, _)| (cluster, id) == (&node.cluster_id, &node.node_id));
    is_given && node.unit_price.is_zero()
}

#[test]
fn exact_steps_add_up_to_the_rows() {
    let answers = for_all(|_, answer| {
        assert!(answer.is_same(), "{answer}");
        let is_list = matches!(answer.subject, Subject::Namespace(_));
        for explained in answer.rows.iter().filter(|_| !is_list) {
            let row = &explained.row;
            let Some(step) = step(answer, row) else {
                // A reservation's rows include rows of other objects that only name it.
                assert!(matches!(answer.subject, Subject::Reservation(_)), "{row:?} {answer}");
                continue;
            };
            // A purchase is billed, and has no effective cost. Lines have both, and may be below zero.
            let cost = match row.lines.is_empty() {
                true => row.effective_cost.max(row.billed_cost),
                false => row.effective_cost,
            };
            assert!(is_near(cost, &step.cost), "{row:?} {answer}");
            if let Some(by_resource) = &step.by_resource {
                assert_eq!(sum(by_resource.iter()), step.cost, "{answer}");
                let costs = [row.cpu_cost, row.memory_cost, row.gpu_cost].map(Option::unwrap);
                for (rounded, exact) in costs.into_iter().zip(by_resource.iter()) {
                    assert!(is_near(rounded, exact), "{row:?} {answer}");
                }
            }
            if let Some(parts) = &step.split_and_unused {
                assert_eq!(sum(parts), step.cost, "{answer}");
            }
        }
    });
    assert!(answers > 500, "{answers} explanations");
}

#[test]
fn a_pods_part_of_its_node_makes_its_rows() {
    for_all(|_, answer| {
        for row in &answer.rows {
            let is_estimated = row.row.lines.is_empty();
            let is_shared = row.row.kind == RowKind::PodNode && row.row.node.is_some() && is_estimated;
            let Some(step) = step(answer, &row.row).filter(|_| is_shared) else { continue };
            let node = answer.trace.nodes.iter().find(|node| {
                *node.node_id == *step.resource_id
                    && Some(&node.cluster_id) == step.cluster_id.as_ref()
                    && node.unit_price.is(step.list_unit_price)
            });
            let Some(node) = node else {
                let is_list = matches!(answer.subject, Subject::Namespace(_) | Subject::Commitment(_));
                assert!(is_list, "{:?} {answer}", row.row);
                continue;
            };
            let pod = node.pods.iter().find(|pod| Some(&pod.pod_uid) == step.pod_uid.as_ref()).unwrap();
            let component = node.components.iter().find(|component| {
                component.commitment_id == step.commitment_id && component.unit_price.is(step.list_unit_price)
            });
            let component = component.unwrap();
            let labels = pod.labels.iter().filter(|label| {
                let same = (&label.quota_id, label.state) == (&step.quota_id, step.quota_state)
                    && Some(&label.labels) == step.labels.as_ref();
                same && (label.unpriced == step.unpriced || label.unpriced.is_none())
            });
            // A pod without a share has one row for all labels: its parts are zero.
            let label = labels.max_by_key(|label| label.unpriced).unwrap();
            let part = |resource: fn(&PerResource<ExactNumber>) -> &ExactNumber| {
                resource(&component.cost).clone() * resource(&pod.share) * &label.share
            };
            let by_resource = step.by_resource.as_ref().unwrap();
            assert_eq!(part(|of| &of.cpu), by_resource.cpu, "{answer}");
            assert_eq!(part(|of| &of.memory), by_resource.memory, "{answer}");
            assert_eq!(part(|of| &of.gpu), by_resource.gpu, "{answer}");
        }
    });
}

#[test]
fn spans_and_components_add_up_to_charges() {
    for_all(|_, answer| {
        for node in answer.trace.nodes.iter().filter(|node| !may_be_billed(answer, node)) {
            for component in node.components.iter().filter(|component| component.commitment_id.is_none()) {
                let price = component.unit_price.rounded();
                let name = format!("node {}/{} at {price} an hour", node.cluster_id, node.node_id);
                if let Some(charge) = answer.charges.iter().find(|charge| charge.name == name) {
                    assert_eq!(charge.total.amount().unwrap(), component.total.rounded(), "{answer}");
                }
            }
        }
        if let Subject::Commitment(id) = &answer.subject {
            let spans = answer.trace.commitments.iter().filter(|span| *span.commitment_id == **id);
            let costs: Vec<ExactNumber> = spans.map(|span| span.hourly_cost.clone() * &span.hours).collect();
            let charge = answer.charges.iter().find(|charge| charge.name == format!("commitment {id}"));
            if let Some(charge) = charge.filter(|_| answer.trace.bills.is_empty()) {
                assert_eq!(charge.total.amount().unwrap(), sum(&costs).rounded(), "{answer}");
            }
        }
        if let Subject::Reservation(id) = &answer.subject {
            let spans = answer.trace.reservations.iter().filter(|span| *span.reservation_id == **id);
            let of_spans = sum(spans.map(|span| &span.cost));
            let rows = answer.trace.rows.iter().filter(|step| step.kind == "reservation_unused");
            let rows: Vec<_> = rows.filter(|step| *step.resource_id == **id).collect();
            // A savings plan pays its own price, and so does a bill.
            if rows.iter().all(|step| step.commitment_id.is_none()) && answer.trace.bills.is_empty() {
                assert_eq!(of_spans, sum(rows.iter().map(|step| &step.cost)), "{answer}");
            }
        }
        if let Subject::Pod(uid) = &answer.subject {
            let own = |kind: &str| kind == "pod_serverless" || kind == "pod_pool";
            let spans = answer.trace.pods.iter().filter(|span| *span.pod_uid == **uid && span.node.is_none());
            let of_spans = sum(spans.flat_map(|span| &span.priced).map(|priced| &priced.cost));
            let rows = answer.trace.rows.iter().filter(|step| own(step.kind));
            let rows = rows.filter(|step| step.pod_uid.as_deref() == Some(uid.as_str()));
            let rows: Vec<_> = rows.collect();
            if rows.iter().all(|step| step.commitment_id.is_none()) {
                assert_eq!(of_spans, sum(rows.iter().map(|step| &step.cost)), "{answer}");
            }
        }
    });
}

/// Returns the sums of effective and billed cost.
fn costs<'a>(figures: impl Iterator<Item = &'a BillFigures>) -> [i128; 2] {
    figures.fold([0; 2], |[effective, billed], figures| {
        [effective + figures.effective.atoms(), billed + figures.billed.atoms()]
    })
}

/// Returns the sums of effective and billed cost of the billed rows.
fn billed_costs(answer: &Answer) -> [i128; 2] {
    let rows = answer.rows.iter().map(|row| &row.row).filter(|row| !row.lines.is_empty());
    rows.fold([0; 2], |[effective, billed], row| {
        [effective + row.effective_cost.atoms(), billed + row.billed_cost.atoms()]
    })
}

#[test]
fn parts_of_lines_add_up_to_the_billed_rows() {
    let (bills, nodes) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    for_all(|folded, answer| {
        let hour = folded.input.hour;
        for step in &answer.trace.bills {
            assert!(step.from <= hour.start() && hour.end() <= step.to, "{answer}");
            let given = step.nodes.iter().map(|(_, _, part)| part);
            if !step.nodes.is_empty() {
                assert_eq!(costs(given), costs(std::iter::once(&step.part)), "{answer}");
            }
            if step.to == hour.end() {
                assert_eq!(step.part, step.left, "{answer}");
            }
        }
        match &answer.subject {
            Subject::Bill(key) => {
                let is_asked = |step: &&BillStep| *step.resource_key == **key;
                let parts = answer.trace.bills.iter().filter(is_asked).map(|step| &step.part);
                assert_eq!(costs(parts), billed_costs(answer), "{answer}");
                bills.set(bills.get() + 1);
            }
            Subject::Node(id) => {
                let given = answer.trace.bills.iter().flat_map(|step| &step.nodes);
                let parts = given.filter(|(_, node, _)| **node == **id).map(|(_, _, part)| part);
                assert_eq!(costs(parts), billed_costs(answer), "{answer}");
                nodes.set(nodes.get() + usize::from(answer.rows.iter().any(|row| !row.row.lines.is_empty())));
            }
            _ => {}
        }
    });
    assert!(bills.get() > 20 && nodes.get() > 10, "{} bills, {} billed nodes", bills.get(), nodes.get());
}

/// Collects every text and number of a JSON document, and the clock of every instant.
fn said(value: &Value, all: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            all.extend(words(text).map(str::to_owned));
            if let Some((_, clock)) = text.split_once('T') {
                let clock = clock.trim_end_matches('Z');
                all.insert(clock.strip_suffix(".000000").unwrap_or(clock).to_owned());
            }
        }
        Value::Number(number) => drop(all.insert(number.to_string())),
        Value::Array(values) => values.iter().for_each(|value| said(value, all)),
        Value::Object(values) => values.values().for_each(|value| said(value, all)),
        Value::Bool(_) | Value::Null => {}
    }
}

/// Returns the words of a text that may be numbers, instants or hours.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || ",;()≈[]".contains(c));
    words.map(|word| word.trim_end_matches(['.', ':'])).filter(|word| !word.is_empty())
}

#[test]
fn every_number_in_a_message_is_one_of_the_steps() {
    let numbers = std::cell::Cell::new(0);
    for_all(|_, answer| {
        let mut all = BTreeSet::new();
        said(&answer.json().unwrap(), &mut all);
        let text = answer.to_string();
        for word in words(&text).filter(|word| word.chars().all(|c| c.is_ascii_digit() || ".:".contains(c))) {
            assert!(all.contains(word), "'{word}' is in no step:\n{text}");
            numbers.set(numbers.get() + 1);
        }
    });
    assert!(numbers.get() > 10_000, "{} numbers", numbers.get());
}

#[test]
fn a_table_with_other_numbers_is_reported() {
    let folded = (0..20).flat_map(hours).find(|folded| !subjects(&folded.tables).is_empty()).unwrap();
    let subject = subjects(&folded.tables).remove(0);
    let other = answer(&folded, subject.clone(), |row| row.figures[1] = Some(Decimal12::from_int(77)));
    assert!(!other.is_same());
    let text = other.to_string();
    assert!(text.contains("DIFFER") && text.contains("EffectiveCost is 77 in the table"), "{text}");
    let gone = answer(&folded, subject, |row| row.grain.0[0] = "pod_other".to_owned());
    let text = gone.to_string();
    assert!(text.contains("the row is nothing in the table") && text.contains("only in the table"), "{text}");
}
