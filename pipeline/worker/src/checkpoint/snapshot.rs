//! The state of a shard at an hour's end as one object: versioned and checksummed.
//!
//! The layout is `PRSN`, format (2 bytes, little-endian), SHA-256 of the rest, and the rest: postcard in one
//! frame of zstd. The form of an organization's state belongs to the engine. [`FORMAT`] increases whenever
//! that form changes, and a snapshot of another format cannot be the base of a fold.

pub mod idle;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use prorata_engine::State;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::sharing::restart_sharing;
use prorata_schemas::time::{Hour, Timestamp};
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};

use idle::{IdleState, LEVEL};

const MAGIC: &[u8; 4] = b"PRSN";

/// Length of the checksum in bytes.
const CHECKSUM: usize = 32;

/// Length in bytes of magic, format and checksum.
pub const HEADER: usize = MAGIC.len() + 2 + CHECKSUM;

/// Maximum size of the content, as a multiple of the stored size. States compress to a quarter; a frame that
/// unpacks to much more must not exhaust memory.
const EXPANSION_MAX: u64 = 1_000;

/// The version of this form and of the engine's state.
pub const FORMAT: u16 = 1;

/// The hold of an organization: the engine refused an hour, and no hour from then on is folded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The hour that was refused.
    pub since: Hour,
    /// The reason, in words.
    pub cause: String,
}

/// Returns a message that says what happened to a held organization, and what ends the hold.
pub fn hold_message(organization_id: &OrganizationId, hold: &Hold) -> String {
    let Hold { since, cause } = hold;
    format!(
        "organization '{organization_id}' has been held since hour {since}: {cause}; its rows from then on \
         are missing, and 'hours' has complete = false. It continues after a late event that corrects that \
         hour, under other rules, or in a later release"
    )
}

/// One organization at an hour's end.
#[derive(Clone, Debug, PartialEq)]
pub struct OrganizationState {
    /// The engine's state. For a held organization, the state at the end of the last folded hour.
    pub state: State,
    /// Latest event time so far, for the clock columns.
    pub max_event_time: Option<Timestamp>,
    /// The hold; `None` if the organization is not held.
    pub hold: Option<Hold>,
}

/// All organizations of a shard between hours, by id. States are shared: a fold creates new states and leaves
/// the old states unchanged.
pub type ShardState = BTreeMap<OrganizationId, Arc<IdleState>>;

/// All organizations of a shard, by id, in bytes.
pub type PackedStates = BTreeMap<OrganizationId, PackedState>;

/// One organization's state in bytes, with the latest event time and the hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PackedState {
    /// The organization.
    pub organization_id: OrganizationId,
    /// Latest event time so far.
    pub max_event_time: Option<Timestamp>,
    /// The engine's state; in a patch, empty if the organization has left. A loaded state is a slice of the
    /// snapshot's content, and keeps the whole content in memory.
    #[serde(serialize_with = "at_once")]
    pub state: Bytes,
    /// The hold; `None` if the organization is not held.
    pub hold: Option<Hold>,
}

/// One organization's state in the form in which a snapshot stores it.
#[derive(Deserialize)]
struct StoredState<'a> {
    organization_id: OrganizationId,
    max_event_time: Option<Timestamp>,
    state: &'a [u8],
    hold: Option<Hold>,
}

/// Serializes all bytes at once. In postcard, this gives the same result as byte by byte, but is much faster.
fn at_once<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

impl PackedState {
    /// Returns the entry in a patch for an organization that has left.
    pub fn gone(organization_id: &OrganizationId) -> Self {
        let organization_id = organization_id.clone();
        Self { organization_id, max_event_time: None, state: Bytes::new(), hold: None }
    }
}

/// The reason that a snapshot cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The format differs: fold from an older snapshot, or from the first event.
    #[error("it has format {0}, this program knows {FORMAT}")]
    Format(u16),
    /// The bytes differ from the bytes that were written.
    #[error("its checksum does not match")]
    Checksum,
    /// The state differs from the state that the checkpoint recorded.
    #[error("its state is not the one that the checkpoint recorded")]
    Unrecorded,
    /// The content cannot be read although the checksum matches.
    #[error("it cannot be read: {0}")]
    Content(String),
}

impl SnapshotError {
    fn content(error: impl fmt::Display) -> Self {
        Self::Content(error.to_string())
    }
}

