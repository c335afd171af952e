//! Files of agreements and their events. The files here are JSON, which is also YAML.

use std::path::Path;

use prorata_collector::agreements::{AgreementEvents, Agreements};
use prorata_collector::parse_instant;
use prorata_schemas::event::{BudgetExceedStrategy, Event, Payload};
use prorata_schemas::time::Timestamp;
use serde_json::{Value, json};

fn instant(text: &str) -> Timestamp {
    parse_instant(&format!("{text}T00:00:00Z")).unwrap()
}

fn reservation(id: &str, from: &str, to: Option<&str>) -> Value {
    json!({
        "id": id, "from": from, "to": to, "provider": "aws", "region": "r", "gpu_model": "H100",
        "capacity": {"cpu": 96, "memory": "1Ti", "nvidia.com/gpu": "8"}, "quantity": 2,
        "unit_hourly_price": "40.5",
    })
}

fn commitment(id: &str, from: &str, to: Option<&str>) -> Value {
    json!({
        "id": id, "from": from, "to": to, "provider": "aws", "kind": "RESERVED_INSTANCE", "region": "r",
        "instance_family": "p5", "vcpu": 192, "hourly_cost": "60",
        "assignments": [{"cluster_id": "c", "priority": 1}],
    })
}

fn rate(from: &str, price: &str) -> Value {
    json!({
        "from": from, "provider": "aws", "region": "r", "per_vcpu_hour": price, "per_gib_hour": "0.01",
    })
}

fn pool(from: &str, to: Option<&str>) -> Value {
    json!({
        "id": "p", "from": from, "to": to, "cluster_id": "c", "provider": "aws", "default_qos": "medium",
        "qos_pricing": [{"qos": "medium", "per_fp16_tflop_hour": "0.01", "per_vram_gib_hour": "0.02"}],
    })
}

fn file(sections: Value) -> Agreements {
    let mut file = json!({"organization_id": "o", "currency": "USD"});
    for (name, section) in sections.as_object().unwrap() {
        file[name] = section.clone();
    }
    serde_json::from_value(file).unwrap()
}

/// Returns `date Kind` for each event.
fn shown(found: &AgreementEvents) -> Vec<String> {
    let shown =
        |event: &Event| format!("{} {}", &event.event_time.to_string()[..10], event.payload.kind().name());
    found.events.iter().map(shown).collect()
}

#[test]
fn each_entry_is_an_event_from_its_beginning() {
    let agreements = file(json!({
        "reservations": [reservation("res", "2026-03-01", Some("2027-03-01"))],
        "commitments": [commitment("com", "2026-02-01T12:00:00+02:00", None)],
        "rates": [rate("2026-01-01", "0.05"), rate("2026-04-01", "0.04")],
        "pools": [pool("2026-05-01", Some("2026-06-01"))],
    }));
    let found = agreements.events(instant("2026-07-01"), &[]).unwrap();
    let expected = [
        "2026-01-01 RateSet",
        "2026-02-01 CommitmentSet",
        "2026-03-01 ReservationSet",
        "2026-04-01 RateSet",
        "2026-05-01 PoolSet",
        "2026-06-01 PoolDeleted",
    ];
    assert_eq!(shown(&found), expected);
    assert_eq!(agreements.events(instant("2026-07-01"), &[]).unwrap(), found, "a repeat is byte-equal");
    let Payload::ReservationSet(set) = &found.events[2].payload else { panic!() };
    assert_eq!((set.starts_at, set.ends_at), (instant("2026-03-01"), Some(instant("2027-03-01"))));
    assert_eq!(set.created_at, set.starts_at);
    let Payload::CommitmentSet(set) = &found.events[1].payload else { panic!() };
    assert_eq!(set.starts_at.to_string(), "2026-02-01T10:00:00.000000Z");
    assert!(set.enabled && set.assignments.len() == 1);
    let Payload::PoolSet(set) = &found.events[4].payload else { panic!() };
    assert_eq!((set.tflops_oversell_percent, set.qos_pricing[0].limits_over_requests), (500, 1.into()));
    assert!(set.max_capacity.is_empty() && set.budget_exceed_strategy == BudgetExceedStrategy::AlertOnly);
}

