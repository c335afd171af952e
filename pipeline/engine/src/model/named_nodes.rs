//! Numbers for the nodes of an hour. A number instead of two texts identifies the node of a pod. In a large
//! organization, a comparison of the texts takes longer than the rest of the work to place the pod.

use std::collections::BTreeSet;

use prorata_schemas::event::PodStarted;
use prorata_schemas::ids::{ClusterId, NodeId, PodUid};

use crate::model::state::NodeKey;

/// The index of a node in [`NamedNodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeNumber(usize);

#[expect(
    clippy::disallowed_types,
    reason = "only looked up, once for each pod and node, and never walked: no order in it"
)]
type Numbers<Key, Of> = std::collections::HashMap<Key, Of>;

/// Every node that has run in the hour, or that a pod has named.
#[derive(Debug, Default)]
pub(crate) struct NamedNodes {
    numbers: Numbers<ClusterId, Numbers<NodeId, NodeNumber>>,
    nodes: Vec<NamedNode>,
}

#[derive(Debug)]
struct NamedNode {
    key: NodeKey,
    runs: bool,
    /// Running pods that name the node.
    pods: BTreeSet<PodUid>,
}

impl NamedNodes {
    /// Notes that a node starts. Returns the pods that have waited for the node.
    pub(crate) fn start(&mut self, key: &NodeKey) -> BTreeSet<PodUid> {
        let NodeNumber(place) = self.number(&key.0, &key.1);
        let node = &mut self.nodes[place];
        node.runs = true;
        node.pods.clone()
    }

    /// Notes that a node stops. Returns the pods that stop with the node.
    pub(crate) fn stop(&mut self, key: &NodeKey) -> BTreeSet<PodUid> {
        let NodeNumber(place) = self.number(&key.0, &key.1);
        let node = &mut self.nodes[place];
        node.runs = false;
        std::mem::take(&mut node.pods)
    }

    /// Returns the node that a pod names; `None` if it names none.
    pub(crate) fn of(&mut self, pod: &PodStarted) -> Option<NodeNumber> {
        pod.node_id.as_ref().map(|node| self.number(&pod.cluster_id, node))
    }

    /// Returns whether a node runs now.
    pub(crate) fn runs(&self, NodeNumber(place): NodeNumber) -> bool {
        self.nodes[place].runs
    }

    /// Returns the running pods that name a node.
    pub(crate) fn pods_mut(&mut self, NodeNumber(place): NodeNumber) -> &mut BTreeSet<PodUid> {
        &mut self.nodes[place].pods
    }

    /// Returns the key of a node.
    pub(crate) fn key(&self, NodeNumber(place): NodeNumber) -> &NodeKey {
        &self.nodes[place].key
    }

    fn find(&self, cluster: &ClusterId, node: &NodeId) -> Option<NodeNumber> {
        self.numbers.get(cluster)?.get(node).copied()
    }

    /// Returns the number of a node. Assigns a new number if the node has none.
    fn number(&mut self, cluster: &ClusterId, node: &NodeId) -> NodeNumber {
        if let Some(number) = self.find(cluster, node) {
            return number;
        }
        let number = NodeNumber(self.nodes.len());
        let key = (cluster.clone(), node.clone());
        self.numbers.entry(cluster.clone()).or_default().insert(node.clone(), number);
        self.nodes.push(NamedNode { key, runs: false, pods: BTreeSet::new() });
        number
    }
}

/// A value for each node.
#[derive(Debug)]
pub(crate) struct ByNode<'a, T> {
    named: &'a NamedNodes,
    of: Vec<T>,
}

impl<'a, T: Default> ByNode<'a, T> {
    /// Creates a default value for each node.
    pub(crate) fn new(named: &'a NamedNodes) -> Self {
        Self { named, of: named.nodes.iter().map(|_| T::default()).collect() }
    }

    /// Returns the value of a node.
    pub(crate) fn of_mut(&mut self, NodeNumber(place): NodeNumber) -> &mut T {
        &mut self.of[place]
    }

    /// Takes the value of the node with this key, and leaves the default value. Returns the default value if
    /// the node has no number.
    pub(crate) fn take(&mut self, (cluster, node): &NodeKey) -> T {
        let number = self.named.find(cluster, node);
        number.map(|number| std::mem::take(self.of_mut(number))).unwrap_or_default()
    }
}
