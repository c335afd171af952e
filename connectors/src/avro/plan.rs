//! Resolution of a writer's schema to our newest one, done once per schema: what to copy, convert, skip and
//! fill in. The rules come from the Avro specification ("Schema Resolution"), with these readings:
//!
//! - The event type is the full name of the writer's record. Names of the types inside it do not matter.
//! - A decimal resolves only from a decimal of the same scale, as bytes or as fixed (which Spark writes). An
//!   instant resolves only from `timestamp-micros` or a plain integer (which Kafka Connect writes). Any other
//!   logical type would change the value silently.
//! - An enum is also read from text, because Kafka Connect writes enums as text.
//! - A union of the writer resolves if any of its branches does. Values of the other branches are refused.
//! - A null in a field with a default reads as the default, because most writers make every field nullable.

use std::collections::HashMap;

use prorata_schemas::body::wire::{put_bytes, put_long};
use serde_json::Value as Json;

use super::error::{ResolveError, UnknownSymbol};
use super::schema::{Enum, Field, Plain, Schema, TIMESTAMP_MICROS, Type};
use super::skip::{Skip, Skipper};

/// The conversion of a writer's datum to one of ours.
#[derive(Debug)]
pub(super) enum Node {
    Null,
    /// A null, which is replaced by these bytes: the default of our field.
    Default(Box<[u8]>),
    Boolean,
    Int,
    Long,
    /// Bytes or text, which have the same encoding. Text is checked when it is read.
    Bytes,
    /// A fixed type of this many bytes, which becomes bytes with their length in front.
    Fixed(usize),
    /// For each of the writer's symbols: its index in our enum, or an error if our enum lacks the symbol.
    Enum(Box<[Result<i64, UnknownSymbol>]>),
    /// Our symbols, which the writer sends as text.
    EnumText(Box<[String]>),
    Array(Box<Node>),
    Map(Box<Node>),
    Record(Box<RecordPlan>),
    /// The branch of our union for a writer's datum that is not a union.
    Into(i64, Box<Node>),
    /// The writer's union. For each branch: its conversion, or the reason why there is none and how to skip
    /// the branch.
    Branches(Box<[Result<Node, (ResolveError, Skip)>]>),
}

/// The conversion of a writer's record to one of ours.
#[derive(Debug)]
pub(super) struct RecordPlan {
    /// The treatment of the writer's fields, in the writer's order. Foreign fields that take no bytes are
    /// left out.
    pub(super) steps: Box<[Step]>,
    /// For each of our fields, in our order: the encoded default if the writer lacks the field.
    pub(super) defaults: Box<[Option<Box<[u8]>>]>,
    /// Whether the steps are already in our order, with no default to fill in.
    pub(super) in_order: bool,
}

/// The treatment of a writer's field that takes bytes.
#[derive(Debug)]
pub(super) enum Step {
    /// Convert the field to our field at this index.
    Keep(usize, Node),
    /// Skip the field, because our schema does not have it.
    Pass(Skip),
}

/// A resolver of one writer's schema to one of ours.
pub(super) struct Resolver<'s, 'k> {
    pub(super) ours: &'s Schema,
    pub(super) theirs: &'s Schema,
    pub(super) skipper: &'k mut Skipper<'s>,
}

impl Resolver<'_, '_> {
    /// Returns the conversion from `writer`, a type of the writer's schema, to `reader`, a type of our
    /// schema. The error is the reason why there is no conversion.
    pub(super) fn node(&mut self, reader: &Type, writer: &Type) -> Result<Node, ResolveError> {
        let mismatch = || ResolveError::Mismatch { writer: writer.to_string(), ours: reader.to_string() };
        Ok(match (reader, writer) {
            (_, Type::Union(branches)) => self.branches(reader, branches)?,
            (Type::Union(branches), _) => self.branch_of(branches, writer)?,
            (Type::Plain(ours), Type::Plain(theirs)) => plain(*ours, *theirs).ok_or_else(mismatch)?,
            (
                Type::Logical(_, TIMESTAMP_MICROS),
                Type::Logical(_, TIMESTAMP_MICROS) | Type::Plain(Plain::Long | Plain::Int),
            ) => Node::Long,
            (Type::Decimal(ours), Type::Decimal(theirs)) if theirs.scale == ours.scale => Node::Bytes,
            (Type::Decimal(ours), Type::Fixed(theirs))
                if theirs.decimal.is_some_and(|theirs| theirs.scale == ours.scale) =>
            {
                Node::Fixed(theirs.size)
            }
            (Type::Enum(ours), Type::Enum(theirs)) => {
                Node::Enum(theirs.symbols.iter().map(|symbol| index_of(ours, symbol)).collect())
            }
            (Type::Enum(ours), Type::Plain(Plain::Text)) => Node::EnumText(ours.symbols.clone().into()),
            (Type::Array(ours), Type::Array(theirs)) => Node::Array(Box::new(self.node(ours, theirs)?)),
            (Type::Map(ours), Type::Map(theirs)) => Node::Map(Box::new(self.node(ours, theirs)?)),
            (Type::Record(_, ours), Type::Record(_, theirs)) => {
                Node::Record(Box::new(self.record(*ours, *theirs)?))
            }
            _ => return Err(mismatch()),
        })
    }

