//! The effect of each event on what runs or is set.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use prorata_schemas::event::{NodeStarted, Payload, PodStarted, PoolSet, RateSet};
use prorata_schemas::ids::{PodUid, PoolId};
use prorata_schemas::time::Timestamp;

use crate::error::EngineError;
use crate::model::slices::PodStatus;
use crate::model::spec::{NodeSpec, PodSpec, rate_key};
use crate::model::state::NodeKey;
use crate::rules::commitment::FamilyNode;
use crate::rules::commitment::edges;
use crate::timeline::running::{CurrentPool, Running, RunningNode, RunningPod};
use crate::timeline::schedule::ReservationStep;

/// Nodes and pods that start and stop at one instant and were not running before it, so they never ran. Nodes
/// and pods that were running end and start again.
#[derive(Debug, Default)]
pub(super) struct NeverRan {
    nodes: BTreeSet<NodeKey>,
    pods: BTreeSet<PodUid>,
}

impl NeverRan {
    /// Collects these nodes and pods from the payloads of one instant.
    pub(super) fn among(payloads: &[Payload], running: &Running<'_>) -> Self {
        let mut never_ran = Self::default();
        if payloads.len() < 2 {
            return never_ran;
        }
        for payload in payloads {
            if let Payload::NodeStopped(node) = payload {
                let key = (node.cluster_id.clone(), node.node_id.clone());
                if !running.nodes.contains_key(&key) {
                    never_ran.nodes.insert(key);
                }
            } else if let Payload::PodStopped(pod) = payload
                && !running.pods.contains_key(&pod.pod_uid)
            {
                never_ran.pods.insert(pod.pod_uid.clone());
            }
        }
        never_ran
    }
}

