//! `prorata close`: closes months whose bills are final, and writes corrections of closed months.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use prorata_connectors::{DeltaTables, ParquetEncoder, SystemClock};
use prorata_schemas::Text;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::tables::ClosedTotals;
use prorata_schemas::time::Date;
use prorata_worker::names::closed::Month;
use prorata_worker::root::close::{CloseOptions, ClosePorts, CloseReport, OpenMonth, OpenReason, close};
use serde::Serialize;

use crate::failure::LEFT_OUT;
use crate::{config, logging, report, wiring};

/// Arguments of `prorata close`.
#[derive(Clone, Debug, Args)]
pub struct CloseArgs {
    /// Configuration file whose root.url is the lake
    #[arg(long, value_name = "FILE", required_unless_present = "lake")]
    pub config: Option<PathBuf>,
    /// Folder or URL (s3://, gs://, az://, file://) of the lake; overrides root.url
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: Option<String>,
    /// Organization to close months of; repeat for several, all if omitted
    #[arg(long, value_name = "ID")]
    pub organization: Vec<String>,
    /// Date of the first month to look at, such as 2026-10-01; by default four months before the newest hour
    #[arg(long, value_name = "DATE")]
    pub from: Option<Date>,
    /// Print what would be closed, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Closes months, and prints what was closed, what was corrected, and what stays open. The exit code is 1 if
/// an organization was left out because of a problem.
///
/// # Errors
/// If there is no lake, or storage is unavailable. The next run continues.
pub fn run(args: &CloseArgs) -> anyhow::Result<ExitCode> {
    let loaded = config::load(args.config.as_deref())?;
    logging::start(&loaded.config.log)?;
    let lake = wiring::lake::named(args.lake.as_ref(), &loaded.config)?;
    let (runtime, _) = wiring::runtime(0)?;
    let options = CloseOptions {
        organizations: (!args.organization.is_empty())
            .then(|| args.organization.iter().map(|id| OrganizationId::from(id.as_str())).collect()),
        from: args.from,
        dry_run: args.dry_run,
    };
    let closed = runtime.block_on(async {
        let store = wiring::lake::store(lake).await?;
        let ports = ClosePorts {
            tables: Arc::new(DeltaTables::new(store.clone())),
            store: Arc::new(store),
            encoder: Arc::new(ParquetEncoder),
            clock: Arc::new(SystemClock),
        };
        Ok::<_, anyhow::Error>(close(&ports, &options, &wiring::owner()).await?)
    })?;
    report::print(&if args.json { as_json(&closed)? } else { as_text(&closed, args.dry_run) })?;
    Ok(if closed.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(LEFT_OUT) })
}

/// The result as a document. Money is text, so that no reader turns it into a float by default.
#[derive(Serialize)]
struct CloseDocument<'a> {
    closed: Vec<MonthDocument<'a>>,
    failed: BTreeMap<&'a str, String>,
    files_added: u64,
    files_removed: u64,
    open: Vec<OpenDocument<'a>>,
    pending: Vec<MonthDocument<'a>>,
}

/// Rows of a closed month, or pending corrections.
#[derive(Serialize)]
struct MonthDocument<'a> {
    organization: &'a str,
    period: String,
    totals: BTreeMap<&'a str, TotalsDocument>,
}

/// Sums of one currency.
#[derive(Serialize)]
struct TotalsDocument {
    billed_cost: String,
    effective_cost: String,
    rows: u64,
}

/// A month that did not close.
#[derive(Serialize)]
struct OpenDocument<'a> {
    organization: &'a str,
    period: String,
    reason: String,
}

impl<'a> MonthDocument<'a> {
    fn new(
        organization_id: &'a OrganizationId,
        period: Month,
        totals: &'a BTreeMap<Text, ClosedTotals>,
    ) -> Self {
        let one = |(currency, sums): (&'a Text, &ClosedTotals)| {
            let document = TotalsDocument {
                billed_cost: sums.billed.to_string(),
                effective_cost: sums.effective.to_string(),
                rows: sums.rows,
            };
            (&**currency, document)
        };
        let totals = totals.iter().map(one).collect();
        Self { organization: organization_id, period: period.to_string(), totals }
    }
}

fn as_json(closed: &CloseReport) -> serde_json::Result<String> {
    let months = closed.months.iter();
    let pending = closed.pending.iter();
    let open = closed.open.iter().map(|open| OpenDocument {
        organization: &open.organization_id,
        period: open.period.to_string(),
        reason: reason(open),
    });
    report::document(&CloseDocument {
        closed: months.map(|of| MonthDocument::new(&of.organization_id, of.period, &of.totals)).collect(),
        failed: closed.failed.iter().map(|(place, error)| (place.as_str(), error.to_string())).collect(),
        files_added: closed.files_added,
        files_removed: closed.files_removed,
        open: open.collect(),
        pending: pending.map(|of| MonthDocument::new(&of.organization_id, of.period, &of.totals)).collect(),
    })
}

fn as_text(closed: &CloseReport, dry_run: bool) -> String {
    let does = if dry_run { "would close" } else { "closed" };
    let mut lines = Vec::new();
    for month in &closed.months {
        let (organization_id, period) = (&month.organization_id, month.period);
        lines.push(format!("{organization_id} {period}: {does}{}", sums(&month.totals, true)));
    }
    for pending in &closed.pending {
        let (organization_id, period) = (&pending.organization_id, pending.period);
        let sums = sums(&pending.totals, false);
        lines.push(format!("{organization_id} {period}: corrections that wait for its close{sums}"));
    }
    for open in &closed.open {
        lines.push(format!("{} {}: stays open, {}", open.organization_id, open.period, reason(open)));
    }
    for (place, error) in &closed.failed {
        lines.push(format!("{place}: left out: {error}"));
    }
    if lines.is_empty() {
        lines.push("nothing to close or correct".to_owned());
    }
    lines.join("\n")
}

/// Returns the sums of each currency, after a comma each.
fn sums(totals: &BTreeMap<Text, ClosedTotals>, with_billed: bool) -> String {
    let one = |(currency, sums): (&Text, &ClosedTotals)| {
        let ClosedTotals { rows, billed, effective } = sums;
        let billed = if with_billed { format!("{billed} {currency} billed, ") } else { String::new() };
        format!(", {rows} rows, {billed}{effective} {currency} effective")
    };
    totals.iter().map(one).collect()
}

fn reason(open: &OpenMonth) -> String {
    match open.reason {
        OpenReason::NotFinal { hours, not_final } => format!("{not_final} of {hours} hours are not final"),
        OpenReason::NotRead => {
            format!("its hours were not read; run prorata close --from {}", open.period.first())
        }
    }
}
