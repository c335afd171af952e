//! Reads reservations, commitments, quotas and pools from their tables.

use bytes::Bytes;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange};
use prorata_worker::WorkerError;

use super::Report;
use crate::Sum;
use crate::columns::{self, ReadError, Rows};
use crate::lake::LakeTables;

/// Usage of a reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationUse {
    /// Name of the reservation.
    pub name: String,
    /// GPU model of the reservation.
    pub gpu_model: String,
    /// Unit-seconds that pods held.
    pub used_seconds: Sum,
    /// Unit-seconds that no pod held.
    pub unused_seconds: Sum,
    /// Cost of the unused unit-seconds.
    pub unused_cost: Sum,
}

/// Usage of a commitment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitmentUse {
    /// Name of the commitment.
    pub name: String,
    /// Cost that nodes received.
    pub used_cost: Sum,
    /// Cost that no node received.
    pub unused_cost: Sum,
    /// Cost of the covered capacity at list prices.
    pub list_cost_avoided: Sum,
}

/// Usage of one resource of a quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaUse {
    /// Cost of the quota's pods while over quota. All resources of the quota have the same cost.
    pub over_quota_cost: Sum,
    /// Part of `over_quota_cost` for the time in which the quota borrowed more than is guaranteed.
    pub preemptible_cost: Sum,
    /// Amount-hours that the quota borrowed.
    pub borrowed_hours: Sum,
    /// Amount-hours that the quota lent.
    pub lent_hours: Sum,
}

/// Money of a GPU pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSpend {
    /// Charges of the pool's pods.
    pub charges: Sum,
    /// Cost of the pool's nodes.
    pub node_cost: Sum,
    /// The last hour with rows of the pool.
    pub last: Hour,
    /// Spend since the start of the month of `last`.
    pub spend_month: Sum,
    /// Budgets that were exceeded in that hour.
    pub exceeded: String,
}

/// Reads the tables of agreements into the report.
///
/// # Errors
/// If storage is unavailable.
pub async fn read(lake: &LakeTables<'_>, range: HourRange, report: &mut Report) -> Result<(), WorkerError> {
    for files in lake.days(range).into_values() {
        let in_range = files.iter().filter(|file| file.hours().iter().any(|hour| range.contains(*hour)));
        let wanted = in_range.filter(|file| !matches!(file.table, Table::CostAllocation | Table::Hours));
        lake.read_each(wanted, |file, bytes| {
            let read = match bytes {
                Some(bytes) => read_file(file.table, bytes, range, report).map_err(|error| error.to_string()),
                None => Err("the object is gone".to_owned()),
            };
            report.unreadable.extend(read.err().map(|why| (file.to_string(), why)));
        })
        .await?;
    }
    Ok(())
}

/// The rows of a batch that belong on the page, by organization and hour.
struct Batch<'a> {
    rows: &'a Rows,
    organizations: Vec<Option<&'a str>>,
    hours: Vec<Option<Hour>>,
    is_shown: Vec<bool>,
}

impl<'a> Batch<'a> {
    fn new(rows: &'a Rows, range: HourRange, report: &Report) -> Result<Self, ReadError> {
        let (organizations, hours) = (rows.texts("organization_id")?, rows.hours("hour")?);
        let in_range = |hour: &Option<Hour>| range.contains(hour.unwrap_or_default());
        let both = organizations.iter().zip(&hours);
        let is_shown =
            both.map(|(organization, hour)| report.shows(*organization) && in_range(hour)).collect();
        Ok(Self { rows, organizations, hours, is_shown })
    }

    /// Returns the rows in range, with organization and hour.
    fn in_range(&self) -> impl Iterator<Item = (usize, String, Hour)> {
        let rows = (0..self.rows.len()).map(|row| {
            let organization = self.organizations.get(row).copied().flatten().unwrap_or_default();
            (row, organization.to_owned(), self.hours.get(row).copied().flatten().unwrap_or_default())
        });
        rows.filter(|(row, ..)| self.is_shown.get(*row).copied().unwrap_or_default())
    }
}

fn text(column: &[Option<&str>], row: usize) -> String {
    column.get(row).copied().flatten().unwrap_or_default().to_owned()
}

fn amount(column: &[Option<Decimal12>], row: usize) -> Decimal12 {
    column.get(row).copied().flatten().unwrap_or_default()
}

fn read_file(table: Table, bytes: Bytes, range: HourRange, report: &mut Report) -> Result<(), ReadError> {
    match table {
        Table::ReservationUsage => reservations(bytes, range, report),
        Table::CommitmentUtilization => commitments(bytes, range, report),
        Table::QuotaUsage => quotas(bytes, range, report),
        Table::PoolUsage => pools(bytes, range, report),
        Table::CostAllocation | Table::Hours | Table::ClosedAllocation => Ok(()),
    }
}

