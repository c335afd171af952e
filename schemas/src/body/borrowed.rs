//! Events as a fold reads them. Most events are usage samples. A fold keeps only the figures of a sample, so
//! the texts of a sample are borrowed from the body.

use crate::body::fields::{is_time, is_usage_interval, valid_recording};
use crate::body::wire::Wire;
use crate::body::{BODY_BYTES_MAX, SCRATCH};
use crate::event::{Event, EventKind, EventRecord, Payload, PodUsage, Recording};
use crate::ids::PodUid;
use crate::sharing::Names;
use crate::time::Timestamp;

/// An event whose texts may be borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventRef<'a> {
    /// Measured use.
    PodUsage {
        /// The event's organization.
        organization_id: &'a str,
        /// The event's time.
        event_time: Timestamp,
        /// The time at which the event was recorded, and whether it is a retraction.
        recording: Recording,
        /// The sample itself.
        usage: PodUsageRef<'a>,
    },
    /// Any event; usually not a sample.
    Event(Event),
}

/// A [`PodUsage`] whose texts are borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is documented by the field of `PodUsage` of the same name")]
pub struct PodUsageRef<'a> {
    pub pod_uid: &'a str,
    pub interval_end: Timestamp,
    pub cpu_millis: i64,
    pub memory_bytes: i64,
    pub gpu_millis: i64,
    pub gpu_memory_bytes: Option<i64>,
}

/// An event whose texts may be borrowed, with its canonical body: see [`EventRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecordRef<'a> {
    /// The event.
    pub event: EventRef<'a>,
    /// Canonical body of the event.
    pub body: Box<[u8]>,
}

impl<'a> EventRef<'a> {
    /// Reads the next body if it is a valid sample. Otherwise returns `None` and leaves `wire` where it is.
    /// Most events are valid samples, so this path records no fault per field. `read.rs` reads the other
    /// bodies and reports their faults.
    pub(super) fn valid_sample(kind: EventKind, wire: &mut Wire<'a>) -> Option<Self> {
        if kind != EventKind::PodUsage {
            return None;
        }
        let mut fields = wire.clone();
        let key = |fields: &mut Wire<'a>| {
            let text = std::str::from_utf8(fields.bytes().ok()?).ok()?;
            (!text.is_empty()).then_some(text)
        };
        let organization_id = key(&mut fields)?;
        let event_time = Timestamp(fields.long().ok()?);
        let pod_uid = key(&mut fields)?;
        let interval_end = Timestamp(fields.long().ok()?);
        let figures = [fields.long().ok()?, fields.long().ok()?, fields.long().ok()?];
        let gpu_memory_bytes = match fields.long().ok()? {
            0 => None,
            1 => Some(fields.long().ok()?),
            _ => return None,
        };
        let recording = valid_recording(&mut fields)?;
        let is_valid = is_time(event_time.0)
            && is_time(interval_end.0)
            && is_usage_interval(event_time, interval_end)
            && figures.into_iter().chain(gpu_memory_bytes).all(|figure| figure >= 0);
        if !is_valid || wire.rest().len() - fields.rest().len() > BODY_BYTES_MAX {
            return None;
        }
        *wire = fields;
        let [cpu_millis, memory_bytes, gpu_millis] = figures;
        let usage =
            PodUsageRef { pod_uid, interval_end, cpu_millis, memory_bytes, gpu_millis, gpu_memory_bytes };
        Some(Self::PodUsage { organization_id, event_time, recording, usage })
    }
}

impl EventRef<'_> {
    /// Returns the event's organization.
    pub fn organization_id(&self) -> &str {
        match self {
            Self::PodUsage { organization_id, .. } => organization_id,
            Self::Event(event) => &event.organization_id,
        }
    }

    /// Returns the event's time.
    pub fn event_time(&self) -> Timestamp {
        match self {
            Self::PodUsage { event_time, .. } => *event_time,
            Self::Event(event) => event.event_time,
        }
    }

    /// Returns the event's type.
    pub fn kind(&self) -> EventKind {
        match self {
            Self::PodUsage { .. } => EventKind::PodUsage,
            Self::Event(event) => event.payload.kind(),
        }
    }

    /// Returns the event with texts that are shared among the events of the organization.
    pub(super) fn shared(self, names: &mut Names) -> Event {
        match self {
            Self::PodUsage { organization_id, event_time, recording, usage } => {
                let organization = names.last(organization_id.as_bytes());
                let organization = organization.unwrap_or_else(|| names.enter(organization_id));
                let payload = Payload::PodUsage(usage.owned(names.text(usage.pod_uid).into()));
                Event { organization_id: organization.into(), event_time, recording, payload }
            }
            Self::Event(event) => event,
        }
    }

    /// Returns the event with owned texts.
    pub fn into_owned(self) -> Event {
        match self {
            Self::PodUsage { organization_id, event_time, recording, usage } => {
                let payload = Payload::PodUsage(usage.owned(usage.pod_uid.into()));
                Event { organization_id: organization_id.into(), event_time, recording, payload }
            }
            Self::Event(event) => event,
        }
    }
}

impl<'a> EventRecordRef<'a> {
    /// Creates a record: the event with its canonical body.
    pub fn new(event: EventRef<'a>) -> Self {
        let body = SCRATCH.with_borrow_mut(|scratch| {
            scratch.0.clear();
            scratch.event_ref(&event);
            Box::from(&*scratch.0)
        });
        Self { event, body }
    }

    /// Returns the record with owned texts.
    pub fn into_owned(self) -> EventRecord {
        EventRecord { event: self.event.into_owned(), body: self.body }
    }
}

impl PodUsageRef<'_> {
    /// Returns the sample with `pod_uid` as an owned text.
    pub(super) fn owned(&self, pod_uid: PodUid) -> PodUsage {
        let Self { interval_end, cpu_millis, memory_bytes, gpu_millis, gpu_memory_bytes, .. } = *self;
        PodUsage { pod_uid, interval_end, cpu_millis, memory_bytes, gpu_millis, gpu_memory_bytes }
    }
}

impl<'a> From<&'a PodUsage> for PodUsageRef<'a> {
    fn from(usage: &'a PodUsage) -> Self {
        let PodUsage { pod_uid, interval_end, cpu_millis, memory_bytes, gpu_millis, gpu_memory_bytes } =
            usage;
        Self {
            pod_uid,
            interval_end: *interval_end,
            cpu_millis: *cpu_millis,
            memory_bytes: *memory_bytes,
            gpu_millis: *gpu_millis,
            gpu_memory_bytes: *gpu_memory_bytes,
        }
    }
}
