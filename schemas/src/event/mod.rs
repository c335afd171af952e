//! The sixteen event types, typed and valid: a value of these types has passed every check of a field that
//! needs no configuration.
//!
//! Reading order: [`Event`] and [`Payload`] in this file; then nodes, pods, agreements (reservations,
//! commitments, quotas), prices (pools, rates) and bills in a file each.
//!
//! Every event type documents its natural key. Two events of one kind, natural key and `event_time` are about
//! the same thing, and one of them counts: see [`Recording`].
//!
//! A `...Set` or `...Started` event describes its object in full, from `event_time` until the next one.

mod agreement;
pub mod avsc;
mod bill;
pub mod names;
mod node;
mod pod;
mod price;
pub mod resource_key;
mod rivals;

use serde::{Deserialize, Serialize};

use crate::Text;
use crate::ids::OrganizationId;
use crate::time::Timestamp;

pub use agreement::{
    Assignment, CommitmentDeleted, CommitmentKind, CommitmentSet, DiscountTarget, DiscountedPrice,
    PlanDiscount, QuotaDeleted, QuotaKind, QuotaSet, ReservationReleased, ReservationSet,
};
pub use bill::{BillLine, BillSet, BillingPeriodClosed, ChargeCategory, UseStatus};
pub use node::{CapacityType, NodeStarted, NodeStopped};
pub use pod::{PodStarted, PodStopped, PodUsage};
pub use price::{BudgetExceedStrategy, PoolDeleted, PoolSet, QosPrice, RateSet};
pub use rivals::Recording;

pub use crate::sharing::ByName;
pub use crate::size::Quantities;

/// Labels of a Kubernetes object, values by name.
pub type Labels = ByName<Text>;

/// One event: something that became true for one organization at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The organization that the event is about; equal to the message key. Never empty.
    pub organization_id: OrganizationId,
    /// The instant at which the event became true, set by the producer; in the years 1970 to 9999.
    pub event_time: Timestamp,
    /// The time at which the producer learned of the event, and whether the event retracts what was recorded
    /// before.
    pub recording: Recording,
    /// The content of the event.
    pub payload: Payload,
}

impl Event {
    /// Creates an event without `recorded_at`.
    pub const fn new(organization_id: OrganizationId, event_time: Timestamp, payload: Payload) -> Self {
        Self { organization_id, event_time, recording: Recording::NONE, payload }
    }

    /// Returns the event with this recording.
    #[must_use]
    pub fn recorded(self, recording: Recording) -> Self {
        Self { recording, ..self }
    }
}

/// An event with its canonical body: the Avro bytes of our newest schema, map entries sorted by key in one
/// block. Two events are the same if and only if their kinds and bodies are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// The typed event.
    pub event: Event,
    /// Canonical body of the event.
    pub body: Box<[u8]>,
}

impl From<EventRecord> for Event {
    fn from(record: EventRecord) -> Self {
        record.event
    }
}

/// The event types, in the order in which `EVENTS.md` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is documented by the payload of the same name")]
pub enum EventKind {
    NodeStarted,
    NodeStopped,
    PodStarted,
    PodStopped,
    PodUsage,
    ReservationSet,
    ReservationReleased,
    CommitmentSet,
    CommitmentDeleted,
    QuotaSet,
    QuotaDeleted,
    PoolSet,
    PoolDeleted,
    RateSet,
    BillSet,
    BillingPeriodClosed,
}

impl EventKind {
    /// Every kind, in the order of `EVENTS.md`; also the order of branches in the archive's union schema.
    pub const ALL: [Self; 16] = [
        Self::NodeStarted,
        Self::NodeStopped,
        Self::PodStarted,
        Self::PodStopped,
        Self::PodUsage,
        Self::ReservationSet,
        Self::ReservationReleased,
        Self::CommitmentSet,
        Self::CommitmentDeleted,
        Self::QuotaSet,
        Self::QuotaDeleted,
        Self::PoolSet,
        Self::PoolDeleted,
        Self::RateSet,
        Self::BillSet,
        Self::BillingPeriodClosed,
    ];

