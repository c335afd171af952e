//! Walking past a datum of any writer's schema: what a record holds beyond our fields is passed over, and the
//! end of a record that cannot become an event is found.

use std::collections::HashMap;

use apache_avro::Schema;
use apache_avro::schema::{InnerDecimalSchema, Name, UuidSchema};
use prorata_schemas::body::wire::Wire;
use prorata_schemas::reject::Reject;

use super::error::ResolveError;
use super::names::named;

/// Records, arrays and maps within each other are walked this deep; deeper data is `malformed`. Schemas may
/// recurse, stacks may not.
const DEPTH_MAX: usize = 64;

/// The form of a datum, as far as its length goes.
#[derive(Clone, Debug)]
pub(super) enum Skip {
    /// A fixed number of bytes, which may be 0.
    Exact(usize),
    /// An int, a long, an enum's index.
    Varint,
    /// A length and that many bytes.
    Bytes,
    Array(Box<Skip>),
    Map(Box<Skip>),
    Union(Box<[Skip]>),
    /// A record, by its place in [`Skips`].
    Record(usize),
}

/// The records of a schema, which may name each other.
#[derive(Debug, Default)]
pub(super) struct Skips {
    records: Vec<Box<[Skip]>>,
}

/// Builds the walk of a schema.
pub(super) struct Skipper<'s> {
    names: &'s HashMap<Name, &'s Schema>,
    places: HashMap<&'s Name, usize>,
    skips: Skips,
}

impl<'s> Skipper<'s> {
    pub(super) fn new(names: &'s HashMap<Name, &'s Schema>) -> Self {
        Self { names, places: HashMap::new(), skips: Skips::default() }
    }

    pub(super) fn finish(self) -> Skips {
        self.skips
    }

    /// The walk past a datum of `schema`, or the name that it leaves undefined.
    pub(super) fn skip(&mut self, schema: &'s Schema) -> Result<Skip, ResolveError> {
        Ok(match schema {
            Schema::Null => Skip::Exact(0),
            Schema::Boolean => Skip::Exact(1),
            Schema::Float => Skip::Exact(4),
            Schema::Double => Skip::Exact(8),
            Schema::Int
            | Schema::Long
            | Schema::Enum(_)
            | Schema::Date
            | Schema::TimeMillis
            | Schema::TimeMicros
            | Schema::TimestampMillis
            | Schema::TimestampMicros
            | Schema::TimestampNanos
            | Schema::LocalTimestampMillis
            | Schema::LocalTimestampMicros
            | Schema::LocalTimestampNanos => Skip::Varint,
            Schema::Bytes | Schema::String | Schema::BigDecimal => Skip::Bytes,
            Schema::Uuid(UuidSchema::Bytes | UuidSchema::String) => Skip::Bytes,
            Schema::Uuid(UuidSchema::Fixed(fixed)) | Schema::Fixed(fixed) | Schema::Duration(fixed) => {
                Skip::Exact(fixed.size)
            }
            Schema::Decimal(decimal) => match &decimal.inner {
                InnerDecimalSchema::Bytes => Skip::Bytes,
                InnerDecimalSchema::Fixed(fixed) => Skip::Exact(fixed.size),
            },
            Schema::Array(array) => Skip::Array(Box::new(self.skip(&array.items)?)),
            Schema::Map(map) => Skip::Map(Box::new(self.skip(&map.types)?)),
            Schema::Union(union) => Skip::Union(
                union.variants().iter().map(|variant| self.skip(variant)).collect::<Result<_, _>>()?,
            ),
            Schema::Ref { name } => self.skip(named(self.names, name)?)?,
            Schema::Record(record) => match self.places.get(&record.name) {
                Some(place) => Skip::Record(*place),
                None => {
                    let place = self.skips.records.len();
                    self.skips.records.push(Box::default());
                    self.places.insert(&record.name, place);
                    let fields = record
                        .fields
                        .iter()
                        .map(|field| self.skip(&field.schema))
                        .collect::<Result<_, _>>()?;
                    if let Some(slot) = self.skips.records.get_mut(place) {
                        *slot = fields;
                    }
                    Skip::Record(place)
                }
            },
        })
    }
}

