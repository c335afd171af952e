//! Everything that runs or is set at an instant, and the slices that the hour has been cut into so far.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::event::{PodStarted, PoolSet, RateSet};
use prorata_schemas::ids::{ClusterId, OrganizationId, PodUid, PoolId, ReservationId};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, Timestamp};

use crate::error::EngineError;
use crate::model::named_nodes::NamedNodes;
use crate::model::pool_price::PoolPricing;
use crate::model::samples::Samples;
use crate::model::slices::{Coverage, NodeSlice, PodSlice, PodStatus, PoolSlice, Slices};
use crate::model::span::Span;
use crate::model::spec::{NodeSpec, PodSpec, rate_key};
use crate::model::state::{ByPod, NodeKey, RateKey, Sample, SavedNode, SavedPod, Spend, State};
use crate::model::usage::PackedSamples;
use crate::rules::bill::Bills;
use crate::rules::commitment::{Commitments, FamilyNode};
use crate::rules::quota::Quotas;
use crate::rules::quota_ledger::ClusterLedger;
use crate::rules::reservation::Reservations;
use crate::timeline::priced_pods::PricedPods;
use crate::timeline::schedule::{ReservationStep, Schedule};
use crate::trace::{Focus, Recorder, Trace};
use crate::work::Work;

/// An hour whose events have been applied.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// The state for the next hour. The spend of pools is still the spend at the hour's start.
    pub(crate) state: State,
    pub(crate) slices: Slices,
    pub(crate) named_nodes: NamedNodes,
    /// Measured use that may overlap the hour.
    pub(crate) samples: ByPod<Samples>,
    pub(crate) quota_ledgers: BTreeMap<ClusterId, ClusterLedger>,
    /// Decisions about pods, nodes and agreements in focus. The rest of a trace is read from the slices.
    pub(crate) trace: Trace,
}

/// A running node since its last slice ended.
#[derive(Debug)]
pub(super) struct RunningNode {
    pub(super) spec: Arc<NodeSpec>,
    pub(super) start: Timestamp,
    pub(super) since: Timestamp,
    pub(super) coverage: Arc<Vec<Coverage>>,
}

/// A running pod since its last slice ended.
#[derive(Debug)]
pub(super) struct RunningPod {
    pub(super) spec: Arc<PodSpec>,
    pub(super) start: Timestamp,
    pub(super) since: Timestamp,
    pub(super) status: PodStatus,
    /// Slices of this run that have ended.
    pub(super) slices: Vec<PodSlice>,
}

impl RunningPod {
    /// Creates a pod that has no slice yet.
    pub(super) const fn new(
        spec: Arc<PodSpec>,
        start: Timestamp,
        since: Timestamp,
        status: PodStatus,
    ) -> Self {
        Self { spec, start, since, status, slices: Vec::new() }
    }

    /// Ends the current slice.
    pub(super) fn close(&mut self, now: Timestamp) {
        if let Some(span) = Span::new(self.since, now) {
            if self.slices.is_empty() {
                // Most pods have no other slice in the hour.
                self.slices.reserve_exact(1);
            }
            let (spec, status) = (self.spec.clone(), self.status.clone());
            self.slices.push(PodSlice { span, spec, status, plans: Vec::new() });
        }
        self.since = now;
    }
}

/// A pool since its last slice ended.
#[derive(Debug)]
pub(super) struct CurrentPool {
    pub(super) description: Arc<PoolSet>,
    pub(super) since: Timestamp,
}

/// Everything that runs or is set.
#[derive(Debug)]
pub(super) struct Running<'a> {
    pub(super) rules: &'a Rules,
    /// The bills of the hour.
    pub(super) bills: &'a Bills,
    pub(super) now: Timestamp,
    /// Rates by canonical names.
    pub(super) rates: BTreeMap<RateKey, Arc<RateSet>>,
    pub(super) pools: BTreeMap<PoolId, CurrentPool>,
    pub(super) nodes: BTreeMap<NodeKey, RunningNode>,
    pub(super) pods: BTreeMap<PodUid, RunningPod>,
    pub(super) named_nodes: NamedNodes,
    /// Pods by rate and pool. `None` until the first price is set in the hour.
    priced_pods: Option<PricedPods>,
    pub(super) prices: Work,
    pub(super) quotas: Quotas,
    pub(super) reservations: Reservations,
    pub(super) commitments: Commitments,
    pub(super) samples: ByPod<Samples>,
    pub(super) schedule: Schedule,
    /// Slices of pod runs that have ended.
    ended: BTreeMap<PodUid, Vec<PodSlice>>,
    /// All other slices.
    slices: Slices,
}

