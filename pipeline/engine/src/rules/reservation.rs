//! Capacity reservations (RULES.md, section 2, Alibaba Cloud ACS): which unit serves which serverless pod.
//!
//! **Decides** only how many units of a reservation are unused: pods pay their own rate in any case.
//!
//! **Precedence**: a starting pod takes the smallest unit that fits, by cpu, memory, then creation, then id.
//! A unit that becomes free is offered at once to running unmatched pods, oldest start first, then uid. Each
//! takes the smallest unit that fits. A match is sticky: it ends only when it no longer satisfies the
//! conditions. When a quantity falls below its number of matches, the pods with the latest match, then start,
//! then uid lose their units and wait again.
//!
//! **Interval ends**: a reservation is effective on [starts_at, ends_at), and each match takes full effect
//! before the next step of the same instant.
//!
//! **Rounding**: none; units are whole.

mod free_units;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{ReservationSet, names};
use prorata_schemas::ids::{PodUid, ReservationId};
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Timestamp;

use crate::model::slices::ReservationSlice;
use crate::model::span::Span;
use crate::model::spec::{Amounts, PodSpec, amounts};
use crate::model::state::SavedReservation;
use crate::trace::{MatchOutcome, MatchStep, Recorder, UnitStep, in_units};
use free_units::{FreeUnits, UnitPlace};
use waiting::{UnitClass, WaitingPods, class, is_best_effort, unit_class};

/// A running serverless pod that can hold a unit.
#[derive(Clone, Debug)]
struct Candidate {
    spec: Arc<PodSpec>,
    start: Timestamp,
    reservation: Option<ReservationId>,
}

/// A reservation since its last slice ended.
#[derive(Debug)]
struct LiveReservation {
    description: Arc<ReservationSet>,
    unit: Amounts,
    active: bool,
    matched: BTreeMap<PodUid, Timestamp>,
    since: Timestamp,
}

/// All reservations, all serverless pods, and the pods that hold units.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    live: BTreeMap<ReservationId, LiveReservation>,
    free: FreeUnits,
    pods: BTreeMap<PodUid, Candidate>,
    /// Pods that held a unit at the hour's start and are still to be restored.
    held: BTreeMap<PodUid, ReservationId>,
    /// Pods that hold no unit.
    waiting: WaitingPods,
    /// Matches that began or ended and have not been taken yet.
    changes: Vec<(PodUid, Option<ReservationId>)>,
    /// Slices of effective reservations so far in the hour.
    slices: BTreeMap<ReservationId, Vec<ReservationSlice>>,
    pub(crate) trace: Recorder<MatchStep>,
}

impl LiveReservation {
    fn class(&self) -> UnitClass {
        unit_class(&self.description.region, &self.description.gpu_model, self.unit.gpu)
    }

    fn place(&self) -> UnitPlace {
        let Self { description, unit, .. } = self;
        (unit.cpu, unit.memory, description.created_at, description.reservation_id.clone())
    }

    fn has_free_unit(&self, now: Timestamp) -> bool {
        let units = usize::try_from(self.description.quantity).unwrap_or(0);
        self.active && self.matched.len() < units && self.description.ends_at.is_none_or(|end| now < end)
    }

    /// Returns whether a unit of the reservation can serve the pod, even if no unit is free.
    fn fits(&self, pod: &PodSpec) -> bool {
        self.refuses(pod).is_none()
    }

    /// Returns the reason why a unit cannot serve the pod; `None` if it can.
    fn refuses(&self, pod: &PodSpec) -> Option<&'static str> {
        let (unit, wanted) = (&self.description, &pod.description);
        let is = |name: Option<&Text>, of_unit: &str, canonical: names::Canonical| {
            name.is_some_and(|name| names::same(name, of_unit, canonical))
        };
        let conditions = [
            (is(wanted.region.as_ref(), &unit.region, names::place), "another region"),
            (
                unit.zone.as_ref().is_none_or(|zone| is(wanted.zone.as_ref(), zone, names::place)),
                "another zone",
            ),
            (is(wanted.gpu_model.as_ref(), &unit.gpu_model, names::gpu_model), "another GPU model"),
            (pod.unit_gpus.is_some(), "the pod holds a part of a GPU"),
            (pod.unit_gpus == Some(self.unit.gpu), "another number of GPUs"),
            (pod.requests.cpu <= self.unit.cpu, "too few vCPUs"),
            (pod.requests.memory <= self.unit.memory, "too little memory"),
            (!is_best_effort(&wanted.qos), "the pod is best-effort"),
        ];
        conditions.into_iter().find(|(holds, _)| !holds).map(|(_, why)| why)
    }
}

