//! The time of pods on nodes, by the terms of the node and by the labels of the pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::event::PodStarted;
use prorata_schemas::ids::PodUid;
use prorata_schemas::rows::Unpriced;
use prorata_schemas::rules::{Allocation, Rules};

use super::{Terms, terms};
use crate::hour::{HourView, Label, Slice};
use crate::resources::{Three, add, is_share_unknown, none, of_pod};
use crate::rounding::{Exact, hours, larger, whole, zero};
use crate::rules::pool;
use crate::rules::quota;
use crate::usage;
use crate::world::{Billing, NodeKey};

/// A pod's time on one node under the same terms, or the time for which it names a node that does not run.
pub struct Stay {
    /// Hours for which the pod ran there.
    pub running: Exact,
    /// Requested resource-hours.
    pub requested: Three,
    /// Used resource-hours. `None` if no sample overlaps.
    pub used: Option<Three>,
    /// The pod's time by label.
    pub labels: BTreeMap<Label, LabelTime>,
}

/// A part of a stay under one label.
pub struct LabelTime {
    /// The pod's last description under the label.
    pub pod: Arc<PodStarted>,
    /// The length in hours.
    pub running: Exact,
    /// The charge of the pod's pool for this time. `None` if no pool priced it.
    pub charge: Option<Exact>,
}

impl Stay {
    fn new() -> Self {
        Self { running: zero(), requested: none(), used: None, labels: BTreeMap::new() }
    }

    /// Returns the amounts that the pod is allocated: the larger of request and use, or only the request.
    pub fn allocated(&self, rules: &Rules) -> Three {
        let used = self.used.clone().unwrap_or_else(none);
        let mut allocated = none();
        for (resource, amount) in allocated.iter_mut().enumerate() {
            let request = self.requested[resource].clone();
            *amount = match rules.allocation {
                Allocation::Max => larger(request, used[resource].clone()),
                Allocation::Requests => request,
            };
        }
        allocated
    }
}

/// Stays of pods by the terms of the node (`None` if it does not run), the node and the pod.
pub type Stays = BTreeMap<(Option<Terms>, NodeKey, PodUid), Stay>;

/// Returns every stay of a pod on a node, whether the node is running or unknown.
pub fn stays(view: &HourView) -> Stays {
    let mut stays = Stays::new();
    for slice in view.slices {
        for (uid, running) in &slice.world.pods {
            let (known, node) = match slice.world.billing(&running.set) {
                Billing::Node(node) => (true, node),
                Billing::UnknownNode(node) => (false, node),
                Billing::Pool | Billing::Serverless => continue,
            };
            let on = slice.world.nodes.get(&node).filter(|_| known);
            let terms = on.map(|on| terms(view, slice, &on.set));
            let stay = stays.entry((terms, node, uid.clone())).or_insert_with(Stay::new);
            extend(stay, view, slice, known, &running.set);
        }
    }
    stays
}

/// Adds one slice to a stay.
fn extend(stay: &mut Stay, view: &HourView, slice: &Slice, known: bool, pod: &Arc<PodStarted>) {
    let time = hours(slice.to - slice.from);
    stay.running += &time;
    add(&mut stay.requested, &of_pod(pod, view.rules), &time);
    if let Some(used) = usage::used(view.samples, &pod.pod_uid, slice.from, slice.to) {
        add(stay.used.get_or_insert_with(none), &used, &whole(1));
    }
    let charge = pool::charge(&slice.world, pod, slice.from, view);
    let quota = quota::label(&slice.quotas, &pod.cluster_id, &pod.pod_uid);
    let reason = match &charge {
        _ if !known => Some(Unpriced::UnknownNode),
        Some(Err(reason)) => Some(*reason),
        None if is_share_unknown(pod, view.rules) => Some(Unpriced::UnknownGpuShare),
        _ => None,
    };
    let (quota_id, state) = quota.unzip();
    let label = Label { quota_id, state, reason, labels: pod.labels.clone() };
    let new = || LabelTime { pod: Arc::clone(pod), running: zero(), charge: None };
    let part = stay.labels.entry(label).or_insert_with(new);
    part.pod = Arc::clone(pod);
    part.running += &time;
    if let Some(Ok((rate, _))) = charge {
        *part.charge.get_or_insert_with(zero) += rate * &time;
    }
}
