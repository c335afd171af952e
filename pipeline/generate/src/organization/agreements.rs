//! Agreements of an organization with its providers: rate cards, capacity reservations and commitments, and
//! their changes during the run.

use prorata_schemas::event::{
    Assignment, CommitmentDeleted, CommitmentKind, CommitmentSet, DiscountTarget, DiscountedPrice, Payload,
    PlanDiscount, Quantities, RateSet, ReservationReleased, ReservationSet,
};
use prorata_schemas::money::{Amount, Ratio, UnitPrice};
use prorata_schemas::time::Timestamp;

use crate::HOUR;
use crate::clusters::catalogue::{
    BEST_EFFORT_PERCENT, CARDS, ReservationUnit, SERVERLESS_GIB_HOUR, SERVERLESS_VCPU_HOUR, UNITS, instance,
    percent, price,
};
use crate::clusters::{CLUSTERS, SERVERLESS};
use crate::quantities::{put_mib, put_millis};

/// The run: its period in microseconds since the epoch, and its size.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// First instant.
    pub start: i64,
    /// First instant after the run.
    pub end: i64,
    /// Number of pods that run at once.
    pub pods: u64,
    /// Length of the intervals of measured use of every pod, in microseconds. If `None`, each pod has
    /// intervals of its own length.
    pub usage_interval: Option<i64>,
}

/// A scripted event and its time.
pub type Scripted = (i64, Payload);

const DAY: i64 = 24 * HOUR;
/// Card whose rates are set after its first pods have started.
const LATE_CARD: &str = "L20X";
/// Card without a best-effort rate.
const NO_BEST_EFFORT: &str = "GU8TEF";

impl Run {
    /// Returns the instant at this many thousandths of the run.
    pub const fn at(&self, thousandths: i64) -> i64 {
        self.start + (self.end - self.start) / 1000 * thousandths
    }

    /// Returns a number that grows with the load: `thousandths` of the number of pods, but at least `min`.
    pub fn sized(&self, thousandths: u64, min: u64) -> u64 {
        (self.pods * thousandths / 1000).max(min)
    }
}

/// Returns every scripted event of rates, reservations and commitments.
pub fn script(run: &Run) -> Vec<Scripted> {
    let mut events = Vec::new();
    rates(run, &mut events);
    reservations(run, &mut events);
    commitments(run, &mut events);
    plans(run, &mut events);
    events
}

fn rates(run: &Run, events: &mut Vec<Scripted>) {
    let rate = |model: Option<&str>, best_effort: bool, per_gpu_hour: UnitPrice| {
        let share = if best_effort { BEST_EFFORT_PERCENT } else { 100 };
        Payload::RateSet(Box::new(RateSet {
            provider: CLUSTERS.get(SERVERLESS).map_or("", |cluster| cluster.provider).into(),
            region: CLUSTERS.get(SERVERLESS).map_or("", |cluster| cluster.region).into(),
            gpu_model: model.map(Into::into),
            qos: if best_effort { "best-effort" } else { "default" }.into(),
            per_vcpu_hour: percent(SERVERLESS_VCPU_HOUR, share),
            per_gib_hour: percent(SERVERLESS_GIB_HOUR, share),
            per_gpu_hour: percent(per_gpu_hour, share),
            currency: "USD".into(),
        }))
    };
    for best_effort in [false, true] {
        events.push((run.start, rate(None, best_effort, UnitPrice::ZERO)));
        for card in CARDS.iter().filter(|card| !(best_effort && card.name == NO_BEST_EFFORT)) {
            let at = if card.name == LATE_CARD { run.at(400) } else { run.start };
            events.push((at, rate(Some(card.name), best_effort, card.per_gpu_hour)));
            if card.name == "P16EN" {
                events
                    .push((run.at(520), rate(Some(card.name), best_effort, percent(card.per_gpu_hour, 90))));
            }
        }
    }
}

