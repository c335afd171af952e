//! `prorata report`: a lake as one HTML page that needs nothing else.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use prorata_inspect::HourRange;
use prorata_inspect::page::{GroupBy, report};
use prorata_schemas::time::Hour;

use crate::failure::Failure;
use crate::wiring;

/// Arguments of `prorata report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Folder or URL (s3://, gs://, az://, file://) of the lake
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: String,
    /// First hour, such as 2026-11-20T13; inclusive
    #[arg(long, value_name = "HOUR")]
    pub from: Option<Hour>,
    /// Last hour; inclusive
    #[arg(long, value_name = "HOUR")]
    pub to: Option<Hour>,
    /// What costs are grouped by
    #[arg(long, value_name = "namespace|label:KEY|cluster|gpu_model", default_value = "namespace")]
    pub group_by: GroupBy,
    /// File to write the page to
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Writes the page. A lake without hours gives a page that says so.
///
/// # Errors
/// When there is no lake, storage is unavailable, or the file cannot be written.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let range = HourRange { from: args.from, to: args.to };
    if let (Some(from), Some(to)) = (range.from, range.to)
        && to < from
    {
        return Err(Failure::usage(format!("--to {to} is before --from {from}; exchange them")).into());
    }
    let told = wiring::small_runtime()?.block_on(async {
        let store = wiring::lake::store(&args.lake).await?;
        let tables = wiring::lake::tables(&store, None).await?;
        Ok::<_, anyhow::Error>(report(&tables, &args.lake, range, args.group_by.clone()).await?)
    })?;
    std::fs::write(&args.out, told.html()).map_err(|error| {
        let file = args.out.display();
        Failure::usage(format!("--out '{file}' cannot be written: {error}; name a file in a folder that is"))
    })?;
    Ok(ExitCode::SUCCESS)
}
