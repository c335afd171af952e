//! Applies an hour's events in order and cuts the hour into slices.
//!
//! Matching takes effect at every step. Cover and labels depend on nothing but what is running, so deciding them once at
//! the end of each instant gives the same as deciding them at every step: states of no length cost nothing.

pub(crate) mod order;
pub(crate) mod size;
pub(crate) mod slices;
pub(crate) mod state;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{EventRecord, Payload, PoolSet, RateSet};
use prorata_schemas::ids::{OrganizationId, PodUid, PoolId, ReservationId};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, Timestamp};

use crate::rules::commitment::{Commitments, Coverable};
use crate::rules::pool::pricing;
use crate::rules::quota::Quotas;
use crate::rules::reservation::Reservations;
use crate::timeline::order::{Class, class, natural_key};
use crate::timeline::size::{NodeShape, PodShape};
use crate::timeline::slices::{Cover, NodeSlice, PodSlice, PoolSlice, Slices, Span, Standing};
use crate::timeline::state::{NodeKey, NodeState, PodState, RateKey, Sample, Spend, State};

#[derive(Debug)]
pub(crate) struct LiveNode {
    pub(crate) shape: Arc<NodeShape>,
    pub(crate) start: Timestamp,
    pub(crate) since: Timestamp,
    pub(crate) cover: Arc<Vec<Cover>>,
}

#[derive(Debug)]
pub(crate) struct LivePod {
    pub(crate) shape: Arc<PodShape>,
    pub(crate) start: Timestamp,
    pub(crate) since: Timestamp,
    pub(crate) standing: Standing,
}

/// Everything that runs or is set, while an hour is swept through.
#[derive(Debug)]
pub(crate) struct Timeline<'a> {
    pub(crate) rules: &'a Rules,
    organization_id: OrganizationId,
    hour: Hour,
    pub(crate) now: Timestamp,
    pub(crate) rates: BTreeMap<RateKey, Arc<RateSet>>,
    pub(crate) pools: BTreeMap<PoolId, Arc<PoolSet>>,
    pub(crate) pools_since: BTreeMap<PoolId, Timestamp>,
    pub(crate) nodes: BTreeMap<NodeKey, LiveNode>,
    pub(crate) pods: BTreeMap<PodUid, LivePod>,
    pub(crate) node_pods: BTreeMap<NodeKey, BTreeSet<PodUid>>,
    pub(crate) cover_is_stale: bool,
    schedule: BTreeSet<(Timestamp, Due)>,
    spend: BTreeMap<PoolId, Spend>,
    pub(crate) quotas: Quotas,
    pub(crate) reservations: Reservations,
    pub(crate) commitments: Commitments,
    pub(crate) samples: BTreeMap<PodUid, Vec<Sample>>,
    pub(crate) slices: Slices,
}

/// What a description has scheduled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    ReservationStart(ReservationId),
    ReservationEnd(ReservationId),
    CommitmentEdge,
}

/// One step of an instant: an event, or something scheduled.
enum Step<'e> {
    Event(&'e EventRecord),
    Due(Due),
}

impl<'a> Timeline<'a> {
    /// Takes up a state at an hour's start.
    pub(crate) fn new(state: State, hour: Hour, rules: &'a Rules) -> Self {
        let now = hour.start();
        let mut timeline = Self {
            rules,
            organization_id: state.organization_id,
            hour,
            now,
            rates: state.rates.into_iter().collect(),
            pools_since: state.pools.keys().map(|id| (id.clone(), now)).collect(),
            pools: state.pools,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            node_pods: BTreeMap::new(),
            cover_is_stale: true,
            schedule: BTreeSet::new(),
            spend: state.spend,
            quotas: Quotas::restore(state.quotas),
            reservations: Reservations::restore(state.reservations, now, rules),
            commitments: Commitments::restore(state.commitments, now),
            samples: state.samples,
            slices: Slices::default(),
        };
        for (key, node) in state.nodes {
            let shape = Arc::new(NodeShape::new(node.description, rules));
            let live = LiveNode { shape, start: node.start, since: now, cover: Arc::default() };
            timeline.nodes.insert(key, live);
        }
        for (uid, pod) in state.pods {
            timeline.restore_pod(uid, pod);
        }
        for id in timeline.reservations.ids() {
            timeline.schedule_reservation(&id);
        }
        timeline.schedule_commitments();
        timeline
    }

    /// Applies the hour's events, which are in order, and ends all slices at the hour's end.
    pub(crate) fn run(&mut self, records: &[EventRecord]) {
        let end = self.hour.end();
        self.settle();
        let mut rest = records;
        loop {
            let next_event = rest.first().map(|record| record.event.event_time);
            let next_due = self.schedule.first().map(|(at, _)| *at);
            let next = next_event.into_iter().chain(next_due).min();
            let Some(now) = next.filter(|next| *next < end) else { break };
            self.now = now;
            let count = rest.iter().take_while(|record| record.event.event_time == now).count();
            let (instant, later) = rest.split_at(count);
            rest = later;
            self.instant(instant);
            self.settle();
        }
        self.now = end;
        self.close();
    }