/// Packs one organization's state.
///
/// # Errors
/// If the state cannot be serialized.
pub fn pack(
    organization_id: &OrganizationId,
    state: &OrganizationState,
) -> Result<PackedState, SnapshotError> {
    let bytes = postcard::to_stdvec(&state.state).map_err(SnapshotError::content)?;
    let organization_id = organization_id.clone();
    let (max_event_time, hold) = (state.max_event_time, state.hold.clone());
    Ok(PackedState { organization_id, max_event_time, state: bytes.into(), hold })
}

/// Returns the digest of one organization's packed state. It covers only the content that depends on events
/// and rules.
pub fn state_digest(packed: &PackedState) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(&packed.state);
    if let Some(hold) = &packed.hold {
        hash.update(hold.since.0.to_le_bytes());
    }
    hash.finalize().into()
}

/// Returns the digest of a shard's state, from the digests of its organizations in ascending order.
pub fn shard_digest<'a>(organizations: impl Iterator<Item = (&'a OrganizationId, &'a [u8; 32])>) -> String {
    let mut hash = Sha256::new();
    for (organization_id, digest) in organizations {
        hash.update((organization_id.len() as u64).to_le_bytes());
        hash.update(organization_id.as_bytes());
        hash.update(digest);
    }
    hex(&hash.finalize()[..16])
}

/// Encodes these organizations, which must ascend, as a snapshot object.
///
/// # Errors
/// If they cannot be serialized.
pub fn encode(organizations: &[&PackedState]) -> Result<Vec<u8>, SnapshotError> {
    let content = postcard::to_stdvec(organizations);
    wrap(&content.map_err(SnapshotError::content)?)
}

/// Returns the object with this content.
///
/// # Errors
/// If the compressor has no memory.
pub fn wrap(content: &[u8]) -> Result<Vec<u8>, SnapshotError> {
    let body = zstd::bulk::compress(content, LEVEL);
    let body = body.map_err(SnapshotError::content)?;
    let checksum = Sha256::digest(&body);
    Ok([&MAGIC[..], &FORMAT.to_le_bytes(), &checksum, &body].concat())
}

/// Returns the content of an object's body.
fn content_of(body: &[u8]) -> io::Result<Vec<u8>> {
    let most = (body.len() as u64).saturating_mul(EXPANSION_MAX);
    let mut content = Vec::new();
    zstd::stream::read::Decoder::new(body)?.take(most + 1).read_to_end(&mut content)?;
    match content.len() as u64 > most {
        true => Err(io::Error::other(format!("its content has more than {most} bytes"))),
        false => Ok(content),
    }
}

/// Reads one organization's state.
///
/// # Errors
/// If it cannot be read.
pub fn unpack(packed: &PackedState) -> Result<OrganizationState, SnapshotError> {
    let (max_event_time, hold) = (packed.max_event_time, packed.hold.clone());
    Ok(OrganizationState { state: read_state(&packed.state)?, max_event_time, hold })
}

/// Reads the engine's state.
///
/// # Errors
/// If it cannot be read.
fn read_state(bytes: &[u8]) -> Result<State, SnapshotError> {
    restart_sharing();
    postcard::from_bytes(bytes).map_err(SnapshotError::content)
}

/// Wraps newly loaded states without reading their content, which is read when the next hour of the
/// organization is folded. For a million pods, that takes seconds, and a new owner must commit soon. For the
/// same reason, the states are not compressed yet: see [`idle::compress`].
pub fn loaded(states: PackedStates) -> ShardState {
    states.into_iter().map(|(id, packed)| (id, Arc::new(IdleState::loaded(packed)))).collect()
}

/// Applies a patch to the states of a snapshot.
pub fn apply(states: &mut PackedStates, patch: PackedStates) {
    for (organization_id, packed) in patch {
        if packed.state.is_empty() {
            states.remove(&organization_id);
        } else {
            states.insert(organization_id, packed);
        }
    }
}