fn reservations(bytes: Bytes, range: HourRange, report: &mut Report) -> Result<(), ReadError> {
    let wanted = [
        "organization_id",
        "hour",
        "reservation_id",
        "name",
        "gpu_model",
        "used_unit_seconds",
        "unused_unit_seconds",
        "unused_cost",
    ];
    columns::read(bytes, &wanted, |rows| {
        let batch = Batch::new(rows, range, report)?;
        let (ids, names) = (rows.texts("reservation_id")?, rows.texts("name")?);
        let (models, used) = (rows.texts("gpu_model")?, rows.amounts("used_unit_seconds")?);
        let (unused, costs) = (rows.amounts("unused_unit_seconds")?, rows.amounts("unused_cost")?);
        for (row, organization, _) in batch.in_range() {
            let of = report.reservations.entry((organization, text(&ids, row))).or_default();
            (of.name, of.gpu_model) = (text(&names, row), text(&models, row));
            of.used_seconds.add(amount(&used, row));
            of.unused_seconds.add(amount(&unused, row));
            of.unused_cost.add(amount(&costs, row));
        }
        Ok(())
    })
}

fn commitments(bytes: Bytes, range: HourRange, report: &mut Report) -> Result<(), ReadError> {
    let wanted =
        ["organization_id", "hour", "commitment_id", "name", "used_cost", "unused_cost", "list_cost_avoided"];
    columns::read(bytes, &wanted, |rows| {
        let batch = Batch::new(rows, range, report)?;
        let (ids, names) = (rows.texts("commitment_id")?, rows.texts("name")?);
        let (used, unused) = (rows.amounts("used_cost")?, rows.amounts("unused_cost")?);
        let avoided = rows.amounts("list_cost_avoided")?;
        for (row, organization, _) in batch.in_range() {
            let of = report.commitments.entry((organization, text(&ids, row))).or_default();
            of.name = text(&names, row);
            of.used_cost.add(amount(&used, row));
            of.unused_cost.add(amount(&unused, row));
            of.list_cost_avoided.add(amount(&avoided, row));
        }
        Ok(())
    })
}

fn quotas(bytes: Bytes, range: HourRange, report: &mut Report) -> Result<(), ReadError> {
    let wanted = [
        "organization_id",
        "hour",
        "cluster_id",
        "quota_id",
        "resource",
        "over_quota_cost",
        "preemptible_cost",
        "borrowed_hours",
        "lent_hours",
    ];
    columns::read(bytes, &wanted, |rows| {
        let batch = Batch::new(rows, range, report)?;
        let (clusters, ids) = (rows.texts("cluster_id")?, rows.texts("quota_id")?);
        let (resources, over) = (rows.texts("resource")?, rows.amounts("over_quota_cost")?);
        let (preemptible, borrowed) = (rows.amounts("preemptible_cost")?, rows.amounts("borrowed_hours")?);
        let lent = rows.amounts("lent_hours")?;
        for (row, organization, _) in batch.in_range() {
            let key = (organization, text(&clusters, row), text(&ids, row), text(&resources, row));
            let of = report.quotas.entry(key).or_default();
            of.over_quota_cost.add(amount(&over, row));
            of.preemptible_cost.add(amount(&preemptible, row));
            of.borrowed_hours.add(amount(&borrowed, row));
            of.lent_hours.add(amount(&lent, row));
        }
        Ok(())
    })
}

fn pools(bytes: Bytes, range: HourRange, report: &mut Report) -> Result<(), ReadError> {
    let wanted =
        ["organization_id", "hour", "pool_id", "charges", "node_cost", "spend_month", "budget_exceeded"];
    columns::read(bytes, &wanted, |rows| {
        let batch = Batch::new(rows, range, report)?;
        let (ids, exceeded) = (rows.texts("pool_id")?, rows.texts("budget_exceeded")?);
        let (charges, costs) = (rows.amounts("charges")?, rows.amounts("node_cost")?);
        let months = rows.amounts("spend_month")?;
        for (row, organization, hour) in batch.in_range() {
            let of = report.pools.entry((organization, text(&ids, row))).or_default();
            of.charges.add(amount(&charges, row));
            of.node_cost.add(amount(&costs, row));
            if hour >= of.last {
                of.last = hour;
                of.spend_month = amount(&months, row).into();
                of.exceeded = text(&exceeded, row);
            }
        }
        Ok(())
    })
}
