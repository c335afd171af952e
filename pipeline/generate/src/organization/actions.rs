//! Actions of pods and nodes: start, measurement, change, end, reclaim.

use std::sync::Arc;

use prorata_schemas::event::{CapacityType, Payload, PodStarted, PodStopped, PodUsage};
use prorata_schemas::time::Timestamp;
use rand::Rng;

use super::classes::Lifetime;
use super::fleet::{Amounts, Node};
use super::workload::Workload;
use super::{Action, LivePod, Organization};
use crate::clusters::CLUSTERS;
use crate::quantities::{put_mib, put_millis};
use crate::random::{chance, pick, span, suffix, uid};
use crate::{HOUR, MINUTE, SECOND};

/// Time for which a node may be empty before it is removed.
const EMPTY_NODE_KEPT_FOR: i64 = 10 * MINUTE;

impl Organization {
    /// Executes an action that is due.
    pub(super) fn act(&mut self, at: i64, action: Action) {
        match action {
            Action::Emit(payload) => self.emit(at, *payload),
            Action::Start { workload, lifetime, waited, service } => {
                let key = self.start_pod(at, &workload, lifetime, waited, service);
                self.replica_started(service, key);
            }
            Action::Stop(key) => self.stop_pod(at, key),
            Action::Sample(key) => self.sample(at, key),
            Action::Amend(key) => self.amend(at, key),
            Action::Reclaim(key) => self.reclaim(at, key),
            Action::Reboot(key) => self.reboot(at, key),
            Action::ScaleDown(key) => self.scale_down(at, key),
            Action::Reprice(key) => self.reprice(at, key),
            Action::CutPrices => {
                for node in self.fleet.cut_prices() {
                    self.emit(at, Payload::NodeStarted(Box::new(node)));
                }
            }
            Action::BringBack(node) => {
                if let Some(key) = self.fleet.bring_back(&node) {
                    self.announce_node(at, key);
                }
            }
        }
    }

    /// Starts a node of a group, with the agent that runs on every node. Returns the node's key; `None` if no
    /// instance type of the group can hold `need`.
    pub(super) fn start_node(&mut self, at: i64, group: usize, need: Amounts) -> Option<u64> {
        let key = self.fleet.start(&mut self.rng, group, need)?;
        self.announce_node(at, key);
        Some(key)
    }

    fn announce_node(&mut self, at: i64, key: u64) {
        let Some(node) = self.fleet.node(key) else { return };
        let (described, spot) = (node.described.clone(), node.described.capacity_type == CapacityType::Spot);
        let agent = self.agent_of(&described.cluster_id, &described.node_id, at);
        let pooled = described.pool_id.is_some();
        self.emit(at, Payload::NodeStarted(Box::new(described)));
        self.emit(at, Payload::PodStarted(Box::new(agent)));
        if spot {
            let repriced = at + span(&mut self.rng, HOUR, 5 * HOUR);
            self.plan(repriced, Action::Reprice(key));
        }
        if spot && !pooled {
            let reclaimed = at + span(&mut self.rng, HOUR / 2, 14 * HOUR);
            self.plan(reclaimed, Action::Reclaim(key));
        }
    }

    /// Returns the agent of a node: a pod that stops only with the node.
    fn agent_of(&mut self, cluster_id: &str, node_id: &str, at: i64) -> PodStarted {
        let pod_uid = uid(&mut self.rng);
        let name = format!("node-exporter-{}", suffix(&mut self.rng));
        let mut agent = PodStarted {
            cluster_id: cluster_id.into(),
            namespace: "kube-system".into(),
            pod_name: name.into(),
            pod_uid,
            created_at: Timestamp(at),
            priority: 2_000_001_000,
            node_id: Some(node_id.into()),
            region: None,
            zone: None,
            pool_id: None,
            qos: "default".into(),
            gpu_model: None,
            requests: Default::default(),
            limits: Default::default(),
            workload_kind: Some("DaemonSet".into()),
            workload_name: Some("node-exporter".into()),
            labels: [("app.kubernetes.io/name".into(), "node-exporter".into())].into(),
            eviction_protected_until: None,
            gpus: None,
            gpu_sharing: None,
            volume_keys: Vec::new(),
        };
        put_millis(&mut agent.requests, "cpu", 100);
        put_mib(&mut agent.requests, "memory", 128);
        agent
    }