/// Reads an object written by [`encode`] without reading the states, which remain slices of the object's
/// content.
///
/// # Errors
/// If it is of another format or damaged.
pub fn decode_packed(bytes: &Bytes) -> Result<PackedStates, SnapshotError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::Checksum)?;
    let (format, rest) = rest.split_first_chunk::<2>().ok_or(SnapshotError::Checksum)?;
    let format = u16::from_le_bytes(*format);
    if format != FORMAT {
        return Err(SnapshotError::Format(format));
    }
    let (checksum, body) = rest.split_first_chunk::<CHECKSUM>().ok_or(SnapshotError::Checksum)?;
    if Sha256::digest(body).as_slice() != checksum {
        return Err(SnapshotError::Checksum);
    }
    let content = Bytes::from(content_of(body).map_err(SnapshotError::content)?);
    let stored: Vec<StoredState<'_>> = postcard::from_bytes(&content).map_err(SnapshotError::content)?;
    let named = stored.into_iter().map(|StoredState { organization_id, max_event_time, state, hold }| {
        let state = content.slice_ref(state);
        (organization_id.clone(), PackedState { organization_id, max_event_time, state, hold })
    });
    Ok(named.collect())
}

/// Returns the bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed() -> PackedState {
        let state = State::new("acme".into());
        let max_event_time = Some(Timestamp(7));
        pack(&"acme".into(), &OrganizationState { state, max_event_time, hold: None }).unwrap()
    }

    #[test]
    fn a_hold_is_read_back_and_is_part_of_the_digest() {
        let hold = Hold { since: Hour(5), cause: "too much".into() };
        let held = PackedState { hold: Some(hold.clone()), organization_id: "evil".into(), ..packed() };
        let bytes = Bytes::from(encode(&[&packed(), &held]).unwrap());
        let states = decode_packed(&bytes).unwrap();
        assert_eq!((&states["acme"].hold, &states["evil"].hold), (&None, &Some(hold)));
        assert_ne!(state_digest(&held), state_digest(&packed()));
    }

    #[test]
    fn a_newer_format_is_refused_by_its_number() {
        let mut bytes = encode(&[&packed()]).unwrap();
        bytes[4..6].copy_from_slice(&(FORMAT + 1).to_le_bytes());
        let error = decode_packed(&bytes.into()).unwrap_err();
        assert_eq!(error, SnapshotError::Format(FORMAT + 1));
        assert!(error.to_string().contains("has format 2, this program knows 1"), "{error}");
    }

    #[test]
    fn it_is_read_back_as_written() {
        let bytes = Bytes::from(encode(&[&packed()]).unwrap());
        let states = loaded(decode_packed(&bytes).unwrap());
        assert_eq!(states.len(), 1);
        let read = states["acme"].unpack().unwrap();
        assert_eq!(read.state, State::new("acme".into()));
        assert_eq!(read.max_event_time, Some(Timestamp(7)));
    }

    #[test]
    fn an_unreadable_state_fails_only_when_it_is_unpacked() {
        let unreadable =
            PackedState { state: vec![0xff; 9].into(), organization_id: "evil".into(), ..packed() };
        let bytes = Bytes::from(encode(&[&packed(), &unreadable]).unwrap());
        let states = loaded(decode_packed(&bytes).unwrap());
        assert!(states["acme"].unpack().is_ok());
        assert!(matches!(states["evil"].unpack(), Err(SnapshotError::Content(_))));
    }

    #[test]
    fn no_flipped_bit_and_no_cut_goes_unseen() {
        let bytes = encode(&[&packed()]).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(decode_packed(&flipped.into()).is_err(), "bit of byte {at}");
            assert!(decode_packed(&bytes[..at].to_vec().into()).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn alike_states_are_compressed_and_content_that_grows_too_much_is_refused() {
        let organizations: Vec<PackedState> = (0..100)
            .map(|n| PackedState { organization_id: format!("acme-{n}").as_str().into(), ..packed() })
            .collect();
        let bytes = encode(&organizations.iter().collect::<Vec<_>>()).unwrap();
        let raw: usize = organizations.iter().map(|packed| packed.state.len()).sum();
        assert!(bytes.len() < raw / 3, "{} of {raw} bytes", bytes.len());
        let bomb = wrap(&vec![0; 10_000_000]).unwrap();
        let error = decode_packed(&bomb.into()).unwrap_err();
        assert!(error.to_string().contains("its content has more than"), "{error}");
    }

    #[test]
    fn the_arrival_clock_is_not_part_of_the_digest() {
        let mut later = packed();
        later.max_event_time = Some(Timestamp(8));
        assert_eq!(state_digest(&packed()), state_digest(&later));
    }
}
