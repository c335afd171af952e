//! The parser of schemas.
//!
//! A writer's schema may be hostile. A library may take unbounded memory or time for such a schema:
//! `apache-avro` 0.22 does so for five kinds of schemas of a few kilobytes. Here each part of the text is
//! visited once. Text, names, types, fields and depth are bounded, and a named type is never copied.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use prorata_schemas::reject::excerpt;
use serde_json::Value as Json;

use super::error::{SchemaError, SchemaFault};
use super::limits::{DEPTH_MAX, FIELDS_MAX, NAME_BYTES_MAX, NAMED_MAX, SCHEMA_BYTES_MAX};
use super::schema::{Decimal, Enum, Field, Fixed, Plain, RecordType, Schema, Type};

impl Schema {
    /// Parses a schema.
    ///
    /// # Errors
    /// If the text is not an Avro schema, or exceeds a bound.
    pub(crate) fn parse(text: &str) -> Result<Self, SchemaError> {
        if text.len() > SCHEMA_BYTES_MAX {
            return Err(SchemaFault::TooLong(text.len()).into());
        }
        // The JSON parser refuses texts nested more than 128 deep, so recursion is safe.
        let json: Json = serde_json::from_str(text)?;
        let mut parser = Parser::default();
        let root = parser.parse(&json, Place::default())?;
        Ok(Self { root, records: parser.records })
    }
}

/// The context of a type in a schema.
#[derive(Clone, Copy, Default)]
struct Place<'n> {
    /// The namespace of names that have none.
    namespace: &'n str,
    /// The number of enclosing records, arrays and maps.
    depth: usize,
}

impl<'n> Place<'n> {
    fn within(self, namespace: &'n str) -> Self {
        Self { namespace, depth: self.depth + 1 }
    }
}

type Parsed<T> = Result<T, SchemaFault>;

#[derive(Default)]
struct Parser {
    records: Vec<RecordType>,
    named: HashMap<String, Type>,
    fields: usize,
}

impl Parser {
    fn parse(&mut self, json: &Json, place: Place<'_>) -> Parsed<Type> {
        match json {
            Json::String(name) => self.reference(name, place),
            Json::Array(branches) => self.union(branches, place),
            Json::Object(_) => match json.get("type") {
                Some(Json::String(form)) => self.form(form, json, place),
                // The specification does not have this form, but some libraries write it.
                Some(inner) => Ok(match self.parse(inner, place)? {
                    Type::Plain(plain) => plain_of(plain, json),
                    other => other,
                }),
                None => Err(SchemaFault::Lacks("a type".into(), "type")),
            },
            _ => Err(SchemaFault::NoType),
        }
    }

    fn form(&mut self, form: &str, json: &Json, place: Place<'_>) -> Parsed<Type> {
        let nests = matches!(form, "record" | "array" | "map");
        if nests && place.depth == DEPTH_MAX {
            return Err(SchemaFault::TooDeep);
        }
        match form {
            "record" => self.record(json, place),
            "enum" => self.symbols(json, place),
            "fixed" => self.fixed(json, place),
            "array" => Ok(Type::Array(Box::new(self.part(json, "items", place)?))),
            "map" => Ok(Type::Map(Box::new(self.part(json, "values", place)?))),
            name => match Plain::named(name) {
                Some(plain) => Ok(plain_of(plain, json)),
                None => self.reference(name, place),
            },
        }
    }

    fn part(&mut self, json: &Json, key: &'static str, place: Place<'_>) -> Parsed<Type> {
        let part = json.get(key).ok_or_else(|| SchemaFault::Lacks("an array or map".into(), key))?;
        self.parse(part, place.within(place.namespace))
    }

