//! Decoding of messages and archived records into events, from any version of our schemas.
//!
//! A [`Decoder`] is compiled once from a writer's schema. If the schema has the structure of ours, bodies are
//! read directly; otherwise each body is converted to our newest schema first. Either way, the same reader
//! checks the values, and the same writer encodes the canonical body.
//!
//! # Why a decoder of our own
//!
//! Every event is decoded when it arrives and again when its hour closes, so a catch-up consists mostly of
//! decoding. A record of 15 fields and 271 bytes takes, on one core:
//!
//! | decoder | ns per record |
//! |---|---|
//! | this approach, all fields; 7 of 15 fields, the rest skipped | 289; 94 |
//! | `apache-avro` 0.22, straight into a struct | 990 to 1,140 |
//! | `apache-avro` 0.22, through its values; with a reader's schema | 2,010 to 3,700; 4,000 to 5,790 |
//!
//! Speed is not the only reason. `apache-avro` straight into a struct fails on a field that our schema does
//! not have, so a producer could not add one. `arrow-avro` loses a whole batch to one bad record, but we owe
//! each record a verdict of its own. Equal events must also get equal canonical bytes. Nor does `apache-avro`
//! withstand hostile schemas (see `parse.rs`). It is the oracle against which tests check this decoder, and
//! the source of the fingerprints that its own writers send. `benches/decode.rs` measures these times.

mod convert;
mod error;
#[cfg(test)]
mod hostile;
mod limits;
mod parse;
mod plan;
mod schema;
mod single_object;
mod skip;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use prorata_schemas::avsc::{NAMESPACE, avsc, full_name};
use prorata_schemas::body::wire::Wire;
use prorata_schemas::body::{BODY_BYTES_MAX, EventRecordRef, EventRef, decode_next_ref, organization_of};
use prorata_schemas::event::{Event, EventKind};
use prorata_schemas::reject::{Reason, RecordError, Reject};
use prorata_worker::ports::Wanted;

pub use error::SchemaError;
pub use limits::SCHEMA_BYTES_MAX;
pub use single_object::{SingleObjects, encode_single_object, fingerprint};

pub(crate) use schema::Schema;

use error::shortened;
use plan::{Node, Resolver};
use schema::Type;
use skip::{Skip, Skipper, Skips};

/// A decoder of bodies in one writer's schema, which is one of our records or a union that includes our
/// records.
#[derive(Debug)]
pub struct Decoder {
    branches: Box<[Branch]>,
    is_union: bool,
    skips: Skips,
}

#[derive(Debug)]
struct Branch {
    reading: Reading,
    /// The walk to the end of a record that cannot become an event.
    skip: Skip,
}

#[derive(Debug)]
enum Reading {
    /// The branch has the structure of our newest schema.
    Direct(EventKind),
    /// The branch becomes ours by conversion.
    Converted(EventKind, Node),
    /// The branch is not one of our records, or does not resolve to ours.
    Refused(Reject),
}

impl Decoder {
    /// Compiles the decoder of a writer's schema. The decoder of a foreign schema rejects every record as
    /// `unknown_event`.
    ///
    /// # Errors
    /// If the text is not an Avro schema.
    pub fn compile(writer_schema: &str) -> Result<Self, SchemaError> {
        let writer = Schema::parse(writer_schema)?;
        let mut skipper = Skipper::new(&writer);
        let (variants, is_union) = match &writer.root {
            Type::Union(variants) => (&**variants, true),
            root => (std::slice::from_ref(root), false),
        };
        let branch = |variant: &Type| {
            let skip = skipper.skip(variant);
            Branch { reading: reading_of(&writer, variant, &mut skipper), skip }
        };
        Ok(Self { branches: variants.iter().map(branch).collect(), is_union, skips: skipper.finish() })
    }

