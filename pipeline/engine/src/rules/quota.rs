//! Elastic quotas (RULES.md, section 4, nos): which quota governs a pod.
//!
//! **Decides** which quotas count, which of them governs each namespace, and so under which quota every
//! running pod gets its label at every instant. Which pods are over their quota is in `quota_labels.rs`, what
//! quotas lend and borrow in `quota_ledger.rs`.
//!
//! **Precedence** over a namespace: a composite quota wins over elastic ones; among equals the one set first
//! (its first `QuotaSet` since it last did not exist), then the id. An elastic quota all of whose namespaces
//! are governed by others, and a quota without namespaces, do not count: they are as if absent.
//!
//! **Interval ends**: labels are those of what runs after all steps of an instant, and hold from that instant
//! on.
//!
//! **Rounding**: none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{QuotaKind, QuotaSet};
use prorata_schemas::ids::{ClusterId, PodUid, QuotaId};
use prorata_schemas::time::Timestamp;

use crate::error::EngineError;
use crate::rules::quota_labels::{GoverningQuota, PodRank};
use crate::rules::quota_ledger::ClusterLedger;
use crate::timeline::slices::Label;
use crate::timeline::spec::PodSpec;
use crate::timeline::state::{QuotaKey, SavedQuota};
use crate::trace::{LabelStep, Recorder};

/// The quotas of one cluster that count.
#[derive(Debug, Default)]
struct ClusterQuotas {
    by_namespace: BTreeMap<Text, QuotaId>,
    governing: BTreeMap<QuotaId, GoverningQuota>,
    ledger: ClusterLedger,
}

/// Cluster and namespace.
type Namespace = (ClusterId, Text);

/// All quotas, all running pods by namespace, and the hour's account of them.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    saved: BTreeMap<QuotaKey, SavedQuota>,
    pods: BTreeMap<Namespace, BTreeMap<PodRank, Arc<PodSpec>>>,
    clusters: BTreeMap<ClusterId, ClusterQuotas>,
    /// Clusters whose quotas have changed in this instant: who governs what is recomputed at its end.
    stale: BTreeSet<ClusterId>,
    /// Clusters whose use has changed in this instant.
    moved: BTreeSet<ClusterId>,
    /// Labels decided in this instant.
    labels: BTreeMap<PodUid, Option<Label>>,
    pub(crate) trace: Recorder<LabelStep>,
}

impl Quotas {
    /// Starts from the quotas of a state. Pods are added after by [`Self::restore_pods`].
    pub(crate) fn restore(states: Vec<(QuotaKey, SavedQuota)>) -> Self {
        let stale = states.iter().map(|((cluster, _), _)| cluster.clone()).collect();
        Self { saved: states.into_iter().collect(), stale, ..Self::default() }
    }

