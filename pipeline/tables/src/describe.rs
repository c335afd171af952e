//! `ChargeDescription`: one sentence that tells finance what a row is for, without any other column.

use prorata_schemas::Text;
use prorata_schemas::event::{CapacityType, CommitmentKind, CommitmentSet, NodeStarted, PodStarted};
use prorata_schemas::rows::{CostRow, HourTables, RowKind, Unpriced};

use crate::sku::{SizeText, commitment_size};

/// The sentence of a row; `node` is what [`node_words`] says of its node, on rows that split one.
pub fn describe(tables: &HourTables, row: &CostRow, node: &str) -> String {
    let price = format!("at {} {} per hour", row.list_unit_price, tables.currency);
    let gpu_resources = &*tables.gpu_resources;
    match row.kind {
        RowKind::PodNode => format!("Pod {} on {}", pod_name(row), on_node(row, node, &price)),
        RowKind::NodeIdle => format!("Idle capacity of {}", on_node(row, node, &price)),
        RowKind::PodServerless => serverless(row, &price, gpu_resources),
        RowKind::PodPool => pool(row, &price),
        RowKind::ReservationUnused => match &row.reservation {
            Some(set) => format!(
                "Unused units of capacity reservation {} ({}) {price}",
                display_name(&set.name, &set.reservation_id),
                SizeText::of(&set.capacity, gpu_resources).words(Some(&set.gpu_model)),
            ),
            None => format!("Unused units of capacity reservation {} {price}", row.resource_id),
        },
        RowKind::CommitmentUnused => format!("Unused part of {}", commitment(row, true)),
        RowKind::CommitmentPurchase => format!("Recurring cost of {} {price}", commitment(row, true)),
    }
}

fn on_node(row: &CostRow, node: &str, price: &str) -> String {
    if row.node.is_none() {
        return format!("node {}, which is not known to run: no price", row.resource_id);
    }
    let paid = if row.commitment_id.is_some() {
        format!(", paid by {}", commitment(row, false))
    } else {
        format!(" {price}")
    };
    let no_charge = match row.unpriced {
        Some(Unpriced::UnknownPool) => "; no pool charge, the pool is not set",
        Some(Unpriced::NoQosPrice) => "; no pool charge, the pool has no price for its quality of service",
        Some(Unpriced::OtherCurrency) => "; a price is in another currency, and is not counted",
        Some(Unpriced::UnknownNode | Unpriced::NoRate) | None => "",
    };
    format!("node {node}{paid}{no_charge}")
}

/// A node by name and type.
pub fn node_words(node: &NodeStarted) -> String {
    let capacity = match node.capacity_type {
        CapacityType::OnDemand => "on demand",
        CapacityType::Spot => "spot",
    };
    format!("{} ({}, {capacity})", display_name(&node.node_name, &node.node_id), node.instance_type)
}

fn serverless(row: &CostRow, price: &str, gpu_resources: &[Text]) -> String {
    let mut text = format!("Serverless pod {}", pod_name(row));
    if let Some(pod) = &row.pod {
        text.push_str(&format!(
            " ({})",
            SizeText::of(&pod.requests, gpu_resources).words(pod.gpu_model.as_deref())
        ));
        text.push_str(&pod.region.as_deref().map(|region| format!(" in {region}")).unwrap_or_default());
    }
    match row.unpriced {
        Some(Unpriced::OtherCurrency) => text.push_str(": its rate is in another currency"),
        Some(_) => text.push_str(": no rate applies yet"),
        None => text.push_str(&format!(" {price}")),
    }
    if let Some(reservation) = &row.reservation_id {
        text.push_str(&format!(", on capacity reservation {reservation}"));
    }
    text
}

fn pool(row: &CostRow, price: &str) -> String {
    let (pool_id, qos) =
        row.pod.as_deref().map_or(("", ""), |pod| (pod.pool_id.as_deref().unwrap_or_default(), &*pod.qos));
    let rest = match row.unpriced {
        None => format!(" (quality of service {qos}) {price}"),
        Some(Unpriced::OtherCurrency) => ": its prices are in another currency".to_owned(),
        Some(Unpriced::NoQosPrice) => format!(": no price for quality of service {qos}"),
        Some(Unpriced::UnknownPool | Unpriced::UnknownNode | Unpriced::NoRate) => {
            ": the pool is not set".to_owned()
        }
    };
    format!("Pod {} in GPU pool {pool_id}{rest}", pod_name(row))
}

/// The commitment by kind and name, and what it is for when `scope` is asked for.
fn commitment(row: &CostRow, scope: bool) -> String {
    let Some(set) = &row.commitment else {
        return format!("commitment {}", row.commitment_id.as_deref().unwrap_or_default());
    };
    let name = format!("{} {}", kind_words(set), display_name(&set.name, &set.commitment_id));
    if !scope {
        return name;
    }
    let size = commitment_size(set).words(set.gpu_model.as_deref());
    format!("{name} ({} in {}: {size})", set.instance_family, set.region)
}

fn kind_words(commitment: &CommitmentSet) -> &'static str {
    match commitment.kind {
        CommitmentKind::ReservedInstance => "reserved instance",
        CommitmentKind::CommittedUseDiscount => "committed-use discount",
    }
}

fn pod_name(row: &CostRow) -> String {
    row.pod.as_deref().map_or_else(
        || row.pod_uid.as_deref().unwrap_or_default().to_owned(),
        |pod: &PodStarted| format!("{}/{}", pod.namespace, display_name(&pod.pod_name, &pod.pod_uid)),
    )
}

fn display_name<'a>(name: &'a str, id: &'a str) -> &'a str {
    if name.is_empty() { id } else { name }
}