impl Reservations {
    /// Creates the reservations at the hour's start from a state. [`Self::restore_pod`] adds the pods
    /// afterwards.
    pub(crate) fn restore(
        states: BTreeMap<ReservationId, SavedReservation>,
        now: Timestamp,
        rules: &Rules,
    ) -> Self {
        let held =
            states.iter().flat_map(|(id, state)| state.matched.keys().map(|uid| (uid.clone(), id.clone())));
        let held = held.collect();
        let live = states.into_iter().map(|(id, state)| {
            let unit = amounts(&state.description.capacity, rules);
            let (active, matched) = (state.active, state.matched);
            (id, LiveReservation { description: state.description, unit, active, matched, since: now })
        });
        let mut reservations = Self { live: live.collect(), held, ..Self::default() };
        reservations.ids().iter().for_each(|id| reservations.note_free(id, now));
        reservations
    }

    /// Returns the description in force of a reservation; `None` if the reservation is not known.
    pub(crate) fn description(&self, id: &ReservationId) -> Option<&Arc<ReservationSet>> {
        self.live.get(id).map(|live| &live.description)
    }

    /// Returns the ids of all reservations.
    pub(crate) fn ids(&self) -> Vec<ReservationId> {
        self.live.keys().cloned().collect()
    }

    /// Restores a pod that was running at the hour's start. Returns the reservation whose unit the pod holds;
    /// `None` if it holds none.
    pub(crate) fn restore_pod(
        &mut self,
        uid: &PodUid,
        spec: &Arc<PodSpec>,
        start: Timestamp,
    ) -> Option<ReservationId> {
        if !spec.is_serverless() {
            return None;
        }
        let reservation = self.held.remove(uid);
        if let Some(id) = &reservation
            && self.trace.wants(|focus| focus.pods.contains(uid))
        {
            let at = self.live.get(id).and_then(|live| live.matched.get(uid));
            let at = at.copied().unwrap_or(start);
            self.trace.push(match_step(at, uid, MatchOutcome::Held, Some(id.clone())));
        }
        if reservation.is_none() {
            self.waiting.add(uid, spec, start);
        }
        let candidate = Candidate { spec: spec.clone(), start, reservation: reservation.clone() };
        self.pods.insert(uid.clone(), candidate);
        reservation
    }

    /// Returns the matches that began or ended since the last call, in order. A match that ended has no
    /// reservation.
    pub(crate) fn take_changes(&mut self) -> Vec<(PodUid, Option<ReservationId>)> {
        std::mem::take(&mut self.changes)
    }

    /// Applies a `ReservationSet`.
    pub(crate) fn set(&mut self, description: Arc<ReservationSet>, now: Timestamp, rules: &Rules) {
        let id = description.reservation_id.clone();
        self.close_slice(&id, now);
        self.withdraw(&id);
        let unit = amounts(&description.capacity, rules);
        match self.live.get_mut(&id) {
            Some(live) => {
                live.description = description;
                live.unit = unit;
            }
            None => {
                let live = LiveReservation {
                    description,
                    unit,
                    active: false,
                    matched: BTreeMap::new(),
                    since: now,
                };
                self.live.insert(id.clone(), live);
            }
        }
        self.apply(&id, now);
    }

    /// Applies a scheduled start, as a `ReservationSet` with the reservation's id would.
    pub(crate) fn start(&mut self, id: &ReservationId, now: Timestamp) {
        self.close_slice(id, now);
        self.apply(id, now);
    }

    /// Applies a scheduled end, unless the reservation has been described again.
    pub(crate) fn end(&mut self, id: &ReservationId, now: Timestamp) {
        if self.live.get(id).is_some_and(|live| live.active && live.description.ends_at == Some(now)) {
            self.close_slice(id, now);
            self.apply(id, now);
        }
    }

    /// Applies a `ReservationReleased`.
    pub(crate) fn release(&mut self, id: &ReservationId, now: Timestamp) {
        self.close_slice(id, now);
        self.withdraw(id);
        if let Some(live) = self.live.remove(id) {
            let classes = self.lose(id, live.matched.into_keys().collect(), now);
            self.offer(classes, now);
        }
    }

    /// Adds a pod that starts.
    pub(crate) fn pod_started(
        &mut self,
        uid: &PodUid,
        spec: &Arc<PodSpec>,
        start: Timestamp,
        now: Timestamp,
    ) {
        if !spec.is_serverless() {
            return;
        }
        let candidate = Candidate { spec: spec.clone(), start, reservation: None };
        self.pods.insert(uid.clone(), candidate);
        // Pods that have waited longer found no unit among the free ones, and no more units are free now.
        if self.waiting.add(uid, spec, start).is_some() {
            self.offer_to(start, uid, now);
        }
        self.note_unmatched(uid, now);
    }

