//! `prorata close` and `prorata check --closed` on a lake in a local folder.

use std::process::{Command, Output};

use prorata_samples::trace::{pod, pod_stop};
use prorata_schemas::event::{BillingPeriodClosed, Event, EventRecord, Payload};
use prorata_schemas::time::Date;

use super::backfill::harness::*;

fn command(room: &Room, name: &str) -> Command {
    let mut program = program();
    program.arg(name).arg("--lake").arg(room.path("lake"));
    program
}

fn run(room: &Room, name: &str, args: &[&str]) -> Output {
    command(room, name).args(args).output().unwrap()
}

/// Returns the event after which the bill of November is complete.
fn november_closed() -> EventRecord {
    let november: Date = "2026-11-01".parse().unwrap();
    let closed = BillingPeriodClosed {
        provider: "aws".into(),
        billing_account_id: "111122223333".into(),
        invoice_id: None,
    };
    EventRecord::new(Event::new("acme".into(), november.start(), Payload::BillingPeriodClosed(closed)))
}

#[test]
fn a_month_closes_and_a_late_event_becomes_a_correction() {
    let room = Room::new();
    let to = ["--to", "2026-12-01T00"];
    room.put_events("bill.avro", &billed_trace());
    assert_eq!(code(&room.run("lake", &[])), 0);
    let waits = run(&room, "close", &[]);
    assert_eq!(code(&waits), 0, "{}", error(&waits));
    assert!(!text(&waits).contains("acme"), "an organization that closes no months: {}", text(&waits));
    assert!(!room.path("lake/closed_allocation").exists(), "nothing is closed, so there is no table");

    room.put_events("closed.avro", &[november_closed()]);
    assert_eq!(code(&room.run("lake", &to)), 0);
    let closed = json(&run(&room, "close", &["--json"]));
    assert_eq!(closed["closed"][0]["period"], "2026-11", "{closed:#}");
    assert_eq!(closed["closed"][0]["organization"], "acme");
    assert!(closed["files_added"].as_u64() >= Some(1), "{closed:#}");
    assert!(room.path("lake/closed/acme/2026-11.json").is_file());
    let checked = run(&room, "check", &["--closed"]);
    assert_eq!(code(&checked), 0, "{}{}", text(&checked), error(&checked));

    room.put_events("late.avro", &[pod("acme", 65, "late", 1), pod_stop("acme", 95, "late")]);
    assert_eq!(code(&room.run("lake", &to)), 0);
    assert_eq!(code(&run(&room, "check", &["--closed"])), 3, "a warning until it is corrected");
    let corrected = json(&run(&room, "close", &["--json"]));
    assert_eq!(corrected["pending"][0]["period"], "2026-12", "{corrected:#}");
    let again = json(&run(&room, "close", &["--json"]));
    assert_eq!((&again["files_added"], &again["files_removed"]), (&0.into(), &0.into()));
    assert_eq!(code(&run(&room, "check", &["--closed"])), 0);

    // The other commands ignore the table, or keep what was issued.
    assert_eq!(code(&run(&room, "check", &["--allow-warnings"])), 0);
    let maintained = json(&run(&room, "maintain", &["--json"]));
    assert_eq!(maintained["tables"]["closed_allocation"]["files_deleted"], 0, "{maintained:#}");

    let manifest = room.path("lake/closed/acme/2026-11.json");
    std::fs::write(&manifest, std::fs::read_to_string(&manifest).unwrap().replace("acme", "beta")).unwrap();
    let damaged = run(&room, "check", &["--closed"]);
    assert_eq!(code(&damaged), 1);
    assert!(text(&damaged).contains("manifest_damaged"), "{}", text(&damaged));
    let left_out = run(&room, "close", &[]);
    assert_eq!(code(&left_out), 1);
    assert!(text(&left_out).contains("organization 'acme': left out: "), "{}", text(&left_out));
}

#[test]
fn a_full_disk_closes_nothing() {
    let room = Room::new();
    room.put_events("bill.avro", &billed_trace());
    room.put_events("closed.avro", &[november_closed()]);
    assert_eq!(code(&room.run("lake", &["--to", "2026-12-01T00"])), 0);
    let output = run_on_full_disk(&command(&room, "close"), 4);
    assert_eq!(code(&output), 4, "{}", error(&output));
    assert!(message(&output).contains("storage is unavailable: "), "{}", error(&output));
    assert!(!room.path("lake/closed/acme/2026-11.json").exists());
    let closed = json(&run(&room, "close", &["--json"]));
    assert_eq!(closed["closed"][0]["period"], "2026-11", "with room again: {closed:#}");
    assert_eq!(code(&run(&room, "check", &["--closed"])), 0);
}
