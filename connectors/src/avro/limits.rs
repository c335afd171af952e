//! Bounds of schemas, which come from strangers.

/// The longest text of a schema, in bytes. All of ours together have 25,000.
pub const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// The most records, enums and fixed types of a schema.
pub(super) const NAMED_MAX: usize = 4_096;

/// The most fields of a schema, in all of its records.
pub(super) const FIELDS_MAX: usize = 10_000;

/// The longest name with its namespace, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 512;

/// The most levels of nested records, arrays and maps, in a schema and in data.
pub(super) const DEPTH_MAX: usize = 64;
