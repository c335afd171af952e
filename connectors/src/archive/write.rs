//! Our archive files: the union of our newest schemas, one record per event. Equal events give equal bytes.

use std::io::{self, Write};
use std::sync::LazyLock;

use prorata_schemas::avsc::avsc;
use prorata_schemas::body::wire::put_long;
use prorata_schemas::body::{organization_of, prefetch};
use prorata_schemas::event::EventKind;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::container::ContainerWriter;

/// Returns the archive's schema: a union of our records in the order of [`EventKind::ALL`], without their
/// docs.
pub fn archive_schema() -> &'static str {
    static SCHEMA: LazyLock<String> = LazyLock::new(|| {
        let records = EventKind::ALL.map(|kind| compact(avsc(kind)));
        format!("[{}]", records.join(","))
    });
    &SCHEMA
}

/// Returns an archive file of canonical bodies, in the order given. Equal input gives equal bytes.
///
/// # Errors
/// If compression fails because memory runs out.
pub fn write_events(records: &[(EventKind, &[u8])]) -> io::Result<Vec<u8>> {
    write(records, false)
}

/// Like [`write_events`], but adds an index if organizations ascend: the first organization of each block.
///
/// # Errors
/// If compression fails because memory runs out.
pub fn write_own(records: &[(EventKind, &[u8])]) -> io::Result<Vec<u8>> {
    write(records, true)
}

fn write(records: &[(EventKind, &[u8])], index: bool) -> io::Result<Vec<u8>> {
    let (file, digest) = encoded(records, index)?;
    file.finish(marker(digest))
}

/// Returns a file without its sync marker, and the digest of its events.
fn encoded(records: &[(EventKind, &[u8])], index: bool) -> io::Result<(ContainerWriter, Sha256)> {
    let mut digest = Digest::default();
    let mut file = ContainerWriter::new(archive_schema())?;
    for (at, (kind, body)) in records.iter().enumerate() {
        prefetch(at, records.iter().skip(at).map(|(_, body)| *body));
        digest.add(*kind, body);
        if index {
            file.note_organization(organization_of(body));
        }
        file.record(|out| {
            // Kinds are declared in the order of ALL, which is the order of the union's branches.
            put_long(out, *kind as i64);
            out.extend_from_slice(body);
        })?;
    }
    Ok((file, digest.0))
}

/// Writes one archive file part by part, so that its events need not be in memory together. Equal parts in
/// equal order give equal bytes.
pub struct EventFileWriter<W> {
    to: W,
    /// The sync marker, which the first part decides; `None` before it.
    sync: Option<[u8; 16]>,
}

impl<W: Write> EventFileWriter<W> {
    /// Creates a writer of a file that begins here.
    pub const fn new(to: W) -> Self {
        Self { to, sync: None }
    }

    /// Appends canonical bodies, in the order given.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&mut self, records: &[(EventKind, &[u8])]) -> io::Result<()> {
        let (part, digest) = encoded(records, false)?;
        let (sync, header) = match self.sync {
            None => (*self.sync.insert(marker(digest)), 0),
            // A part begins with the header of the file, which is written only once.
            Some(sync) => (sync, ContainerWriter::new(archive_schema())?.finish(sync)?.len()),
        };
        self.to.write_all(part.finish(sync)?.get(header..).unwrap_or_default())
    }

    /// Returns what the file was written to. A file without parts gets its header.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        if self.sync.is_none() {
            self.append(&[])?;
        }
        Ok(self.to)
    }
}

/// The digest of events in their order.
#[derive(Default)]
struct Digest(Sha256);

impl Digest {
    fn add(&mut self, kind: EventKind, body: &[u8]) {
        let mut head = [kind as u8; 9];
        head[1..].copy_from_slice(&(body.len() as u64).to_le_bytes());
        self.0.update(head);
        self.0.update(body);
    }
}

/// Returns a sync marker made from the content's digest.
pub(super) fn marker(digest: Sha256) -> [u8; 16] {
    let digest = digest.finalize();
    std::array::from_fn(|index| digest.get(index).copied().unwrap_or_default())
}

/// Returns a schema's text without docs and white space. The order of its keys does not depend on the JSON
/// library.
pub(super) fn compact(schema: &str) -> String {
    let json: Json = serde_json::from_str(schema).unwrap_or_default();
    let mut out = String::new();
    put_json(&json, &mut out);
    out
}

fn put_json(json: &Json, out: &mut String) {
    let mut separator = "";
    match json {
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().filter(|(key, _)| *key != "doc").collect();
            members.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in members {
                out.push_str(separator);
                out.push_str(&Json::from(key.as_str()).to_string());
                out.push(':');
                put_json(value, out);
                separator = ",";
            }
            out.push('}');
        }
        Json::Array(items) => {
            out.push('[');
            for item in items {
                out.push_str(separator);
                put_json(item, out);
                separator = ",";
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use prorata_schemas::body;
    use prorata_schemas::event::{Event, NodeStopped, Payload};
    use prorata_schemas::time::Timestamp;
    use prorata_worker::ports::Wanted;

    use super::*;
    use crate::archive::read_own;

    fn body_of(node: &str) -> Vec<u8> {
        let stopped = NodeStopped { cluster_id: "c".into(), node_id: node.into() };
        body::encode(&Event::new("o".into(), Timestamp(0), Payload::NodeStopped(stopped)))
    }

    #[test]
    fn parts_are_one_file() {
        let bodies = ["a", "b", "c"].map(body_of);
        let records: Vec<(EventKind, &[u8])> =
            bodies.iter().map(|body| (EventKind::NodeStopped, body.as_slice())).collect();
        let joined = |parts: &[&[(EventKind, &[u8])]]| {
            let mut file = EventFileWriter::new(Vec::new());
            parts.iter().for_each(|part| file.append(part).unwrap());
            file.finish().unwrap()
        };
        let (first, rest) = records.split_at(1);
        let mut read = Vec::new();
        read_own(&joined(&[first, rest]), Wanted::default(), &mut |event| {
            read.push(body::encode(&event.into_owned()));
        })
        .unwrap();
        assert_eq!(read, bodies);
        assert_eq!(joined(&[&records]), write_events(&records).unwrap());
        assert_eq!(joined(&[]), write_events(&[]).unwrap());
    }
}
