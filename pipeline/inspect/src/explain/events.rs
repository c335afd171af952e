//! The events of the hour that affect the rows, each with its archive file. They include events that another
//! event replaced, with a note.

use std::collections::BTreeSet;

use prorata_engine::trace::{Focus, Trace};
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{
    BillSet, Event, EventKind, NodeStarted, Payload, PodStarted, PodUsage, Quantities, RateSet, names,
};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::time::Timestamp;
use prorata_worker::root::look::HourInput;

use super::explained::ExplainedRow;
use crate::Sum;

/// An event that affects the rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsedEvent {
    /// Event time.
    pub at: Timestamp,
    /// Kind of the event.
    pub kind: EventKind,
    /// The content that the costs depend on, the recording time, and the event that replaced this one, if
    /// any.
    pub what: String,
    /// The archive file of the event.
    pub file: String,
}

/// The objects whose events affect the rows.
struct Wanted<'a> {
    focus: &'a Focus,
    commitments: BTreeSet<&'a str>,
    pods: Vec<&'a PodStarted>,
}

/// Returns the events of the objects in focus, and of the prices and agreements that the rows name, in order
/// of time.
pub fn used(input: &HourInput, focus: &Focus, trace: &Trace, rows: &[ExplainedRow]) -> Vec<UsedEvent> {
    let spans = trace.commitments.iter().map(|span| &*span.commitment_id);
    let named = rows.iter().filter_map(|row| row.row.commitment_id.as_deref());
    let wanted = Wanted {
        focus,
        commitments: spans.chain(named).collect(),
        pods: trace.pods.iter().map(|span| &*span.description).collect(),
    };
    let in_files =
        input.files.iter().flat_map(|file| file.events.iter().map(move |event| (event, &file.path)));
    let mut matter: Vec<(&Event, &String)> =
        in_files.filter(|(event, _)| wanted.has(&event.payload)).collect();
    matter.sort_by(|(a, _), (b, _)| {
        let about = |event: &Event| (event.event_time, event.payload.kind());
        let about =
            about(a).cmp(&about(b)).then_with(|| a.payload.natural_key().cmp(&b.payload.natural_key()));
        about.then_with(|| a.cmp_to_rival(b))
    });
    let mut used = BTreeSet::new();
    for rivals in matter.chunk_by(|(a, _), (b, _)| a.is_rival_of(b)) {
        let Some((stands, _)) = rivals.last() else { continue };
        for (event, path) in rivals {
            used.insert(UsedEvent {
                at: event.event_time,
                kind: event.payload.kind(),
                what: what(&event.payload) + &note(event, stands),
                file: (*path).clone(),
            });
        }
    }
    used.into_iter().collect()
}

/// Returns a note about an event: whether it is a retraction, its recording time, and the event that replaced
/// it, if any.
fn note(event: &Event, stands: &Event) -> String {
    let mut note = String::new();
    if event.recording.is_retraction() {
        note += "; a retraction";
    }
    if let Some(at) = event.recording.recorded_at() {
        note += &format!("; recorded at {at}");
    }
    if event != stands {
        note += if stands.recording.is_retraction() { "; retracted by " } else { "; superseded by " };
        note += &match stands.recording.recorded_at() {
            Some(at) if stands.recording != event.recording => format!("the event recorded at {at}"),
            _ => "another event, whose body sorts later".to_owned(),
        };
    }
    note
}

