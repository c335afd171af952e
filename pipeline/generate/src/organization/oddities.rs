//! Oddities that occur in every real cluster, once an hour and more often under load. Pods run on unannounced
//! nodes, in unknown pools or without a rate. There are stops without starts, two versions of one event, and
//! a node that reboots. Cron jobs also start on the hour.

use std::sync::Arc;

use prorata_schemas::event::{NodeStopped, Payload, PodStarted, PodStopped};
use rand::Rng;

use super::classes::{CLASSES, Placement, PodClass};
use super::fleet::Amounts;
use super::workload::Workload;
use super::{Action, Organization};
use crate::clusters::{DEV_GENERAL, GCP_POOL, PROD_GENERAL, PROD_POOL};
use crate::quantities::{put_mib, put_millis};
use crate::random::{pick, span, uid};
use crate::{HOUR, MINUTE, SECOND};

/// Number of kinds of oddities.
const KINDS: i64 = 8;
/// Number of running pods per additional oddity each hour.
const PODS_PER_ODDITY: u64 = 500;

impl Organization {
    /// Plans the cron jobs and oddities of one hour.
    pub(super) fn hourly(&mut self, hour: i64) {
        self.cron_jobs(hour);
        let count = 1 + self.run.pods / PODS_PER_ODDITY;
        let first = hour.div_euclid(HOUR);
        for number in 0..i64::try_from(count).unwrap_or(1) {
            let at = hour + span(&mut self.rng, MINUTE, HOUR - MINUTE);
            self.oddity(at, (first + number).rem_euclid(KINDS));
        }
    }

    /// Starts cron jobs in the first instant of the hour; some end in the hour's last instant.
    fn cron_jobs(&mut self, hour: i64) {
        let Some(class) = CLASSES.iter().find(|class| class.name == "etl") else { return };
        let minutes = pick(&mut self.rng, &[5, 15, 30, 60]).copied().unwrap_or(5);
        let mut workload = Workload::draw(&mut self.rng, class);
        workload.name = "nightly-rollup".into();
        let start = Action::Start {
            workload: Arc::new(workload),
            lifetime: minutes * MINUTE,
            waited: 0,
            service: None,
        };
        self.plan(hour, start);
    }

    fn oddity(&mut self, at: i64, kind: i64) {
        match kind {
            0 => self.on_unknown_node(at, false),
            1 => self.on_unknown_node(at, true),
            2 => self.in_unknown_pool(at),
            3 => self.without_qos_price(at),
            4 => self.without_rate(at),
            5 => self.stops_without_starts(at),
            6 => self.two_versions(at),
            _ => self.reboot_one(at),
        }
    }

    /// Returns a pod of the first matching class; `None` if no class matches. The pod is not tracked: only
    /// its end is planned.
    fn untracked_pod(&mut self, at: i64, class: impl Fn(&PodClass) -> bool) -> Option<PodStarted> {
        let class = CLASSES.iter().find(|found| class(found))?;
        let workload = Workload::draw(&mut self.rng, class);
        Some(workload.pod(&mut self.rng, at, at - 5 * SECOND))
    }

    /// Runs an untracked pod for 20 to 100 minutes.
    fn run_untracked(&mut self, at: i64, pod: PodStarted) {
        let stopped = PodStopped {
            cluster_id: pod.cluster_id.clone(),
            namespace: pod.namespace.clone(),
            pod_uid: pod.pod_uid.clone(),
            reason: None,
        };
        let end = at + span(&mut self.rng, 20 * MINUTE, 100 * MINUTE);
        self.plan(at, Action::Emit(Box::new(Payload::PodStarted(Box::new(pod)))));
        self.plan(end, Action::Emit(Box::new(Payload::PodStopped(stopped))));
    }

