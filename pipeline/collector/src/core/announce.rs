//! Sends each description once, at times that increase for each object.

use prorata_schemas::event::{Event, Payload, Recording};
use prorata_schemas::time::Timestamp;
use prorata_schemas::{Text, body};
use sha2::{Digest, Sha256};

use super::Collector;
use crate::state::{Announced, IntendedStart, Key, Phase};

/// The times from which a description is true.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    /// The instant of the first announcement.
    pub start: Timestamp,
    /// The instant at which an announced description changes.
    pub change: Timestamp,
    /// The time of the last change, according to the object. Of two descriptions, the later one counts. The
    /// collector's own time is not used, because a repeated event would have a different time.
    pub recorded: Option<Timestamp>,
    /// Whether the description is the present one. `false` if a restarted watch or an earlier price may
    /// repeat the past.
    pub is_current: bool,
}

/// The names of an announced object, besides its key.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    /// A pod's node id or a node's uid.
    pub subject: Text,
    pub namespace: Text,
    pub name: Text,
}

/// The stored entry of an object, and the times that this batch sends for it.
#[derive(Debug)]
pub(super) struct Intent {
    stored: Option<Announced>,
    latest_start: Option<IntendedStart>,
    latest_stop: Option<Timestamp>,
}

impl Intent {
    /// Returns the entry to store before the batch is sent. `now` is the entry to store after the batch is
    /// sent.
    pub(super) fn entry(self, now: Option<&Announced>) -> Announced {
        let announcing = |known: &Announced| Announced { phase: Phase::Announcing, ..known.clone() };
        let known = self.stored.or_else(|| now.map(announcing)).unwrap_or_else(|| Announced {
            phase: Phase::Announcing,
            last: self.latest_start.map(|start| start.at).or(self.latest_stop).unwrap_or_default(),
            hash: 0,
            subject: Text::default(),
            namespace: Text::default(),
            name: Text::default(),
            intended_start: None,
            intended_stop: None,
        });
        Announced {
            intended_start: match (known.intended_start, self.latest_start) {
                (Some(known), Some(latest)) => Some(known.later(latest)),
                (known, latest) => known.or(latest),
            },
            intended_stop: known.intended_stop.max(self.latest_stop),
            ..known
        }
    }
}

impl Collector {
    /// Announces an object or its new description. Sends nothing if the description is unchanged. If an
    /// object starts again after a stop, its start is later than the stop. If a different description may
    /// have been sent before a restart, the new one is sent for a later instant too, because the earlier one
    /// would otherwise count from its own instant on.
    pub(super) fn announce(&mut self, key: Key, named: Named, payload: Payload, since: Since) {
        let known = self.state.announced.get(&key);
        let hash = self.hash(&payload);
        // The first instant at which an intended description does not hide this one.
        let visible = |intended: IntendedStart| match intended.hash == hash {
            true => intended.at,
            false => after(intended.at),
        };
        let intended = known.and_then(|known| known.intended_start);
        let not_before = intended.filter(|_| since.is_current).map_or(Timestamp(0), visible);
        let (at, phase) = match known.map(|known| (known.phase, known.last, known.hash)) {
            None | Some((Phase::Announcing, ..)) => (since.start, Phase::Started),
            Some((Phase::Started | Phase::Changed, last, before)) if before == hash && not_before <= last => {
                return;
            }
            Some((Phase::Started | Phase::Changed, last, _)) => {
                (since.change.max(not_before).max(after(last)), Phase::Changed)
            }
            Some((Phase::EndedByNode | Phase::Stopped, last, _)) => {
                (since.start.max(after(last)), Phase::Changed)
            }
        };
        let intended_start = intended.filter(|intended| visible(*intended) > at);
        let again = (not_before > at).then(|| (named.clone(), payload.clone()));
        let Named { subject, namespace, name } = named;
        let intended_stop = None;
        let announced =
            Announced { phase, last: at, hash, subject, namespace, name, intended_start, intended_stop };
        self.intend(&key).latest_start = Some(IntendedStart { at, hash });
        self.state.announced.insert(key.clone(), announced);
        self.changed.insert(key.clone());
        self.send(at, since.recorded, payload);
        if let Some((named, payload)) = again {
            self.announce(key, named, payload, since);
        }
    }

    /// Announces the stop of a running object, never before its last event. A stop at the instant of the
    /// start means that the object never ran. This is possible only if no other event followed the start.
    pub(super) fn announce_stop(&mut self, key: &Key, at: Timestamp, payload: Payload) {
        let Some(known) = self.state.announced.get(key).filter(|known| known.phase.is_running()) else {
            return;
        };
        let least = if known.phase == Phase::Changed { after(known.last) } else { known.last };
        let at = match known.intended_start.filter(|intended| intended.at >= at) {
            Some(intended) => after(intended.at).max(least),
            None => at.max(least),
        };
        self.intend(key).latest_stop = Some(at);
        if let Some(known) = self.state.announced.get_mut(key) {
            known.phase = Phase::Stopped;
            known.last = at;
            (known.intended_start, known.intended_stop) = (None, None);
        }
        self.changed.insert(key.clone());
        self.send(at, None, payload);
    }

    /// Returns the intent of an object in this batch, and creates it from the stored entry if needed.
    fn intend(&mut self, key: &Key) -> &mut Intent {
        let announced = &self.state.announced;
        self.intents.entry(key.clone()).or_insert_with(|| Intent {
            stored: announced.get(key).cloned(),
            latest_start: None,
            latest_stop: None,
        })
    }

    /// Records that an object has ended, so that its start is never sent.
    pub(super) fn mark_stopped(&mut self, key: Key, at: Timestamp) {
        let (subject, namespace, name) = Default::default();
        let phase = Phase::Stopped;
        let (intended_start, intended_stop) = (None, None);
        let announced =
            Announced { phase, last: at, hash: 0, subject, namespace, name, intended_start, intended_stop };
        self.state.announced.insert(key.clone(), announced);
        self.changed.insert(key);
    }

    pub(super) fn forget(&mut self, key: &Key) {
        if self.state.announced.remove(key).is_some() {
            self.changed.insert(key.clone());
        }
    }

    fn send(&mut self, at: Timestamp, recorded_at: Option<Timestamp>, payload: Payload) {
        let event = Event::new(self.options.organization_id.clone(), at, payload);
        self.events.push(event.recorded(Recording::new(recorded_at, false)));
    }

    /// Hashes a description, without the time from which it is true.
    pub(super) fn hash(&self, payload: &Payload) -> u64 {
        let event = Event::new(self.options.organization_id.clone(), Timestamp(0), payload.clone());
        let digest = Sha256::digest(body::encode(&event));
        digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
    }

    /// Returns the first instant for which events are sent.
    pub(super) fn since(&self) -> Timestamp {
        self.state.since.unwrap_or(Timestamp(0))
    }
}

/// Returns the first instant after another.
pub(super) const fn after(instant: Timestamp) -> Timestamp {
    Timestamp(instant.0.saturating_add(1))
}