impl Wanted<'_> {
    fn has(&self, payload: &Payload) -> bool {
        let focus = self.focus;
        match payload {
            Payload::PodStarted(pod) => focus.pods.contains(&pod.pod_uid),
            Payload::PodStopped(pod) => focus.pods.contains(&pod.pod_uid),
            Payload::PodUsage(usage) => focus.pods.contains(&usage.pod_uid),
            Payload::NodeStarted(node) => {
                focus.nodes.contains(&(node.cluster_id.clone(), node.node_id.clone()))
            }
            Payload::NodeStopped(node) => {
                focus.nodes.contains(&(node.cluster_id.clone(), node.node_id.clone()))
            }
            Payload::CommitmentSet(set) => self.commitments.contains(&*set.commitment_id),
            Payload::CommitmentDeleted(set) => self.commitments.contains(&*set.commitment_id),
            Payload::ReservationSet(set) => focus.reservations.contains(&set.reservation_id),
            Payload::ReservationReleased(set) => focus.reservations.contains(&set.reservation_id),
            Payload::QuotaSet(set) => focus.quotas.contains(&(set.cluster_id.clone(), set.quota_id.clone())),
            Payload::QuotaDeleted(set) => {
                focus.quotas.contains(&(set.cluster_id.clone(), set.quota_id.clone()))
            }
            Payload::PoolSet(set) => self.has_pool(&set.pool_id),
            Payload::PoolDeleted(set) => self.has_pool(&set.pool_id),
            Payload::RateSet(rate) => self.pods.iter().any(|pod| is_rate_of(rate, pod)),
            Payload::BillSet(bill) => self.has_bill(bill),
            // It changes `hours.basis`, and no row.
            Payload::BillingPeriodClosed(_) => false,
        }
    }

    fn has_bill(&self, bill: &BillSet) -> bool {
        let has_commitment = |id: Option<&str>| id.is_some_and(|id| self.commitments.contains(id));
        self.focus.bills.contains(&bill.resource_key)
            || bill.lines.iter().any(|line| {
                has_commitment(line.commitment_id.as_deref())
                    || line.reservation_id.as_ref().is_some_and(|id| self.focus.reservations.contains(id))
            })
    }

    fn has_pool(&self, id: &str) -> bool {
        self.pods.iter().any(|pod| pod.pool_id.as_deref() == Some(id))
    }
}

fn is_rate_of(rate: &RateSet, pod: &PodStarted) -> bool {
    pod.node_id.is_none()
        && pod.pool_id.is_none()
        && pod.region.as_deref().is_some_and(|region| names::same(region, &rate.region, names::place))
        && match (&pod.gpu_model, &rate.gpu_model) {
            (Some(of_pod), Some(of_rate)) => names::same(of_pod, of_rate, names::gpu_model),
            (of_pod, of_rate) => of_pod == of_rate,
        }
        && pod.qos == rate.qos
}

fn amounts(quantities: &Quantities) -> String {
    let named: Vec<String> =
        quantities.iter().map(|(name, quantity)| format!("{name} {}", quantity.text)).collect();
    if named.is_empty() { "nothing".to_owned() } else { named.join(", ") }
}

fn physical(gpus: Option<&Quantity>) -> String {
    gpus.map_or_else(String::new, |gpus| format!(", {} physical GPUs", gpus.text))
}

/// Returns the resource and the account under which a node is billed, as far as they are known.
fn billed(node: &NodeStarted) -> String {
    let resource = node.resource_key.as_deref().filter(|key| **key != *node.node_id);
    let resource = resource.map(|key| format!("billed as {key}"));
    let account = node.account_id.as_deref().map(|account| format!("account {account}"));
    let known: Vec<String> = resource.into_iter().chain(account).collect();
    if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) }
}

/// Describes a bill by the number and the sum of its lines.
fn bill_in_words(bill: &BillSet) -> String {
    let resource = match &*bill.resource_key {
        "" => "no resource",
        key => key,
    };
    let mut cost = Sum::default();
    bill.lines.iter().for_each(|line| cost.add(Decimal12::from(line.effective_cost)));
    format!(
        "bill of {}, account {}, for {resource}: {} lines with an effective cost of {cost} {}",
        bill.provider,
        bill.billing_account_id,
        bill.lines.len(),
        bill.currency
    )
}

fn usage_in_words(usage: &PodUsage) -> String {
    let gpu_memory = usage.gpu_memory_bytes.map(|bytes| format!(", {bytes} bytes of GPU memory"));
    format!(
        "until {}: {} thousandths of a vCPU, {} bytes, {} thousandths of a GPU{}",
        usage.interval_end,
        usage.cpu_millis,
        usage.memory_bytes,
        usage.gpu_millis,
        gpu_memory.unwrap_or_default()
    )
}

