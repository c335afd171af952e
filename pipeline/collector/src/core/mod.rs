//! The collector: it takes changes of objects, and returns events and the state to store.
//!
//! Reading order: [`Collector::apply`] here; `pods` and `nodes` for the events of one object; `lists` for the
//! objects that a complete list lacks; `sets` for quotas and pools; `announce` for times and repeats.

mod announce;
mod lists;
mod nodes;
mod pods;
mod sets;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::Event;
use prorata_schemas::time::{HOUR_MICROS, Timestamp};

use crate::describe::devices::{Devices, claim_name};
use crate::describe::node::GpuNodeFacts;
use crate::describe::pod::PodFacts;
use crate::describe::volumes::Volumes;
use crate::object::{KubeObject, ObjectKind};
use crate::options::CollectorOptions;
use crate::prices::PriceBook;
use crate::sharing::FaultReason;
use crate::state::{Announced, CollectorState, Key, Phase, PodsVersion};

use announce::Intent;
use lists::{ListInProgress, Purpose};
use nodes::KnownNode;

/// An input of the collector.
#[derive(Clone, Debug)]
pub enum Change {
    /// A list of this kind begins. Objects that an earlier, unfinished list has shown stay valid. An object
    /// that the unfinished list lacks may still exist.
    ListBegins(ObjectKind),
    /// Like [`Self::ListBegins`], but the list is as of the version up to which everything was already
    /// reported. The list shows only known objects, unless something went wrong.
    CheckBegins(ObjectKind),
    /// After a restart, a list begins as of [`CollectorState::pods_version`]. The list shows the pods that
    /// waited. It ends no object, because an announced object may be newer than the list.
    ResumeBegins(ObjectKind),
    /// An object in its present state, from a list or a watch.
    Seen(KubeObject),
    /// The last revision of an object that is gone.
    Gone(KubeObject),
    /// The latest list of this kind is complete, as of this resource version.
    ListEnds(ObjectKind, Text),
    /// Every change of this kind up to this resource version was reported.
    Bookmark(ObjectKind, Text),
    /// The prices have changed.
    Prices(Arc<PriceBook>),
    /// Time has passed: prices may change, and entries that are kept for a limited time are dropped.
    Tick,
}

/// A notice for people and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A part of an object could not be read, and counts as absent.
    Unreadable {
        /// Kind of the object.
        kind: ObjectKind,
        /// Namespace and name of the object.
        name: String,
        /// The error.
        fault: String,
    },
    /// A node has no price. The node is held back, and its pods have no price either.
    UnpricedNode {
        /// Name of the node.
        name: Text,
        /// Provider, region, instance type, operating system and capacity type, as in a price list.
        wanted: String,
    },
    /// A pod has waited too long, and is sent without the missing objects that it names.
    SentWithout {
        /// The pod's namespace and name.
        pod: String,
        /// The missing objects.
        missing: String,
    },
    /// Some devices of a pod have no resource name.
    UnmappedDevices {
        /// The pod's namespace and name.
        pod: String,
        /// Driver and device of each unmapped device.
        devices: Vec<String>,
    },
    /// A part of the GPUs of a node is not known. Each reason is reported once.
    UnknownGpuShare {
        /// Name of the node.
        node: Text,
        /// The reason why the part is not known.
        reason: FaultReason,
        /// The cause.
        what: String,
    },
    /// An object ended between these two instants, and its stop was not seen.
    MissedStop {
        /// Kind of the object.
        kind: ObjectKind,
        /// Id of the object.
        id: Text,
        /// Start of the span.
        earliest: Timestamp,
        /// End of the span.
        latest: Timestamp,
    },
    /// A check has found a change that was reported wrongly or not at all, and has fixed it.
    Repaired {
        /// Kind of the object.
        kind: ObjectKind,
        /// Namespace and name of the object, or its id if it is gone.
        name: String,
    },
    /// A list would end very many objects at once. The list is not believed yet; the kind must be listed
    /// again in a minute.
    SuspectList {
        /// Kind of the objects.
        kind: ObjectKind,
        /// Number of objects that the list would end.
        stops: usize,
        /// Number of running objects.
        running: usize,
    },
    /// A node started again and may bring back objects of this kind. The kind must be listed again.
    Relist(ObjectKind),
}

