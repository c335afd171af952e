//! The reasons why a text is not a usable schema, and why one schema does not resolve to another.

use std::fmt;

use super::limits::{DEPTH_MAX, FIELDS_MAX, NAME_BYTES_MAX, NAMED_MAX, SCHEMA_BYTES_MAX};

/// Maximum length of a message about a schema, in characters. Names and defaults in a schema may have any
/// length.
const MESSAGE_CHARS_MAX: usize = 400;

pub(super) fn shortened(message: String) -> String {
    crate::text::shortened(message, MESSAGE_CHARS_MAX)
}

/// The reason why a text is not a usable Avro schema.
#[derive(Debug)]
pub struct SchemaError(SchemaFault);

/// The fault of the text.
#[derive(Debug, thiserror::Error)]
pub(super) enum SchemaFault {
    #[error("{0} bytes, more than the {SCHEMA_BYTES_MAX} that are allowed")]
    TooLong(usize),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("a type is neither a name, an object nor an array")]
    NoType,
    /// The part that lacks a key, and the key.
    #[error("{0} lacks '{1}', or has an invalid one")]
    Lacks(String, &'static str),
    #[error("type {0:?} is not defined before it is used")]
    Undefined(String),
    #[error("{0} is defined twice")]
    Twice(String),
    #[error("{0:?} is not a valid name: letters, digits and _")]
    Name(String),
    #[error("a name has {0} bytes, more than the {NAME_BYTES_MAX} that are allowed")]
    LongName(usize),
    #[error("a union is a branch of another")]
    NestedUnion,
    #[error("a union has two branches of type {0}")]
    Branches(String),
    #[error("more than {NAMED_MAX} named types")]
    TooManyTypes,
    #[error("more than {FIELDS_MAX} fields")]
    TooManyFields,
    #[error("its types are nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

impl<F: Into<SchemaFault>> From<F> for SchemaError {
    fn from(fault: F) -> Self {
        Self(fault.into())
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an Avro schema: {}", shortened(self.0.to_string()))
    }
}

impl std::error::Error for SchemaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// The reason why a writer's schema does not resolve to ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResolveError {
    #[error("{writer} cannot be read as {ours}")]
    Mismatch { writer: String, ours: String },
    #[error("field {name}: {source}")]
    Field { name: String, source: Box<ResolveError> },
    #[error("field {0} is required, but the writer's schema lacks it")]
    Required(String),
    #[error("our union is empty")]
    EmptyUnion,
}

/// A symbol of the writer's enum that our enum does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("our enum has no symbol {0}")]
pub(super) struct UnknownSymbol(pub(super) String);
