//! The state that must survive a restart: the announced objects that have not ended, and the time up to which
//! everything is sent.
//!
//! A shell stores it in three steps for each [`Batch`](crate::Batch): it stores the intents, sends the
//! events, then stores the changes and the progress. An intent has the latest times of the events of an
//! object that may have been sent. If the shell dies between the steps, the next shell checks whether the
//! object still exists. If it does, the next shell sends the same events again, or the new description for a
//! later instant. If it does not, the next shell sends a stop that is later than all these events. So every
//! start has its stop, and the latest description counts.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::object::ObjectKind;

/// The key of an announced object: a node id for a node, a pool id for a pool, a uid for all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The kind of the object.
    pub kind: ObjectKind,
    /// Id of the object, unique within the kind.
    pub id: Text,
}

/// The phase of an announced object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The start may have been sent.
    Announcing,
    /// The start was sent, and nothing since.
    Started,
    /// The start was sent, and later another description.
    Changed,
    /// The object is a pod, and the stop of its node has ended it.
    EndedByNode,
    /// The stop was sent, or the object ended before collection began. The entry is kept while the object
    /// exists, so that a later sighting cannot start it again.
    Stopped,
}

impl Phase {
    /// Returns whether the object runs according to the events that were or may have been sent.
    pub const fn is_running(self) -> bool {
        matches!(self, Self::Announcing | Self::Started | Self::Changed)
    }
}

/// An announced object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// The phase of the object.
    pub phase: Phase,
    /// Event time of the last event about the object.
    pub last: Timestamp,
    /// First 64 bits of the SHA-256 of the last description.
    pub hash: u64,
    /// A pod's node id or a node's uid; otherwise empty.
    pub subject: Text,
    /// A pod's namespace; otherwise empty.
    pub namespace: Text,
    /// A pod's name, by which measured usage refers to the pod; otherwise empty.
    pub name: Text,
    /// In an intent: the latest start or description that may have been sent in addition to this entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended_start: Option<IntendedStart>,
    /// In an intent: the latest time of a stop that may have been sent in addition to this entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended_stop: Option<Timestamp>,
}

/// A start or a description that may have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntendedStart {
    /// Event time.
    pub at: Timestamp,
    /// First 64 bits of the SHA-256 of the description; 0 if several descriptions may have this event time.
    pub hash: u64,
}

impl IntendedStart {
    /// Returns the later of two intended starts.
    pub(crate) fn later(self, other: Self) -> Self {
        match self.at.cmp(&other.at) {
            Ordering::Less => other,
            Ordering::Greater => self,
            Ordering::Equal if self.hash == other.hash => self,
            Ordering::Equal => Self { hash: 0, ..self },
        }
    }
}

/// The version from which a watch of pods continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodsVersion {
    /// Resource version up to which everything was reported.
    pub version: Text,
    /// Whether some pods that were seen up to this version are still waiting. A watch would not show them
    /// again, so a restart first lists the pods as of this version: see
    /// [`Change::ResumeBegins`](crate::Change::ResumeBegins).
    pub has_waiting: bool,
}

/// The state that must survive a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorState {
    /// The instant before which nothing is sent. `None` if nothing was collected yet.
    pub since: Option<Timestamp>,
    /// The API server's time up to which all changes of a kind are known, by kind.
    pub caught_up: BTreeMap<ObjectKind, Timestamp>,
    /// The version from which a watch of pods continues. `None` if pods must be listed first.
    pub pods_version: Option<PodsVersion>,
    /// The announced objects.
    #[serde(with = "entries")]
    pub announced: BTreeMap<Key, Announced>,
}

/// Stores the map as a list, because keys of JSON objects are strings.
mod entries {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Announced, Key};

    pub fn serialize<S: Serializer>(
        map: &BTreeMap<Key, Announced>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Key, Announced>, D::Error> {
        Vec::<(Key, Announced)>::deserialize(deserializer).map(|list| list.into_iter().collect())
    }
}
