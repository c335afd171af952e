//! The sample day, end to end through the program. Its tables equal `testdata/sample-day/expected` on every
//! run and with any number of threads. The day contains an example of everything but bills.
//!
//! `UPDATE_GOLDEN=1 cargo test -p prorata-tests --test golden` writes the expected files again; people review
//! the difference.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use std::sync::OnceLock;

use arrow_cast::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::tables::Table;
use prorata_tests::program;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The command that made the sample day. `testdata/README.md` contains this command.
const COMMAND: &str = "prorata generate --organizations 2 --pods 16 --hours 24 --seed 2 --start \
                       2026-11-01T00 --late-rate 0.02 --duplicate-rate 0.02 --events-per-file 600 --output \
                       testdata/sample-day/events";

/// Columns that depend on when events arrived, so they differ between runs.
const CLOCKS: &[&str] = &["late_events", "max_event_time_seen", "complete", "revision", "last_updated"];

/// Columns of `cost_allocation` by which the summary groups rows, after organization and hour.
const GROUPS: &[&str] = &["x_RowKind", "SubAccountId", "x_QuotaState", "x_Unpriced"];

/// Columns of `cost_allocation` that the summary adds up.
const SUMS: &[&str] = &["BilledCost", "EffectiveCost", "ListCost", "PricingQuantity", "x_PoolCharge"];

const NULL: &str = "null";

/// A table that was read back: column names, and rows of texts in table order.
struct Rows {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Rows {
    fn column(&self, name: &str) -> usize {
        self.columns.iter().position(|column| column == name).unwrap()
    }

    fn distinct(&self, name: &str) -> BTreeSet<&str> {
        let index = self.column(name);
        self.rows.iter().map(|row| row[index].as_str()).collect()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn backfill(lake: &Path, threads: usize) {
    let mut command = program::prorata();
    command.arg("backfill").arg("--events").arg(root().join("testdata/sample-day/events"));
    command.arg("--lake").arg(lake).env("RAYON_NUM_THREADS", threads.to_string());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns a lake with the sample day, which is built once on one thread.
fn lake() -> &'static Path {
    static LAKE: OnceLock<TempDir> = OnceLock::new();
    LAKE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        backfill(&folder.path().join("lake"), 1);
        folder
    });
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| LAKE.get().unwrap().path().join("lake"))
}

/// Returns the live files of a table according to the Delta log, in ascending order of path.
fn live_files(lake: &Path, table: Table) -> Vec<PathBuf> {
    let folder = lake.join(table.name());
    let mut versions: Vec<PathBuf> =
        std::fs::read_dir(folder.join("_delta_log")).unwrap().map(|entry| entry.unwrap().path()).collect();
    versions.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    versions.sort();
    let mut live = BTreeSet::new();
    for version in versions {
        for line in std::fs::read_to_string(version).unwrap().lines() {
            let action: Value = serde_json::from_str(line).unwrap();
            if let Some(path) = action["add"]["path"].as_str() {
                live.insert(path.to_owned());
            }
            if let Some(path) = action["remove"]["path"].as_str() {
                live.remove(path);
            }
        }
    }
    live.into_iter().map(|path| folder.join(path.replace("%3D", "="))).collect()
}

