//! The header of an archive file: text that every reader takes, and the checksum of the schema in it.

use prorata_connectors::archive::{FileError, archive_schema, read_events, write_events};
use prorata_samples::arbitrary;
use prorata_schemas::body::wire::put_bytes;
use prorata_schemas::event::EventKind;
use sha2::{Digest, Sha256};

/// An archive of one event of each kind.
fn archive() -> Vec<u8> {
    let events = arbitrary::records();
    let records: Vec<(EventKind, &[u8])> =
        events.iter().map(|record| (record.event.payload.kind(), &record.body[..])).collect();
    write_events(&records).unwrap()
}

/// Number of events in a file, all of which must be valid.
fn read(file: &[u8]) -> Result<usize, FileError> {
    let mut events = 0;
    read_events(file, &mut |_, record| {
        record.unwrap();
        events += 1;
    })?;
    Ok(events)
}

/// Releases before this one wrote the schema's checksum as bytes, which not every reader takes for metadata.
#[test]
fn files_with_the_checksum_in_bytes_are_read_and_a_wrong_checksum_is_refused_in_both_forms() {
    let entry = |key: &str, value: &[u8]| {
        let mut out = Vec::new();
        put_bytes(&mut out, key.as_bytes());
        put_bytes(&mut out, value);
        out
    };
    let replaced = |bytes: &[u8], from: &[u8], to: &[u8]| {
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
        [&bytes[..at], to, &bytes[at + from.len()..]].concat()
    };
    let digest = Sha256::digest(archive_schema());
    let hexadecimal = entry("prorata.schema.sha256.hex", format!("{digest:x}").as_bytes());
    let in_bytes = entry("prorata.schema.sha256", &digest);
    let now = archive();
    let before = replaced(&now, &hexadecimal, &in_bytes);
    let events = read(&now).unwrap();
    assert!(events > 0);
    assert_eq!(read(&before).unwrap(), events);
    let other = Sha256::digest("another schema");
    for wrong in [
        replaced(&now, &hexadecimal, &entry("prorata.schema.sha256.hex", format!("{other:x}").as_bytes())),
        replaced(&now, &hexadecimal, &entry("prorata.schema.sha256", &other)),
    ] {
        assert!(read(&wrong).unwrap_err().to_string().contains("checksum"));
    }
}
