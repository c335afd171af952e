//! Limits on schemas, which come from strangers.

/// Maximum length of a schema's text, in bytes. All our schemas together have 25,000 bytes.
pub const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// Maximum number of records, enums and fixed types of a schema.
pub(super) const NAMED_MAX: usize = 4_096;

/// Maximum number of fields of a schema, in all of its records.
pub(super) const FIELDS_MAX: usize = 10_000;

/// Maximum length of a name with its namespace, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 512;

/// Maximum number of levels of nested records, arrays and maps, in a schema and in data.
pub(super) const DEPTH_MAX: usize = 64;
