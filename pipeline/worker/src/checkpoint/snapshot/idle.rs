//! Organizations between hours: their states as compressed bytes.
//!
//! An unpacked running pod takes about nine times the bytes of the message that started it, in some thirty
//! allocations. Pods of one organization are much alike, and their bytes compress to a quarter of that
//! message. An organization is unpacked only while its hour is folded. Newly loaded states stay as they are
//! in the snapshot, and are compressed in the background. So a worker that takes over a shard of a million
//! pods need not wait.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};

use bytes::Bytes;
use prorata_engine::State;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::Timestamp;
use zstd::bulk::{Compressor, Decompressor};

use super::{Hold, OrganizationState, PackedState, SnapshotError};

/// The compression level. A higher level costs more time than its smaller result is worth.
pub(super) const LEVEL: i32 = 1;

thread_local! {
    /// The compressor of each thread. For many small organizations, a new compressor each time would take
    /// longer than the compression.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// One organization's state between hours.
#[derive(Debug)]
pub struct IdleState {
    /// The engine's state.
    state: RwLock<StateBytes>,
    /// Latest event time so far, for the clock columns.
    pub max_event_time: Option<Timestamp>,
    /// The hold; `None` if the organization is not held.
    pub hold: Option<Hold>,
}

/// The bytes of a state. They may be compressed while other threads use the state, because its content stays
/// the same.
#[derive(Debug)]
enum StateBytes {
    /// A part of the snapshot from which the state was loaded.
    Plain(Bytes),
    /// Compressed bytes, and the size of the uncompressed bytes.
    Compressed(Box<[u8]>, usize),
}

impl StateBytes {
    fn compressed(state: &[u8]) -> io::Result<Self> {
        let compress = |slot: &RefCell<Option<Compressor<'static>>>| {
            let mut slot = slot.borrow_mut();
            let compressor = match &mut *slot {
                Some(compressor) => compressor,
                None => slot.insert(Compressor::new(LEVEL)?),
            };
            compressor.compress(state)
        };
        Ok(Self::Compressed(COMPRESSOR.with(compress)?.into(), state.len()))
    }

    /// Reads the engine's state.
    fn read(&self) -> Result<State, SnapshotError> {
        let (compressed, bytes) = match self {
            Self::Plain(state) => return super::read_state(state),
            Self::Compressed(compressed, bytes) => (compressed, *bytes),
        };
        let decompress = |slot: &RefCell<Option<Decompressor<'static>>>| -> io::Result<Vec<u8>> {
            let mut slot = slot.borrow_mut();
            let decompressor = match &mut *slot {
                Some(decompressor) => decompressor,
                None => slot.insert(Decompressor::new()?),
            };
            decompressor.decompress(compressed, bytes)
        };
        let state = DECOMPRESSOR.with(decompress).map_err(SnapshotError::content)?;
        super::read_state(&state)
    }
}

impl IdleState {
    /// Compresses a packed state.
    ///
    /// # Errors
    /// If the compressor has no memory.
    pub fn new(packed: &PackedState) -> Result<Self, SnapshotError> {
        let state = StateBytes::compressed(&packed.state).map_err(SnapshotError::content)?;
        let (max_event_time, hold) = (packed.max_event_time, packed.hold.clone());
        Ok(Self { state: RwLock::new(state), max_event_time, hold })
    }

    /// Wraps a newly loaded state without compressing it.
    pub(super) fn loaded(packed: PackedState) -> Self {
        let PackedState { max_event_time, state, hold, .. } = packed;
        Self { state: RwLock::new(StateBytes::Plain(state)), max_event_time, hold }
    }

    fn state(&self) -> RwLockReadGuard<'_, StateBytes> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compresses the state. If the compressor has no memory, the state stays as it is.
    fn compress(&self) {
        let compressed = match &*self.state() {
            StateBytes::Plain(state) => StateBytes::compressed(state).ok(),
            StateBytes::Compressed(..) => None,
        };
        if let Some(compressed) = compressed {
            *self.state.write().unwrap_or_else(PoisonError::into_inner) = compressed;
        }
    }

    /// Returns the state itself.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn unpack(&self) -> Result<OrganizationState, SnapshotError> {
        let (max_event_time, hold) = (self.max_event_time, self.hold.clone());
        Ok(OrganizationState { state: self.state().read()?, max_event_time, hold })
    }
}

