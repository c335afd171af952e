//! Labels of pods under one quota (RULES.md, section 4, nos): which pods are over the quota.
//!
//! **Decides** the label of every pod that the quota governs.
//!
//! **Precedence of pods**: creation (whole seconds), priority, gpu-memory, GPUs, cpu, memory, then namespace,
//! name, uid. Requests add up in this order, and a pod is in-quota while every resource in `min` satisfies
//! used <= min. Equality is in-quota; there is no back-filling. So the in-quota pods are the longest prefix
//! whose sum stays within `min`, and one boundary is enough to find them. A pod that starts or ends moves the
//! boundary, usually by one.
//!
//! **Interval ends**: see `quota.rs`. **Rounding**: none; amounts are whole bytes and thousandths.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::QuotaSet;
use prorata_schemas::ids::PodUid;
use prorata_schemas::quantity::{AmountUnit, CPU, MEMORY, NVIDIA_GPU};
use prorata_schemas::rows::QuotaState;
use prorata_schemas::time::Timestamp;

use crate::error::EngineError;
use crate::model::slices::Label;
use crate::model::spec::PodSpec;
use crate::model::state::QuotaKey;
use crate::rules::quota_ledger::QuotaLevels;
use crate::trace::{ExactNumber, LabelStep, RankedPod};

/// The place of a pod in the order of its quota. The fields are compared in the order in which they are
/// declared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodRank {
    created_at_second: i64,
    priority: i32,
    gpu_memory: u128,
    gpus: u128,
    cpu: u128,
    memory: u128,
    namespace: Text,
    pod_name: Text,
    pub(crate) uid: PodUid,
}

impl PodRank {
    pub(crate) fn of(spec: &PodSpec) -> Self {
        let pod = &spec.description;
        Self {
            created_at_second: pod.created_at.seconds(),
            priority: pod.priority,
            gpu_memory: spec.gpu_memory,
            gpus: spec.quota_amount(NVIDIA_GPU),
            cpu: spec.quota_amount(CPU),
            memory: spec.quota_amount(MEMORY),
            namespace: pod.namespace.clone(),
            pod_name: pod.pod_name.clone(),
            uid: pod.pod_uid.clone(),
        }
    }
}

/// A quota that counts, with the pods that it governs.
#[derive(Debug)]
pub(crate) struct GoverningQuota {
    key: Arc<QuotaKey>,
    description: Arc<QuotaSet>,
    /// Resources of `min`, with their amounts. All other amounts are in this order.
    min: Arc<[(Text, u128)]>,
    pub(crate) pods: BTreeMap<PodRank, Vec<u128>>,
    /// The first over-quota pod.
    boundary: Option<PodRank>,
    /// The requests of the pods before the boundary.
    in_quota: Vec<u128>,
    /// The requests of all pods.
    used: Vec<u128>,
    over_pods: u64,
}

impl GoverningQuota {
    pub(crate) fn new(key: Arc<QuotaKey>, description: Arc<QuotaSet>) -> Self {
        let min: Arc<[(Text, u128)]> =
            description.min.iter().map(|(name, quantity)| (name.clone(), quantity.amount)).collect();
        let zeros = vec![0; min.len()];
        Self {
            key,
            description,
            min,
            pods: BTreeMap::new(),
            boundary: None,
            in_quota: zeros.clone(),
            used: zeros,
            over_pods: 0,
        }
    }

    fn within_min(&self) -> bool {
        self.in_quota.iter().zip(&*self.min).all(|(sum, (_, min))| sum <= min)
    }

    fn is_in(&self, rank: &PodRank) -> bool {
        self.boundary.as_ref().is_none_or(|boundary| rank < boundary)
    }

