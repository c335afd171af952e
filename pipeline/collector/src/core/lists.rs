//! Handles the objects that a complete list lacks.
//!
//! An announced object that a complete list lacks has ended between two instants. The first is the instant up
//! to which everything was known, and the second is the start of the list. A list that lacks very many
//! objects, or shows no node, is not believed at once, because a truncated cache must not end everything. A
//! list that does not complete says nothing about missing objects.

use std::collections::BTreeSet;

use prorata_schemas::Text;
use prorata_schemas::time::Timestamp;

use super::announce::after;
use super::{Collector, Notice, pods};
use crate::describe::pod::PodEnd;
use crate::object::ObjectKind;
use crate::options::MissedStop;
use crate::state::{Key, Phase};

/// Minimum number of stops that are not believed at once.
const MASS_STOPS_MIN: usize = 10;

/// The purpose of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The list shows what exists.
    Complete,
    /// The list shows whether everything was reported.
    Check,
    /// The list shows the objects that waited before a restart.
    Resume,
}

/// A list that is in progress.
#[derive(Debug)]
pub(super) struct ListInProgress {
    began: Timestamp,
    /// Instant up to which everything was known before the list.
    caught_up: Option<Timestamp>,
    purpose: Purpose,
    /// Ids that the list has shown.
    seen: BTreeSet<Text>,
}

impl ListInProgress {
    pub(super) fn is_check(&self) -> bool {
        self.purpose == Purpose::Check
    }
}

impl Collector {
    pub(super) fn list_begins(&mut self, kind: ObjectKind, now: Timestamp, purpose: Purpose) {
        let known = |kind| self.state.caught_up.get(&kind).copied();
        // Pods that were seen on a node show that it existed: the node ends after all of them.
        let of_pods = known(ObjectKind::Pod).filter(|_| kind == ObjectKind::Node);
        let caught_up = known(kind).max(of_pods);
        // After the other lists, the watch continues where it was.
        if kind == ObjectKind::Pod && purpose == Purpose::Complete {
            self.pods_version = None;
        }
        self.lists.insert(kind, ListInProgress { began: now, caught_up, purpose, seen: BTreeSet::new() });
    }

    /// Records that a list, if one is in progress, has shown an object.
    pub(super) fn note_seen(&mut self, kind: ObjectKind, id: &str) {
        if let Some(list) = self.lists.get_mut(&kind) {
            list.seen.insert(id.into());
        }
    }

    /// Returns whether a list is in progress that shows objects as they are, and not as they were before a
    /// restart.
    pub(super) fn is_in_current_list(&self, kind: ObjectKind) -> bool {
        self.lists.get(&kind).is_some_and(|list| list.purpose != Purpose::Resume)
    }

    /// Returns the instant at which an object that no longer exists ended. It is `now`, or a missed stop if a
    /// list is in progress.
    pub(super) fn unseen_end(&self, key: &Key, now: Timestamp) -> Timestamp {
        match self.lists.get(&key.kind) {
            None => now,
            Some(list) => self.lost_of(key, list),
        }
    }

    /// Returns the instant of an object's missed stop, after all of its events that may have been sent.
    fn lost_of(&self, key: &Key, list: &ListInProgress) -> Timestamp {
        let known = self.state.announced.get(key);
        let intended =
            known.and_then(|known| known.intended_start.map(|start| start.at).max(known.intended_stop));
        self.lost(list).max(intended.map_or(Timestamp(0), after))
    }

    fn lost(&self, list: &ListInProgress) -> Timestamp {
        match self.options.missed_stop {
            MissedStop::Earliest => list.caught_up.unwrap_or(list.began).min(list.began),
            MissedStop::Latest => list.began,
        }
    }

    pub(super) fn list_ends(&mut self, kind: ObjectKind, version: Text, now: Timestamp) {
        // A list whose start is not known may be incomplete.
        let Some(list) = self.lists.remove(&kind) else { return };
        if kind == ObjectKind::Pod {
            self.has_unshown = false;
        }
        if list.purpose == Purpose::Resume {
            return;
        }
        self.drop_unlisted(kind, &list, now);
        if self.is_believed(kind, &list) {
            self.doubts.remove(&kind);
            self.end_unlisted(kind, &list);
            if !list.is_check() {
                self.caught_up_to(kind, version, list.began);
            }
            match kind {
                ObjectKind::GpuPool => self.look_again_at_pools(now),
                ObjectKind::ResourceSlice => {
                    self.slices.1 = true;
                    self.look_again_at_cards(now);
                    self.look_again_at_claims(now);
                }
                _ => {}
            }
        } else if kind == ObjectKind::Pod {
            // The watch continues from here; `caught_up` stays, and so does the bound of the missed stops.
            self.pods_version = None;
        }
    }