/// Events to send, and the entries to store before and after. See [`CollectorState`] for the order.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Entries to store before anything is sent. They hold the latest times of the starts and stops that may
    /// be sent from then on.
    pub intents: Vec<(Key, Announced)>,
    /// Events, in the order in which they happened.
    pub events: Vec<Event>,
    /// Entries to store after the events are acknowledged. `None` if the entry is to be removed.
    pub changes: Vec<(Key, Option<Announced>)>,
    /// The instant from which events are collected: to be stored with the intents.
    pub since: Option<Timestamp>,
    /// The time up to which each kind is known: to be stored with the changes.
    pub caught_up: BTreeMap<ObjectKind, Timestamp>,
    /// The version from which a watch of pods continues: to be stored with the changes. `None` if pods must
    /// be listed first.
    pub pods_version: Option<PodsVersion>,
    /// Notices for people and metrics.
    pub notices: Vec<Notice>,
}

/// Turns changes of the objects of one cluster into events.
#[derive(Debug)]
pub struct Collector {
    options: CollectorOptions,
    prices: Arc<PriceBook>,
    state: CollectorState,
    /// Nodes by name.
    nodes: BTreeMap<Text, KnownNode>,
    gpu_nodes: BTreeMap<Text, GpuNodeFacts>,
    devices: Devices,
    volumes: Volumes,
    /// The time of the first input, and whether slices were listed since then.
    slices: (Option<Timestamp>, bool),
    /// Pods that wait for their node, pool or claims, or were sent without them or a volume. Also all pods
    /// that name a pool, have claims for devices, or may share GPUs.
    kept: BTreeMap<Text, PodFacts>,
    lists: BTreeMap<ObjectKind, ListInProgress>,
    /// Number of consecutive lists that were not believed.
    doubts: BTreeMap<ObjectKind, u32>,
    /// The resource version that the watch of pods has reached.
    pods_version: Option<Text>,
    /// Whether pods waited when the stored state was written, and no list has shown them since.
    has_unshown: bool,
    changed: BTreeSet<Key>,
    intents: BTreeMap<Key, Intent>,
    events: Vec<Event>,
    notices: Vec<Notice>,
}