impl<'a> Running<'a> {
    /// Restores what runs or is set at the hour's start from a state.
    pub(super) fn restore(
        state: State,
        hour: Hour,
        bills: &'a Bills,
        rules: &'a Rules,
        focus: Option<&Arc<Focus>>,
    ) -> Self {
        let now = hour.start();
        let pools = state.pools.into_iter();
        let nodes = state.nodes.into_iter().map(|(key, SavedNode { description, start })| {
            let spec = Arc::new(NodeSpec::new(description, bills.keys(), rules));
            (key, RunningNode { spec, start, since: now, coverage: Arc::default() })
        });
        let mut running = Self {
            rules,
            bills,
            now,
            rates: state.rates.into_iter().map(|(_, rate)| (rate_key(&rate), rate)).collect(),
            pools: pools.map(|(id, description)| (id, CurrentPool { description, since: now })).collect(),
            nodes: nodes.collect(),
            pods: BTreeMap::new(),
            named_nodes: NamedNodes::default(),
            priced_pods: None,
            prices: Work::of_prices(),
            quotas: Quotas::restore(state.quotas),
            reservations: Reservations::restore(state.reservations, now, rules),
            commitments: Commitments::restore(state.commitments, bills.commitments(), now),
            samples: state
                .samples
                .into_iter()
                .map(|(uid, carried)| (uid, Samples::carried(carried)))
                .collect(),
            schedule: Schedule::new(hour.end()),
            ended: BTreeMap::new(),
            slices: Slices::default(),
        };
        for key in running.nodes.keys() {
            running.named_nodes.start(key);
        }
        running.quotas.trace = Recorder::new(focus);
        running.reservations.trace = Recorder::new(focus);
        running.commitments.trace = Recorder::new(focus);
        let pods = state.pods.into_iter().map(|(uid, pod)| {
            let pod = running.restore_pod(&uid, pod);
            (uid, pod)
        });
        running.pods = pods.collect();
        running.quotas.restore_pods(running.pods.iter().map(|(uid, pod)| (uid, &pod.spec)));
        // If the rules have changed, they may count other GPUs. Then a unit may serve a pod that has waited.
        running.reservations.offer_all(now);
        running.take_matches();
        for id in running.reservations.ids() {
            running.schedule_reservation(&id, now);
        }
        let edges: Vec<Timestamp> = running.commitments.edges().collect();
        running.schedule_coverage(edges);
        running
    }

    /// Adds the samples of the hour.
    pub(super) fn measure(&mut self, mut samples: Vec<(PodUid, PackedSamples)>) {
        samples.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut carried = std::mem::take(&mut self.samples).into_iter().peekable();
        self.samples.reserve_exact(samples.len() + carried.len());
        for (uid, measured) in samples {
            self.samples.extend(std::iter::from_fn(|| carried.next_if(|(of, _)| *of < uid)));
            let carried = carried.next_if(|(of, _)| *of == uid).map(|(_, samples)| samples.carried);
            self.samples.push((uid, Samples { carried: carried.unwrap_or_default(), measured }));
        }
        self.samples.extend(carried);
    }

    fn restore_pod(&mut self, uid: &PodUid, pod: SavedPod) -> RunningPod {
        let node = self.named_nodes.of(&pod.description);
        let spec = Arc::new(PodSpec::new(pod.description, node, self.rules));
        let reservation = self.reservations.restore_pod(uid, &spec, pod.start);
        let status = PodStatus { reservation, ..self.status_of(&spec) };
        self.index_pod(uid, &spec);
        RunningPod::new(spec, pod.start, self.now, status)
    }

    /// Returns the current status of a pod with this description. The reservation and the label are not
    /// decided yet.
    pub(super) fn status_of(&self, spec: &PodSpec) -> PodStatus {
        PodStatus {
            node_runs: spec.node.is_some_and(|node| self.named_nodes.runs(node)),
            pool: self.pool_pricing(&spec.description),
            rate: self.rate_of(spec),
            reservation: None,
            label: None,
        }
    }

    /// Returns the pricing of a pod by its pool.
    pub(super) fn pool_pricing(&self, pod: &PodStarted) -> PoolPricing {
        let pool = pod.pool_id.as_ref().and_then(|id| self.pools.get(id));
        PoolPricing::of(pod, pool.map(|pool| &pool.description))
    }