    /// The pods that were running at the hour's start. Sorting all is faster than finding each one's place.
    pub(crate) fn restore_pods<'a>(&mut self, specs: impl Iterator<Item = &'a Arc<PodSpec>>) {
        let mut pods: BTreeMap<Namespace, Vec<(PodRank, Arc<PodSpec>)>> = BTreeMap::new();
        for spec in specs {
            pods.entry(namespace_of(spec)).or_default().push((PodRank::of(spec), spec.clone()));
        }
        self.pods = pods.into_iter().map(|(name, pods)| (name, pods.into_iter().collect())).collect();
    }

    /// A `QuotaSet`.
    pub(crate) fn set(&mut self, description: Arc<QuotaSet>, now: Timestamp) {
        let key = (description.cluster_id.clone(), description.quota_id.clone());
        self.stale.insert(key.0.clone());
        match self.saved.get_mut(&key) {
            Some(stored) => stored.description = description,
            None => {
                self.saved.insert(key, SavedQuota { description, first_set: now });
            }
        }
    }

    /// A `QuotaDeleted`.
    pub(crate) fn delete(&mut self, key: &QuotaKey) {
        if self.saved.remove(key).is_some() {
            self.stale.insert(key.0.clone());
        }
    }

    /// A pod starts.
    ///
    /// # Errors
    /// When what the pods of its quota request passes 128 bits.
    pub(crate) fn pod_started(&mut self, spec: &Arc<PodSpec>) -> Result<(), EngineError> {
        let namespace = namespace_of(spec);
        let rank = PodRank::of(spec);
        if let Some(quota) = self.governing(&namespace) {
            let mut changed = BTreeSet::new();
            quota.insert(rank.clone(), spec, &mut changed)?;
            let labels = quota.labels(&changed);
            self.labels.extend(labels);
            self.moved.insert(namespace.0.clone());
        }
        self.pods.entry(namespace).or_default().insert(rank, spec.clone());
        Ok(())
    }

    /// A pod ends, or is about to be described again.
    pub(crate) fn pod_ended(&mut self, spec: &Arc<PodSpec>) {
        let namespace = namespace_of(spec);
        let rank = PodRank::of(spec);
        if let Some(quota) = self.governing(&namespace) {
            let mut changed = BTreeSet::new();
            quota.remove(&rank, &mut changed);
            let labels = quota.labels(&changed);
            self.labels.extend(labels);
            self.moved.insert(namespace.0.clone());
        }
        // A label decided earlier in this instant must not outlive the run that it was for.
        self.labels.remove(&rank.uid);
        if let Some(pods) = self.pods.get_mut(&namespace) {
            pods.remove(&rank);
            if pods.is_empty() {
                self.pods.remove(&namespace);
            }
        }
    }

    /// Ends an instant: decides who governs where quotas have changed, and brings the ledgers up to date.
    /// Returns the labels that have been decided.
    ///
    /// # Errors
    /// When what the pods of one quota request passes 128 bits.
    pub(crate) fn end_instant(
        &mut self,
        now: Timestamp,
    ) -> Result<BTreeMap<PodUid, Option<Label>>, EngineError> {
        for cluster in std::mem::take(&mut self.stale) {
            self.rebuild(&cluster)?;
            self.moved.insert(cluster);
        }
        for cluster in std::mem::take(&mut self.moved) {
            if let Some(cluster) = self.clusters.get_mut(&cluster) {
                cluster.governing.values().for_each(|quota| record(&mut self.trace, quota, now));
                let levels = cluster.governing.values().map(GoverningQuota::levels).collect();
                cluster.ledger.record(now, levels);
            }
        }
        Ok(std::mem::take(&mut self.labels))
    }

    /// Ends the hour: what the next one needs, and the ledger of every cluster that had quotas.
    pub(crate) fn finish(
        mut self,
        end: Timestamp,
    ) -> (Vec<(QuotaKey, SavedQuota)>, BTreeMap<ClusterId, ClusterLedger>) {
        for cluster in self.clusters.values_mut() {
            cluster.ledger.record(end, Vec::new());
        }
        let ledgers = self.clusters.into_iter().map(|(id, cluster)| (id, cluster.ledger));
        (self.saved.into_iter().collect(), ledgers.collect())
    }

    fn governing(&mut self, namespace: &Namespace) -> Option<&mut GoverningQuota> {
        if self.stale.contains(&namespace.0) {
            return None;
        }
        let cluster = self.clusters.get_mut(&namespace.0)?;
        let quota = cluster.by_namespace.get(&namespace.1)?;
        cluster.governing.get_mut(quota)
    }

    /// Recomputes which quotas of a cluster govern which namespaces, and labels all their pods.
    fn rebuild(&mut self, cluster_id: &ClusterId) -> Result<(), EngineError> {
        let (by_namespace, governing) = self.decide_governing(cluster_id);
        let cluster = self.clusters.entry(cluster_id.clone()).or_default();
        cluster.by_namespace = by_namespace;
        cluster.governing = governing;
        let from = (cluster_id.clone(), Text::from(""));
        for ((_, namespace), pods) in self.pods.range(from..).take_while(|((id, _), _)| id == cluster_id) {
            let quota = cluster.by_namespace.get(namespace).and_then(|id| cluster.governing.get_mut(id));
            match quota {
                Some(quota) => {
                    for (rank, spec) in pods {
                        quota.insert(rank.clone(), spec, &mut BTreeSet::new())?;
                    }
                }
                None => self.labels.extend(pods.keys().map(|rank| (rank.uid.clone(), None))),
            }
        }
        for quota in cluster.governing.values() {
            let all = quota.pods.keys();
            self.labels.extend(all.map(|rank| (rank.uid.clone(), Some(quota.label(rank)))));
        }
        Ok(())
    }

    /// The governing quota of each namespace of a cluster, and those quotas, still without pods.
    fn decide_governing(
        &self,
        cluster_id: &ClusterId,
    ) -> (BTreeMap<Text, QuotaId>, BTreeMap<QuotaId, GoverningQuota>) {
        let from = (cluster_id.clone(), QuotaId::from(""));
        let quotas = self.saved.range(from..).take_while(|((cluster, _), _)| cluster == cluster_id);
        let mut ranked: Vec<(&QuotaKey, &SavedQuota)> = quotas.collect();
        ranked.sort_by_key(|((_, id), quota)| {
            (quota.description.kind != QuotaKind::CompositeElasticQuota, quota.first_set, id.clone())
        });
        let mut by_namespace: BTreeMap<Text, QuotaId> = BTreeMap::new();
        let mut governing = BTreeMap::new();
        for (key, quota) in ranked {
            let (_, id) = key;
            for namespace in &quota.description.namespaces {
                by_namespace.entry(namespace.clone()).or_insert_with(|| id.clone());
            }
            let governs = by_namespace.values().any(|governor| governor == id);
            // A composite quota counts in what is lent and borrowed even if others govern all its namespaces.
            let composite = quota.description.kind == QuotaKind::CompositeElasticQuota;
            if governs || (composite && !quota.description.namespaces.is_empty()) {
                let quota = GoverningQuota::new(Arc::new(key.clone()), quota.description.clone());
                governing.insert(id.clone(), quota);
            }
        }
        (by_namespace, governing)
    }
}

/// Records the order of a quota in focus, if that changes the label of a pod in focus.
fn record(trace: &mut Recorder<LabelStep>, quota: &GoverningQuota, now: Timestamp) {
    let Some(focus) = trace.focus().filter(|focus| focus.quotas.contains(quota.key())) else { return };
    let labels = |step: &LabelStep| -> Vec<(PodUid, &'static str)> {
        let pods = step.pods.iter().filter(|pod| focus.pods.contains(&pod.pod_uid));
        pods.map(|pod| (pod.pod_uid.clone(), pod.state)).collect()
    };
    let step = quota.order(now);
    let before = trace
        .steps()
        .iter()
        .rev()
        .find(|before| (&before.cluster_id, &before.quota_id) == (&step.cluster_id, &step.quota_id));
    if before.map(labels).unwrap_or_default() != labels(&step) {
        trace.push(step);
    }
}

fn namespace_of(spec: &PodSpec) -> Namespace {
    (spec.description.cluster_id.clone(), spec.description.namespace.clone())
}
