//! `prorata report`: the numbers on the page are the numbers of the tables, and the page is self-contained.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Output;

use prorata_samples::bill::bill_line;
use prorata_samples::trace::node;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{BillLine, ChargeCategory, EventRecord, Payload, UseStatus};
use prorata_schemas::money::UnitPrice;
use serde_json::{Value, json};

use super::harness::*;

fn sample(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/sample-day").join(file)
}

/// Builds a room with the sample day in a lake.
fn sample_day() -> Room {
    let room = Room::new();
    let mut backfill = program();
    backfill.arg("backfill").arg("--events").arg(sample("events")).arg("--lake").arg(room.path("lake"));
    assert!(backfill.output().unwrap().status.success());
    room
}

fn report(room: &Room, args: &[&str]) -> Output {
    let (lake, page) = (room.path("lake"), room.path("report.html"));
    program().args(["report", "--lake"]).arg(lake).arg("--output").arg(page).args(args).output().unwrap()
}

/// Returns the page and its data.
fn page(room: &Room, args: &[&str]) -> (String, Value) {
    let output = report(room, args);
    assert_eq!(code(&output), 0, "{}", error(&output));
    let page = std::fs::read_to_string(room.path("report.html")).unwrap();
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    let data = serde_json::from_str(data).unwrap();
    (page, data)
}

fn atoms(value: &Value) -> i128 {
    value.as_str().unwrap().parse().unwrap()
}

/// Sums a column of facts by a column of bearers.
fn sums(data: &Value, fact: &str, column: &str) -> BTreeMap<String, i128> {
    let mut sums = BTreeMap::new();
    let facts = &data["facts"];
    for (value, bearer) in facts[fact].as_array().unwrap().iter().zip(facts["bearer"].as_array().unwrap()) {
        let at = bearer.as_u64().unwrap() as usize;
        let text = data["bearers"][column][at].as_u64().unwrap() as usize;
        let name = data["texts"][text].as_str().unwrap().to_owned();
        *sums.entry(name).or_default() += atoms(value);
    }
    sums
}

/// Sums a column of an expected table by another column.
fn expected(table: &str, by: &str, column: &str) -> BTreeMap<String, i128> {
    let text = std::fs::read_to_string(sample("expected").join(format!("{table}.tsv"))).unwrap();
    let mut lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let at = |name: &str| head.iter().position(|column| *column == name).unwrap();
    let (by, column) = (at(by), at(column));
    let mut sums = BTreeMap::new();
    // Shorter lines hold digests.
    for line in lines.filter(|line| line.len() == head.len()) {
        let amount: Decimal12 = line[column].parse().unwrap();
        *sums.entry(line[by].to_owned()).or_default() += amount.atoms();
    }
    sums
}

#[test]
fn numbers_on_the_page_are_those_of_the_tables() {
    let room = sample_day();
    let (_, data) = page(&room, &[]);
    let by_organization = sums(&data, "cost", "organization");
    assert_eq!(by_organization, expected("hours", "organization_id", "allocated_cost"));
    let kinds = sums(&data, "cost", "kind");
    let table = expected("cost_allocation", "x_RowKind", "EffectiveCost");
    assert_eq!(kinds["idle"], table["node_idle"]);
    assert_eq!(kinds["reservation"], table["reservation_unused"]);
    assert_eq!(kinds["commitment"], table["commitment_unused"]);
    assert_eq!(kinds["pod"], table["pod_node"] + table["pod_serverless"] + table["pod_pool"]);
    // Used and unused capacity split the cost of the rows of nodes.
    let (used, unused) = (sums(&data, "used", "kind"), sums(&data, "unused", "kind"));
    assert_eq!(used["pod"] + unused["pod"], table["pod_node"]);
    assert!(used["pod"] > 0 && unused["pod"] > 0 && unused["idle"] == table["node_idle"], "{unused:?}");
    let states = expected("cost_allocation", "x_QuotaState", "EffectiveCost");
    let over: i128 = sums(&data, "over_quota", "kind").into_values().sum();
    assert_eq!(over, states["over-quota"]);
    for (list, table, id) in [
        ("reservations", "reservation_usage", "reservation_id"),
        ("commitments", "commitment_utilization", "commitment_id"),
    ] {
        let mut found: BTreeMap<String, i128> = BTreeMap::new();
        for of in data["agreements"][list].as_array().unwrap() {
            *found.entry(of["id"].as_str().unwrap().to_owned()).or_default() += atoms(&of["unused_cost"]);
        }
        assert_eq!(found, expected(table, id, "unused_cost"), "{list}");
    }
    // Cards of nodes, and what pods held of them: the sums of the pods' own rows on nodes that are known.
    let sharing = data["gpu_sharing"].as_array().unwrap();
    let hours = |key: &str| sharing.iter().map(|of| atoms(&of[key])).sum::<i128>();
    let all: i128 = sums(&data, "gpu_hours", "kind").into_values().sum();
    assert!(hours("physical_hours") > 0 && hours("oversubscribed_hours") == 0, "{sharing:?}");
    assert!((1..=all).contains(&hours("allocated_hours")), "{sharing:?}");
    assert_eq!((&data["left_out"], &data["bills"]), (&json!({}), &json!({ "days": [], "clusters": [] })));
    assert!(data["unpriced"].as_array().unwrap().iter().all(|of| of["fix"].as_str().unwrap().len() > 10));
}

