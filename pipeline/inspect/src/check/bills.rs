//! Compares the lines of a provider's bill with the rows of the tables.
//!
//! A row of one line names the line, and counts for it. A row of a node may join several lines, and names
//! none. Then all lines of the resource in this time are compared together. A pod's part of a charge may join
//! lines of several resources. Then the lines that have not all their costs in other rows are compared
//! together, by provider and invoice. `lines` adds up and compares; `report` writes the result. Memory grows
//! with the lines of the bill, and not with the rows of the lake.

mod lines;
mod report;

use std::collections::BTreeMap;

use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{BillSet, names};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::CostBasis;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange, Timestamp};
use prorata_worker::WorkerError;
use prorata_worker::root::Root;

use super::files::Checkpoints;
use super::finding::{Findings, Problem};
use crate::Sum;
use crate::columns::{self, ReadError, Rows};
use crate::lake::LakeTables;

use lines::{ExpectedBill, LineRow};

const COLUMNS: [&str; 9] = [
    "BillingAccountId",
    "ChargePeriodStart",
    "HostProviderName",
    "BilledCost",
    "EffectiveCost",
    "InvoiceId",
    "InvoiceDetailId",
    "x_CostBasis",
    "x_ResourceKey",
];

/// A line of a bill, as the rows of the tables should have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedLine {
    /// The canonical name of the provider.
    pub provider: Text,
    /// The resource in the bill; empty for charges of no resource.
    pub resource_key: Text,
    /// Id of the line.
    pub line_id: Text,
    /// Id of the invoice; `None` until the provider has issued it.
    pub invoice_id: Option<Text>,
    /// The start of the charge period, a full hour.
    pub begin: Timestamp,
    /// The end of the charge period, a full hour.
    pub end: Timestamp,
    /// Billed cost.
    pub billed: Decimal12,
    /// Effective cost.
    pub effective: Decimal12,
}

impl ExpectedLine {
    /// Returns the lines of a set with this event time.
    pub fn of(set: &BillSet, begin: Timestamp) -> impl Iterator<Item = Self> {
        let provider = names::shared(&set.provider, names::provider);
        set.lines.iter().map(move |line| Self {
            provider: provider.clone(),
            resource_key: set.resource_key.clone(),
            line_id: line.line_id.clone(),
            invoice_id: line.invoice_id.clone(),
            begin,
            end: line.period_end,
            billed: line.billed_cost.into(),
            effective: line.effective_cost.into(),
        })
    }
}

/// Billed and effective cost of some lines, or of some rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BillSums {
    /// Billed cost.
    pub billed: Sum,
    /// Effective cost.
    pub effective: Sum,
}

impl BillSums {
    /// Adds other costs.
    pub fn add(&mut self, other: Self) {
        self.billed.add(other.billed);
        self.effective.add(other.effective);
    }

    /// Returns these costs minus the others.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { billed: self.billed.minus(other.billed), effective: self.effective.minus(other.effective) }
    }

    /// Returns whether both costs are exactly zero.
    pub fn is_zero(self) -> bool {
        self.billed.is_zero() && self.effective.is_zero()
    }
}

/// The costs of an invoice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InvoiceSums {
    /// Costs of its lines in the bill.
    pub bill: BillSums,
    /// Costs of its rows in the tables.
    pub rows: BillSums,
}

/// The result of a comparison with a bill.
#[derive(Clone, Debug, Default)]
pub struct BillChecked {
    /// The last closed hour of the lake; `None` if no hour is closed.
    pub through: Option<Hour>,
    /// Number of lines that were compared.
    pub lines: u64,
    /// Number of billed rows that were read.
    pub rows: u64,
    /// Number and costs of the lines whose charge period is not closed yet. They are not compared.
    pub waiting: (u64, BillSums),
    /// Costs by invoice. `None` has the lines without an invoice. A difference in rows that join lines of
    /// several invoices counts for the first of them.
    pub invoices: BTreeMap<Option<Text>, InvoiceSums>,
    /// The problems.
    pub findings: Findings,
}

/// Compares the lines of a bill with the rows of an organization, or of all organizations if none is named.
/// The checkpoints were read after the tables.
///
/// # Errors
/// If storage is unavailable. A problem of the lake is a finding, not an error.
pub async fn check_bill(
    lake: &LakeTables<'_>,
    checkpoints: &Checkpoints,
    organization: Option<&OrganizationId>,
    lines: impl IntoIterator<Item = ExpectedLine>,
) -> Result<BillChecked, WorkerError> {
    let mut bill = ExpectedBill::new(lines);
    let mut findings = Findings::default();
    if let Some(range) = bill.hours() {
        let days = lake.days(range);
        let files = days.values().flatten().filter(|file| {
            file.table == Table::CostAllocation && file.hours().iter().any(|hour| range.contains(*hour))
        });
        lake.read_each(files, |file, bytes| match bytes {
            None => {
                let what = "the table's log names it, but the store lacks it";
                findings.add(Problem::FileMissing, file, what);
            }
            Some(bytes) => {
                if let Err(error) = read(bytes, organization, range, &mut bill) {
                    findings.add(Problem::FileDamaged, file, error);
                }
            }
        })
        .await?;
    }
    Ok(bill.compare(closed_through(lake, checkpoints, organization).await?, findings))
}

