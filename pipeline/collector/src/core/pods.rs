//! Events of pods.

use std::time::Duration;

use prorata_schemas::Text;
use prorata_schemas::event::{Payload, PodStarted, PodStopped};
use prorata_schemas::ids::PodUid;
use prorata_schemas::time::Timestamp;

use super::announce::{Named, Since, after};
use super::{Collector, Notice};
use crate::describe::pod::{PodEnd, PodFacts};
use crate::object::{ObjectKind, PodObject};
use crate::sharing::{PodShare, ShareFault, gpus};
use crate::state::{Announced, Key, Phase};

/// Maximum time that a pod waits for the objects that it names. A pod may be bound to a node that never
/// appears.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(300);

/// The name of the scheme for claimed devices that several pods share, or that are parts of a card.
const DRA: &str = "dra";

/// Returns the key of a pod.
pub(super) fn key(uid: &str) -> Key {
    Key { kind: ObjectKind::Pod, id: uid.into() }
}

impl Collector {
    pub(super) fn pod_seen(&mut self, pod: &PodObject, now: Timestamp) {
        self.note_seen(ObjectKind::Pod, &pod.metadata.uid);
        let mut facts = PodFacts::read(pod, &self.options);
        facts.is_current = self.is_in_current_list(ObjectKind::Pod);
        self.pod(facts, now);
    }