/// Describes the content of an event.
fn what(payload: &Payload) -> String {
    match payload {
        Payload::NodeStarted(node) => format!(
            "node {}{}: {}, {}{} at {} {} an hour",
            node.node_id,
            billed(node),
            node.instance_type,
            amounts(&node.capacity),
            physical(node.gpus.as_ref()),
            node.hourly_cost,
            node.currency
        ),
        Payload::NodeStopped(node) => format!("node {}", node.node_id),
        Payload::PodStarted(pod) => {
            let place = pod.node_id.as_ref().map_or("no node".to_owned(), |node| format!("node {node}"));
            let of = amounts(&pod.requests);
            let gpus = physical(pod.gpus.as_ref());
            let sharing = pod.gpu_sharing.as_ref().map(|scheme| format!(", shares GPUs by {scheme}"));
            let sharing = sharing.unwrap_or_default();
            format!("pod {}/{} on {place}, requests {of}{gpus}{sharing}", pod.namespace, pod.pod_name)
        }
        Payload::PodStopped(pod) => format!("pod {}", pod.pod_uid),
        Payload::PodUsage(usage) => usage_in_words(usage),
        Payload::ReservationSet(set) => format!(
            "reservation {}: {} units of {} at {} {} an hour",
            set.reservation_id,
            set.quantity,
            amounts(&set.capacity),
            set.unit_hourly_price,
            set.currency
        ),
        Payload::ReservationReleased(set) => format!("reservation {}", set.reservation_id),
        Payload::CommitmentSet(set) if set.hourly_commitment.is_some() => format!(
            "savings plan {}: {} {} an hour for {}, {} discounts",
            set.commitment_id,
            set.hourly_commitment.unwrap_or_default(),
            set.currency,
            set.hourly_cost,
            set.discounts.len()
        ),
        Payload::CommitmentSet(set) => format!(
            "commitment {}: {} vCPU, {} GiB, {} GPUs of {} at {} {} an hour",
            set.commitment_id,
            set.vcpu,
            set.memory_gib,
            set.gpu,
            set.instance_family,
            set.hourly_cost,
            set.currency
        ),
        Payload::CommitmentDeleted(set) => format!("commitment {}", set.commitment_id),
        Payload::QuotaSet(set) => format!("quota {}: min {}", set.quota_id, amounts(&set.min)),
        Payload::QuotaDeleted(set) => format!("quota {}", set.quota_id),
        Payload::PoolSet(set) => format!("pool {}: {} prices", set.pool_id, set.qos_pricing.len()),
        Payload::PoolDeleted(set) => format!("pool {}", set.pool_id),
        Payload::RateSet(rate) => format!(
            "{} a vCPU-hour, {} a GiB-hour, {} a GPU-hour, {}",
            rate.per_vcpu_hour, rate.per_gib_hour, rate.per_gpu_hour, rate.currency
        ),
        Payload::BillSet(bill) => bill_in_words(bill),
        Payload::BillingPeriodClosed(month) => {
            format!("bill of {}, account {}", month.provider, month.billing_account_id)
        }
    }
}

#[cfg(test)]
mod tests {
    use prorata_schemas::event::{PodStopped, Recording};

    use super::*;

    #[test]
    fn an_event_that_gave_way_names_what_took_its_place() {
        let stop = |reason: &str, recorded_at: Option<i64>, is_retraction| {
            let pod = PodStopped {
                cluster_id: "c".into(),
                namespace: "n".into(),
                pod_uid: "p".into(),
                reason: Some(reason.into()),
            };
            let event = Event::new("o".into(), Timestamp(0), Payload::PodStopped(pod));
            event.recorded(Recording::new(recorded_at.map(Timestamp), is_retraction))
        };
        let (unknown, early) = (stop("a", None, false), stop("b", Some(1), false));
        let (late, retraction) = (stop("a", Some(2), false), stop("a", Some(3), true));
        assert_eq!(note(&unknown, &unknown), "");
        assert_eq!(note(&late, &late), "; recorded at 1970-01-01T00:00:00.000002Z");
        assert_eq!(
            note(&early, &late),
            "; recorded at 1970-01-01T00:00:00.000001Z; superseded by the event recorded at \
             1970-01-01T00:00:00.000002Z"
        );
        let other = stop("b", None, false);
        assert_eq!(note(&unknown, &other), "; superseded by another event, whose body sorts later");
        assert_eq!(
            note(&unknown, &retraction),
            "; retracted by the event recorded at 1970-01-01T00:00:00.000003Z"
        );
        assert_eq!(note(&retraction, &retraction), "; a retraction; recorded at 1970-01-01T00:00:00.000003Z");
    }
}
