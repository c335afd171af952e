//! `prorata check`: checks that a lake is intact and its costs add up, or that a configuration can work.

mod start;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use prorata_inspect::check::finding::Severity;
use prorata_inspect::check::{Checked, ClosedChecked, check, check_closed};
use prorata_schemas::time::Hour;
use serde::Serialize;

use crate::failure::DEAD_LETTERED;
use crate::{config, report, wiring};
use start::{CheckOutcome, StartCheck};

/// Exit code for a lake with errors.
const ERRORS: u8 = 1;

/// Exit code for an intact lake with warnings.
const WARNINGS: u8 = DEAD_LETTERED;

/// Arguments of `prorata check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Folder or URL (s3://, gs://, az://, file://) of the lake
    #[arg(long, value_name = "FOLDER|URL", required_unless_present = "config")]
    pub lake: Option<String>,
    /// Configuration file of a worker: check storage, clock, schema registry and topics, without consuming
    #[arg(long, value_name = "FILE", conflicts_with = "lake")]
    pub config: Option<PathBuf>,
    /// First hour, such as 2026-11-20T13
    #[arg(long, value_name = "HOUR", requires = "lake")]
    pub from: Option<Hour>,
    /// Last hour, inclusive
    #[arg(long, value_name = "HOUR", requires = "lake")]
    pub to: Option<Hour>,
    /// Check the closed months instead: manifests, files, and that corrections are complete
    #[arg(long, requires = "lake", conflicts_with_all = ["from", "to"])]
    pub closed: bool,
    /// Exit with code 0 if there are only warnings
    #[arg(long, requires = "lake")]
    pub allow_warnings: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Runs the checks, and prints the problems. For a lake, the exit code is 0 if nothing is wrong, 1 if there
/// are errors, and 3 if there are only warnings. For a configuration, the exit code is 0, or the exit code of
/// the start that would fail.
///
/// # Errors
/// If there is no lake, the configuration cannot be read, or storage is unavailable.
pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let runtime = wiring::small_runtime()?;
    match &args.lake {
        Some(lake) if args.closed => {
            let checked = runtime.block_on(check_months(lake))?;
            report::print(&if args.json { format!("{:#}", checked.json()) } else { checked.to_string() })?;
            Ok(exit_code(checked.findings.worst(), args.allow_warnings))
        }
        Some(lake) => {
            let checked = runtime.block_on(check_lake(args, lake))?;
            report::print(&if args.json { format!("{:#}", checked.json()) } else { checked.to_string() })?;
            Ok(exit_code(checked.findings.worst(), args.allow_warnings))
        }
        None => {
            let loaded = config::load(args.config.as_deref())?;
            let checks = runtime.block_on(start::check(&loaded));
            report::print(&if args.json { as_json(&checks)? } else { as_text(&checks) })?;
            let failures = checks.iter().filter_map(|check| match &check.outcome {
                CheckOutcome::Failed(failure) => Some(failure.code()),
                CheckOutcome::Good(_) | CheckOutcome::Warned(_) | CheckOutcome::Skipped(_) => None,
            });
            // A configuration that can never work is reported before a system that does not respond.
            Ok(failures.min().map_or(ExitCode::SUCCESS, ExitCode::from))
        }
    }
}

/// Returns the exit code of a check whose worst finding has this severity.
pub fn exit_code(worst: Option<Severity>, allow_warnings: bool) -> ExitCode {
    match worst {
        None => ExitCode::SUCCESS,
        Some(Severity::Error) => ExitCode::from(ERRORS),
        Some(Severity::Warning) if allow_warnings => ExitCode::SUCCESS,
        Some(Severity::Warning) => ExitCode::from(WARNINGS),
    }
}

async fn check_lake(args: &CheckArgs, lake: &str) -> anyhow::Result<Checked> {
    let range = wiring::lake::hours(args.from, args.to)?;
    let store = wiring::lake::store(lake).await?;
    let (tables, checkpoints) = wiring::lake::settled(&store, range).await?;
    Ok(check(&tables, &checkpoints, range).await?)
}

async fn check_months(lake: &str) -> anyhow::Result<ClosedChecked> {
    let store = wiring::lake::store(lake).await?;
    // The manifests are read after the table, so a run that closes a month meanwhile leaves no file unnamed.
    let log = wiring::lake::closed(&store).await?;
    let tables = wiring::lake::tables(&store, None).await?;
    Ok(check_closed(&tables, log.as_ref()).await?)
}

/// The checks of a configuration as a document.
#[derive(Serialize)]
struct StartDocument {
    checks: Vec<StartCheckDocument>,
}

/// A check and its outcome.
#[derive(Serialize)]
struct StartCheckDocument {
    check: &'static str,
    message: String,
    outcome: &'static str,
}

fn as_json(checks: &[StartCheck]) -> serde_json::Result<String> {
    let checks = checks.iter().map(|check| {
        let (outcome, message) = check.outcome.name_and_message();
        StartCheckDocument { check: check.name, message, outcome }
    });
    report::document(&StartDocument { checks: checks.collect() })
}

fn as_text(checks: &[StartCheck]) -> String {
    let one = |check: &StartCheck| {
        let (outcome, what) = check.outcome.name_and_message();
        format!("{outcome:<7} {}: {what}", check.name)
    };
    checks.iter().map(one).collect::<Vec<_>>().join("\n")
}
