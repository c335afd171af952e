//! The report of an import: what was read, written, merged and left out, with its amounts.

use std::collections::BTreeMap;
use std::fmt::Display;

use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use serde::{Serialize, Serializer};

use crate::decimal::Exact;

/// Largest number of faults that a report repeats.
const FAULTS_MAX: usize = 20;

/// Sums of costs, in the currency of the import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CostSums {
    /// The invoiced cost.
    pub billed_cost: Decimal12,
    /// The cost with purchases amortized.
    pub effective_cost: Decimal12,
}

impl CostSums {
    /// Adds amounts in 10^-12.
    pub fn add(&mut self, billed: i128, effective: i128) {
        let sum = |sum: Decimal12, more: i128| Decimal12::from_atoms(sum.atoms().saturating_add(more));
        self.billed_cost = sum(self.billed_cost, billed);
        self.effective_cost = sum(self.effective_cost, effective);
    }
}

/// How much rounding to 12 decimals added to the costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rounding {
    /// What it added to invoiced costs.
    #[serde(serialize_with = "as_text")]
    pub billed_cost: Exact,
    /// What it added to costs with purchases amortized.
    #[serde(serialize_with = "as_text")]
    pub effective_cost: Exact,
}

fn as_text<S: Serializer>(number: &Exact, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// Lines that were left out for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOutLines {
    /// Number of lines.
    pub lines: u64,
    /// Their costs.
    #[serde(flatten)]
    pub costs: CostSums,
}

/// The report of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BillReport {
    /// Currency of all amounts; empty if nothing was read.
    pub currency: Text,
    /// Number of lines that were read.
    pub lines: u64,
    /// Number of lines that were read of the export that this one replaces.
    pub previous_lines: u64,
    /// Number of sets that were written.
    pub sets: u64,
    /// Number of lines in them.
    pub set_lines: u64,
    /// Number of sets that were retracted.
    pub retractions: u64,
    /// Costs of the written sets by invoice; an empty text for charges without an invoice.
    pub invoices: BTreeMap<Text, CostSums>,
    /// How much rounding added to all lines that were read.
    pub rounding: Rounding,
    /// Lines that were left out, by reason.
    pub left_out: BTreeMap<&'static str, LeftOutLines>,
    /// Number of lines that were added to an equal line.
    pub merged: u64,
    /// Number of lines that were added to a similar line, because their set was too large.
    pub merged_similar: u64,
    /// Number of lines whose charge period was clipped to the billing month.
    pub clipped: u64,
    /// Number of lines with a fault, which were left out.
    pub faults: u64,
    /// The first faults.
    pub first_faults: Vec<String>,
}

impl BillReport {
    /// Counts a line that was left out, with its amounts in 10^-12.
    pub fn leave_out(&mut self, reason: &'static str, billed: i128, effective: i128) {
        let left_out = self.left_out.entry(reason).or_default();
        left_out.lines += 1;
        left_out.costs.add(billed, effective);
    }

    /// Counts a line with a fault.
    pub fn fault(&mut self, file: &str, place: impl Display, fault: impl Display) {
        self.faults += 1;
        if self.first_faults.len() < FAULTS_MAX {
            self.first_faults.push(format!("'{file}', {place}: {fault}"));
        }
    }
}