    /// Decodes `body`, which is exactly one record.
    ///
    /// # Errors
    /// `malformed`, `unknown_event` or `invalid_field`.
    pub fn decode<'a>(&self, body: &'a [u8]) -> Result<EventRecordRef<'a>, Reject> {
        let mut wire = Wire::new(body);
        let judged = match self.next(&mut wire) {
            Err(RecordError::Malformed(reject)) => return Err(reject),
            judged => judged.map_err(RecordError::into_reject),
        };
        match wire.rest().len() {
            0 => judged,
            left => Err(Reject::malformed(format!("{left} bytes follow the end of the record"))),
        }
    }

    /// Decodes the next record of `wire`, and moves `wire` to the end of the record.
    ///
    /// # Errors
    /// [`RecordError`]. After a malformed record, `wire` may be anywhere.
    pub fn next<'a>(&self, wire: &mut Wire<'a>) -> Result<EventRecordRef<'a>, RecordError> {
        let branch = self.branch(wire)?;
        self.event(branch, wire).map(EventRecordRef::new)
    }

    /// Decodes the next record like [`Decoder::next`], but without its body. Skips an event that is not
    /// wanted, and returns `None`.
    ///
    /// # Errors
    /// The errors of [`Decoder::next`].
    pub fn next_wanted<'a>(
        &self,
        wire: &mut Wire<'a>,
        wanted: Wanted<'_>,
    ) -> Result<Option<EventRef<'a>>, RecordError> {
        let branch = self.branch(wire)?;
        if let Reading::Direct(kind) = branch.reading {
            let body = wire.rest();
            let organization = wanted.organizations.and_then(|_| str::from_utf8(organization_of(body)).ok());
            if organization.is_some_and(|id| !wanted.has_organization(id)) || !wanted.has_body(kind, body) {
                self.skips.pass(&branch.skip, wire)?;
                return Ok(None);
            }
        }
        let event = self.event(branch, wire)?;
        Ok(Some(event).filter(|event| wanted.has_organization(event.organization_id())))
    }

    fn branch(&self, wire: &mut Wire<'_>) -> Result<&Branch, Reject> {
        let branch =
            if self.is_union { Some(skip::branch(&self.branches, wire)?) } else { self.branches.first() };
        branch.ok_or_else(|| Reject::malformed("the writer's schema is empty"))
    }

    /// Decodes the next record, which is of this branch.
    fn event<'a>(&self, branch: &Branch, wire: &mut Wire<'a>) -> Result<EventRef<'a>, RecordError> {
        let mut end = wire.clone();
        let reject = match &branch.reading {
            Reading::Direct(kind) => match decode_next_ref(*kind, wire) {
                Err(RecordError::Malformed(reject)) => reject,
                judged => return judged,
            },
            Reading::Converted(kind, node) => match self.convert_next(*kind, node, wire) {
                Err(RecordError::Malformed(reject)) => reject,
                judged => return judged.map(EventRef::Event),
            },
            Reading::Refused(reject) => reject.clone(),
        };
        // If the end of the record is lost, the first fault is the one to report.
        let lost = if reject.reason == Reason::Malformed { Some(reject.clone()) } else { None };
        self.skips.pass(&branch.skip, &mut end).map_err(|malformed| lost.unwrap_or(malformed))?;
        *wire = end;
        Err(RecordError::Rejected(reject))
    }

    fn convert_next(&self, kind: EventKind, node: &Node, wire: &mut Wire<'_>) -> Result<Event, RecordError> {
        let bytes = wire.rest();
        let mut within = Wire::new(bytes.get(..BODY_BYTES_MAX).unwrap_or(bytes));
        let whole = within.rest().len();
        let named =
            |reject: Reject| Reject::new(reject.reason, format!("{}: {}", kind.name(), reject.message));
        let converted = convert::convert(node, &self.skips, &mut within);
        let converted = converted.map_err(|error| error.map(named));
        if !matches!(converted, Err(RecordError::Malformed(_))) {
            wire.take(whole - within.rest().len())?;
        }
        prorata_schemas::body::decode(kind, &converted?).map_err(RecordError::Rejected)
    }
}

