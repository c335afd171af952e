//! Events of typical length, for benchmarks.

use prorata_schemas::event::{
    CommitmentKind, Event, EventKind, NodeStarted, Payload, PodStarted, Quantities, Recording,
};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::time::{HOUR_MICROS, Timestamp};

use crate::arbitrary::samples;

/// Returns an event of `kind` as clusters send it: names, labels and quantities of usual length.
pub fn typical(kind: EventKind) -> Event {
    let requests = quantities(&[("cpu", "12000m"), ("memory", "16384Mi"), ("nvidia.com/gpu", "1")]);
    let mut event = samples().into_iter().find(|event| event.payload.kind() == kind).unwrap();
    event.organization_id = text("acme-corporation");
    event.event_time = Timestamp(1_763_643_600_000_000);
    event.recording = Recording::NONE;
    match &mut event.payload {
        Payload::PodStarted(pod) => {
            let label = |name: &str, value: &str| (text(name), text(value));
            **pod = PodStarted {
                cluster_id: text("acme-aws-use1"),
                namespace: text("machine-learning"),
                pod_name: text("trainer-7d4b9c6f5-x2x8k"),
                pod_uid: text("28d1b987-c319-5800-81ab-ecc6976bfc42"),
                created_at: event.event_time,
                priority: 0,
                node_id: Some(text("ip-10-0-12-34.ec2.internal")),
                region: None,
                zone: None,
                pool_id: None,
                qos: text("default"),
                gpu_model: Some(text("A100")),
                limits: requests.clone(),
                requests,
                workload_kind: Some(text("Deployment")),
                workload_name: Some(text("trainer")),
                labels: [
                    label("app.kubernetes.io/name", "trainer"),
                    label("app.kubernetes.io/part-of", "vision"),
                    label("pod-template-hash", "7d4b9c6f5"),
                    label("team", "perception"),
                    label("cost-center", "4711"),
                ]
                .into(),
                eviction_protected_until: None,
                gpus: None,
                gpu_sharing: None,
                volume_keys: Vec::new(),
            };
        }
        Payload::PodUsage(usage) => {
            usage.pod_uid = text("28d1b987-c319-5800-81ab-ecc6976bfc42");
            usage.interval_end = Timestamp(event.event_time.0 + 300_000_000);
            (usage.cpu_millis, usage.memory_bytes, usage.gpu_millis) = (11_250, 15_032_385_536, 870);
            usage.gpu_memory_bytes = None;
        }
        Payload::NodeStarted(node) => describe(node),
        Payload::CommitmentSet(commitment) => {
            commitment.kind = CommitmentKind::ReservedInstance;
            (commitment.hourly_commitment, commitment.discounts) = (None, Vec::new());
        }
        Payload::BillingPeriodClosed(_) => {
            event.event_time = event.event_time.hour().date().month_start().start();
        }
        Payload::BillSet(bill) => {
            let end = Timestamp(event.event_time.0 + HOUR_MICROS);
            bill.lines.iter_mut().for_each(|line| line.period_end = end);
        }
        _ => {}
    }
    event
}

fn describe(node: &mut NodeStarted) {
    node.cluster_id = text("acme-aws-use1");
    node.node_id = text("ip-10-0-12-34.ec2.internal");
    node.node_name = node.node_id.clone().into();
    (node.provider, node.region, node.zone) = (text("aws"), text("us-east-1"), Some(text("us-east-1b")));
    (node.instance_type, node.instance_family) = (text("p4d.24xlarge"), text("p4d"));
    node.capacity = quantities(&[("cpu", "96"), ("memory", "1152Gi"), ("nvidia.com/gpu", "8")]);
    (node.gpu_model, node.pool_id) = (Some(text("A100")), None);
    (node.hourly_cost, node.currency) = ("21.957642".parse().unwrap(), text("USD"));
}

fn text<T: for<'a> From<&'a str>>(text: &str) -> T {
    text.into()
}

fn quantities(pairs: &[(&str, &str)]) -> Quantities {
    pairs.iter().map(|(name, amount)| (text(name), Quantity::parse(name, amount).unwrap())).collect()
}