    /// Returns a type by its name. Inside a namespace, Java writers also refer to types that have no
    /// namespace.
    fn reference(&mut self, name: &str, place: Place<'_>) -> Parsed<Type> {
        if let Some(plain) = Plain::named(name) {
            return Ok(Type::Plain(plain));
        }
        let known = self.named.get(&full_name(name, place.namespace)).or_else(|| self.named.get(name));
        known.cloned().ok_or_else(|| SchemaFault::Undefined(excerpt(name)))
    }

    fn union(&mut self, branches: &[Json], place: Place<'_>) -> Parsed<Type> {
        let parsed: Vec<Type> =
            branches.iter().map(|branch| self.parse(branch, place)).collect::<Parsed<_>>()?;
        let mut names = HashSet::new();
        for branch in &parsed {
            if matches!(branch, Type::Union(_)) {
                return Err(SchemaFault::NestedUnion);
            }
            if !names.insert(branch.name()) {
                return Err(SchemaFault::Branches(excerpt(branch.name())));
            }
        }
        Ok(Type::Union(parsed.into()))
    }

    fn record(&mut self, json: &Json, place: Place<'_>) -> Parsed<Type> {
        let name = name_of(json, place.namespace)?;
        let at = self.records.len();
        self.records.push(RecordType::default());
        let record = Type::Record(name.as_str().into(), at);
        self.define(&name, record.clone())?;
        let listed = list(json, "fields").ok_or_else(|| SchemaFault::Lacks(excerpt(&name), "fields"))?;
        self.fields += listed.len();
        if self.fields > FIELDS_MAX {
            return Err(SchemaFault::TooManyFields);
        }
        let namespace = name.rsplit_once('.').map_or("", |(namespace, _)| namespace);
        let mut names = HashSet::new();
        let mut fields = Vec::with_capacity(listed.len());
        for field in listed {
            let field_name = text(field, "name").ok_or_else(|| SchemaFault::Lacks(excerpt(&name), "name"))?;
            check_part(field_name)?;
            if !names.insert(field_name) {
                return Err(SchemaFault::Twice(format!("{}.{}", excerpt(&name), excerpt(field_name))));
            }
            let of = field.get("type").ok_or_else(|| SchemaFault::Lacks(excerpt(field_name), "type"))?;
            fields.push(Field {
                name: field_name.to_owned(),
                aliases: texts(field, "aliases"),
                default: field.get("default").cloned(),
                of: self.parse(of, place.within(namespace))?,
            });
        }
        if let Some(slot) = self.records.get_mut(at) {
            *slot = RecordType { aliases: texts(json, "aliases"), fields };
        }
        Ok(record)
    }

    fn symbols(&mut self, json: &Json, place: Place<'_>) -> Parsed<Type> {
        let name = name_of(json, place.namespace)?;
        let lacks = || SchemaFault::Lacks(excerpt(&name), "symbols");
        let listed = list(json, "symbols").ok_or_else(lacks)?;
        let mut symbols = Vec::with_capacity(listed.len());
        let mut known = HashSet::new();
        for symbol in listed {
            let symbol = symbol.as_str().ok_or_else(lacks)?;
            check_part(symbol)?;
            if !known.insert(symbol) {
                return Err(SchemaFault::Twice(format!("{}.{}", excerpt(&name), excerpt(symbol))));
            }
            symbols.push(symbol.to_owned());
        }
        let default = text(json, "default").map(str::to_owned);
        let of = Type::Enum(Arc::new(Enum { name: name.clone(), symbols, default }));
        self.define(&name, of.clone())?;
        Ok(of)
    }

    fn fixed(&mut self, json: &Json, place: Place<'_>) -> Parsed<Type> {
        let name = name_of(json, place.namespace)?;
        let size = json.get("size").and_then(Json::as_u64).and_then(|size| usize::try_from(size).ok());
        let size = size.ok_or_else(|| SchemaFault::Lacks(excerpt(&name), "size"))?;
        let of = Type::Fixed(Arc::new(Fixed { name: name.clone(), size, decimal: decimal(json) }));
        self.define(&name, of.clone())?;
        Ok(of)
    }

