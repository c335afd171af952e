//! The reports of `prorata bills`.

use std::collections::BTreeMap;
use std::fmt;

use prorata_bills::{BillReport, CostSums, LeftOutLines, Rounding};
use prorata_inspect::check::BillChecked;
use prorata_inspect::text::PlainText;
use prorata_schemas::Text;
use serde::Serialize;
use serde_json::Value;

/// An import whose events are at their destination.
pub struct ImportedBill<'a> {
    /// What was read and written.
    pub report: &'a BillReport,
    /// The destination, as text.
    pub to: &'a str,
}

impl ImportedBill<'_> {
    /// Formats the report as one JSON document with sorted keys.
    ///
    /// # Errors
    /// If the report cannot be serialized.
    pub fn json(&self) -> serde_json::Result<String> {
        super::document(&BillDocument::of(self.report, Some(self.to)))
    }

    /// Formats the report as lines for people.
    pub fn text(&self) -> String {
        let mut text = PlainText::default();
        // Writing to a string never fails.
        let _infallible = self.write_text(&mut text);
        text.as_str().to_owned()
    }

    fn write_text(&self, out: &mut PlainText) -> fmt::Result {
        let report = self.report;
        let (sets, lines) = (report.sets, report.set_lines);
        writeln!(out, "{} lines read, {sets} sets of {lines} lines, {}", report.lines, self.to)?;
        for (invoice, costs) in &report.invoices {
            let invoice = if invoice.is_empty() { "no invoice".into() } else { format!("invoice {invoice}") };
            writeln!(out, "  {invoice}: {}", shown(costs, &report.currency))?;
        }
        write_details(report, out)
    }
}

/// A bill that was compared with a lake.
pub struct ComparedBill<'a> {
    /// What was read.
    pub report: &'a BillReport,
    /// The comparison.
    pub checked: &'a BillChecked,
}

impl ComparedBill<'_> {
    /// Formats the comparison as one JSON document with sorted keys.
    ///
    /// # Errors
    /// If it cannot be serialized.
    pub fn json(&self) -> serde_json::Result<String> {
        let files = BillDocument::of(self.report, None);
        super::document(&ComparedDocument { files, checked: self.checked.json() })
    }

    /// Formats the comparison as lines for people.
    pub fn text(&self) -> String {
        let mut text = PlainText::default();
        // Writing to a string never fails.
        let _infallible = self.write_text(&mut text);
        format!("{}\n{}", text.as_str(), self.checked)
    }

    fn write_text(&self, out: &mut PlainText) -> fmt::Result {
        let (read, lines) = (self.report.lines, self.report.set_lines);
        writeln!(out, "{read} lines read, {lines} lines to compare")?;
        write_details(self.report, out)
    }
}

/// Writes what was left out, rounded and merged, and the faults.
fn write_details(report: &BillReport, out: &mut PlainText) -> fmt::Result {
    for (reason, LeftOutLines { lines, costs }) in &report.left_out {
        writeln!(out, "{lines} left out: {reason}; {}", shown(costs, &report.currency))?;
    }
    if report.rounding != Rounding::default() {
        let Rounding { billed_cost, effective_cost } = report.rounding;
        writeln!(out, "rounding added {billed_cost} to billed costs, {effective_cost} to effective costs")?;
    }
    let counts = [
        (report.merged, "lines were added to equal lines"),
        (report.merged_similar, "lines were added to similar lines, because their sets were too large"),
        (report.clipped, "lines with a period above 32 days were clipped to their billing month"),
        (report.retractions, "sets of the earlier export were retracted"),
        (report.faults, "lines cannot be imported; correct them, and import the files again"),
    ];
    for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "{count} {what}")?;
    }
    for fault in &report.first_faults {
        writeln!(out, "  {fault}")?;
    }
    match report.faults.saturating_sub(u64::try_from(report.first_faults.len()).unwrap_or(u64::MAX)) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}

fn shown(costs: &CostSums, currency: &str) -> String {
    format!("billed {} {currency}, effective {} {currency}", costs.billed_cost, costs.effective_cost)
}

/// A comparison as a document.
#[derive(Serialize)]
struct ComparedDocument<'a> {
    files: BillDocument<'a>,
    #[serde(flatten)]
    checked: Value,
}

/// The report of an import as a document.
#[derive(Serialize)]
struct BillDocument<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    lines: u64,
    previous_lines: u64,
    sets: u64,
    set_lines: u64,
    retractions: u64,
    invoices: Vec<InvoiceDocument>,
    rounding: Rounding,
    left_out: &'a BTreeMap<&'static str, LeftOutLines>,
    merged: u64,
    merged_similar: u64,
    clipped: u64,
    faults: u64,
    first_faults: &'a [String],
}

impl<'a> BillDocument<'a> {
    fn of(report: &'a BillReport, to: Option<&'a str>) -> Self {
        let invoice = |(id, costs): (&Text, &CostSums)| InvoiceDocument {
            invoice_id: (!id.is_empty()).then(|| id.to_string()),
            currency: report.currency.to_string(),
            costs: *costs,
        };
        Self {
            to,
            lines: report.lines,
            previous_lines: report.previous_lines,
            sets: report.sets,
            set_lines: report.set_lines,
            retractions: report.retractions,
            invoices: report.invoices.iter().map(invoice).collect(),
            rounding: report.rounding,
            left_out: &report.left_out,
            merged: report.merged,
            merged_similar: report.merged_similar,
            clipped: report.clipped,
            faults: report.faults,
            first_faults: &report.first_faults,
        }
    }
}

/// Costs of an invoice.
#[derive(Serialize)]
struct InvoiceDocument {
    invoice_id: Option<String>,
    currency: String,
    #[serde(flatten)]
    costs: CostSums,
}
