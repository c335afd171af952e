//! Resolution of a writer's schema to our newest one, done once per schema: what to copy, convert, pass over
//! and fill in. The rules are those of the Avro specification ("Schema Resolution"), with these readings:
//!
//! - the event type is the full name of the writer's record; names of the types inside it do not matter;
//! - a decimal resolves only from a decimal of the same scale, and an instant only from `timestamp-micros` or
//!   a plain integer (which is how Kafka Connect writes one): any other logical type would change the value
//!   in silence;
//! - an enum is read from text too, which is what Kafka Connect makes of one;
//! - a union of the writer resolves if any of its branches does; the others are refused where they occur.

use std::collections::HashMap;

use apache_avro::Schema;
use apache_avro::schema::{EnumSchema, InnerDecimalSchema, Name, RecordField, RecordSchema, UuidSchema};
use prorata_schemas::body::wire::{put_bytes, put_long};
use serde_json::Value as Json;

use super::error::{ResolveError, UnknownSymbol};
use super::names::named;
use super::skip::{Skip, Skipper};

/// How a datum of the writer becomes one of ours.
#[derive(Debug)]
pub(super) enum Node {
    Null,
    Boolean,
    Int,
    Long,
    /// Bytes or text: their form is the same, and text is checked where it is read.
    Bytes,
    /// Our index of each of the writer's symbols, or the symbol that we do not have.
    Enum(Box<[Result<i64, UnknownSymbol>]>),
    /// Our symbols, as the writer sends them.
    EnumText(Box<[String]>),
    Array(Box<Node>),
    Map(Box<Node>),
    Record(Box<RecordPlan>),
    /// The branch of our union that takes a writer's datum which is none.
    Into(i64, Box<Node>),
    /// The writer's union: each branch resolved, or why it is not and how to pass it.
    Branches(Box<[Result<Node, (ResolveError, Skip)>]>),
}

/// How a record of the writer becomes one of ours.
#[derive(Debug)]
pub(super) struct RecordPlan {
    /// The writer's fields in its order: the place of ours, or nothing of ours.
    pub(super) steps: Box<[Step]>,
    /// Our fields in our order: the default where the writer has none.
    pub(super) defaults: Box<[Option<Box<[u8]>>]>,
    /// Whether the steps already come in our order, with nothing to fill in.
    pub(super) in_order: bool,
}

/// What is done with one field of the writer.
#[derive(Debug)]
pub(super) enum Step {
    /// It becomes our field of this place.
    Keep(usize, Node),
    /// It is none of ours.
    Pass(Skip),
}

/// Resolves one writer's schema to ours.
pub(super) struct Resolver<'s, 'k> {
    pub(super) names: &'s HashMap<Name, &'s Schema>,
    pub(super) skipper: &'k mut Skipper<'s>,
}

