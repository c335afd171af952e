//! A cluster that writes a log of revisions, and records the life of each pod.

use std::collections::BTreeMap;

use prorata_collector::object::{KubeObject, ObjectKind};

use crate::objects::{BASE_SECONDS, Words, object};

/// A change of an object; the revision number is its position in the log.
#[derive(Clone)]
pub struct Revision {
    pub object: KubeObject,
    pub is_removal: bool,
    /// Time of the change, in microseconds.
    pub at: i64,
}

/// The life of a pod.
#[derive(Debug, Default)]
pub struct Life {
    pub node: String,
    /// Time and revision of the binding.
    pub bound: i64,
    pub bound_in: usize,
    /// Time of the end, according to the object, and its revision.
    pub ended: Option<i64>,
    pub ended_in: Option<usize>,
    /// Revision in which the object was removed.
    pub removed_in: Option<usize>,
}

/// A pod that exists.
#[derive(Clone)]
struct Pod {
    uid: String,
    name: String,
    node: String,
    words: BTreeMap<&'static str, String>,
}

pub struct Cluster {
    pub log: Vec<Revision>,
    seconds: i64,
    nodes: Vec<String>,
    pods: Vec<Pod>,
    /// The uid of the pod whose claim each volume is bound to, by the name of the volume.
    volumes: BTreeMap<String, String>,
    lives: BTreeMap<String, Life>,
    uids: usize,
}