#[test]
fn a_pool_has_capacities_up_to_its_maximum_and_a_strategy() {
    let with = |warm: &str| {
        let mut entry = pool("2026-05-01", None);
        entry["max_capacity"] = json!({"tensor-fusion.ai/tflops": 1000, "cpu": "64"});
        entry["min_capacity"] = json!({"cpu": "500m"});
        entry["warm_capacity"] = json!({"tensor-fusion.ai/tflops": warm});
        entry["budget_exceed_strategy"] = json!("ALERT_AND_TERMINATE_VM");
        file(json!({"pools": [entry]})).events(instant("2026-07-01"), &[])
    };
    let found = with("1k").unwrap();
    let Payload::PoolSet(set) = &found.events[0].payload else { panic!() };
    assert_eq!(set.budget_exceed_strategy, BudgetExceedStrategy::AlertAndTerminateVm);
    let least = set.min_capacity.get("cpu").map(|cpu| cpu.amount);
    assert_eq!((set.max_capacity.len(), least), (2, Some(500)));
    for (warm, fault) in [("1001", "is above max_capacity, '1000'"), ("-1", "tensor-fusion.ai/tflops: ")] {
        let error = with(warm).unwrap_err().to_string();
        assert!(error.starts_with("entry 1 of pools (p)") && error.contains(fault), "{error}");
    }
}

#[test]
fn later_versions_are_reported_and_not_sent() {
    let agreements = file(json!({"reservations": [
        reservation("a", "2026-01-01", Some("2026-06-01")), reservation("a", "2026-06-01", None),
    ]}));
    let found = agreements.events(instant("2026-03-01"), &[]).unwrap();
    assert_eq!(shown(&found), ["2026-01-01 ReservationSet"]);
    assert_eq!(found.later.len(), 1);
    assert_eq!(found.later[0].0.to_string(), "entry 2 of reservations (a)");
}

#[test]
fn descriptions_have_their_end_and_a_pool_that_continues_is_not_deleted() {
    let agreements = file(json!({"reservations": [
        reservation("a", "2026-06-01", Some("2026-08-01")),
        reservation("a", "2026-01-01", Some("2026-06-01")),
    ]}));
    let found = agreements.events(instant("2026-12-01"), &[]).unwrap();
    assert_eq!(shown(&found), ["2026-01-01 ReservationSet", "2026-06-01 ReservationSet"]);
    let pools = file(json!({"pools": [
        pool("2026-06-01", Some("2026-08-01")), pool("2026-01-01", Some("2026-06-01")),
    ]}));
    let found = pools.events(instant("2026-12-01"), &[]).unwrap();
    let expected =
        ["2026-01-01 PoolSet", "2026-06-01 PoolSet", "2026-06-01 PoolDeleted", "2026-08-01 PoolDeleted"];
    assert_eq!(shown(&found), expected);
    let retractions = found.events.iter().map(|event| event.recording.is_retraction());
    assert_eq!(retractions.collect::<Vec<_>>(), [false, false, true, false]);
}

fn fault(sections: Value) -> String {
    file(sections).events(instant("2027-01-01"), &[]).unwrap_err().to_string()
}

