//! Archive files of events, named by a hash of their content, so that equal events give equal files.

use std::io;

use prorata_connectors::archive::write_events;
use prorata_schemas::body;
use prorata_schemas::event::{Event, EventKind};
use sha2::{Digest, Sha256};

/// Returns an archive file of these events, and its name of 16 hexadecimal digits. Equal events give the same
/// name.
///
/// # Errors
/// If memory runs out.
pub fn archive_file(events: &[Event]) -> io::Result<(String, Vec<u8>)> {
    let bodies: Vec<(EventKind, Vec<u8>)> =
        events.iter().map(|event| (event.payload.kind(), body::encode(event))).collect();
    archive_file_of(&bodies)
}

/// Returns an archive file of these canonical bodies, and its name, as [`archive_file`] does.
///
/// # Errors
/// If memory runs out.
pub fn archive_file_of(bodies: &[(EventKind, Vec<u8>)]) -> io::Result<(String, Vec<u8>)> {
    let file = write_events(&borrowed(bodies))?;
    let digest = Sha256::digest(&file);
    Ok((digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect(), file))
}

/// Returns the bodies as slices.
pub fn borrowed(bodies: &[(EventKind, Vec<u8>)]) -> Vec<(EventKind, &[u8])> {
    bodies.iter().map(|(kind, body)| (*kind, body.as_slice())).collect()
}