/// A converter from one writer's schema to ours, for records that are not events.
#[derive(Debug)]
pub(crate) struct Converter {
    node: Node,
    skips: Skips,
}

impl Converter {
    /// Compiles the conversion from a writer's schema to ours.
    ///
    /// # Errors
    /// If the text is not an Avro schema, or does not resolve to ours.
    pub(crate) fn compile(ours: &Schema, writer_schema: &str) -> Result<Self, SchemaError> {
        let theirs = Schema::parse(writer_schema)?;
        let mut skipper = Skipper::new(&theirs);
        let mut resolver = Resolver { ours, theirs: &theirs, skipper: &mut skipper };
        let node = resolver.node(&ours.root, &theirs.root)?;
        Ok(Self { node, skips: skipper.finish() })
    }

    /// Returns the next record of `wire` in the form of our schema.
    ///
    /// # Errors
    /// If the record is damaged, or its values do not resolve.
    pub(crate) fn next(&self, wire: &mut Wire<'_>) -> Result<Vec<u8>, Reject> {
        convert::convert(&self.node, &self.skips, wire).map_err(RecordError::into_reject)
    }
}

/// Our newest schemas, parsed.
static OURS: LazyLock<Vec<(EventKind, Schema)>> = LazyLock::new(|| {
    // A test parses all schemas, so none is ever missing here.
    EventKind::ALL.into_iter().filter_map(|kind| Some((kind, Schema::parse(avsc(kind)).ok()?))).collect()
});

fn reading_of<'s>(writer: &'s Schema, variant: &Type, skipper: &mut Skipper<'s>) -> Reading {
    let refused = |message: String| Reading::Refused(Reject::new(Reason::UnknownEvent, shortened(message)));
    let Type::Record(name, _) = variant else {
        return refused(format!("its schema is not a record; events are the records of {NAMESPACE}"));
    };
    let ours = OURS.iter().find(|(kind, ours)| full_name(*kind) == **name || ours.is_also_named(name));
    let Some((kind, ours)) = ours else {
        return refused(format!("record {name} is not one of the records of {NAMESPACE}"));
    };
    match (Resolver { ours, theirs: writer, skipper }).node(&ours.root, variant) {
        Ok(node) if node.is_identity(ours, &ours.root) => Reading::Direct(*kind),
        Ok(node) => Reading::Converted(*kind, node),
        Err(why) => refused(format!("its schema of {name} cannot be resolved against ours: {why}")),
    }
}

/// A cache of compiled decoders, by the text of the writer's schema. Files and messages use few different
/// schemas.
#[derive(Debug, Default)]
pub struct Decoders {
    by_schema: Mutex<HashMap<Box<str>, Arc<Decoder>>>,
}

impl Decoders {
    /// Maximum number of decoders to keep. Before one more is added, all are dropped.
    const KEPT_MAX: usize = 256;

    /// Returns the decoder of a writer's schema, which is compiled at its first use.
    ///
    /// # Errors
    /// If the text is not an Avro schema.
    pub fn get(&self, writer_schema: &str) -> Result<Arc<Decoder>, SchemaError> {
        let known = || self.by_schema.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(decoder) = known().get(writer_schema) {
            return Ok(Arc::clone(decoder));
        }
        let decoder = Arc::new(Decoder::compile(writer_schema)?);
        let mut kept = known();
        if kept.len() >= Self::KEPT_MAX {
            kept.clear();
        }
        kept.insert(writer_schema.into(), Arc::clone(&decoder));
        Ok(decoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_of_ours_parses_and_reads_itself_directly() {
        assert_eq!(OURS.len(), EventKind::ALL.len());
        for kind in EventKind::ALL {
            let decoder = Decoder::compile(avsc(kind)).unwrap();
            assert!(
                matches!(decoder.branches[0].reading, Reading::Direct(direct) if direct == kind),
                "{kind:?}"
            );
        }
    }
}
