//! The step from events to stretches of time in which nothing changes. It removes duplicates, and orders the
//! instants and the steps of each instant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::event::{Event, EventKind, EventRecord, Payload};
use prorata_schemas::ids::ReservationId;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{HOUR_MICROS, Hour, Timestamp};

use crate::hour::Slice;
use crate::rules::reservation::settle;
use crate::rules::{commitment, quota};
use crate::world::{Bill, Node, Pod, Quota, Reservation, World, rate_key};

/// The kind of an event, and the fields that identify its subject.
type NaturalKey = (EventKind, Vec<Option<String>>);

/// Returns every event that counts. Of the events with one natural key and event time, the event recorded
/// last counts. In a tie, the retraction counts, then the event whose canonical body sorts last. If the event
/// that counts is a retraction, nothing happened.
pub fn resolve(records: &[EventRecord]) -> Vec<&Event> {
    let mut last: BTreeMap<(Timestamp, NaturalKey), &EventRecord> = BTreeMap::new();
    for record in records {
        let key = (record.event.event_time, natural_key(&record.event.payload));
        let winner = last.entry(key).or_insert(record);
        if rank(record) > rank(winner) {
            *winner = record;
        }
    }
    let events = last.into_values().map(|record| &record.event);
    events.filter(|event| !event.recording.is_retraction()).collect()
}

/// Returns the sort key of events of which only the last one counts. Null is before every instant.
fn rank(record: &EventRecord) -> (Option<Timestamp>, bool, &[u8]) {
    let recording = record.event.recording;
    (recording.recorded_at(), recording.is_retraction(), &record.body)
}

/// Returns the natural key of `EVENTS.md`. For usage it lacks the event time, which is part of every key
/// here.
fn natural_key(payload: &Payload) -> NaturalKey {
    let fields = match payload {
        Payload::NodeStarted(node) => vec![Some(&*node.cluster_id), Some(&*node.node_id)],
        Payload::NodeStopped(node) => vec![Some(&*node.cluster_id), Some(&*node.node_id)],
        Payload::PodStarted(pod) => vec![Some(&*pod.pod_uid)],
        Payload::PodStopped(pod) => vec![Some(&*pod.pod_uid)],
        Payload::PodUsage(usage) => vec![Some(&*usage.pod_uid)],
        Payload::ReservationSet(reservation) => vec![Some(&*reservation.reservation_id)],
        Payload::ReservationReleased(reservation) => vec![Some(&*reservation.reservation_id)],
        Payload::CommitmentSet(commitment) => vec![Some(&*commitment.commitment_id)],
        Payload::CommitmentDeleted(commitment) => vec![Some(&*commitment.commitment_id)],
        Payload::QuotaSet(quota) => vec![Some(&*quota.cluster_id), Some(&*quota.quota_id)],
        Payload::QuotaDeleted(quota) => vec![Some(&*quota.cluster_id), Some(&*quota.quota_id)],
        Payload::PoolSet(pool) => vec![Some(&*pool.pool_id)],
        Payload::PoolDeleted(pool) => vec![Some(&*pool.pool_id)],
        Payload::RateSet(rate) => vec![Some(&*rate.region), rate.gpu_model.as_deref(), Some(&*rate.qos)],
        Payload::BillSet(bill) => {
            vec![Some(&*bill.provider), Some(&*bill.billing_account_id), Some(&*bill.resource_key)]
        }
        Payload::BillingPeriodClosed(month) => {
            vec![Some(&*month.provider), Some(&*month.billing_account_id)]
        }
    };
    (payload.kind(), fields.into_iter().map(|field| field.map(str::to_owned)).collect())
}