/// Returns a reservation as it is first set; `None` if there is no such unit. Later versions are changed
/// copies.
fn reservation(run: &Run, number: i64, card: &str, gpus: u64, quantity: u64) -> Option<ReservationSet> {
    let unit = UNITS.iter().find(|unit| unit.card == card && unit.gpus == gpus)?;
    let cluster = CLUSTERS.get(SERVERLESS)?;
    let mut capacity = Quantities::new();
    put_millis(&mut capacity, "cpu", unit.vcpu * 1000);
    put_mib(&mut capacity, "memory", unit.memory_gib * 1024);
    put_millis(&mut capacity, "nvidia.com/gpu", unit.gpus * 1000);
    Some(ReservationSet {
        reservation_id: format!("cr-{number:02}").into(),
        name: format!("{card} {gpus} GPU").into(),
        provider: cluster.provider.into(),
        region: cluster.region.into(),
        zone: None,
        gpu_model: card.into(),
        capacity,
        quantity: i32::try_from(quantity).unwrap_or(i32::MAX),
        unit_hourly_price: percent(unit_price(unit), 60),
        currency: "USD".into(),
        created_at: Timestamp(run.start - (40 - number) * DAY),
        starts_at: Timestamp(run.start - (20 - number) * DAY),
        ends_at: None,
    })
}

/// Returns the hourly price of a pod that is as large as the unit.
fn unit_price(unit: &ReservationUnit) -> UnitPrice {
    let per_gpu =
        CARDS.iter().find(|card| card.name == unit.card).map_or(0, |card| card.per_gpu_hour.atoms());
    let (vcpu, gib) = (SERVERLESS_VCPU_HOUR.atoms(), SERVERLESS_GIB_HOUR.atoms());
    price(i128::from(unit.vcpu) * vcpu + i128::from(unit.memory_gib) * gib + i128::from(unit.gpus) * per_gpu)
}

/// Adds reservations with equal units (matched first in, first out), with a zone, a scheduled start, an end
/// and a release. One quantity rises, falls and is 0.
fn reservations(run: &Run, events: &mut Vec<Scripted>) {
    let mut set = |at: i64, reservation: Option<ReservationSet>| {
        events.extend(reservation.map(|reservation| (at, Payload::ReservationSet(Box::new(reservation)))));
    };
    let few = run.sized(15, 1);
    set(run.start, reservation(run, 1, "P16EN", 1, few));
    let zone = CLUSTERS.get(SERVERLESS).and_then(|cluster| cluster.zones.last());
    set(
        run.start,
        reservation(run, 2, "P16EN", 1, few)
            .map(|set| ReservationSet { zone: zone.map(|&zone| zone.into()), ..set }),
    );
    set(run.start, reservation(run, 3, "P16EN", 2, few));
    let scheduled = reservation(run, 4, "P16EN", 4, 1);
    set(
        run.at(100),
        scheduled.map(|set| ReservationSet {
            starts_at: Timestamp(run.at(300)),
            created_at: set.starts_at,
            ..set
        }),
    );
    let ending = reservation(run, 5, "GU8TF", 1, run.sized(5, 1));
    set(run.start, ending.map(|set| ReservationSet { ends_at: Some(Timestamp(run.at(650))), ..set }));
    set(run.start, reservation(run, 6, "L20", 1, run.sized(5, 1)));
    for (thousandths, quantity) in [(0, 1), (350, run.sized(20, 3)), (600, 1), (700, 0), (800, 2)] {
        set(run.at(thousandths), reservation(run, 7, "A10", 1, quantity));
    }
    let released = ReservationReleased { reservation_id: "cr-06".into() };
    events.push((run.at(800), Payload::ReservationReleased(released)));
}

/// Returns a commitment, as it is first set, to `count` instances of this type at 62 % of their price.
/// Returns `None` if the cluster or the type does not exist.
fn commitment(run: &Run, id: &str, cluster: usize, name: &str, count: u64) -> Option<CommitmentSet> {
    let (cluster, instance) = (CLUSTERS.get(cluster)?, instance(name)?);
    let kind = match cluster.provider {
        "gcp" => CommitmentKind::CommittedUseDiscount,
        _ => CommitmentKind::ReservedInstance,
    };
    let whole = |amount: u64| Amount::from(i32::try_from(amount * count).unwrap_or(i32::MAX));
    Some(CommitmentSet {
        commitment_id: id.into(),
        name: format!("{count} x {name}").into(),
        provider: cluster.provider.into(),
        kind,
        region: cluster.region.into(),
        instance_family: instance.family.into(),
        vcpu: whole(instance.vcpu),
        memory_gib: whole(instance.memory_gib),
        gpu: i32::try_from(instance.gpus * count).unwrap_or(i32::MAX),
        gpu_model: instance.gpu_model.map(Into::into),
        hourly_cost: percent(price(instance.on_demand.atoms() * i128::from(count)), 62),
        currency: "USD".into(),
        starts_at: Timestamp(run.start - 90 * DAY),
        ends_at: None,
        enabled: true,
        allowed_utilization: None,
        assignments: Vec::new(),
        hourly_commitment: None,
        discounts: Vec::new(),
    })
}

