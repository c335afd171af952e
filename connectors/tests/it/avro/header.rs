//! The header of an archive file: text that every reader accepts, and the checksum of the schema.

use prorata_connectors::archive::{FileError, archive_schema, read_events, write_events};
use prorata_samples::arbitrary;
use prorata_schemas::event::EventKind;
use sha2::{Digest, Sha256};

/// Returns an archive of one event of each kind.
fn archive() -> Vec<u8> {
    let events = arbitrary::records();
    let records: Vec<(EventKind, &[u8])> =
        events.iter().map(|record| (record.event.payload.kind(), &record.body[..])).collect();
    write_events(&records).unwrap()
}

/// Returns the number of events in a file. All of them must be valid.
fn read(file: &[u8]) -> Result<usize, FileError> {
    let mut events = 0;
    read_events(file, &mut |_, record| {
        record.unwrap();
        events += 1;
    })?;
    Ok(events)
}

#[test]
fn a_wrong_checksum_of_the_schema_is_refused() {
    let [right, wrong] =
        [archive_schema(), "another schema"].map(|text| format!("{:x}", Sha256::digest(text)).into_bytes());
    let mut file = archive();
    assert!(read(&file).unwrap() > 0);
    let at = file.windows(right.len()).position(|window| window == right).unwrap();
    file[at..at + wrong.len()].copy_from_slice(&wrong);
    assert!(read(&file).unwrap_err().to_string().contains("checksum"));
}
