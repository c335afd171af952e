//! `ChargeDescription`: one message that explains the purpose of a row to finance, without any other column.

use std::fmt::{self, Display, Write};

use prorata_schemas::Text;
use prorata_schemas::event::{CapacityType, ChargeCategory, CommitmentKind, CommitmentSet, NodeStarted};
use prorata_schemas::rows::{BilledLine, CostRow, HourTables, RowKind, Unpriced};

use crate::sku::{SizeText, commitment_size, line_of};

/// Reserved size of a message; most messages are shorter.
const MESSAGE_BYTES: usize = 192;

/// Returns the message of a row. `node` is the result of [`node_words`] for the row's node, on rows that
/// split a node.
pub fn describe(tables: &HourTables, row: &CostRow, node: &str) -> String {
    let mut text = String::with_capacity(MESSAGE_BYTES);
    // Writing to a text cannot fail.
    let _ = write_message(&mut text, tables, row, node);
    text
}

fn write_message(text: &mut String, tables: &HourTables, row: &CostRow, node: &str) -> fmt::Result {
    if let Some(billed) = line_of(row) {
        return write_lines(text, row, billed);
    }
    let price = fmt::from_fn(|f| write!(f, "at {} {} per hour", row.list_unit_price, tables.currency));
    let gpu_resources = &*tables.gpu_resources;
    match row.kind {
        RowKind::PodNode => {
            text.push_str("Pod ");
            push_pod_name(text, row);
            text.push_str(" on ");
            write_on_node(text, row, node, &price)
        }
        RowKind::NodeIdle => {
            text.push_str("Idle capacity of ");
            write_on_node(text, row, node, &price)
        }
        RowKind::PodServerless => write_serverless(text, row, &price, gpu_resources),
        RowKind::PodPool => write_pool(text, row, &price),
        RowKind::ReservationUnused => {
            match &row.reservation {
                Some(set) => write!(
                    text,
                    "Unused units of capacity reservation {} ({}) {price}",
                    display_name(&set.name, &set.reservation_id),
                    SizeText::of(&set.capacity, gpu_resources).words(Some(&set.gpu_model)),
                ),
                None => write!(text, "Unused units of capacity reservation {} {price}", row.resource_id),
            }?;
            write_payer(text, row);
            Ok(())
        }
        RowKind::CommitmentUnused => write!(text, "Unused part of {}", commitment(row, true)),
        RowKind::CommitmentPurchase => write!(text, "Recurring cost of {} {price}", commitment(row, true)),
        // A shared charge always has a line, which is described above.
        RowKind::SharedCharge => write!(text, "Shared charge of {}", row.provider),
    }
}

/// Describes a row that is a line of a bill, or a pod's part of lines.
fn write_lines(text: &mut String, row: &CostRow, first: &BilledLine) -> fmt::Result {
    if row.pod_uid.is_none() {
        return write_line(text, row, first);
    }
    text.push_str("Pod ");
    push_pod_name(text, row);
    text.push_str(", part of: ");
    write_line(text, row, first)?;
    match row.lines.len() {
        0 | 1 => Ok(()),
        2 => text.write_str(", and 1 more line"),
        lines => write!(text, ", and {} more lines", lines - 1),
    }
}

/// Describes a line of a bill, in the words of the bill if it has any.
fn write_line(text: &mut String, row: &CostRow, billed: &BilledLine) -> fmt::Result {
    let (set, line) = (&*billed.set, billed.line());
    if let Some(words) = line.description.as_deref().filter(|words| !words.is_empty()) {
        text.push_str(words);
        return Ok(());
    }
    match row.kind {
        RowKind::CommitmentUnused => write!(text, "Unused part of {}", commitment(row, false)),
        RowKind::CommitmentPurchase => write!(text, "Purchase of {}", commitment(row, false)),
        RowKind::ReservationUnused => {
            write!(text, "Unused units of capacity reservation {}", row.resource_id)
        }
        _ => {
            text.push_str(match line.category {
                ChargeCategory::Usage => "Usage of ",
                ChargeCategory::Purchase => "Purchase of ",
                ChargeCategory::Tax => "Tax on ",
                ChargeCategory::Credit => "Credit for ",
                ChargeCategory::Adjustment => "Adjustment of ",
            });
            text.push_str(if line.service.is_empty() { "shared charges" } else { &line.service });
            match &*set.resource_key {
                "" => Ok(()),
                key => write!(text, ", resource {key}"),
            }
        }
    }?;
    write!(text, ", line {} of the bill of account {}", line.line_id, set.billing_account_id)
}