/// Adds commitments with priorities over clusters, with capped use, and with GPUs only. One expires, one is
/// pending, one is disabled and enabled, one is deleted, and one matches no node of any cluster.
fn commitments(run: &Run, events: &mut Vec<Scripted>) {
    let mut set = |at: i64, commitment: Option<CommitmentSet>| {
        events.extend(commitment.map(|commitment| (at, Payload::CommitmentSet(Box::new(commitment)))));
    };
    let assignment = |cluster_id: &str, priority| Assignment { cluster_id: cluster_id.into(), priority };
    let general = commitment(run, "ri-m6i", 0, "m6i.4xlarge", run.sized(25, 1)).map(|set| CommitmentSet {
        assignments: vec![assignment("dev-aws", Some(1)), assignment("prod-aws", None)],
        ..set
    });
    set(run.start, general);
    let a3 = commitment(run, "cud-a3", 2, "a3-highgpu-8g", run.sized(8, 1)).map(|set| CommitmentSet {
        allowed_utilization: Some(Ratio::from_nanos(800_000_000)),
        ends_at: Some(Timestamp(run.at(610))),
        ..set
    });
    set(run.start, a3);
    let gpus = commitment(run, "ri-g5-gpu", 0, "g5.12xlarge", run.sized(10, 1)).map(|set| CommitmentSet {
        vcpu: Amount::ZERO,
        memory_gib: Amount::ZERO,
        ..set
    });
    set(run.start, gpus);
    for (thousandths, enabled) in [(0, false), (480, true), (930, false)] {
        let n2 = commitment(run, "cud-n2", 2, "n2-standard-16", run.sized(20, 1));
        set(run.at(thousandths), n2.map(|set| CommitmentSet { enabled, ..set }));
    }
    let pending = commitment(run, "ri-dasv4", 3, "Standard_D16as_v4", run.sized(15, 1));
    set(run.at(50), pending.map(|set| CommitmentSet { starts_at: Timestamp(run.at(700)), ..set }));
    set(run.at(150), commitment(run, "ri-m6i-second", 0, "m6i.4xlarge", 1));
    set(run.start, commitment(run, "ri-c6i", 0, "c6i.8xlarge", 1));
    let deleted = CommitmentDeleted { commitment_id: "ri-c6i".into() };
    events.push((run.at(420), Payload::CommitmentDeleted(deleted)));
}

/// Adds two savings plans. One covers nodes, and saves more for one family. The other covers serverless pods
/// and unused units of reservations, and begins during the run.
fn plans(run: &Run, events: &mut Vec<Scripted>) {
    let discount = |applies_to, instance_family: Option<&str>, percent: i64| PlanDiscount {
        applies_to,
        region: None,
        instance_family: instance_family.map(Into::into),
        instance_type: None,
        gpu_model: None,
        price: DiscountedPrice::Saving(Ratio::from_nanos(percent * 10_000_000)),
    };
    let nodes = [discount(DiscountTarget::Node, Some("m6i"), 34), discount(DiscountTarget::Node, None, 27)];
    let pods = [discount(DiscountTarget::Pod, None, 20), discount(DiscountTarget::Reservation, None, 15)];
    let mut set = |at: i64, id: &str, cluster: usize, spend: UnitPrice, discounts: &[PlanDiscount]| {
        let Some(cluster) = CLUSTERS.get(cluster) else { return };
        let plan = CommitmentSet {
            commitment_id: id.into(),
            name: format!("{spend} an hour").into(),
            provider: cluster.provider.into(),
            kind: CommitmentKind::SavingsPlan,
            region: "".into(),
            instance_family: "".into(),
            vcpu: Amount::ZERO,
            memory_gib: Amount::ZERO,
            gpu: 0,
            gpu_model: None,
            hourly_cost: spend,
            currency: "USD".into(),
            starts_at: Timestamp(at),
            ends_at: None,
            enabled: true,
            allowed_utilization: None,
            assignments: Vec::new(),
            hourly_commitment: Some(spend),
            discounts: discounts.to_vec(),
        };
        events.push((at, Payload::CommitmentSet(Box::new(plan))));
    };
    let spend = |cents: u64| price(i128::from(run.sized(cents, cents)) * 10_000_000_000);
    set(run.start, "sp-compute", 0, spend(150), &nodes);
    set(run.at(330), "sp-serverless", SERVERLESS, spend(600), &pods);
}
