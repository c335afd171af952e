//! The events that the archive does not hold yet.

use std::collections::HashSet;
use std::sync::Arc;

use ahash::RandomState;
use prorata_schemas::body::{self, EventRecordRef, EventRef};
use prorata_schemas::event::EventKind;
use prorata_schemas::ids::OrganizationId;

use super::order::{archive_order, in_archive_order};
use super::{FileToRead, Planned, WantedOrganizations, fetch, read_own};
use crate::error::{Result, WorkerError};
use crate::objects::StoredObject;
use crate::ports::{Archive, Ports, Wanted};
use crate::shard::Body;

/// Returns the events that none of these files of their hour hold, in archive order and without duplicates. A
/// few files are fetched at a time, and compared off the async threads.
///
/// # Errors
/// If a file is missing or damaged, or storage is unavailable.
pub async fn unknown_events(ports: &Ports, files: Vec<FileToRead>, events: Vec<Body>) -> Result<Vec<Body>> {
    if files.is_empty() {
        return Ok(tokio::task::spawn_blocking(move || in_archive_order(events)).await?);
    }
    let mut planned = files.into_iter().map(|file| Planned { step: 0, shard: 0, file }).collect();
    let mut unknown = tokio::task::spawn_blocking(move || Unknown::new(in_archive_order(events))).await?;
    loop {
        let fetched = fetch(&*ports.store, &mut planned).await?;
        if fetched.is_empty() {
            return Ok(unknown.finish());
        }
        let archive = Arc::clone(&ports.archive);
        let compare = move || {
            fetched.iter().try_for_each(|(_, _, file)| unknown.compare(&*archive, file))?;
            Ok::<_, WorkerError>(unknown)
        };
        unknown = tokio::task::spawn_blocking(compare).await??;
    }
}

/// Events to be compared with the events that the archive holds already.
struct Unknown {
    /// Events in the order of the archive.
    events: Vec<Body>,
    known: Vec<bool>,
    organizations: WantedOrganizations,
    /// Marks of all events: see [`mark`].
    marks: Arc<HashSet<u64, RandomState>>,
}

impl Unknown {
    /// Returns a comparison for events in the order of the archive.
    fn new(events: Vec<Body>) -> Self {
        let mut organizations: Vec<_> = events.iter().map(|(_, body)| body::organization_of(body)).collect();
        organizations.dedup();
        let organizations = organizations.into_iter().filter_map(|id| str::from_utf8(id).ok());
        let organizations = Some(Arc::new(organizations.map(OrganizationId::from).collect()));
        let mut marks = HashSet::with_capacity_and_hasher(events.len(), RandomState::new());
        for (kind, body) in &events {
            let mark = mark(marks.hasher(), *kind, body);
            marks.insert(mark);
        }
        let known = vec![false; events.len()];
        Self { events, known, organizations, marks: Arc::new(marks) }
    }

    /// Compares the events with all events of an archive file, and notes which are known. A stored event is
    /// read only if it shares its mark with an event in `self`, which is rare.
    fn compare(&mut self, archive: &dyn Archive, file: &StoredObject) -> Result<()> {
        let (organizations, marks) = (self.organizations.clone(), Arc::clone(&self.marks));
        let is_marked = |kind: EventKind, body: &[u8]| marks.contains(&mark(marks.hasher(), kind, body));
        let wanted = Wanted { organizations: organizations.as_deref(), bodies: Some(&is_marked) };
        read_own(archive, file, wanted, |event| self.take_known(event))
    }

    /// Marks as known an event that the archive holds.
    fn take_known(&mut self, event: EventRef<'_>) {
        let EventRecordRef { event, body } = EventRecordRef::new(event);
        let body = (event.kind(), body);
        if let Ok(at) = self.events.binary_search_by(|event| archive_order(event, &body))
            && let Some(known) = self.known.get_mut(at)
        {
            *known = true;
        }
    }

    fn finish(self) -> Vec<Body> {
        let Self { mut events, known, .. } = self;
        let mut known = known.into_iter();
        events.retain(|_| !known.next().unwrap_or_default());
        events
    }
}