/// Reads a table ordered by hour and organization. Rows of one hour and organization keep the order of their
/// file.
fn read(lake: &Path, table: Table) -> Rows {
    let options = FormatOptions::new().with_null(NULL);
    let mut read = Rows { columns: Vec::new(), rows: Vec::new() };
    for path in live_files(lake, table) {
        let file = std::fs::File::open(path).unwrap();
        for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
            let batch = batch.unwrap();
            let schema = batch.schema();
            let kept: Vec<usize> = (0..batch.num_columns())
                .filter(|&index| !CLOCKS.contains(&schema.field(index).name().as_str()))
                .collect();
            read.columns = kept.iter().map(|&index| schema.field(index).name().clone()).collect();
            let columns: Vec<ArrayFormatter<'_>> = kept
                .iter()
                .map(|&index| ArrayFormatter::try_new(batch.column(index), &options).unwrap())
                .collect();
            for row in 0..batch.num_rows() {
                read.rows.push(columns.iter().map(|column| column.value(row).to_string()).collect());
            }
        }
    }
    let (hour, organization) = match table {
        Table::CostAllocation => ("ChargePeriodStart", "BillingAccountId"),
        _ => ("hour", "organization_id"),
    };
    let (hour, organization) = (read.column(hour), read.column(organization));
    read.rows.sort_by(|a, b| (&a[hour], &a[organization]).cmp(&(&b[hour], &b[organization])));
    read
}

/// Formats a table as text, with one line for the columns and one line for each row.
fn text(rows: &Rows) -> String {
    let lines = std::iter::once(&rows.columns).chain(&rows.rows).map(|row| row.join("\t") + "\n");
    lines.collect()
}

