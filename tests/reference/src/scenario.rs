//! Seeded random histories: few ids and few instants, so that everything collides with everything.

use prorata_schemas::Text;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{
    Assignment, CapacityType, CommitmentDeleted, CommitmentKind, CommitmentSet, Event, EventRecord,
    NodeStarted, NodeStopped, Payload, PodStarted, PodStopped, PodUsage, PoolDeleted, PoolSet, QosPrice,
    Quantities, QuotaDeleted, QuotaKind, QuotaSet, RateSet, ReservationReleased, ReservationSet,
};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::rules::{Allocation, Rules, Weights};
use prorata_schemas::time::{HOUR_MICROS, Hour, Timestamp};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::text::{BASE_HOUR, ORGANIZATION};

/// One random history with the rules that it is folded under.
pub struct Scenario {
    /// Events in no order.
    pub records: Vec<EventRecord>,
    /// The rules.
    pub rules: Rules,
    /// The last hour.
    pub through: Hour,
}

/// The history of this seed: always the same.
pub fn scenario(seed: u64) -> Scenario {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let hours = rng.random_range(1..=4);
    // Now and then a history crosses the end of a month and quarter.
    let first = BASE_HOUR + if rng.random_bool(0.1) { 2062 } else { rng.random_range(8..30) };
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
    let weights = KINDS.map(|often| if rng.random_bool(0.35) { 0 } else { often * rng.random_range(1..=3) });
    let mut world = World { instants, rng };
    let count = world.rng.random_range(3..50);
    let mut records: Vec<EventRecord> = (0..count).map(|_| EventRecord::new(world.event(&weights))).collect();
    if world.rng.random_bool(0.2) {
        let again = world.rng.random_range(0..records.len());
        records.extend(records.get(again).cloned());
    }
    let rules = world.rules();
    let through = Hour(first + hours - 1 + world.rng.random_range(0..2));
    Scenario { records, rules, through }
}

/// How often each event comes, in the order of [`World::event`].
const KINDS: [u32; 14] = [6, 1, 9, 3, 4, 4, 1, 4, 1, 4, 1, 3, 1, 3];

struct World {
    instants: Vec<Timestamp>,
    rng: ChaCha8Rng,
}

