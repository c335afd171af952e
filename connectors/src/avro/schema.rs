//! Avro schemas, reduced to what is needed to skip and resolve data.

use std::fmt;
use std::sync::Arc;

use prorata_schemas::reject::excerpt;
use serde_json::Value as Json;

use Plain::{Boolean, Bytes, Double, Float, Int, Long, Null, Text};

/// The logical type of our instants.
pub(super) const TIMESTAMP_MICROS: &str = "timestamp-micros";

/// Logical types that give a number or bytes another meaning. As the specification requires, other logical
/// types are ignored; `uuid` does not change a string. The last two are types of Kafka Connect
/// (`connect.name`). They are the only sign from Debezium that a plain long does not count microseconds.
const LOGICAL: [(Plain, &str); 13] = [
    (Int, "date"),
    (Int, "time-millis"),
    (Long, "time-micros"),
    (Long, "timestamp-millis"),
    (Long, TIMESTAMP_MICROS),
    (Long, "timestamp-nanos"),
    (Long, "local-timestamp-millis"),
    (Long, "local-timestamp-micros"),
    (Long, "local-timestamp-nanos"),
    (Bytes, "big-decimal"),
    (Bytes, "uuid"),
    (Long, "io.debezium.time.Timestamp"),
    (Long, "io.debezium.time.NanoTimestamp"),
];

/// A schema: its outermost type, and the records in it.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(super) root: Type,
    /// Records, which may refer to each other and to themselves.
    pub(super) records: Vec<RecordType>,
}

/// A type of a schema.
#[derive(Clone, Debug)]
pub(super) enum Type {
    Plain(Plain),
    /// A plain type with a logical type of [`LOGICAL`].
    Logical(Plain, &'static str),
    /// Bytes with a decimal.
    Decimal(Decimal),
    Fixed(Arc<Fixed>),
    Enum(Arc<Enum>),
    Array(Box<Type>),
    Map(Box<Type>),
    Union(Box<[Type]>),
    /// A record: its full name, and its index in [`Schema::records`].
    Record(Arc<str>, usize),
}

/// A type without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    /// `string`.
    Text,
}

/// A decimal, with its total number of digits and its number of digits after the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    pub(super) precision: u64,
    pub(super) scale: u64,
}

/// A fixed number of bytes.
#[derive(Debug)]
pub(super) struct Fixed {
    pub(super) name: String,
    pub(super) size: usize,
    pub(super) decimal: Option<Decimal>,
}

/// An enum.
#[derive(Debug)]
pub(super) struct Enum {
    pub(super) name: String,
    pub(super) symbols: Vec<String>,
    /// The symbol that the reader uses in place of symbols that its enum lacks.
    pub(super) default: Option<String>,
}

/// A record.
#[derive(Debug, Default)]
pub(super) struct RecordType {
    pub(super) aliases: Vec<String>,
    pub(super) fields: Vec<Field>,
}

/// A field of a record. Aliases and defaults matter only in the reader's schema.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) default: Option<Json>,
    pub(super) of: Type,
}

impl Schema {
    /// Returns the fields of a record of this schema.
    pub(super) fn fields(&self, record: usize) -> &[Field] {
        self.records.get(record).map_or(&[], |record| &record.fields)
    }

    /// Returns whether a full name is an alias of the record at the root of this schema.
    pub(super) fn is_also_named(&self, name: &str) -> bool {
        let Type::Record(_, record) = self.root else { return false };
        self.records.get(record).is_some_and(|record| record.aliases.iter().any(|alias| alias == name))
    }
}

impl Type {
    /// Returns the full name of a named type, or the keyword of another type.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Plain(plain) | Self::Logical(plain, _) => plain.name(),
            Self::Decimal(_) => Bytes.name(),
            Self::Fixed(fixed) => &fixed.name,
            Self::Enum(symbols) => &symbols.name,
            Self::Array(_) => "array",
            Self::Map(_) => "map",
            Self::Union(_) => "union",
            Self::Record(name, _) => name,
        }
    }
}

/// Prints the type briefly, in the terms of its schema.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimal = match self {
            Self::Decimal(decimal) => Some(*decimal),
            Self::Fixed(fixed) => fixed.decimal,
            _ => None,
        };
        match (self, decimal) {
            (_, Some(Decimal { precision, scale })) => write!(f, "decimal({precision},{scale})"),
            (Self::Logical(_, name), _) => f.write_str(name),
            _ => f.write_str(&excerpt(self.name())),
        }
    }
}

impl Plain {
    const ALL: [Self; 8] = [Null, Boolean, Int, Long, Float, Double, Bytes, Text];

    /// Returns the type with this keyword; `None` if there is none.
    pub(super) fn named(keyword: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plain| plain.name() == keyword)
    }

    /// Returns the keyword.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Null => "null",
            Boolean => "boolean",
            Int => "int",
            Long => "long",
            Float => "float",
            Double => "double",
            Bytes => "bytes",
            Text => "string",
        }
    }

    /// Returns the type with this logical type, or with this name in Kafka Connect. An unknown name has no
    /// effect.
    pub(super) fn with_logical(self, name: Option<&str>) -> Type {
        let known = LOGICAL.into_iter().find(|(plain, logical)| *plain == self && Some(*logical) == name);
        known.map_or(Type::Plain(self), |(plain, logical)| Type::Logical(plain, logical))
    }
}
