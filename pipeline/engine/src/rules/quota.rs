//! Elastic quotas (nos): which quota governs a pod, which pods are over it, what quotas lend and borrow.
//!
//! A composite quota wins over elastic ones; among equals the one set first (its first `QuotaSet` since it last did not
//! exist), then the id. An elastic quota all of whose namespaces are governed by others, and a quota without
//! namespaces, do not count: they are as if absent. Running pods are sorted by creation (whole seconds), priority,
//! gpu-memory, GPUs, cpu, memory, then namespace, name, uid; requests add up, and a pod is in-quota while every
//! resource in `min` satisfies used <= min. Equality is in-quota; there is no back-filling. So the in-quota pods are
//! the longest prefix whose sum stays within `min`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{QuotaKind, QuotaSet};
use prorata_schemas::ids::{ClusterId, PodUid, QuotaId};
use prorata_schemas::quantity::{CPU, MEMORY, NVIDIA_GPU};
use prorata_schemas::rows::QuotaState;
use prorata_schemas::time::Timestamp;

use crate::rules::quota_ledger::{ClusterLedger, Reading};
use crate::timeline::size::PodShape;
use crate::timeline::slices::Label;
use crate::timeline::state::{QuotaKey, QuotaState as StoredQuota};

/// Sort key of a pod under its quota.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    created_at_second: i64,
    priority: i32,
    gpu_memory: u128,
    gpus: u128,
    cpu: u128,
    memory: u128,
    namespace: Text,
    pod_name: Text,
    uid: PodUid,
}

impl Place {
    pub(crate) fn of(shape: &PodShape) -> Self {
        let pod = &shape.description;
        Self {
            created_at_second: pod.created_at.seconds(),
            priority: pod.priority,
            gpu_memory: shape.gpu_memory,
            gpus: shape.quota_amount(NVIDIA_GPU),
            cpu: shape.quota_amount(CPU),
            memory: shape.quota_amount(MEMORY),
            namespace: pod.namespace.clone(),
            pod_name: pod.pod_name.clone(),
            uid: pod.pod_uid.clone(),
        }
    }
}

/// A quota that counts, with the pods that it governs.
#[derive(Debug)]
struct Governing {
    key: Arc<QuotaKey>,
    description: Arc<QuotaSet>,
    /// Resources of `min`, with their amounts.
    min: Vec<(Text, u128)>,
    pods: BTreeMap<Place, Vec<u128>>,
    /// The first over-quota pod.
    boundary: Option<Place>,
    in_sum: Vec<u128>,
    used: Vec<u128>,
    over_pods: u64,
}

#[derive(Debug, Default)]
struct Cluster {
    by_namespace: BTreeMap<Text, QuotaId>,
    governing: BTreeMap<QuotaId, Governing>,
    ledger: ClusterLedger,
}

/// All quotas, all running pods by namespace, and the hour's account of them.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    stored: BTreeMap<QuotaKey, StoredQuota>,
    pods: BTreeMap<(ClusterId, Text), BTreeMap<Place, Arc<PodShape>>>,
    clusters: BTreeMap<ClusterId, Cluster>,
    stale: BTreeSet<ClusterId>,
    moved: BTreeSet<ClusterId>,
    labels: Vec<(PodUid, Option<Label>)>,
}

impl Governing {
    fn new(key: Arc<QuotaKey>, description: Arc<QuotaSet>) -> Self {
        let min: Vec<(Text, u128)> =
            description.min.iter().map(|(name, quantity)| (name.clone(), quantity.amount)).collect();
        let zeros = vec![0; min.len()];
        Self {
            key,
            description,
            min,
            pods: BTreeMap::new(),
            boundary: None,
            in_sum: zeros.clone(),
            used: zeros,
            over_pods: 0,
        }
    }

    fn within_min(&self) -> bool {
        self.in_sum.iter().zip(&self.min).all(|(sum, (_, min))| sum <= min)
    }

    fn is_in(&self, place: &Place) -> bool {
        self.boundary.as_ref().is_none_or(|boundary| place < boundary)
    }

    fn insert(&mut self, place: Place, shape: &PodShape, changed: &mut BTreeSet<Place>) {
        let amounts: Vec<u128> = self.min.iter().map(|(name, _)| shape.quota_amount(name)).collect();
        add(&mut self.used, &amounts);
        changed.insert(place.clone());
        let is_in = self.is_in(&place);
        if is_in {
            add(&mut self.in_sum, &amounts);
        } else {
            self.over_pods += 1;
        }
        self.pods.insert(place, amounts);
        if is_in {
            self.shrink(changed);
        }
    }