impl Skips {
    /// Moves `wire` past a datum of this form.
    ///
    /// # Errors
    /// `malformed` when the bytes are no such datum, as far as lengths and indexes show.
    pub(super) fn pass(&self, skip: &Skip, wire: &mut Wire<'_>) -> Result<(), Reject> {
        self.pass_at(skip, wire, 0)
    }

    fn pass_at(&self, skip: &Skip, wire: &mut Wire<'_>, depth: usize) -> Result<(), Reject> {
        match skip {
            Skip::Exact(size) => wire.take(*size).map(drop),
            Skip::Varint => wire.long().map(drop),
            Skip::Bytes => wire.bytes().map(drop),
            // Unions nest nothing by themselves: none is a branch of another.
            Skip::Union(variants) => {
                let variant = branch(variants, wire)?;
                self.pass_at(variant, wire, depth)
            }
            Skip::Array(_) | Skip::Map(_) | Skip::Record(_) if depth == DEPTH_MAX => {
                Err(Reject::malformed(format!("data is nested more than {DEPTH_MAX} levels deep")))
            }
            Skip::Array(item) => self.pass_blocks(item, false, wire, depth + 1),
            Skip::Map(value) => self.pass_blocks(value, true, wire, depth + 1),
            Skip::Record(place) => {
                let fields = self.records.get(*place).map_or(&[][..], AsRef::as_ref);
                fields.iter().try_for_each(|field| self.pass_at(field, wire, depth + 1))
            }
        }
    }

    fn pass_blocks(&self, item: &Skip, keys: bool, wire: &mut Wire<'_>, depth: usize) -> Result<(), Reject> {
        loop {
            let entries = wire.block()?;
            if entries == 0 {
                return Ok(());
            }
            for _ in 0..entries {
                let before = wire.rest().len();
                if keys {
                    wire.bytes()?;
                }
                self.pass_at(item, wire, depth)?;
                // Whether an item takes bytes lies in its schema: if one takes none, no other does, and a
                // hostile count costs nothing.
                if wire.rest().len() == before {
                    break;
                }
            }
        }
    }
}

/// The branch that the next index of a union chooses.
pub(super) fn branch<'b, T>(branches: &'b [T], wire: &mut Wire<'_>) -> Result<&'b T, Reject> {
    let index = wire.long()?;
    usize::try_from(index)
        .ok()
        .and_then(|index| branches.get(index))
        .ok_or_else(|| Reject::malformed(format!("a union has no branch {index}")))
}

#[cfg(test)]
mod tests {
    use prorata_schemas::reject::Reason;
    use serde_json::json;

    use crate::avro::Decoder;

    #[test]
    fn what_is_passed_over_is_nested_only_so_deep_whatever_nests_it() {
        for (form, inner, one) in [("array", "items", &[2][..]), ("map", "values", &[2, 0])] {
            let decoded = |depth: usize| {
                let nested = (0..depth).fold(json!("int"), |item, _| json!({"type": form, inner: item}));
                let fields = json!([{"name": "x", "type": nested}]);
                let schema = json!({"type": "record", "name": "acme.Other", "fields": fields});
                let body = [one.repeat(depth), vec![0; depth + 1]].concat();
                Decoder::compile(&schema.to_string()).unwrap().decode(&body).unwrap_err()
            };
            // The record around them is the first.
            assert_eq!(decoded(63).reason, Reason::UnknownEvent, "{form}");
            assert_eq!(decoded(64).reason, Reason::Malformed, "{form}");
            assert_eq!(decoded(64).message, "data is nested more than 64 levels deep", "{form}");
        }
    }
}
