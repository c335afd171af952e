//! A row of `cost_allocation` in FOCUS terms: the value of every textual column for every kind of row.

mod allocation;

use std::collections::HashMap;
use std::rc::Rc;

use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{
    BillLine, CapacityType, ChargeCategory, CommitmentKind, CommitmentSet, Labels, NodeStarted, PodStarted,
    UseStatus,
};
use prorata_schemas::rows::{BilledLine, CostRow, HourTables, RowKind};

use crate::columns::Cell;
use crate::describe::{describe, node_words};
use crate::json::Object;
use crate::sku::{Sku, category_of, line_of};

/// Unit of every quantity: hours of a node, pod, unit or commitment.
pub const HOURS: &str = "Hours";

/// `ServiceName` of a line whose bill names no service.
const SHARED_CHARGES: &str = "Shared charges";

/// A row in its organization's hour, with texts that several columns or the description need.
pub struct Charge<'a> {
    /// The organization's hour.
    pub tables: &'a HourTables,
    /// The row.
    pub row: &'a CostRow,
    /// SKU and price.
    sku: Rc<Sku>,
    category: ChargeCategory,
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
        let category = category_of(row);
        let Some(node) = row.node.as_deref().filter(|_| of_node) else {
            let sku = Rc::new(Sku::of(tables, row));
            let description = describe(tables, row, "");
            return Charge { tables, row, sku, category, description, node_tags: None, pod_tags };
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
        Charge { tables, row, sku, category, description, node_tags, pod_tags }
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

    /// Returns the first line of a bill that the row consists of. `None` on estimated rows and on rows of
    /// nodes.
    pub fn line(&self) -> Option<&BillLine> {
        line_of(self.row).map(BilledLine::line)
    }

    /// Returns the category: see [`category_of`].
    pub const fn category(&self) -> ChargeCategory {
        self.category
    }

    /// Returns `Recurring` for a purchase, `Usage-Based` for usage, and `One-Time` for all others.
    pub fn frequency(&self) -> &'static str {
        match self.category() {
            ChargeCategory::Purchase => "Recurring",
            ChargeCategory::Usage => "Usage-Based",
            ChargeCategory::Tax | ChargeCategory::Credit | ChargeCategory::Adjustment => "One-Time",
        }
    }

    /// Returns `Committed` if a commitment pays or a line uses one, `Dynamic` on spot, and `Standard`
    /// otherwise. `None` for a tax.
    pub fn pricing_category(&self) -> Option<&'static str> {
        let spot = self.node().is_some_and(|node| node.capacity_type == CapacityType::Spot);
        let is_committed = match self.line() {
            Some(line) => line.commitment_status.is_some(),
            None => self.row.commitment_id.is_some() && self.row.kind != RowKind::CommitmentPurchase,
        };
        let category = match is_committed {
            true => "Committed",
            false if spot => "Dynamic",
            false => "Standard",
        };
        self.has_sku().then_some(category)
    }

    /// Returns whether the charge is of a SKU. FOCUS wants neither SKU nor price nor quantity for a tax.
    fn has_sku(&self) -> bool {
        self.category() != ChargeCategory::Tax
    }

    /// Returns the SKU; `None` for a tax.
    pub fn priced_sku(&self) -> Option<&Sku> {
        self.has_sku().then_some(&*self.sku)
    }

    /// Returns the price of an hour; `None` for a tax.
    pub fn unit_price(&self) -> Option<Decimal12> {
        self.has_sku().then_some(self.row.list_unit_price)
    }

    /// Returns the priced hours; `None` for a tax.
    pub fn quantity(&self) -> Option<Decimal12> {
        self.has_sku().then_some(self.row.pricing_quantity)
    }

    /// Returns the hours consumed. `None` for the unused part of a commitment, for charges that are not
    /// usage, and for a line without hours.
    pub fn consumed(&self) -> Option<Decimal12> {
        if self.line().is_some() {
            let is_used = self.row.kind != RowKind::CommitmentUnused;
            let is_usage = is_used && self.category() == ChargeCategory::Usage;
            let has_hours = || self.row.lines.iter().any(|billed| billed.line().hours.is_some());
            return (is_usage && has_hours()).then_some(self.row.pricing_quantity);
        }
        match self.row.kind {
            RowKind::CommitmentUnused | RowKind::CommitmentPurchase | RowKind::SharedCharge => None,
            RowKind::PodNode
            | RowKind::NodeIdle
            | RowKind::PodServerless
            | RowKind::PodPool
            | RowKind::ReservationUnused => Some(self.row.pricing_quantity),
        }
    }

    /// Returns whether the reservation is `Used` or `Unused`, as the line says. `None` on rows without a
    /// reservation.
    pub fn reservation_status(&self) -> Option<&'static str> {
        self.row.reservation_id.as_ref()?;
        if let Some(line) = self.line() {
            return line.reservation_status.map(UseStatus::name);
        }
        Some(if self.row.kind == RowKind::ReservationUnused { "Unused" } else { "Used" })
    }

    /// Returns whether the commitment is `Used` or `Unused`, as the line says. `None` for a purchase, and on
    /// rows without a commitment.
    pub fn commitment_status(&self) -> Option<&'static str> {
        self.row.commitment_id.as_ref()?;
        if let Some(line) = self.line() {
            return line.commitment_status.map(UseStatus::name);
        }
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

    /// Returns the category and the subcategory of the service. A bill names services without one.
    pub fn service_category(&self) -> [&'static str; 2] {
        if self.line().is_some() { ["Other", "Other (Other)"] } else { ["Compute", "Containers"] }
    }

    /// Returns the service, as the line names it. A reservation or commitment belongs to the service for
    /// which it is bought.
    pub fn service_name(&self) -> &str {
        if let Some(line) = self.line() {
            return if line.service.is_empty() { SHARED_CHARGES } else { &line.service };
        }
        match self.row.kind {
            RowKind::PodNode
            | RowKind::NodeIdle
            | RowKind::CommitmentUnused
            | RowKind::CommitmentPurchase => "Kubernetes Nodes",
            RowKind::PodServerless | RowKind::ReservationUnused => "Serverless Pods",
            RowKind::PodPool => "GPU Pools",
            RowKind::SharedCharge => SHARED_CHARGES,
        }
    }

    /// Returns the kind of the resource named by `ResourceId`; `None` without a resource.
    pub fn resource_type(&self) -> Option<&'static str> {
        let kind = match self.row.kind {
            RowKind::PodNode | RowKind::NodeIdle => "Node",
            RowKind::PodServerless | RowKind::PodPool => "Pod",
            RowKind::ReservationUnused => "Capacity Reservation",
            RowKind::CommitmentUnused | RowKind::CommitmentPurchase => "Commitment",
            RowKind::SharedCharge => "Billed Resource",
        };
        (!self.row.resource_id.is_empty()).then_some(kind)
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
            RowKind::SharedCharge => None,
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
            RowKind::SharedCharge => None,
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
            RowKind::CommitmentUnused | RowKind::CommitmentPurchase | RowKind::SharedCharge => None,
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
            RowKind::SharedCharge => None,
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

    /// Returns the tags of the resource: a pod's labels, or the well-known labels of a node that follow from
    /// the node's description. Null on other rows.
    pub fn tags(&self) -> Cell<'_> {
        match self.row.kind {
            RowKind::PodNode | RowKind::NodeIdle => Cell::text(self.node_tags.as_deref()),
            RowKind::PodServerless | RowKind::PodPool => Cell::text(self.pod_tags.as_deref()),
            RowKind::ReservationUnused
            | RowKind::CommitmentUnused
            | RowKind::CommitmentPurchase
            | RowKind::SharedCharge => Cell::Null,
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

    fn splits_node(&self) -> bool {
        matches!(self.row.kind, RowKind::PodNode | RowKind::NodeIdle)
    }
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
