//! The order in which events apply (RULES.md, section 6): by event time; at one instant rates, pools, quotas,
//! commitments, reservations, then ends, then starts, then usage; ties by natural key, field by field as
//! UTF-8 bytes, null first.
//!
//! Duplicates are removed here. The same event twice is one event; of two different events with one natural
//! key and one event time, the one whose canonical body sorts last stands. So the order of arrival decides
//! nothing.

use std::cmp::Ordering;

use prorata_schemas::event::{EventRecord, Payload};
use prorata_schemas::time::Timestamp;

/// Precedence of an event type at one instant, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precedence {
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

/// The precedence of an event.
pub(crate) const fn precedence(payload: &Payload) -> Precedence {
    match payload {
        Payload::RateSet(_) => Precedence::Rate,
        Payload::PoolSet(_) => Precedence::Pool,
        Payload::QuotaSet(_) => Precedence::Quota,
        Payload::CommitmentSet(_) => Precedence::Commitment,
        Payload::ReservationSet(_) => Precedence::Reservation,
        Payload::NodeStopped(_) => Precedence::NodeEnd,
        Payload::PodStopped(_) => Precedence::PodEnd,
        Payload::ReservationReleased(_) => Precedence::ReservationEnd,
        Payload::CommitmentDeleted(_) => Precedence::CommitmentEnd,
        Payload::QuotaDeleted(_) => Precedence::QuotaEnd,
        Payload::PoolDeleted(_) => Precedence::PoolEnd,
        Payload::NodeStarted(_) => Precedence::NodeStart,
        Payload::PodStarted(_) => Precedence::PodStart,
        Payload::PodUsage(_) => Precedence::Usage,
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

/// The hour's events without duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventCounts {
    /// Distinct events, losers of a natural key included.
    pub(crate) distinct: i64,
    /// The latest event time.
    pub(crate) latest: Option<Timestamp>,
}

/// Orders the events of an hour and removes duplicates: one event stays for each natural key and event time.
pub(crate) fn order(mut records: Vec<EventRecord>) -> (Vec<EventRecord>, EventCounts) {
    records.sort_unstable_by(|a, b| place(a, b).then_with(|| a.body.cmp(&b.body)));
    records.dedup_by(|later, earlier| place(later, earlier).is_eq() && later.body == earlier.body);
    let distinct = i64::try_from(records.len()).unwrap_or(i64::MAX);
    let latest = records.last().map(|record| record.event.event_time);
    // `dedup_by` keeps the earlier of two, but of one key the last body stands: swap it into the earlier
    // place.
    records.dedup_by(|later, earlier| {
        let same = place(later, earlier).is_eq();
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
    (records, EventCounts { distinct, latest })
}

fn place(a: &EventRecord, b: &EventRecord) -> Ordering {
    let key = |record: &EventRecord| (record.event.event_time, precedence(&record.event.payload));
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
            let (records, counts) = order(turned);
            let bodies: Vec<u8> = records.iter().map(|record| record.body[0]).collect();
            assert_eq!(bodies, [9, 3]);
            assert_eq!(counts, EventCounts { distinct: 4, latest: Some(Timestamp(1)) });
        }
    }
}