impl Collector {
    /// Creates a collector that continues from a stored state. Every kind except pods must be listed first.
    /// Pods must be listed only if [`CollectorState::pods_version`] is `None`, too old, or has waiting pods.
    pub fn new(options: CollectorOptions, prices: Arc<PriceBook>, state: CollectorState) -> Self {
        Self {
            options,
            prices,
            pods_version: state.pods_version.as_ref().map(|pods| pods.version.clone()),
            has_unshown: state.pods_version.as_ref().is_some_and(|pods| pods.has_waiting),
            state,
            nodes: BTreeMap::new(),
            gpu_nodes: BTreeMap::new(),
            devices: Devices::default(),
            volumes: Volumes::default(),
            slices: (None, false),
            kept: BTreeMap::new(),
            lists: BTreeMap::new(),
            doubts: BTreeMap::new(),
            changed: BTreeSet::new(),
            intents: BTreeMap::new(),
            events: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Takes one change that arrived at `now`, the API server's time. Call [`Self::take_batch`] after any
    /// number of changes.
    pub fn apply(&mut self, change: Change, now: Timestamp) {
        if self.state.since.is_none() {
            self.state.since = Some(self.options.since.unwrap_or(Timestamp(now.seconds() * 1_000_000)));
        }
        self.slices.0.get_or_insert(now);
        match change {
            Change::ListBegins(kind) => self.list_begins(kind, now, Purpose::Complete),
            Change::CheckBegins(kind) => {
                // Prices that have changed meanwhile are not an error.
                self.look_again_at_prices(now);
                self.list_begins(kind, now, Purpose::Check);
            }
            Change::ResumeBegins(kind) => self.list_begins(kind, now, Purpose::Resume),
            Change::Seen(object) => {
                self.catch_up(&object, now);
                self.seen_once(object, now);
            }
            Change::Gone(object) => {
                self.catch_up(&object, now);
                self.gone(object, now);
            }
            Change::ListEnds(kind, version) => self.list_ends(kind, version, now),
            Change::Bookmark(kind, version) => {
                if !self.lists.contains_key(&kind) {
                    self.caught_up_to(kind, version, now);
                }
            }
            Change::Prices(prices) => self.set_prices(prices, now),
            Change::Tick => self.tick(now),
        }
    }

    /// Returns the events and entries since the last batch.
    pub fn take_batch(&mut self) -> Batch {
        let has_waiting = self.has_unshown || self.waiting_pods() > 0;
        let pods_version = self.pods_version.clone().map(|version| PodsVersion { version, has_waiting });
        self.state.pods_version.clone_from(&pods_version);
        let announced = &self.state.announced;
        let intent = |(key, intent): (Key, Intent)| {
            let entry = intent.entry(announced.get(&key));
            (key, entry)
        };
        let change = |key: Key| {
            let announced = announced.get(&key).cloned();
            (key, announced)
        };
        Batch {
            intents: mem::take(&mut self.intents).into_iter().map(intent).collect(),
            changes: mem::take(&mut self.changed).into_iter().map(change).collect(),
            events: mem::take(&mut self.events),
            since: self.state.since,
            caught_up: self.state.caught_up.clone(),
            pods_version,
            notices: mem::take(&mut self.notices),
        }
    }

    /// Returns the announced objects, and the time up to which each kind is known.
    pub const fn state(&self) -> &CollectorState {
        &self.state
    }

    /// Returns the names of nodes that are held back because they have no price, each with the key that the
    /// price list lacks.
    pub fn unpriced_nodes(&self) -> impl Iterator<Item = (&Text, String)> {
        self.nodes.iter().filter(|(_, node)| node.is_held()).map(|(name, node)| (name, node.wanted()))
    }

    /// Returns the names of nodes with unknown parts of GPUs, with each reason and its first cause.
    pub fn gpu_faults(&self) -> impl Iterator<Item = (&Text, FaultReason, &str)> {
        self.nodes.iter().flat_map(|(name, node)| {
            node.gpu_faults.iter().map(move |(reason, what)| (name, *reason, what.as_str()))
        })
    }

    /// Returns the number of announced objects of a kind that run, as far as is known.
    pub fn running(&self, kind: ObjectKind) -> usize {
        // Keys are ordered by kind.
        let first = Key { kind, id: Text::default() };
        let of_kind = self.state.announced.range(first..).take_while(|(key, _)| key.kind == kind);
        of_kind.filter(|(_, known)| known.phase.is_running()).count()
    }

    /// Returns the names of the nodes that exist.
    pub fn node_names(&self) -> impl Iterator<Item = &Text> {
        self.nodes.keys()
    }

    /// Returns the uids of the running pods, by namespace and name.
    pub fn running_pods(&self) -> HashMap<(&str, &str), &Text> {
        let runs = |(key, known): &(&Key, &Announced)| {
            key.kind == ObjectKind::Pod && matches!(known.phase, Phase::Started | Phase::Changed)
        };
        let running = self.state.announced.iter().filter(runs);
        running.map(|(key, known)| ((&*known.namespace, &*known.name), &key.id)).collect()
    }

    /// Returns the number of pods that wait for their node, their pool or their claims.
    pub fn waiting_pods(&self) -> usize {
        let is_sent = |known: &Announced| known.phase != Phase::Announcing;
        let waits = |uid: &&Text| !self.state.announced.get(&pods::key(uid)).is_some_and(is_sent);
        self.kept.keys().filter(waits).count()
    }

    /// Takes an object. In a check, an object that causes events is reported as repaired.
    fn seen_once(&mut self, object: KubeObject, now: Timestamp) {
        let kind = object.kind();
        if !self.lists.get(&kind).is_some_and(ListInProgress::is_check) {
            return self.seen(object, now);
        }
        let meta = object.metadata();
        let name = format!("{}/{}", meta.namespace, meta.name);
        let events = self.events.len();
        self.seen(object, now);
        if self.events.len() > events {
            self.notices.push(Notice::Repaired { kind, name });
        }
    }

    fn seen(&mut self, object: KubeObject, now: Timestamp) {
        match object {
            KubeObject::Node(node) => self.node_seen(&node, now),
            KubeObject::Pod(pod) => self.pod_seen(&pod, now),
            KubeObject::ElasticQuota(quota) => self.quota_seen(&quota, false, now),
            KubeObject::CompositeElasticQuota(quota) => self.quota_seen(&quota, true, now),
            KubeObject::GpuPool(pool) => self.pool_seen(&pool, now),
            KubeObject::GpuNode(node) => self.gpu_node_seen(&node, now),
            KubeObject::ResourceClaim(claim) => {
                self.note_seen(ObjectKind::ResourceClaim, &claim_name(&claim));
                self.devices.set_claim(&claim);
                self.look_again_at_claims(now);
            }
            KubeObject::ResourceSlice(slice) => {
                self.note_seen(ObjectKind::ResourceSlice, &slice.metadata.name);
                self.devices.set_slice(&slice);
                self.announce_node(&slice.spec.node_name, now, now);
                self.look_again_at_claims(now);
            }
            KubeObject::DeviceClass(class) => {
                self.note_seen(ObjectKind::DeviceClass, &class.metadata.name);
                self.devices.set_class(&class);
                self.look_again_at_claims(now);
            }
            KubeObject::PersistentVolume(volume) => {
                self.note_seen(ObjectKind::PersistentVolume, &volume.metadata.name);
                if let Some(claim) = self.volumes.set(&volume) {
                    self.look_again_at_volume(&claim, now);
                }
            }
        }
    }

    fn gone(&mut self, object: KubeObject, now: Timestamp) {
        match object {
            KubeObject::Node(node) => self.node_gone(&node, now),
            KubeObject::Pod(pod) => self.pod_gone(&pod, now),
            KubeObject::ElasticQuota(quota) => self.quota_gone(&quota, ObjectKind::ElasticQuota, now),
            KubeObject::CompositeElasticQuota(quota) => {
                self.quota_gone(&quota, ObjectKind::CompositeElasticQuota, now);
            }
            KubeObject::GpuPool(pool) => self.pool_gone(&pool, now),
            KubeObject::GpuNode(node) => self.gpu_node_gone(&node.metadata.name, now),
            // A pod keeps the devices of its claim: the claim is deleted after the pod.
            KubeObject::ResourceClaim(claim) => self.devices.drop_claim(&claim_name(&claim)),
            KubeObject::ResourceSlice(slice) => {
                self.devices.drop_slice(&slice.metadata.name);
                self.announce_node(&slice.spec.node_name, now, now);
            }
            KubeObject::DeviceClass(class) => self.devices.drop_class(&class.metadata.name),
            KubeObject::PersistentVolume(volume) => self.volumes.drop_volume(&volume.metadata.name, now),
        }
    }

    /// After a change from a watch, advances the time up to which the object's kind is known. During a list,
    /// the time does not advance.
    fn catch_up(&mut self, object: &KubeObject, now: Timestamp) {
        let kind = object.kind();
        if !self.lists.contains_key(&kind) {
            let version = Text::from(object.metadata().resource_version.as_str());
            self.caught_up_to(kind, version, now);
        }
    }

    fn caught_up_to(&mut self, kind: ObjectKind, version: Text, now: Timestamp) {
        // While a list is in doubt, objects that it lacks may have ended since the last known time: a restart
        // lists again.
        if self.doubts.contains_key(&kind) {
            return;
        }
        self.state.caught_up.insert(kind, now);
        if kind == ObjectKind::Pod && !version.is_empty() {
            self.pods_version = Some(version);
        }
    }

    /// Returns whether slices are watched and not known yet, in the first minutes after a start. Until the
    /// slices are known, the announcements of their devices stay.
    fn awaits_slices(&self, now: Timestamp) -> bool {
        let (first, listed) = self.slices;
        let is_new = first.is_none_or(|first| first > now.before(pods::WAIT_MAX));
        !listed && is_new && self.options.watched.contains(&ObjectKind::ResourceSlice)
    }

    fn tick(&mut self, now: Timestamp) {
        self.look_again_at_prices(now);
        self.end_waits(now);
        self.volumes.forget_gone(now);
        let announced = &self.state.announced;
        let old = |announced: &Announced| {
            announced.phase == Phase::Stopped && announced.last.0 < now.0.saturating_sub(HOUR_MICROS)
        };
        // A stopped pod stays until its object is gone; objects of all other kinds are gone already.
        let dropped = announced.iter().filter(|(key, entry)| key.kind != ObjectKind::Pod && old(entry));
        for key in dropped.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.forget(&key);
        }
    }

    fn unreadable(&mut self, kind: ObjectKind, name: String, faults: Vec<String>) {
        let notices = faults.into_iter().map(|fault| Notice::Unreadable { kind, name: name.clone(), fault });
        self.notices.extend(notices);
    }
}