    /// Returns the record's name without its namespace.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeStarted => "NodeStarted",
            Self::NodeStopped => "NodeStopped",
            Self::PodStarted => "PodStarted",
            Self::PodStopped => "PodStopped",
            Self::PodUsage => "PodUsage",
            Self::ReservationSet => "ReservationSet",
            Self::ReservationReleased => "ReservationReleased",
            Self::CommitmentSet => "CommitmentSet",
            Self::CommitmentDeleted => "CommitmentDeleted",
            Self::QuotaSet => "QuotaSet",
            Self::QuotaDeleted => "QuotaDeleted",
            Self::PoolSet => "PoolSet",
            Self::PoolDeleted => "PoolDeleted",
            Self::RateSet => "RateSet",
            Self::BillSet => "BillSet",
            Self::BillingPeriodClosed => "BillingPeriodClosed",
        }
    }
}

/// The content of an event, by type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is documented by the payload of the same name")]
pub enum Payload {
    NodeStarted(Box<NodeStarted>),
    NodeStopped(NodeStopped),
    PodStarted(Box<PodStarted>),
    PodStopped(PodStopped),
    PodUsage(PodUsage),
    ReservationSet(Box<ReservationSet>),
    ReservationReleased(ReservationReleased),
    CommitmentSet(Box<CommitmentSet>),
    CommitmentDeleted(CommitmentDeleted),
    QuotaSet(Box<QuotaSet>),
    QuotaDeleted(QuotaDeleted),
    PoolSet(Box<PoolSet>),
    PoolDeleted(PoolDeleted),
    RateSet(Box<RateSet>),
    BillSet(Box<BillSet>),
    BillingPeriodClosed(BillingPeriodClosed),
}

impl Payload {
    /// Returns the event kind.
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::NodeStarted(_) => EventKind::NodeStarted,
            Self::NodeStopped(_) => EventKind::NodeStopped,
            Self::PodStarted(_) => EventKind::PodStarted,
            Self::PodStopped(_) => EventKind::PodStopped,
            Self::PodUsage(_) => EventKind::PodUsage,
            Self::ReservationSet(_) => EventKind::ReservationSet,
            Self::ReservationReleased(_) => EventKind::ReservationReleased,
            Self::CommitmentSet(_) => EventKind::CommitmentSet,
            Self::CommitmentDeleted(_) => EventKind::CommitmentDeleted,
            Self::QuotaSet(_) => EventKind::QuotaSet,
            Self::QuotaDeleted(_) => EventKind::QuotaDeleted,
            Self::PoolSet(_) => EventKind::PoolSet,
            Self::PoolDeleted(_) => EventKind::PoolDeleted,
            Self::RateSet(_) => EventKind::RateSet,
            Self::BillSet(_) => EventKind::BillSet,
            Self::BillingPeriodClosed(_) => EventKind::BillingPeriodClosed,
        }
    }

    /// Returns the currency of the event's prices; `None` if the event has no prices.
    pub const fn currency(&self) -> Option<&Text> {
        match self {
            Self::NodeStarted(node) => Some(&node.currency),
            Self::ReservationSet(reservation) => Some(&reservation.currency),
            Self::CommitmentSet(commitment) => Some(&commitment.currency),
            Self::PoolSet(pool) => Some(&pool.currency),
            Self::RateSet(rate) => Some(&rate.currency),
            Self::BillSet(bill) => Some(&bill.currency),
            Self::NodeStopped(_)
            | Self::PodStarted(_)
            | Self::PodStopped(_)
            | Self::PodUsage(_)
            | Self::ReservationReleased(_)
            | Self::CommitmentDeleted(_)
            | Self::QuotaSet(_)
            | Self::QuotaDeleted(_)
            | Self::PoolDeleted(_)
            | Self::BillingPeriodClosed(_) => None,
        }
    }
}
