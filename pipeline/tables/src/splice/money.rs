//! Reads costs and budgets back from table files.

use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, PrimitiveArray, RecordBatch, StringArray};
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::budget::{BudgetUse, Period};
use prorata_schemas::tables::Table;

use crate::EncodeError;
use crate::splice::read;

/// Returns the allocated cost of each organization in a file of `hours`.
///
/// # Errors
/// If the file cannot be read, or has other columns.
pub fn allocated_costs(file: &[u8]) -> Result<Vec<(OrganizationId, Decimal12)>, EncodeError> {
    let rows = read(Table::Hours, file)?;
    let organizations = texts(Table::Hours, &rows, "organization_id")?;
    let costs = decimals(Table::Hours, &rows, "allocated_cost")?;
    let pairs = organizations.iter().zip(costs.iter());
    Ok(pairs.filter_map(|(id, atoms)| Some((id?.into(), Decimal12::from_atoms(atoms?)))).collect())
}

/// Returns the budgets of the pools in a file of `pool_usage`.
///
/// # Errors
/// If the file cannot be read, or has other columns.
pub fn budgets(file: &[u8]) -> Result<Vec<BudgetUse>, EncodeError> {
    let table = Table::PoolUsage;
    let rows = read(table, file)?;
    let (organizations, pools) = (texts(table, &rows, "organization_id")?, texts(table, &rows, "pool_id")?);
    let mut found = Vec::new();
    for period in Period::ALL {
        let of = |what: &str| decimals(table, &rows, &format!("{what}_{}", period.name()));
        let (spend, budget) = (of("spend")?, of("budget")?);
        found.extend((0..rows.num_rows()).filter(|row| budget.is_valid(*row)).map(|row| BudgetUse {
            organization_id: organizations.value(row).into(),
            pool_id: pools.value(row).into(),
            period,
            spend: Decimal12::from_atoms(spend.value(row)),
            budget: Decimal12::from_atoms(budget.value(row)),
        }));
    }
    Ok(found)
}

fn texts<'a>(table: Table, rows: &'a RecordBatch, name: &str) -> Result<&'a StringArray, EncodeError> {
    let column = rows.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    column.ok_or(EncodeError::Foreign { table, cause: "a column has another type" })
}

fn decimals<'a>(
    table: Table,
    rows: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<Decimal128Type>, EncodeError> {
    let column = rows.column_by_name(name).and_then(|column| column.as_primitive_opt::<Decimal128Type>());
    column.ok_or(EncodeError::Foreign { table, cause: "a column has another type" })
}