    pub(super) fn pod_gone(&mut self, pod: &PodObject, now: Timestamp) {
        let mut facts = PodFacts::read(pod, &self.options);
        if facts.ended.is_none() {
            let disrupted =
                pod.status.conditions.iter().find(|condition| condition.r#type == "DisruptionTarget");
            let reason = pod.status.reason.clone().or_else(|| disrupted?.reason.clone());
            facts.ended = Some(PodEnd { at: facts.removed, reason });
        }
        let key = key(&facts.uid);
        self.pod(facts, now);
        self.kept.remove(&key.id);
        self.forget(&key);
    }

    /// Takes the facts of a pod: announces it, lets it wait for the objects that it needs, or stops it.
    pub(super) fn pod(&mut self, mut facts: PodFacts, now: Timestamp) {
        let key = key(&facts.uid);
        let phase = self.state.announced.get(&key).map(|known| known.phase);
        if facts.node_name.is_empty() || phase == Some(Phase::Stopped) {
            return;
        }
        let name = || format!("{}/{}", facts.description.namespace, facts.description.pod_name);
        if !facts.faults.is_empty() {
            let (name, faults) = (name(), std::mem::take(&mut facts.faults));
            self.unreadable(ObjectKind::Pod, name, faults);
        }
        if let Some(end) = facts.ended.clone() {
            self.kept.remove(&facts.uid);
            self.pod_ended(key, &facts, &end, now);
            return;
        }
        let Some(starts) = facts.starts else { return };
        let kept = self.kept.get(&facts.uid);
        facts.is_current |= kept.is_some_and(|kept| kept.is_current);
        let waits_since = kept.and_then(|kept| kept.waits_since).unwrap_or(now);
        facts.waits_since = Some(waits_since);
        let awaits_slices = !facts.claims.is_empty() && self.awaits_slices(now);
        let may_wait = waits_since > now.before(WAIT_MAX);
        match self.placed(&facts, may_wait).filter(|_| !(awaits_slices && may_wait)) {
            None => drop(self.kept.insert(facts.uid.clone(), facts)),
            Some(placed) => {
                if placed.missing.is_empty() {
                    facts.waits_since = None;
                } else if !matches!(phase, Some(Phase::Started | Phase::Changed)) {
                    let missing = placed.missing.join(" and ");
                    self.notices.push(Notice::SentWithout { pod: name(), missing });
                }
                let start = starts.max(self.since()).max(placed.least).min(now.max(placed.least));
                let recorded = facts.changed.max(placed.changed);
                let change = recorded.unwrap_or(now).min(now);
                let since = Since { start, change, recorded, is_current: placed.is_current(&facts) };
                self.announce_pod(key, &facts, placed.description, since);
                let depends = !facts.claims.is_empty() || facts.pool.is_some() || facts.gpus.is_some();
                if !depends && !placed.lacks_volume && facts.waits_since.is_none() {
                    self.kept.remove(&facts.uid);
                } else {
                    self.kept.insert(facts.uid.clone(), facts);
                }
            }
        }
    }

    /// Ends a pod. A pod that was not announced, because it was never seen running or because it waited, is
    /// announced first. A pod that ended before collection began is never announced.
    fn pod_ended(&mut self, key: Key, facts: &PodFacts, end: &PodEnd, now: Timestamp) {
        let at = end.at.unwrap_or(now).min(now);
        let phase = self.state.announced.get(&key).map(|known| known.phase);
        let starts = facts.starts.map(|starts| starts.max(self.since()));
        match (phase, starts) {
            (Some(Phase::Started | Phase::Changed), _) => {}
            (Some(Phase::EndedByNode), _) | (None, None) => return self.mark_stopped(key, at),
            (None | Some(Phase::Announcing), Some(start)) if at >= start && at > self.since() => {
                let Some(placed) = self.placed(facts, false) else { return };
                let start = start.max(placed.least);
                let recorded = facts.changed.max(placed.changed);
                let since = Since { start, change: start, recorded, is_current: placed.is_current(facts) };
                self.announce_pod(key.clone(), facts, placed.description, since);
            }
            (None, Some(_)) => return self.mark_stopped(key, at),
            _ => {}
        }
        self.stop_pod(&key, at, end.reason.clone());
    }

    fn announce_pod(&mut self, key: Key, facts: &PodFacts, description: PodStarted, since: Since) {
        let node_id = description.node_id.clone().map(Text::from).unwrap_or_default();
        let (namespace, name) = (facts.description.namespace.clone(), facts.description.pod_name.clone());
        let named = Named { subject: node_id, namespace, name };
        self.announce(key, named, Payload::PodStarted(Box::new(description)), since);
    }

    /// Stops a running pod.
    pub(super) fn stop_pod(&mut self, key: &Key, at: Timestamp, reason: Option<Text>) {
        let Some(known) = self.state.announced.get_mut(key) else { return };
        if known.phase == Phase::EndedByNode {
            known.phase = Phase::Stopped;
            self.changed.insert(key.clone());
            return;
        }
        let stopped = PodStopped {
            cluster_id: self.options.cluster_id.clone(),
            namespace: known.namespace.clone(),
            pod_uid: PodUid::from(key.id.clone()),
            reason,
        };
        self.announce_stop(key, at, Payload::PodStopped(stopped));
    }

    /// Builds a pod's whole description from its node, its pool, its claims and its volumes. Returns `None`
    /// if one of the first three is not known and the pod `may_wait`. Volumes change no price, so they may
    /// come later.
    fn placed(&mut self, facts: &PodFacts, may_wait: bool) -> Option<Placed> {
        let mut description = facts.description.clone();
        let mut least = Timestamp(0);
        let mut missing = Vec::new();
        match self.nodes.get(&facts.node_name) {
            Some(node) if node.facts.is_virtual => {
                description.region = Some(node.facts.description.region.clone());
                description.zone.clone_from(&node.facts.description.zone);
            }
            Some(node) if node.facts.is_initialized || !may_wait => {
                description.node_id = Some(node.node_id.clone().into());
                least = node.least;
                if !node.facts.is_initialized {
                    missing.push(format!("node '{}', which is not initialized", facts.node_name));
                }
            }
            None if !may_wait => {
                description.node_id = Some(facts.node_name.clone().into());
                missing.push(format!("node '{}'", facts.node_name));
            }
            _ => return None,
        }
        let mut changed = None;
        if let Some(pool) = &facts.pool {
            let known = self.state.announced.get(&Key { kind: ObjectKind::GpuPool, id: pool.id.clone() });
            changed = known.map(|known| known.last);
            if known.is_some_and(|known| known.phase.is_running()) {
                pool.apply(&mut description, &self.options);
            } else if !self.state.caught_up.contains_key(&ObjectKind::GpuPool) {
                if may_wait {
                    return None;
                }
                missing.push("the GPU pools".to_owned());
            }
        }
        if self.options.watched.contains(&ObjectKind::ResourceClaim) && !facts.claims.is_empty() {
            match self.devices.claimed(&facts.claims, &self.options) {
                None if may_wait => return None,
                None => missing.push("its claims".to_owned()),
                Some(claimed) => {
                    // This counts the requests alone, before the claims are added.
                    let counted = description.size(&self.options.gpu_resources).gpu_millis;
                    if let Some(part) = claimed.gpus
                        && let Some(millis) = part.thousandths()
                    {
                        description.gpus = Some(gpus(counted.saturating_add(millis)));
                        description.gpu_sharing = Some(DRA.into());
                    }
                    crate::describe::add(&mut description.requests, &claimed.quantities);
                    crate::describe::add(&mut description.limits, &claimed.quantities);
                    changed = changed.max(claimed.changed);
                    if !claimed.unmapped.is_empty() {
                        let pod = format!("{}/{}", description.namespace, description.pod_name);
                        self.notices.push(Notice::UnmappedDevices { pod, devices: claimed.unmapped });
                    }
                }
            }
        }
        if description.gpus.is_none() {
            self.share_gpus(facts, &mut description);
        }
        let mounted = self.volumes.mounted(&facts.volumes);
        description.volume_keys = mounted.keys;
        changed = changed.max(mounted.changed);
        Some(Placed { description, changed, least, missing, lacks_volume: mounted.lacks_any })
    }

    /// Adds to a pod's description the part of its node's GPUs that the pod holds. An unknown part is
    /// reported.
    fn share_gpus(&mut self, facts: &PodFacts, description: &mut PodStarted) {
        let Some(node) = self.nodes.get(&facts.node_name).filter(|node| !node.facts.is_virtual) else {
            return;
        };
        let share = facts.gpus.as_ref().and_then(|gpus| gpus.share(&node.facts.gpus, self.options.gpus()));
        let Some(PodShare { scheme, gpus }) = share else { return };
        description.gpu_sharing = Some(scheme);
        match gpus {
            Ok(gpus) => description.gpus = Some(gpus),
            Err(ShareFault { reason, what }) => {
                let pod = format!("pod {}/{}", description.namespace, description.pod_name);
                self.gpu_fault(&facts.node_name, ShareFault { reason, what: format!("{pod}: {what}") });
            }
        }
    }

    /// Reprocesses the pods that waited for this node, or share its GPUs.
    pub(super) fn look_again_on_node(&mut self, name: &str, now: Timestamp) {
        let waiting = self.kept.values().filter(|facts| *facts.node_name == *name);
        for facts in waiting.cloned().collect::<Vec<_>>() {
            self.pod(facts, now);
        }
    }

    /// Processes again the pods that have claims.
    pub(super) fn look_again_at_claims(&mut self, now: Timestamp) {
        let claiming = self.kept.values().filter(|facts| !facts.claims.is_empty());
        for facts in claiming.cloned().collect::<Vec<_>>() {
            self.pod(facts, now);
        }
    }

    /// Reprocesses the pods that mount the volume of this claim and were sent without it.
    pub(super) fn look_again_at_volume(&mut self, claim: &Text, now: Timestamp) {
        let mounting = self.kept.values().filter(|facts| facts.volumes.contains(claim));
        for facts in mounting.cloned().collect::<Vec<_>>() {
            self.pod(facts, now);
        }
    }

    /// Reprocesses the pods that name a pool.
    pub(super) fn look_again_at_pools(&mut self, now: Timestamp) {
        let naming = self.kept.values().filter(|facts| facts.pool.is_some());
        for facts in naming.cloned().collect::<Vec<_>>() {
            self.pod(facts, now);
        }
    }

    /// Reprocesses the pods that have waited too long, so that they are sent without the missing objects.
    pub(super) fn end_waits(&mut self, now: Timestamp) {
        let is_sent = |uid: &Text| {
            let known = self.state.announced.get(&key(uid));
            known.is_some_and(|known| known.phase != Phase::Announcing)
        };
        let waited = |facts: &&PodFacts| facts.waits_since.is_some_and(|since| since <= now.before(WAIT_MAX));
        let due = self.kept.values().filter(waited).filter(|facts| !is_sent(&facts.uid));
        for facts in due.cloned().collect::<Vec<_>>() {
            self.pod(facts, now);
        }
    }

    /// Marks the pods that the stop of a node has ended. A pod whose start is only intended keeps its phase,
    /// because the start may not have been sent.
    pub(super) fn end_pods_of_node(&mut self, node_id: &str) {
        let of_node = |(key, known): &(&Key, &mut Announced)| {
            let was_sent = matches!(known.phase, Phase::Started | Phase::Changed);
            key.kind == ObjectKind::Pod && was_sent && *known.subject == *node_id
        };
        for (key, known) in self.state.announced.iter_mut().filter(of_node) {
            known.phase = Phase::EndedByNode;
            self.changed.insert(key.clone());
        }
    }

    /// Returns the first instant after all events of a node's pods that may have been sent.
    pub(super) fn last_of_pods(&self, node_id: &str) -> Timestamp {
        let of_node = self.state.announced.iter().filter(|(key, known)| {
            key.kind == ObjectKind::Pod && known.phase.is_running() && *known.subject == *node_id
        });
        let last = of_node
            .map(|(_, known)| known.intended_start.map_or(known.last, |intended| intended.at.max(known.last)))
            .max();
        last.map_or(Timestamp(0), after)
    }

    /// Returns whether pods that the stop of a node has ended may still exist.
    pub(super) fn has_ended_pods(&self, node_id: &str) -> bool {
        self.state
            .announced
            .values()
            .any(|known| known.phase == Phase::EndedByNode && *known.subject == *node_id)
    }

    /// Returns the first instant after an announced object's last event.
    pub(super) fn after_last(&self, key: &Key) -> Timestamp {
        self.state.announced.get(key).map_or(Timestamp(0), |known| after(known.last))
    }
}

/// A pod's description with its node, pool, claims and volumes.
struct Placed {
    description: PodStarted,
    /// The last change of an object that the description depends on.
    changed: Option<Timestamp>,
    /// The instant from which the pod's node runs.
    least: Timestamp,
    /// Unknown names to which the pod refers, for messages.
    missing: Vec<String>,
    /// Whether a volume of the pod is not known yet.
    lacks_volume: bool,
}

impl Placed {
    /// Returns whether the description is the pod's present one, and may be sent for a later instant.
    fn is_current(&self, facts: &PodFacts) -> bool {
        // The stop of a node ends its pods, and no description may follow it.
        facts.is_current && self.missing.is_empty()
    }
}
