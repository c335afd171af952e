//! What each event does to what is running or set.

use std::sync::Arc;

use prorata_schemas::event::{EventRecord, NodeStarted, Payload, PodStarted, PodUsage, PoolSet, RateSet};
use prorata_schemas::ids::{PodUid, PoolId};

use crate::rules::pool::pricing;
use crate::timeline::size::{NodeShape, PodShape};
use crate::timeline::slices::{PoolPricing, Standing};
use crate::timeline::state::{NodeKey, Sample};
use crate::timeline::{LiveNode, LivePod, NeverRan, Timeline};

impl Timeline<'_> {
    /// Applies one event. Matching takes effect before the next step.
    pub(crate) fn event(&mut self, record: &EventRecord, never_ran: &NeverRan) {
        match &record.event.payload {
            Payload::RateSet(rate) => self.rate_set(rate),
            Payload::PoolSet(pool) => self.pool_set(pool),
            Payload::PoolDeleted(pool) => self.pool_deleted(&pool.pool_id),
            Payload::QuotaSet(quota) => self.quotas.set(Arc::new(quota.clone()), self.now),
            Payload::QuotaDeleted(quota) => {
                self.quotas.delete(&(quota.cluster_id.clone(), quota.quota_id.clone()));
            }
            Payload::CommitmentSet(commitment) => {
                self.commitments.set(Arc::new(commitment.clone()), self.now);
                self.cover_is_stale = true;
                self.schedule_commitments();
            }
            Payload::CommitmentDeleted(commitment) => {
                self.commitments.delete(&commitment.commitment_id, self.now);
                self.cover_is_stale = true;
            }
            Payload::ReservationSet(reservation) => {
                self.reservations.set(Arc::new(reservation.clone()), self.now, self.rules);
                self.schedule_reservation(&reservation.reservation_id);
            }
            Payload::ReservationReleased(reservation) => {
                self.reservations.release(&reservation.reservation_id, self.now);
            }
            Payload::NodeStarted(node) => {
                let key = (node.cluster_id.clone(), node.node_id.clone());
                if !never_ran.nodes.contains(&key) {
                    self.node_started(key, node);
                }
            }
            Payload::NodeStopped(node) => {
                self.node_stopped(&(node.cluster_id.clone(), node.node_id.clone()));
            }
            Payload::PodStarted(pod) => {
                if !never_ran.pods.contains(&pod.pod_uid) {
                    self.pod_started(pod);
                }
            }
            Payload::PodStopped(pod) => self.pod_stopped(&pod.pod_uid),
            Payload::PodUsage(usage) => self.usage(usage),
        }
        self.take_matches();
    }

    fn rate_set(&mut self, rate: &RateSet) {
        let key = (rate.region.clone(), rate.gpu_model.clone(), rate.qos.clone());
        self.rates.insert(key, Arc::new(rate.clone()));
        let priced = self.pods.iter().filter(|(_, pod)| {
            let wanted = &pod.shape.description;
            pod.shape.is_serverless()
                && wanted.region.as_ref() == Some(&rate.region)
                && wanted.gpu_model == rate.gpu_model
                && wanted.qos == rate.qos
        });
        for uid in priced.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            let rate = self.pods.get(&uid).and_then(|pod| self.rate(&pod.shape));
            self.change_pod(&uid, |standing| standing.rate = rate);
        }
    }

    fn pool_set(&mut self, pool: &PoolSet) {
        self.close_pool(&pool.pool_id);
        self.pools.insert(pool.pool_id.clone(), Arc::new(pool.clone()));
        self.pools_since.insert(pool.pool_id.clone(), self.now);
        self.price_pool_pods(&pool.pool_id);
    }

    fn pool_deleted(&mut self, id: &PoolId) {
        self.close_pool(id);
        self.pools.remove(id);
        self.pools_since.remove(id);
        self.price_pool_pods(id);
    }

    fn price_pool_pods(&mut self, id: &PoolId) {
        let members = self.pods.iter().filter(|(_, pod)| pod.shape.description.pool_id.as_ref() == Some(id));
        for uid in members.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            let pool = match self.pods.get(&uid) {
                Some(pod) => pricing(&self.pools, &pod.shape.description),
                None => PoolPricing::None,
            };
            self.change_pod(&uid, |standing| standing.pool = pool);
        }
    }

    fn node_started(&mut self, key: NodeKey, description: &NodeStarted) {
        let shape = Arc::new(NodeShape::new(Arc::new(description.clone()), self.rules));
        self.cover_is_stale = true;
        self.close_node(&key);
        if let Some(node) = self.nodes.get_mut(&key) {
            node.shape = shape;
            return;
        }
        let node = LiveNode { shape, start: self.now, since: self.now, cover: Arc::default() };
        self.nodes.insert(key.clone(), node);
        let named = self.node_pods.get(&key).cloned().unwrap_or_default();
        for uid in named {
            self.change_pod(&uid, |standing| standing.node_runs = true);
        }
    }

    fn node_stopped(&mut self, key: &NodeKey) {
        self.close_node(key);
        if self.nodes.remove(key).is_none() {
            return;
        }
        self.cover_is_stale = true;
        for uid in self.node_pods.remove(key).unwrap_or_default() {
            self.pod_stopped(&uid);
        }
    }

    fn pod_started(&mut self, description: &PodStarted) {
        let uid = description.pod_uid.clone();
        let shape = Arc::new(PodShape::new(Arc::new(description.clone()), self.rules));
        self.close_pod(&uid);
        match self.pods.remove(&uid) {
            Some(pod) => {
                self.unindex_pod(&uid, &pod.shape);
                self.quotas.pod_ended(&pod.shape);
                let reservation = pod.standing.reservation;
                let standing = Standing { reservation, ..self.standing(&shape) };
                let live = LivePod { shape: shape.clone(), start: pod.start, since: self.now, standing };
                self.pods.insert(uid.clone(), live);
                self.reservations.pod_described(&uid, &shape, pod.start, self.now);
            }
            None => {
                let standing = self.standing(&shape);
                let live = LivePod { shape: shape.clone(), start: self.now, since: self.now, standing };
                self.pods.insert(uid.clone(), live);
                self.reservations.pod_started(&uid, &shape, self.now, self.now);
            }
        }
        self.index_pod(&uid, &shape);
        self.quotas.pod_started(&shape);
    }

    fn pod_stopped(&mut self, uid: &PodUid) {
        self.close_pod(uid);
        if let Some(pod) = self.pods.remove(uid) {
            self.unindex_pod(uid, &pod.shape);
            self.quotas.pod_ended(&pod.shape);
            self.reservations.pod_ended(uid, self.now);
        }
    }

    fn usage(&mut self, usage: &PodUsage) {
        let amounts = [usage.cpu_millis, usage.memory_bytes, usage.gpu_millis];
        let sample = Sample {
            from: self.now,
            to: usage.interval_end,
            use_amounts: amounts.map(|amount| u64::try_from(amount).unwrap_or(0)),
        };
        if sample.from < sample.to {
            self.samples.entry(usage.pod_uid.clone()).or_default().push(sample);
        }
    }
}
