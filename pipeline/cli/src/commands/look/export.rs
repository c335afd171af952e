//! `prorata export`: writes the rows of one organization as plain Parquet files, to give to that
//! organization.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use prorata_connectors::store::Store;
use prorata_inspect::export::{ExportError, ExportOptions, export};
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Date, Hour};
use prorata_worker::WorkerError;
use serde::Serialize;

use crate::failure::Failure;
use crate::{report, wiring};

/// Arguments of `prorata export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// Folder or URL (s3://, gs://, az://, file://) of the lake
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: String,
    /// Organization to export; the files contain no rows of other organizations
    #[arg(long, value_name = "ID")]
    pub organization: String,
    /// First hour, such as 2026-11-20T13
    #[arg(long, value_name = "HOUR")]
    pub from: Option<Hour>,
    /// Last hour, inclusive
    #[arg(long, value_name = "HOUR")]
    pub to: Option<Hour>,
    /// Empty folder or URL to write the files to, as TABLE/date=DATE/rows.parquet
    #[arg(long, value_name = "FOLDER|URL")]
    pub output: String,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Files and rows that were written.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Count {
    files: u64,
    rows: u64,
}

/// Writes the rows, and prints how many there are.
///
/// # Errors
/// If the output is not empty, there is no lake or no such organization, a file is damaged, or storage is
/// unavailable.
pub fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let range = wiring::lake::hours(args.from, args.to)?;
    let options = ExportOptions { organization: args.organization.clone(), range };
    let counts = wiring::small_runtime()?.block_on(write(args, &options))?;
    let text = if args.json { as_json(args, &counts)? } else { as_text(args, &counts) };
    report::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

async fn write(args: &ExportArgs, options: &ExportOptions) -> anyhow::Result<BTreeMap<Table, Count>> {
    let store = wiring::lake::store(&args.lake).await?;
    let output = wiring::lake::empty("--output", &args.output).await?;
    let (lake, _) = wiring::lake::settled(&store, options.range).await?;
    let mut counts = BTreeMap::from(Table::HOURLY.map(|table| (table, Count::default())));
    for (date, files) in lake.days(options.range) {
        for (table, count) in &mut counts {
            let Some(file) = export(&lake, *table, &files, options).await.map_err(failure)? else { continue };
            count.files += 1;
            count.rows += file.rows;
            put(&output, *table, date, file.bytes).await?;
        }
    }
    if counts.values().all(|count| count.rows == 0) {
        let organization = &options.organization;
        let message = format!("the lake has no rows of organization '{organization}' in these hours");
        return Err(Failure::usage(message).into());
    }
    Ok(counts)
}

async fn put(output: &Store, table: Table, date: Date, bytes: Vec<u8>) -> Result<(), WorkerError> {
    let path = format!("{}/date={date}/rows.parquet", table.name());
    output.replace(&path, bytes.into()).await.map_err(WorkerError::Store)
}

fn failure(error: ExportError) -> anyhow::Error {
    match error {
        ExportError::Worker(error) => error.into(),
        error => Failure::usage(error).into(),
    }
}

/// The result as a document.
#[derive(Serialize)]
struct ExportDocument<'a> {
    organization: &'a str,
    output: &'a str,
    tables: BTreeMap<&'static str, Count>,
}

fn as_json(args: &ExportArgs, counts: &BTreeMap<Table, Count>) -> serde_json::Result<String> {
    report::document(&ExportDocument {
        organization: &args.organization,
        output: &args.output,
        tables: counts.iter().map(|(table, count)| (table.name(), *count)).collect(),
    })
}

fn as_text(args: &ExportArgs, counts: &BTreeMap<Table, Count>) -> String {
    let files: u64 = counts.values().map(|count| count.files).sum();
    let lines = counts.iter().map(|(table, count)| format!("  {:24}{:>12} rows\n", table.name(), count.rows));
    let lines = lines.collect::<String>();
    format!("{lines}{files} files of organization {}, in {}.", args.organization, args.output)
}