fn clock(seconds: i64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

fn micros(seconds: i64) -> i64 {
    (BASE_SECONDS + seconds) * 1_000_000
}

impl Cluster {
    pub fn new() -> Self {
        let mut cluster = Self {
            log: Vec::new(),
            seconds: 3_600,
            nodes: Vec::new(),
            pods: Vec::new(),
            volumes: BTreeMap::new(),
            lives: BTreeMap::new(),
            uids: 0,
        };
        cluster.add_node();
        cluster.add_node();
        cluster
    }

    pub const fn lives(&self) -> &BTreeMap<String, Life> {
        &self.lives
    }

    /// Returns the instant of the last revision, in microseconds.
    pub fn now(&self) -> i64 {
        micros(self.seconds) + 500_000
    }

    pub const fn pass_seconds(&mut self, seconds: i64) {
        self.seconds += seconds;
    }

    /// Returns a word of a pod that exists.
    pub fn word_of(&self, uid: &str, key: &str) -> Option<&str> {
        self.pods.iter().find(|pod| pod.uid == uid)?.words.get(key).map(String::as_str)
    }

    /// Returns the keys of a pod's volumes.
    pub fn volumes_of(&self, uid: &str) -> Vec<&str> {
        self.volumes.iter().filter(|(_, of)| *of == uid).map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the objects of a kind that exist at a revision, in their last state.
    pub fn objects_at(&self, revision: usize, kind: ObjectKind) -> Vec<KubeObject> {
        let mut there = BTreeMap::new();
        for change in self.log[..revision].iter().filter(|change| change.object.kind() == kind) {
            let uid = change.object.metadata().uid.clone();
            match change.is_removal {
                true => drop(there.remove(&uid)),
                false => drop(there.insert(uid, change.object.clone())),
            }
        }
        there.into_values().collect()
    }

    fn write(&mut self, kind: &str, name: &str, words: &BTreeMap<&'static str, String>, is_removal: bool) {
        let version = (self.log.len() + 1).to_string();
        let words: Vec<String> = words
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .chain([format!("version={version}")])
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let object = object(kind, name, Words::new(&words, micros(self.seconds))).unwrap();
        self.log.push(Revision { object, is_removal, at: micros(self.seconds) + 500_000 });
    }

    pub fn add_node(&mut self) {
        let name = format!("node-{}", self.uids);
        self.uids += 1;
        let words = [("cpu", "64".to_owned()), ("price", "1".to_owned()), ("created", clock(self.seconds))];
        self.write("node", &name, &words.into(), false);
        self.nodes.push(name);
    }

    /// Removes a node, whose pods fail.
    pub fn lose_node(&mut self, a: u8) {
        if self.nodes.len() < 2 {
            return;
        }
        // The first node stays, so that no list is ever without a node.
        let node = self.nodes.remove(1 + usize::from(a) % (self.nodes.len() - 1));
        let words = [("cpu", "64".to_owned()), ("price", "1".to_owned())];
        self.write("node", &node, &words.into(), true);
        self.pass_seconds(41);
        for index in 0..self.pods.len() {
            if self.pods[index].node == node && !self.pods[index].words.contains_key("finished") {
                self.pods[index].words.insert("phase", "Failed".into());
                self.pods[index].words.insert("not-ready", clock(self.seconds));
                self.pods[index].words.insert("finished", clock(self.seconds));
                self.ended(index, self.seconds);
                self.write_pod(index, false);
            }
        }
    }

    fn write_pod(&mut self, index: usize, is_removal: bool) {
        let pod = self.pods[index].clone();
        self.write("pod", &pod.name, &pod.words, is_removal);
        // A volume that was unknown before a restart may change an earlier description. In whole seconds,
        // such a change must not be as late as the end.
        if pod.words.contains_key("volumes") {
            self.pass_seconds(1);
        }
    }

    fn ended(&mut self, index: usize, at: i64) {
        let revision = self.log.len();
        let life = self.lives.get_mut(&self.pods[index].uid).unwrap();
        if life.ended.is_none() {
            (life.ended, life.ended_in) = (Some(micros(at)), Some(revision));
        }
    }

    pub fn create(&mut self, a: u8) {
        self.create_named(format!("pod-{}", self.uids), a);
    }

    fn create_named(&mut self, name: String, a: u8) {
        let uid = format!("uid-{}", self.uids);
        self.uids += 1;
        let mut words = BTreeMap::from([
            ("uid", uid.clone()),
            ("cpu", "1".to_owned()),
            ("created", clock(self.seconds)),
            ("phase", "Pending".to_owned()),
        ]);
        if a.is_multiple_of(2) {
            words.insert("volumes", format!("data-{uid}"));
            words.insert("changed", clock(self.seconds));
        }
        if a.is_multiple_of(4) {
            self.bind_to(&uid, false);
        }
        self.write("pod", &name, &words, false);
        self.pass_seconds(i64::from(a % 3));
        let node = self.nodes[usize::from(a) % self.nodes.len()].clone();
        words.insert("on", node.clone());
        words.insert("scheduled", clock(self.seconds));
        words.insert("phase", "Running".to_owned());
        let life = Life {
            node: node.clone(),
            bound: micros(self.seconds),
            bound_in: self.log.len(),
            ..Life::default()
        };
        self.lives.insert(uid.clone(), life);
        self.pods.push(Pod { uid, name, node, words });
        self.write_pod(self.pods.len() - 1, false);
    }

    /// Returns the position of a running pod.
    fn running(&self, a: u8) -> Option<usize> {
        let running: Vec<usize> =
            (0..self.pods.len()).filter(|index| !self.pods[*index].words.contains_key("finished")).collect();
        running.get(usize::from(a).checked_rem(running.len())?).copied()
    }

    /// Binds a volume to the claim of a running pod that has none yet.
    pub fn bind_volume(&mut self, a: u8, b: u8) {
        let Some(pod) = self.running(a).map(|index| &self.pods[index]) else { return };
        let uid = pod.uid.clone();
        if pod.words.contains_key("volumes") && self.volumes_of(&uid).is_empty() {
            self.bind_to(&uid, b.is_multiple_of(2));
            self.pass_seconds(1);
        }
    }

    /// Binds a new volume to the claim of a pod, or a free one.
    fn bind_to(&mut self, uid: &str, may_reuse: bool) {
        let free = self.free_volume().filter(|_| may_reuse);
        let name = free.unwrap_or_else(|| format!("pv-{}", self.log.len()));
        let words = [
            ("claim", format!("ns/data-{uid}")),
            ("handle", format!("ebs.csi.aws.com/{name}")),
            ("changed", clock(self.seconds)),
        ];
        self.write("volume", &name, &words.into(), false);
        self.volumes.insert(name, uid.to_owned());
    }

    /// Returns a volume whose pod is gone.
    fn free_volume(&self) -> Option<String> {
        let is_free = |(_, of): &(&String, &String)| self.pods.iter().all(|pod| pod.uid != **of);
        self.volumes.iter().find(is_free).map(|(name, _)| name.clone())
    }

    /// Removes a volume whose pod is gone.
    pub fn remove_volume(&mut self) {
        let Some(name) = self.free_volume() else { return };
        self.volumes.remove(&name);
        self.write("volume", &name, &BTreeMap::new(), true);
    }

    pub fn resize(&mut self, a: u8, b: u8) {
        self.change(a, "cpu", (1 + b % 5).to_string());
    }

    pub fn relabel(&mut self, a: u8, b: u8) {
        self.change(a, "label.app", format!("app-{}", b % 3));
    }

    fn change(&mut self, a: u8, key: &'static str, value: String) {
        let Some(index) = self.running(a) else { return };
        let changed = clock(self.seconds);
        self.pods[index].words.insert(key, value);
        self.pods[index].words.insert("changed", changed);
        self.write_pod(index, false);
    }

    pub fn end(&mut self, a: u8, b: u8) {
        let Some(index) = self.running(a) else { return };
        let finished = self.seconds;
        self.pass_seconds(i64::from(b % 3));
        self.pods[index]
            .words
            .insert("phase", if b.is_multiple_of(2) { "Succeeded" } else { "Failed" }.into());
        self.pods[index].words.insert("finished", clock(finished));
        self.ended(index, finished);
        self.write_pod(index, false);
    }

    /// Removes a pod's object; the removal is forced if the pod runs.
    pub fn remove(&mut self, a: u8) {
        if self.pods.is_empty() {
            return;
        }
        let index = usize::from(a) % self.pods.len();
        self.pods[index].words.insert("removed", clock(self.seconds));
        self.ended(index, self.seconds);
        self.lives.get_mut(&self.pods[index].uid).unwrap().removed_in = Some(self.log.len());
        self.write_pod(index, true);
        self.pods.remove(index);
    }

    pub fn recreate(&mut self, a: u8) {
        if self.pods.is_empty() {
            return;
        }
        let name = self.pods[usize::from(a) % self.pods.len()].name.clone();
        self.remove(a);
        self.create_named(name, a);
    }
}

/// Returns whether a revision is of a pod.
pub const fn is_of_pod(revision: &Revision) -> bool {
    matches!(revision.object, KubeObject::Pod(_))
}