    /// Describes a running pod again. The pod keeps a match that still satisfies the conditions.
    pub(crate) fn pod_described(
        &mut self,
        uid: &PodUid,
        spec: &Arc<PodSpec>,
        start: Timestamp,
        now: Timestamp,
    ) {
        let held = self.pods.get(uid).and_then(|pod| pod.reservation.clone());
        let stays = held
            .is_some_and(|id| spec.is_serverless() && self.live.get(&id).is_some_and(|live| live.fits(spec)));
        if stays {
            if let Some(pod) = self.pods.get_mut(uid) {
                pod.spec = spec.clone();
            }
            return;
        }
        let mut classes = self.leave(uid, now);
        if spec.is_serverless() {
            let candidate = Candidate { spec: spec.clone(), start, reservation: None };
            self.pods.insert(uid.clone(), candidate);
            classes.extend(self.waiting.add(uid, spec, start));
        }
        self.offer(classes, now);
        self.note_unmatched(uid, now);
    }

    /// Removes a pod that ends.
    pub(crate) fn pod_ended(&mut self, uid: &PodUid, now: Timestamp) {
        let classes = self.leave(uid, now);
        self.offer(classes, now);
    }

    /// Ends all slices at the hour's end. Returns the state for the next hour, and the hour's slices.
    pub(crate) fn finish(
        mut self,
        end: Timestamp,
    ) -> (BTreeMap<ReservationId, SavedReservation>, BTreeMap<ReservationId, Vec<ReservationSlice>>) {
        for id in self.ids() {
            self.close_slice(&id, end);
        }
        let states = self.live.into_iter().map(|(id, live)| {
            let LiveReservation { description, active, matched, .. } = live;
            (id, SavedReservation { description, active, matched })
        });
        (states.collect(), self.slices)
    }

    /// Ends the matches that a reservation's description does not allow at this instant, and offers the free
    /// units.
    fn apply(&mut self, id: &ReservationId, now: Timestamp) {
        let Some(live) = self.live.get_mut(id) else { return };
        let (starts_at, ends_at) = (live.description.starts_at, live.description.ends_at);
        live.active = starts_at <= now && ends_at.is_none_or(|end| now < end);
        let units = if live.active { usize::try_from(live.description.quantity).unwrap_or(0) } else { 0 };
        let pods = &self.pods;
        let fits = |uid: &PodUid| pods.get(uid).is_some_and(|pod| live.fits(&pod.spec));
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
        self.note_free(id, now);
        let mut classes = self.lose(id, lost, now);
        classes.insert(class);
        self.offer(classes, now);
    }

    /// Lets pods whose match has ended wait again. Returns the classes in which they wait.
    fn lose(&mut self, id: &ReservationId, uids: Vec<PodUid>, now: Timestamp) -> BTreeSet<UnitClass> {
        let mut classes = BTreeSet::new();
        for uid in uids {
            let Some(pod) = self.pods.get_mut(&uid) else { continue };
            pod.reservation = None;
            let (spec, start) = (pod.spec.clone(), pod.start);
            self.changes.push((uid.clone(), None));
            if self.trace.wants(|focus| focus.pods.contains(&uid)) {
                self.trace.push(match_step(now, &uid, MatchOutcome::Lost, Some(id.clone())));
            }
            classes.extend(self.waiting.add(&uid, &spec, start));
        }
        classes
    }

