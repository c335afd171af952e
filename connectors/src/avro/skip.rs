//! Walks past a datum of any writer's schema. A walk skips a field that is not ours, or finds the end of a
//! record that cannot become an event.

use std::collections::HashMap;

use prorata_schemas::body::wire::Wire;
use prorata_schemas::reject::Reject;

use super::limits::DEPTH_MAX;
use super::schema::{Plain, Schema, Type};

/// The form of a datum, as far as its length depends on it.
///
/// Each form but `Exact(0)` takes at least one byte, and no record holds a field of `Exact(0)`. So each step
/// of a walk reads a byte, or goes down one of [`DEPTH_MAX`] levels.
#[derive(Clone, Debug)]
pub(super) enum Skip {
    /// A fixed number of bytes, which may be 0.
    Exact(usize),
    /// An int, a long, or an enum's index.
    Varint,
    /// A length and that many bytes.
    Bytes,
    Array(Box<Skip>),
    Map(Box<Skip>),
    Union(Box<[Skip]>),
    /// A record of variable length, by its index in [`Skips`].
    Record(usize),
}

/// The records of a schema, which may refer to each other.
#[derive(Debug, Default)]
pub(super) struct Skips {
    records: Vec<Box<[Skip]>>,
}

/// A builder of the walks past the types of a schema.
pub(super) struct Skipper<'s> {
    schema: &'s Schema,
    /// Records by their index in the schema.
    known: HashMap<usize, Skip>,
    skips: Skips,
}

impl<'s> Skipper<'s> {
    pub(super) fn new(schema: &'s Schema) -> Self {
        Self { schema, known: HashMap::new(), skips: Skips::default() }
    }

    pub(super) fn finish(self) -> Skips {
        self.skips
    }

    /// Returns the walk past a datum of this type of the schema.
    pub(super) fn skip(&mut self, of: &Type) -> Skip {
        match of {
            Type::Plain(plain) | Type::Logical(plain, _) => match plain {
                Plain::Null => Skip::Exact(0),
                Plain::Boolean => Skip::Exact(1),
                Plain::Float => Skip::Exact(4),
                Plain::Double => Skip::Exact(8),
                Plain::Int | Plain::Long => Skip::Varint,
                Plain::Bytes | Plain::Text => Skip::Bytes,
            },
            Type::Decimal(_) => Skip::Bytes,
            Type::Fixed(fixed) => Skip::Exact(fixed.size),
            Type::Enum(_) => Skip::Varint,
            Type::Array(items) => Skip::Array(Box::new(self.skip(items))),
            Type::Map(values) => Skip::Map(Box::new(self.skip(values))),
            Type::Union(branches) => Skip::Union(branches.iter().map(|branch| self.skip(branch)).collect()),
            Type::Record(_, place) => match self.known.get(place) {
                Some(known) => known.clone(),
                None => self.record(*place),
            },
        }
    }

    fn record(&mut self, place: usize) -> Skip {
        // References to the record within itself use this walk. Data of a record that is a field of itself
        // has no end, and is refused for its depth.
        let walk = self.skips.records.len();
        self.skips.records.push(Box::default());
        self.known.insert(place, Skip::Record(walk));
        let fields = self.schema.fields(place).iter().map(|field| self.skip(&field.of));
        let fields: Box<[Skip]> = fields.filter(|skip| !skip.is_empty()).collect();
        let record = match exact_sum(&fields) {
            Some(sum) => Skip::Exact(sum),
            None => {
                if let Some(slot) = self.skips.records.get_mut(walk) {
                    *slot = fields;
                }
                Skip::Record(walk)
            }
        };
        self.known.insert(place, record.clone());
        record
    }
}

/// Returns the total length of fields, in bytes; `None` if a field has no fixed length. A sum that overflows
/// saturates, because no body has so many bytes.
fn exact_sum(fields: &[Skip]) -> Option<usize> {
    fields.iter().try_fold(0_usize, |sum, field| match field {
        Skip::Exact(size) => Some(sum.saturating_add(*size)),
        _ => None,
    })
}

impl Skip {
    /// Returns whether a datum takes no bytes.
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self, Self::Exact(0))
    }
}

impl Skips {
    /// Moves `wire` past a datum of this form.
    ///
    /// # Errors
    /// `malformed` if lengths and indexes show that the bytes are not such a datum.
    pub(super) fn pass(&self, skip: &Skip, wire: &mut Wire<'_>) -> Result<(), Reject> {
        self.pass_at(skip, wire, 0)
    }

    fn pass_at(&self, skip: &Skip, wire: &mut Wire<'_>, depth: usize) -> Result<(), Reject> {
        #[cfg(test)]
        STEPS.set(STEPS.get() + 1);
        match skip {
            Skip::Exact(size) => wire.take(*size).map(drop),
            Skip::Varint => wire.long().map(drop),
            Skip::Bytes => wire.bytes().map(drop),
            // Unions add no nesting level, because no union is a branch of another.
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
            // Items without bytes are skipped at once, whatever their claimed number.
            if !keys && item.is_empty() {
                continue;
            }
            for _ in 0..entries {
                if keys {
                    wire.bytes()?;
                }
                self.pass_at(item, wire, depth)?;
            }
        }
    }
}

/// Returns the branch that the next index of a union selects.
pub(super) fn branch<'b, T>(branches: &'b [T], wire: &mut Wire<'_>) -> Result<&'b T, Reject> {
    let index = wire.long()?;
    usize::try_from(index)
        .ok()
        .and_then(|index| branches.get(index))
        .ok_or_else(|| Reject::malformed(format!("a union has no branch {index}")))
}

#[cfg(test)]
thread_local! {
    /// The number of types that this thread has visited.
    pub(super) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use prorata_schemas::reject::Reason;
    use serde_json::json;

    use crate::avro::Decoder;

    /// The schema refers to itself. So the schema is shallow, but data can be nested without limit.
    #[test]
    fn skipped_values_have_a_maximum_depth() {
        for (form, inner, one) in [("array", "items", &[2][..]), ("map", "values", &[2, 0])] {
            let fields = json!([{"name": "x", "type": {"type": form, inner: "Other"}}]);
            let schema = json!({"type": "record", "name": "Other", "fields": fields}).to_string();
            let decoder = Decoder::compile(&schema).unwrap();
            let decoded = |depth: usize| {
                let body = [one.repeat(depth), vec![0; depth + 1]].concat();
                decoder.decode(&body).unwrap_err()
            };
            assert_eq!(decoded(31).reason, Reason::UnknownEvent, "{form}");
            assert_eq!(decoded(32).reason, Reason::Malformed, "{form}");
            assert_eq!(decoded(32).message, "data is nested more than 64 levels deep", "{form}");
        }
    }
}