fn write_on_node(text: &mut String, row: &CostRow, node: &str, price: &impl Display) -> fmt::Result {
    if row.node.is_none() {
        return write!(text, "node {}, which is not known to run: no price", row.resource_id);
    }
    text.push_str("node ");
    text.push_str(node);
    let is_billed = !row.lines.is_empty();
    if row.commitment_id.is_none() && !is_billed {
        write!(text, " {price}")?;
    }
    write_payer(text, row);
    if is_billed {
        text.push_str(", as billed");
    }
    text.push_str(match row.unpriced {
        Some(Unpriced::UnknownPool) => "; no pool charge, the pool is not set",
        Some(Unpriced::NoQosPrice) => "; no pool charge, the pool has no price for its quality of service",
        Some(Unpriced::UnknownGpuShare) => "; the pod shares GPUs, and its part of them is not known",
        Some(Unpriced::OtherCurrency) => "; a price is in another currency, and is not counted",
        Some(Unpriced::UnknownNode | Unpriced::NoRate) | None => "",
    });
    Ok(())
}

/// Describes a node by name and type.
pub fn node_words(node: &NodeStarted) -> String {
    let capacity = match node.capacity_type {
        CapacityType::OnDemand => "on demand",
        CapacityType::Spot => "spot",
    };
    format!("{} ({}, {capacity})", display_name(&node.node_name, &node.node_id), node.instance_type)
}

fn write_serverless(
    text: &mut String,
    row: &CostRow,
    price: &impl Display,
    gpu_resources: &[Text],
) -> fmt::Result {
    text.push_str("Serverless pod ");
    push_pod_name(text, row);
    if let Some(pod) = &row.pod {
        let size = SizeText::from(pod.size(gpu_resources));
        write!(text, " ({})", size.words(pod.gpu_model.as_deref()))?;
        if let Some(region) = &pod.region {
            write!(text, " in {region}")?;
        }
    }
    match row.unpriced {
        Some(Unpriced::UnknownGpuShare) => {
            write!(text, " {price}; the pod shares GPUs, and its part of them is not known")?;
        }
        Some(Unpriced::OtherCurrency) => text.push_str(": its rate is in another currency"),
        Some(_) => text.push_str(": no rate applies yet"),
        None => write!(text, " {price}")?,
    }
    if let Some(reservation) = &row.reservation_id {
        write!(text, ", on capacity reservation {reservation}")?;
    }
    write_payer(text, row);
    Ok(())
}

fn write_pool(text: &mut String, row: &CostRow, price: &impl Display) -> fmt::Result {
    let (pool_id, qos) =
        row.pod.as_deref().map_or(("", ""), |pod| (pod.pool_id.as_deref().unwrap_or_default(), &*pod.qos));
    text.push_str("Pod ");
    push_pod_name(text, row);
    write!(text, " in GPU pool {pool_id}")?;
    match row.unpriced {
        None => write!(text, " (quality of service {qos}) {price}"),
        Some(Unpriced::OtherCurrency) => write!(text, ": its prices are in another currency"),
        Some(Unpriced::NoQosPrice) => write!(text, ": no price for quality of service {qos}"),
        Some(
            Unpriced::UnknownPool | Unpriced::UnknownNode | Unpriced::NoRate | Unpriced::UnknownGpuShare,
        ) => {
            write!(text, ": the pool is not set")
        }
    }
}

/// Appends the commitment that pays, if there is one.
fn write_payer(text: &mut String, row: &CostRow) {
    if row.commitment_id.is_some() {
        text.push_str(", paid by ");
        text.push_str(&commitment(row, false));
    }
}

/// Describes a row's commitment by kind and name, and also by scope if `scope` is set.
fn commitment(row: &CostRow, scope: bool) -> String {
    let Some(set) = &row.commitment else {
        return format!("commitment {}", row.commitment_id.as_deref().unwrap_or_default());
    };
    let name = format!("{} {}", kind_words(set), display_name(&set.name, &set.commitment_id));
    if !scope {
        return name;
    }
    if let Some(spend) = set.hourly_commitment {
        return format!("{name} ({spend} {} an hour)", set.currency);
    }
    let size = commitment_size(set).words(set.gpu_model.as_deref());
    format!("{name} ({} in {}: {size})", set.instance_family, set.region)
}

fn kind_words(commitment: &CommitmentSet) -> &'static str {
    match commitment.kind {
        CommitmentKind::ReservedInstance => "reserved instance",
        CommitmentKind::CommittedUseDiscount => "committed-use discount",
        CommitmentKind::SavingsPlan => "savings plan",
    }
}

fn push_pod_name(text: &mut String, row: &CostRow) {
    match row.pod.as_deref() {
        Some(pod) => {
            text.push_str(&pod.namespace);
            text.push('/');
            text.push_str(display_name(&pod.pod_name, &pod.pod_uid));
        }
        None => text.push_str(row.pod_uid.as_deref().unwrap_or_default()),
    }
}

fn display_name<'a>(name: &'a str, id: &'a str) -> &'a str {
    if name.is_empty() { id } else { name }
}