    fn define(&mut self, name: &str, of: Type) -> Parsed<()> {
        if self.named.len() == NAMED_MAX {
            return Err(SchemaFault::TooManyTypes);
        }
        match self.named.insert(name.to_owned(), of) {
            Some(_) => Err(SchemaFault::Twice(excerpt(name))),
            None => Ok(()),
        }
    }
}

fn text<'j>(json: &'j Json, key: &str) -> Option<&'j str> {
    json.get(key).and_then(Json::as_str)
}

fn list<'j>(json: &'j Json, key: &str) -> Option<&'j Vec<Json>> {
    json.get(key).and_then(Json::as_array)
}

fn texts(json: &Json, key: &str) -> Vec<String> {
    let listed = list(json, key).into_iter().flatten();
    listed.filter_map(Json::as_str).map(str::to_owned).collect()
}

fn plain_of(plain: Plain, json: &Json) -> Type {
    match decimal(json) {
        Some(decimal) if plain == Plain::Bytes => Type::Decimal(decimal),
        _ => plain.with_logical(text(json, "logicalType").or_else(|| text(json, "connect.name"))),
    }
}

/// Returns the decimal that a type declares; `None` if it declares none. As the specification requires, a
/// decimal with an invalid precision or scale is ignored.
fn decimal(json: &Json) -> Option<Decimal> {
    if text(json, "logicalType") != Some("decimal") {
        return None;
    }
    let precision = json.get("precision")?.as_u64()?;
    let scale = json.get("scale").map_or(Some(0), Json::as_u64)?;
    (precision > 0 && scale <= precision).then_some(Decimal { precision, scale })
}

/// Returns the full name of the type that `json` defines.
fn name_of(json: &Json, namespace: &str) -> Parsed<String> {
    let name = text(json, "name").ok_or_else(|| SchemaFault::Lacks("a named type".into(), "name"))?;
    let full = full_name(name, text(json, "namespace").unwrap_or(namespace));
    if full.len() > NAME_BYTES_MAX {
        return Err(SchemaFault::LongName(full.len()));
    }
    full.split('.').try_for_each(check_part)?;
    Ok(full)
}

/// Returns the name qualified with this namespace, unless the name already has a namespace.
fn full_name(name: &str, namespace: &str) -> String {
    if namespace.is_empty() || name.contains('.') { name.to_owned() } else { format!("{namespace}.{name}") }
}

