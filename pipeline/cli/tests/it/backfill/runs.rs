//! Runs that are repeated, changed or killed, or that overlap.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};

use prorata_samples::trace::{START, pod, pod_stop};
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::tables::Table;
use prorata_testkit::wait::eventually;
use prorata_worker::names::TableFile;

use super::harness::*;

#[test]
fn the_summary_is_for_people_or_one_json_document() {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room.put("README.md", b"about");
    let output = room.run("lake", &[]);
    assert_eq!(code(&output), 0, "{}", error(&output));
    assert_eq!(error(&output), "", "no progress bars but on a terminal");
    let summary = text(&output);
    for line in [
        "Folded 2026-11-01T00 to 2026-11-01T02 (3 hours).",
        "3 events in 1 files: 3 new, 0 known already.",
        "1 other files were left out: their names do not end in .avro.",
    ] {
        assert!(summary.lines().any(|found| found == line), "{line}: {summary}");
    }
    for (name, amount) in
        [("total supply", "30.00"), ("namespace team", "30.00"), ("idle", "0.00"), ("difference", "0")]
    {
        let line = summary.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
        assert!(line.ends_with(&format!(" {amount}")), "{name}: {summary}");
    }
    let output = room.run("other", &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["totals"]["USD"]["supply"], "30");
    assert_eq!(json["totals"]["USD"]["difference"], "0");
    let money = |key: &str| json["totals"]["USD"][key].as_str().unwrap().parse::<Decimal12>().unwrap();
    let (used, unused) = (money("node_used"), money("node_unused"));
    assert!(used > Decimal12::ZERO && unused > Decimal12::ZERO, "{used} {unused}");
    assert_eq!(used.atoms() + unused.atoms(), money("supply").atoms());
    assert_eq!(json["events"]["new"], 3);
    assert_eq!(json["to"], "2026-11-01T02");
}

/// A panic in a log statement would hold the organization that is being folded.
#[test]
fn logs_that_cannot_be_written_change_nothing() {
    let room = Room::new();
    room.generate(3);
    let config = room.path("prorata.yaml");
    std::fs::write(&config, "log: {level: debug}\n").unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let done = room.backfill("lake").arg("--config").arg(config).stderr(full).output().unwrap();
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert_eq!(code(&room.run("logged", &[])), 0);
    assert!(room.content("lake") == room.content("logged"));
}

#[test]
fn running_again_writes_no_new_version_of_any_table() {
    let room = Room::new();
    room.generate(30);
    assert_eq!(code(&room.run("lake", &[])), 0);
    let objects = room.objects("lake");
    let output = room.run("lake", &[]);
    assert!(text(&output).starts_with("Nothing changed: "), "{}", text(&output));
    let new: Vec<String> = room.objects("lake").into_iter().filter(|name| !objects.contains(name)).collect();
    let is_checkpoint = |name: &String| name.contains("/checkpoint-") || name.contains("/part-");
    assert!(new.iter().all(is_checkpoint), "{new:?}");
}

#[test]
fn a_changed_input_replaces_just_the_hours_that_differ() {
    let room = Room::new();
    let mut events = trace();
    events.push(pod("acme", 600, "b", 1));
    room.put_events("good.avro", &events);
    room.run("lake", &[]);
    let before = room.files("lake");
    room.put_events("late.avro", &[pod("acme", 200, "late", 1), pod_stop("acme", 250, "late")]);
    let output = room.run("lake", &[]);
    assert_eq!(code(&output), 0, "{}", error(&output));
    assert!(text(&output).contains("2 hours that were published before have changed."), "{}", text(&output));
    for (table, after) in room.files("lake") {
        let changed = after.iter().filter(|path| !before[&table].contains(path));
        let hours: Vec<i64> = changed.map(|path| TableFile::parse(path).unwrap().hour.0 - START).collect();
        let expected: &[i64] =
            if matches!(table, Table::CostAllocation | Table::Hours) { &[3, 4] } else { &[] };
        assert_eq!(hours, expected, "{table:?}");
    }
    room.run("fresh", &[]);
    assert_eq!(room.content("lake"), room.content("fresh"));
}

