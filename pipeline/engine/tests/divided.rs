//! Shared charges of bills that pods divide: weights, rounding, and lines that stay one row.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use prorata_engine::trace::{DivisionStep, Focus};
use prorata_engine::{HourEvents, State, close_hour_traced};
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{
    BillLine, BillSet, ChargeCategory, Event, Labels, Payload, PodStarted, Quantities, RateSet,
};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::rows::{CostRow, RowKind};
use prorata_schemas::rules::Rules;
use prorata_schemas::rules::division::{ChargeDivision, DivideOver};
use prorata_schemas::time::{Hour, Timestamp};

const MINUTE: i64 = 60_000_000;

fn at(minutes: i64, payload: Payload) -> Event {
    Event::new("acme".into(), Timestamp(minutes * MINUTE), payload)
}

/// Returns a serverless pod of a namespace with this many vCPUs and these volumes.
fn pod(uid: &str, namespace: &str, cpu: &str, volumes: &[&str]) -> Payload {
    Payload::PodStarted(Box::new(PodStarted {
        cluster_id: "c".into(),
        namespace: namespace.into(),
        pod_name: uid.into(),
        pod_uid: uid.into(),
        created_at: Timestamp(0),
        priority: 0,
        node_id: None,
        region: Some("r".into()),
        zone: None,
        pool_id: None,
        qos: "default".into(),
        gpu_model: None,
        requests: [("cpu".into(), Quantity::parse("cpu", cpu).unwrap())].into(),
        limits: Quantities::new(),
        workload_kind: None,
        workload_name: None,
        labels: Labels::new(),
        eviction_protected_until: None,
        gpus: None,
        gpu_sharing: None,
        volume_keys: volumes.iter().map(|key| (*key).into()).collect(),
    }))
}

/// Returns the price of a vCPU.
fn rate(price: &str) -> Payload {
    Payload::RateSet(Box::new(RateSet {
        provider: "aws".into(),
        region: "r".into(),
        gpu_model: None,
        qos: "default".into(),
        per_vcpu_hour: price.parse().unwrap(),
        per_gib_hour: 0.into(),
        per_gpu_hour: 0.into(),
        currency: "USD".into(),
    }))
}

/// Returns a line of the first hour with this account and cost.
fn line(id: &str, account: &str, cost: &str) -> BillLine {
    BillLine {
        line_id: id.into(),
        period_end: Hour(0).end(),
        category: ChargeCategory::Usage,
        is_correction: false,
        service: "Amazon EKS".into(),
        sku_id: None,
        description: None,
        account_id: Some(account.into()),
        invoice_id: None,
        commitment_id: None,
        commitment_status: None,
        reservation_id: None,
        reservation_status: None,
        hours: None,
        list_unit_price: None,
        billed_cost: cost.parse().unwrap(),
        effective_cost: cost.parse().unwrap(),
        list_cost: cost.parse().unwrap(),
    }
}

fn bill(key: &str, lines: Vec<BillLine>) -> Payload {
    Payload::BillSet(Box::new(BillSet {
        provider: "aws".into(),
        billing_account_id: "b".into(),
        resource_key: key.into(),
        currency: "USD".into(),
        lines,
    }))
}

/// Returns an entry that divides every line over all pods.
fn entry(over: DivideOver) -> ChargeDivision {
    ChargeDivision {
        organization_id: None,
        provider: None,
        billing_account_id: None,
        account_id: None,
        service: None,
        category: None,
        resource_key: None,
        cluster_id: None,
        namespace: None,
        over,
    }
}

/// Returns the rows of shared charges of the first hour, and the divisions with `focus` in focus.
fn closed(
    entries: Vec<ChargeDivision>,
    events: Vec<Event>,
    focus: &str,
) -> (Vec<Box<CostRow>>, Vec<DivisionStep>) {
    let rules = Rules { shared_charges: entries, ..Rules::default() };
    let focus = Focus { pods: [focus.into()].into(), ..Focus::default() };
    let state = State::new("acme".into());
    let hour = HourEvents::of(Hour(0), events);
    let (_, tables, trace) = close_hour_traced(state, hour, &rules, focus).unwrap();
    let rows = tables.cost_allocation.into_iter().filter(|row| row.kind == RowKind::SharedCharge);
    (rows.collect(), trace.divisions)
}

/// Returns the pod, the resource, the lines and the numbers of each row.
fn texts(rows: &[Box<CostRow>]) -> Vec<String> {
    let text = |row: &CostRow| {
        let lines: Vec<&str> = row.lines.iter().map(|billed| &*billed.line().line_id).collect();
        let uid = row.pod_uid.as_deref().unwrap_or("-");
        let costs = [row.effective_cost, row.billed_cost, row.list_cost].map(|cost| cost.to_string());
        let ratio = row.allocated_ratio.map_or("-".to_owned(), |ratio| ratio.to_string());
        let (resource, lines, costs) = (&row.resource_id, lines.join("+"), costs.join(" "));
        format!("{uid} '{resource}' {lines}: {costs}, {} h, {ratio}", row.pricing_quantity)
    };
    rows.iter().map(|row| text(row)).collect()
}

