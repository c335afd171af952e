//! What must survive a restart: what was announced and has not ended, and up to where everything is sent.
//!
//! A shell stores it in three steps for each [`Batch`](crate::Batch): first the intents, then it sends the
//! events, then it stores the changes and the progress. An intent says up to which time events of an object
//! may have been sent. If the shell dies between the steps, the next one sends the same events again if the
//! object is still there, and otherwise a stop that is later than all of them: no start is left without its
//! stop.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::object::ObjectKind;

/// Names an announced object: a node by its node id, a pool by its pool id, all others by uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its id within the kind.
    pub id: Text,
}

/// How far an announced object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Its start may have been sent.
    Announcing,
    /// Its start was sent, and nothing since.
    Started,
    /// Its start was sent, and another description later.
    Changed,
    /// A pod: the stop of its node has ended it.
    EndedByNode,
    /// Its stop was sent, or it ended before anything was collected. It is kept while the object is there:
    /// no later sight of it may start it again.
    Stopped,
}

impl Phase {
    /// Whether events say that it runs, or may say so.
    pub const fn is_running(self) -> bool {
        matches!(self, Self::Announcing | Self::Started | Self::Changed)
    }
}

/// An announced object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// How far it is.
    pub phase: Phase,
    /// Event time of the last event about it.
    pub last: Timestamp,
    /// First 64 bits of the SHA-256 of the last description.
    pub hash: u64,
    /// A pod's node id, a node's uid; else empty.
    pub subject: Text,
    /// A pod's namespace; else empty.
    pub namespace: Text,
    /// A pod's name, by which measured use refers to the pod; else empty.
    pub name: Text,
    /// In an intent: the latest time of a start or a description that may have been sent beyond this entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended_start: Option<Timestamp>,
    /// In an intent: the latest time of a stop that may have been sent beyond this entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended_stop: Option<Timestamp>,
}

/// What must survive a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorState {
    /// Nothing is sent of what was before; none: nothing was collected yet.
    pub since: Option<Timestamp>,
    /// By kind, the API server's time up to which all its changes are known.
    pub caught_up: BTreeMap<ObjectKind, Timestamp>,
    /// Resource version from which a watch of pods goes on; none: list first.
    pub pods_version: Option<Text>,
    /// What was announced.
    #[serde(with = "entries")]
    pub announced: BTreeMap<Key, Announced>,
}

/// Entries as a list: keys of JSON are texts.
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