/// Returns the events of three hours: a billed node, another at 3 an hour that no bill has, and a bill of no
/// resource with a credit of -2.4 and an unused commitment of 4.8 for the whole day.
fn partly_billed_trace() -> Vec<EventRecord> {
    let mut events = billed_trace();
    let (mut other, mut shared) = (events[0].event.clone(), events[1].event.clone());
    let Payload::NodeStarted(started) = &mut other.payload else { panic!("not a start of a node") };
    started.cluster_id = "d".into();
    started.resource_key = None;
    started.hourly_cost = UnitPrice::from_nanos(3_000_000_000);
    let Payload::BillSet(bill) = &mut shared.payload else { panic!("not a bill") };
    bill.resource_key = "".into();
    let end = bill.lines[0].period_end;
    let credit = BillLine { category: ChargeCategory::Credit, ..bill_line("credit", end, "-2.4") };
    let (commitment_id, commitment_status) = (Some("plan".into()), Some(UseStatus::Unused));
    let unused = BillLine { commitment_id, commitment_status, ..bill_line("unused", end, "4.8") };
    bill.lines = vec![credit, unused];
    events.extend([other, shared].map(EventRecord::new));
    events
}

/// The section on bills compares a billed node with its estimate, by day and by cluster. Other costs have
/// columns of their own, and no cost is missing.
#[test]
fn bills_are_compared_with_estimates() {
    let room = Room::new();
    let events = partly_billed_trace().into_iter().chain([node("beta", 0, 10)]);
    room.put_events("good.avro", &events.collect::<Vec<_>>());
    room.run("lake", &[]);
    let sums = |billed: [&str; 4], estimated: &str| {
        let text = |amount: &str| amount.parse::<Decimal12>().unwrap().atoms().to_string();
        let [nodes, estimate, agreements, shared] = billed.map(text);
        json!({ "nodes": nodes, "estimate": estimate, "agreements": agreements, "shared": shared,
            "estimated": text(estimated) })
    };
    let day = |organization: &str, is_billed: bool, sums: Value| {
        json!({ "organization": organization, "currency": "USD", "date": "2026-11-01",
            "is_billed": is_billed, "sums": sums })
    };
    let cluster = |organization: &str, cluster: &str, sums: Value| {
        json!({ "organization": organization, "currency": "USD", "cluster": cluster,
            "sums": sums })
    };
    let none = ["0"; 4];
    let acme = day("acme", true, sums(["6", "30", "0.6", "-0.3"], "9"));
    let clusters = [
        cluster("acme", "", sums(["0", "0", "0.6", "-0.3"], "0")),
        cluster("acme", "c", sums(["6", "30", "0", "0"], "0")),
        cluster("acme", "d", sums(none, "9")),
    ];
    let (_, data) = page(&room, &["--organization", "acme"]);
    assert_eq!(data["bills"], json!({ "days": [acme], "clusters": clusters }));
    let total: Decimal12 = "15.3".parse().unwrap();
    assert_eq!(self::sums(&data, "cost", "organization"), [("acme".to_owned(), total.atoms())].into());
    let (_, data) = page(&room, &[]);
    let beta = (day("beta", false, sums(none, "30")), cluster("beta", "c", sums(none, "30")));
    assert_eq!(data["bills"]["days"], json!([acme, beta.0]));
    assert_eq!(data["bills"]["clusters"].as_array().unwrap().last(), Some(&beta.1));
    let (_, data) = page(&room, &["--organization", "beta"]);
    assert_eq!(data["bills"], json!({ "days": [], "clusters": [] }), "no row of it is billed");
}

