//! `prorata diff`: compares two lakes, or a lake now with itself at an earlier time.

use std::process::ExitCode;

use clap::Args;
use prorata_collector::parse_instant;
use prorata_inspect::diff::{Difference, diff};
use prorata_schemas::time::{Hour, Timestamp};

use crate::failure::Failure;
use crate::{report, wiring};

/// Exit code if something differs.
const DIFFERS: u8 = 1;

/// Arguments of `prorata diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArgs {
    /// Folder or URL (s3://, gs://, az://, file://) of the lake
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: String,
    /// Folder or URL of the lake to compare with, for example with the same events under other rules
    #[arg(long, value_name = "FOLDER|URL", required_unless_present = "since")]
    pub with: Option<String>,
    /// Compare the lake at this time, such as 2026-11-20T13:00:00Z, with the lake now
    ///
    /// Shows what late events and new revisions changed. VACUUM must not have removed the files of that time.
    #[arg(long, value_name = "TIME", conflicts_with = "with", value_parser = parse_time)]
    pub since: Option<Timestamp>,
    /// First hour, such as 2026-11-20T13
    #[arg(long, value_name = "HOUR")]
    pub from: Option<Hour>,
    /// Last hour, inclusive
    #[arg(long, value_name = "HOUR")]
    pub to: Option<Hour>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Compares, and prints the differences. The exit code is 0 if nothing differs, and 1 otherwise.
///
/// # Errors
/// If a lake does not exist, a file that must be compared is missing, or storage is unavailable.
pub fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let difference = wiring::small_runtime()?.block_on(compare(args))?;
    let text = if args.json { format!("{:#}", difference.json()) } else { difference.to_string() };
    report::print(&text)?;
    if let Some((file, why)) = difference.unreadable.first() {
        let message =
            format!("'{file}' cannot be compared: {why}; run prorata check to see how to fix the lake");
        return Err(Failure::usage(message).into());
    }
    Ok(if difference.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERS) })
}

async fn compare(args: &DiffArgs) -> anyhow::Result<Difference> {
    let range = wiring::lake::hours(args.from, args.to)?;
    let lake = wiring::lake::store(&args.lake).await?;
    let now = wiring::lake::tables(&lake, None).await?;
    Ok(match &args.with {
        Some(with) => {
            let with = wiring::lake::store(with).await?;
            let with = wiring::lake::tables(&with, None).await?;
            diff(&now, &with, range).await?
        }
        None => {
            let then = wiring::lake::tables(&lake, args.since).await?;
            diff(&then, &now, range).await?
        }
    })
}

/// Parses an instant of the command line.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    parse_instant(text).ok_or_else(|| "it is not a time such as 2026-11-20T13:00:00Z".to_owned())
}
