//! `README.md` describes every column of every table: the name, the place, the type, and whether the column
//! may be null.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use arrow_schema::{DataType, Field};
use prorata_schemas::tables::Table;
use prorata_tables::schema;

/// A column as the README's tables list it: name, type, and whether it is never null.
type Described<'t> = (&'t str, &'t str, bool);

/// Returns the rows of the column table in a table's section.
fn described<'t>(readme: &'t str, table: Table) -> Vec<Described<'t>> {
    let heading = format!("\n## `{}`\n", table.name());
    let (_, section) = readme.split_once(&heading).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let (_, rows) =
        section.split_once("| column | type | unit | null | meaning |\n|---|---|---|---|---|\n").unwrap();
    let rows = rows.lines().take_while(|line| line.starts_with('|'));
    let column = |line: &'t str| {
        let [_, name, kind, _, null, meaning, _] = line.split('|').map(str::trim).collect::<Vec<_>>()[..]
        else {
            panic!("{line} has not five cells");
        };
        assert!(!null.is_empty() && !meaning.is_empty(), "{line}");
        (name, kind, null == "never")
    };
    rows.map(column).collect()
}

fn kind_of(field: &Field) -> &'static str {
    match field.data_type() {
        DataType::Utf8 if field.extension_type_name() == Some("arrow.json") => "json",
        DataType::Utf8 => "text",
        DataType::Decimal128(38, 12) => "decimal",
        DataType::Timestamp(..) => "timestamp",
        DataType::Int64 => "long",
        DataType::Boolean => "boolean",
        other => panic!("{} is a {other}", field.name()),
    }
}

#[test]
fn every_column_is_described_as_it_is() {
    let readme = include_str!("../README.md");
    for table in Table::HOURLY {
        let schema = schema(table);
        let columns: Vec<Described<'_>> = schema
            .fields()
            .iter()
            .map(|field| (&**field.name(), kind_of(field), !field.is_nullable()))
            .collect();
        assert_eq!(described(readme, table), columns, "{}", table.name());
    }
}
