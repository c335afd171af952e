//! The engine's wide arithmetic at its extremes, compared with the model's arbitrary precision. The cases are
//! the largest node, the smallest slice, prices of twelve decimals, and a pod that runs for a year.

use prorata_reference::tables;
use prorata_reference::text::{BASE_HOUR, parse};
use prorata_schemas::body::encode;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::EventRecord;
use prorata_schemas::rows::{HourTables, RowKind};
use prorata_schemas::rules::{Rules, Weights};
use prorata_schemas::time::Hour;

use super::common::engine_tables;

/// The largest amount that Kubernetes can write, in units.
const MOST: &str = "9223372036854775807";
/// The highest price of an event.
const DEAREST: &str = "9999999999999999.999999999999";

fn records(lines: &[String]) -> Vec<EventRecord> {
    let events = lines.iter().map(|line| parse(line).unwrap());
    events.map(|event| EventRecord { body: encode(&event).into(), event }).collect()
}

fn both(lines: &[String], rules: &Rules, hours: i64) -> Vec<HourTables> {
    let records = records(lines);
    let through = Hour(BASE_HOUR + hours - 1);
    let engine = engine_tables(&records, rules, through).unwrap();
    let model = tables(&records, rules, through);
    assert_eq!(engine.len(), model.len());
    for (engine, model) in engine.iter().zip(&model) {
        assert_eq!(engine, model, "hour {}", engine.hour);
    }
    engine
}

#[test]
fn the_largest_node_and_the_smallest_slice_are_exact() {
    let mut lines = vec![
        format!("00:00 node n cost={DEAREST} cpu={MOST} memory={MOST} gpu={MOST}"),
        "00:00 pod whole node=n cpu=9223372036854775806 memory=9223372036854775783 gpu=9223372036854775787"
            .into(),
        "00:00 pod least node=n cpu=1m memory=1 gpu=1m".into(),
        "00:59:59.999999 pod last node=n cpu=1m memory=1 gpu=1m".into(),
    ];
    // Instants one microsecond apart, each with its own slice of a pod without a label that changes its
    // requests.
    for micro in 1..40 {
        lines.push(format!("00:30:00.{micro:06} pod fickle node=n cpu={micro}m memory={micro} gpu=0"));
    }
    lines.push("00:30:00.000040 stop-pod fickle".into());
    let hours = both(&lines, &Rules::default(), 2);
    let first = hours.first().unwrap();
    assert_eq!(first.totals.supply_cost.to_string(), DEAREST);
    assert_eq!(first.cost_allocation.iter().filter(|row| row.kind == RowKind::PodNode).count(), 4);
}

#[test]
fn commitments_of_prime_totals_and_odd_fractions_are_exact() {
    let lines = [
        "00:00 node a cost=98.320000000001 cpu=191999m memory=2199023255551 gpu=8".to_owned(),
        "00:00:00.000001 node b cost=0.000000000001 cpu=7 memory=13 gpu=7".to_owned(),
        format!("00:00 node c cost={DEAREST} cpu={MOST} memory={MOST} gpu={MOST}"),
        "00:00 commitment k vcpu=100.000000000003 gib=1999.999999999993 gpu=7 cost=55.123456789013 \
         allowed=0.999999999999"
            .to_owned(),
        format!("00:00 commitment l vcpu={DEAREST} gib={DEAREST} cost={DEAREST} allowed=0.333333333333"),
        "00:00 commitment m vcpu=0 gib=0 gpu=2147483647 cost=0.000000000007".to_owned(),
        "00:00 pod p node=a cpu=1m memory=1 gpu=1".to_owned(),
        "00:17:13.000007 pod q node=a cpu=63999m memory=1099511627689 gpu=3".to_owned(),
        "00:00 pod r node=b cpu=7001m memory=3".to_owned(),
        "00:00 pod s node=c cpu=1m memory=2 gpu=1m".to_owned(),
        "00:41:00.999999 node a cost=55.040000000007 cpu=191999m memory=2199023255551 gpu=8".to_owned(),
    ];
    let hours = both(&lines, &Rules::default(), 2);
    assert!(hours.iter().all(|hour| hour.totals.difference == Decimal12::ZERO));
}

