//! Identity of events: what an event is about, and which of several events about one thing stands.

use super::{Event, Payload};
use crate::time::Timestamp;

/// The common fields `recorded_at` and `retracted` of an event.
///
/// Among events of one kind, natural key and event time, the event with the largest recording stands. The
/// largest recording has the latest `recorded_at`. Null sorts before every instant, and a retraction sorts
/// last at its instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Recording(i64);

impl Recording {
    /// Neither `recorded_at` nor a retraction.
    pub const NONE: Self = Self::new(None, false);

    /// Creates a recording. The instant lies in the years 1970 to 9999; it is `None` if unknown.
    pub const fn new(recorded_at: Option<Timestamp>, is_retraction: bool) -> Self {
        // The lowest bit is the retraction, the other bits are the instant. So one comparison of numbers
        // decides the order, and an event needs eight bytes for it.
        let instant = match recorded_at {
            Some(instant) => instant.0,
            None => -1,
        };
        Self(instant << 1 | is_retraction as i64)
    }

    /// Returns the instant at which the producer learned of the event; `None` if unknown.
    pub const fn recorded_at(self) -> Option<Timestamp> {
        if self.0 < 0 { None } else { Some(Timestamp(self.0 >> 1)) }
    }

    /// Returns whether the event is a retraction, which takes back what was recorded before.
    pub const fn is_retraction(self) -> bool {
        self.0 & 1 == 1
    }

    /// Returns the recording as a number for packed forms. [`Self::from_bits`] is the inverse.
    pub const fn to_bits(self) -> i64 {
        self.0
    }

    /// Returns the recording for a number that [`Self::to_bits`] returned.
    pub const fn from_bits(bits: i64) -> Self {
        Self(bits)
    }
}

impl Default for Recording {
    fn default() -> Self {
        Self::NONE
    }
}

impl Payload {
    /// Returns the natural key: up to three fields, `None` where a field is absent. It lacks the event time,
    /// although the natural key of usage includes it.
    pub fn natural_key(&self) -> [Option<&str>; 3] {
        match self {
            Self::RateSet(rate) => [Some(&rate.region), rate.gpu_model.as_deref(), Some(&rate.qos)],
            Self::BillSet(bill) => {
                [Some(&bill.provider), Some(&bill.billing_account_id), Some(&bill.resource_key)]
            }
            Self::BillingPeriodClosed(closed) => {
                [Some(&closed.provider), Some(&closed.billing_account_id), None]
            }
            Self::PoolSet(pool) => [Some(&pool.pool_id), None, None],
            Self::PoolDeleted(pool) => [Some(&pool.pool_id), None, None],
            Self::QuotaSet(quota) => [Some(&quota.cluster_id), Some(&quota.quota_id), None],
            Self::QuotaDeleted(quota) => [Some(&quota.cluster_id), Some(&quota.quota_id), None],
            Self::CommitmentSet(commitment) => [Some(&commitment.commitment_id), None, None],
            Self::CommitmentDeleted(commitment) => [Some(&commitment.commitment_id), None, None],
            Self::ReservationSet(reservation) => [Some(&reservation.reservation_id), None, None],
            Self::ReservationReleased(reservation) => [Some(&reservation.reservation_id), None, None],
            Self::NodeStarted(node) => [Some(&node.cluster_id), Some(&node.node_id), None],
            Self::NodeStopped(node) => [Some(&node.cluster_id), Some(&node.node_id), None],
            Self::PodStarted(pod) => [Some(&pod.pod_uid), None, None],
            Self::PodStopped(pod) => [Some(&pod.pod_uid), None, None],
            Self::PodUsage(usage) => [Some(&usage.pod_uid), None, None],
        }
    }
}

impl Event {
    /// Returns whether both events are about the same thing, so that at most one of them stands. Such events
    /// agree in organization, event time, type and natural key.
    pub fn is_rival_of(&self, other: &Self) -> bool {
        (self.event_time, self.payload.kind()) == (other.event_time, other.payload.kind())
            && self.payload.natural_key() == other.payload.natural_key()
            && self.organization_id == other.organization_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OrganizationId;

    #[test]
    fn recordings_are_ordered_by_instant_and_then_retraction() {
        let at = |micros| Some(Timestamp(micros));
        let ascending = [
            (None, false),
            (None, true),
            (at(0), false),
            (at(0), true),
            (at(1), false),
            (at(253_402_300_799_999_999), true),
        ];
        let recordings = ascending.map(|(instant, is_retraction)| Recording::new(instant, is_retraction));
        assert!(recordings.is_sorted_by(|a, b| a < b), "{recordings:?}");
        assert_eq!(
            recordings.map(|recording| (recording.recorded_at(), recording.is_retraction())),
            ascending
        );
        assert_eq!(recordings.map(|recording| Recording::from_bits(recording.to_bits())), recordings);
        assert_eq!(Recording::default(), recordings[0]);
    }

    #[test]
    fn a_recording_takes_eight_bytes_of_an_event() {
        let others = size_of::<OrganizationId>() + size_of::<Timestamp>() + size_of::<Payload>();
        assert_eq!(size_of::<Event>(), others + 8);
    }
}