/// Returns the mark of an event: a hash of the kind and time, and of the pod of a sample. Few events share a
/// mark. More bytes may follow the body.
fn mark(hasher: &RandomState, kind: EventKind, body: &[u8]) -> u64 {
    let (pod, time) = match kind {
        EventKind::PodUsage => body::pod_and_time(body),
        _ => (&[][..], body::event_time_of(body)),
    };
    hasher.hash_one((kind as u8, time, pod))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Mutex;

    use bytes::Bytes;
    use prorata_schemas::event::{Event, NodeStopped, Payload, PodUsage};
    use prorata_schemas::time::Timestamp;

    use super::*;
    use crate::ports::{DeadLetter, EachRecord, FormatError};

    /// Events of two organizations at two instants: samples of two pods, and two other events.
    fn events(cpu_millis: i64) -> Vec<Body> {
        let mut events = Vec::new();
        for (organization_id, time) in [("acme", 0), ("acme", 60), ("bird", 0), ("bird", 60)] {
            let usage = |pod: &str| PodUsage {
                pod_uid: pod.into(),
                interval_end: Timestamp(time + 60),
                cpu_millis,
                memory_bytes: 0,
                gpu_millis: 0,
                gpu_memory_bytes: None,
            };
            let payloads = [
                Payload::PodUsage(usage("a")),
                Payload::PodUsage(usage("b")),
                Payload::NodeStopped(NodeStopped { cluster_id: "c".into(), node_id: "m".into() }),
                Payload::NodeStopped(NodeStopped { cluster_id: "c".into(), node_id: "n".into() }),
            ];
            for payload in payloads {
                let kind = payload.kind();
                let event_time = Timestamp(time);
                let event = Event::new(organization_id.into(), event_time, payload);
                events.push((kind, body::encode(&event).into()));
            }
        }
        in_archive_order(events)
    }

    #[test]
    fn an_archived_event_is_known_in_every_form() {
        let all = events(250);
        for (at, (kind, body)) in all.iter().enumerate() {
            let mut others = all.clone();
            others.remove(at);
            let owned = EventRef::Event(body::decode(*kind, body).unwrap());
            for event in [body::decode_ref(*kind, body).unwrap(), owned] {
                let mut unknown = Unknown::new(all.clone());
                unknown.take_known(event);
                assert_eq!(unknown.finish(), others, "{kind:?}");
            }
        }
    }

    #[test]
    fn only_events_that_may_be_known_are_read_from_the_archive() {
        let all = events(250);
        let mut unknown = Unknown::new(all.iter().filter(|(_, body)| is_late(body)).cloned().collect());
        let archive = Holds { bodies: all.clone(), read: Mutex::default() };
        unknown.compare(&archive, &StoredObject { path: "a.avro".into(), bytes: Bytes::new() }).unwrap();
        let late: Vec<Body> = all.into_iter().filter(|(_, body)| is_late(body)).collect();
        assert_eq!(*archive.read.lock().unwrap(), late);
        assert!(!late.is_empty() && unknown.finish().is_empty());
    }

    /// Returns whether the event is from the second instant.
    fn is_late(body: &[u8]) -> bool {
        body::event_time_of(body) > 0
    }

    /// An archive whose every file holds these events; it records which events were read.
    struct Holds {
        bodies: Vec<Body>,
        read: Mutex<Vec<Body>>,
    }

    impl Archive for Holds {
        fn read_own(
            &self,
            _: &[u8],
            wanted: Wanted<'_>,
            each: &mut dyn FnMut(EventRef<'_>),
        ) -> Result<(), FormatError> {
            for (kind, body) in &self.bodies {
                if wanted.has_body(*kind, body) {
                    self.read.lock().unwrap().push((*kind, body.clone()));
                    each(body::decode_ref(*kind, body).unwrap());
                }
            }
            Ok(())
        }

        fn read(&self, _: &mut dyn Read, _: EachRecord<'_>) -> std::io::Result<()> {
            unreachable!("files are our own")
        }

        fn write(&self, _: &[(EventKind, &[u8])]) -> Result<Vec<u8>, FormatError> {
            unreachable!("nothing is written")
        }

        fn write_dead_letters(&self, _: &[DeadLetter]) -> Result<Vec<u8>, FormatError> {
            unreachable!("nothing is written")
        }

        fn read_dead_letters(&self, _: &[u8]) -> Result<Vec<DeadLetter>, FormatError> {
            unreachable!("files are our own")
        }
    }

    #[test]
    fn another_event_of_the_same_pod_and_instant_is_not_known() {
        let mut unknown = Unknown::new(events(250));
        let others = events(251);
        for (kind, body) in others.iter().filter(|(kind, _)| *kind == EventKind::PodUsage) {
            unknown.take_known(body::decode_ref(*kind, body).unwrap());
        }
        assert_eq!(unknown.finish(), events(250));
    }
}