/// Returns the slices of every hour from the hour of the first record through `through`.
pub fn slices(records: &[EventRecord], rules: &Rules, through: Hour) -> Vec<Slice> {
    let hours = records.iter().map(|record| record.event.event_time.hour());
    let Some(first) = hours.min() else { return Vec::new() };
    let events = &*resolve(records);
    let end = through.end().0;
    let mut instants = instants(events);
    instants.extend((first.0..=through.0 + 1).map(|hour| hour * HOUR_MICROS));
    let instants: Vec<i64> = instants.into_iter().filter(|at| (first.start().0..=end).contains(at)).collect();
    let mut world = World::default();
    let mut slices = Vec::new();
    for (index, &at) in instants.iter().enumerate() {
        let Some(&next) = instants.get(index + 1) else { break };
        step(&mut world, at, events, rules);
        slices.push(Slice {
            from: at,
            to: next,
            quotas: quota::standings(&world, rules),
            covers: commitment::covers(&world, at, rules, commitment::totals),
            world: world.clone(),
        });
    }
    for hour in slices.chunk_by_mut(|a, b| a.from / HOUR_MICROS == b.from / HOUR_MICROS) {
        for (place, cover) in commitment::hourly_covers(hour, rules, commitment::totals) {
            hour[place].covers.push(cover);
        }
    }
    slices
}

/// Returns every instant at which anything may change.
fn instants(events: &[&Event]) -> BTreeSet<i64> {
    let mut instants = BTreeSet::new();
    for event in events {
        instants.insert(event.event_time.0);
        let later = match &event.payload {
            Payload::ReservationSet(set) => [Some(set.starts_at), set.ends_at],
            Payload::CommitmentSet(set) => [Some(set.starts_at), set.ends_at],
            Payload::PodStarted(pod) => [pod.eviction_protected_until, None],
            _ => [None, None],
        };
        instants.extend(later.into_iter().flatten().map(|at| at.0));
    }
    instants
}

/// Applies the steps of one instant. Each step takes full effect before the next step.
fn step(world: &mut World, at: i64, events: &[&Event], rules: &Rules) {
    let now: Vec<&Event> = events.iter().copied().filter(|event| event.event_time.0 == at).collect();
    let before = world.clone();
    let of = |kind: EventKind| now.iter().copied().filter(move |event| event.payload.kind() == kind);
    for kind in [EventKind::RateSet, EventKind::PoolSet, EventKind::QuotaSet, EventKind::CommitmentSet] {
        of(kind).for_each(|event| set(world, at, &event.payload));
    }
    world.bills.retain(|bill| bill.end() > at);
    for event in of(EventKind::BillSet) {
        if let Payload::BillSet(bill) = &event.payload {
            let counts = bill.currency == *rules.currency_of(&event.organization_id);
            world.bills.push(Bill { start: at, set: Arc::new((**bill).clone()), counts });
        }
    }
    reservations_begin(world, at, &now, rules);
    for event in of(EventKind::NodeStopped).chain(of(EventKind::PodStopped)) {
        end(world, &event.payload);
        settle(world, at, rules);
    }
    reservations_end(world, at, &now, rules);
    for kind in [EventKind::CommitmentDeleted, EventKind::QuotaDeleted, EventKind::PoolDeleted] {
        of(kind).for_each(|event| end(world, &event.payload));
    }
    for event in of(EventKind::NodeStarted).chain(of(EventKind::PodStarted)) {
        start(world, at, &event.payload, &before, &now);
        settle(world, at, rules);
    }
}

/// Applies sets of rates, pools, quotas and commitments.
fn set(world: &mut World, at: i64, payload: &Payload) {
    match payload {
        Payload::RateSet(rate) => {
            let key = rate_key(&rate.region, rate.gpu_model.as_ref(), &rate.qos);
            world.rates.insert(key, Arc::new(*rate.clone()));
        }
        Payload::PoolSet(pool) => {
            world.pools.insert(pool.pool_id.clone(), Arc::new(*pool.clone()));
        }
        Payload::QuotaSet(quota) => {
            let key = (quota.cluster_id.clone(), quota.quota_id.clone());
            let first_set = world.quotas.get(&key).map_or(at, |existing| existing.first_set);
            world.quotas.insert(key, Quota { first_set, set: Arc::new(*quota.clone()) });
        }
        Payload::CommitmentSet(commitment) => {
            let set = Arc::new(*commitment.clone());
            world.last_commitments.insert(commitment.commitment_id.clone(), Arc::clone(&set));
            world.commitments.insert(commitment.commitment_id.clone(), set);
        }
        _ => {}
    }
}

