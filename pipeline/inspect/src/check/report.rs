//! Writes a check as lines of text, and as one JSON document.

use std::fmt;

use prorata_schemas::time::HourRange;
use serde_json::{Value, json};

use super::Checked;
use super::finding::{Findings, Problem, Severity};
use crate::text::PlainText;

impl Findings {
    /// Returns the reported findings, and the number of findings of each kind.
    pub(super) fn json(&self) -> (Value, Value) {
        let findings = self.reported().into_iter().map(|finding| {
            json!({
                "problem": finding.problem.name(),
                "severity": finding.problem.severity().name(),
                "location": finding.location,
                "message": finding.what,
                "fix": finding.problem.fix(),
            })
        });
        let counts = self.counts().iter().map(|(problem, count)| (problem.name().to_owned(), json!(count)));
        (findings.collect(), Value::Object(counts.collect()))
    }

    /// Writes the reported findings, each kind with its fix.
    pub(super) fn write_text(&self, out: &mut PlainText) -> fmt::Result {
        let mut last: Option<Problem> = None;
        for finding in self.reported() {
            let problem = finding.problem;
            if last.replace(problem) != Some(problem) {
                let count = self.counts().get(&problem).copied().unwrap_or_default();
                let severity = problem.severity().name();
                writeln!(out)?;
                writeln!(out, "{severity} {} ({count}). To fix: {}.", problem.name(), problem.fix())?;
            }
            writeln!(out, "  {}: {}", finding.location, finding.what)?;
        }
        if last.is_some() {
            writeln!(out)?;
        }
        Ok(())
    }
}

impl Checked {
    /// Returns one JSON document. Money is text, so that no reader turns it into a float by default.
    pub fn json(&self) -> Value {
        let (findings, counts) = self.findings.json();
        let money: serde_json::Map<String, Value> = self
            .money
            .iter()
            .map(|(currency, money)| {
                let difference = money.supply.minus(money.allocated).to_string();
                let of = |sum: crate::Sum| sum.to_string();
                let totals = json!({ "supply": of(money.supply), "allocated": of(money.allocated),
                    "difference": difference });
                (currency.clone(), totals)
            })
            .collect();
        json!({
            "from": self.hours.map(|hours| hours.first.to_string()),
            "to": self.hours.map(|hours| hours.last.to_string()),
            "organization_hours": self.organization_hours,
            "rows": self.rows,
            "files": self.files,
            "bytes": self.bytes,
            "replaced": { "objects": self.replaced.0, "bytes": self.replaced.1 },
            "money": money,
            "counts": counts,
            "findings": findings,
        })
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = PlainText::default();
        self.write_text(&mut out)?;
        f.write_str(out.as_str())
    }
}

impl Checked {
    fn write_text(&self, out: &mut PlainText) -> fmt::Result {
        match self.hours {
            Some(HourRange { first, last }) => writeln!(
                out,
                "Checked {first} to {last}: {} hours of organizations, {} rows, {} files.",
                self.organization_hours, self.rows, self.files
            )?,
            None => writeln!(out, "There are no hours to check.")?,
        }
        for (currency, money) in &self.money {
            let difference = money.supply.minus(money.allocated);
            writeln!(
                out,
                "{currency}: supply {}, allocated {}, difference {difference}.",
                money.supply, money.allocated
            )?;
        }
        if self.replaced.0 > 0 {
            let (objects, bytes) = self.replaced;
            writeln!(out, "{objects} replaced or unused files of {bytes} bytes wait for VACUUM.")?;
        }
        self.findings.write_text(out)?;
        match self.findings.worst() {
            None => writeln!(out, "Nothing is wrong."),
            Some(Severity::Warning) => writeln!(out, "The tables are intact; see the warnings."),
            Some(Severity::Error) => writeln!(out, "The lake has errors."),
        }
    }
}