    fn branches(&mut self, reader: &Type, writers: &[Type]) -> Result<Node, ResolveError> {
        let resolved = writers
            .iter()
            .map(|writer| self.node(reader, writer).map_err(|why| (why, self.skipper.skip(writer))));
        let branches: Vec<_> = resolved.collect();
        match branches.iter().find_map(|branch| branch.as_ref().err()) {
            Some((why, _)) if branches.iter().all(Result::is_err) => Err(why.clone()),
            _ => Ok(Node::Branches(branches.into())),
        }
    }

    fn branch_of(&mut self, readers: &[Type], writer: &Type) -> Result<Node, ResolveError> {
        let mut last = ResolveError::EmptyUnion;
        for (index, reader) in (0..).zip(readers) {
            match self.node(reader, writer) {
                Ok(node) => return Ok(Node::Into(index, Box::new(node))),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    fn record(&mut self, ours: usize, theirs: usize) -> Result<RecordPlan, ResolveError> {
        let (our_fields, their_fields) = (self.ours.fields(ours), self.theirs.fields(theirs));
        let mut place_of = HashMap::new();
        let mut defaults = Vec::with_capacity(our_fields.len());
        for (place, field) in our_fields.iter().enumerate() {
            defaults.push(match written_name(field, their_fields) {
                Some(name) => {
                    place_of.insert(name, place);
                    None
                }
                None => Some(default_of(field)?.into_boxed_slice()),
            });
        }
        let mut steps = Vec::with_capacity(their_fields.len());
        for field in their_fields {
            let kept =
                place_of.get(field.name.as_str()).and_then(|place| Some((*place, our_fields.get(*place)?)));
            match kept {
                Some((place, our_field)) => {
                    steps.push(Step::Keep(place, self.field(our_field, field)?));
                }
                None => {
                    let skip = self.skipper.skip(&field.of);
                    if !skip.is_empty() {
                        steps.push(Step::Pass(skip));
                    }
                }
            }
        }
        let kept = steps.iter().filter_map(|step| match step {
            Step::Keep(place, _) => Some(*place),
            Step::Pass(_) => None,
        });
        let in_order = kept.eq(0..our_fields.len());
        Ok(RecordPlan { steps: steps.into(), defaults: defaults.into(), in_order })
    }

    /// Returns the conversion of a field that both schemas have.
    fn field(&mut self, ours: &Field, theirs: &Field) -> Result<Node, ResolveError> {
        let in_field = |source| ResolveError::Field { name: ours.name.clone(), source: Box::new(source) };
        let mut node = self.node(&ours.of, &theirs.of).map_err(in_field)?;
        if let (Node::Branches(branches), Type::Union(writers)) = (&mut node, &theirs.of) {
            for (branch, writer) in branches.iter_mut().zip(writers) {
                if branch.is_err() && matches!(writer, Type::Plain(Plain::Null)) && ours.default.is_some() {
                    *branch = Ok(Node::Default(default_of(ours)?.into()));
                }
            }
        }
        Ok(node)
    }
}

impl Node {
    /// Returns whether this conversion copies a datum byte for byte into a datum of type `ours`.
    pub(super) fn is_identity(&self, schema: &Schema, ours: &Type) -> bool {
        match (self, ours) {
            (Self::Null | Self::Boolean | Self::Int | Self::Long | Self::Bytes, _) => true,
            (Self::Enum(indexes), Type::Enum(ours)) => {
                let same = (0..).zip(indexes).all(|(index, ours)| *ours == Ok(index));
                same && indexes.len() == ours.symbols.len()
            }
            (Self::Array(item), Type::Array(ours)) => item.is_identity(schema, ours),
            (Self::Map(value), Type::Map(ours)) => value.is_identity(schema, ours),
            (Self::Branches(branches), Type::Union(ours)) => {
                let same = (0..).zip(branches).zip(ours).all(|((index, branch), ours)| match branch {
                    Ok(Self::Into(ours_index, node)) => {
                        *ours_index == index && node.is_identity(schema, ours)
                    }
                    _ => false,
                });
                same && branches.len() == ours.len()
            }
            (Self::Record(plan), Type::Record(_, ours)) => {
                let fields = schema.fields(*ours);
                let same = plan.steps.iter().zip(fields).all(|(step, field)| match step {
                    Step::Keep(_, node) => node.is_identity(schema, &field.of),
                    Step::Pass(_) => false,
                });
                same && plan.in_order && plan.steps.len() == fields.len()
            }
            _ => false,
        }
    }
}

/// Returns the conversion of the writer's plain type to our plain type; `None` if there is none.
fn plain(ours: Plain, theirs: Plain) -> Option<Node> {
    Some(match (ours, theirs) {
        (Plain::Null, Plain::Null) => Node::Null,
        (Plain::Boolean, Plain::Boolean) => Node::Boolean,
        (Plain::Int, Plain::Int) => Node::Int,
        (Plain::Long, Plain::Long | Plain::Int) => Node::Long,
        (Plain::Text | Plain::Bytes, Plain::Text | Plain::Bytes) => Node::Bytes,
        _ => return None,
    })
}

/// Returns the writer's name for our field: the field's own name, or else one of its aliases. Returns `None`
/// if the writer lacks the field.
fn written_name<'s>(field: &Field, theirs: &'s [Field]) -> Option<&'s str> {
    let mut names = std::iter::once(&field.name).chain(&field.aliases);
    names
        .find_map(|name| theirs.iter().find(|theirs| theirs.name == *name))
        .map(|theirs| theirs.name.as_str())
}

fn index_of(ours: &Enum, symbol: &str) -> Result<i64, UnknownSymbol> {
    let find =
        |symbol: &str| (0..).zip(&ours.symbols).find(|(_, ours)| *ours == symbol).map(|(index, _)| index);
    find(symbol).or_else(|| find(ours.default.as_deref()?)).ok_or_else(|| UnknownSymbol(symbol.to_owned()))
}

/// Returns the encoded default of a field that the writer does not have.
fn default_of(field: &Field) -> Result<Vec<u8>, ResolveError> {
    let mut out = Vec::new();
    let missing = || ResolveError::Required(field.name.clone());
    let default = field.default.as_ref().ok_or_else(missing)?;
    put_default(&field.of, default, &mut out).ok_or_else(missing)?;
    Ok(out)
}

fn put_default(of: &Type, default: &Json, out: &mut Vec<u8>) -> Option<()> {
    match (of, default) {
        (Type::Union(branches), _) => {
            put_long(out, 0);
            put_default(branches.first()?, default, out)?;
        }
        (Type::Plain(Plain::Null), Json::Null) => {}
        (Type::Plain(Plain::Boolean), Json::Bool(value)) => out.push((*value).into()),
        (
            Type::Plain(Plain::Int | Plain::Long) | Type::Logical(_, TIMESTAMP_MICROS),
            Json::Number(number),
        ) => put_long(out, number.as_i64()?),
        (Type::Plain(Plain::Text), Json::String(text)) => put_bytes(out, text.as_bytes()),
        (Type::Enum(ours), Json::String(symbol)) => put_long(out, index_of(ours, symbol).ok()?),
        (Type::Array(_), Json::Array(items)) if items.is_empty() => put_long(out, 0),
        (Type::Map(_), Json::Object(entries)) if entries.is_empty() => put_long(out, 0),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(reader: &str, writer: &str) -> Result<(bool, Node), ResolveError> {
        let [ours, theirs] = [reader, writer].map(|text| Schema::parse(text).unwrap());
        let mut skipper = Skipper::new(&theirs);
        let mut resolver = Resolver { ours: &ours, theirs: &theirs, skipper: &mut skipper };
        let node = resolver.node(&ours.root, &theirs.root)?;
        Ok((node.is_identity(&ours, &ours.root), node))
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
    fn defaults_of_every_form_apply_and_a_type_named_twice_resolves_twice() {
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
    fn a_null_becomes_the_default_of_its_field_or_is_refused() {
        let theirs = record(r#"{"name": "b", "type": ["boolean", "null"]}"#);
        let with_default = record(r#"{"name": "b", "type": "boolean", "default": true}"#);
        let Ok((false, Node::Record(node))) = plan(&with_default, &theirs) else { unreachable!() };
        let [Step::Keep(0, Node::Branches(branches))] = &*node.steps else { unreachable!() };
        assert!(matches!(&branches[..], [Ok(Node::Boolean), Ok(Node::Default(bytes))] if **bytes == [1]));
        let required = record(r#"{"name": "b", "type": "boolean"}"#);
        let Ok((false, Node::Record(node))) = plan(&required, &theirs) else { unreachable!() };
        let [Step::Keep(0, Node::Branches(branches))] = &*node.steps else { unreachable!() };
        assert!(matches!(&branches[..], [Ok(Node::Boolean), Err(_)]));
    }

    #[test]
    fn a_default_that_does_not_fit_leaves_its_field_required() {
        let ours = record(r#"{"name": "d", "type": "double", "default": 1.5}"#);
        assert!(plan(&ours, &record("")).unwrap_err() == ResolveError::Required("d".to_owned()));
    }
}
