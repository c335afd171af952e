//! A shell that follows a cluster's log, dies, continues and lists.

use std::ops::Range;

use prorata_collector::object::{KubeObject, ObjectKind};
use prorata_collector::{Change, CollectorOptions};
use prorata_schemas::time::Timestamp;

use super::cluster::{Cluster, is_of_pod};
use crate::rig::{Cut, Rig};

/// A part of the log that was never delivered.
#[derive(Debug)]
pub struct Gap {
    pub revisions: Range<usize>,
    /// Time up to which everything was known.
    pub caught_up: i64,
    /// Start of the list.
    pub began: i64,
}

pub struct Follower {
    pub rig: Rig,
    pub gaps: Vec<Gap>,
    /// Positions in the log up to which revisions of pods, and of all other kinds, were delivered.
    pods_at: usize,
    others_at: usize,
    /// Position in the log up to which revisions of pods were stored as delivered.
    stored_at: usize,
    /// The oldest revision that the server still has.
    expired: usize,
    now: i64,
    has_others: bool,
    has_pods: bool,
}

impl Follower {
    pub fn new() -> Self {
        let mut options = CollectorOptions::new("o".into(), "c".into(), "USD".into());
        options.since = Some(Timestamp(0));
        options.watched.insert(ObjectKind::PersistentVolume);
        // One gap may end all pods.
        options.mass_stop_percent = 100;
        Self {
            rig: Rig::new(options),
            gaps: Vec::new(),
            pods_at: 0,
            others_at: 0,
            stored_at: 0,
            expired: 0,
            now: 0,
            has_others: false,
            has_pods: false,
        }
    }

    fn start(&mut self, cluster: &Cluster) {
        if !self.has_others {
            self.list_others(cluster);
        }
        if !self.has_pods {
            self.has_pods = true;
            self.list(cluster, ObjectKind::Pod, false);
        }
    }

    /// Delivers revisions of pods.
    pub fn deliver_pods(&mut self, cluster: &Cluster, count: usize) {
        self.start(cluster);
        let end = cluster.log.len().min(self.pods_at + count);
        for revision in cluster.log[self.pods_at..end].iter().filter(|change| is_of_pod(change)) {
            self.deliver(&revision.object, revision.is_removal, revision.at);
        }
        self.pods_at = self.pods_at.max(end);
    }

    /// Delivers all revisions of nodes and volumes.
    pub fn deliver_others(&mut self, cluster: &Cluster) {
        self.start(cluster);
        for revision in cluster.log[self.others_at..].iter().filter(|change| !is_of_pod(change)) {
            self.deliver(&revision.object, revision.is_removal, revision.at);
        }
        self.others_at = cluster.log.len();
    }

    fn deliver(&mut self, object: &KubeObject, is_removal: bool, at: i64) {
        let object = object.clone();
        let change = if is_removal { Change::Gone(object) } else { Change::Seen(object) };
        // Time does not go back, although pods and other kinds are separate streams.
        self.now = self.now.max(at);
        self.rig.apply(change, self.now);
    }

    pub fn commit(&mut self) {
        self.rig.commit();
        // Pods that wait are not stored, so a gap may hide them.
        if self.rig.stored.pods_version.as_ref().is_some_and(|pods| !pods.has_waiting) {
            self.stored_at = self.pods_at;
        }
    }

    pub fn follow_all(&mut self, cluster: &Cluster) {
        self.deliver_others(cluster);
        self.deliver_pods(cluster, cluster.log.len());
        self.commit();
    }

    /// Dies in a batch, and continues from the stored version, or with a list if that version is too old. May
    /// die again before it has continued.
    pub fn die(&mut self, cluster: &Cluster, b: u8, is_expired: bool) {
        self.pods_at = self.stored_at;
        self.rig.cut(match b % 4 {
            0 => Cut::BeforeIntents,
            1 => Cut::BeforeEvents,
            _ => Cut::AfterEvents(usize::from(b / 4) % 6),
        });
        self.list_others(cluster);
        self.has_pods = true;
        if is_expired {
            self.expired = cluster.log.len();
        }
        let stored = self.rig.stored.pods_version.clone();
        let version = stored.as_ref().map(|pods| pods.version.parse().unwrap());
        let Some(version) = version.filter(|version| *version >= self.expired) else {
            return self.list(cluster, ObjectKind::Pod, false);
        };
        self.pods_at = version;
        if stored.is_some_and(|pods| pods.has_waiting) {
            let breaks_off = b.is_multiple_of(3);
            self.resume(cluster, version, breaks_off);
            if breaks_off {
                self.rig.commit();
                self.die(cluster, b / 3 + 1, false);
            }
        }
    }

    /// Lists pods as of the stored version.
    fn resume(&mut self, cluster: &Cluster, version: usize, breaks_off: bool) {
        self.now = self.now.max(cluster.now());
        self.rig.apply(Change::ResumeBegins(ObjectKind::Pod), self.now);
        let objects = cluster.objects_at(version, ObjectKind::Pod);
        let shown = if breaks_off { objects.len() / 2 } else { objects.len() };
        for object in &objects[..shown] {
            self.deliver(object, false, self.now);
        }
        if !breaks_off {
            self.rig.apply(Change::ListEnds(ObjectKind::Pod, version.to_string().as_str().into()), self.now);
        }
    }

    /// Lists everything because the watches are too old, optionally after a list of pods that breaks off.
    pub fn relist(&mut self, cluster: &Cluster, breaks_off: bool) {
        self.start(cluster);
        self.expired = cluster.log.len();
        self.list_others(cluster);
        if breaks_off {
            self.list(cluster, ObjectKind::Pod, true);
        }
        self.list(cluster, ObjectKind::Pod, false);
    }

    /// Lists nodes and volumes.
    fn list_others(&mut self, cluster: &Cluster) {
        self.has_others = true;
        self.list(cluster, ObjectKind::Node, false);
        self.list(cluster, ObjectKind::PersistentVolume, false);
        self.others_at = cluster.log.len();
    }

    fn list(&mut self, cluster: &Cluster, kind: ObjectKind, breaks_off: bool) {
        let (revision, now) = (cluster.log.len(), cluster.now());
        let known = self.rig.collector.state().caught_up.get(&kind).map(|at| at.0);
        let now = now.max(self.now);
        self.rig.apply(Change::ListBegins(kind), now);
        let objects = cluster.objects_at(revision, kind);
        let shown = if breaks_off { objects.len() / 2 } else { objects.len() };
        for object in &objects[..shown] {
            self.deliver(object, false, now);
        }
        if breaks_off {
            return;
        }
        self.rig.apply(Change::ListEnds(kind, revision.to_string().as_str().into()), now);
        let caught_up = known.unwrap_or(0).min(now);
        if kind == ObjectKind::Pod {
            self.gaps.push(Gap { revisions: self.pods_at..revision, caught_up, began: now });
            self.pods_at = revision;
        }
    }
}
