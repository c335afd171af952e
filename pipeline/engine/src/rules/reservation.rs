//! Capacity reservations (ACS): which unit serves which serverless pod, and so how many units are unused.
//!
//! Matching decides only what is unused; pods pay their own rate either way. A starting pod takes the smallest unit
//! that fits: by cpu, memory, then creation, then id. A unit that becomes free is offered at once to running unmatched
//! pods, oldest start first, then uid. A match is sticky until it no longer satisfies the conditions. When a quantity
//! falls below its matches, those with the latest match, then start, then uid lose theirs.
//! A reservation is effective on [starts_at, ends_at).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::ReservationSet;
use prorata_schemas::ids::{PodUid, ReservationId};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Timestamp;

use crate::timeline::size::{PodShape, Shape};
use crate::timeline::slices::{ReservationSlice, Span};
use crate::timeline::state::ReservationState;

/// Pods and units can match only within a class: region, GPU model and number of GPUs in thousandths.
type Class = (Text, Text, u128);

/// A running serverless pod, as matching sees it.
#[derive(Clone, Debug)]
struct Candidate {
    shape: Arc<PodShape>,
    start: Timestamp,
    reservation: Option<ReservationId>,
}

#[derive(Debug)]
struct Live {
    description: Arc<ReservationSet>,
    unit: Shape,
    active: bool,
    matched: BTreeMap<PodUid, Timestamp>,
    since: Timestamp,
}

/// All reservations, all serverless pods, and who holds which unit.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    live: BTreeMap<ReservationId, Live>,
    pods: BTreeMap<PodUid, Candidate>,
    unmatched: BTreeMap<Class, BTreeSet<(Timestamp, PodUid)>>,
    changes: Vec<(PodUid, Option<ReservationId>)>,
    /// Slices of effective reservations so far in the hour.
    pub(crate) slices: BTreeMap<ReservationId, Vec<ReservationSlice>>,
}

impl Live {
    fn class(&self) -> Class {
        (self.description.region.clone(), self.description.gpu_model.clone(), self.unit.gpu)
    }

    fn has_free_unit(&self, now: Timestamp) -> bool {
        let units = usize::try_from(self.description.quantity).unwrap_or(0);
        self.active && self.matched.len() < units && self.description.ends_at.is_none_or(|end| now < end)
    }

    /// The conditions of a match, but for a unit being free.
    fn fits(&self, pod: &PodShape) -> bool {
        let (unit, wanted) = (&self.description, &pod.description);
        wanted.region.as_ref() == Some(&unit.region)
            && unit.zone.as_ref().is_none_or(|zone| wanted.zone.as_ref() == Some(zone))
            && wanted.gpu_model.as_ref() == Some(&unit.gpu_model)
            && pod.requests.gpu == self.unit.gpu
            && pod.requests.cpu <= self.unit.cpu
            && pod.requests.memory <= self.unit.memory
            && &*wanted.qos != "best-effort"
    }
}

impl Reservations {
    /// Takes up the reservations of a state at the hour's start. Pods are added after by [`Self::restore_pod`].
    pub(crate) fn restore(
        states: BTreeMap<ReservationId, ReservationState>,
        now: Timestamp,
        rules: &Rules,
    ) -> Self {
        let live = states.into_iter().map(|(id, state)| {
            let unit = Shape::of(&state.description.capacity, rules);
            let (active, matched) = (state.active, state.matched);
            (id, Live { description: state.description, unit, active, matched, since: now })
        });
        Self { live: live.collect(), ..Self::default() }
    }

    /// What the next hour needs.
    pub(crate) fn into_states(self) -> BTreeMap<ReservationId, ReservationState> {
        let states = self.live.into_iter().map(|(id, live)| {
            let Live { description, active, matched, .. } = live;
            (id, ReservationState { description, active, matched })
        });
        states.collect()
    }

