//! The load: the messages that a few organizations' clusters send in a day, in order of arrival.

use prorata_schemas::Text;
use prorata_schemas::event::{
    CapacityType, Event, EventRecord, NodeStarted, Payload, PodStarted, PodStopped, PodUsage, Quantities,
};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::quantity::Quantity;
use prorata_schemas::time::{Hour, Timestamp};

/// The first hour.
pub const FIRST: Hour = Hour(490_000);
pub const HOURS: i64 = 24;

const SEED: u64 = 1;
/// The organizations, two on each of four partitions.
const ORGANIZATIONS: [&str; 8] = ["amber", "birch", "ember", "grove", "oak", "pine", "cedar", "flint"];
/// Number of nodes per organization.
const NODES: u64 = 40;
/// Number of pods per organization that run at the same time.
const PODS: u64 = 240;
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const USAGE_EVERY: i64 = 15 * MINUTE;
/// One event in this many is late, and one arrives twice.
const ONE_IN: u64 = 100;
const LATE_MAX: i64 = 180 * MINUTE;
const TWICE_WITHIN: i64 = 10 * MINUTE;

/// One message.
pub struct Sent {
    pub topic: &'static str,
    pub arrives: Timestamp,
    pub record: EventRecord,
}

/// The topics: nodes and pods, and measured usage.
pub const TOPICS: [&str; 2] = ["lifecycle", "usage"];

/// The last hour with events.
pub const fn last_hour() -> Hour {
    Hour(FIRST.0 + HOURS - 1)
}

/// Returns all messages, in order of arrival.
pub fn messages() -> Vec<Sent> {
    let mut load = Load { random: SEED, sent: Vec::new() };
    ORGANIZATIONS.iter().for_each(|organization| load.organization(&OrganizationId::from(*organization)));
    load.sent.sort_by_key(|sent| sent.arrives);
    load.sent
}

struct Load {
    random: u64,
    sent: Vec<Sent>,
}

impl Load {
    /// Returns the next random number (SplitMix64), below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn span(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from).unsigned_abs()).cast_signed()
    }

    fn organization(&mut self, organization: &OrganizationId) {
        for node in 0..NODES {
            self.send(organization, FIRST.start(), node_started(node));
        }
        for slot in 0..PODS {
            let mut at = FIRST.start().0 + self.span(0, 60 * MINUTE);
            while at < last_hour().end().0 {
                at = self.pod(organization, slot, at) + self.span(SECOND, 30 * SECOND);
            }
        }
    }

    /// Sends the events of one pod, and returns its stop time.
    fn pod(&mut self, organization: &OrganizationId, slot: u64, starts: i64) -> i64 {
        let stops = starts + self.span(10 * MINUTE, 360 * MINUTE);
        let node = self.below(NODES);
        let pod = pod_started(slot, node, Timestamp(starts));
        let (cluster_id, namespace, uid) =
            (pod.cluster_id.clone(), pod.namespace.clone(), pod.pod_uid.clone());
        let (cpu, memory) = (self.span(50, 900), self.span(1 << 26, 1 << 30));
        self.send(organization, Timestamp(starts), Payload::PodStarted(Box::new(pod)));
        for from in (starts..stops).step_by(USAGE_EVERY.unsigned_abs() as usize) {
            let usage = PodUsage {
                pod_uid: uid.clone(),
                interval_end: Timestamp(stops.min(from + USAGE_EVERY)),
                cpu_millis: cpu + self.span(0, 100),
                memory_bytes: memory + self.span(0, 1 << 20),
                gpu_millis: 0,
                gpu_memory_bytes: None,
            };
            self.send(organization, Timestamp(from), Payload::PodUsage(usage));
        }
        let reason = Some("Completed".into());
        let stopped = PodStopped { cluster_id, namespace, pod_uid: uid, reason };
        self.send(organization, Timestamp(stops), Payload::PodStopped(stopped));
        stops
    }

    /// Sends an event if it lies within the hours. Most events arrive within two minutes, some late, and some
    /// twice.
    fn send(&mut self, organization: &OrganizationId, event_time: Timestamp, payload: Payload) {
        if event_time >= last_hour().end() {
            return;
        }
        let late = self.below(ONE_IN) == 0;
        let delay = self.span(0, if late { LATE_MAX } else { 2 * MINUTE });
        let arrives = Timestamp(event_time.0 + delay);
        let topic = TOPICS[usize::from(matches!(payload, Payload::PodUsage(_)))];
        let record = EventRecord::new(Event::new(organization.clone(), event_time, payload));
        if self.below(ONE_IN) == 0 {
            let again = Timestamp(arrives.0 + self.span(0, TWICE_WITHIN));
            self.sent.push(Sent { topic, arrives: again, record: record.clone() });
        }
        self.sent.push(Sent { topic, arrives, record });
    }
}

fn quantities(amounts: &[(&str, &str)]) -> Quantities {
    let parse = |(name, amount): &(&str, &str)| (Text::from(*name), Quantity::parse(name, amount).unwrap());
    amounts.iter().map(parse).collect()
}

fn node_started(number: u64) -> Payload {
    Payload::NodeStarted(Box::new(NodeStarted {
        cluster_id: "production".into(),
        node_id: format!("i-{number:017x}").into(),
        node_name: format!("ip-10-0-0-{number}.ec2.internal").into(),
        provider: "aws".into(),
        region: "eu-central-1".into(),
        zone: Some("eu-central-1a".into()),
        instance_type: "m7i.8xlarge".into(),
        instance_family: "m7i".into(),
        capacity_type: if number.is_multiple_of(4) { CapacityType::Spot } else { CapacityType::OnDemand },
        capacity: quantities(&[("cpu", "32"), ("memory", "128Gi"), ("ephemeral-storage", "200Gi")]),
        gpu_model: None,
        hourly_cost: UnitPrice::from_nanos(1_929_600_000),
        currency: "USD".into(),
        pool_id: None,
        gpus: None,
        resource_key: None,
        account_id: None,
    }))
}

fn pod_started(slot: u64, node: u64, created_at: Timestamp) -> PodStarted {
    let workload = format!("service-{}", slot % 24);
    let labels =
        [("app.kubernetes.io/name", &*workload), ("app.kubernetes.io/part-of", "shop"), ("team", "a")];
    PodStarted {
        cluster_id: "production".into(),
        namespace: format!("team-{}", slot % 6).into(),
        pod_name: format!("{workload}-{slot:04}-{:x}", created_at.0 & 0xfffff).into(),
        pod_uid: format!("{slot:08x}-{:012x}", created_at.0).into(),
        created_at,
        priority: 0,
        node_id: Some(format!("i-{node:017x}").into()),
        region: None,
        zone: None,
        pool_id: None,
        qos: "default".into(),
        gpu_model: None,
        requests: quantities(&[("cpu", "500m"), ("memory", "1Gi")]),
        limits: quantities(&[("cpu", "1"), ("memory", "2Gi")]),
        workload_kind: Some("Deployment".into()),
        workload_name: Some(workload.as_str().into()),
        labels: labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        eviction_protected_until: None,
        gpus: None,
        gpu_sharing: None,
        volume_keys: Vec::new(),
    }
}
