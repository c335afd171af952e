//! The tables as Parquet: [`encode`] turns the rows of one hour of a shard into one file, sorted by the
//! table's grain. The bytes depend on the rows alone, without I/O, clock or randomness.
//!
//! Reading order:
//! - `columns` builds columns from rows. `columns/cost.rs` lists the columns of `cost_allocation`,
//!   `columns/charge.rs` has their values for each kind of row, and `columns/bill.rs` has the values of lines
//!   of bills. `columns/usage.rs` has the five other tables.
//! - `sku` and `describe` build the texts of `cost_allocation` that need more than a lookup, with `json` for
//!   JSON.
//! - `cut` decides where an hour is cut into several files.
//! - `file` writes the Parquet bytes, and `row_group` writes the row groups column by column and compresses
//!   their pages. `splice` replaces rows of some organizations in a file, and reads costs and
//!   budgets from a file. `day` joins the files of a day's hours and restores them. `closed` copies rows of
//!   `cost_allocation` into files of `closed_allocation`, and computes corrections. `stats` computes the
//!   statistics for the Delta log, and `digest` shows whether the content has changed.
//!
//! `README.md` next to `Cargo.toml` describes every column for people who query the tables.

pub mod closed;
mod columns;
mod cut;
mod day;
mod describe;
mod digest;
mod file;
mod json;
mod row_group;
mod sku;
mod splice;
mod stats;

use arrow_schema::{ArrowError, SchemaRef};
use parquet::errors::ParquetError;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{EncodedFile, HourClock, Table};
use prorata_schemas::time::Hour;

use columns::Column;
use columns::charge::Charges;
use columns::usage::{HourLine, Line};
use columns::{cost, usage};

pub use columns::charge::tags_of;
pub use cut::encode_files;
pub use day::{DayPart, day_parts, guarded, in_our_columns, join, split};
pub use splice::{allocated_costs, budgets, splice};

/// The reason for which rows cannot become a table file. Each variant is a defect in the code that computed
/// the rows, or a number out of range.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields name the object of the message")]
pub enum EncodeError {
    /// The given organizations have different hours.
    #[error("organization '{organization}' has hour {hour}, the file is of hour {expected}")]
    MixedHours { organization: String, hour: Hour, expected: Hour },
    /// The organizations are not in ascending order, or an organization occurs twice.
    #[error("organization '{organization}' is not in ascending order of organizations")]
    OrganizationOrder { organization: String },
    /// Rows are not in the order of the table's grain, or two rows have the same grain.
    #[error("row {row} of {table} of organization '{organization}' is not in ascending order of the table's \
             grain", table = .table.name())]
    RowOrder { table: Table, organization: String, row: usize },
    /// The number of clocks differs from the number of organizations. `hours` needs one clock for each
    /// organization.
    #[error("{clocks} clocks for {hours} organizations")]
    ClockCount { clocks: usize, hours: usize },
    /// The table's files are not made from the rows of hours.
    #[error("files of {table} are copies of files, and not of hours", table = .table.name())]
    NotOfHours { table: Table },
    /// A number needs more than 38 digits.
    #[error("a value of column {column} of {table} has more than 38 digits", table = .table.name())]
    Digits { table: Table, column: &'static str },
    /// The columns do not form a table.
    #[error("columns of {table} cannot be built", table = .table.name())]
    Columns { table: Table, source: ArrowError },
    /// The Parquet writer failed.
    #[error("{table} cannot be written as Parquet", table = .table.name())]
    Write { table: Table, source: ParquetError },
    /// A file whose rows are partly kept cannot be read.
    #[error("a file of {table} cannot be read as Parquet", table = .table.name())]
    Read { table: Table, source: ParquetError },
    /// A file whose rows are partly kept does not have the form that this program writes.
    #[error(
        "a file of {table} does not have the layout that this program writes: {cause}",
        table = .table.name()
    )]
    Foreign { table: Table, cause: &'static str },
}

/// Returns the columns of a table's files, in order, without the partition column `date`.
pub fn schema(table: Table) -> SchemaRef {
    match table {
        Table::CostAllocation | Table::ClosedAllocation => columns::schema(&cost::columns()),
        Table::ReservationUsage => columns::schema(&usage::reservation_columns()),
        Table::CommitmentUtilization => columns::schema(&usage::commitment_columns()),
        Table::QuotaUsage => columns::schema(&usage::quota_columns()),
        Table::PoolUsage => columns::schema(&usage::pool_columns()),
        Table::Hours => columns::schema(&usage::hour_columns()),
    }
}

/// Returns the columns that a file's statistics cover; a Delta table names them in
/// `delta.dataSkippingStatsColumns`.
pub const fn stats_columns(table: Table) -> &'static [&'static str] {
    match table {
        Table::CostAllocation | Table::ClosedAllocation => &[
            "BilledCost",
            "BillingAccountId",
            "ChargePeriodStart",
            "EffectiveCost",
            "ListCost",
            "ResourceId",
            "SubAccountId",
            "x_ClusterId",
            "x_Namespace",
            "x_PodUid",
            "x_RowKind",
        ],
        Table::ReservationUsage => &["organization_id", "hour", "reservation_id", "unused_cost"],
        Table::CommitmentUtilization => {
            &["organization_id", "hour", "commitment_id", "used_cost", "unused_cost"]
        }
        Table::QuotaUsage => &["organization_id", "hour", "cluster_id", "quota_id", "resource"],
        Table::PoolUsage => &["organization_id", "hour", "pool_id", "cluster_id", "charges", "node_cost"],
        Table::Hours => {
            &["organization_id", "hour", "supply_cost", "allocated_cost", "difference", "rows", "events"]
        }
    }
}