    pub(crate) fn insert(
        &mut self,
        rank: PodRank,
        spec: &PodSpec,
        changed: &mut BTreeSet<PodRank>,
    ) -> Result<(), EngineError> {
        let amounts: Vec<u128> = self.min.iter().map(|(name, _)| spec.quota_amount(name)).collect();
        for ((used, amount), (resource, _)) in self.used.iter_mut().zip(&amounts).zip(&*self.min) {
            let overflow =
                || EngineError::Quota { quota: self.key.1.to_string(), resource: resource.to_string() };
            *used = used.checked_add(*amount).ok_or_else(overflow)?;
        }
        changed.insert(rank.clone());
        let is_in = self.is_in(&rank);
        if is_in {
            add(&mut self.in_quota, &amounts);
        } else {
            self.over_pods += 1;
        }
        self.pods.insert(rank, amounts);
        if is_in {
            self.shrink(changed);
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, rank: &PodRank, changed: &mut BTreeSet<PodRank>) {
        let is_in = self.is_in(rank);
        let Some(amounts) = self.pods.remove(rank) else { return };
        changed.remove(rank);
        subtract(&mut self.used, &amounts);
        if is_in {
            subtract(&mut self.in_quota, &amounts);
        } else {
            self.over_pods -= 1;
            if self.boundary.as_ref() == Some(rank) {
                let next = self.pods.range(rank.clone()..).next();
                self.boundary = next.map(|(next, _)| next.clone());
            }
        }
        self.grow(changed);
    }

    /// Moves the boundary down until the prefix is within `min`.
    fn shrink(&mut self, changed: &mut BTreeSet<PodRank>) {
        while !self.within_min() {
            let last = match &self.boundary {
                Some(boundary) => self.pods.range(..boundary.clone()).next_back(),
                None => self.pods.last_key_value(),
            };
            let Some((rank, amounts)) = last else { return };
            let (rank, amounts) = (rank.clone(), amounts.clone());
            subtract(&mut self.in_quota, &amounts);
            self.over_pods += 1;
            changed.insert(rank.clone());
            self.boundary = Some(rank);
        }
    }

    /// Moves the boundary up while the next pod fits.
    fn grow(&mut self, changed: &mut BTreeSet<PodRank>) {
        while let Some(boundary) = self.boundary.clone() {
            let Some(amounts) = self.pods.get(&boundary).cloned() else { return };
            add(&mut self.in_quota, &amounts);
            if !self.within_min() {
                subtract(&mut self.in_quota, &amounts);
                return;
            }
            self.over_pods -= 1;
            changed.insert(boundary.clone());
            let above = (std::ops::Bound::Excluded(&boundary), std::ops::Bound::Unbounded);
            self.boundary = self.pods.range(above).next().map(|(next, _)| next.clone());
        }
    }

    pub(crate) fn label(&self, rank: &PodRank) -> Label {
        let state = if self.is_in(rank) { QuotaState::InQuota } else { QuotaState::OverQuota };
        Label { quota: self.key.clone(), state }
    }

    pub(crate) fn labels(&self, changed: &BTreeSet<PodRank>) -> BTreeMap<PodUid, Option<Label>> {
        changed.iter().map(|rank| (rank.uid.clone(), Some(self.label(rank)))).collect()
    }

    pub(crate) fn key(&self) -> &QuotaKey {
        &self.key
    }

    /// Returns the quota's pods in order, each with the running sum of requests.
    pub(crate) fn order(&self, at: Timestamp) -> LabelStep {
        let named = |amounts: &[u128]| {
            let pairs = self.min.iter().zip(amounts);
            pairs.map(|((name, _), amount)| (name.clone(), in_own_unit(name, *amount))).collect()
        };
        let mut sums = vec![0; self.min.len()];
        let pods = self.pods.iter().zip(1..).map(|((rank, amounts), position)| {
            add(&mut sums, amounts);
            RankedPod {
                position,
                pod_uid: rank.uid.clone(),
                namespace: rank.namespace.clone(),
                pod_name: rank.pod_name.clone(),
                created_at: Timestamp(rank.created_at_second * 1_000_000),
                requests: named(amounts),
                sum: named(&sums),
                state: self.label(rank).state.name(),
            }
        });
        let min = self.min.iter().map(|(name, amount)| (name.clone(), in_own_unit(name, *amount)));
        let (cluster_id, quota_id) = (*self.key).clone();
        LabelStep { at, cluster_id, quota_id, min: min.collect(), pods: pods.collect() }
    }

    pub(crate) fn levels(&self) -> QuotaLevels {
        QuotaLevels {
            description: self.description.clone(),
            min: self.min.clone(),
            used: self.used.clone(),
            in_quota: self.in_quota.clone(),
            over_pods: self.over_pods,
        }
    }
}

/// Converts an amount in bytes or thousandths to the resource's own unit.
fn in_own_unit(resource: &str, amount: u128) -> ExactNumber {
    ExactNumber::over(amount, u128::from(AmountUnit::of(resource).per_one()))
}

/// Adds amounts to sums of requests. Each sum is part of all requests under the quota, so it stays below 128
/// bits.
fn add(sums: &mut [u128], amounts: &[u128]) {
    for (sum, amount) in sums.iter_mut().zip(amounts) {
        *sum += amount;
    }
}

/// Subtracts a pod's amounts from sums that include them.
fn subtract(sums: &mut [u128], amounts: &[u128]) {
    for (sum, amount) in sums.iter_mut().zip(amounts) {
        *sum -= amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prorata_schemas::event::{Labels, PodStarted, Quantities, QuotaKind};
    use prorata_schemas::quantity::{GPU_MEMORY, Quantity};

    use crate::model::per_resource::PerResource;

    /// Creates a quota with this `min` of gpu-memory.
    fn quota(min: u128) -> GoverningQuota {
        let quantity = Quantity { text: "".into(), amount: min };
        let description = QuotaSet {
            cluster_id: "c".into(),
            quota_id: "q".into(),
            kind: QuotaKind::ElasticQuota,
            namespaces: vec!["n".into()],
            min: [(Text::from(GPU_MEMORY), quantity)].into(),
            max: None,
        };
        GoverningQuota::new(Arc::new(("c".into(), "q".into())), Arc::new(description))
    }

    fn pod(uid: &str, created_at: i64, gpu_memory: u128) -> PodSpec {
        let description = PodStarted {
            cluster_id: "c".into(),
            namespace: "n".into(),
            pod_name: "pod".into(),
            pod_uid: uid.into(),
            created_at: Timestamp(created_at),
            priority: 0,
            node_id: None,
            region: None,
            zone: None,
            pool_id: None,
            qos: "default".into(),
            gpu_model: None,
            requests: Quantities::new(),
            limits: Quantities::new(),
            workload_kind: None,
            workload_name: None,
            labels: Labels::new(),
            eviction_protected_until: None,
            gpus: None,
            gpu_sharing: None,
            volume_keys: Vec::new(),
        };
        PodSpec {
            description: Arc::new(description),
            requests: PerResource::default(),
            has_unknown_share: false,
            unit_gpus: Some(0),
            gpu_memory,
            node: None,
        }
    }

    fn insert(quota: &mut GoverningQuota, pod: &PodSpec) -> Result<BTreeSet<PodRank>, EngineError> {
        let mut changed = BTreeSet::new();
        quota.insert(PodRank::of(pod), pod, &mut changed)?;
        Ok(changed)
    }

    fn in_quota(quota: &GoverningQuota) -> Vec<&str> {
        quota.pods.keys().filter(|rank| quota.is_in(rank)).map(|rank| &*rank.uid).collect()
    }

    #[test]
    fn the_boundary_moves_with_pods_that_start_and_end_and_does_not_back_fill() {
        let mut quota = quota(30);
        let pods = [pod("a", 1_000_000, 20), pod("b", 2_000_000, 20), pod("c", 3_000_000, 5)];
        insert(&mut quota, &pods[2]).unwrap();
        insert(&mut quota, &pods[1]).unwrap();
        assert_eq!(in_quota(&quota), ["b", "c"]);
        // The oldest pod pushes the second over its quota. The third would fit, but it comes after the
        // second.
        let changed = insert(&mut quota, &pods[0]).unwrap();
        assert_eq!(in_quota(&quota), ["a"]);
        assert_eq!((changed.len(), quota.over_pods), (3, 2));
        let mut changed = BTreeSet::new();
        quota.remove(&PodRank::of(&pods[0]), &mut changed);
        assert_eq!(in_quota(&quota), ["b", "c"]);
        assert_eq!((changed.len(), quota.over_pods), (2, 0));
        assert_eq!((quota.used, quota.in_quota), (vec![25], vec![25]));
    }

    #[test]
    fn creation_counts_in_whole_seconds_and_equality_is_in_quota() {
        let mut quota = quota(30);
        // Within one second, the smaller gpu-memory comes first, whatever the microsecond.
        insert(&mut quota, &pod("late-and-small", 1_999_999, 10)).unwrap();
        insert(&mut quota, &pod("early-and-large", 1_000_000, 20)).unwrap();
        assert_eq!(in_quota(&quota), ["late-and-small", "early-and-large"]);
        insert(&mut quota, &pod("next-second", 2_000_000, 1)).unwrap();
        assert_eq!(in_quota(&quota), ["late-and-small", "early-and-large"]);
    }

    #[test]
    fn requests_past_128_bits_are_an_error() {
        let mut quota = quota(30);
        insert(&mut quota, &pod("a", 0, u128::MAX)).unwrap();
        let error = insert(&mut quota, &pod("b", 0, 1)).unwrap_err();
        assert!(matches!(error, EngineError::Quota { .. }), "{error}");
    }
}
