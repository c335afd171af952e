//! `prorata export`: all rows of one organization, and no rows of others.

use std::path::Path;
use std::process::Output;

use parquet::file::reader::{FileReader, SerializedFileReader};
use prorata_samples::trace::{node, pod};
use prorata_schemas::tables::Table;

use super::harness::*;

/// Returns the rows of a Parquet file, as text.
fn rows(path: &Path) -> Vec<String> {
    let file = SerializedFileReader::try_from(path).unwrap();
    assert!(file.metadata().file_metadata().num_rows() > 0, "{}", path.display());
    file.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect()
}

/// Returns the rows of an organization in the live files of a lake, sorted.
fn live(room: &Room, table: Table, organization: &str) -> Vec<String> {
    let owner = match table {
        Table::CostAllocation => format!("BillingAccountId: \"{organization}\""),
        _ => format!("organization_id: \"{organization}\""),
    };
    let files = room.files("lake")[&table].clone().into_iter();
    let all = files.flat_map(|file| rows(&room.path("lake").join(table.name()).join(file)));
    let mut live: Vec<String> = all.filter(|row| row.contains(&owner)).collect();
    live.sort();
    live
}

fn export(room: &Room, organization: &str, args: &[&str]) -> Output {
    let mut command = program();
    command.args(["export", "--json", "--organization", organization, "--lake"]).arg(room.path("lake"));
    command.arg("--output").arg(room.path("out")).args(args).output().unwrap()
}

/// Returns the exported rows of a table, sorted.
fn exported(room: &Room, table: Table) -> Vec<String> {
    let dates = std::fs::read_dir(room.path("out").join(table.name())).into_iter().flatten();
    let mut exported: Vec<String> =
        dates.flat_map(|date| rows(&date.unwrap().path().join("rows.parquet"))).collect();
    exported.sort();
    exported
}

#[test]
fn all_rows_of_one_organization_and_no_others_are_written() {
    let room = Room::new();
    room.generate_for(3, 30);
    let config = room.path("prorata.yaml");
    std::fs::write(&config, "root: {shards: 1}\n").unwrap();
    assert_eq!(code(&room.run("lake", &["--config", config.to_str().unwrap()])), 0);
    let (others, owner) = (["org-0000-aurora", "org-0002-cascade"], "org-0001-borealis");
    let output = export(&room, owner, &[]);
    assert_eq!(code(&output), 0, "{}", error(&output));
    let report = json(&output);
    for table in Table::HOURLY {
        let rows = exported(&room, table);
        assert_eq!(rows, live(&room, table, owner), "{table:?}");
        assert_eq!(report["tables"][table.name()]["rows"], rows.len(), "{report:#}");
        assert!(!rows.iter().any(|row| others.iter().any(|other| row.contains(other))), "{table:?}");
    }
    let dates = report["tables"]["hours"]["files"].as_u64();
    assert!(dates >= Some(2) && !exported(&room, Table::CostAllocation).is_empty(), "{report:#}");
}

#[test]
fn replaced_rows_and_other_hours_are_left_out() {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room.run("lake", &[]);
    let mut events = trace();
    events.extend([pod("acme", 65, "late", 1), node("beta", 0, 10)]);
    room.put_events("late.avro", &events);
    room.run("lake", &[]);
    let range = ["--from", "2026-11-01T01", "--to", "2026-11-01T01"];
    let output = export(&room, "acme", &range);
    assert_eq!(code(&output), 0, "{}", error(&output));
    let rows = exported(&room, Table::CostAllocation);
    let pods = rows.iter().filter(|row| row.contains("x_PodUid: \"a\"")).count();
    assert!(pods == 1 && rows.iter().any(|row| row.contains("x_PodUid: \"late\"")), "{rows:#?}");
    assert_eq!(exported(&room, Table::Hours).len(), 1);
}

#[test]
fn an_output_with_files_and_an_organization_without_rows_are_refused() {
    let room = Room::new();
    room.put_events("good.avro", &trace());
    room.run("lake", &[]);
    let nobody = export(&room, "nobody", &[]);
    assert_eq!(code(&nobody), 2);
    assert!(message(&nobody).contains("no rows of organization 'nobody'"), "{}", error(&nobody));
    assert_eq!(code(&export(&room, "acme", &[])), 0);
    let again = export(&room, "acme", &[]);
    assert_eq!(code(&again), 2);
    assert!(message(&again).contains("is not empty"), "{}", error(&again));
    let reversed = export(&room, "acme", &["--from", "2026-11-02T00", "--to", "2026-11-01T00"]);
    assert_eq!(code(&reversed), 2);
}