    /// Returns the key of a node of the workload's group with room: a running or a new node. Returns `None`
    /// if the workload runs on no node or fits on none.
    fn schedule(&mut self, at: i64, workload: &Workload) -> Option<u64> {
        let group = workload.group?;
        if let Some(key) = self.fleet.find_room(group, workload.need) {
            return Some(key);
        }
        self.start_node(at, group, workload.need)
    }

    fn start_pod(
        &mut self,
        at: i64,
        workload: &Arc<Workload>,
        lifetime: i64,
        waited: i64,
        service: Option<usize>,
    ) -> Option<u64> {
        let node = self.schedule(at, workload);
        if node.is_none() && workload.group.is_some() {
            // No instance type of the group is large enough: the pod stays pending and costs nothing.
            return None;
        }
        let mut pod = workload.pod(&mut self.rng, at, at - waited);
        pod.node_id = node.and_then(|key| self.fleet.node(key)).map(|node| node.described.node_id.clone());
        let key = self.next_pod;
        self.next_pod += 1;
        if let Some(node) = node {
            self.fleet.place(node, key, workload.need);
        }
        let sampling = self.first_sample(at, workload, key);
        let amended = lifetime > HOUR / 2 && chance(&mut self.rng, 60_000);
        if amended {
            let amended_at = at + span(&mut self.rng, MINUTE, lifetime - MINUTE);
            self.plan(amended_at, Action::Amend(key));
        }
        self.plan(at + lifetime, Action::Stop(key));
        let live = LivePod {
            workload: workload.clone(),
            uid: pod.pod_uid.clone(),
            node,
            service,
            until: at + lifetime,
            sampling,
            described: amended.then(|| Box::new(pod.clone())),
        };
        self.pods.insert(key, live);
        self.emit(at, Payload::PodStarted(Box::new(pod)));
        Some(key)
    }

    /// Plans a new pod's first sample. Returns the length of the pod's intervals and the start of the first
    /// interval; `None` if the pod is not measured.
    fn first_sample(&mut self, at: i64, workload: &Workload, key: u64) -> Option<(i64, i64)> {
        if let Some(every) = self.run.usage_interval {
            self.plan(at - at.rem_euclid(every) + every, Action::Sample(key));
            return Some((every, at));
        }
        let sampled = CLUSTERS.get(workload.cluster).map_or(0, |cluster| cluster.sampled);
        if !chance(&mut self.rng, sampled) {
            return None;
        }
        let interval = pick(&mut self.rng, &[5, 10, 15]).copied().unwrap_or(10) * MINUTE;
        self.plan(at + interval, Action::Sample(key));
        Some((interval, at))
    }

    fn stop_pod(&mut self, at: i64, key: u64) {
        let Some(pod) = self.pods.remove(&key) else { return };
        self.close_sample(at, &pod);
        self.emit_stopped(at, &pod, "Completed");
        self.replica_ended(pod.service, key);
        let Some(node) = pod.node else { return };
        let empty = self.fleet.remove_pod(node, key, pod.workload.need);
        let pooled = self.fleet.node(node).is_some_and(|node| node.described.pool_id.is_some());
        if empty && !pooled {
            self.plan(at + EMPTY_NODE_KEPT_FOR, Action::ScaleDown(node));
        }
    }

    fn emit_stopped(&mut self, at: i64, pod: &LivePod, reason: &str) {
        let stopped = PodStopped {
            cluster_id: CLUSTERS.get(pod.workload.cluster).map_or("", |cluster| cluster.id).into(),
            namespace: pod.workload.namespace.clone(),
            pod_uid: pod.uid.clone(),
            reason: Some(reason.into()),
        };
        self.emit(at, Payload::PodStopped(stopped));
    }

    /// Emits the last interval of a pod. Some agents report a whole interval that ends after the pod.
    fn close_sample(&mut self, at: i64, pod: &LivePod) {
        if let Some((interval, from)) = pod.sampling
            && from < at
        {
            let end = if chance(&mut self.rng, 100_000) { from + interval } else { at.min(from + interval) };
            let usage = self.usage_of(pod, end);
            self.emit(from, Payload::PodUsage(usage));
        }
    }