/// Returns the file of `table` for one hour of a shard; `None` if there are no rows.
///
/// `hours` holds all organizations of the shard that have the hour, in ascending order. `clocks` has one
/// entry for each of them; only the table `hours` needs it.
///
/// # Errors
/// If hours, organizations, rows or clocks break these rules, a number needs more than 38 digits, or the
/// writer fails. Programs without debug assertions do not check the order of the rows of `cost_allocation`.
pub fn encode(
    table: Table,
    hours: &[HourTables],
    clocks: &[HourClock],
) -> Result<Option<EncodedFile>, EncodeError> {
    check_order(hours)?;
    check_grain(table, hours)?;
    match table {
        Table::CostAllocation => {
            let mut charges = Charges::default();
            let rows = rows(hours, |tables| &tables.cost_allocation);
            file::write_rows(table, &cost::columns(), &rows, |&(tables, row)| charges.charge(tables, row))
        }
        Table::ReservationUsage => {
            encode_usage(table, &usage::reservation_columns(), &rows(hours, |t| &t.reservation_usage))
        }
        Table::CommitmentUtilization => {
            encode_usage(table, &usage::commitment_columns(), &rows(hours, |t| &t.commitment_utilization))
        }
        Table::QuotaUsage => encode_usage(table, &usage::quota_columns(), &rows(hours, |t| &t.quota_usage)),
        Table::PoolUsage => encode_usage(table, &usage::pool_columns(), &rows(hours, |t| &t.pool_usage)),
        Table::Hours => encode_hours(hours, clocks),
        Table::ClosedAllocation => Err(EncodeError::NotOfHours { table }),
    }
}

/// A row with its organization's hour.
type Row<'a, R> = (&'a HourTables, &'a R);

/// Returns the rows of all organizations.
fn rows<R>(hours: &[HourTables], rows: fn(&HourTables) -> &Vec<R>) -> Vec<Row<'_, R>> {
    hours.iter().flat_map(|tables| rows(tables).iter().map(move |row| (tables, row))).collect()
}

fn encode_usage<'a, R>(
    table: Table,
    columns: &[Column<Line<'a, R>>],
    rows: &[Row<'a, R>],
) -> Result<Option<EncodedFile>, EncodeError> {
    file::write_rows(table, columns, rows, |&(tables, row)| Line { tables, row })
}

fn encode_hours(hours: &[HourTables], clocks: &[HourClock]) -> Result<Option<EncodedFile>, EncodeError> {
    if hours.len() != clocks.len() {
        return Err(EncodeError::ClockCount { clocks: clocks.len(), hours: hours.len() });
    }
    let rows: Vec<Row<'_, HourClock>> = hours.iter().zip(clocks).collect();
    let encoded = file::write_rows(Table::Hours, &usage::hour_columns(), &rows, |&(tables, clock)| {
        HourLine { tables, clock }
    });
    let Some(mut encoded) = encoded? else { return Ok(None) };
    encoded.digest = digest::of_hours(rows.into_iter().map(|(tables, clock)| HourLine { tables, clock }));
    Ok(Some(encoded))
}

fn check_order(hours: &[HourTables]) -> Result<(), EncodeError> {
    for pair in hours.windows(2) {
        let [before, after] = pair else { continue };
        let organization = || after.organization_id.to_string();
        if before.hour != after.hour {
            return Err(EncodeError::MixedHours {
                organization: organization(),
                hour: after.hour,
                expected: before.hour,
            });
        }
        if before.organization_id >= after.organization_id {
            return Err(EncodeError::OrganizationOrder { organization: organization() });
        }
    }
    Ok(())
}

fn check_grain(table: Table, hours: &[HourTables]) -> Result<(), EncodeError> {
    for tables in hours {
        let unordered = match table {
            // The engine has just sorted these rows, and there are many.
            Table::CostAllocation if !cfg!(debug_assertions) => None,
            Table::CostAllocation => first_unordered(&tables.cost_allocation, |row| cost::grain(row)),
            Table::ReservationUsage => first_unordered(&tables.reservation_usage, |row| &row.reservation_id),
            Table::CommitmentUtilization => {
                first_unordered(&tables.commitment_utilization, |row| &row.commitment_id)
            }
            Table::QuotaUsage => first_unordered(&tables.quota_usage, usage::quota_grain),
            Table::PoolUsage => first_unordered(&tables.pool_usage, |row| &row.pool_id),
            Table::Hours | Table::ClosedAllocation => None,
        };
        if let Some(row) = unordered {
            let organization = tables.organization_id.to_string();
            return Err(EncodeError::RowOrder { table, organization, row });
        }
    }
    Ok(())
}

/// Returns the index of the first row whose grain is not above the grain before it; `None` if all rows are in
/// order.
fn first_unordered<'a, R, K: PartialOrd>(rows: &'a [R], grain: impl Fn(&'a R) -> K) -> Option<usize> {
    let pairs = rows.iter().zip(rows.iter().skip(1));
    pairs.enumerate().find(|(_, (before, after))| grain(before) >= grain(after)).map(|(index, _)| index + 1)
}