impl Running<'_> {
    /// Applies one event. Matching takes effect before the next step.
    pub(super) fn apply(&mut self, payload: Payload, never_ran: &NeverRan) -> Result<(), EngineError> {
        match payload {
            Payload::RateSet(rate) => self.set_rate(*rate)?,
            Payload::PoolSet(pool) => self.set_pool(*pool)?,
            Payload::PoolDeleted(pool) => self.delete_pool(&pool.pool_id)?,
            Payload::QuotaSet(quota) => self.quotas.set(Arc::new(*quota), self.now),
            Payload::QuotaDeleted(quota) => self.quotas.delete(&(quota.cluster_id, quota.quota_id)),
            Payload::CommitmentSet(commitment) => {
                self.schedule_coverage(edges(&commitment));
                self.commitments.set(Arc::new(*commitment), self.now);
            }
            Payload::CommitmentDeleted(commitment) => {
                self.commitments.delete(&commitment.commitment_id, self.now);
            }
            Payload::ReservationSet(reservation) => {
                let id = reservation.reservation_id.clone();
                self.reservations.set(Arc::new(*reservation), self.now, self.rules);
                // The steps that it schedules for this very instant have been applied with it.
                self.schedule_reservation(&id, Timestamp(self.now.0 + 1));
            }
            Payload::ReservationReleased(reservation) => {
                self.reservations.release(&reservation.reservation_id, self.now);
            }
            Payload::NodeStarted(node) => {
                let key = (node.cluster_id.clone(), node.node_id.clone());
                if !never_ran.nodes.contains(&key) {
                    self.start_node(key, *node);
                }
            }
            Payload::NodeStopped(node) => self.stop_node(&(node.cluster_id, node.node_id)),
            Payload::PodStarted(pod) => {
                if !never_ran.pods.contains(&pod.pod_uid) {
                    self.start_pod(Arc::from(pod))?;
                }
            }
            Payload::PodStopped(pod) => self.stop_pod(&pod.pod_uid),
            // Added before the first step.
            Payload::PodUsage(_) | Payload::BillSet(_) | Payload::BillingPeriodClosed(_) => {}
        }
        self.take_matches();
        Ok(())
    }

    /// Applies a scheduled step like an event.
    pub(super) fn apply_scheduled(&mut self, step: &ReservationStep) {
        match step {
            ReservationStep::Start(id) => self.reservations.start(id, self.now),
            ReservationStep::End(id) => self.reservations.end(id, self.now),
        }
        self.take_matches();
    }

    fn set_rate(&mut self, rate: RateSet) -> Result<(), EngineError> {
        let key = rate_key(&rate);
        self.rates.insert(key.clone(), Arc::new(rate));
        let pods = self.priced_pods().of_rate(&key);
        self.prices.add(pods.len())?;
        for uid in pods {
            let Some(pod) = self.pods.get(&uid) else { continue };
            let rate = self.rate_of(&pod.spec);
            self.change_pod(&uid, |status| status.rate = rate);
        }
        Ok(())
    }

    fn set_pool(&mut self, pool: PoolSet) -> Result<(), EngineError> {
        let id = pool.pool_id.clone();
        self.close_pool(&id);
        let pool = CurrentPool { description: Arc::new(pool), since: self.now };
        self.pools.insert(id.clone(), pool);
        self.price_pool_pods(&id)
    }

    fn delete_pool(&mut self, id: &PoolId) -> Result<(), EngineError> {
        self.close_pool(id);
        self.pools.remove(id);
        self.price_pool_pods(id)
    }

    fn price_pool_pods(&mut self, id: &PoolId) -> Result<(), EngineError> {
        let pods = self.priced_pods().of_pool(id);
        self.prices.add(pods.len())?;
        for uid in pods {
            let Some(pod) = self.pods.get(&uid) else { continue };
            let pool = self.pool_pricing(&pod.spec.description);
            self.change_pod(&uid, |status| status.pool = pool);
        }
        Ok(())
    }

    /// Starts a node, or describes a running node again, which keeps its start and its pods.
    fn start_node(&mut self, key: NodeKey, description: NodeStarted) {
        let spec = Arc::new(NodeSpec::new(Arc::new(description), self.bills.keys(), self.rules));
        self.close_node(&key);
        if let Some(node) = self.nodes.get_mut(&key) {
            let now = FamilyNode { spec: spec.clone(), start: node.start };
            self.commitments.node_changed(&key, Some(&node.spec), Some(now));
            node.spec = spec;
            return;
        }
        let now = FamilyNode { spec: spec.clone(), start: self.now };
        self.commitments.node_changed(&key, None, Some(now));
        let waiting = self.named_nodes.start(&key);
        let node = RunningNode { spec, start: self.now, since: self.now, coverage: Arc::default() };
        self.nodes.insert(key, node);
        for uid in waiting {
            self.change_pod(&uid, |status| status.node_runs = true);
        }
    }

    /// Stops a node and its pods.
    fn stop_node(&mut self, key: &NodeKey) {
        self.close_node(key);
        let Some(node) = self.nodes.remove(key) else { return };
        self.commitments.node_changed(key, Some(&node.spec), None);
        for uid in self.named_nodes.stop(key) {
            self.stop_pod(&uid);
        }
    }

    /// Starts a pod, or describes a running pod again. A running pod keeps its start, and it keeps its match
    /// if the description allows this.
    fn start_pod(&mut self, description: Arc<PodStarted>) -> Result<(), EngineError> {
        let uid = description.pod_uid.clone();
        let node = self.named_nodes.of(&description);
        let spec = Arc::new(PodSpec::new(description, node, self.rules));
        let (now, status) = (self.now, self.status_of(&spec));
        let before = match self.pods.entry(uid.clone()) {
            Entry::Occupied(mut pod) => {
                let pod = pod.get_mut();
                pod.close(now);
                pod.status = PodStatus { reservation: pod.status.reservation.take(), ..status };
                Some((std::mem::replace(&mut pod.spec, spec.clone()), pod.start))
            }
            Entry::Vacant(place) => {
                place.insert(RunningPod::new(spec.clone(), now, now, status));
                None
            }
        };
        match before {
            Some((before, start)) => {
                self.unindex_pod(&uid, &before);
                self.quotas.pod_ended(&uid, &before);
                self.reservations.pod_described(&uid, &spec, start, now);
            }
            None => self.reservations.pod_started(&uid, &spec, now, now),
        }
        self.index_pod(&uid, &spec);
        self.quotas.pod_started(&uid, &spec)
    }

    fn stop_pod(&mut self, uid: &PodUid) {
        if let Some(mut pod) = self.pods.remove(uid) {
            pod.close(self.now);
            self.keep_slices(uid, pod.slices);
            self.unindex_pod(uid, &pod.spec);
            self.quotas.pod_ended(uid, &pod.spec);
            self.reservations.pod_ended(uid, self.now);
        }
    }
}