/// Applies reservations that are set or have their scheduled start at this instant, in order of id.
fn reservations_begin(world: &mut World, at: i64, now: &[&Event], rules: &Rules) {
    let mut sets = BTreeMap::new();
    for (id, reservation) in &world.reservations {
        if reservation.set.starts_at.0 == at {
            sets.insert(id.clone(), Arc::clone(&reservation.set));
        }
    }
    for event in now {
        if let Payload::ReservationSet(set) = &event.payload {
            sets.insert(set.reservation_id.clone(), Arc::new(*set.clone()));
        }
    }
    for (id, set) in sets {
        let effective = set.starts_at.0 <= at && set.ends_at.is_none_or(|end| at < end.0);
        world.reservations.insert(id, Reservation { set, effective });
        settle(world, at, rules);
    }
}

/// Applies reservations that are released or have their scheduled end at this instant, in order of id.
fn reservations_end(world: &mut World, at: i64, now: &[&Event], rules: &Rules) {
    let mut released = BTreeSet::new();
    for event in now {
        if let Payload::ReservationReleased(gone) = &event.payload {
            released.insert(gone.reservation_id.clone());
        }
    }
    let ids: Vec<ReservationId> = world.reservations.keys().cloned().collect();
    for id in ids {
        if released.contains(&id) {
            world.reservations.remove(&id);
        } else if let Some(reservation) = world.reservations.get_mut(&id)
            && reservation.set.ends_at.is_some_and(|end| end.0 == at)
        {
            reservation.effective = false;
        }
        settle(world, at, rules);
    }
}

/// Applies stops and deletions. An object that does not exist cannot end.
fn end(world: &mut World, payload: &Payload) {
    match payload {
        Payload::NodeStopped(node) => {
            let key = (node.cluster_id.clone(), node.node_id.clone());
            if world.nodes.remove(&key).is_some() {
                let on_it =
                    |pod: &Pod| pod.set.cluster_id == key.0 && pod.set.node_id.as_ref() == Some(&key.1);
                world.pods.retain(|_, pod| !on_it(pod));
            }
        }
        Payload::PodStopped(pod) => {
            world.pods.remove(&pod.pod_uid);
        }
        Payload::CommitmentDeleted(commitment) => {
            world.commitments.remove(&commitment.commitment_id);
        }
        Payload::QuotaDeleted(quota) => {
            world.quotas.remove(&(quota.cluster_id.clone(), quota.quota_id.clone()));
        }
        Payload::PoolDeleted(pool) => {
            world.pools.remove(&pool.pool_id);
        }
        _ => {}
    }
}

/// Applies starts. An object that started and stopped at one instant and was not running before never ran. A
/// start of a running object replaces only its description.
fn start(world: &mut World, at: i64, payload: &Payload, before: &World, now: &[&Event]) {
    match payload {
        Payload::NodeStarted(node) => {
            let key = (node.cluster_id.clone(), node.node_id.clone());
            let stops = now.iter().any(|event| match &event.payload {
                Payload::NodeStopped(stop) => stop.cluster_id == key.0 && stop.node_id == key.1,
                _ => false,
            });
            if stops && !before.nodes.contains_key(&key) {
                return;
            }
            let start = world.nodes.get(&key).map_or(at, |running| running.start);
            world.nodes.insert(key, Node { start, set: Arc::new(*node.clone()) });
        }
        Payload::PodStarted(pod) => {
            let stops = now.iter().any(|event| match &event.payload {
                Payload::PodStopped(stop) => stop.pod_uid == pod.pod_uid,
                _ => false,
            });
            if stops && !before.pods.contains_key(&pod.pod_uid) {
                return;
            }
            let start = world.pods.get(&pod.pod_uid).map_or(at, |running| running.start);
            world.pods.insert(pod.pod_uid.clone(), Pod { start, set: Arc::new((**pod).clone()) });
        }
        _ => {}
    }
}