    /// Runs a pod that names an unannounced node. If `announced_later`, the node's NodeStarted follows a few
    /// minutes later.
    fn on_unknown_node(&mut self, at: i64, announced_later: bool) {
        let Some(mut pod) = self.untracked_pod(at, |class| class.name == "web") else { return };
        pod.cluster_id = "prod-aws".into();
        pod.node_id = Some(format!("i-0{:016x}", self.rng.random::<u64>()).into());
        if announced_later
            && let Some(key) = self.fleet.start(&mut self.rng, PROD_GENERAL, Amounts::default())
        {
            if let Some(node) = self.fleet.node(key) {
                pod.node_id = Some(node.described.node_id.clone());
                let announced = Payload::NodeStarted(Box::new(node.described.clone()));
                let when = at + span(&mut self.rng, 3 * MINUTE, 15 * MINUTE);
                self.plan(when, Action::Emit(Box::new(announced)));
            }
            self.plan(at + 2 * HOUR, Action::ScaleDown(key));
        }
        self.run_untracked(at, pod);
    }

    fn in_unknown_pool(&mut self, at: i64) {
        let Some(mut pod) = self.untracked_pod(at, |class| class.placement == Placement::PoolOnly) else {
            return;
        };
        pod.pool_id = Some("pool-retired".into());
        self.run_untracked(at, pod);
    }

    /// Runs pods whose quality of service has no price in their pool: one without a node, two on nodes.
    fn without_qos_price(&mut self, at: i64) {
        for group in [None, Some(PROD_POOL), Some(GCP_POOL)] {
            let Some(mut pod) = self.untracked_pod(at, |class| class.placement == Placement::PoolOnly) else {
                return;
            };
            pod.qos = "platinum".into();
            if let Some(group) = group {
                let key = self.fleet.of_group(group).first().copied();
                let Some(node) = key.and_then(|key| self.fleet.node(key)) else { continue };
                pod.node_id = Some(node.described.node_id.clone());
                pod.cluster_id = node.described.cluster_id.clone();
                pod.pool_id = node.described.pool_id.clone();
            }
            self.run_untracked(at, pod);
        }
    }

    /// Runs a serverless pod in a region without a rate card.
    fn without_rate(&mut self, at: i64) {
        let Some(mut pod) = self.untracked_pod(at, |class| class.placement == Placement::Serverless) else {
            return;
        };
        pod.region = Some("cn-heyuan".into());
        pod.zone = None;
        self.run_untracked(at, pod);
    }

    fn stops_without_starts(&mut self, at: i64) {
        let pod = PodStopped {
            cluster_id: "prod-aws".into(),
            namespace: "shop".into(),
            pod_uid: uid(&mut self.rng),
            reason: Some("Evicted".into()),
        };
        self.plan(at, Action::Emit(Box::new(Payload::PodStopped(pod))));
        let node = NodeStopped {
            cluster_id: "prod-aws".into(),
            node_id: format!("i-0{:016x}", self.rng.random::<u64>()).into(),
        };
        self.plan(at, Action::Emit(Box::new(Payload::NodeStopped(node))));
    }

    /// Sends two PodStarted events of one pod at one instant, with different requests. Their natural key is
    /// the same.
    fn two_versions(&mut self, at: i64) {
        let Some(mut pod) = self.untracked_pod(at, |class| class.name == "web") else { return };
        pod.cluster_id = "dev-aws".into();
        let key = self.fleet.of_group(DEV_GENERAL).first().copied();
        pod.node_id = key.and_then(|key| self.fleet.node(key)).map(|node| node.described.node_id.clone());
        pod.region = pod.node_id.is_none().then(|| "us-east-1".into());
        let mut other = pod.clone();
        put_millis(&mut other.requests, "cpu", 1500);
        put_mib(&mut other.requests, "memory", 3072);
        self.plan(at, Action::Emit(Box::new(Payload::PodStarted(Box::new(other)))));
        self.run_untracked(at, pod);
    }

    /// Stops the first running node of `prod-aws`, which starts again within minutes.
    fn reboot_one(&mut self, at: i64) {
        if let Some(key) = self.fleet.of_group(PROD_GENERAL).first().copied() {
            self.plan(at, Action::Reboot(key));
        }
    }
}
