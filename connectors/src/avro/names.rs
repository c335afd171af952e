//! Definitions of a schema's named types, for the code that walks it.

use std::collections::HashMap;

use apache_avro::Schema;
use apache_avro::schema::Name;

use super::error::ResolveError;

/// The definition of a named type.
pub(super) fn named<'s>(names: &HashMap<Name, &'s Schema>, name: &Name) -> Result<&'s Schema, ResolveError> {
    names.get(name).copied().ok_or_else(|| ResolveError::Undefined(name.to_string()))
}

/// Collects the definitions of all named types.
pub(super) fn collect<'s>(schema: &'s Schema, names: &mut HashMap<Name, &'s Schema>) {
    match schema {
        Schema::Record(record) => {
            names.entry(record.name.clone()).or_insert(schema);
            record.fields.iter().for_each(|field| collect(&field.schema, names));
        }
        Schema::Array(array) => collect(&array.items, names),
        Schema::Map(map) => collect(&map.types, names),
        Schema::Union(union) => union.variants().iter().for_each(|variant| collect(variant, names)),
        _ => {
            if let Some(name) = schema.name() {
                names.entry(name.clone()).or_insert(schema);
            }
        }
    }
}
