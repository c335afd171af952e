//! `prorata bills check`: compares the lines of a bill with the rows of a lake.

use std::process::ExitCode;

use clap::Args;
use prorata_bills::BillReport;
use prorata_connectors::SystemClock;
use prorata_connectors::store::Store;
use prorata_inspect::check::finding::Severity;
use prorata_inspect::check::{BillChecked, ExpectedLine, check_bill};
use prorata_schemas::event::Payload;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::HourRange;
use prorata_worker::ports::Clock;

use super::files::BillFiles;
use crate::commands::check::exit_code;
use crate::report::bills::ComparedBill;
use crate::{report, wiring};

/// Arguments of `prorata bills check`.
#[derive(Clone, Debug, Args)]
pub struct BillsCheckArgs {
    /// The export.
    #[command(flatten)]
    pub bill: BillFiles,
    /// Folder or URL (s3://, gs://, az://, file://) of the lake
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: String,
    /// Exit with code 0 if there are only warnings, or lines whose hours are not closed yet
    #[arg(long)]
    pub allow_warnings: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Compares the files with the lake, and prints the differences. The exit code is 0 if every line is
/// accounted for, 1 if costs differ or a line cannot be read, and 3 if there are only warnings, or lines
/// whose hours are not closed yet.
///
/// # Errors
/// If there is no lake, a file is wrong, or storage is unavailable.
pub fn run(args: &BillsCheckArgs) -> anyhow::Result<ExitCode> {
    let runtime = wiring::small_runtime()?;
    // A wrong lake is reported before the files are read.
    let store = runtime.block_on(wiring::lake::store(&args.lake))?;
    let mut lines = Vec::new();
    let imported = args.bill.import(SystemClock.now().event_time(), &[], &mut |event| {
        if let Payload::BillSet(set) = &event.payload {
            lines.extend(ExpectedLine::of(set, event.event_time));
        }
        Ok(())
    })?;
    let checked = runtime.block_on(compare(args, &store, lines))?;
    let bill = ComparedBill { report: &imported, checked: &checked };
    report::print(&if args.json { bill.json()? } else { bill.text() })?;
    Ok(exit_code(worst(&imported, &checked), args.allow_warnings))
}

async fn compare(
    args: &BillsCheckArgs,
    store: &Store,
    lines: Vec<ExpectedLine>,
) -> anyhow::Result<BillChecked> {
    let first = lines.iter().map(|line| line.begin.hour()).min();
    let last = lines.iter().map(|line| line.end.hour()).max();
    let organization = OrganizationId::from(args.bill.organization.as_str());
    let (tables, checkpoints) = wiring::lake::settled(store, HourRange::between(first, last)).await?;
    Ok(check_bill(&tables, &checkpoints, Some(&organization), lines).await?)
}

/// Returns the worst severity. A line that cannot be read is an error, because nothing compares it. A line
/// whose hours are not closed yet is a warning.
fn worst(imported: &BillReport, checked: &BillChecked) -> Option<Severity> {
    let unread = (imported.faults > 0).then_some(Severity::Error);
    let waiting = (checked.waiting.0 > 0).then_some(Severity::Warning);
    [unread, checked.findings.worst(), waiting].into_iter().flatten().min()
}