/// Checks a name without namespace.
fn check_part(name: &str) -> Parsed<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(SchemaFault::LongName(name.len()));
    }
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let starts = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    if is_word && starts { Ok(()) } else { Err(SchemaFault::Name(excerpt(name))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        Schema::parse(text).map(|schema| format!("{:?}", schema.root)).map_err(|error| error.to_string())
    }

    /// Returns the type of the second field of a record `a.b.R`. The types of both fields are given.
    fn second(first: &str, second: &str) -> Result<String, String> {
        let fields = format!(r#"{{"name": "x", "type": {first}}}, {{"name": "y", "type": {second}}}"#);
        let text = format!(r#"{{"type": "record", "name": "a.b.R", "fields": [{fields}]}}"#);
        let schema = Schema::parse(&text).map_err(|error| error.to_string())?;
        Ok(schema.fields(0)[1].of.name().to_owned())
    }

    #[test]
    fn names_are_looked_up_in_their_namespace_and_then_without_one() {
        let fixed = |names: &str| format!(r#"{{"type": "fixed", "size": 1, {names}}}"#);
        for (names, reference, found) in [
            (r#""name": "F""#, "F", Ok("a.b.F")),
            (r#""name": "F""#, "a.b.F", Ok("a.b.F")),
            (r#""name": "F", "namespace": "c""#, "c.F", Ok("c.F")),
            (r#""name": "F", "namespace": """#, "F", Ok("F")),
            (r#""name": "d.F", "namespace": "c""#, "d.F", Ok("d.F")),
            (r#""name": "F""#, "R", Ok("a.b.R")),
            (r#""name": "F", "namespace": "c""#, "F", Err("type \"F\" is not defined before it is used")),
        ] {
            let reference = format!(r#"{{"type": "{reference}"}}"#);
            let result = second(&fixed(names), &reference);
            match found {
                Ok(name) => assert_eq!(result.as_deref(), Ok(name), "{names}"),
                Err(why) => assert!(result.unwrap_err().ends_with(why), "{names}"),
            }
        }
    }

    #[test]
    fn an_error_names_the_attribute_that_is_missing_or_wrong() {
        for (text, why) in [
            ("{}", "a type lacks 'type'"),
            ("[1]", "neither a name, an object nor an array"),
            (r#"{"type": "record"}"#, "a named type lacks 'name'"),
            (r#"{"type": "record", "name": "R"}"#, "R lacks 'fields'"),
            (r#"{"type": "record", "name": "R", "fields": [{"type": "int"}]}"#, "R lacks 'name'"),
            (r#"{"type": "record", "name": "R", "fields": [{"name": "x"}]}"#, "x lacks 'type'"),
            (r#"{"type": "enum", "name": "E", "symbols": ["A", 1]}"#, "E lacks 'symbols'"),
            (r#"{"type": "enum", "name": "E", "symbols": ["A", "A"]}"#, "E.A is defined twice"),
            (r#"{"type": "fixed", "name": "F", "size": -1}"#, "F lacks 'size'"),
            (r#"{"type": "array"}"#, "an array or map lacks 'items'"),
            (r#"{"type": "map", "items": "int"}"#, "an array or map lacks 'values'"),
            (r#"["int", ["null"]]"#, "a union is a branch of another"),
            (r#"["int", "long", {"type": "int", "logicalType": "date"}]"#, "two branches of type int"),
            (r#"{"type": "fixed", "name": "a..F", "size": 1}"#, "\"\" is not a valid name"),
            (r#"{"type": "fixed", "name": "2F", "size": 1}"#, "\"2F\" is not a valid name"),
            (r#"{"type": "fixed", "name": "F\u001b", "size": 1}"#, r#""F\u{1b}" is not a valid name"#),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let twice = r#"{"type": "fixed", "name": "F", "size": 1}"#;
        assert!(second(twice, twice).unwrap_err().ends_with("a.b.F is defined twice"));
    }

    #[test]
    fn a_logical_type_counts_where_it_fits() {
        for (attributes, found) in [
            (r#""type": "long", "logicalType": "timestamp-micros""#, "timestamp-micros"),
            (r#""type": "int", "logicalType": "timestamp-micros""#, "int"),
            (r#""type": "long", "logicalType": "of-another-time""#, "long"),
            (r#""type": "long", "connect.name": "io.debezium.time.MicroTimestamp""#, "long"),
            (r#""type": "long", "connect.name": "io.debezium.time.Timestamp""#, "io.debezium.time.Timestamp"),
            (r#""type": "string", "logicalType": "uuid""#, "string"),
            (r#""type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2"#, "decimal(4,2)"),
            (r#""type": "bytes", "logicalType": "decimal", "precision": 4"#, "decimal(4,0)"),
            (r#""type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5"#, "bytes"),
            (r#""type": "bytes", "logicalType": "decimal", "precision": 0"#, "bytes"),
            (r#""type": "long", "logicalType": "decimal", "precision": 4"#, "long"),
            (
                r#""type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4"#,
                "decimal(4,0)",
            ),
            (r#""type": {"type": "double", "doc": "nested"}"#, "double"),
            (r#""type": {"type": "long"}, "logicalType": "timestamp-millis""#, "timestamp-millis"),
        ] {
            let schema = Schema::parse(&format!("{{{attributes}}}")).unwrap();
            assert_eq!(schema.root.to_string(), found, "{attributes}");
        }
    }
}
