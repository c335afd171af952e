//! Elastic quotas (RULES.md, section 4, nos): which quota governs a pod.
//!
//! **Decides** which quotas count and which of them governs each namespace, and so under which quota every
//! running pod gets its label at every instant. `quota_labels.rs` decides which pods are over their quota,
//! and `quota_ledger.rs` computes what quotas lend and borrow.
//!
//! **Precedence** over a namespace: a composite quota takes precedence over elastic quotas. Among quotas of
//! one kind, the quota that was set first governs, and ties are ordered by id. A quota is first set by its
//! first `QuotaSet` since it last did not exist. An elastic quota does not count if others govern all its
//! namespaces. A quota without namespaces does not count either. All other rules work as if such quotas did
//! not exist.
//!
//! **Interval ends**: labels follow what runs after all steps of an instant, and hold from that instant on.
//!
//! **Rounding**: none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{QuotaKind, QuotaSet};
use prorata_schemas::ids::{ClusterId, PodUid, QuotaId};
use prorata_schemas::time::Timestamp;

use crate::error::EngineError;
use crate::model::slices::Label;
use crate::model::spec::PodSpec;
use crate::model::state::{QuotaKey, SavedQuota};
use crate::rules::quota_labels::{GoverningQuota, PodRank};
use crate::rules::quota_ledger::ClusterLedger;
use crate::trace::{LabelStep, Recorder};

/// The quotas of one cluster.
#[derive(Debug, Default)]
struct ClusterQuotas {
    /// The quotas that name each namespace.
    claims: BTreeMap<Text, BTreeSet<NamespaceClaim>>,
    by_namespace: BTreeMap<Text, QuotaId>,
    /// The quotas that count.
    governing: BTreeMap<QuotaId, GoverningQuota>,
    ledger: ClusterLedger,
}

/// The place of a quota among the quotas that name a namespace. It holds whether the quota is elastic, when
/// the quota was first set, and the quota's id.
type NamespaceClaim = (bool, Timestamp, QuotaId);

/// The changes of a cluster's quotas in an instant: the changed quotas, and the namespaces that they name now
/// or named before.
#[derive(Debug, Default)]
struct Changes {
    quotas: BTreeSet<QuotaId>,
    namespaces: BTreeSet<Text>,
}

/// Running pods by cluster and namespace.
type Pods = BTreeMap<ClusterId, BTreeMap<Text, BTreeMap<PodUid, Arc<PodSpec>>>>;

/// All quotas, all running pods by cluster and namespace, and the quota ledger of each cluster for the hour.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    saved: BTreeMap<QuotaKey, SavedQuota>,
    pods: Pods,
    clusters: BTreeMap<ClusterId, ClusterQuotas>,
    /// Changes of this instant. At its end, the governing quotas are decided again.
    stale: BTreeMap<ClusterId, Changes>,
    /// Quotas whose use has changed in this instant.
    moved: BTreeMap<ClusterId, BTreeSet<QuotaId>>,
    /// Labels decided in this instant.
    labels: BTreeMap<PodUid, Option<Label>>,
    pub(crate) trace: Recorder<LabelStep>,
}

impl Quotas {
    /// Creates the quotas from a state. [`Self::restore_pods`] adds the pods afterwards.
    pub(crate) fn restore(states: Vec<(QuotaKey, SavedQuota)>) -> Self {
        let mut quotas = Self::default();
        states.into_iter().for_each(|(key, quota)| quotas.replace(key, Some(quota)));
        quotas
    }