/// For each bearer of cost, the page names a command. An idle node is explained by its cluster and id.
#[test]
fn an_idle_node_can_be_explained_as_the_page_says() {
    let room = sample_day();
    let (text, data) = page(&room, &[]);
    assert!(text.contains("`${bearer(at, \"cluster\")}/${bearer(at, \"name\")}`"));
    let of = |column: &str, at: usize| {
        let text = data["bearers"][column][at].as_u64().unwrap() as usize;
        data["texts"][text].as_str().unwrap().to_owned()
    };
    let facts = &data["facts"];
    let bearers = facts["bearer"].as_array().unwrap().iter().map(|at| at.as_u64().unwrap() as usize);
    let mut idle = BTreeMap::new();
    for (fact, at) in bearers.enumerate().filter(|(_, at)| of("kind", *at) == "idle") {
        let time = facts["time"][fact].as_u64().unwrap() as usize;
        let node = format!("{}/{}", of("cluster", at), of("name", at));
        let cost = atoms(&facts["cost"][fact]);
        assert_eq!(idle.insert((node, of("organization", at), time), cost), None, "one fact a node and time");
    }
    assert!(idle.len() > 24, "{idle:?}");
    for ((node, organization, time), cost) in idle.iter().step_by(17) {
        let hour = data["times"][*time].as_str().unwrap();
        let mut explain = program();
        explain.arg("explain").arg("--lake").arg(room.path("lake")).args(["--hour", hour, "--json"]);
        let output = explain.args(["--node", node, "--organization", organization]).output().unwrap();
        assert_eq!(code(&output), 0, "{}", error(&output));
        let explanation: Value = serde_json::from_slice(&output.stdout).unwrap();
        // A savings plan may pay a part of it.
        let rows = explanation["rows"].as_array().unwrap().iter().filter(|row| row["kind"] == "node_idle");
        let cost_of = |row: &Value| row["figures"]["EffectiveCost"].as_str().unwrap().parse::<Decimal12>();
        let explained: i128 = rows.map(|row| cost_of(row).unwrap().atoms()).sum();
        assert_eq!(explained, *cost, "{node} at {hour}: {explanation}");
    }
}

/// For the most expensive items, the page holds the text that `prorata explain` prints.
#[test]
fn the_page_explains_what_cost_most() {
    let room = sample_day();
    let (_, data) = page(&room, &["--explain", "12"]);
    let of = |column: &str, at: usize| {
        let text = data["bearers"][column][at].as_u64().unwrap() as usize;
        data["texts"][text].as_str().unwrap().to_owned()
    };
    let mut costs: BTreeMap<usize, i128> = BTreeMap::new();
    let facts = &data["facts"];
    for (cost, at) in facts["cost"].as_array().unwrap().iter().zip(facts["bearer"].as_array().unwrap()) {
        *costs.entry(at.as_u64().unwrap() as usize).or_default() += atoms(cost);
    }
    let explained = data["explained"].as_object().unwrap();
    assert_eq!(explained.len(), 12);
    let least = explained.keys().map(|at| costs[&at.parse().unwrap()]).min().unwrap();
    assert_eq!(costs.values().filter(|cost| **cost > least).count(), 11, "those that cost most");
    let mut kinds = BTreeMap::new();
    for (at, explanation) in explained {
        let at: usize = at.parse().unwrap();
        let subject = match of("kind", at).as_str() {
            "pod" => ["--pod".to_owned(), of("uid", at)],
            "idle" => ["--node".to_owned(), format!("{}/{}", of("cluster", at), of("name", at))],
            agreement => [format!("--{agreement}"), of("name", at)],
        };
        let mut explain = program();
        explain.arg("explain").arg("--lake").arg(room.path("lake")).args(["--hour", &of("hour", at)]);
        let output =
            explain.args(&subject).args(["--organization", &of("organization", at)]).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim_end(),
            explanation.as_str().unwrap(),
            "{subject:?}"
        );
        *kinds.entry(of("kind", at)).or_insert(0) += 1;
    }
    assert!(kinds.len() > 2, "{kinds:?}");
    assert_eq!(page(&room, &["--explain", "0"]).1["explained"], json!({}));
}

