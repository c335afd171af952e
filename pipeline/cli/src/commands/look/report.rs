//! `prorata report`: writes a lake as one self-contained HTML page.

use std::process::ExitCode;

use clap::builder::RangedI64ValueParser;
use clap::{Args, value_parser};
use prorata_connectors::SystemClock;
use prorata_connectors::store::Store;
use prorata_inspect::page::{GroupBy, ReportOptions, report};
use prorata_schemas::time::Hour;
use prorata_worker::WorkerError;
use prorata_worker::ports::Clock;

use crate::failure::Failure;
use crate::wiring;

/// Arguments of `prorata report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Folder or URL (s3://, gs://, az://, file://) of the lake
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: String,
    /// First hour, such as 2026-11-20T13
    #[arg(long, value_name = "HOUR")]
    pub from: Option<Hour>,
    /// Last hour, inclusive
    #[arg(long, value_name = "HOUR")]
    pub to: Option<Hour>,
    /// Number of days to report, up to now
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["from", "to"], value_parser = 1..=3_660)]
    pub days: Option<i64>,
    /// Organization to report; the page contains nothing of other organizations [default: all]
    #[arg(long, value_name = "ID")]
    pub organization: Option<String>,
    /// Grouping of costs
    #[arg(long, value_name = "namespace|label:KEY|cluster|gpu_model", default_value = "namespace")]
    pub group_by: GroupBy,
    /// Number of most expensive pods, idle nodes and agreements to explain on the page
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = explained())]
    pub explain: u16,
    /// File or URL (s3://, gs://, az://, file://) to write the page to; replaced if it exists
    #[arg(long, value_name = "FILE|URL")]
    pub output: String,
}

/// Returns the parser of the number of explanations on a page.
fn explained() -> RangedI64ValueParser<u16> {
    value_parser!(u16).range(..=10_000)
}

/// Writes the page. If the lake has no hours, the page says so.
///
/// # Errors
/// If there is no lake, storage is unavailable, or the file cannot be written.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let since = args.days.map(|days| Hour(SystemClock.now().hour().0 - 24 * days));
    let range = wiring::lake::hours(args.from.or(since), args.to)?;
    wiring::small_runtime()?.block_on(async {
        let store = wiring::lake::store(&args.lake).await?;
        let tables = wiring::lake::tables(&store, None).await?;
        let options = ReportOptions {
            lake: args.lake.clone(),
            range,
            organization: args.organization.clone(),
            group_by: args.group_by.clone(),
            explain: usize::from(args.explain),
        };
        let page = report(&tables, &wiring::look_ports(store.clone()), &options).await?;
        if let Some(organization) = args.organization.as_ref().filter(|_| page.amounts.is_empty()) {
            let message = format!("the lake has no cost of organization '{organization}' in these hours");
            return Err(Failure::usage(message).into());
        }
        write(&args.output, page.html()).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page to a file or an object.
async fn write(out: &str, page: String) -> anyhow::Result<()> {
    match out.rsplit_once('/').filter(|_| out.contains("://")) {
        Some((folder, name)) if !name.is_empty() => {
            let store = Store::open(folder).map_err(Failure::usage)?;
            Ok(store.replace(name, page.into()).await.map_err(WorkerError::Store)?)
        }
        Some(_) => Err(Failure::usage(format!("--output '{out}' names a folder; name a file in it")).into()),
        None => Ok(std::fs::write(out, page).map_err(|error| {
            Failure::usage(format!(
                "--output '{out}' cannot be written: {error}; name a file in an existing folder"
            ))
        })?),
    }
}