/// Returns the last hour that is closed for an organization, or for all.
async fn closed_through(
    lake: &LakeTables<'_>,
    checkpoints: &Checkpoints,
    organization: Option<&OrganizationId>,
) -> Result<Option<Hour>, WorkerError> {
    let Some(organization) = organization else {
        return Ok(checkpoints.shards.values().filter_map(|shard| shard.closed_through).min());
    };
    let root = Root::find(lake.store(), None).await?;
    let shard = root.and_then(|root| checkpoints.shards.get(&root.shard_of(organization)));
    Ok(shard.and_then(|shard| shard.closed_through))
}

/// Adds the billed rows of a file to the bill.
fn read(
    bytes: Bytes,
    organization: Option<&OrganizationId>,
    range: HourRange,
    bill: &mut ExpectedBill,
) -> Result<(), ReadError> {
    columns::read(bytes, &COLUMNS, |rows| add(rows, organization, range, bill))
}

fn add(
    rows: &Rows,
    organization: Option<&OrganizationId>,
    range: HourRange,
    bill: &mut ExpectedBill,
) -> Result<(), ReadError> {
    let (organizations, hours) = (rows.texts("BillingAccountId")?, rows.hours("ChargePeriodStart")?);
    let (billed, effective) = (rows.amounts("BilledCost")?, rows.amounts("EffectiveCost")?);
    let (invoices, ids) = (rows.texts("InvoiceId")?, rows.texts("InvoiceDetailId")?);
    let (bases, keys) = (rows.texts("x_CostBasis")?, rows.texts("x_ResourceKey")?);
    let providers = rows.texts("HostProviderName")?;
    let amount = |column: &[Option<Decimal12>], row: usize| {
        Sum::from(column.get(row).copied().flatten().unwrap_or_default())
    };
    for row in 0..rows.len() {
        let hour = hours.get(row).copied().flatten().filter(|hour| range.contains(*hour));
        let is_asked = organization.is_none_or(|asked| text(&organizations, row) == Some(&**asked));
        let is_billed = text(&bases, row) == Some(CostBasis::Billed.name());
        if let Some(hour) = hour.filter(|_| is_asked && is_billed) {
            bill.add(&LineRow {
                provider: text(&providers, row).unwrap_or_default(),
                key: text(&keys, row).unwrap_or_default(),
                line: text(&ids, row),
                invoice: text(&invoices, row),
                hour,
                costs: BillSums { billed: amount(&billed, row), effective: amount(&effective, row) },
            });
        }
    }
    Ok(())
}

fn text<'t>(column: &[Option<&'t str>], row: usize) -> Option<&'t str> {
    column.get(row).copied().flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prorata_samples::bill::bill_line;
    use prorata_schemas::event::BillLine;
    use prorata_schemas::rows::{BilledLine, CostRow, HourTables, RowKind};
    use prorata_schemas::rules::Rules;

    use super::*;

    const HOUR: Hour = Hour(498_192);

    /// Returns a bill of one line, which covers the hour.
    fn set() -> BillSet {
        let line = BillLine {
            service: "Amazon Elastic Block Store".into(),
            invoice_id: Some("A".into()),
            effective_cost: "0.125".parse().unwrap(),
            list_cost: "0.5".parse().unwrap(),
            ..bill_line("gp3", HOUR.end(), "0.25")
        };
        BillSet {
            provider: "aws".into(),
            billing_account_id: "111122223333".into(),
            resource_key: "vol-1".into(),
            currency: "USD".into(),
            lines: vec![line],
        }
    }

    /// Returns a file of an organization with the row of the line, and an estimated row of the same cost.
    fn file(organization: &str) -> Bytes {
        let line = BilledLine { set: Arc::new(set()), begins_at: HOUR.start(), index: 0 };
        let row = |kind, id: &str, lines: Arc<[BilledLine]>| {
            let row = CostRow::new(kind, id.into(), "aws".into());
            let (billed_cost, effective_cost) = ("0.25".parse().unwrap(), "0.125".parse().unwrap());
            Box::new(CostRow { lines, billed_cost, effective_cost, ..row })
        };
        let mut tables = HourTables::without_rows(&organization.into(), HOUR, &Rules::default(), 1);
        tables.cost_allocation = vec![
            row(RowKind::PodServerless, "pod", Arc::default()),
            row(RowKind::SharedCharge, "vol-1", Arc::from([line])),
        ];
        let encoded = prorata_tables::encode(Table::CostAllocation, &[tables], &[]).unwrap();
        encoded.expect("a file with rows").bytes.into()
    }

    /// Compares the bill with the rows that an organization has in a file.
    fn compared(file: Bytes, organization: Option<&str>) -> BillChecked {
        let mut bill = ExpectedBill::new(ExpectedLine::of(&set(), HOUR.start()));
        let organization = organization.map(OrganizationId::from);
        read(file, organization.as_ref(), HOUR.into(), &mut bill).unwrap();
        bill.compare(Some(HOUR), Findings::default())
    }

    #[test]
    fn billed_rows_of_a_file_are_compared_with_their_line() {
        for organization in [None, Some("acme")] {
            let checked = compared(file("acme"), organization);
            assert!(checked.findings.worst().is_none(), "{checked}");
            assert_eq!((checked.lines, checked.rows), (1, 1), "{checked}");
            let sums = checked.invoices[&Some(Text::from("A"))];
            assert_eq!((sums.rows, sums.bill.billed.to_string()), (sums.bill, "0.25".to_owned()));
        }
        let other = compared(file("acme"), Some("other"));
        assert_eq!(other.findings.counts().get(&Problem::BillLineMissing), Some(&1), "{other}");
    }
}