#[test]
fn overlaps_and_reversed_times_are_refused_with_their_place() {
    let open =
        json!({"commitments": [commitment("a", "2026-01-01", None), commitment("a", "2026-06-01", None)]});
    assert_eq!(
        fault(open),
        "entry 2 of commitments (a) begins at 2026-06-01T00:00:00.000000Z, before entry 1 of commitments (a) \
         ends; end the earlier one with 'to: 2026-06-01T00:00:00.000000Z' or before"
    );
    let reversed = json!({"pools": [pool("2026-06-01", Some("2026-01-01"))]});
    assert!(fault(reversed).contains("entry 1 of pools (p) ends at 2026-01-01T"));
    let empty = json!({"pools": [pool("2026-06-01", Some("2026-06-01"))]});
    assert!(fault(empty).contains("not after its start"));
    let twice = json!({"rates": [rate("2026-01-01", "1"), rate("2026-01-01", "2")]});
    assert!(fault(twice).contains("entry 2 of rates (r, no GPU, default) begins at"));
    let mut spelled = rate("2026-01-01", "2");
    spelled["region"] = json!(" R");
    let spelled = json!({"rates": [rate("2026-01-01", "1"), spelled]});
    assert!(fault(spelled).contains("entry 2 of rates ( R, no GPU, default) begins at"));
    let apart =
        json!({"commitments": [commitment("a", "2026-01-01", None), commitment("b", "2026-06-01", None)]});
    assert!(file(apart).events(instant("2027-01-01"), &[]).is_ok());
}

#[test]
fn values_out_of_range_are_refused_with_their_place() {
    let mut negative = reservation("a", "2026-01-01", None);
    negative["unit_hourly_price"] = json!("-1");
    assert!(fault(json!({"reservations": [negative]})).contains("entry 1 of reservations (a): "));
    let mut beyond = commitment("a", "2026-01-01", None);
    beyond["hourly_cost"] = json!("1000000000.1");
    let said = fault(json!({"commitments": [beyond]}));
    assert!(said.contains("entry 1 of commitments (a): invalid_field: "), "{said}");
    let mut quantity = reservation("a", "2026-01-01", None);
    quantity["capacity"] = json!({"cpu": "many"});
    let said = fault(json!({"reservations": [quantity]}));
    assert!(said.contains("entry 1 of reservations (a): cpu: 'many' is not a Kubernetes quantity"), "{said}");
    let mut utilization = commitment("a", "2026-01-01", None);
    utilization["allowed_utilization"] = json!("1.5");
    assert!(fault(json!({"commitments": [utilization]})).contains("entry 1 of commitments (a): "));
    let nobody = Agreements { organization_id: "".into(), ..file(json!({})) };
    assert!(nobody.events(Timestamp(0), &[]).unwrap_err().to_string().contains("organization_id is empty"));
}

#[test]
fn unknown_keys_floats_and_bad_times_are_refused() {
    let parse = |change: &dyn Fn(&mut Value)| {
        let mut entry = reservation("a", "2026-01-01", None);
        change(&mut entry);
        let file = json!({"organization_id": "o", "currency": "USD", "reservations": [entry]});
        serde_json::from_value::<Agreements>(file).unwrap_err().to_string()
    };
    assert!(parse(&|entry| entry["until"] = json!("2027-01-01")).contains("unknown field `until`"));
    assert!(parse(&|entry| entry["unit_hourly_price"] = json!(40.5)).contains("a decimal in quotes"));
    assert!(parse(&|entry| entry["from"] = json!("yesterday")).contains("'yesterday' is not a time"));
    assert!(parse(&|entry| entry["from"] = json!("1969-01-01")).contains("'1969-01-01' is not a time"));
    assert!(parse(&|entry| drop(entry.as_object_mut().unwrap().remove("region"))).contains("region"));
}

