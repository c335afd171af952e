//! Events and prices of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prorata_schemas::Text;
use prorata_schemas::event::{CapacityType, NodeStarted, NodeStopped, Payload};
use prorata_schemas::ids::NodeId;
use prorata_schemas::time::Timestamp;

use super::announce::{Named, Since, after};
use super::{Collector, Notice};
use crate::describe::node::{GpuNodeFacts, NodeFacts};
use crate::object::{GpuNodeObject, NodeObject, ObjectKind};
use crate::prices::{PriceBook, priced_region};
use crate::sharing::{FaultReason, ShareFault};
use crate::state::{Key, Phase};

/// A node that exists.
#[derive(Debug)]
pub(super) struct KnownNode {
    pub facts: NodeFacts,
    /// The id of the node in events. An announced id does not change.
    pub node_id: Text,
    /// Whether the node was announced.
    pub is_announced: bool,
    /// Whether it was reported that the node is held back.
    pub is_reported: bool,
    /// The reasons why parts of the node's GPUs are not known, each with its first cause.
    pub gpu_faults: BTreeMap<FaultReason, String>,
    /// The reasons that were reported.
    pub gpu_reported: BTreeSet<FaultReason>,
    /// The earliest start of the node's pods. Until then, another node with this id existed.
    pub least: Timestamp,
}

impl KnownNode {
    /// Returns whether only a price is missing.
    pub const fn is_held(&self) -> bool {
        !self.is_announced && self.facts.is_initialized && !self.facts.is_virtual
    }

    /// Returns the key that a price list would need: provider, region, instance type, operating system and
    /// capacity type.
    pub fn wanted(&self) -> String {
        let description = &self.facts.description;
        let provider = &description.provider;
        let region = priced_region(provider, &description.region, description.zone.as_ref());
        let (instance_type, capacity_type) = (&description.instance_type, description.capacity_type);
        format!("{provider},{region},{instance_type},{},{}", self.facts.os, shown(capacity_type))
    }
}

/// Returns the spelling in a price list.
const fn shown(capacity_type: CapacityType) -> &'static str {
    match capacity_type {
        CapacityType::OnDemand => "ON_DEMAND",
        CapacityType::Spot => "SPOT",
    }
}

fn key(node_id: &str) -> Key {
    Key { kind: ObjectKind::Node, id: node_id.into() }
}

impl Collector {
    pub(super) fn node_seen(&mut self, node: &NodeObject, now: Timestamp) {
        let mut facts = NodeFacts::read(node, &self.options);
        let (name, faults) = (facts.name.clone(), std::mem::take(&mut facts.faults));
        self.unreadable(ObjectKind::Node, name.to_string(), faults);
        let node_id = self.node_id(&facts);
        self.note_seen(ObjectKind::Node, &node_id);
        self.end_predecessors(&facts, &node_id, now);
        // Prices that changed meanwhile apply to the node as it was.
        self.price_steps(&name, now);
        let least = match self.state.announced.get(&key(&node_id)) {
            Some(known) if known.phase == Phase::Stopped => after(known.last),
            _ => self.nodes.get(&name).map_or(Timestamp(0), |node| node.least),
        };
        let announced = self.state.announced.get(&key(&node_id)).map(|known| known.phase);
        let is_announced = matches!(announced, Some(Phase::Started | Phase::Changed));
        let is_reported = self.nodes.get(&name).is_some_and(|node| node.is_reported);
        let gpu_reported = self.nodes.get(&name).map(|node| node.gpu_reported.clone()).unwrap_or_default();
        let fault = facts.gpus.fault.take();
        let gpu_faults = BTreeMap::new();
        let known = KnownNode { facts, node_id, is_announced, is_reported, gpu_faults, gpu_reported, least };
        self.nodes.insert(name.clone(), known);
        if let Some(fault) = fault {
            self.gpu_fault(&name, fault);
        }
        self.announce_node(&name, now, now);
        self.look_again_on_node(&name, now);
    }

    /// Returns the id by which the node was announced, or else the id that its facts give.
    fn node_id(&self, facts: &NodeFacts) -> Text {
        let of_uid = |(key, known): &(&Key, &crate::state::Announced)| {
            key.kind == ObjectKind::Node && known.subject == facts.uid && known.phase.is_running()
        };
        if self.state.announced.get(&key(&facts.node_id)).is_some_and(|known| known.subject == facts.uid) {
            return facts.node_id.clone();
        }
        let announced = self.state.announced.iter().find(of_uid);
        announced.map_or_else(|| facts.node_id.clone(), |(key, _)| key.id.clone())
    }