    fn sample(&mut self, at: i64, key: u64) {
        let Some(mut pod) = self.pods.remove(&key) else { return };
        if let Some((interval, from)) = pod.sampling {
            let usage = self.usage_of(&pod, at);
            self.emit(from, Payload::PodUsage(usage));
            pod.sampling = Some((interval, at));
            self.plan(at + interval, Action::Sample(key));
        }
        self.pods.insert(key, pod);
    }

    /// Draws measured use. Most pods use less than they requested, some more.
    fn usage_of(&mut self, pod: &LivePod, interval_end: i64) -> PodUsage {
        let workload = &pod.workload;
        let mut part = |amount: u64, low: u64, high: u64| {
            let used = amount * self.rng.random_range(low..=high) / 1000;
            i64::try_from(used).unwrap_or(i64::MAX)
        };
        let high = if workload.class.lifetime == Lifetime::Diurnal { 1300 } else { 1100 };
        PodUsage {
            pod_uid: pod.uid.clone(),
            interval_end: Timestamp(interval_end),
            cpu_millis: part(workload.need.cpu_millis, 40, high),
            memory_bytes: part(workload.need.memory_mib << 20, 250, 1050),
            gpu_millis: part(workload.gpu_millis, 0, 1000),
            gpu_memory_bytes: None,
        }
    }

    /// Resizes a pod in place and changes its labels.
    fn amend(&mut self, at: i64, key: u64) {
        let Some(pod) = self.pods.get_mut(&key) else { return };
        let Some(mut described) = pod.described.take() else { return };
        let cpu_millis = pod.workload.need.cpu_millis * self.rng.random_range(2..=6_u64) / 4;
        put_millis(&mut described.requests, "cpu", cpu_millis);
        described.labels.insert("env".into(), "canary".into());
        self.emit(at, Payload::PodStarted(described));
    }

    /// Ends a spot node with its pods. Unfinished pods start again on another node.
    fn reclaim(&mut self, at: i64, key: u64) {
        let Some(node) = self.fleet.remove(key) else { return };
        self.end_pods_of(at, &node);
        self.emit(at, node.stopped());
    }

    /// Stops a node, which starts again after a few minutes with the same id.
    fn reboot(&mut self, at: i64, key: u64) {
        let Some(node) = self.fleet.remove(key) else { return };
        self.end_pods_of(at, &node);
        self.emit(at, node.stopped());
        let back = at + span(&mut self.rng, 2 * MINUTE, 9 * MINUTE);
        self.plan(back, Action::BringBack(Box::new(node)));
    }

    fn end_pods_of(&mut self, at: i64, node: &Node) {
        for &key in &node.pods {
            let Some(pod) = self.pods.remove(&key) else { continue };
            self.replica_ended(pod.service, key);
            if chance(&mut self.rng, 500_000) {
                self.close_sample(at, &pod);
            }
            // Some pods send a PodStopped, before or after their node's NodeStopped. For other pods, only the
            // NodeStopped is sent.
            if chance(&mut self.rng, 400_000) {
                self.emit_stopped(at, &pod, "NodeShutdown");
            } else if chance(&mut self.rng, 300_000) {
                self.emit_stopped(at + 2 * SECOND, &pod, "NodeShutdown");
            }
            let left = pod.until - at;
            if pod.service.is_none() && left > 0 {
                let (workload, waited) = (pod.workload, span(&mut self.rng, SECOND, 3 * MINUTE));
                let again = Action::Start { workload, lifetime: left, waited, service: None };
                self.plan(at + waited, again);
            }
        }
    }

    fn scale_down(&mut self, at: i64, key: u64) {
        if self.fleet.node(key).is_some_and(|node| node.pods.is_empty())
            && let Some(node) = self.fleet.remove(key)
        {
            self.emit(at, node.stopped());
        }
    }

    fn reprice(&mut self, at: i64, key: u64) {
        if let Some(described) = self.fleet.reprice(&mut self.rng, key) {
            self.emit(at, Payload::NodeStarted(Box::new(described)));
            let next = at + span(&mut self.rng, HOUR, 6 * HOUR);
            self.plan(next, Action::Reprice(key));
        }
    }
}