    /// Instants at which a reservation starts or ends by its description.
    pub(crate) fn scheduled(&self, id: &str) -> impl Iterator<Item = Timestamp> + use<'_> {
        let live = self.live.get(id);
        live.into_iter()
            .flat_map(|live| std::iter::once(live.description.starts_at).chain(live.description.ends_at))
    }

    /// Ids of all reservations.
    pub(crate) fn ids(&self) -> Vec<ReservationId> {
        self.live.keys().cloned().collect()
    }

    /// A pod that was running at the hour's start.
    pub(crate) fn restore_pod(
        &mut self,
        uid: &PodUid,
        shape: &Arc<PodShape>,
        start: Timestamp,
    ) -> Option<ReservationId> {
        if !shape.is_serverless() {
            return None;
        }
        let held = self.live.iter().find(|(_, live)| live.matched.contains_key(uid));
        let reservation = held.map(|(id, _)| id.clone());
        if reservation.is_none() {
            self.wait(uid, shape, start);
        }
        let candidate = Candidate { shape: shape.clone(), start, reservation: reservation.clone() };
        self.pods.insert(uid.clone(), candidate);
        reservation
    }

    /// Matches that began or ended since the last call, in order.
    pub(crate) fn take_changes(&mut self) -> Vec<(PodUid, Option<ReservationId>)> {
        std::mem::take(&mut self.changes)
    }

    /// A `ReservationSet`.
    pub(crate) fn set(&mut self, description: Arc<ReservationSet>, now: Timestamp, rules: &Rules) {
        let id = description.reservation_id.clone();
        self.close_slice(&id, now);
        let unit = Shape::of(&description.capacity, rules);
        match self.live.get_mut(&id) {
            Some(live) => {
                live.description = description;
                live.unit = unit;
            }
            None => {
                let live = Live { description, unit, active: false, matched: BTreeMap::new(), since: now };
                self.live.insert(id.clone(), live);
            }
        }
        self.apply(&id, now);
    }

    /// A scheduled start: as a `Set` of that id.
    pub(crate) fn start(&mut self, id: &ReservationId, now: Timestamp) {
        self.close_slice(id, now);
        self.apply(id, now);
    }

    /// A scheduled end, unless the reservation has been described anew.
    pub(crate) fn end(&mut self, id: &ReservationId, now: Timestamp) {
        if self.live.get(id).is_some_and(|live| live.active && live.description.ends_at == Some(now)) {
            self.close_slice(id, now);
            self.apply(id, now);
        }
    }

    /// A `ReservationReleased`.
    pub(crate) fn release(&mut self, id: &ReservationId, now: Timestamp) {
        self.close_slice(id, now);
        if let Some(live) = self.live.remove(id) {
            let classes = self.lose(live.matched.into_keys().collect());
            self.offer(classes, now);
        }
    }

    /// A pod starts.
    pub(crate) fn pod_started(
        &mut self,
        uid: &PodUid,
        shape: &Arc<PodShape>,
        start: Timestamp,
        now: Timestamp,
    ) {
        if !shape.is_serverless() {
            return;
        }
        let candidate = Candidate { shape: shape.clone(), start, reservation: None };
        self.pods.insert(uid.clone(), candidate);
        if let Some(class) = self.wait(uid, shape, start) {
            self.offer(BTreeSet::from([class]), now);
        }
    }

    /// A running pod is described anew: a match that still satisfies the conditions stays.
    pub(crate) fn pod_described(
        &mut self,
        uid: &PodUid,
        shape: &Arc<PodShape>,
        start: Timestamp,
        now: Timestamp,
    ) {
        let held = self.pods.get(uid).and_then(|pod| pod.reservation.clone());
        let stays = held.is_some_and(|id| {
            shape.is_serverless() && self.live.get(&id).is_some_and(|live| live.fits(shape))
        });
        if stays {
            if let Some(pod) = self.pods.get_mut(uid) {
                pod.shape = shape.clone();
            }
            return;
        }
        let mut classes = self.leave(uid, now);
        if shape.is_serverless() {
            let candidate = Candidate { shape: shape.clone(), start, reservation: None };
            self.pods.insert(uid.clone(), candidate);
            classes.extend(self.wait(uid, shape, start));
        }
        self.offer(classes, now);
    }

    /// A pod ends.
    pub(crate) fn pod_ended(&mut self, uid: &PodUid, now: Timestamp) {
        let classes = self.leave(uid, now);
        self.offer(classes, now);
    }

    /// Ends all slices at the hour's end.
    pub(crate) fn close(&mut self, now: Timestamp) {
        for id in self.ids() {
            self.close_slice(&id, now);
        }
    }

    /// Makes a reservation's matches fit its description at this instant, and offers what is free.
    fn apply(&mut self, id: &ReservationId, now: Timestamp) {
        let Some(live) = self.live.get_mut(id) else { return };
        let (starts_at, ends_at) = (live.description.starts_at, live.description.ends_at);
        live.active = starts_at <= now && ends_at.is_none_or(|end| now < end);
        let units = if live.active { usize::try_from(live.description.quantity).unwrap_or(0) } else { 0 };
        let pods = &self.pods;
        let fits = |uid: &PodUid| pods.get(uid).is_some_and(|pod| live.fits(&pod.shape));
        let mut lost: Vec<PodUid> = live.matched.keys().filter(|uid| !fits(uid)).cloned().collect();
        let mut kept: Vec<(Timestamp, Timestamp, PodUid)> = Vec::new();
        for (uid, at) in live.matched.iter().filter(|(uid, _)| fits(uid)) {
            kept.push((*at, pods.get(uid).map_or(now, |pod| pod.start), uid.clone()));
        }
        kept.sort_unstable();
        lost.extend(kept.into_iter().skip(units).map(|(_, _, uid)| uid));
        for uid in &lost {
            live.matched.remove(uid);
        }
        let class = live.class();
        let mut classes = self.lose(lost);
        classes.insert(class);
        self.offer(classes, now);
    }

    /// Pods whose match has ended wait again.
    fn lose(&mut self, uids: Vec<PodUid>) -> BTreeSet<Class> {
        let mut classes = BTreeSet::new();
        for uid in uids {
            let Some(pod) = self.pods.get_mut(&uid) else { continue };
            pod.reservation = None;
            let (shape, start) = (pod.shape.clone(), pod.start);
            self.changes.push((uid.clone(), None));
            classes.extend(self.wait(&uid, &shape, start));
        }
        classes
    }

    /// A pod is no candidate any more; says which class may have a free unit now.
    fn leave(&mut self, uid: &PodUid, now: Timestamp) -> BTreeSet<Class> {
        let mut classes = BTreeSet::new();
        let Some(pod) = self.pods.remove(uid) else { return classes };
        match pod.reservation {
            Some(id) => {
                self.close_slice(&id, now);
                self.changes.push((uid.clone(), None));
                if let Some(live) = self.live.get_mut(&id) {
                    live.matched.remove(uid);
                    classes.insert(live.class());
                }
            }
            None => {
                if let Some(waiting) = pod_class(&pod.shape).and_then(|class| self.unmatched.get_mut(&class))
                {
                    waiting.remove(&(pod.start, uid.clone()));
                }
            }
        }
        classes
    }

    fn wait(&mut self, uid: &PodUid, shape: &PodShape, start: Timestamp) -> Option<Class> {
        let class = pod_class(shape)?;
        self.unmatched.entry(class.clone()).or_default().insert((start, uid.clone()));
        Some(class)
    }

    /// Offers the free units of these classes to unmatched pods, oldest first.
    fn offer(&mut self, classes: BTreeSet<Class>, now: Timestamp) {
        for class in classes {
            if !self.live.values().any(|live| live.has_free_unit(now) && live.class() == class) {
                continue;
            }
            let waiting = self.unmatched.get(&class).cloned().unwrap_or_default();
            for (start, uid) in waiting {
                let Some(pod) = self.pods.get_mut(&uid) else { continue };
                let fitting = self
                    .live
                    .iter()
                    .filter(|(_, live)| live.has_free_unit(now) && live.fits(&pod.shape))
                    .min_by_key(|(id, live)| {
                        (live.unit.cpu, live.unit.memory, live.description.created_at, *id)
                    });
                let Some(id) = fitting.map(|(id, _)| id.clone()) else { continue };
                pod.reservation = Some(id.clone());
                self.changes.push((uid.clone(), Some(id.clone())));
                self.close_slice(&id, now);
                if let Some(live) = self.live.get_mut(&id) {
                    live.matched.insert(uid.clone(), now);
                }
                if let Some(waiting) = self.unmatched.get_mut(&class) {
                    waiting.remove(&(start, uid));
                }
            }
        }
    }

    fn close_slice(&mut self, id: &ReservationId, now: Timestamp) {
        let Some(live) = self.live.get_mut(id) else { return };
        if let (true, Some(span)) = (live.active, Span::new(live.since, now)) {
            let used = u64::try_from(live.matched.len()).unwrap_or(u64::MAX);
            let slice = ReservationSlice { span, description: live.description.clone(), used };
            self.slices.entry(id.clone()).or_default().push(slice);
        }
        live.since = now;
    }
}

fn pod_class(shape: &PodShape) -> Option<Class> {
    let pod = &shape.description;
    Some((pod.region.clone()?, pod.gpu_model.clone()?, shape.requests.gpu))
}