    /// Returns the rate in force for a serverless pod; `None` if the pod is not serverless or no rate
    /// matches.
    pub(super) fn rate_of(&self, spec: &PodSpec) -> Option<Arc<RateSet>> {
        self.rates.get(&spec.rate_key()?).cloned()
    }

    /// Returns the pods by rate and pool. The first call collects them.
    pub(super) fn priced_pods(&mut self) -> &PricedPods {
        let pods = &self.pods;
        self.priced_pods.get_or_insert_with(|| {
            let mut priced = PricedPods::default();
            pods.iter().for_each(|(uid, pod)| priced.add(uid, &pod.spec));
            priced
        })
    }

    pub(super) fn index_pod(&mut self, uid: &PodUid, spec: &PodSpec) {
        if let Some(node) = spec.node {
            self.named_nodes.pods_mut(node).insert(uid.clone());
        }
        if let Some(priced) = &mut self.priced_pods {
            priced.add(uid, spec);
        }
    }

    pub(super) fn unindex_pod(&mut self, uid: &PodUid, spec: &PodSpec) {
        if let Some(node) = spec.node {
            self.named_nodes.pods_mut(node).remove(uid);
        }
    }

    /// Ends an instant: decides coverage and labels by what is running now.
    pub(super) fn end_instant(&mut self) -> Result<(), EngineError> {
        self.decide_coverage()?;
        for (uid, label) in self.quotas.end_instant(self.now)? {
            self.change_pod(&uid, |status| status.label = label);
        }
        Ok(())
    }

    fn decide_coverage(&mut self) -> Result<(), EngineError> {
        let nodes = self.nodes.iter();
        let nodes = nodes.map(|(key, node)| (key, FamilyNode { spec: node.spec.clone(), start: node.start }));
        for key in self.commitments.decide(nodes, self.now)? {
            let Some(node) = self.nodes.get(&key) else { continue };
            let coverage = self.commitments.coverage_of(&node.spec, &(key.clone(), node.start));
            if *node.coverage != coverage {
                self.close_node(&key);
                if let Some(node) = self.nodes.get_mut(&key) {
                    node.coverage = Arc::new(coverage);
                }
            }
        }
        Ok(())
    }

    /// Sets the reservations of pods to the results of matching.
    pub(super) fn take_matches(&mut self) {
        for (uid, reservation) in self.reservations.take_changes() {
            self.change_pod(&uid, |status| status.reservation = reservation);
        }
    }

