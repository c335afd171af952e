//! A shell that follows a cluster's log, dies, continues and lists.

use std::ops::Range;

use prorata_collector::object::{KubeObject, ObjectKind};
use prorata_collector::{Change, CollectorOptions};
use prorata_schemas::time::Timestamp;

use super::cluster::{Cluster, is_of};
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
    /// Positions in the log up to which revisions of pods and of nodes were delivered.
    pods_at: usize,
    nodes_at: usize,
    /// Position in the log up to which revisions of pods were stored as delivered.
    stored_at: usize,
    /// The oldest revision that the server still has.
    expired: usize,
    now: i64,
    has_nodes: bool,
    has_pods: bool,
}

impl Follower {
    pub fn new() -> Self {
        let mut options = CollectorOptions::new("o".into(), "c".into(), "USD".into());
        options.since = Some(Timestamp(0));
        // One gap may end all pods.
        options.mass_stop_percent = 100;
        Self {
            rig: Rig::new(options),
            gaps: Vec::new(),
            pods_at: 0,
            nodes_at: 0,
            stored_at: 0,
            expired: 0,
            now: 0,
            has_nodes: false,
            has_pods: false,
        }
    }

    fn start(&mut self, cluster: &Cluster) {
        if !self.has_nodes {
            self.has_nodes = true;
            self.list(cluster, true, false);
        }
        if !self.has_pods {
            self.has_pods = true;
            self.list(cluster, false, false);
        }
    }

    /// Delivers revisions of pods.
    pub fn deliver_pods(&mut self, cluster: &Cluster, count: usize) {
        self.start(cluster);
        let end = cluster.log.len().min(self.pods_at + count);
        for revision in cluster.log[self.pods_at..end].iter().filter(|change| is_of(change, false)) {
            self.deliver(&revision.object, revision.is_removal, revision.at);
        }
        self.pods_at = self.pods_at.max(end);
    }

    /// Delivers all revisions of nodes.
    pub fn deliver_nodes(&mut self, cluster: &Cluster) {
        self.start(cluster);
        for revision in cluster.log[self.nodes_at..].iter().filter(|change| is_of(change, true)) {
            self.deliver(&revision.object, revision.is_removal, revision.at);
        }
        self.nodes_at = cluster.log.len();
    }

    fn deliver(&mut self, object: &KubeObject, is_removal: bool, at: i64) {
        let object = object.clone();
        let change = if is_removal { Change::Gone(object) } else { Change::Seen(object) };
        // Time does not go back, although nodes and pods are separate streams.
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
        self.deliver_nodes(cluster);
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
        self.has_nodes = true;
        self.nodes_at = 0;
        self.list(cluster, true, false);
        self.has_pods = true;
        if is_expired {
            self.expired = cluster.log.len();
        }
        let stored = self.rig.stored.pods_version.clone();
        let version = stored.as_ref().map(|pods| pods.version.parse().unwrap());
        let Some(version) = version.filter(|version| *version >= self.expired) else {
            return self.list(cluster, false, false);
        };
        self.pods_at = version;
        if stored.is_some_and(|pods| pods.has_waiting) {
            let breaks_off = b % 3 == 0;
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
        let objects = cluster.objects_at(version, false);
        let shown = if breaks_off { objects.len() / 2 } else { objects.len() };
        for object in &objects[..shown] {
            self.deliver(object, false, self.now);
        }
        if !breaks_off {
            self.rig.apply(Change::ListEnds(ObjectKind::Pod, version.to_string().as_str().into()), self.now);
        }
    }

    /// Lists nodes and pods because the watches are too old, optionally after a list of pods that breaks off.
    pub fn relist(&mut self, cluster: &Cluster, breaks_off: bool) {
        self.start(cluster);
        self.expired = cluster.log.len();
        self.list(cluster, true, false);
        if breaks_off {
            self.list(cluster, false, true);
        }
        self.list(cluster, false, false);
    }

    fn list(&mut self, cluster: &Cluster, is_node: bool, breaks_off: bool) {
        let kind = if is_node { ObjectKind::Node } else { ObjectKind::Pod };
        let (revision, now) = (cluster.log.len(), cluster.now());
        let known = self.rig.collector.state().caught_up.get(&kind).map(|at| at.0);
        let now = now.max(self.now);
        self.rig.apply(Change::ListBegins(kind), now);
        let objects = cluster.objects_at(revision, is_node);
        let shown = if breaks_off { objects.len() / 2 } else { objects.len() };
        for object in &objects[..shown] {
            self.deliver(object, false, now);
        }
        if breaks_off {
            return;
        }
        self.rig.apply(Change::ListEnds(kind, revision.to_string().as_str().into()), now);
        let caught_up = known.unwrap_or(0).min(now);
        if !is_node {
            self.gaps.push(Gap { revisions: self.pods_at..revision, caught_up, began: now });
            self.pods_at = revision;
        } else {
            self.nodes_at = revision;
        }
    }
}