    fn remove(&mut self, place: &Place, changed: &mut BTreeSet<Place>) {
        let is_in = self.is_in(place);
        let Some(amounts) = self.pods.remove(place) else { return };
        changed.remove(place);
        subtract(&mut self.used, &amounts);
        if is_in {
            subtract(&mut self.in_sum, &amounts);
        } else {
            self.over_pods -= 1;
            if self.boundary.as_ref() == Some(place) {
                let next = self.pods.range(place.clone()..).next();
                self.boundary = next.map(|(next, _)| next.clone());
            }
        }
        self.grow(changed);
    }

    /// Moves the boundary down until the prefix is within `min`.
    fn shrink(&mut self, changed: &mut BTreeSet<Place>) {
        while !self.within_min() {
            let last = match &self.boundary {
                Some(boundary) => self.pods.range(..boundary.clone()).next_back(),
                None => self.pods.last_key_value(),
            };
            let Some((place, amounts)) = last else { return };
            let (place, amounts) = (place.clone(), amounts.clone());
            subtract(&mut self.in_sum, &amounts);
            self.over_pods += 1;
            changed.insert(place.clone());
            self.boundary = Some(place);
        }
    }

    /// Moves the boundary up while the next pod fits.
    fn grow(&mut self, changed: &mut BTreeSet<Place>) {
        while let Some(boundary) = self.boundary.clone() {
            let Some(amounts) = self.pods.get(&boundary).cloned() else { return };
            add(&mut self.in_sum, &amounts);
            if !self.within_min() {
                subtract(&mut self.in_sum, &amounts);
                return;
            }
            self.over_pods -= 1;
            changed.insert(boundary.clone());
            let above = (std::ops::Bound::Excluded(&boundary), std::ops::Bound::Unbounded);
            self.boundary = self.pods.range(above).next().map(|(next, _)| next.clone());
        }
    }

    fn label(&self, place: &Place) -> Label {
        let state = if self.is_in(place) { QuotaState::InQuota } else { QuotaState::OverQuota };
        Label { quota: self.key.clone(), state }
    }

    fn reading(&self) -> Reading {
        Reading {
            key: self.key.clone(),
            description: self.description.clone(),
            min: self.min.clone(),
            used: self.used.clone(),
            in_quota: self.in_sum.clone(),
            over_pods: self.over_pods,
        }
    }
}

impl Quotas {
    /// Takes up the quotas of a state. Pods are added after by [`Self::pod_started`].
    pub(crate) fn restore(states: Vec<(QuotaKey, StoredQuota)>) -> Self {
        let stale = states.iter().map(|((cluster, _), _)| cluster.clone()).collect();
        Self { stored: states.into_iter().collect(), stale, ..Self::default() }
    }

    /// What the next hour needs.
    pub(crate) fn into_states(self) -> Vec<(QuotaKey, StoredQuota)> {
        self.stored.into_iter().collect()
    }

    /// A `QuotaSet`.
    pub(crate) fn set(&mut self, description: Arc<QuotaSet>, now: Timestamp) {
        let key = (description.cluster_id.clone(), description.quota_id.clone());
        self.stale.insert(key.0.clone());
        match self.stored.get_mut(&key) {
            Some(stored) => stored.description = description,
            None => {
                self.stored.insert(key, StoredQuota { description, first_set: now });
            }
        }
    }

    /// A `QuotaDeleted`.
    pub(crate) fn delete(&mut self, key: &QuotaKey) {
        if self.stored.remove(key).is_some() {
            self.stale.insert(key.0.clone());
        }
    }

    /// A pod starts.
    pub(crate) fn pod_started(&mut self, shape: &Arc<PodShape>) {
        let namespace = namespace_of(shape);
        let place = Place::of(shape);
        if let Some(governing) = self.governing(&namespace) {
            let mut changed = BTreeSet::new();
            governing.insert(place.clone(), shape, &mut changed);
            let labels = labels(governing, &changed);
            self.labels.extend(labels);
            self.moved.insert(namespace.0.clone());
        }
        self.pods.entry(namespace).or_default().insert(place, shape.clone());
    }

    /// A pod ends, or is about to be described anew.
    pub(crate) fn pod_ended(&mut self, shape: &Arc<PodShape>) {
        let namespace = namespace_of(shape);
        let place = Place::of(shape);
        if let Some(governing) = self.governing(&namespace) {
            let mut changed = BTreeSet::new();
            governing.remove(&place, &mut changed);
            let labels = labels(governing, &changed);
            self.labels.extend(labels);
            self.moved.insert(namespace.0.clone());
        }
        // A label decided earlier in this instant must not outlive the run that it was for.
        self.labels.retain(|(uid, _)| *uid != place.uid);
        if let Some(pods) = self.pods.get_mut(&namespace) {
            pods.remove(&place);
            if pods.is_empty() {
                self.pods.remove(&namespace);
            }
        }
    }