    /// Changes a running pod's status from now on, and ends the pod's slice if the status differs.
    pub(super) fn change_pod(&mut self, uid: &PodUid, change: impl FnOnce(&mut PodStatus)) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let mut status = pod.status.clone();
        change(&mut status);
        if status != pod.status {
            pod.close(self.now);
            pod.status = status;
        }
    }

    /// Keeps the slices of a run that has ended.
    pub(super) fn keep_slices(&mut self, uid: &PodUid, slices: Vec<PodSlice>) {
        if slices.is_empty() {
            return;
        }
        match self.ended.entry(uid.clone()) {
            Entry::Vacant(first) => drop(first.insert(slices)),
            Entry::Occupied(mut earlier) => earlier.get_mut().extend(slices),
        }
    }

    /// Ends a node's slice.
    pub(super) fn close_node(&mut self, key: &NodeKey) {
        let Some(node) = self.nodes.get_mut(key) else { return };
        if let Some(span) = Span::new(node.since, self.now) {
            let RunningNode { spec, start, coverage, .. } = &*node;
            let (spec, coverage) = (spec.clone(), coverage.clone());
            let slice = NodeSlice { span, start: *start, spec, coverage, plans: Vec::new() };
            self.slices.nodes.entry(key.clone()).or_default().push(slice);
        }
        node.since = self.now;
    }

    /// Ends a pool's slice.
    pub(super) fn close_pool(&mut self, id: &PoolId) {
        let Some(pool) = self.pools.get_mut(id) else { return };
        if let Some(span) = Span::new(pool.since, self.now) {
            let slice = PoolSlice { span, description: pool.description.clone() };
            self.slices.pools.entry(id.clone()).or_default().push(slice);
        }
        pool.since = self.now;
    }

    /// Schedules the start and end of a reservation, if they are at `from` or later.
    pub(super) fn schedule_reservation(&mut self, id: &ReservationId, from: Timestamp) {
        let Some(description) = self.reservations.description(id) else { return };
        let start = (Some(description.starts_at), ReservationStep::Start(id.clone()));
        let end = (description.ends_at, ReservationStep::End(id.clone()));
        for (at, step) in [start, end] {
            if let Some(at) = at.filter(|at| *at >= from) {
                self.schedule.add_step(at, step);
            }
        }
    }

    /// Schedules future starts and ends of commitments; the current instant decides coverage anyway.
    pub(super) fn schedule_coverage(&mut self, edges: impl IntoIterator<Item = Timestamp>) {
        for at in edges.into_iter().filter(|at| *at > self.now) {
            self.schedule.add_cut(at);
        }
    }

    /// Ends all slices at the hour's end, and returns the timeline of the hour.
    ///
    /// # Errors
    /// If reserved instances and nodes form too many pairs.
    pub(super) fn finish(
        mut self,
        organization_id: OrganizationId,
        spend: BTreeMap<PoolId, Spend>,
    ) -> Result<Timeline, EngineError> {
        let end = self.now;
        for key in self.nodes.keys().cloned().collect::<Vec<_>>() {
            self.close_node(&key);
        }
        for id in self.pools.keys().cloned().collect::<Vec<_>>() {
            self.close_pool(&id);
        }
        let commitments = self.commitments.finish(end, &mut self.slices.nodes)?;
        let trace = Trace {
            walks: std::mem::take(&mut self.commitments.trace).finish(),
            matches: std::mem::take(&mut self.reservations.trace).finish(),
            labels: std::mem::take(&mut self.quotas.trace).finish(),
            ..Trace::default()
        };
        let (quotas, quota_ledgers) = self.quotas.finish(end);
        let (reservations, reservation_slices) = self.reservations.finish(end);
        let nodes = self.nodes.into_iter().map(|(key, node)| {
            (key, SavedNode { description: node.spec.description.clone(), start: node.start })
        });
        let rates = self.rates.into_values();
        let rates = rates.map(|rate| ((rate.region.clone(), rate.gpu_model.clone(), rate.qos.clone()), rate));
        let (pods, pod_slices) = finish_pods(self.pods, self.ended, end);
        let state = State {
            organization_id,
            rates: rates.collect::<BTreeMap<_, _>>().into_iter().collect(),
            pools: self.pools.into_iter().map(|(id, pool)| (id, pool.description)).collect(),
            quotas,
            commitments: commitments.states,
            reservations,
            nodes: nodes.collect(),
            pods,
            samples: samples_after(&self.samples, end),
            spend,
            // Added when the slices of nodes are known.
            bills: Vec::new(),
            closed: BTreeSet::new(),
        };
        let slices = Slices {
            pods: pod_slices,
            reservations: reservation_slices,
            commitments: commitments.hours,
            ..self.slices
        };
        let (named_nodes, samples) = (self.named_nodes, self.samples);
        Ok(Timeline { state, slices, named_nodes, samples, quota_ledgers, trace })
    }
}

/// Returns the saved pods that still run, and the slices of all pods. A pod's slices of earlier runs come
/// first.
fn finish_pods(
    running: BTreeMap<PodUid, RunningPod>,
    ended: BTreeMap<PodUid, Vec<PodSlice>>,
    end: Timestamp,
) -> (ByPod<SavedPod>, ByPod<Vec<PodSlice>>) {
    let mut saved = Vec::with_capacity(running.len());
    let mut slices = Vec::with_capacity(running.len() + ended.len());
    // Both are sorted, so walking them in parallel is faster than looking up each pod.
    let mut ended = ended.into_iter().peekable();
    for (uid, mut pod) in running {
        pod.close(end);
        slices.extend(std::iter::from_fn(|| ended.next_if(|(of, _)| *of < uid)));
        if let Some((_, earlier)) = ended.next_if(|(of, _)| *of == uid) {
            pod.slices.splice(..0, earlier);
        }
        saved.push((uid.clone(), SavedPod { description: pod.spec.description.clone(), start: pod.start }));
        slices.push((uid, pod.slices));
    }
    slices.extend(ended);
    (saved, slices)
}

/// Returns the samples that reach into the next hour.
fn samples_after(samples: &[(PodUid, Samples)], end: Timestamp) -> ByPod<Vec<Sample>> {
    let after = samples.iter().map(|(uid, samples)| (uid, samples.after(end)));
    after.filter(|(_, samples)| !samples.is_empty()).map(|(uid, samples)| (uid.clone(), samples)).collect()
}
