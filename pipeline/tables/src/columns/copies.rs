//! Columns that share one array: `cost_allocation` has many, because FOCUS asks for the same value under
//! several names. Shared arrays are encoded and hashed once.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::Field;

/// Returns, for each column, the first earlier column that shares its array and its type; `None` if there is
/// none.
pub fn originals(rows: &RecordBatch) -> Vec<Option<usize>> {
    let (fields, columns) = (rows.schema_ref().fields(), rows.columns());
    let mut first: BTreeMap<*const (), usize> = BTreeMap::new();
    let of = |(index, (field, column)): (usize, (&Arc<Field>, &Arc<dyn Array>))| {
        let original = *first.entry(Arc::as_ptr(column).cast()).or_insert(index);
        let is_like = |other: &Arc<Field>| other.as_ref().clone().with_name(field.name()) == **field;
        (original != index && fields.get(original).is_some_and(is_like)).then_some(original)
    };
    fields.iter().zip(columns).enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, StringArray};
    use arrow_schema::{DataType, Schema};

    use super::*;

    #[test]
    fn columns_of_one_array_and_type_are_copies() {
        let array = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
        let (first, second) = (array("a"), array("a"));
        let columns = [("a", true), ("b", true), ("a again", true), ("b again", true), ("required", false)];
        let fields = columns.map(|(name, nullable)| Field::new(name, DataType::Utf8, nullable));
        let arrays = [&first, &second, &first, &second, &first].map(Arc::clone);
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), arrays.to_vec()).unwrap();
        assert_eq!(originals(&rows), [None, None, Some(0), Some(1), None]);
    }
}