    /// Ends an instant: decides who governs where quotas have changed, and brings the account up to date. Returns the
    /// labels that have changed, the last of a pod standing.
    pub(crate) fn settle(&mut self, now: Timestamp) -> Vec<(PodUid, Option<Label>)> {
        for cluster in std::mem::take(&mut self.stale) {
            self.rebuild(&cluster);
            self.moved.insert(cluster);
        }
        for cluster in std::mem::take(&mut self.moved) {
            if let Some(cluster) = self.clusters.get_mut(&cluster) {
                cluster.ledger.read(now, cluster.governing.values().map(Governing::reading).collect());
            }
        }
        std::mem::take(&mut self.labels)
    }

    /// Ends the hour: the account of every cluster that had quotas.
    pub(crate) fn close(&mut self, now: Timestamp) -> BTreeMap<ClusterId, ClusterLedger> {
        for cluster in self.clusters.values_mut() {
            cluster.ledger.read(now, Vec::new());
        }
        let clusters = std::mem::take(&mut self.clusters);
        clusters.into_iter().map(|(id, cluster)| (id, cluster.ledger)).collect()
    }

    fn governing(&mut self, namespace: &(ClusterId, Text)) -> Option<&mut Governing> {
        if self.stale.contains(&namespace.0) {
            return None;
        }
        let cluster = self.clusters.get_mut(&namespace.0)?;
        let quota = cluster.by_namespace.get(&namespace.1)?;
        cluster.governing.get_mut(quota)
    }

    /// Decides anew which quotas of a cluster govern which namespaces, and labels all their pods.
    fn rebuild(&mut self, cluster_id: &ClusterId) {
        let from = (cluster_id.clone(), QuotaId::from(""));
        let stored = self.stored.range(from..).take_while(|((cluster, _), _)| cluster == cluster_id);
        let mut ranked: Vec<(&QuotaKey, &StoredQuota)> = stored.collect();
        ranked.sort_by_key(|((_, id), quota)| {
            (quota.description.kind != QuotaKind::CompositeElasticQuota, quota.first_set, id.clone())
        });
        let mut by_namespace: BTreeMap<Text, QuotaId> = BTreeMap::new();
        let mut governing = BTreeMap::new();
        for ((_, id), quota) in ranked {
            for namespace in &quota.description.namespaces {
                by_namespace.entry(namespace.clone()).or_insert_with(|| id.clone());
            }
            let governs = by_namespace.values().any(|governor| governor == id);
            let composite = quota.description.kind == QuotaKind::CompositeElasticQuota;
            if governs || (composite && !quota.description.namespaces.is_empty()) {
                let key = Arc::new((cluster_id.clone(), id.clone()));
                governing.insert(id.clone(), Governing::new(key, quota.description.clone()));
            }
        }
        let cluster = self.clusters.entry(cluster_id.clone()).or_default();
        cluster.by_namespace = by_namespace;
        cluster.governing = governing;
        let from = (cluster_id.clone(), Text::from(""));
        for ((_, namespace), pods) in self.pods.range(from..).take_while(|((id, _), _)| id == cluster_id) {
            let quota = cluster.by_namespace.get(namespace).and_then(|id| cluster.governing.get_mut(id));
            match quota {
                Some(quota) => {
                    for (place, shape) in pods {
                        quota.insert(place.clone(), shape, &mut BTreeSet::new());
                    }
                }
                None => self.labels.extend(pods.keys().map(|place| (place.uid.clone(), None))),
            }
        }
        for quota in cluster.governing.values() {
            let all = quota.pods.keys();
            self.labels.extend(all.map(|place| (place.uid.clone(), Some(quota.label(place)))));
        }
    }
}

fn namespace_of(shape: &PodShape) -> (ClusterId, Text) {
    (shape.description.cluster_id.clone(), shape.description.namespace.clone())
}

fn labels(quota: &Governing, changed: &BTreeSet<Place>) -> Vec<(PodUid, Option<Label>)> {
    changed.iter().map(|place| (place.uid.clone(), Some(quota.label(place)))).collect()
}

fn add(sums: &mut [u128], amounts: &[u128]) {
    for (sum, amount) in sums.iter_mut().zip(amounts) {
        *sum += amount;
    }
}

fn subtract(sums: &mut [u128], amounts: &[u128]) {
    for (sum, amount) in sums.iter_mut().zip(amounts) {
        *sum -= amount;
    }
}