    /// Removes a candidate. Returns the class that may have a free unit now, if there is one.
    fn leave(&mut self, uid: &PodUid, now: Timestamp) -> BTreeSet<UnitClass> {
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
                self.note_free(&id, now);
            }
            None => self.waiting.remove(uid, &pod.spec, pod.start),
        }
        classes
    }

    /// Offers all free units to unmatched pods, oldest first.
    pub(crate) fn offer_all(&mut self, now: Timestamp) {
        self.offer(self.waiting.classes(), now);
    }

    /// Offers the free units of these classes to unmatched pods, oldest first.
    fn offer(&mut self, classes: BTreeSet<UnitClass>, now: Timestamp) {
        for class in classes {
            while let Some((start, uid)) = self.oldest_that_fits(&class, now) {
                self.offer_to(start, &uid, now);
            }
        }
    }

    /// Returns the oldest unmatched pod of a class for which a fitting unit is free; `None` if there is none.
    fn oldest_that_fits(&self, class: &UnitClass, now: Timestamp) -> Option<(Timestamp, PodUid)> {
        let waiting = self.waiting.oldest_of_each_shape(class);
        let fitting = waiting.filter(|(_, uid)| {
            self.pods.get(uid).is_some_and(|pod| self.smallest_free(&pod.spec, now).is_some())
        });
        fitting.min().cloned()
    }

    /// Returns the reservation with the smallest free unit that serves a pod; `None` if there is none.
    fn smallest_free(&self, pod: &PodSpec, now: Timestamp) -> Option<&ReservationId> {
        let fits = |id: &&ReservationId| {
            self.live.get(*id).is_some_and(|live| live.has_free_unit(now) && live.fits(pod))
        };
        self.free.of(&class(pod)?, pod.requests.cpu).find(fits)
    }

    /// Gives an unmatched pod the smallest free unit that fits, if there is one.
    fn offer_to(&mut self, start: Timestamp, uid: &PodUid, now: Timestamp) {
        let Some(id) = self.pods.get(uid).and_then(|pod| self.smallest_free(&pod.spec, now)) else { return };
        let id = id.clone();
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let spec = pod.spec.clone();
        if self.trace.wants(|focus| focus.pods.contains(uid)) {
            let step = match_step(now, uid, MatchOutcome::Taken, Some(id.clone()));
            self.trace.push(MatchStep { units: units(&self.live, &pod.spec, now), ..step });
        }
        pod.reservation = Some(id.clone());
        self.changes.push((uid.clone(), Some(id.clone())));
        self.close_slice(&id, now);
        if let Some(live) = self.live.get_mut(&id) {
            live.matched.insert(uid.clone(), now);
        }
        self.note_free(&id, now);
        self.waiting.remove(uid, &spec, start);
    }

    /// Records whether a reservation has free units. Call it after each change.
    fn note_free(&mut self, id: &ReservationId, now: Timestamp) {
        let Some(live) = self.live.get(id) else { return };
        if live.has_free_unit(now) {
            self.free.add(live.class(), live.place());
        } else {
            self.free.remove(&live.class(), &live.place());
        }
    }

    /// Withdraws the free units of a reservation that is about to be described again or to end.
    fn withdraw(&mut self, id: &ReservationId) {
        if let Some(live) = self.live.get(id) {
            self.free.remove(&live.class(), &live.place());
        }
    }

    /// Records why a pod in focus has no unit.
    fn note_unmatched(&mut self, uid: &PodUid, now: Timestamp) {
        let Some(pod) = self.pods.get(uid).filter(|pod| pod.reservation.is_none()) else { return };
        if self.trace.wants(|focus| focus.pods.contains(uid)) {
            let step = match_step(now, uid, MatchOutcome::None, None);
            self.trace.push(MatchStep { units: units(&self.live, &pod.spec, now), ..step });
        }
    }

    fn close_slice(&mut self, id: &ReservationId, now: Timestamp) {
        let Some(live) = self.live.get_mut(id) else { return };
        if let (true, Some(span)) = (live.active, Span::new(live.since, now)) {
            let used_units = u64::try_from(live.matched.len()).unwrap_or(u64::MAX);
            let description = live.description.clone();
            let slice =
                ReservationSlice { span, description, used_units, is_billed: false, plans: Vec::new() };
            self.slices.entry(id.clone()).or_default().push(slice);
        }
        live.since = now;
    }
}

fn match_step(
    at: Timestamp,
    uid: &PodUid,
    outcome: MatchOutcome,
    reservation_id: Option<ReservationId>,
) -> MatchStep {
    MatchStep { at, pod_uid: uid.clone(), outcome, reservation_id, units: Vec::new() }
}

/// Returns one unit of every reservation, with the reason if it cannot serve the pod.
fn units(live: &BTreeMap<ReservationId, LiveReservation>, pod: &PodSpec, now: Timestamp) -> Vec<UnitStep> {
    let units = live.iter().map(|(id, live)| UnitStep {
        reservation_id: id.clone(),
        size: in_units(&live.unit),
        created_at: live.description.created_at,
        refused: live.refuses(pod).or_else(|| (!live.has_free_unit(now)).then_some("no unit is free")),
    });
    units.collect()
}

/// Returns the number of units of a slice that no pod holds.
pub(crate) fn unused_units(slice: &ReservationSlice) -> u128 {
    let units = u128::try_from(slice.description.quantity).unwrap_or(0);
    units.saturating_sub(u128::from(slice.used_units))
}
