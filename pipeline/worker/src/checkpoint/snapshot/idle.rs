//! Organizations between their hours: their states in compressed bytes.
//!
//! Unpacked, a running pod takes about nine times the message that started it, in some thirty allocations.
//! Pods of one organization are much alike, and their bytes compress to a quarter of that message. Only an
//! organization whose hour is being folded is unpacked.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::Timestamp;
use zstd::bulk::{Compressor, Decompressor};

use super::{Hold, OrganizationState, PackedState, SnapshotError};

/// How hard states are compressed: more takes longer than it saves.
const LEVEL: i32 = 1;

thread_local! {
    /// Contexts of a thread: making one for each of many small organizations takes longer than compressing.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// One organization's state between hours.
#[derive(Clone, Debug)]
pub struct IdleState {
    /// The engine's state as a snapshot has it, compressed.
    state: Box<[u8]>,
    /// Bytes of it before.
    bytes: usize,
    /// Latest event time so far, for the clock columns.
    pub max_event_time: Option<Timestamp>,
    /// Why it is held, if it is.
    pub hold: Option<Hold>,
}

impl IdleState {
    /// Of a packed state.
    ///
    /// # Errors
    /// When the compressor has no memory.
    pub fn new(packed: &PackedState) -> Result<Self, SnapshotError> {
        let compress = |slot: &RefCell<Option<Compressor<'static>>>| -> io::Result<Vec<u8>> {
            let mut slot = slot.borrow_mut();
            let compressor = match &mut *slot {
                Some(compressor) => compressor,
                None => slot.insert(Compressor::new(LEVEL)?),
            };
            compressor.compress(&packed.state)
        };
        let state = COMPRESSOR.with(compress).map_err(|error| SnapshotError::Content(error.to_string()))?;
        let (max_event_time, hold) = (packed.max_event_time, packed.hold.clone());
        Ok(Self { state: state.into(), bytes: packed.state.len(), max_event_time, hold })
    }

    /// The state itself.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn unpack(&self) -> Result<OrganizationState, SnapshotError> {
        let decompress = |slot: &RefCell<Option<Decompressor<'static>>>| -> io::Result<Vec<u8>> {
            let mut slot = slot.borrow_mut();
            let decompressor = match &mut *slot {
                Some(decompressor) => decompressor,
                None => slot.insert(Decompressor::new()?),
            };
            decompressor.decompress(&self.state, self.bytes)
        };
        let state =
            DECOMPRESSOR.with(decompress).map_err(|error| SnapshotError::Content(error.to_string()))?;
        let (max_event_time, hold) = (self.max_event_time, self.hold.clone());
        Ok(OrganizationState { state: super::read_state(&state)?, max_event_time, hold })
    }
}

/// An organization's state on its way through hours: unpacked from one to the next, idle behind the last.
#[derive(Clone, Debug)]
pub enum CourseState {
    /// Compressed.
    Idle(Arc<IdleState>),
    /// Unpacked.
    Unpacked(Arc<OrganizationState>),
}

impl CourseState {
    /// The state, unpacked.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn unpacked(self) -> Result<Arc<OrganizationState>, SnapshotError> {
        match self {
            Self::Idle(idle) => idle.unpack().map(Arc::new),
            Self::Unpacked(state) => Ok(state),
        }
    }

    /// The state, compressed.
    ///
    /// # Errors
    /// When it cannot be serialized.
    pub fn idle(self, organization_id: &OrganizationId) -> Result<Arc<IdleState>, SnapshotError> {
        match self {
            Self::Idle(idle) => Ok(idle),
            Self::Unpacked(state) => IdleState::new(&super::pack(organization_id, &state)?).map(Arc::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use prorata_engine::{HourEvents, State, close_hour};
    use prorata_samples::typical::typical;
    use prorata_schemas::event::{Event, EventKind, EventRecord, Payload};
    use prorata_schemas::rules::Rules;
    use prorata_schemas::time::Hour;

    use super::*;
    use crate::checkpoint::snapshot;

    /// So many pods that run at an hour's end, and the bytes of the events that started them.
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
    fn idle_pods_take_less_than_the_events_that_started_them() {
        let (state, of_events) = running(100);
        assert_eq!(state.running().1, 100);
        let state = OrganizationState { state, max_event_time: None, hold: None };
        let packed = snapshot::pack(&"acme-corporation".into(), &state).unwrap();
        let idle = IdleState::new(&packed).unwrap();
        assert!(idle.state.len() < of_events, "{} bytes, the events {of_events}", idle.state.len());
    }
}
