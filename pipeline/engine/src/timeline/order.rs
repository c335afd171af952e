//! The order in which events apply: by event time; at one instant rates, pools, quotas, commitments, reservations,
//! then ends, then starts, then usage; ties by natural key, field by field as UTF-8 bytes, null first.
//!
//! Duplicates are folded here. The same event twice is one event; of two different events with one natural key and one
//! event time, the one whose canonical body sorts last stands.

use std::cmp::Ordering;

use prorata_schemas::event::{EventRecord, Payload};
use prorata_schemas::time::Timestamp;

/// Place of an event type at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Rate,
    Pool,
    Quota,
    Commitment,
    Reservation,
    NodeEnd,
    PodEnd,
    ReservationEnd,
    CommitmentEnd,
    QuotaEnd,
    PoolEnd,
    NodeStart,
    PodStart,
    Usage,
}

/// The class of an event.
pub(crate) const fn class(payload: &Payload) -> Class {
    match payload {
        Payload::RateSet(_) => Class::Rate,
        Payload::PoolSet(_) => Class::Pool,
        Payload::QuotaSet(_) => Class::Quota,
        Payload::CommitmentSet(_) => Class::Commitment,
        Payload::ReservationSet(_) => Class::Reservation,
        Payload::NodeStopped(_) => Class::NodeEnd,
        Payload::PodStopped(_) => Class::PodEnd,
        Payload::ReservationReleased(_) => Class::ReservationEnd,
        Payload::CommitmentDeleted(_) => Class::CommitmentEnd,
        Payload::QuotaDeleted(_) => Class::QuotaEnd,
        Payload::PoolDeleted(_) => Class::PoolEnd,
        Payload::NodeStarted(_) => Class::NodeStart,
        Payload::PodStarted(_) => Class::PodStart,
        Payload::PodUsage(_) => Class::Usage,
    }
}

/// The natural key of an event: up to three fields, absent ones null.
pub(crate) fn natural_key(payload: &Payload) -> [Option<&str>; 3] {
    match payload {
        Payload::RateSet(rate) => [Some(&rate.region), rate.gpu_model.as_deref(), Some(&rate.qos)],
        Payload::PoolSet(pool) => [Some(&pool.pool_id), None, None],
        Payload::PoolDeleted(pool) => [Some(&pool.pool_id), None, None],
        Payload::QuotaSet(quota) => [Some(&quota.cluster_id), Some(&quota.quota_id), None],
        Payload::QuotaDeleted(quota) => [Some(&quota.cluster_id), Some(&quota.quota_id), None],
        Payload::CommitmentSet(commitment) => [Some(&commitment.commitment_id), None, None],
        Payload::CommitmentDeleted(commitment) => [Some(&commitment.commitment_id), None, None],
        Payload::ReservationSet(reservation) => [Some(&reservation.reservation_id), None, None],
        Payload::ReservationReleased(reservation) => [Some(&reservation.reservation_id), None, None],
        Payload::NodeStarted(node) => [Some(&node.cluster_id), Some(&node.node_id), None],
        Payload::NodeStopped(node) => [Some(&node.cluster_id), Some(&node.node_id), None],
        Payload::PodStarted(pod) => [Some(&pod.pod_uid), None, None],
        Payload::PodStopped(pod) => [Some(&pod.pod_uid), None, None],
        Payload::PodUsage(usage) => [Some(&usage.pod_uid), None, None],
    }
}

/// The hour's events in order, duplicates folded.
pub(crate) struct Ordered {
    /// One event for each natural key and event time.
    pub(crate) records: Vec<EventRecord>,
    /// Distinct events, losers of a natural key included.
    pub(crate) distinct: i64,
    /// The latest event time.
    pub(crate) latest: Option<Timestamp>,
}

/// Orders the events of an hour and folds duplicates away, whatever order they came in.
pub(crate) fn order(mut records: Vec<EventRecord>) -> Ordered {
    records.sort_unstable_by(|a, b| place(a, b).then_with(|| a.body.cmp(&b.body)));
    records.dedup_by(|later, earlier| place(later, earlier).is_eq() && later.body == earlier.body);
    let distinct = i64::try_from(records.len()).unwrap_or(i64::MAX);
    let latest = records.last().map(|record| record.event.event_time);
    // Of equal keys the last body stands: keep it in the place of the earlier one.
    records.dedup_by(|later, earlier| {
        let same = place(later, earlier).is_eq();
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
    Ordered { records, distinct, latest }
}

fn place(a: &EventRecord, b: &EventRecord) -> Ordering {
    let key = |record: &EventRecord| (record.event.event_time, class(&record.event.payload));
    key(a).cmp(&key(b)).then_with(|| natural_key(&a.event.payload).cmp(&natural_key(&b.event.payload)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prorata_schemas::event::{Event, PodStopped};

    fn stop(uid: &str, at: i64, body: u8) -> EventRecord {
        let pod = PodStopped {
            cluster_id: "c".into(),
            namespace: "n".into(),
            pod_uid: uid.into(),
            reason: Some(body.to_string().as_str().into()),
        };
        let event = Event {
            organization_id: "o".into(),
            event_time: Timestamp(at),
            payload: Payload::PodStopped(pod),
        };
        EventRecord { event, body: Box::new([body]) }
    }

    #[test]
    fn the_last_body_of_one_key_stands_in_any_order() {
        let events = [stop("a", 1, 1), stop("a", 1, 3), stop("a", 1, 2), stop("a", 1, 3), stop("b", 0, 9)];
        for turn in 0..events.len() {
            let mut turned = events.to_vec();
            turned.rotate_left(turn);
            let ordered = order(turned);
            assert_eq!(ordered.distinct, 4);
            let bodies: Vec<u8> = ordered.records.iter().map(|record| record.body[0]).collect();
            assert_eq!(bodies, [9, 3]);
            assert_eq!(ordered.latest, Some(Timestamp(1)));
        }
    }
}