#[test]
fn threads_and_windows_do_not_show() {
    let room = Room::new();
    room.generate(30);
    room.run("lake", &[]);
    let settings =
        [("THREADS", "1"), ("ROWS_IN_FLIGHT", "1"), ("BUFFER_BYTES", "20000"), ("CHECKPOINT_INTERVAL", "0s")];
    let variables = settings.map(|(key, value)| (format!("PRORATA_BACKFILL__{key}"), value));
    let output = room.backfill("other").envs(variables).output().unwrap();
    assert_eq!(code(&output), 0, "{}", error(&output));
    let (one, other) = (room.content("lake"), room.content("other"));
    assert!(one.len() > 100, "{} files", one.len());
    assert_eq!(one, other);
}

#[test]
fn a_run_killed_at_any_time_is_finished_by_the_next() {
    let room = Room::new();
    room.generate(30);
    room.run("whole", &[]);
    let (expected, whole) = (room.content("whole"), room.objects("whole").len());
    let mut killed = 0;
    for part in 0..12 {
        let mut command = room.backfill("lake");
        command.env("PRORATA_BACKFILL__CHECKPOINT_INTERVAL", "0s").stdout(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let before = room.objects("lake").len();
        eventually("the run comes as far as it is to be killed", || {
            let gone_on = room.objects("lake").len().saturating_sub(before);
            child.try_wait().unwrap().is_some() || gone_on >= whole * part / 12
        });
        child.kill().unwrap();
        killed += u32::from(child.wait().unwrap().code().is_none());
    }
    assert!(killed > 0);
    let output = room.run("lake", &[]);
    assert_eq!(code(&output), 0, "no --take-over is needed: {}", error(&output));
    assert_eq!(room.content("lake"), expected);
}

#[test]
fn of_two_backfills_at_once_one_wins_and_the_other_says_so() {
    let room = Room::new();
    room.generate(30);
    room.run("alone", &[]);
    let mut codes: BTreeMap<i32, u32> = BTreeMap::new();
    for _ in 0..3 {
        let spawn = || {
            let mut command = room.backfill("lake");
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            command.spawn().unwrap()
        };
        let children = [spawn(), spawn()];
        let mut finished = 0;
        for child in children {
            let output = child.wait_with_output().unwrap();
            *codes.entry(code(&output)).or_default() += 1;
            match code(&output) {
                0 => finished += 1,
                4 => assert!(
                    message(&output).contains("was taken by another backfill or worker while this one ran"),
                    "{}",
                    error(&output)
                ),
                other => panic!("exit code {other}: {}", error(&output)),
            }
        }
        assert!(finished > 0, "one wins");
        assert_eq!(room.content("lake"), room.content("alone"));
    }
    assert!(codes.keys().all(|code| [0, 4].contains(code)), "{codes:?}");
}

#[test]
fn four_processes_that_share_the_shards_make_the_tables_of_one() {
    let room = Room::new();
    room.generate_for(12, 6);
    assert_eq!(code(&room.run("alone", &[])), 0);
    let parts = ["0-3", "4-7", "8-11", "12-15"];
    let start = |shards| {
        let mut command = room.backfill("shared");
        command.args(["--shards", shards]).stdout(Stdio::null()).spawn().unwrap()
    };
    let running: Vec<Child> = parts.into_iter().map(start).collect();
    for mut process in running {
        assert!(process.wait().unwrap().success());
    }
    let shards =
        |lake| -> BTreeSet<u16> { room.content(lake).into_keys().map(|(_, _, shard)| shard).collect() };
    let busy = parts
        .iter()
        .enumerate()
        .filter(|(part, _)| shards("alone").iter().any(|shard| usize::from(*shard) / 4 == *part));
    assert!(busy.count() > 2, "the shards of several processes must have events: {:?}", shards("alone"));
    assert_eq!(room.content("shared"), room.content("alone"));
}