impl World {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.random_range(0..of.len())]
    }

    fn text(&mut self, of: &[&str]) -> Text {
        self.pick(of).into()
    }

    fn maybe(&mut self, often: f64, of: &[&str]) -> Option<Text> {
        if self.rng.random_bool(often) { Some(self.text(of)) } else { None }
    }

    fn instant(&mut self) -> Timestamp {
        let instants = self.instants.clone();
        self.pick(&instants)
    }

    /// An instant of the history, or one before or after it.
    fn around(&mut self) -> Timestamp {
        let at = self.instant();
        match self.rng.random_range(0..8) {
            0 => Timestamp(at.0 - 2 * HOUR_MICROS),
            1 => Timestamp(at.0 + HOUR_MICROS / 2),
            _ => at,
        }
    }

    fn price(&mut self) -> Decimal12 {
        let prices =
            ["0", "1", "10", "2", "0.333333333333", "0.000000000001", "7.123456789012", "98.32", "3"];
        self.pick(&prices).parse().unwrap_or_default()
    }

    fn quantities(&mut self, choices: &[(&str, &[&str])], often: f64) -> Quantities {
        let mut quantities = Quantities::new();
        for (resource, amounts) in choices {
            if self.rng.random_bool(often)
                && let Ok(quantity) = Quantity::parse(resource, self.pick(amounts))
            {
                quantities.insert((*resource).into(), quantity);
            }
        }
        quantities
    }

    fn rules(&mut self) -> Rules {
        let mut rules = Rules::default();
        if self.rng.random_bool(0.3) {
            rules.allocation = Allocation::Requests;
        }
        if self.rng.random_bool(0.2) {
            rules.gpu_memory_gb = 16;
            rules.eviction_protection_ratio = Decimal12::from_units(1_333_333_333_333);
            let weight = |tenths: i128| Decimal12::from_units(tenths * 100_000_000_000);
            rules.weights = Weights { gpu: weight(37), cpu: weight(9), memory: weight(3) };
        }
        rules
    }

    fn event(&mut self, weights: &[u32; 14]) -> Event {
        let mut at = self.rng.random_range(0..weights.iter().sum::<u32>().max(1));
        let mut kind = 0;
        for (index, weight) in weights.iter().enumerate() {
            kind = index;
            if at < *weight {
                break;
            }
            at -= weight;
        }
        let event_time = self.instant();
        let payload = match kind {
            0 => Payload::NodeStarted(self.node()),
            1 => Payload::NodeStopped(NodeStopped { cluster_id: self.cluster(), node_id: self.text(&NODES) }),
            2 => Payload::PodStarted(Box::new(self.pod())),
            3 => Payload::PodStopped(PodStopped {
                cluster_id: self.cluster(),
                namespace: self.text(&NAMESPACES),
                pod_uid: self.text(&PODS),
                reason: None,
            }),
            4 => Payload::PodUsage(self.usage(event_time)),
            5 => Payload::ReservationSet(self.reservation()),
            6 => {
                Payload::ReservationReleased(ReservationReleased { reservation_id: self.text(&RESERVATIONS) })
            }
            7 => Payload::CommitmentSet(self.commitment()),
            8 => Payload::CommitmentDeleted(CommitmentDeleted { commitment_id: self.text(&COMMITMENTS) }),
            9 => Payload::QuotaSet(self.quota()),
            10 => Payload::QuotaDeleted(QuotaDeleted {
                cluster_id: self.cluster(),
                quota_id: self.text(&QUOTAS),
            }),
            11 => Payload::PoolSet(self.pool()),
            12 => Payload::PoolDeleted(PoolDeleted { pool_id: self.text(&POOLS) }),
            _ => Payload::RateSet(self.rate()),
        };
        Event { organization_id: ORGANIZATION.into(), event_time, payload }
    }

    fn cluster(&mut self) -> Text {
        self.text(&["c", "c", "c", "d"])
    }

    fn region(&mut self) -> Text {
        self.text(&["r", "r", "r", "s"])
    }

    fn provider(&mut self) -> Text {
        self.text(&["aws", "aws", "aws", "gcp"])
    }

    fn node(&mut self) -> NodeStarted {
        let spot = self.rng.random_bool(0.15);
        let often = self.pick(&[0.0, 0.7, 0.9, 1.0, 1.0]);
        let capacity: [(&str, &[&str]); 8] = [
            ("cpu", &["4", "64", "3", "0", "16"]),
            ("memory", &["16Gi", "488Gi", "7Gi", "1000000007", "32Gi"]),
            ("nvidia.com/gpu", &["8", "1", "0", "2"]),
            ("nvidia.com/mig-1g.10gb", &["7", "3"]),
            ("tensor-fusion.ai/tflops", &["312", "2496500m"]),
            ("tensor-fusion.ai/vram", &["80Gi", "640Gi"]),
            ("ephemeral-storage", &["2Ti", "1000001"]),
            ("amd.com/gpu", &["1"]),
        ];
        let some = self.rng.random_range(2..=8);
        NodeStarted {
            cluster_id: self.cluster(),
            node_id: self.text(&NODES),
            node_name: self.text(&["one", "two"]),
            provider: self.provider(),
            region: self.region(),
            zone: self.maybe(0.3, &["z"]),
            instance_type: "f.1".into(),
            instance_family: self.text(&["f", "f", "f", "g"]),
            capacity_type: if spot { CapacityType::Spot } else { CapacityType::OnDemand },
            capacity: self.quantities(&capacity[..some], often),
            gpu_model: self.maybe(0.7, &["m", "t"]),
            hourly_cost: self.price(),
            currency: "USD".into(),
            pool_id: self.maybe(0.5, &POOLS),
        }
    }

    fn pod(&mut self) -> PodStarted {
        let requests: [(&str, &[&str]); 7] = [
            ("cpu", &["1", "500m", "16", "5", "0", "100m"]),
            ("memory", &["4Gi", "100Gi", "1", "30Gi", "333333333"]),
            ("nvidia.com/gpu", &["1", "2", "0", "1"]),
            ("tensor-fusion.ai/tflops", &["100", "20", "500m"]),
            ("tensor-fusion.ai/vram", &["10Gi", "4Gi", "1000000001"]),
            ("nvidia.com/mig-2g.20gb", &["1", "3"]),
            ("example.com/thing", &["1", "1500m"]),
        ];
        let limits: [(&str, &[&str]); 2] =
            [("tensor-fusion.ai/tflops", &["200", "30", "1"]), ("tensor-fusion.ai/vram", &["20Gi", "1Gi"])];
        let (some, often) = (self.rng.random_range(2..=7), self.pick(&[0.0, 0.6, 0.9, 1.0, 1.0]));
        let (on_node, in_pool) = (self.pick(&[0.0, 0.5, 1.0]), self.pick(&[0.0, 0.0, 0.5, 1.0]));
        PodStarted {
            cluster_id: self.cluster(),
            namespace: self.text(&NAMESPACES),
            pod_name: self.text(&["x", "y"]),
            pod_uid: self.text(&PODS),
            created_at: Timestamp(self.around().0 + self.rng.random_range(0..2) * 999_999),
            priority: self.pick(&[0, 0, 0, -1, 100]),
            node_id: self.maybe(on_node, &NODES),
            region: self.maybe(0.9, &["r", "r", "r", "s"]),
            zone: self.maybe(0.5, &["z", "z", "y"]),
            pool_id: self.maybe(in_pool, &POOLS),
            qos: self.text(&["default", "default", "medium", "critical", "", "best-effort"]),
            gpu_model: self.maybe(0.8, &["m", "m", "t"]),
            requests: self.quantities(&requests[..some], often),
            limits: self.quantities(&limits, 0.6),
            workload_kind: self.maybe(0.2, &["Job"]),
            workload_name: None,
            labels: [("v".into(), self.text(&["1", "2", "3"]))].into(),
            eviction_protected_until: if self.rng.random_bool(0.2) { Some(self.around()) } else { None },
        }
    }

    fn usage(&mut self, at: Timestamp) -> PodUsage {
        let minutes = self.pick(&[0, 1, 5, 10, 30, 60, 60]);
        PodUsage {
            pod_uid: self.text(&PODS),
            interval_end: Timestamp(at.0 + minutes * 60_000_000),
            cpu_millis: self.pick(&[0, 100, 4000, 18_000]),
            memory_bytes: self.pick(&[0, 3 << 30, 140 << 30, 1_000_003]),
            gpu_millis: self.pick(&[0, 1000, 333, 3000]),
        }
    }

    fn reservation(&mut self) -> ReservationSet {
        let unit: [(&str, &[&str]); 3] = [
            ("cpu", &["10", "16", "1", "5"]),
            ("memory", &["80Gi", "128Gi", "4Gi"]),
            ("nvidia.com/gpu", &["1", "1", "2", "0"]),
        ];
        ReservationSet {
            reservation_id: self.text(&RESERVATIONS),
            name: self.text(&["one", "two"]),
            provider: self.provider(),
            region: self.region(),
            zone: self.maybe(0.3, &["z"]),
            gpu_model: self.text(&["m", "m", "t"]),
            capacity: self.quantities(&unit, 0.95),
            quantity: self.pick(&[0, 1, 1, 2, 3]),
            unit_hourly_price: self.price(),
            currency: "USD".into(),
            created_at: self.around(),
            starts_at: Timestamp(self.around().0 - self.pick(&[0, 0, 3]) * HOUR_MICROS),
            ends_at: None,
        }
        .ending(self)
    }

    fn commitment(&mut self) -> CommitmentSet {
        let mut assignments = Vec::new();
        for cluster_id in ["c", "d"] {
            if self.rng.random_bool(0.4) {
                let priority = self.pick(&[None, Some(1), Some(2)]);
                assignments.push(Assignment { cluster_id: cluster_id.into(), priority });
            }
        }
        let totals = ["0", "2", "4", "20", "100", "0.5", "64"];
        CommitmentSet {
            commitment_id: self.text(&COMMITMENTS),
            name: self.text(&["one", "two"]),
            provider: self.text(&["aws", "aws", "aws", "aws", "gcp"]),
            kind: self.pick(&[CommitmentKind::ReservedInstance, CommitmentKind::CommittedUseDiscount]),
            region: self.region(),
            instance_family: self.text(&["f", "f", "f", "f", "g"]),
            vcpu: self.pick(&totals).parse().unwrap_or_default(),
            memory_gib: self.pick(&totals).parse().unwrap_or_default(),
            gpu: self.pick(&[0, 0, 1, 8]),
            gpu_model: self.maybe(0.4, &["m", "t"]),
            hourly_cost: self.price(),
            currency: "USD".into(),
            starts_at: Timestamp(self.around().0 - self.pick(&[0, 0, 3]) * HOUR_MICROS),
            ends_at: None,
            enabled: self.rng.random_bool(0.85),
            allowed_utilization: self
                .pick(&[None, None, Some("0.6"), Some("0"), Some("0.333")])
                .and_then(|text| text.parse().ok()),
            assignments,
        }
        .ending(self)
    }

    fn quota(&mut self) -> QuotaSet {
        let amounts: [(&str, &[&str]); 6] = [
            ("cpu", &["1", "4", "0", "10m", "16"]),
            ("nos.nebuly.com/gpu-memory", &["32", "64", "10", "0"]),
            ("nvidia.com/gpu", &["1", "2", "3"]),
            ("memory", &["4Gi", "100Gi", "7"]),
            ("example.com/thing", &["1", "2500m"]),
            ("pods", &["2"]),
        ];
        let composite = self.rng.random_bool(0.3);
        let often = self.pick(&[0.3, 0.6, 1.0]);
        let max = self.quantities(&amounts, 0.4);
        let mut namespaces: Vec<Text> =
            NAMESPACES.into_iter().filter(|_| self.rng.random_bool(0.45)).map(Text::from).collect();
        namespaces.dedup();
        QuotaSet {
            cluster_id: self.cluster(),
            quota_id: self.text(&QUOTAS),
            kind: if composite { QuotaKind::CompositeElasticQuota } else { QuotaKind::ElasticQuota },
            namespaces,
            min: self.quantities(&amounts, often),
            max: (self.rng.random_bool(0.5) && !max.is_empty()).then_some(max),
        }
    }

    fn pool(&mut self) -> PoolSet {
        let mut qos_pricing = Vec::new();
        for qos in ["medium", "critical", "default"] {
            if self.rng.random_bool(0.6) {
                qos_pricing.push(QosPrice {
                    qos: qos.into(),
                    per_fp16_tflop_hour: self.pick(&["0.0069228", "2", "0"]).parse().unwrap_or_default(),
                    per_vram_gib_hour: self.pick(&["0.01548", "1"]).parse().unwrap_or_default(),
                    limits_over_requests: self.pick(&["1", "0.5", "0"]).parse().unwrap_or_default(),
                });
            }
        }
        PoolSet {
            pool_id: self.text(&POOLS),
            cluster_id: self.cluster(),
            provider: self.provider(),
            default_qos: self.text(&["medium", "critical", "other"]),
            qos_pricing,
            tflops_oversell_percent: self.pick(&[500, 100, 333]),
            vram_expand_to_host_disk_percent: self.pick(&[70, 0, 33]),
            vram_expand_to_host_mem_percent: self.pick(&[50, 0, 7]),
            budget_per_day: self.pick(&[None, Some("0"), Some("10")]).and_then(|text| text.parse().ok()),
            budget_per_month: self.pick(&[None, Some("5")]).and_then(|text| text.parse().ok()),
            budget_per_quarter: self.pick(&[None, Some("1")]).and_then(|text| text.parse().ok()),
            currency: "USD".into(),
        }
    }

    fn rate(&mut self) -> RateSet {
        RateSet {
            provider: self.provider(),
            region: self.region(),
            gpu_model: self.maybe(0.8, &["m", "m", "t"]),
            qos: self.text(&["default", "default", "default", "medium"]),
            per_vcpu_hour: self.price(),
            per_gib_hour: self.price(),
            per_gpu_hour: self.price(),
            currency: "USD".into(),
        }
    }
}

