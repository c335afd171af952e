//! Seeded random histories with few ids and few instants, so that everything collides with everything. In
//! some histories, objects agree on most things, so that pods match, nodes are covered and quotas overflow.
//! In others, they agree on nothing.

mod bills;
mod choices;
mod contracts;
mod machines;
mod shared;

use prorata_schemas::event::{
    CommitmentDeleted, Event, EventRecord, NodeStarted, NodeStopped, Payload, PodStopped, PoolDeleted,
    QuotaDeleted, Recording, ReservationReleased,
};
use prorata_schemas::money::{Ratio, Weight};
use prorata_schemas::rules::{Allocation, Rules, Weights};
use prorata_schemas::time::{HOUR_MICROS, Hour, Timestamp};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::text::{BASE_HOUR, ORGANIZATION};
use choices::{COMMITMENTS, Choices, NAMESPACES, NODES, PODS, POOLS, QUOTAS, RESERVATIONS};

/// One random history with the rules under which it is folded.
pub struct Scenario {
    /// Events in no order.
    pub records: Vec<EventRecord>,
    /// The rules.
    pub rules: Rules,
    /// The last hour.
    pub through: Hour,
}

/// The frequency of each event, in the order of [`event`].
type Often = [u32; 14];

/// Frequencies for histories about all events, nodes and their pods, reservations, commitments, quotas,
/// pools, and usage.
const THEMES: [Often; 7] = [
    [6, 1, 9, 3, 4, 4, 1, 4, 1, 4, 1, 3, 1, 3],
    [8, 2, 12, 4, 8, 0, 0, 1, 0, 1, 0, 0, 0, 0],
    [0, 0, 10, 4, 1, 6, 1, 0, 0, 1, 0, 0, 0, 4],
    [8, 1, 5, 2, 1, 0, 0, 7, 1, 1, 0, 1, 0, 0],
    [3, 0, 12, 3, 1, 0, 0, 1, 0, 7, 1, 0, 0, 1],
    [6, 1, 10, 3, 2, 0, 0, 1, 0, 1, 0, 6, 1, 1],
    [4, 1, 6, 2, 20, 0, 0, 0, 0, 1, 0, 0, 0, 1],
];

/// Returns the history of this seed, which is always the same.
pub fn scenario(seed: u64) -> Scenario {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let hours = rng.random_range(1..=4);
    // Some histories cross the end of a month or of a quarter.
    let first = BASE_HOUR
        + match rng.random_range(0..10) {
            0 => 646,
            1 => 2062,
            _ => rng.random_range(8..30),
        };
    let mut instants = Vec::new();
    for _ in 0..rng.random_range(3..14) {
        let within = match rng.random_range(0..10) {
            0 => 0,
            1 => rng.random_range(0..HOUR_MICROS),
            2 => HOUR_MICROS - 1,
            _ => rng.random_range(0..12) * 5 * 60_000_000,
        };
        instants.push(Timestamp((first + rng.random_range(0..hours)) * HOUR_MICROS + within));
    }
    let mut world = Choices::new(rng, instants);
    let often = world.pick(&THEMES);
    let count = world.rng.random_range(3..60);
    let mut records: Vec<EventRecord> =
        (0..count).map(|_| EventRecord::new(event(&mut world, &often))).collect();
    if world.rng.random_bool(0.2) {
        let again = world.rng.random_range(0..records.len());
        records.extend(records.get(again).cloned());
    }
    let mut rules = rules(&mut world);
    let through = Hour(first + hours - 1 + world.rng.random_range(0..2));
    if world.rng.random_bool(0.3) {
        records = records.into_iter().map(|record| recorded(&mut world, record)).collect();
    }
    if world.rng.random_bool(0.5) {
        let changes = price_changes(&mut world, &records);
        records.extend(changes);
    }
    if world.rng.random_bool(0.3) {
        bills::add(&mut world, &mut records, first, hours);
        shared::add_volumes(&mut world, &mut records, first, hours);
        rules.shared_charges = shared::entries(&mut world);
        bills::close(&mut world, &mut records, first, hours);
    }
    Scenario { records, rules, through }
}