    /// Returns whether the objects that the list lacks count as ended.
    fn is_believed(&mut self, kind: ObjectKind, list: &ListInProgress) -> bool {
        let running = || self.state.announced.iter().filter(|(key, _)| key.kind == kind);
        let (mut all, mut stops) = (0, 0);
        for (key, _) in running().filter(|(_, known)| known.phase.is_running()) {
            all += 1;
            stops += usize::from(!list.seen.contains(&key.id));
        }
        let percent = self.options.mass_stop_percent as usize;
        let is_mass = stops >= MASS_STOPS_MIN && stops * 100 > all * percent;
        let lacks_all_nodes = kind == ObjectKind::Node && stops > 0 && list.seen.is_empty();
        if !is_mass && !lacks_all_nodes {
            return true;
        }
        let doubts = self.doubts.entry(kind).or_default();
        *doubts += 1;
        if *doubts >= self.options.mass_stop_confirmations {
            return true;
        }
        self.notices.push(Notice::SuspectList { kind, stops, running: all });
        false
    }

    /// Ends the announced objects that the list lacks.
    fn end_unlisted(&mut self, kind: ObjectKind, list: &ListInProgress) {
        let missing =
            self.state.announced.iter().filter(|(key, _)| key.kind == kind && !list.seen.contains(&key.id));
        let missing: Vec<(Key, bool)> =
            missing.map(|(key, known)| (key.clone(), known.phase.is_running())).collect();
        for (key, is_running) in missing {
            if is_running {
                self.notices.push(Notice::MissedStop {
                    kind,
                    id: key.id.clone(),
                    earliest: list.caught_up.unwrap_or(list.began).min(list.began),
                    latest: list.began,
                });
                if list.is_check() {
                    self.notices.push(Notice::Repaired { kind, name: key.id.to_string() });
                }
            }
            let at = self.lost_of(&key, list);
            match kind {
                ObjectKind::Node => {
                    self.nodes.retain(|_, node| node.node_id != key.id);
                    self.stop_node(&key, at);
                }
                ObjectKind::Pod => {
                    self.stop_pod(&key, at, Some("lost".into()));
                    self.forget(&key);
                }
                _ => self.stop_set(&key, at),
            }
        }
    }

    /// Forgets objects that are only in memory and that the list lacks. A pod that waited is first handled as
    /// a pod that has ended.
    fn drop_unlisted(&mut self, kind: ObjectKind, list: &ListInProgress, now: Timestamp) {
        let is_seen = |id: &Text| list.seen.contains(id);
        match kind {
            ObjectKind::Pod => {
                let gone = self.kept.extract_if(.., |uid, _| !is_seen(uid)).collect::<Vec<_>>();
                for (uid, mut facts) in gone {
                    let known = self.state.announced.get(&pods::key(&uid));
                    if known.is_none_or(|known| known.phase == Phase::Announcing) {
                        if list.is_check() {
                            self.notices.push(Notice::Repaired { kind, name: uid.to_string() });
                        }
                        facts.ended = Some(PodEnd { at: Some(self.lost(list)), reason: Some("lost".into()) });
                        self.pod(facts, now);
                    }
                }
            }
            ObjectKind::Node => self.nodes.retain(|_, node| node.is_announced || is_seen(&node.node_id)),
            ObjectKind::GpuNode => self.retain_gpu_nodes(is_seen, now),
            ObjectKind::ResourceClaim | ObjectKind::ResourceSlice | ObjectKind::DeviceClass => {
                self.devices.retain(kind, is_seen);
            }
            ObjectKind::PersistentVolume => self.volumes.retain(is_seen, now),
            ObjectKind::ElasticQuota | ObjectKind::CompositeElasticQuota | ObjectKind::GpuPool => {}
        }
    }
}