impl<'s> Resolver<'s, '_> {
    /// The plan from `writer` to `reader`, or why there is none.
    pub(super) fn node(&mut self, reader: &Schema, writer: &'s Schema) -> Result<Node, ResolveError> {
        Ok(match (reader, writer) {
            (_, Schema::Ref { name }) => self.node(reader, named(self.names, name)?)?,
            (_, Schema::Union(union)) => self.branches(reader, union.variants())?,
            (Schema::Union(union), _) => self.branch_of(union.variants(), writer)?,
            (Schema::Null, Schema::Null) => Node::Null,
            (Schema::Boolean, Schema::Boolean) => Node::Boolean,
            (Schema::Int, Schema::Int) => Node::Int,
            (Schema::Long, Schema::Long | Schema::Int) => Node::Long,
            (Schema::TimestampMicros, Schema::TimestampMicros | Schema::Long | Schema::Int) => Node::Long,
            (Schema::String, Schema::String | Schema::Bytes | Schema::Uuid(UuidSchema::String))
            | (Schema::Bytes, Schema::Bytes | Schema::String) => Node::Bytes,
            (Schema::Decimal(ours), Schema::Decimal(theirs))
                if theirs.scale == ours.scale && matches!(theirs.inner, InnerDecimalSchema::Bytes) =>
            {
                Node::Bytes
            }
            (Schema::Enum(ours), Schema::Enum(theirs)) => {
                Node::Enum(theirs.symbols.iter().map(|symbol| index_of(ours, symbol)).collect())
            }
            (Schema::Enum(ours), Schema::String) => Node::EnumText(ours.symbols.clone().into()),
            (Schema::Array(ours), Schema::Array(theirs)) => {
                Node::Array(Box::new(self.node(&ours.items, &theirs.items)?))
            }
            (Schema::Map(ours), Schema::Map(theirs)) => {
                Node::Map(Box::new(self.node(&ours.types, &theirs.types)?))
            }
            (Schema::Record(ours), Schema::Record(theirs)) => {
                Node::Record(Box::new(self.record(ours, theirs)?))
            }
            _ => return Err(ResolveError::Mismatch { writer: describe(writer), ours: describe(reader) }),
        })
    }

    fn branches(&mut self, reader: &Schema, variants: &'s [Schema]) -> Result<Node, ResolveError> {
        let mut branches = Vec::with_capacity(variants.len());
        for variant in variants {
            branches.push(match self.node(reader, variant) {
                Ok(node) => Ok(node),
                Err(why) => Err((why, self.skipper.skip(variant)?)),
            });
        }
        match branches.iter().find_map(|branch| branch.as_ref().err()) {
            Some((why, _)) if branches.iter().all(Result::is_err) => Err(why.clone()),
            _ => Ok(Node::Branches(branches.into())),
        }
    }

    fn branch_of(&mut self, variants: &[Schema], writer: &'s Schema) -> Result<Node, ResolveError> {
        let mut last = ResolveError::EmptyUnion;
        for (index, variant) in (0..).zip(variants) {
            match self.node(variant, writer) {
                Ok(node) => return Ok(Node::Into(index, Box::new(node))),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    fn record(&mut self, ours: &RecordSchema, theirs: &'s RecordSchema) -> Result<RecordPlan, ResolveError> {
        let mut place_of = HashMap::new();
        let mut defaults = Vec::with_capacity(ours.fields.len());
        for (place, field) in ours.fields.iter().enumerate() {
            defaults.push(match written_name(field, theirs) {
                Some(name) => {
                    place_of.insert(name, place);
                    None
                }
                None => Some(default_of(field)?.into_boxed_slice()),
            });
        }
        let mut steps = Vec::with_capacity(theirs.fields.len());
        for field in &theirs.fields {
            let kept =
                place_of.get(field.name.as_str()).and_then(|place| Some((*place, ours.fields.get(*place)?)));
            steps.push(match kept {
                Some((place, our_field)) => {
                    let node = self.node(&our_field.schema, &field.schema);
                    let in_field = |source| ResolveError::Field {
                        name: our_field.name.clone(),
                        source: Box::new(source),
                    };
                    Step::Keep(place, node.map_err(in_field)?)
                }
                None => Step::Pass(self.skipper.skip(&field.schema)?),
            });
        }
        let kept = steps.iter().filter_map(|step| match step {
            Step::Keep(place, _) => Some(*place),
            Step::Pass(_) => None,
        });
        let in_order = kept.eq(0..ours.fields.len());
        Ok(RecordPlan { steps: steps.into(), defaults: defaults.into(), in_order })
    }
}

impl Node {
    /// Whether a datum is taken byte for byte.
    pub(super) fn is_identity(&self, ours: &Schema) -> bool {
        match (self, ours) {
            (Self::Null | Self::Boolean | Self::Int | Self::Long | Self::Bytes, _) => true,
            (Self::Enum(indexes), Schema::Enum(ours)) => {
                let same = (0..).zip(indexes).all(|(index, ours)| *ours == Ok(index));
                same && indexes.len() == ours.symbols.len()
            }
            (Self::Array(item), Schema::Array(ours)) => item.is_identity(&ours.items),
            (Self::Map(value), Schema::Map(ours)) => value.is_identity(&ours.types),
            (Self::Branches(branches), Schema::Union(ours)) => {
                let same =
                    (0..).zip(branches).zip(ours.variants()).all(|((index, branch), ours)| match branch {
                        Ok(Self::Into(ours_index, node)) => *ours_index == index && node.is_identity(ours),
                        _ => false,
                    });
                same && branches.len() == ours.variants().len()
            }
            (Self::Record(plan), Schema::Record(ours)) => {
                let same = plan.steps.iter().zip(&ours.fields).all(|(step, field)| match step {
                    Step::Keep(_, node) => node.is_identity(&field.schema),
                    Step::Pass(_) => false,
                });
                same && plan.in_order && plan.steps.len() == ours.fields.len()
            }
            _ => false,
        }
    }
}

/// The writer's name of our field: the same, or else one of our aliases.
fn written_name<'s>(field: &RecordField, theirs: &'s RecordSchema) -> Option<&'s str> {
    let mut names = std::iter::once(&field.name).chain(&field.aliases);
    names
        .find_map(|name| theirs.fields.iter().find(|theirs| theirs.name == *name))
        .map(|theirs| theirs.name.as_str())
}

fn index_of(ours: &EnumSchema, symbol: &str) -> Result<i64, UnknownSymbol> {
    let find =
        |symbol: &str| (0..).zip(&ours.symbols).find(|(_, ours)| *ours == symbol).map(|(index, _)| index);
    find(symbol).or_else(|| find(ours.default.as_deref()?)).ok_or_else(|| UnknownSymbol(symbol.to_owned()))
}

/// The bytes of a field that the writer does not have.
fn default_of(field: &RecordField) -> Result<Vec<u8>, ResolveError> {
    let mut out = Vec::new();
    let missing = || ResolveError::Required(field.name.clone());
    let default = field.default.as_ref().ok_or_else(missing)?;
    put_default(&field.schema, default, &mut out).ok_or_else(missing)?;
    Ok(out)
}

