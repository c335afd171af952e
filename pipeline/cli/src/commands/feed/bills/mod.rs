//! `prorata bills`: turns the bill of a provider into events, compares it with a lake, and closes its month.

mod check;
mod close;
mod deliver;
mod files;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use prorata_collector::parse_instant;
use prorata_connectors::SystemClock;
use prorata_schemas::event::EventKind;
use prorata_schemas::time::Timestamp;
use prorata_worker::ports::Clock;

use crate::commands::generate::kafka::KafkaArgs;
use crate::failure::LEFT_OUT;
use crate::report;
use crate::report::bills::ImportedBill;
use check::BillsCheckArgs;
use close::BillsCloseArgs;
use deliver::{BillDestination, Spool};
use files::{BillFiles, disk};

/// Arguments of `prorata bills`.
#[derive(Clone, Debug, Args)]
pub struct BillsArgs {
    /// The action.
    #[command(subcommand)]
    pub action: BillsAction,
}

/// Actions on bills.
#[derive(Clone, Debug, Subcommand)]
pub enum BillsAction {
    /// Compare every line of one export of a provider's bill with the rows of a lake
    Check(BillsCheckArgs),
    /// Say that the bill of a month is complete for an account, so that its costs are final
    Close(BillsCloseArgs),
    /// Convert one export of a provider's bill to events
    Import(BillsImportArgs),
}

/// Arguments of `prorata bills import`.
#[derive(Clone, Debug, Args)]
pub struct BillsImportArgs {
    /// The export.
    #[command(flatten)]
    pub bill: BillFiles,
    /// File, or folder or URL, to write events to, or kafka [default: only check the files]
    ///
    /// A name that ends in .avro is a file. In a folder, events are files under the organization.
    #[arg(long, alias = "to", value_name = "FILE.avro|FOLDER|URL|kafka")]
    pub output: Option<String>,
    /// Time at which the export was made [default: now]
    ///
    /// Of two imports, the one with the later time counts.
    #[arg(long, value_name = "TIME", value_parser = recorded_at)]
    pub recorded_at: Option<Timestamp>,
    /// Files of the export that this one replaces
    ///
    /// Sets that this export lacks are retracted. Choose charges as in the import of these files.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub previous: Vec<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// The destination.
    #[command(flatten)]
    pub kafka: KafkaArgs,
}

fn recorded_at(text: &str) -> Result<Timestamp, String> {
    parse_instant(text).ok_or_else(|| "it is not a time such as 2026-11-20T13:05:00Z".to_owned())
}

/// Runs the action.
///
/// # Errors
/// If a file is wrong, the lake cannot be read, or the events cannot be written or sent.
pub fn run(args: &BillsArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        BillsAction::Check(args) => check::run(args),
        BillsAction::Close(args) => close::run(args),
        BillsAction::Import(args) => import(args),
    }
}

/// Imports the files, writes or sends the events, and prints the report. If a file is wrong, nothing is
/// written.
fn import(args: &BillsImportArgs) -> anyhow::Result<ExitCode> {
    let inputs = args.bill.files.iter().chain(&args.previous);
    let destination = BillDestination::of(args.output.as_deref(), &args.kafka, inputs)?;
    let mut spool = Spool::create(EventKind::BillSet).map_err(disk)?;
    let recorded_at = args.recorded_at.unwrap_or_else(|| SystemClock.now().event_time());
    let imported = args.bill.import(recorded_at, &args.previous, &mut |event| spool.push(&event))?;
    let to = destination.deliver(&args.bill.organization, spool)?;
    let bill = ImportedBill { report: &imported, to: &to };
    report::print(&if args.json { bill.json()? } else { bill.text() })?;
    Ok(if imported.faults == 0 { ExitCode::SUCCESS } else { ExitCode::from(LEFT_OUT) })
}
