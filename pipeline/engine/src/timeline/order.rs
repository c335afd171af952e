//! The order in which events apply (RULES.md, section 6): by event time; at one instant rates, pools, quotas,
//! commitments, reservations, then ends, then starts, then usage; ties by natural key, field by field as
//! UTF-8 bytes, null first.
//!
//! Duplicates are removed here. The same event twice is one event; of two different events with one natural
//! key and one event time, the one whose canonical body sorts last stands. So the order of arrival decides
//! nothing.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use prorata_schemas::event::{Event, EventRecord, Payload, PodUsage};
use prorata_schemas::ids::PodUid;
use prorata_schemas::time::Timestamp;

use crate::per_resource::PerResource;
use crate::timeline::state::Sample;

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

/// Counts of the hour's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventCounts {
    /// Distinct events, losers of a natural key included.
    pub(crate) distinct: i64,
    /// The latest event time.
    pub(crate) latest: Option<Timestamp>,
}

/// The hour's events without duplicates: one for each natural key and event time.
#[derive(Debug)]
pub(crate) struct Ordered {
    /// All but usage, in order.
    pub(crate) events: Vec<Event>,
    /// Usage changes nothing that other events see, so it needs no place among them.
    pub(crate) samples: Vec<PodSamples>,
    pub(crate) counts: EventCounts,
}

/// What was measured of one pod, in order of time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PodSamples {
    pub(crate) pod_uid: PodUid,
    pub(crate) samples: Vec<Sample>,
}

/// A usage event of the pod at this place.
struct UsageRecord {
    pod: usize,
    sample: Sample,
    body: Box<[u8]>,
}

/// Orders the events of an hour and removes duplicates.
pub(crate) fn order(records: Vec<EventRecord>) -> Ordered {
    let latest = records.iter().map(|record| record.event.event_time).max();
    let mut places: BTreeMap<PodUid, usize> = BTreeMap::new();
    let mut pods: Vec<PodSamples> = Vec::new();
    let (mut usage, mut others) = (Vec::new(), Vec::new());
    for EventRecord { event, body } in records {
        let Payload::PodUsage(measured) = event.payload else {
            others.push(EventRecord { event, body });
            continue;
        };
        let sample = sample_of(event.event_time, &measured);
        let pod = *places.entry(measured.pod_uid).or_insert_with_key(|uid| {
            pods.push(PodSamples { pod_uid: uid.clone(), samples: Vec::new() });
            pods.len() - 1
        });
        usage.push(UsageRecord { pod, sample, body });
    }
    let distinct = order_usage(usage, &mut pods) + order_others(&mut others);
    let counts = EventCounts { distinct: i64::try_from(distinct).unwrap_or(i64::MAX), latest };
    Ordered { events: others.into_iter().map(|record| record.event).collect(), samples: pods, counts }
}

fn sample_of(from: Timestamp, usage: &PodUsage) -> Sample {
    let amounts = PerResource { cpu: usage.cpu_millis, memory: usage.memory_bytes, gpu: usage.gpu_millis };
    let use_amounts = amounts.map(|amount| u64::try_from(amount).unwrap_or(0));
    Sample { from, to: usage.interval_end, use_amounts }
}

/// Gives each pod its samples of some length, and returns the number of distinct events.
fn order_usage(mut usage: Vec<UsageRecord>, pods: &mut [PodSamples]) -> usize {
    let place = |record: &UsageRecord| (record.pod, record.sample.from);
    usage.sort_unstable_by(|a, b| place(a).cmp(&place(b)).then_with(|| a.body.cmp(&b.body)));
    usage.dedup_by(|later, earlier| place(later) == place(earlier) && later.body == earlier.body);
    let distinct = usage.len();
    keep_last(&mut usage, |later, earlier| place(later) == place(earlier));
    for UsageRecord { pod, sample, .. } in usage {
        if sample.from < sample.to {
            pods[pod].samples.push(sample);
        }
    }
    distinct
}