    /// Ends other nodes with this name or this id, because their objects are gone.
    fn end_predecessors(&mut self, facts: &NodeFacts, node_id: &Text, now: Timestamp) {
        let same_name = self.nodes.get(&facts.name).filter(|node| node.facts.uid != facts.uid);
        let by_name = same_name.map(|node| node.node_id.clone());
        let same_id = self.state.announced.get(&key(node_id)).filter(|known| known.subject != facts.uid);
        let by_id = same_id.map(|_| node_id.clone());
        for node_id in by_name.into_iter().chain(by_id) {
            let key = key(&node_id);
            let at = self.unseen_end(&key, now);
            self.stop_node(&key, at);
            self.nodes.remove(&facts.name);
        }
    }

    pub(super) fn node_gone(&mut self, node: &NodeObject, now: Timestamp) {
        let facts = NodeFacts::read(node, &self.options);
        let node_id = self.node_id(&facts);
        if self.nodes.get(&facts.name).is_some_and(|known| known.facts.uid == facts.uid) {
            self.price_steps(&facts.name, now);
            self.nodes.remove(&facts.name);
        }
        if self.state.announced.get(&key(&node_id)).is_some_and(|known| known.subject == facts.uid) {
            self.stop_node(&key(&node_id), now);
        }
    }

    /// Stops a node; the engine ends its pods with it. The node existed at every event of its pods, so it
    /// stops after them.
    pub(super) fn stop_node(&mut self, key: &Key, at: Timestamp) {
        if !self.state.announced.get(key).is_some_and(|known| known.phase.is_running()) {
            return;
        }
        let stopped = NodeStopped {
            cluster_id: self.options.cluster_id.clone(),
            node_id: NodeId::from(key.id.clone()),
        };
        let at = at.max(self.last_of_pods(&key.id));
        self.announce_stop(key, at, Payload::NodeStopped(stopped));
        self.end_pods_of_node(&key.id);
    }

    /// Announces a node in its present state, at `change` if an announced node changed. A node without a
    /// price is held back.
    pub(super) fn announce_node(&mut self, name: &Text, change: Timestamp, now: Timestamp) {
        let Some(node) = self.nodes.get(name) else { return };
        if node.facts.is_virtual || !node.facts.is_initialized {
            return;
        }
        let key = key(&node.node_id);
        let known = self.state.announced.get(&key).map(|known| known.phase);
        let was_running = matches!(known, Some(Phase::Started | Phase::Changed));
        if was_running && self.awaits_slices(now) && !node.facts.has_gpus(&self.options) {
            return;
        }
        let created = node.facts.created.max(self.since()).max(node.least);
        let first = if was_running {
            Some(change)
        } else {
            self.first_priced(node, created.min(now.max(node.least)), now)
        };
        let described = first.and_then(|at| Some((at, self.described(node, at)?)));
        let Some((at, description)) = described else {
            if !was_running {
                self.hold(name);
            }
            return;
        };
        let named = Named { subject: node.facts.uid.clone(), ..Named::default() };
        let (node_id, recorded) = (node.node_id.clone(), node.facts.changed);
        if let Some(node) = self.nodes.get_mut(name) {
            node.is_announced = true;
        }
        let since = Since { start: at, change: at, recorded, is_current: false };
        self.announce(key, named, Payload::NodeStarted(Box::new(description)), since);
        self.price_steps(name, now);
        self.settle(name, now);
        if known == Some(Phase::Stopped) && self.has_ended_pods(&node_id) {
            self.notices.push(Notice::Relist(ObjectKind::Pod));
        }
    }

    /// Returns the first instant from `from` to `now` at which a node has a price; `None` if there is none.
    fn first_priced(&self, node: &KnownNode, from: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let priced = node.facts.priced(&self.options);
        let later = self.prices.changes(&priced, from, now);
        std::iter::once(from).chain(later).find(|at| self.price_at(node, *at).is_some())
    }

    fn price_at(&self, node: &KnownNode, at: Timestamp) -> Option<prorata_schemas::money::UnitPrice> {
        let of_gpu_node = || self.gpu_nodes.get(&node.facts.name)?.price;
        let priced = node.facts.priced(&self.options);
        node.facts.annotated_price.or_else(of_gpu_node).or_else(|| self.prices.price(&priced, at))
    }

    fn described(&self, node: &KnownNode, at: Timestamp) -> Option<NodeStarted> {
        let mut description = node.facts.description.clone();
        description.node_id = node.node_id.clone().into();
        description.hourly_cost = self.price_at(node, at)?;
        if let Some(gpu_node) = self.gpu_nodes.get(&node.facts.name) {
            gpu_node.apply(&mut description);
        }
        // The driver of claims lists its cards apart from the capacity.
        if !node.facts.has_gpus(&self.options) {
            description.gpus = self.devices.cards(&node.facts.name, &self.options).or(description.gpus);
        }
        Some(description)
    }