    /// Adds the pods that were running at the hour's start, in order of uid.
    pub(crate) fn restore_pods<'a>(&mut self, pods: impl Iterator<Item = (&'a PodUid, &'a Arc<PodSpec>)>) {
        // A map is built in one pass from input that is already sorted.
        let mut sorted: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (uid, spec) in pods {
            sorted.entry(namespace_of(spec)).or_default().push((uid.clone(), spec.clone()));
        }
        for ((cluster, namespace), pods) in sorted {
            let cluster = self.pods.entry(cluster.clone()).or_default();
            cluster.insert(namespace.clone(), pods.into_iter().collect());
        }
    }

    /// Applies a `QuotaSet`.
    pub(crate) fn set(&mut self, description: Arc<QuotaSet>, now: Timestamp) {
        let key = (description.cluster_id.clone(), description.quota_id.clone());
        let first_set = self.saved.get(&key).map_or(now, |stored| stored.first_set);
        self.replace(key, Some(SavedQuota { description, first_set }));
    }

    /// Applies a `QuotaDeleted`.
    pub(crate) fn delete(&mut self, key: &QuotaKey) {
        self.replace(key.clone(), None);
    }

    /// Replaces a quota and its claims to namespaces. Removes both if `quota` is `None`.
    fn replace(&mut self, key: QuotaKey, quota: Option<SavedQuota>) {
        let before = self.saved.remove(&key);
        if before.is_none() && quota.is_none() {
            return;
        }
        let claims = &mut self.clusters.entry(key.0.clone()).or_default().claims;
        let changes = self.stale.entry(key.0.clone()).or_default();
        changes.quotas.insert(key.1.clone());
        for (namespace, place) in claims_of(&key, before.as_ref()) {
            claims.entry(namespace.clone()).or_default().remove(&place);
            changes.namespaces.insert(namespace);
        }
        for (namespace, place) in claims_of(&key, quota.as_ref()) {
            claims.entry(namespace.clone()).or_default().insert(place);
            changes.namespaces.insert(namespace);
        }
        self.saved.extend(quota.map(|quota| (key, quota)));
    }

    /// Adds a pod that starts.
    ///
    /// # Errors
    /// If the requests of the pods under its quota exceed 128 bits.
    pub(crate) fn pod_started(&mut self, uid: &PodUid, spec: &Arc<PodSpec>) -> Result<(), EngineError> {
        let (cluster, namespace) = namespace_of(spec);
        if let Some(quota) = self.governing(cluster, namespace) {
            let mut changed = BTreeSet::new();
            quota.insert(PodRank::of(spec), spec, &mut changed)?;
            let (labels, (cluster, quota)) = (quota.labels(&changed), quota.key().clone());
            self.labels.extend(labels);
            self.moved.entry(cluster).or_default().insert(quota);
        }
        let namespaces = self.pods.entry(cluster.clone()).or_default();
        namespaces.entry(namespace.clone()).or_default().insert(uid.clone(), spec.clone());
        Ok(())
    }

    /// Removes a pod that ends or is about to be described again.
    pub(crate) fn pod_ended(&mut self, uid: &PodUid, spec: &Arc<PodSpec>) {
        let (cluster, namespace) = namespace_of(spec);
        if let Some(quota) = self.governing(cluster, namespace) {
            let mut changed = BTreeSet::new();
            quota.remove(&PodRank::of(spec), &mut changed);
            let (labels, (cluster, quota)) = (quota.labels(&changed), quota.key().clone());
            self.labels.extend(labels);
            self.moved.entry(cluster).or_default().insert(quota);
        }
        // A label decided earlier in this instant must not outlive the pod's run.
        self.labels.remove(uid);
        if let Some(pods) = self.pods.get_mut(cluster).and_then(|namespaces| namespaces.get_mut(namespace)) {
            pods.remove(uid);
        }
    }

    /// Ends an instant: decides which quota governs each namespace whose quotas have changed, and brings the
    /// ledgers up to date. Returns the labels that have been decided.
    ///
    /// # Errors
    /// If the requests of the pods of one quota exceed 128 bits.
    pub(crate) fn end_instant(
        &mut self,
        now: Timestamp,
    ) -> Result<BTreeMap<PodUid, Option<Label>>, EngineError> {
        for (cluster, changes) in std::mem::take(&mut self.stale) {
            let changed = self.rebuild(&cluster, changes)?;
            self.moved.entry(cluster).or_default().extend(changed);
        }
        for (cluster, moved) in std::mem::take(&mut self.moved) {
            let Some(ClusterQuotas { governing, ledger, .. }) = self.clusters.get_mut(&cluster) else {
                continue;
            };
            for id in moved {
                let quota = governing.get(&id);
                quota.into_iter().for_each(|quota| record(&mut self.trace, quota, now));
                ledger.set(now, &id, quota.map(GoverningQuota::levels));
            }
            ledger.end_instant(now);
        }
        Ok(std::mem::take(&mut self.labels))
    }

    /// Ends the hour. Returns the state for the next hour, and the ledger of every cluster that had quotas.
    pub(crate) fn finish(
        mut self,
        end: Timestamp,
    ) -> (Vec<(QuotaKey, SavedQuota)>, BTreeMap<ClusterId, ClusterLedger>) {
        for cluster in self.clusters.values_mut() {
            cluster.ledger.finish(end);
        }
        let ledgers = self.clusters.into_iter().map(|(id, cluster)| (id, cluster.ledger));
        (self.saved.into_iter().collect(), ledgers.collect())
    }

    fn governing(&mut self, cluster: &ClusterId, namespace: &Text) -> Option<&mut GoverningQuota> {
        let cluster = self.clusters.get_mut(cluster)?;
        let quota = cluster.by_namespace.get(namespace)?;
        cluster.governing.get_mut(quota)
    }

    /// Decides which quota governs each of the namespaces. Rebuilds the quotas that have changed or govern
    /// other namespaces than before, with the labels of their pods. Returns the ids of the rebuilt quotas.
    fn rebuild(
        &mut self,
        cluster_id: &ClusterId,
        Changes { quotas: mut changed, namespaces }: Changes,
    ) -> Result<BTreeSet<QuotaId>, EngineError> {
        let ClusterQuotas { claims, by_namespace, governing, .. } =
            self.clusters.entry(cluster_id.clone()).or_default();
        let pods = self.pods.get(cluster_id);
        let pods_of = |namespace: &Text| pods.and_then(|namespaces| namespaces.get(namespace));
        for namespace in namespaces {
            let first = claims.get(&namespace).and_then(BTreeSet::first);
            let governor = first.map(|(_, _, id)| id.clone());
            let before = by_namespace.get(&namespace).cloned();
            if before != governor {
                // The labels of pods with another governor are decided below.
                let pods = pods_of(&namespace).into_iter().flat_map(BTreeMap::keys);
                self.labels.extend(pods.map(|uid| (uid.clone(), None)));
                by_namespace.remove(&namespace);
                by_namespace.extend(governor.clone().map(|id| (namespace, id)));
                changed.extend(before.into_iter().chain(governor));
            }
        }
        for id in &changed {
            governing.remove(id);
            let key = Arc::new((cluster_id.clone(), id.clone()));
            let Some(SavedQuota { description, .. }) = self.saved.get(&*key) else { continue };
            let governed = description.namespaces.iter().filter(|name| by_namespace.get(*name) == Some(id));
            let governed: BTreeSet<&Text> = governed.collect();
            // A composite quota counts in what is lent and borrowed even if others govern all its namespaces.
            let composite = description.kind == QuotaKind::CompositeElasticQuota;
            let counts = !governed.is_empty() || (composite && !description.namespaces.is_empty());
            if !counts {
                continue;
            }
            let mut quota = GoverningQuota::new(key, description.clone());
            let pods = governed.into_iter().filter_map(pods_of).flat_map(BTreeMap::values);
            let mut pods: Vec<(PodRank, &Arc<PodSpec>)> =
                pods.map(|spec| (PodRank::of(spec), spec)).collect();
            // If the pods are added in their order, each takes its place at the end.
            pods.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            for (rank, spec) in pods {
                quota.insert(rank, spec, &mut BTreeSet::new())?;
            }
            let all = quota.pods.keys();
            self.labels.extend(all.map(|rank| (rank.uid.clone(), Some(quota.label(rank)))));
            governing.insert(id.clone(), quota);
        }
        Ok(changed)
    }
}

/// Returns each namespace that a quota names, with the quota's place among the quotas that name the
/// namespace.
fn claims_of((_, id): &QuotaKey, quota: Option<&SavedQuota>) -> impl Iterator<Item = (Text, NamespaceClaim)> {
    quota.into_iter().flat_map(move |SavedQuota { description, first_set }| {
        let elastic = description.kind != QuotaKind::CompositeElasticQuota;
        let namespaces = description.namespaces.iter();
        namespaces.map(move |namespace| (namespace.clone(), (elastic, *first_set, id.clone())))
    })
}

/// Records the order of a quota in focus, if this changes the label of a pod in focus.
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

fn namespace_of(spec: &PodSpec) -> (&ClusterId, &Text) {
    (&spec.description.cluster_id, &spec.description.namespace)
}
