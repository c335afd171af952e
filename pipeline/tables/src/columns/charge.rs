//! A row of `cost_allocation` in FOCUS terms: the value of every textual column for every kind of row.

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{CapacityType, CommitmentKind, CommitmentSet, Labels, NodeStarted, PodStarted};
use prorata_schemas::rows::{CostRow, HourTables, RowKind};

use crate::columns::Cell;
use crate::describe::{describe, node_words};
use crate::json::Object;
use crate::sku::Sku;

/// `AllocatedMethodId` of node split cost allocation; RULES.md, section 1 documents the method.
pub const ALLOCATED_METHOD: &str = "prorata-node-split";

/// Unit of every quantity: hours of a node, pod, unit or commitment.
pub const HOURS: &str = "Hours";

/// Reserved size of the details of an allocation: a ratio has 14 characters, a quantity about as many.
const DETAILS_BYTES: usize = 288;

/// A row in its organization's hour, with texts that several columns or the description need.
pub struct Charge<'a> {
    /// The organization's hour.
    pub tables: &'a HourTables,
    /// The row.
    pub row: &'a CostRow,
    /// SKU and price.
    pub sku: Rc<Sku>,
    /// Text of `ChargeDescription`.
    pub description: String,
    /// Tags of the node; `None` if there are none.
    node_tags: Option<Rc<str>>,
    /// Tags of the pod; `None` if there are none.
    pod_tags: Option<Rc<str>>,
}

/// Largest number of pod tags that are cached.
const POD_TAGS_MAX: usize = 1024;

/// Texts of a node, which the rows of all its pods share.
struct NodeTexts<'a> {
    /// The values from which the texts are built.
    source: (*const HourTables, *const NodeStarted, &'a str),
    sku: Rc<Sku>,
    tags: Option<Rc<str>>,
    words: Rc<str>,
}

/// Builds the charges of rows in table order, in which the rows of a node are consecutive.
#[derive(Default)]
pub struct Charges<'a> {
    last_node: Option<NodeTexts<'a>>,
    /// Tags by the address of the labels from which they are built; the pods of a workload share labels and
    /// tags.
    pod_tags: HashMap<*const (), Option<Rc<str>>>,
}

impl<'a> Charges<'a> {
    /// Returns the row in FOCUS terms.
    pub fn charge(&mut self, tables: &'a HourTables, row: &'a CostRow) -> Charge<'a> {
        let pod_tags = row.pod.as_deref().and_then(|pod| self.pod_tags(&pod.labels));
        let of_node = matches!(row.kind, RowKind::PodNode | RowKind::NodeIdle);
        let Some(node) = row.node.as_deref().filter(|_| of_node) else {
            let sku = Rc::new(Sku::of(tables, row));
            let description = describe(tables, row, "");
            return Charge { tables, row, sku, description, node_tags: None, pod_tags };
        };
        let source = (std::ptr::from_ref(tables), std::ptr::from_ref(node), &*row.provider);
        let texts = match self.last_node.take() {
            Some(texts) if texts.source == source => texts,
            _ => NodeTexts {
                source,
                sku: Rc::new(Sku::of(tables, row)),
                tags: node_labels(node).map(Rc::from),
                words: node_words(node).into(),
            },
        };
        let description = describe(tables, row, &texts.words);
        let (sku, node_tags) = (Rc::clone(&texts.sku), texts.tags.clone());
        self.last_node = Some(texts);
        Charge { tables, row, sku, description, node_tags, pod_tags }
    }

    fn pod_tags(&mut self, labels: &'a Labels) -> Option<Rc<str>> {
        // The rows keep the labels alive, so no other labels can get their address meanwhile.
        let address = labels.as_ptr();
        if let Some(tags) = self.pod_tags.get(&address) {
            return tags.clone();
        }
        if self.pod_tags.len() == POD_TAGS_MAX {
            self.pod_tags.clear();
        }
        let tags = tags_of(labels).map(Rc::from);
        self.pod_tags.insert(address, tags.clone());
        tags
    }
}