/// A lake with a damaged archive cannot be explained. The page is still written, and says why in place of the
/// explanations.
#[test]
fn a_page_says_why_costs_cannot_be_explained() {
    let room = sample_day();
    let archive = room.objects("lake").into_iter().filter(|object| object.starts_with("events/"));
    archive.for_each(|object| std::fs::write(room.path("lake").join(object), "damaged").unwrap());
    let (_, data) = page(&room, &["--explain", "3"]);
    let explained: Vec<&Value> = data["explained"].as_object().unwrap().values().collect();
    assert_eq!(explained.len(), 3);
    assert!(
        explained.iter().all(|text| text.as_str().unwrap().starts_with("It cannot be explained: ")),
        "{explained:?}"
    );
    assert_eq!(sums(&data, "cost", "organization"), expected("hours", "organization_id", "allocated_cost"));
}

/// If a page covers more than four days, it shows days. For a day, it explains an hour that has a cost.
#[test]
fn costs_on_a_page_of_days_can_be_explained() {
    let room = Room::new();
    let (lake, events) = (room.path("lake"), room.path("generated"));
    let load = ["generate", "--hours", "100", "--pods", "4", "--seed", "3", "--output"];
    assert!(program().args(load).arg(&events).output().unwrap().status.success());
    let mut backfill = program();
    backfill.arg("backfill").arg("--events").arg(events).arg("--lake").arg(&lake);
    assert!(backfill.output().unwrap().status.success());
    let (_, data) = page(&room, &[]);
    assert_eq!(data["by_day"], true);
    let bearers = data["bearers"]["kind"].as_array().unwrap().len();
    let of = |column: &str, at: usize| {
        let text = data["bearers"][column][at].as_u64().unwrap() as usize;
        data["texts"][text].as_str().unwrap().to_owned()
    };
    let pods: Vec<usize> = (0..bearers).filter(|at| of("kind", *at) == "pod").collect();
    assert!(pods.len() > 20, "{} pods", pods.len());
    for at in pods.into_iter().step_by(5) {
        let (hour, pod) = (of("hour", at), of("uid", at));
        let mut explain = program();
        explain.arg("explain").arg("--lake").arg(&lake).args(["--hour", &hour, "--pod", &pod]);
        let output = explain.output().unwrap();
        assert_eq!(code(&output), 0, "{pod} at {hour}: {}", error(&output));
    }
}

