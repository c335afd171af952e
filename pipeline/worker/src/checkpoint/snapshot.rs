//! State of a shard at an hour's end as one object: versioned and checksummed.
//!
//! `PRSN`, format (2 bytes, little-endian), SHA-256 of the rest, the rest in postcard. The form of an
//! organization's state is the engine's own: [`FORMAT`] rises with it, and a snapshot of another format is no
//! base for a fold.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_engine::State;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 4] = b"PRSN";

/// Version of this form and of the engine's state.
pub const FORMAT: u16 = 1;

/// One organization at an hour's end.
#[derive(Clone, Debug, PartialEq)]
pub struct OrganizationState {
    /// The engine's state.
    pub state: State,
    /// Latest event time so far, for the clock columns.
    pub max_event_time: Option<Timestamp>,
}

/// All organizations of a shard, by id. States are shared: a fold makes new ones, and the old stay as they
/// were.
pub type ShardState = BTreeMap<OrganizationId, Arc<OrganizationState>>;

/// One organization's state in bytes, with the clock that goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedState {
    /// The organization.
    pub organization_id: OrganizationId,
    /// Latest event time so far.
    pub max_event_time: Option<Timestamp>,
    /// The engine's state.
    pub state: Vec<u8>,
}

/// Why a snapshot cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Of another format: fold from an older one, or from the first event.
    #[error("it has format {0}, this program knows {FORMAT}")]
    Format(u16),
    /// Not the bytes that were written.
    #[error("its checksum does not match")]
    Checksum,
    /// Not readable in spite of its checksum.
    #[error("it cannot be read: {0}")]
    Content(String),
}

/// Packs one organization's state.
///
/// # Errors
/// When the state cannot be serialized.
pub fn pack(
    organization_id: &OrganizationId,
    state: &OrganizationState,
) -> Result<PackedState, SnapshotError> {
    let bytes =
        postcard::to_stdvec(&state.state).map_err(|error| SnapshotError::Content(error.to_string()))?;
    let organization_id = organization_id.clone();
    Ok(PackedState { organization_id, max_event_time: state.max_event_time, state: bytes })
}

/// Digest of one organization's packed state: of what depends on its events and rules alone.
pub fn state_digest(packed: &PackedState) -> [u8; 32] {
    Sha256::digest(&packed.state).into()
}

/// Digest of a shard's state, from those of its organizations in ascending order.
pub fn shard_digest<'a>(organizations: impl Iterator<Item = (&'a OrganizationId, &'a [u8; 32])>) -> String {
    let mut hash = Sha256::new();
    for (organization_id, digest) in organizations {
        hash.update((organization_id.len() as u64).to_le_bytes());
        hash.update(organization_id.as_bytes());
        hash.update(digest);
    }
    hex(&hash.finalize()[..16])
}

/// The object with these organizations, in ascending order.
///
/// # Errors
/// When they cannot be serialized.
pub fn encode(organizations: &[&PackedState]) -> Result<Vec<u8>, SnapshotError> {
    let body =
        postcard::to_stdvec(organizations).map_err(|error| SnapshotError::Content(error.to_string()))?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FORMAT.to_le_bytes());
    bytes.extend(Sha256::digest(&body));
    bytes.extend(body);
    Ok(bytes)
}

/// Reads an object made by [`encode`].
///
/// # Errors
/// When it is of another format or damaged.
pub fn decode(bytes: &[u8]) -> Result<ShardState, SnapshotError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::Checksum)?;
    let (format, rest) = rest.split_first_chunk::<2>().ok_or(SnapshotError::Checksum)?;
    let format = u16::from_le_bytes(*format);
    if format != FORMAT {
        return Err(SnapshotError::Format(format));
    }
    let (checksum, body) = rest.split_first_chunk::<32>().ok_or(SnapshotError::Checksum)?;
    if Sha256::digest(body).as_slice() != checksum {
        return Err(SnapshotError::Checksum);
    }
    let content = |error: postcard::Error| SnapshotError::Content(error.to_string());
    let packed: Vec<PackedState> = postcard::from_bytes(body).map_err(content)?;
    let mut states = ShardState::new();
    for organization in packed {
        let state: State = postcard::from_bytes(&organization.state).map_err(content)?;
        let max_event_time = organization.max_event_time;
        let state = Arc::new(OrganizationState { state, max_event_time });
        states.insert(organization.organization_id, state);
    }
    Ok(states)
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed() -> PackedState {
        let state = State::new("acme".into());
        pack(&"acme".into(), &OrganizationState { state, max_event_time: Some(Timestamp(7)) }).unwrap()
    }

    #[test]
    fn it_is_read_back_as_written() {
        let bytes = encode(&[&packed()]).unwrap();
        let states = decode(&bytes).unwrap();
        assert_eq!(states.len(), 1);
        assert_eq!(states["acme"].state, State::new("acme".into()));
        assert_eq!(states["acme"].max_event_time, Some(Timestamp(7)));
    }

    #[test]
    fn no_flipped_bit_and_no_cut_goes_unseen() {
        let bytes = encode(&[&packed()]).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(decode(&flipped).is_err(), "bit of byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn the_arrival_clock_is_no_part_of_the_digest() {
        let mut later = packed();
        later.max_event_time = Some(Timestamp(8));
        assert_eq!(state_digest(&packed()), state_digest(&later));
    }
}