/// What may be given an end at or after its start.
trait Ending {
    /// With an end, now and then at its very start.
    fn ending(self, world: &mut World) -> Self;
}

fn end(world: &mut World, starts_at: Timestamp) -> Option<Timestamp> {
    let end = world.around();
    match world.rng.random_range(0..8) {
        0 => Some(starts_at),
        1..4 if end > starts_at => Some(end),
        _ => None,
    }
}

impl Ending for ReservationSet {
    fn ending(mut self, world: &mut World) -> Self {
        self.ends_at = end(world, self.starts_at);
        self
    }
}

impl Ending for CommitmentSet {
    fn ending(mut self, world: &mut World) -> Self {
        self.ends_at = end(world, self.starts_at);
        self
    }
}

const NODES: [&str; 3] = ["n1", "n2", "n3"];
const PODS: [&str; 5] = ["p1", "p2", "p3", "p4", "p5"];
const NAMESPACES: [&str; 3] = ["a", "b", "x"];
const RESERVATIONS: [&str; 3] = ["r1", "r2", "r3"];
const COMMITMENTS: [&str; 3] = ["k1", "k2", "k3"];
const QUOTAS: [&str; 3] = ["q1", "q2", "q3"];
const POOLS: [&str; 2] = ["g1", "g2"];