#[test]
fn pods_of_a_volume_divide_it_by_their_time_with_it() {
    let disk = BillLine {
        billed_cost: "-0.5".parse().unwrap(),
        list_cost: "2".parse().unwrap(),
        hours: Some("3".parse().unwrap()),
        ..line("l", "1", "1")
    };
    let events = vec![
        at(0, bill("vol-1", vec![disk])),
        at(0, bill("vol-2", vec![line("other", "1", "1")])),
        at(0, pod("a", "n", "1", &["vol-1", "vol-1"])),
        at(0, pod("c", "n", "1", &["vol-3"])),
        at(30, pod("b", "n", "1", &["vol-1"])),
    ];
    let (rows, _) = closed(Vec::new(), events, "a");
    let expected = [
        "- 'vol-2' other: 1 1 1, 0 h, -",
        "a 'vol-1' l: 0.666666666667 -0.333333333333 1.333333333333, 2 h, 0.666666666667",
        "b 'vol-1' l: 0.333333333333 -0.166666666667 0.666666666667, 1 h, 0.333333333333",
    ];
    assert_eq!(texts(&rows), expected);
    let row = &rows[1];
    assert_eq!(row.cluster_id.as_deref(), Some("c"));
    assert_eq!(row.pod.as_ref().map(|pod| &*pod.namespace), Some("n"));
    assert_eq!((row.allocated, row.running_seconds, row.list_unit_price), (None, None, Decimal12::ZERO));
}

#[test]
fn the_first_entry_that_matches_divides_and_lines_with_equal_names_are_one_charge() {
    let of_service = ChargeDivision {
        service: Some("Amazon EKS".into()),
        namespace: Some("n1".into()),
        ..entry(DivideOver::Pods)
    };
    let tax = BillLine { service: "Tax".into(), ..line("t", "1", "0.1") };
    let lines = vec![line("e2", "1", "0.5"), line("e1", "1", "1"), line("e3", "2", "1"), tax];
    let events =
        vec![at(0, bill("", lines)), at(0, pod("a", "n1", "1", &[])), at(0, pod("b", "n2", "3", &[]))];
    let (rows, _) = closed(vec![of_service, entry(DivideOver::Cpu)], events, "a");
    let expected = [
        "a '' e1+e2: 1.5 1.5 1.5, 0 h, 1",
        "a '' e3: 1 1 1, 0 h, 1",
        "a '' t: 0.025 0.025 0.025, 0 h, 0.25",
        "b '' t: 0.075 0.075 0.075, 0 h, 0.75",
    ];
    assert_eq!(texts(&rows), expected);
}

#[test]
fn pods_divide_by_the_cost_of_their_other_rows() {
    let events = vec![
        at(0, bill("", vec![line("l", "1", "1")])),
        at(0, rate("1")),
        at(0, pod("a", "n", "1", &[])),
        at(30, pod("b", "n", "3", &[])),
    ];
    let (rows, divisions) = closed(vec![entry(DivideOver::Cost)], events, "b");
    assert_eq!(texts(&rows), ["a '' l: 0.4 0.4 0.4, 0 h, 0.4", "b '' l: 0.6 0.6 0.6, 0 h, 0.6"]);
    let [step] = &*divisions else { panic!("{divisions:?}") };
    assert_eq!((step.entry, step.over, step.volume.as_deref()), (Some(1), Some("cost"), None));
    assert_eq!((step.pods, step.total_weight.to_string()), (2, "2.5".to_owned()));
    let weights: Vec<String> = step.weights.iter().map(|(uid, weight)| format!("{uid} {weight}")).collect();
    assert_eq!(weights, ["b 1.5"]);
}

#[test]
fn without_a_weight_a_line_stays_one_row() {
    let elsewhere = ChargeDivision { namespace: Some("none".into()), ..entry(DivideOver::Pods) };
    for division in [entry(DivideOver::Gpu), entry(DivideOver::Cost), elsewhere] {
        let events = vec![
            at(0, bill("", vec![line("l", "1", "1"), line("m", "1", "1")])),
            at(0, pod("a", "n", "1", &[])),
        ];
        // The pod has no rate, so it costs nothing.
        let (rows, divisions) = closed(vec![division], events, "a");
        assert_eq!(texts(&rows), ["- '' l: 1 1 1, 0 h, -", "- '' m: 1 1 1, 0 h, -"]);
        assert!(divisions.is_empty());
    }
}

#[test]
fn a_charge_that_costs_nothing_has_no_rows() {
    let lines = vec![line("l", "1", "1"), line("m", "1", "-1"), line("n", "2", "0")];
    let events = vec![at(0, bill("", lines)), at(0, pod("a", "n", "1", &[]))];
    let (rows, _) = closed(vec![entry(DivideOver::Pods)], events, "a");
    assert_eq!(texts(&rows), [""; 0]);
}