/// The page of one organization can be given to that organization.
#[test]
fn a_page_of_one_organization_holds_nothing_of_another() {
    let room = sample_day();
    let (_, all) = page(&room, &[]);
    let [aurora, borealis] = ["org-0000-aurora", "org-0001-borealis"];
    let (text, data) = page(&room, &["--organization", aurora, "--explain", "40"]);
    let totals = sums(&all, "cost", "organization");
    assert_eq!(sums(&data, "cost", "organization"), [(aurora.to_owned(), totals[aurora])].into());
    assert!(!text.contains("org-0001"), "the page names another organization");
    // Names that the other organization has and this organization does not.
    let (_, other) = page(&room, &["--organization", borealis]);
    let texts = |data: &Value| -> BTreeSet<String> {
        data["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let (ours, theirs) = (texts(&data), texts(&other));
    let only_theirs: Vec<&String> = theirs.difference(&ours).filter(|text| text.len() > 8).collect();
    assert!(only_theirs.len() > 20, "{only_theirs:?}");
    assert!(only_theirs.iter().all(|name| !text.contains(&format!("\"{name}\""))), "{only_theirs:?}");
    for list in ["reservations", "commitments", "quotas", "pools"] {
        let of = |data: &Value| data["agreements"][list].as_array().unwrap().clone();
        let is_ours = |of: &Value| of["organization"] == aurora;
        assert_eq!(of(&data), of(&all).into_iter().filter(is_ours).collect::<Vec<_>>(), "{list}");
    }
    let nobody = report(&room, &["--organization", "acne"]);
    assert_eq!(code(&nobody), 2);
    assert!(error(&nobody).contains("no cost of organization 'acne'"), "{}", error(&nobody));
}

#[test]
fn every_grouping_adds_up_to_the_same_and_hours_can_be_chosen() {
    let room = sample_day();
    let total = |data: &Value| sums(data, "cost", "kind").into_values().sum::<i128>();
    let all = total(&page(&room, &[]).1);
    for group in ["cluster", "gpu_model", "label:app"] {
        let (_, data) = page(&room, &["--group-by", group]);
        assert_eq!(total(&data), all, "{group}");
        assert!(sums(&data, "cost", "group").len() > 1, "{group}");
    }
    let (_, late) = page(&room, &["--from", "2026-11-01T12"]);
    let (_, early) = page(&room, &["--to", "2026-11-01T11"]);
    assert_eq!(total(&late) + total(&early), all);
    let before: i128 = late["before"].as_array().unwrap().iter().map(|row| atoms(&row[3])).sum();
    assert_eq!(before, total(&early), "the period before");
    assert_eq!(total(&page(&room, &["--days", "3660"]).1), all);
    assert_eq!(page(&room, &["--days", "1"]).1["hours"], Value::Null, "the day is long over");
}

#[test]
fn the_page_is_written_to_a_url_and_replaced_there() {
    let room = sample_day();
    let (page, _) = page(&room, &[]);
    let url = format!("file://{}", room.path("pages/costs.html").display());
    for _ in 0..2 {
        let mut command = program();
        command.args(["report", "--lake"]).arg(room.path("lake")).args(["--output", &url]);
        assert!(command.output().unwrap().status.success());
        assert_eq!(std::fs::read_to_string(room.path("pages/costs.html")).unwrap(), page);
    }
    let mut folder = program();
    folder.args(["report", "--lake"]).arg(room.path("lake")).args(["--output", "s3://bucket/pages/"]);
    let folder = folder.output().unwrap();
    assert_eq!(code(&folder), 2);
    assert!(message(&folder).contains("names a folder; name a file in it"));
}

#[test]
fn the_page_asks_nobody_and_no_name_can_be_markup() {
    let room = Room::new();
    let mut events = trace();
    events.push(prorata_samples::trace::pod("acme", 40, "</script><script>alert(1)</script>", 1));
    room.put_events("good.avro", &events);
    room.run("lake", &[]);
    let (page, data) = page(&room, &[]);
    assert!(!page.contains("<script>alert"), "a name became markup");
    assert!(data["texts"].as_array().unwrap().iter().any(|text| text.as_str().unwrap().contains("alert(1)")));
    assert!(page.contains("default-src 'none'"));
    assert!(!page.contains("unsafe-inline"), "a script of somebody else could run");
    let with_scheme = page.matches("http://").count() + page.matches("https://").count();
    let library = page.matches("https://github.com/leeoniya/uPlot").count();
    assert_eq!((with_scheme, library), (1, 1), "only the home of the library of charts");
}

#[test]
fn an_empty_lake_gives_a_page_that_says_so_and_bad_input_a_message() {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room.run("lake", &[]);
    let (_, data) = page(&room, &["--from", "2027-01-01T00"]);
    assert_eq!((&data["hours"], &data["times"]), (&Value::Null, &json!([])));
    let other = report(&room, &["--group-by", "colour"]);
    assert_eq!(code(&other), 2);
    assert!(error(&other).contains("it must be namespace, cluster, gpu_model or label:KEY"));
    let order = report(&room, &["--from", "2026-11-02T00", "--to", "2026-11-01T00"]);
    assert_eq!(code(&order), 2);
    let mut nowhere = program();
    nowhere.args(["report", "--lake"]).arg(room.path("lake")).args(["--output", "/no/such/folder/page.html"]);
    let nowhere = nowhere.output().unwrap();
    assert_eq!(code(&nowhere), 2);
    assert!(message(&nowhere).contains("cannot be written"));
}
