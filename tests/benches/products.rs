//! Closes an hour with equal numbers of two kinds of objects that a tenant controls and that affect each
//! other. `tests/bench/products` counts the instructions at several sizes. If each object took time for each
//! object of the other kind, twice as many objects would take four times as long.
//!
//! usage: products NAME SIZE

#![expect(clippy::unwrap_used, reason = "a benchmark stops on a broken assumption")]

use prorata_engine::{HourEvents, State, close_hour};
use prorata_samples::typical::typical;
use prorata_schemas::event::{CapacityType, Event, EventKind, Labels, Payload};
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{HOUR_MICROS, Hour, Timestamp};

/// The hour whose instructions are counted.
const HOUR: Hour = Hour(498_661);

/// Organization of all events.
const ORGANIZATION: &str = "acme-corporation";

/// The events of the hour before, all at its start, and the events of the counted hour, spread over the hour.
struct Story {
    before: Vec<Payload>,
    during: Vec<Payload>,
}

/// Typical events, made once.
struct Samples {
    node: Payload,
    pod: Payload,
    quota: Payload,
    commitment: Payload,
}

impl Samples {
    fn new() -> Self {
        let of = |kind| typical(kind).payload;
        Self {
            node: of(EventKind::NodeStarted),
            pod: of(EventKind::PodStarted),
            quota: of(EventKind::QuotaSet),
            commitment: of(EventKind::CommitmentSet),
        }
    }

    fn node(&self, number: usize, price: i32) -> Payload {
        let mut payload = self.node.clone();
        if let Payload::NodeStarted(node) = &mut payload {
            node.node_id = format!("node-{number}").into();
            node.capacity_type = CapacityType::OnDemand;
            node.hourly_cost = UnitPrice::from(price);
        }
        payload
    }

    /// Returns a pod with a namespace of its own.
    fn pod(&self, number: usize, node: usize, label: usize) -> Payload {
        let mut payload = self.pod.clone();
        if let Payload::PodStarted(pod) = &mut payload {
            pod.pod_uid = format!("pod-{number:06}").into();
            pod.namespace = format!("namespace-{number}").as_str().into();
            pod.node_id = Some(format!("node-{node}").into());
            pod.labels = Labels::from([("team".into(), format!("team-{label}").as_str().into())]);
        }
        payload
    }

    /// Returns a quota of that pod's namespace.
    fn quota(&self, number: usize) -> Payload {
        let mut payload = self.quota.clone();
        if let Payload::QuotaSet(quota) = &mut payload {
            quota.cluster_id = "acme-aws-use1".into();
            quota.quota_id = format!("quota-{number}").into();
            quota.namespaces = vec![format!("namespace-{number}").as_str().into()];
        }
        payload
    }

    /// Returns a commitment of the size of a node.
    fn commitment(&self, number: usize) -> Payload {
        let mut payload = self.commitment.clone();
        if let Payload::CommitmentSet(commitment) = &mut payload {
            commitment.commitment_id = format!("commitment-{number}").into();
            (commitment.provider, commitment.region) = ("aws".into(), "us-east-1".into());
            commitment.instance_family = "p4d".into();
            (commitment.vcpu, commitment.memory_gib) = ("96".parse().unwrap(), "1152".parse().unwrap());
            (commitment.gpu, commitment.gpu_model) = (8, Some("A100".into()));
            (commitment.enabled, commitment.allowed_utilization) = (true, None);
            commitment.currency = "USD".into();
            (commitment.starts_at, commitment.ends_at) = (Timestamp(0), None);
            commitment.assignments.clear();
        }
        payload
    }
}

fn story(name: &str, size: usize) -> Option<Story> {
    let samples = Samples::new();
    let all = || 0..size;
    let on_one_node =
        || [samples.node(0, 20)].into_iter().chain(all().map(|number| samples.pod(number, 0, 0))).collect();
    let nodes = || all().map(|number| samples.node(number, 20));
    let price = |number: usize| 20 + i32::from(number.is_multiple_of(2));
    let story = match name {
        // A node's price changes while many pods run on it.
        "prices-pods" => Story {
            before: on_one_node(),
            during: all().map(|number| samples.node(0, price(number))).collect(),
        },
        // Commitments are set one after another while nodes of their family run.
        "commitments-nodes" => Story {
            before: nodes().collect(),
            during: all().map(|number| samples.commitment(number)).collect(),
        },
        // Both continue from the hour before.
        "steady-commitments-nodes" => Story {
            before: nodes().chain(all().map(|number| samples.commitment(number))).collect(),
            during: Vec::new(),
        },
        // Quotas are set again while pods run under each.
        "quotas-pods" => {
            Story { before: on_one_node(), during: all().map(|number| samples.quota(number)).collect() }
        }
        // Each pod changes its label once while the others run.
        "labels-pods" => {
            Story { before: on_one_node(), during: all().map(|number| samples.pod(number, 0, 1)).collect() }
        }
        // One pod changes its label again and again on a full node.
        "labels-of-a-pod" => {
            Story { before: on_one_node(), during: all().map(|number| samples.pod(0, 0, number)).collect() }
        }
        _ => return None,
    };
    Some(story)
}

fn hour(hour: Hour, payloads: Vec<Payload>, step: i64) -> HourEvents {
    let at = |number: usize| Timestamp(hour.start().0 + step * number as i64);
    let events = payloads.into_iter().enumerate();
    HourEvents::of(hour, events.map(|(number, payload)| Event::new(ORGANIZATION.into(), at(number), payload)))
}

#[inline(never)]
fn counted_product(state: State, events: HourEvents) -> HourTables {
    close_hour(state, events, &Rules::default()).unwrap().1
}

fn main() {
    // Lives to the end, because dropping it would end the pool.
    let _pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().unwrap();
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (Some(name), Some(size)) = (arguments.next(), arguments.next()) else {
        println!("usage: products NAME SIZE; tests/bench/products counts all of them");
        return;
    };
    let Story { before, during } = story(&name, size.parse().unwrap()).unwrap();
    let state = State::new(ORGANIZATION.into());
    let (state, _) = close_hour(state, hour(HOUR.previous(), before, 0), &Rules::default()).unwrap();
    let step = HOUR_MICROS / (during.len() as i64 + 1);
    let tables = counted_product(state, hour(HOUR, during, step));
    println!("{}", tables.cost_allocation.len());
}