    /// Announces each price that took effect since a node's last event, at the instant from which the price
    /// is valid.
    fn price_steps(&mut self, name: &Text, now: Timestamp) {
        let Some(node) = self.nodes.get(name).filter(|node| node.is_announced) else { return };
        if self.awaits_slices(now) && !node.facts.has_gpus(&self.options) {
            return;
        }
        let key = key(&node.node_id);
        let Some(last) = self.state.announced.get(&key).map(|known| known.last) else { return };
        for at in self.prices.changes(&node.facts.priced(&self.options), last, now) {
            self.announce_at(name, at, false);
        }
    }

    /// Announces a node again if a different description may have been sent before a restart and would count.
    fn settle(&mut self, name: &Text, now: Timestamp) {
        let Some(node) = self.nodes.get(name) else { return };
        let known = self.state.announced.get(&key(&node.node_id));
        if known.is_some_and(|known| known.intended_start.is_some()) {
            self.announce_at(name, now, true);
        }
    }

    /// Announces a node with its price at an instant, from that instant on.
    fn announce_at(&mut self, name: &Text, at: Timestamp, is_current: bool) {
        let Some(node) = self.nodes.get(name) else { return };
        let Some(description) = self.described(node, at) else { return };
        let named = Named { subject: node.facts.uid.clone(), ..Named::default() };
        let since = Since { start: at, change: at, recorded: node.facts.changed, is_current };
        self.announce(key(&node.node_id), named, Payload::NodeStarted(Box::new(description)), since);
    }

    /// Replaces the prices. A node that was announced at another price is corrected from its last event on,
    /// because an earlier price cannot be taken back.
    pub(super) fn set_prices(&mut self, prices: Arc<PriceBook>, now: Timestamp) {
        self.prices = prices;
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            let Some(node) = self.nodes.get(&name) else { continue };
            let from = self.after_last(&key(&node.node_id));
            self.announce_node(&name, if node.is_announced { from } else { now }, now);
        }
    }

    pub(super) fn look_again_at_prices(&mut self, now: Timestamp) {
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            match self.nodes.get(&name) {
                Some(node) if node.is_announced => self.price_steps(&name, now),
                Some(node) if node.is_held() => self.announce_node(&name, now, now),
                _ => {}
            }
        }
    }

    /// Records the reason why a part of a node's GPUs is not known. Each reason is reported once.
    pub(super) fn gpu_fault(&mut self, name: &Text, fault: ShareFault) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let ShareFault { reason, what } = fault;
        if node.gpu_reported.insert(reason) {
            let (node, what) = (name.clone(), what.clone());
            self.notices.push(Notice::UnknownGpuShare { node, reason, what });
        }
        node.gpu_faults.entry(reason).or_insert(what);
    }

    /// Announces the nodes whose cards have changed with the slices of a driver.
    pub(super) fn look_again_at_cards(&mut self, now: Timestamp) {
        let announced = self.nodes.iter().filter(|(_, node)| node.is_announced);
        for name in announced.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.announce_node(&name, now, now);
        }
    }

    fn hold(&mut self, name: &Text) {
        let Some(node) = self.nodes.get_mut(name).filter(|node| !node.is_reported) else { return };
        node.is_reported = true;
        let wanted = node.wanted();
        self.notices.push(Notice::UnpricedNode { name: name.clone(), wanted });
    }

    pub(super) fn gpu_node_seen(&mut self, node: &GpuNodeObject, now: Timestamp) {
        let name = Text::from(node.metadata.name.as_str());
        self.note_seen(ObjectKind::GpuNode, &name);
        let (facts, faults) = GpuNodeFacts::read(node, &self.options);
        self.unreadable(ObjectKind::GpuNode, name.to_string(), faults);
        if self.gpu_nodes.insert(name.clone(), facts.clone()).as_ref() != Some(&facts) {
            self.announce_node(&name, now, now);
        }
    }

    pub(super) fn gpu_node_gone(&mut self, name: &str, now: Timestamp) {
        if self.gpu_nodes.remove(name).is_some() {
            self.announce_node(&name.into(), now, now);
        }
    }

    /// Drops the GPU nodes that a list lacks.
    pub(super) fn retain_gpu_nodes(&mut self, is_seen: impl Fn(&Text) -> bool, now: Timestamp) {
        let gone = self.gpu_nodes.keys().filter(|name| !is_seen(name)).cloned();
        for name in gone.collect::<Vec<_>>() {
            self.gpu_node_gone(&name, now);
        }
    }
}