/// Compresses newly loaded states one by one, if they still exist. Other threads can use them meanwhile.
pub fn compress(states: &[Weak<IdleState>]) {
    states.iter().filter_map(Weak::upgrade).for_each(|state| state.compress());
}

/// An organization's state in a run: unpacked between the hours of the run, idle after the last hour.
#[derive(Clone, Debug)]
pub enum RunState {
    /// Compressed.
    Idle(Arc<IdleState>),
    /// Unpacked.
    Unpacked(Arc<OrganizationState>),
}

impl RunState {
    /// Returns the unpacked state.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn unpacked(self) -> Result<Arc<OrganizationState>, SnapshotError> {
        match self {
            Self::Idle(idle) => idle.unpack().map(Arc::new),
            Self::Unpacked(state) => Ok(state),
        }
    }

    /// Returns the compressed state.
    ///
    /// # Errors
    /// If it cannot be serialized.
    pub fn idle(self, organization_id: &OrganizationId) -> Result<Arc<IdleState>, SnapshotError> {
        match self {
            Self::Idle(idle) => Ok(idle),
            Self::Unpacked(state) => IdleState::new(&super::pack(organization_id, &state)?).map(Arc::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use prorata_engine::{HourEvents, close_hour};
    use prorata_samples::typical::typical;
    use prorata_schemas::event::{Event, EventKind, EventRecord, Payload};
    use prorata_schemas::rules::Rules;
    use prorata_schemas::time::Hour;

    use super::*;
    use crate::checkpoint::snapshot;

    /// Returns the state of a number of pods that run at an hour's end, and the bytes of the events that
    /// started them.
    fn running(pods: u32) -> (State, usize) {
        let started = |number: u32| -> Event {
            let mut event = typical(EventKind::PodStarted);
            if let Payload::PodStarted(pod) = &mut event.payload {
                pod.pod_uid = format!("28d1b987-c319-5800-81ab-{number:012x}").into();
            }
            event
        };
        let events: Vec<Event> = (0..pods).map(started).collect();
        let bytes = events.iter().map(|event| EventRecord::new(event.clone()).body.len()).sum();
        let mut hour = HourEvents::new(events[0].event_time.hour());
        events.into_iter().for_each(|event| hour.push(event));
        let state = State::new("acme-corporation".into());
        (close_hour(state, hour, &Rules::default()).unwrap().0, bytes)
    }

    #[test]
    fn an_idle_state_is_unpacked_as_it_was() {
        let (state, _) = running(3);
        let hold = Some(Hold { since: Hour(5), cause: "too much".into() });
        let state = OrganizationState { state, max_event_time: Some(Timestamp(7)), hold };
        let packed = snapshot::pack(&"acme-corporation".into(), &state).unwrap();
        assert_eq!(IdleState::new(&packed).unwrap().unpack().unwrap(), state);
    }

    #[test]
    fn a_loaded_state_says_the_same_before_and_after_it_is_compressed() {
        let (state, _) = running(3);
        let state = OrganizationState { state, max_event_time: Some(Timestamp(7)), hold: None };
        let id = OrganizationId::from("acme-corporation");
        let loaded = Arc::new(IdleState::loaded(snapshot::pack(&id, &state).unwrap()));
        assert_eq!(loaded.unpack().unwrap(), state);
        let before = bytes(&loaded);
        compress(&[Arc::downgrade(&loaded), Weak::new()]);
        assert!(bytes(&loaded) < before);
        assert_eq!(loaded.unpack().unwrap(), state);
    }

    fn bytes(idle: &IdleState) -> usize {
        match &*idle.state() {
            StateBytes::Plain(state) => state.len(),
            StateBytes::Compressed(state, _) => state.len(),
        }
    }

    #[test]
    fn idle_pods_take_less_than_the_events_that_started_them() {
        let (state, of_events) = running(100);
        assert_eq!(state.running().1, 100);
        let state = OrganizationState { state, max_event_time: None, hold: None };
        let packed = snapshot::pack(&"acme-corporation".into(), &state).unwrap();
        let idle = IdleState::new(&packed).unwrap();
        assert!(bytes(&idle) < of_events, "{} bytes, the events {of_events}", bytes(&idle));
    }
}
