//! Writes a comparison with a bill as lines of text, and as one JSON document.

use std::fmt;

use serde_json::{Value, json};

use super::{BillChecked, BillSums};
use crate::check::finding::Severity;
use crate::text::PlainText;

impl BillChecked {
    /// Returns one JSON document. Money is text, so that no reader turns it into a float by default.
    pub fn json(&self) -> Value {
        let invoices = self.invoices.iter().map(|(invoice, sums)| {
            json!({
                "invoice": invoice.as_deref(),
                "bill": sums_json(sums.bill),
                "rows": sums_json(sums.rows),
                "difference": sums_json(sums.rows.minus(sums.bill)),
            })
        });
        let (findings, counts) = self.findings.json();
        json!({
            "through": self.through.map(|hour| hour.to_string()),
            "lines": self.lines,
            "rows": self.rows,
            "waiting": { "lines": self.waiting.0, "costs": sums_json(self.waiting.1) },
            "invoices": invoices.collect::<Vec<_>>(),
            "counts": counts,
            "findings": findings,
        })
    }

    fn write_text(&self, out: &mut PlainText) -> fmt::Result {
        let (lines, rows) = (self.lines, self.rows);
        match self.through {
            Some(hour) => {
                writeln!(out, "Compared {lines} lines of the bill with {rows} billed rows, through {hour}.")?;
            }
            None => writeln!(out, "No hour is closed, so no line is compared.")?,
        }
        if self.waiting.0 > 0 {
            let (lines, BillSums { billed, effective }) = self.waiting;
            writeln!(
                out,
                "{lines} lines end later: billed cost {billed}, effective cost {effective}. Check them when \
                 their hours are closed."
            )?;
        }
        for (invoice, sums) in &self.invoices {
            let name = invoice.as_ref().map_or("Without an invoice".to_owned(), |id| format!("Invoice {id}"));
            let (bill, difference) = (sums.bill, sums.rows.minus(sums.bill));
            writeln!(
                out,
                "{name}: billed cost {}, difference {}; effective cost {}, difference {}.",
                bill.billed, difference.billed, bill.effective, difference.effective
            )?;
        }
        self.findings.write_text(out)?;
        let whole = "Every compared line is accounted for";
        match self.findings.worst() {
            None => writeln!(out, "{whole}."),
            Some(Severity::Warning) => writeln!(out, "{whole}; see the warnings."),
            Some(Severity::Error) => writeln!(out, "The rows differ from the bill."),
        }
    }
}

fn sums_json(sums: BillSums) -> Value {
    json!({ "billed": sums.billed.to_string(), "effective": sums.effective.to_string() })
}

impl fmt::Display for BillChecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = PlainText::default();
        self.write_text(&mut out)?;
        f.write_str(out.as_str())
    }
}
