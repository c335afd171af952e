//! `prorata explain` and `prorata check` on a lake that a worker is writing. The worker has decided a
//! checkpoint and has not yet committed to all tables.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use prorata_samples::trace::pod;
use prorata_worker::checkpoint::checksum;
use serde_json::Value;

use super::harness::*;

const LATE: &str = "2026-11-01T01";

/// A lake that a late event has restated, and the withheld commits to one table.
struct Unsettled {
    room: Room,
    log: PathBuf,
    aside: PathBuf,
}

impl Unsettled {
    /// Builds a lake without the commits to this table that publish the late event.
    fn new(table: &str) -> Self {
        let room = Room::new();
        let log = room.path("lake").join(table).join("_delta_log");
        room.put_events("good.avro", &trace());
        room.run("lake", &[]);
        let before = names(&log);
        room.put_events("late.avro", &[pod("acme", 65, "late", 1)]);
        room.run("lake", &[]);
        let aside = room.path("aside");
        std::fs::create_dir(&aside).unwrap();
        for commit in &names(&log) - &before {
            std::fs::rename(log.join(&commit), aside.join(&commit)).unwrap();
        }
        let unsettled = Self { room, log, aside };
        assert!(!names(&unsettled.aside).is_empty(), "the late event was published");
        unsettled
    }

    /// Publishes the withheld commits, as a worker that continues would.
    fn publish(&self) {
        for commit in names(&self.aside) {
            std::fs::rename(self.aside.join(&commit), self.log.join(&commit)).unwrap();
        }
    }

    /// Makes the lake look as if nobody had written for an hour.
    fn rest(&self) {
        let objects = self.room.objects("lake");
        for name in objects.iter().filter(|name| name.contains("/checkpoint-")) {
            let path = self.room.path("lake").join(name);
            let json = checksum::check_json(&std::fs::read(&path).unwrap()).unwrap();
            let mut checkpoint: Value = serde_json::from_slice(&json).unwrap();
            let written_at = checkpoint["written_at"].as_i64().unwrap();
            checkpoint["written_at"] = (written_at - 3_600_000_000).into();
            let json = serde_json::to_vec(&checkpoint).unwrap();
            std::fs::write(&path, checksum::add_to_json(&json)).unwrap();
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.args(args).arg("--json").arg("--lake").arg(self.room.path("lake"));
        command
    }

    /// Runs a command, and publishes the commits after the command reports that something is missing.
    fn run_meanwhile(&self, args: &[&str]) -> Output {
        let piped = self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = piped.unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        lines.read_line(&mut said).unwrap();
        assert!(said.contains("reading the lake again"), "{said}");
        self.publish();
        let output = child.wait_with_output().unwrap();
        lines.read_to_string(&mut said).unwrap();
        Output { stderr: said.into_bytes(), ..output }
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn problems(report: &Value) -> BTreeSet<&str> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["problem"].as_str().unwrap()).collect()
}

#[test]
fn rows_that_are_published_meanwhile_are_explained_as_they_are_then() {
    for table in ["cost_allocation", "hours"] {
        let lake = Unsettled::new(table);
        let explain = ["explain", "--hour", LATE, "--node", "n"];
        if table == "hours" {
            // `explain` does not read the rows of this table, and the other tables agree.
            assert_eq!(code(&lake.command(&explain).output().unwrap()), 0);
            continue;
        }
        let explanation = lake.run_meanwhile(&explain);
        assert_eq!(code(&explanation), 0, "{}{}", text(&explanation), error(&explanation));
        let document = json(&explanation);
        assert_eq!((&document["is_same_as_table"], &document["is_published"]), (&true.into(), &true.into()));
        assert!(document["rows"].as_array().unwrap().iter().any(|row| row["pod_uid"] == "late"));
    }
}

#[test]
fn a_pod_that_is_published_meanwhile_is_found() {
    let lake = Unsettled::new("cost_allocation");
    let explanation = lake.run_meanwhile(&["explain", "--hour", LATE, "--pod", "late"]);
    assert_eq!(code(&explanation), 0, "{}{}", text(&explanation), error(&explanation));
}

#[test]
fn rows_that_nobody_publishes_are_said_to_be_of_an_earlier_revision() {
    let lake = Unsettled::new("cost_allocation");
    let explanation = lake.command(&["explain", "--hour", LATE, "--node", "n"]).output().unwrap();
    assert_eq!(code(&explanation), 1, "{}{}", text(&explanation), error(&explanation));
    assert_eq!(json(&explanation)["is_published"], false);
    let mut people = program();
    people.args(["explain", "--hour", LATE, "--node", "n", "--lake"]).arg(lake.room.path("lake"));
    let people = text(&people.output().unwrap());
    assert!(people.contains("the newest revision of the hour is not in the table yet"), "{people}");
}

#[test]
fn nobody_is_waited_for_who_has_not_written_for_long() {
    let lake = Unsettled::new("cost_allocation");
    lake.rest();
    let explanation = lake.command(&["explain", "--hour", LATE, "--node", "n"]).output().unwrap();
    assert_eq!((code(&explanation), error(&explanation).as_str()), (1, ""));
    assert_eq!(json(&explanation)["is_published"], false);
    let checked = lake.command(&["check"]).output().unwrap();
    assert!(problems(&json(&checked)).contains("not_published"));
    assert_eq!(error(&checked).lines().count(), 1, "it is read twice");
}

#[test]
fn a_check_meanwhile_waits_until_tables_and_checkpoints_agree() {
    for table in ["cost_allocation", "hours"] {
        let lake = Unsettled::new(table);
        let checked = lake.run_meanwhile(&["check"]);
        let report = json(&checked);
        assert!(!problems(&report).contains("not_published"), "{table}: {report:#}");
        assert!(!problems(&report).contains("unbalanced"), "{table}: {report:#}");
        assert_eq!(report["findings"], json(&lake.command(&["check"]).output().unwrap())["findings"]);
    }
}

#[test]
fn unpublished_revisions_of_a_dead_worker_are_found() {
    for table in ["cost_allocation", "hours"] {
        let lake = Unsettled::new(table);
        let report = json(&lake.command(&["check"]).output().unwrap());
        let mut found = problems(&report);
        assert!(found.remove("not_published"), "{report:#}");
        lake.publish();
        let report = json(&lake.command(&["check"]).output().unwrap());
        assert_eq!(problems(&report), found, "the revision before is not taken for damage");
    }
}
