//! The comparison of a table's schema with this release's schema when the table is opened.
//!
//! A column that the table lacks is added to its log; older files read as null in it. A column that only the
//! table has belongs to a newer release, and stays. Any other difference would make readers fail or read
//! wrong values, so it stops the table.

use deltalake_core::kernel::{StructField, StructType};

/// Returns the columns of `wanted` that the table lacks, as nullable columns, because older files do not have
/// them.
///
/// # Errors
/// The columns that cannot become the wanted columns, with the reasons.
pub(super) fn missing(found: &StructType, wanted: &StructType) -> Result<Vec<StructField>, String> {
    let (mut missing, mut wrong) = (Vec::new(), Vec::new());
    for field in wanted.fields() {
        let name = field.name();
        match found.field(name) {
            None => missing.push(StructField::nullable(name.clone(), field.data_type().clone())),
            Some(old) if old.data_type() != field.data_type() => {
                wrong.push(format!("'{name}' is {}, not {}", old.data_type(), field.data_type()));
            }
            Some(old) if field.is_nullable() && !old.is_nullable() => {
                wrong.push(format!("'{name}' may not be null"));
            }
            Some(_) => {}
        }
    }
    if wrong.is_empty() { Ok(missing) } else { Err(wrong.join("; ")) }
}

/// Returns the table's columns, followed by the new ones.
///
/// # Errors
/// If all columns together are not a valid schema.
pub(super) fn extended(found: &StructType, missing: &[StructField]) -> Result<StructType, String> {
    let fields = found.fields().cloned().chain(missing.iter().cloned());
    StructType::try_new(fields).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use deltalake_core::kernel::DataType;

    use super::*;

    fn schema(fields: &[(&str, DataType, bool)]) -> StructType {
        let fields = fields
            .iter()
            .map(|(name, kind, nullable)| StructField::new((*name).to_owned(), kind.clone(), *nullable));
        StructType::try_new(fields).unwrap()
    }

    #[test]
    fn columns_that_are_missing_are_added_nullable_and_foreign_ones_stay() {
        let found = schema(&[("a", DataType::LONG, true), ("newer", DataType::STRING, true)]);
        let wanted = schema(&[("b", DataType::STRING, false), ("a", DataType::LONG, false)]);
        let missing = missing(&found, &wanted).unwrap();
        assert_eq!(missing, [StructField::nullable("b", DataType::STRING)]);
        let extended = extended(&found, &missing).unwrap();
        let names: Vec<&String> = extended.fields().map(StructField::name).collect();
        assert_eq!(names, ["a", "newer", "b"]);
    }

    #[test]
    fn a_wrong_type_and_a_required_column_are_reported() {
        let found = schema(&[("a", DataType::STRING, true), ("b", DataType::LONG, false)]);
        let wanted = schema(&[("a", DataType::LONG, true), ("b", DataType::LONG, true)]);
        let wrong = missing(&found, &wanted).unwrap_err();
        assert_eq!(wrong, "'a' is string, not long; 'b' may not be null");
    }
}