    /// What the next hour needs.
    pub(crate) fn into_state(self) -> State {
        let end = self.hour.end();
        let nodes = self.nodes.into_iter().map(|(key, node)| {
            (key, NodeState { description: node.shape.description.clone(), start: node.start })
        });
        let pods = self.pods.into_iter().map(|(uid, pod)| {
            (uid, PodState { description: pod.shape.description.clone(), start: pod.start })
        });
        let mut samples = self.samples;
        samples.retain(|_, samples| {
            samples.retain(|sample| sample.to > end);
            !samples.is_empty()
        });
        State {
            organization_id: self.organization_id,
            rates: self.rates.into_iter().collect(),
            pools: self.pools,
            quotas: self.quotas.into_states(),
            commitments: self.commitments.states(),
            reservations: self.reservations.into_states(),
            nodes: nodes.collect(),
            pods: pods.collect(),
            samples,
            spend: self.spend,
        }
    }

    /// Spend of pools, to be brought up to the hour's end.
    pub(crate) const fn spend_mut(&mut self) -> &mut BTreeMap<PoolId, Spend> {
        &mut self.spend
    }

    fn restore_pod(&mut self, uid: PodUid, pod: PodState) {
        let shape = Arc::new(PodShape::new(pod.description, self.rules));
        let reservation = self.reservations.restore_pod(&uid, &shape, pod.start);
        let standing = Standing { reservation, ..self.standing(&shape) };
        self.quotas.pod_started(&shape);
        self.index_pod(&uid, &shape);
        self.pods.insert(uid, LivePod { shape, start: pod.start, since: self.now, standing });
    }

    pub(crate) fn standing(&self, shape: &PodShape) -> Standing {
        Standing {
            node_runs: shape.node.as_ref().is_some_and(|node| self.nodes.contains_key(node)),
            pool: pricing(&self.pools, &shape.description),
            rate: self.rate(shape),
            reservation: None,
            label: None,
        }
    }

    pub(crate) fn rate(&self, shape: &PodShape) -> Option<Arc<RateSet>> {
        if !shape.is_serverless() {
            return None;
        }
        let pod = &shape.description;
        let key = (pod.region.clone()?, pod.gpu_model.clone(), pod.qos.clone());
        self.rates.get(&key).cloned()
    }

    pub(crate) fn index_pod(&mut self, uid: &PodUid, shape: &PodShape) {
        if let Some(node) = &shape.node {
            self.node_pods.entry(node.clone()).or_default().insert(uid.clone());
        }
    }

    pub(crate) fn unindex_pod(&mut self, uid: &PodUid, shape: &PodShape) {
        if let Some(pods) = shape.node.as_ref().and_then(|node| self.node_pods.get_mut(node)) {
            pods.remove(uid);
        }
    }