/// Returns some nodes again, at later instants of the same hour and at another price. Nothing else about them
/// changes.
fn price_changes(world: &mut Choices, records: &[EventRecord]) -> Vec<EventRecord> {
    let mut changes = Vec::new();
    for record in records {
        let Payload::NodeStarted(node) = &record.event.payload else { continue };
        for _ in 0..world.rng.random_range(0..4) {
            let (at, hourly_cost) = (world.instant(), world.price());
            if at.hour() == record.event.event_time.hour() && at > record.event.event_time {
                let node = NodeStarted { hourly_cost, ..(**node).clone() };
                let payload = Payload::NodeStarted(Box::new(node));
                changes.push(EventRecord::new(Event::new(ORGANIZATION.into(), at, payload)));
            }
        }
    }
    changes
}

/// Returns the record's event with a random recording. The event may be recorded at one of a few instants,
/// and is sometimes a retraction.
fn recorded(world: &mut Choices, record: EventRecord) -> EventRecord {
    let recorded_at = match world.rng.random_range(0..6) {
        0 => Some(Timestamp(0)),
        1 => Some(record.event.event_time),
        2 => Some(world.instant()),
        _ => None,
    };
    let is_retraction = world.rng.random_bool(0.06);
    EventRecord::new(record.event.recorded(Recording::new(recorded_at, is_retraction)))
}

fn rules(world: &mut Choices) -> Rules {
    let mut rules = Rules::default();
    if world.rng.random_bool(0.3) {
        rules.allocation = Allocation::Requests;
    }
    if world.rng.random_bool(0.2) {
        rules.gpu_memory_gb = 16;
        rules.eviction_protection_ratio = Ratio::from_atoms(1_333_333_333_333).unwrap_or_default();
        let weight = |tenths: i64| Weight::from_nanos(tenths * 100_000_000);
        rules.weights = Weights { gpu: weight(37), cpu: weight(9), memory: weight(3) };
    }
    if world.rng.random_bool(0.05) {
        rules.weights.memory = Weight::ZERO;
    }
    rules
}

fn event(world: &mut Choices, often: &Often) -> Event {
    let mut at = world.rng.random_range(0..often.iter().sum::<u32>());
    let mut kind = 0;
    for (index, weight) in often.iter().enumerate() {
        kind = index;
        if at < *weight {
            break;
        }
        at -= weight;
    }
    let event_time = world.instant();
    let payload = match kind {
        0 => Payload::NodeStarted(Box::new(world.node())),
        1 => Payload::NodeStopped(NodeStopped { cluster_id: world.cluster(), node_id: world.text(&NODES) }),
        2 => Payload::PodStarted(Box::new(world.pod())),
        3 => Payload::PodStopped(PodStopped {
            cluster_id: world.cluster(),
            namespace: world.text(&NAMESPACES),
            pod_uid: world.text(&PODS),
            reason: None,
        }),
        4 => Payload::PodUsage(world.usage(event_time)),
        5 => Payload::ReservationSet(Box::new(world.reservation())),
        6 => Payload::ReservationReleased(ReservationReleased { reservation_id: world.text(&RESERVATIONS) }),
        7 => Payload::CommitmentSet(Box::new(world.commitment())),
        8 => Payload::CommitmentDeleted(CommitmentDeleted { commitment_id: world.text(&COMMITMENTS) }),
        9 => Payload::QuotaSet(Box::new(world.quota())),
        10 => {
            Payload::QuotaDeleted(QuotaDeleted { cluster_id: world.cluster(), quota_id: world.text(&QUOTAS) })
        }
        11 => Payload::PoolSet(Box::new(world.pool())),
        12 => Payload::PoolDeleted(PoolDeleted { pool_id: world.text(&POOLS) }),
        _ => Payload::RateSet(Box::new(world.rate())),
    };
    Event::new(ORGANIZATION.into(), event_time, payload)
}