impl Charge<'_> {
    /// Returns the provider, which is also the publisher, host and issuer.
    pub fn provider(&self) -> &str {
        if self.row.provider.is_empty() { "unknown" } else { &self.row.provider }
    }

    /// Returns `Purchase` for a commitment purchase, and `Usage` otherwise.
    pub fn category(&self) -> &'static str {
        if self.is_purchase() { "Purchase" } else { "Usage" }
    }

    /// Returns `Recurring` for a purchase, `Usage-Based` otherwise.
    pub fn frequency(&self) -> &'static str {
        if self.is_purchase() { "Recurring" } else { "Usage-Based" }
    }

    /// Returns `Committed` if a commitment pays, `Dynamic` on spot, and `Standard` otherwise.
    pub fn pricing_category(&self) -> &'static str {
        let spot = self.node().is_some_and(|node| node.capacity_type == CapacityType::Spot);
        match self.row.commitment_id {
            Some(_) if !self.is_purchase() => "Committed",
            None if spot => "Dynamic",
            _ => "Standard",
        }
    }

    /// Returns the hours consumed; `None` for the unused part of a commitment and for its purchase.
    pub fn consumed(&self) -> Option<Decimal12> {
        match self.row.kind {
            RowKind::CommitmentUnused | RowKind::CommitmentPurchase => None,
            RowKind::PodNode
            | RowKind::NodeIdle
            | RowKind::PodServerless
            | RowKind::PodPool
            | RowKind::ReservationUnused => Some(self.row.pricing_quantity),
        }
    }

    /// Returns whether the reservation is `Used` or `Unused`; `None` on rows without a reservation.
    pub fn reservation_status(&self) -> Option<&'static str> {
        self.row.reservation_id.as_ref()?;
        Some(if self.row.kind == RowKind::ReservationUnused { "Unused" } else { "Used" })
    }

    /// Returns whether the commitment is `Used` or `Unused`; `None` for a purchase, and on rows without a
    /// commitment.
    pub fn commitment_status(&self) -> Option<&'static str> {
        self.row.commitment_id.as_ref()?;
        match self.row.kind {
            RowKind::CommitmentPurchase => None,
            RowKind::CommitmentUnused => Some("Unused"),
            _ => Some("Used"),
        }
    }

    /// Returns the provider's name for the kind of commitment; `None` on rows without a commitment.
    pub fn commitment_type(&self) -> Option<&'static str> {
        self.row.commitment_id.as_ref()?;
        Some(match self.row.commitment.as_ref().map(|set| set.kind) {
            Some(CommitmentKind::ReservedInstance) => "Reserved Instance",
            Some(CommitmentKind::CommittedUseDiscount) => "Committed Use Discount",
            Some(CommitmentKind::SavingsPlan) => "Savings Plan",
            None => "Commitment",
        })
    }

    /// Returns the category of the commitment: `Spend` or `Usage`; `None` on rows without a commitment.
    pub fn commitment_category(&self) -> Option<&'static str> {
        self.row.commitment_id.as_ref()?;
        Some(if self.plan().is_some() { "Spend" } else { "Usage" })
    }

    /// Returns the unit of the commitment's quantity: the currency for a savings plan, and hours for any
    /// other commitment. `None` if the row has no such quantity.
    pub fn commitment_unit(&self) -> Option<&str> {
        self.row.commitment_quantity?;
        Some(self.plan().map_or(HOURS, |plan| &plan.currency))
    }

    fn plan(&self) -> Option<&CommitmentSet> {
        self.row.commitment.as_deref().filter(|set| set.kind == CommitmentKind::SavingsPlan)
    }

    /// Returns the service. A reservation or commitment belongs to the service for which it is bought.
    pub fn service_name(&self) -> &'static str {
        match self.row.kind {
            RowKind::PodNode
            | RowKind::NodeIdle
            | RowKind::CommitmentUnused
            | RowKind::CommitmentPurchase => "Kubernetes Nodes",
            RowKind::PodServerless | RowKind::ReservationUnused => "Serverless Pods",
            RowKind::PodPool => "GPU Pools",
        }
    }

    /// Returns the kind of the resource named by `ResourceId`.
    pub fn resource_type(&self) -> &'static str {
        match self.row.kind {
            RowKind::PodNode | RowKind::NodeIdle => "Node",
            RowKind::PodServerless | RowKind::PodPool => "Pod",
            RowKind::ReservationUnused => "Capacity Reservation",
            RowKind::CommitmentUnused | RowKind::CommitmentPurchase => "Commitment",
        }
    }

    /// Returns the display name of the resource; `None` if it would only repeat the id.
    pub fn resource_name(&self) -> Option<&str> {
        let name = match self.row.kind {
            RowKind::PodNode | RowKind::NodeIdle => self.node().map(|node| &*node.node_name),
            RowKind::PodServerless | RowKind::PodPool => self.pod().map(|pod| &*pod.pod_name),
            RowKind::ReservationUnused => self.row.reservation.as_ref().map(|set| &*set.name),
            RowKind::CommitmentUnused | RowKind::CommitmentPurchase => {
                self.row.commitment.as_ref().map(|set| &*set.name)
            }
        };
        name.filter(|name| **name != *self.row.resource_id)
    }

    /// Returns the region of the resource; for a pod on an unknown node, the pod's region. A savings plan has
    /// none.
    pub fn region(&self) -> Option<&str> {
        match self.row.kind {
            RowKind::PodNode | RowKind::NodeIdle if self.row.node.is_some() => {
                self.node().map(|node| &*node.region)
            }
            RowKind::PodNode | RowKind::NodeIdle | RowKind::PodServerless | RowKind::PodPool => {
                self.pod().and_then(|pod| pod.region.as_deref())
            }
            RowKind::ReservationUnused => self.row.reservation.as_ref().map(|set| &*set.region),
            RowKind::CommitmentUnused | RowKind::CommitmentPurchase => {
                // A savings plan names no region.
                let set = self.row.commitment.as_ref().filter(|_| self.plan().is_none());
                set.map(|set| &*set.region)
            }
        }
    }

    /// Returns the zone of the resource; for a pod on an unknown node, the pod's zone. A commitment has none.
    pub fn zone(&self) -> Option<&str> {
        match self.row.kind {
            RowKind::PodNode | RowKind::NodeIdle if self.row.node.is_some() => {
                self.node().and_then(|node| node.zone.as_deref())
            }
            RowKind::PodNode | RowKind::NodeIdle | RowKind::PodServerless | RowKind::PodPool => {
                self.pod().and_then(|pod| pod.zone.as_deref())
            }
            RowKind::ReservationUnused => self.row.reservation.as_ref().and_then(|set| set.zone.as_deref()),
            RowKind::CommitmentUnused | RowKind::CommitmentPurchase => None,
        }
    }

    /// Returns the GPU model of the node on rows of a node, and otherwise of the pod, reservation or
    /// commitment. `None` if there is none.
    pub fn gpu_model(&self) -> Option<&str> {
        match self.row.kind {
            RowKind::PodNode | RowKind::NodeIdle if self.row.node.is_some() => {
                self.node().and_then(|node| node.gpu_model.as_deref())
            }
            RowKind::PodNode | RowKind::NodeIdle | RowKind::PodServerless | RowKind::PodPool => {
                self.pod().and_then(|pod| pod.gpu_model.as_deref())
            }
            RowKind::ReservationUnused => self.row.reservation.as_ref().map(|set| &*set.gpu_model),
            RowKind::CommitmentUnused | RowKind::CommitmentPurchase => {
                self.row.commitment.as_ref().and_then(|set| set.gpu_model.as_deref())
            }
        }
    }

    /// Returns the GPU pool of the pod; on idle capacity, the pool of the node. `None` if there is none.
    pub fn pool_id(&self) -> Option<&str> {
        if self.row.kind == RowKind::NodeIdle {
            self.node().and_then(|node| node.pool_id.as_deref())
        } else {
            self.pod().and_then(|pod| pod.pool_id.as_deref())
        }
    }

    /// Returns the node of a row that splits a node, as the pod names it; `None` on other rows.
    pub fn node_id(&self) -> Option<&str> {
        self.splits_node().then_some(&*self.row.resource_id)
    }

    /// Returns the pod that is allocated a share of a node. `None` on idle capacity, and if the pod is itself
    /// the resource.
    pub fn allocated_pod(&self) -> Option<&PodStarted> {
        if self.row.kind == RowKind::PodNode { self.pod() } else { None }
    }

    /// Returns the uid of [`Self::allocated_pod`].
    pub fn allocated_resource_id(&self) -> Option<&str> {
        if self.row.kind == RowKind::PodNode { self.row.pod_uid.as_deref() } else { None }
    }

    /// Returns the allocation method on every row that splits a node; `None` on other rows.
    pub fn allocated_method(&self) -> Option<&'static str> {
        self.splits_node().then_some(ALLOCATED_METHOD)
    }

    /// Returns the row's ratio of its origin as JSON, by resource if the row costs anything. `None` on an
    /// unknown node, because there is no origin to divide.
    pub fn allocated_details(&self) -> Option<String> {
        let ratio = self.row.allocated_ratio?;
        let mut details = String::with_capacity(DETAILS_BYTES);
        // Writing to a text cannot fail.
        let _ = match (self.row.allocated, self.ratio_by_resource(ratio)) {
            (Some(hours), Some([cpu, memory, gpu])) => write!(
                details,
                concat!(
                    r#"{{"Elements":[{{"AllocatedRatio":{},"UsageUnit":"vCPU-Hours","UsageQuantity":{}}},"#,
                    r#"{{"AllocatedRatio":{},"UsageUnit":"GiB-Hours","UsageQuantity":{}}},"#,
                    r#"{{"AllocatedRatio":{},"UsageUnit":"GPU-Hours","UsageQuantity":{}}}]}}"#
                ),
                cpu, hours.cpu_core_hours, memory, hours.memory_gib_hours, gpu, hours.gpu_hours
            ),
            _ => write!(details, r#"{{"Elements":[{{"AllocatedRatio":{ratio}}}]}}"#),
        };
        Some(details)
    }

    /// Divides the row's ratio over resources as EffectiveCost divides over them. `None` if the row costs
    /// nothing, or has no cost by resource.
    fn ratio_by_resource(&self, ratio: Decimal12) -> Option<[Decimal12; 3]> {
        let row = self.row;
        divided(ratio, [row.cpu_cost?, row.memory_cost?, row.gpu_cost?])
    }

    /// Returns the pod's labels if the pod is allocated a share of a node, and `None` otherwise.
    pub fn allocated_tags(&self) -> Option<&str> {
        self.allocated_pod().and(self.pod_tags.as_deref())
    }

    /// Returns the tags of the resource: a pod's labels, or the well-known labels of a node that follow from
    /// the node's description. Null on other rows.
    pub fn tags(&self) -> Cell<'_> {
        match self.row.kind {
            RowKind::PodNode | RowKind::NodeIdle => Cell::text(self.node_tags.as_deref()),
            RowKind::PodServerless | RowKind::PodPool => Cell::text(self.pod_tags.as_deref()),
            RowKind::ReservationUnused | RowKind::CommitmentUnused | RowKind::CommitmentPurchase => {
                Cell::Null
            }
        }
    }

    /// Returns the node as last described.
    pub fn node(&self) -> Option<&NodeStarted> {
        self.row.node.as_deref()
    }

    /// Returns the pod as last described.
    pub fn pod(&self) -> Option<&PodStarted> {
        self.row.pod.as_deref()
    }

    fn is_purchase(&self) -> bool {
        self.row.kind == RowKind::CommitmentPurchase
    }

    fn splits_node(&self) -> bool {
        matches!(self.row.kind, RowKind::PodNode | RowKind::NodeIdle)
    }
}

