//! State of a shard at an hour's end as one object: versioned and checksummed.
//!
//! `PRSN`, format (2 bytes, little-endian), SHA-256 of the rest, the rest in postcard. The form of an
//! organization's state is the engine's own: [`FORMAT`] rises with it, and a snapshot of another format is no
//! base for a fold.

pub mod idle;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prorata_engine::State;
use prorata_schemas::event::shared::share_anew;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::{Hour, Timestamp};
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};

use idle::IdleState;

const MAGIC: &[u8; 4] = b"PRSN";

/// Bytes of the checksum.
const CHECKSUM: usize = 32;

/// Bytes before the rest: magic, format, checksum.
const HEADER: usize = MAGIC.len() + 2 + CHECKSUM;

/// Version of this form and of the engine's state.
pub const FORMAT: u16 = 1;

/// Why an organization is held: its hours are not folded since one that the engine refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The hour that was refused.
    pub since: Hour,
    /// Why, in words.
    pub cause: String,
}

/// What happened to an organization that is held, and what ends it.
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
    /// The engine's state. Of an organization that is held, at the end of the last hour that was folded.
    pub state: State,
    /// Latest event time so far, for the clock columns.
    pub max_event_time: Option<Timestamp>,
    /// Why it is held, if it is.
    pub hold: Option<Hold>,
}

/// All organizations of a shard between hours, by id. States are shared: a fold makes new ones, and the old
/// stay as they were.
pub type ShardState = BTreeMap<OrganizationId, Arc<IdleState>>;

/// All organizations of a shard, by id, in bytes.
pub type PackedStates = BTreeMap<OrganizationId, PackedState>;

/// One organization's state in bytes, with the clock that goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PackedState {
    /// The organization.
    pub organization_id: OrganizationId,
    /// Latest event time so far.
    pub max_event_time: Option<Timestamp>,
    /// The engine's state; in a patch, empty where the organization has left. One that was loaded is a part
    /// of its snapshot, and holds all of it.
    #[serde(serialize_with = "at_once")]
    pub state: Bytes,
    /// Why it is held, if it is.
    pub hold: Option<Hold>,
}

/// The same where it lies in a snapshot.
#[derive(Deserialize)]
struct StoredState<'a> {
    organization_id: OrganizationId,
    max_event_time: Option<Timestamp>,
    state: &'a [u8],
    hold: Option<Hold>,
}

/// Serializes bytes at once: in postcard that is the same as one by one, and much faster.
fn at_once<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

impl PackedState {
    /// What a patch says of an organization that has left.
    pub fn gone(organization_id: &OrganizationId) -> Self {
        let organization_id = organization_id.clone();
        Self { organization_id, max_event_time: None, state: Bytes::new(), hold: None }
    }
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
    /// Not the state that the checkpoint recorded.
    #[error("its state is not the one that the checkpoint recorded")]
    Unrecorded,
    /// Not readable in spite of its checksum.
    #[error("it cannot be read: {0}")]
    Content(String),
}

/// Packs one organization's state.
///
/// # Errors
/// If the state cannot be serialized.
pub fn pack(
    organization_id: &OrganizationId,
    state: &OrganizationState,
) -> Result<PackedState, SnapshotError> {
    let bytes =
        postcard::to_stdvec(&state.state).map_err(|error| SnapshotError::Content(error.to_string()))?;
    let organization_id = organization_id.clone();
    let (max_event_time, hold) = (state.max_event_time, state.hold.clone());
    Ok(PackedState { organization_id, max_event_time, state: bytes.into(), hold })
}

/// Digest of one organization's packed state: of what depends on its events and rules alone.
pub fn state_digest(packed: &PackedState) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(&packed.state);
    if let Some(hold) = &packed.hold {
        hash.update(hold.since.0.to_le_bytes());
    }
    hash.finalize().into()
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
/// If they cannot be serialized.
pub fn encode(organizations: &[&PackedState]) -> Result<Vec<u8>, SnapshotError> {
    let content = |error: postcard::Error| SnapshotError::Content(error.to_string());
    let mut bytes = MAGIC.to_vec();
    bytes.extend([0; HEADER - MAGIC.len()]);
    let mut bytes = postcard::to_extend(organizations, bytes).map_err(content)?;
    let checksum = Sha256::digest(&bytes[HEADER..]);
    bytes[MAGIC.len()..HEADER - CHECKSUM].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[HEADER - CHECKSUM..HEADER].copy_from_slice(&checksum);
    Ok(bytes)
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
    share_anew();
    postcard::from_bytes(bytes).map_err(|error| SnapshotError::Content(error.to_string()))
}

/// States that were just loaded. What they say is read when their organization's next hour is folded: with a
/// million pods that takes seconds, and a new owner must soon commit. For the same reason they are not
/// compressed yet: see [`idle::compress`].
pub fn loaded(states: PackedStates) -> ShardState {
    states.into_iter().map(|(id, packed)| (id, Arc::new(IdleState::loaded(packed)))).collect()
}

/// Puts what has changed into the states of a snapshot.
pub fn apply(states: &mut PackedStates, patch: PackedStates) {
    for (organization_id, packed) in patch {
        if packed.state.is_empty() {
            states.remove(&organization_id);
        } else {
            states.insert(organization_id, packed);
        }
    }
}

/// Reads an object made by [`encode`], but not what the states say: they stay where they lie.
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
    let content = |error: postcard::Error| SnapshotError::Content(error.to_string());
    let stored: Vec<StoredState<'_>> = postcard::from_bytes(body).map_err(content)?;
    let named = stored.into_iter().map(|StoredState { organization_id, max_event_time, state, hold }| {
        let state = bytes.slice_ref(state);
        (organization_id.clone(), PackedState { organization_id, max_event_time, state, hold })
    });
    Ok(named.collect())
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
    fn what_a_state_says_is_read_when_it_is_unpacked() {
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
    fn the_arrival_clock_is_no_part_of_the_digest() {
        let mut later = packed();
        later.max_event_time = Some(Timestamp(8));
        assert_eq!(state_digest(&packed()), state_digest(&later));
    }
}