/// Returns `cost_allocation` as text short enough to read: sums by hour and group, and a digest of every
/// column of the hour.
fn summary(cost: &Rows) -> String {
    let keys = ["ChargePeriodStart", "BillingAccountId"].map(|name| cost.column(name));
    let groups: Vec<usize> = GROUPS.iter().map(|name| cost.column(name)).collect();
    let sums: Vec<usize> = SUMS.iter().map(|name| cost.column(name)).collect();
    let mut out = format!("hour\torganization\t{}\trows\t{}\n", GROUPS.join("\t"), SUMS.join("\t"));
    for hour in cost.rows.chunk_by(|a, b| keys.iter().all(|&key| a[key] == b[key])) {
        let head = keys.map(|key| hour[0][key].clone()).join("\t");
        let mut groups_of_hour: BTreeMap<Vec<&str>, (usize, Vec<Decimal12>)> = BTreeMap::new();
        let mut digest = Sha256::new();
        for row in hour {
            digest.update(row.join("\t") + "\n");
            let group = groups.iter().map(|&index| row[index].as_str()).collect();
            let (count, totals) =
                groups_of_hour.entry(group).or_insert_with(|| (0, vec![Decimal12::ZERO; sums.len()]));
            *count += 1;
            for (total, &index) in totals.iter_mut().zip(&sums) {
                let amount = if row[index] == NULL { Decimal12::ZERO } else { row[index].parse().unwrap() };
                *total = total.checked_add(amount).unwrap();
            }
        }
        for (group, (count, totals)) in groups_of_hour {
            let totals: Vec<String> = totals.iter().map(Decimal12::to_string).collect();
            out += &format!("{head}\t{}\t{count}\t{}\n", group.join("\t"), totals.join("\t"));
        }
        out += &format!("{head}\tsha256 of all columns\t{}\n", hex(&digest.finalize()));
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns all expected contents by file name.
fn goldens(lake: &Path) -> BTreeMap<String, String> {
    let golden = |table: Table| {
        let rows = read(lake, table);
        let content = if table == Table::CostAllocation { summary(&rows) } else { text(&rows) };
        (format!("{}.tsv", table.name()), content)
    };
    Table::HOURLY.into_iter().map(golden).collect()
}

#[test]
fn the_sample_day_has_the_tables_that_are_expected() {
    let expected = root().join("testdata/sample-day/expected");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    for (name, content) in goldens(lake()) {
        let path = expected.join(&name);
        if update {
            std::fs::create_dir_all(&expected).unwrap();
            std::fs::write(&path, &content).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap();
        let differs = committed.lines().zip(content.lines()).find(|(left, right)| left != right);
        assert!(committed == content, "{name} differs; expected, then found:\n{differs:#?}");
    }
}

#[test]
fn tables_are_the_same_bytes_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("lake");
    backfill(&other, 2);
    for table in Table::HOURLY {
        if table == Table::Hours {
            // Some of its columns depend on the clock.
            assert_eq!(text(&read(lake(), table)), text(&read(&other, table)));
            continue;
        }
        let bytes = |lake: &Path| -> Vec<(String, String)> {
            let digest = |path: &PathBuf| hex(&Sha256::digest(std::fs::read(path).unwrap()));
            let files = live_files(lake, table);
            let date =
                |path: &PathBuf| path.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
            let mut files: Vec<_> = files.iter().map(|path| (date(path), digest(path))).collect();
            files.sort();
            files
        };
        assert_eq!(bytes(lake()), bytes(&other), "{}", table.name());
    }
}

#[test]
fn every_hour_closes_to_the_last_digit() {
    let hours = read(lake(), Table::Hours);
    assert_eq!(hours.rows.len(), 48);
    let zero: Vec<Decimal12> =
        hours.distinct("difference").into_iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(zero, [Decimal12::ZERO]);
}

#[test]
fn the_sample_day_holds_an_example_of_everything() {
    let cost = read(lake(), Table::CostAllocation);
    let kinds = [
        "commitment_purchase",
        "commitment_unused",
        "node_idle",
        "pod_node",
        "pod_pool",
        "pod_serverless",
        "reservation_unused",
    ];
    assert_eq!(cost.distinct("x_RowKind"), BTreeSet::from(kinds));
    assert_eq!(cost.distinct("x_CostBasis"), BTreeSet::from(["estimated"]));
    let unpriced = ["no_qos_price", "no_rate", NULL, "unknown_node", "unknown_pool"];
    assert_eq!(cost.distinct("x_Unpriced"), BTreeSet::from(unpriced));
    assert_eq!(cost.distinct("x_QuotaState"), BTreeSet::from(["in-quota", NULL, "over-quota"]));
    assert_eq!(cost.distinct("PricingCategory"), BTreeSet::from(["Committed", "Dynamic", "Standard"]));
    assert_eq!(cost.distinct("CapacityReservationStatus"), BTreeSet::from([NULL, "Unused", "Used"]));
    assert_eq!(cost.distinct("CommitmentDiscountStatus"), BTreeSet::from([NULL, "Unused", "Used"]));
    let commitments = read(lake(), Table::CommitmentUtilization);
    let states = ["active", "deleted", "disabled", "expired", "pending"];
    assert_eq!(commitments.distinct("state"), BTreeSet::from(states));
    let pools = read(lake(), Table::PoolUsage);
    let exceeded = ["day", "day,month", "day,month,quarter", NULL];
    assert_eq!(pools.distinct("budget_exceeded"), BTreeSet::from(exceeded));
    let quotas = read(lake(), Table::QuotaUsage);
    for column in ["borrowed_hours", "lent_hours", "preemptible_cost"] {
        assert!(quotas.distinct(column).len() > 1, "{column} is always the same");
    }
}

#[test]
fn the_sample_day_is_what_its_command_makes() {
    let readme = std::fs::read_to_string(root().join("testdata/README.md")).unwrap();
    let joined = readme.replace("\\\n", " ");
    let words: Vec<&str> = COMMAND.split_whitespace().collect();
    assert!(joined.split_whitespace().collect::<Vec<_>>().windows(words.len()).any(|found| found == words));

    let folder = tempfile::tempdir().unwrap();
    let (&to, arguments) = words.split_last().unwrap();
    let status = program::prorata().args(&arguments[1..]).arg(folder.path()).output().unwrap().status;
    assert!(status.success());
    let (made, committed) = (avro_files(folder.path()), avro_files(&root().join(to)));
    assert!(made.len() >= 4);
    assert_eq!(made, committed);
}

/// Returns the digest of each file in the subfolders of a folder, by path.
fn avro_files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for organization in std::fs::read_dir(folder).unwrap() {
        for file in std::fs::read_dir(organization.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let digest = hex(&Sha256::digest(std::fs::read(&path).unwrap()));
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), digest);
        }
    }
    found
}