    /// Applies all steps of one instant, in order of class and natural key.
    fn instant(&mut self, records: &[EventRecord]) {
        let never_ran = self.never_ran(records);
        let mut steps: Vec<(Class, [Option<Text>; 3], Step<'_>)> = Vec::new();
        while let Some((_, due)) = self.schedule.first().filter(|(at, _)| *at <= self.now).cloned() {
            self.schedule.pop_first();
            let (class, id) = match &due {
                Due::ReservationStart(id) => (Class::Reservation, id.clone()),
                Due::ReservationEnd(id) => (Class::ReservationEnd, id.clone()),
                Due::CommitmentEdge => {
                    self.cover_is_stale = true;
                    continue;
                }
            };
            steps.push((class, [Some(id.into()), None, None], Step::Due(due)));
        }
        let keyed =
            |record: &EventRecord| natural_key(&record.event.payload).map(|part| part.map(Text::from));
        if steps.is_empty() {
            for record in records {
                self.event(record, &never_ran);
            }
            return;
        }
        steps.extend(
            records.iter().map(|record| (class(&record.event.payload), keyed(record), Step::Event(record))),
        );
        steps.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        for (_, _, step) in steps {
            match step {
                Step::Event(record) => self.event(record, &never_ran),
                Step::Due(Due::ReservationStart(id)) => self.reservations.start(&id, self.now),
                Step::Due(Due::ReservationEnd(id)) => self.reservations.end(&id, self.now),
                Step::Due(Due::CommitmentEdge) => {}
            }
            self.take_matches();
        }
    }

    /// Nodes and pods that start and stop at this instant without running before it: they never ran.
    fn never_ran(&self, records: &[EventRecord]) -> NeverRan {
        let mut never_ran = NeverRan::default();
        if records.len() < 2 {
            return never_ran;
        }
        for record in records {
            match &record.event.payload {
                Payload::NodeStopped(node) => {
                    let key = (node.cluster_id.clone(), node.node_id.clone());
                    if !self.nodes.contains_key(&key) {
                        never_ran.nodes.insert(key);
                    }
                }
                Payload::PodStopped(pod) if !self.pods.contains_key(&pod.pod_uid) => {
                    never_ran.pods.insert(pod.pod_uid.clone());
                }
                Payload::NodeStarted(_)
                | Payload::PodStarted(_)
                | Payload::PodStopped(_)
                | Payload::PodUsage(_)
                | Payload::ReservationSet(_)
                | Payload::ReservationReleased(_)
                | Payload::CommitmentSet(_)
                | Payload::CommitmentDeleted(_)
                | Payload::QuotaSet(_)
                | Payload::QuotaDeleted(_)
                | Payload::PoolSet(_)
                | Payload::PoolDeleted(_)
                | Payload::RateSet(_) => {}
            }
        }
        never_ran
    }

    /// Ends an instant: cover and labels follow what is running now.
    fn settle(&mut self) {
        if std::mem::take(&mut self.cover_is_stale) {
            self.settle_cover();
        }
        for (uid, label) in self.quotas.settle(self.now) {
            self.change_pod(&uid, |standing| standing.label = label);
        }
    }

    fn settle_cover(&mut self) {
        if self.commitments.is_empty() && self.nodes.values().all(|node| node.cover.is_empty()) {
            return;
        }
        let nodes: Vec<Coverable<'_>> = self
            .nodes
            .iter()
            .map(|(key, node)| Coverable { key, shape: &node.shape, start: node.start })
            .collect();
        let mut covers = self.commitments.cover(&nodes, self.now);
        for key in self.nodes.keys().cloned().collect::<Vec<_>>() {
            let cover = covers.remove(&key).unwrap_or_default();
            self.cover_node(&key, cover);
        }
    }

    fn cover_node(&mut self, key: &NodeKey, cover: Vec<Cover>) {
        if self.nodes.get(key).is_some_and(|node| *node.cover != cover) {
            self.close_node(key);
            if let Some(node) = self.nodes.get_mut(key) {
                node.cover = Arc::new(cover);
            }
        }
    }

    pub(crate) fn take_matches(&mut self) {
        for (uid, reservation) in self.reservations.take_changes() {
            self.change_pod(&uid, |standing| standing.reservation = reservation);
        }
    }

    /// Ends a running pod's slice and changes its standing from now on.
    pub(crate) fn change_pod(&mut self, uid: &PodUid, change: impl FnOnce(&mut Standing)) {
        let Some(pod) = self.pods.get(uid) else { return };
        let mut standing = pod.standing.clone();
        change(&mut standing);
        if standing != pod.standing {
            self.close_pod(uid);
            if let Some(pod) = self.pods.get_mut(uid) {
                pod.standing = standing;
            }
        }
    }

    pub(crate) fn close_pod(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if let Some(span) = Span::new(pod.since, self.now) {
            let slice = PodSlice { span, shape: pod.shape.clone(), standing: pod.standing.clone() };
            self.slices.pods.entry(uid.clone()).or_default().push(slice);
        }
        pod.since = self.now;
    }

    pub(crate) fn close_node(&mut self, key: &NodeKey) {
        let Some(node) = self.nodes.get_mut(key) else { return };
        if let Some(span) = Span::new(node.since, self.now) {
            let slice = NodeSlice { span, shape: node.shape.clone(), cover: node.cover.clone() };
            self.slices.nodes.entry(key.clone()).or_default().push(slice);
        }
        node.since = self.now;
    }

    pub(crate) fn close_pool(&mut self, id: &PoolId) {
        let (Some(description), Some(since)) = (self.pools.get(id), self.pools_since.get_mut(id)) else {
            return;
        };
        if let Some(span) = Span::new(*since, self.now) {
            let slice = PoolSlice { span, description: description.clone() };
            self.slices.pools.entry(id.clone()).or_default().push(slice);
        }
        *since = self.now;
    }

    fn close(&mut self) {
        for key in self.nodes.keys().cloned().collect::<Vec<_>>() {
            self.close_node(&key);
        }
        for uid in self.pods.keys().cloned().collect::<Vec<_>>() {
            self.close_pod(&uid);
        }
        for id in self.pools.keys().cloned().collect::<Vec<_>>() {
            self.close_pool(&id);
        }
        self.reservations.close(self.now);
        self.commitments.close(self.now);
    }

    pub(crate) fn schedule_reservation(&mut self, id: &ReservationId) {
        let (start, end) = (self.hour.start(), self.hour.end());
        let from = if self.now == start { start } else { Timestamp(self.now.0 + 1) };
        let mut times = self.reservations.scheduled(id);
        let starts = times.next();
        let ends = times.next();
        drop(times);
        for (at, due) in
            [(starts, Due::ReservationStart(id.clone())), (ends, Due::ReservationEnd(id.clone()))]
        {
            if let Some(at) = at.filter(|at| (from..end).contains(at)) {
                self.schedule.insert((at, due));
            }
        }
    }

    pub(crate) fn schedule_commitments(&mut self) {
        let within = self.now..self.hour.end();
        let edges = self.commitments.edges().filter(|edge| within.contains(edge));
        let edges: Vec<Timestamp> = edges.collect();
        self.schedule.extend(edges.into_iter().map(|at| (at, Due::CommitmentEdge)));
    }
}

#[derive(Debug, Default)]
pub(crate) struct NeverRan {
    pub(crate) nodes: BTreeSet<NodeKey>,
    pub(crate) pods: BTreeSet<PodUid>,
}