#[test]
fn the_largest_lines_of_bills_are_exact() {
    let lines = [
        format!("00:00 node a resource=i cost={DEAREST} cpu={MOST} memory={MOST} gpu={MOST}"),
        "00:00:00.000001 node b resource=i cost=0.000000000001 cpu=7 memory=13 gpu=7".to_owned(),
        "00:17:13.000007 node c resource=i cost=98.320000000001 cpu=191999m memory=2199023255551".to_owned(),
        "00:00 pod p node=a cpu=1m memory=1 gpu=1m".to_owned(),
        "00:00 pod q node=a cpu=9223372036854775806 memory=9223372036854775783".to_owned(),
        "00:41:00.999999 pod r node=b cpu=7001m memory=3".to_owned(),
        "00:00 pod s node=c cpu=63999m memory=1099511627689".to_owned(),
        format!("00:00 bill i lines=a:for=3h:hours=7.000000000003:price={DEAREST}:cost={DEAREST}:list=0"),
        format!("00:00 bill i account=b lines=b:for=2h:cost=-{DEAREST}:billed=0.000000000001"),
        "00:00 bill i account=c lines=c:for=7h:hours=0.000000000007:cost=-0.000000000001".to_owned(),
        format!("01:00 bill - lines=d:for=3h:cost={DEAREST}:billed=-{DEAREST}"),
    ];
    let hours = both(&lines, &Rules::default(), 8);
    assert!(hours.iter().all(|hour| hour.totals.difference == Decimal12::ZERO));
    let cost: i128 = hours.iter().map(|hour| hour.totals.bill_cost.atoms()).sum();
    // The line of -1 atom, and the three largest lines, of which one is below zero.
    assert_eq!(cost, DEAREST.parse::<Decimal12>().unwrap().atoms() - 1);
}

#[test]
fn weights_of_28_digits_are_exact() {
    let weights = Weights {
        gpu: "9999999999999999.999999999999".parse().unwrap(),
        cpu: "0.000000000001".parse().unwrap(),
        memory: "7.000000000003".parse().unwrap(),
    };
    let rules = Rules { weights, ..Rules::default() };
    let lines = [
        "00:00 node n cost=55.04 cpu=192 memory=2Ti gpu=8",
        "00:00 pod p node=n cpu=3 memory=1Gi gpu=1",
        "00:00 pod q node=n cpu=5 memory=7Gi",
    ];
    both(&lines.map(str::to_owned), &rules, 1);
}

#[test]
fn a_pod_that_runs_for_a_year_costs_its_share_of_every_hour() {
    let lines = [
        "00:00 node n cost=0.333333333333 cpu=3 memory=7Gi".to_owned(),
        "00:00 pod p node=n cpu=1 memory=1Gi".to_owned(),
        "00:20 pod q node=n cpu=1 memory=1Gi".to_owned(),
    ];
    let hours = both(&lines, &Rules::default(), 365 * 24);
    let cost: i128 = hours.iter().map(|hour| hour.totals.supply_cost.atoms()).sum();
    assert_eq!(cost, 333_333_333_333 * 365 * 24);
    let of = |uid: &str| -> i128 {
        let rows = hours.iter().flat_map(|hour| &hour.cost_allocation);
        rows.filter(|row| row.pod_uid.as_deref() == Some(uid)).map(|row| row.effective_cost.atoms()).sum()
    };
    assert_eq!(of("p") + of("q"), cost);
    assert!(of("p") > of("q"));
}

/// A node changes its price as often as pods come and go. Each pod has only one row, at its own price.
#[test]
fn a_thousand_prices_and_a_thousand_short_pods_make_a_thousand_rows() {
    let at = |step: u32| format!("00:{:02}:{:02}", step * 3 / 60, step * 3 % 60);
    let mut lines = Vec::new();
    for step in 0..1000 {
        let (now, price) = (at(step), 12 * (step + 1));
        lines.push(format!("{now} node n cost={price} cpu=4"));
        lines.push(format!("{now} pod p{step} node=n cpu=1"));
        lines.push(format!("{} stop-pod p{step}", at(step + 1)));
    }
    lines.push(format!("{} stop-node n", at(1000)));
    let hours = engine_tables(&records(&lines), &Rules::default(), Hour(BASE_HOUR)).unwrap();
    let rows = &hours.first().unwrap().cost_allocation;
    assert_eq!(rows.len(), 1000);
    for row in rows {
        let price = row.list_unit_price.atoms();
        let uid = format!("p{}", price / Decimal12::from_int(12).atoms() - 1);
        assert_eq!(row.pod_uid.as_deref(), Some(uid.as_str()));
        // Three seconds at the price.
        assert_eq!(row.effective_cost, Decimal12::from_atoms(price / 1200));
    }
}