/// Divides a ratio in proportion to costs by largest remainder; in a tie, the earlier cost comes first.
/// `None` if the sum of the costs is not above zero, or a number overflows.
fn divided(ratio: Decimal12, costs: [Decimal12; 3]) -> Option<[Decimal12; 3]> {
    let total = costs.into_iter().try_fold(0, |sum: i128, cost| sum.checked_add(cost.atoms()))?;
    if total <= 0 {
        return None;
    }
    let mut parts = [0; 3];
    let mut rests = [(0, 0); 3];
    for (place, cost) in costs.into_iter().enumerate() {
        let product = ratio.atoms().checked_mul(cost.atoms())?;
        parts[place] = product / total;
        // The largest rest comes first.
        rests[place] = (-(product % total), place);
    }
    rests.sort_unstable();
    let left = ratio.atoms() - parts.iter().sum::<i128>();
    for (_, place) in rests.into_iter().take(usize::try_from(left).unwrap_or(0)) {
        parts[place] += 1;
    }
    Some(parts.map(Decimal12::from_atoms))
}

/// Returns a pod's labels as a JSON object, the form of the tag columns; `None` if there are no labels.
pub fn tags_of(labels: &Labels) -> Option<String> {
    // Four quotation marks, a colon, and a comma or brace.
    let bytes = labels.iter().map(|(key, value)| key.len() + value.len() + 6).sum::<usize>() + 1;
    let object = Object::with_capacity(bytes);
    labels.iter().fold(object, |object, (key, value)| object.any_text(key, value)).non_empty()
}

fn node_labels(node: &NodeStarted) -> Option<String> {
    Object::default()
        .text("node.kubernetes.io/instance-type", &*node.instance_type)
        .text("topology.kubernetes.io/region", &*node.region)
        .text("topology.kubernetes.io/zone", node.zone.as_deref())
        .non_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_divides_as_the_costs_do_and_sums_to_itself() {
        let atoms = |ratio: i128, costs: [i128; 3]| {
            let parts = divided(Decimal12::from_atoms(ratio), costs.map(Decimal12::from_atoms));
            parts.map(|parts| parts.map(Decimal12::atoms))
        };
        assert_eq!(atoms(100, [1, 2, 1]), Some([25, 50, 25]));
        assert_eq!(atoms(100, [1, 1, 1]), Some([34, 33, 33]), "a tie goes to the earlier one");
        assert_eq!(atoms(100, [0, 1, 2]), Some([0, 33, 67]), "the largest rest goes first");
        assert_eq!(atoms(0, [0, 1, 2]), Some([0, 0, 0]));
        assert_eq!(atoms(100, [0, 0, 0]), None);
        assert_eq!(atoms(100, [i128::MAX, 1, 0]), None, "a cost beyond its column");
    }
}