/// Sorts all other events, and returns the number of distinct ones.
fn order_others(records: &mut Vec<EventRecord>) -> usize {
    records.sort_unstable_by(|a, b| place(a, b).then_with(|| a.body.cmp(&b.body)));
    records.dedup_by(|later, earlier| place(later, earlier).is_eq() && later.body == earlier.body);
    let distinct = records.len();
    keep_last(records, |later, earlier| place(later, earlier).is_eq());
    distinct
}

/// Of neighbours that are the same, keeps the last: `dedup_by` keeps the earlier of two, so the later is
/// swapped into its place.
fn keep_last<T>(records: &mut Vec<T>, same: impl Fn(&T, &T) -> bool) {
    records.dedup_by(|later, earlier| {
        let same = same(later, earlier);
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
}

fn place(a: &EventRecord, b: &EventRecord) -> Ordering {
    let key = |record: &EventRecord| (record.event.event_time, precedence(&record.event.payload));
    key(a).cmp(&key(b)).then_with(|| natural_key(&a.event.payload).cmp(&natural_key(&b.event.payload)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prorata_schemas::event::PodStopped;

    fn record(at: i64, payload: Payload, body: u8) -> EventRecord {
        let event = Event { organization_id: "o".into(), event_time: Timestamp(at), payload };
        EventRecord { event, body: Box::new([body]) }
    }

    fn stop(uid: &str, at: i64, body: u8) -> EventRecord {
        let pod = PodStopped {
            cluster_id: "c".into(),
            namespace: "n".into(),
            pod_uid: uid.into(),
            reason: Some(body.to_string().as_str().into()),
        };
        record(at, Payload::PodStopped(pod), body)
    }

    fn usage(uid: &str, at: i64, body: u8) -> EventRecord {
        let measured = PodUsage {
            pod_uid: uid.into(),
            interval_end: Timestamp(at + i64::from(body)),
            cpu_millis: body.into(),
            memory_bytes: 0,
            gpu_millis: 0,
        };
        record(at, Payload::PodUsage(measured), body)
    }

    #[test]
    fn the_last_body_of_one_key_stands_in_any_order() {
        let events = [stop("a", 1, 1), stop("a", 1, 3), stop("a", 1, 2), stop("a", 1, 3), stop("b", 0, 9)];
        for turn in 0..events.len() {
            let mut turned = events.to_vec();
            turned.rotate_left(turn);
            let Ordered { events, samples, counts } = order(turned);
            let reasons: Vec<_> = events
                .iter()
                .map(|event| {
                    let Payload::PodStopped(stop) = &event.payload else { return None };
                    stop.reason.as_deref()
                })
                .collect();
            assert_eq!((reasons, samples), (vec![Some("9"), Some("3")], Vec::new()));
            assert_eq!(counts, EventCounts { distinct: 4, latest: Some(Timestamp(1)) });
        }
    }

    #[test]
    fn usage_is_one_sample_for_each_pod_and_start_and_none_of_no_length() {
        let events = [
            usage("b", 5, 1),
            usage("a", 7, 2),
            usage("a", 5, 1),
            usage("a", 5, 4),
            usage("a", 5, 4),
            usage("a", 9, 0),
        ];
        for turn in 0..events.len() {
            let mut turned = events.to_vec();
            turned.rotate_left(turn);
            let Ordered { events, mut samples, counts } = order(turned);
            samples.sort_by(|a, b| a.pod_uid.cmp(&b.pod_uid));
            let found = samples.iter().flat_map(|pod| {
                pod.samples.iter().map(|sample| (&*pod.pod_uid, sample.from.0, sample.use_amounts.cpu))
            });
            assert_eq!(found.collect::<Vec<_>>(), [("a", 5, 4), ("a", 7, 2), ("b", 5, 1)]);
            assert_eq!((events, counts.distinct), (Vec::new(), 5));
        }
    }
}