#[test]
fn a_spec_stands_for_a_unit_of_the_rule_book_s_table() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine").join("RULES.md");
    let rules = std::fs::read_to_string(rules).unwrap();
    let table = rules.split("| GPU model | specs |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let spec = |spec: &str| {
        let mut entry = reservation("a", "2026-01-01", None);
        for key in ["gpu_model", "capacity"] {
            entry.as_object_mut().unwrap().remove(key);
        }
        entry["spec"] = json!(spec);
        entry
    };
    let set = |entry: Value| {
        let found = file(json!({"reservations": [entry]})).events(instant("2027-01-01"), &[]).unwrap();
        found.events[0].payload.clone()
    };
    let mut count = 0;
    for row in rows {
        let [_, models, units, _] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        for (model, unit) in models.split(", ").flat_map(|model| units.split(' ').map(move |u| (model, u))) {
            let (gpus, size) = unit.split_once(':').unwrap();
            let (vcpu, gib) = size.split_once('/').unwrap();
            let mut written = reservation("a", "2026-01-01", None);
            written["gpu_model"] = json!(model);
            written["capacity"] = json!({"cpu": vcpu, "memory": format!("{gib}Gi"), "nvidia.com/gpu": gpus});
            assert_eq!(set(spec(&format!("{model} x{gpus}"))), set(written), "{model} {unit}");
            count += 1;
        }
    }
    assert_eq!(count, 27);
    let said = fault(json!({"reservations": [spec("P16EN x3")]}));
    assert!(
        said.contains("(a): the spec 'P16EN x3' is not in the table of units, which has P16EN x1, "),
        "{said}"
    );
    for strange in ["P16EN", "P32 x2", "P16EN 2", ""] {
        let said = fault(json!({"reservations": [spec(strange)]}));
        assert!(
            said.contains("which has cards L20, T4, A10, P16EN, ") || said.contains("P16EN x1"),
            "{said}"
        );
    }
    let mut both = reservation("a", "2026-01-01", None);
    both["spec"] = json!("P16EN x2");
    let mut half = reservation("a", "2026-01-01", None);
    half.as_object_mut().unwrap().remove("capacity");
    for entry in [both, half] {
        assert!(fault(json!({"reservations": [entry]})).contains("give either 'spec', or 'gpu_model' and"));
    }
}

#[test]
fn a_savings_plan_needs_its_spend_and_prices_and_no_region() {
    let plan = |changes: Value| {
        let mut plan = json!({
            "id": "s", "from": "2026-01-01", "provider": "aws", "kind": "SAVINGS_PLAN",
            "hourly_commitment": "2.5", "hourly_cost": "2.5",
            "discounts": [{"applies_to": "NODE", "region": "r", "rate": "0.13"},
                {"applies_to": "POD", "saving": "0.2"}],
        });
        for (key, value) in changes.as_object().unwrap() {
            plan[key] = value.clone();
        }
        file(json!({"commitments": [plan]})).events(instant("2026-07-01"), &[])
    };
    let found = plan(json!({})).unwrap();
    let Payload::CommitmentSet(set) = &found.events[0].payload else { panic!() };
    assert_eq!((set.discounts.len(), set.hourly_commitment), (2, Some("2.5".parse().unwrap())));
    let refused = [
        (json!({"hourly_commitment": null}), "hourly_commitment: null or zero"),
        (json!({"discounts": []}), "discounts: empty"),
        (json!({"kind": "RESERVED_INSTANCE"}), "region or instance_family is missing"),
        (json!({"discounts": [{"applies_to": "POD", "rate": "1"}]}), "give the saving"),
        (json!({"discounts": [{"applies_to": "NODE", "saving": "1"}]}), "not below 1"),
        (
            json!({"discounts": [{"applies_to": "POD", "instance_type": "t", "saving": "0.1"}]}),
            "only a discount",
        ),
    ];
    for (changes, expected) in refused {
        let error = plan(changes).unwrap_err().to_string();
        assert!(error.starts_with("entry 1 of commitments (s): ") && error.contains(expected), "{error}");
    }
    let two = r#"{"applies_to": "NODE", "saving": "0.1", "rate": "1"}"#;
    assert!(serde_json::from_str::<prorata_collector::agreements::DiscountEntry>(two).is_err());
    assert!(
        serde_json::from_str::<prorata_collector::agreements::DiscountEntry>(r#"{"applies_to": "POD"}"#)
            .is_err()
    );
}