fn put_default(schema: &Schema, default: &Json, out: &mut Vec<u8>) -> Option<()> {
    match (schema, default) {
        (Schema::Union(union), _) => {
            put_long(out, 0);
            put_default(union.variants().first()?, default, out)?;
        }
        (Schema::Null, Json::Null) => {}
        (Schema::Boolean, Json::Bool(value)) => out.push((*value).into()),
        (Schema::Int | Schema::Long | Schema::TimestampMicros, Json::Number(number)) => {
            put_long(out, number.as_i64()?);
        }
        (Schema::String, Json::String(text)) => put_bytes(out, text.as_bytes()),
        (Schema::Enum(ours), Json::String(symbol)) => put_long(out, index_of(ours, symbol).ok()?),
        (Schema::Array(_), Json::Array(items)) if items.is_empty() => put_long(out, 0),
        (Schema::Map(_), Json::Object(entries)) if entries.is_empty() => put_long(out, 0),
        _ => return None,
    }
    Some(())
}

/// A type in the words of its schema.
fn describe(schema: &Schema) -> String {
    match schema {
        Schema::Decimal(decimal) => format!("decimal({},{})", decimal.precision, decimal.scale),
        _ => match schema.name() {
            Some(name) => name.to_string(),
            None => format!("{:?}", apache_avro::schema::SchemaKind::from(schema)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(reader: &str, writer: &str) -> Result<(bool, Node), ResolveError> {
        let [reader, writer] = [reader, writer].map(|text| Schema::parse_str(text).unwrap());
        let mut names = HashMap::new();
        super::super::names::collect(&writer, &mut names);
        let mut skipper = Skipper::new(&names);
        let node = Resolver { names: &names, skipper: &mut skipper }.node(&reader, &writer)?;
        Ok((node.is_identity(&reader), node))
    }

    fn record(fields: &str) -> String {
        format!(r#"{{"type": "record", "name": "R", "fields": [{fields}]}}"#)
    }

    #[test]
    fn our_alias_finds_the_writers_field_unless_it_has_our_name_too() {
        let ours = record(r#"{"name": "a", "aliases": ["b"], "type": "long"}"#);
        let (identity, _) = plan(&ours, &record(r#"{"name": "b", "type": "int"}"#)).unwrap();
        assert!(identity, "an int is a long byte for byte");
        let both = record(r#"{"name": "b", "type": "string"}, {"name": "a", "type": "long"}"#);
        let Ok((false, Node::Record(plan))) = plan(&ours, &both) else { unreachable!() };
        assert!(matches!(plan.steps[..], [Step::Pass(_), Step::Keep(0, Node::Long)]));
    }

    #[test]
    fn our_default_symbol_stands_for_symbols_that_we_do_not_have() {
        let ours = r#"{"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "B"}"#;
        let theirs = r#"{"type": "enum", "name": "E", "symbols": ["C", "A"]}"#;
        let Ok((false, Node::Enum(indexes))) = plan(ours, theirs) else { unreachable!() };
        assert_eq!(*indexes, [Ok(1), Ok(0)]);
    }

    #[test]
    fn defaults_of_every_form_are_filled_in_and_a_type_named_twice_resolves_twice() {
        let fields = [
            r#"{"name": "n", "type": ["null", "int"], "default": null}"#,
            r#"{"name": "b", "type": "boolean", "default": true}"#,
            r#"{"name": "i", "type": "int", "default": -2}"#,
            r#"{"name": "s", "type": "string", "default": "x"}"#,
            r#"{"name": "a", "type": {"type": "array", "items": "int"}, "default": []}"#,
            r#"{"name": "m", "type": {"type": "map", "values": "int"}, "default": {}}"#,
            r#"{"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "default": "B"}"#,
        ];
        let Ok((false, Node::Record(node))) = plan(&record(&fields.join(",")), &record("")) else {
            unreachable!()
        };
        let filled: Vec<u8> =
            node.defaults.iter().flat_map(|default| default.clone().unwrap().into_vec()).collect();
        assert_eq!(filled, [0, 1, 3, 2, b'x', 0, 0, 2]);

        let twice =
            r#"{"name": "p", "type": {"type": "fixed", "name": "F", "size": 3}}, {"name": "q", "type": "F"}"#;
        let Ok((false, Node::Record(node))) = plan(&record(""), &record(twice)) else { unreachable!() };
        assert!(matches!(node.steps[..], [Step::Pass(Skip::Exact(3)), Step::Pass(Skip::Exact(3))]));
    }

    #[test]
    fn a_default_that_does_not_fit_leaves_its_field_required() {
        let ours = record(r#"{"name": "d", "type": "double", "default": 1.5}"#);
        assert!(plan(&ours, &record("")).unwrap_err() == ResolveError::Required("d".to_owned()));
    }
}
