//! Bounds of texts and lists. They limit the part of one event that an hour keeps, and the names that each
//! commit of a table log repeats.

use std::ops::Deref;

use super::Judge;
use crate::event::{BillLine, BillSet, CommitmentSet, Event, Labels, Payload, Quantities};
use crate::quantity::Quantity;
use crate::reject::Reject;

/// Longest text in bytes: an id, a name, a label value, a quantity.
pub const TEXT_BYTES_MAX: usize = 1_024;

/// Largest number of labels, and of quantities in one field.
pub const NAMES_MAX: usize = 512;

/// Largest number of volumes of a pod, of namespaces of a quota, of assignments or discounts of a commitment,
/// of prices of a pool, or of lines in a set of a bill.
pub const LIST_MAX: usize = 4_096;

fn or_empty(text: &Option<impl Deref<Target = str>>) -> &str {
    text.as_deref().unwrap_or_default()
}

fn gpus(gpus: Option<&Quantity>) -> &str {
    gpus.map_or("", |gpus| &gpus.text)
}

impl Judge<'_> {
    /// Checks all texts and lists of an event.
    pub(super) fn all_texts(&self, event: &Event) -> Result<(), Reject> {
        self.text("organization_id", &event.organization_id)?;
        match &event.payload {
            Payload::NodeStarted(node) => {
                self.texts(&[
                    ("cluster_id", &*node.cluster_id),
                    ("node_id", &*node.node_id),
                    ("node_name", &*node.node_name),
                    ("provider", &*node.provider),
                    ("region", &*node.region),
                    ("zone", or_empty(&node.zone)),
                    ("instance_type", &*node.instance_type),
                    ("instance_family", &*node.instance_family),
                    ("gpu_model", or_empty(&node.gpu_model)),
                    ("currency", &*node.currency),
                    ("pool_id", or_empty(&node.pool_id)),
                    ("gpus", gpus(node.gpus.as_ref())),
                    ("resource_key", or_empty(&node.resource_key)),
                    ("account_id", or_empty(&node.account_id)),
                ])?;
                self.names_of_quantities("capacity", &node.capacity)
            }
            Payload::NodeStopped(node) => {
                self.texts(&[("cluster_id", &*node.cluster_id), ("node_id", &*node.node_id)])
            }
            Payload::PodStarted(pod) => {
                self.texts(&[
                    ("cluster_id", &*pod.cluster_id),
                    ("namespace", &*pod.namespace),
                    ("pod_name", &*pod.pod_name),
                    ("pod_uid", &*pod.pod_uid),
                    ("node_id", or_empty(&pod.node_id)),
                    ("region", or_empty(&pod.region)),
                    ("zone", or_empty(&pod.zone)),
                    ("pool_id", or_empty(&pod.pool_id)),
                    ("qos", &*pod.qos),
                    ("gpu_model", or_empty(&pod.gpu_model)),
                    ("workload_kind", or_empty(&pod.workload_kind)),
                    ("workload_name", or_empty(&pod.workload_name)),
                    ("gpus", gpus(pod.gpus.as_ref())),
                    ("gpu_sharing", or_empty(&pod.gpu_sharing)),
                ])?;
                self.names_of_quantities("requests", &pod.requests)?;
                self.names_of_quantities("limits", &pod.limits)?;
                self.count("volume_keys", pod.volume_keys.len(), LIST_MAX)?;
                pod.volume_keys.iter().try_for_each(|key| self.text("volume_keys", key))?;
                self.labels(&pod.labels)
            }
            Payload::PodStopped(pod) => self.texts(&[
                ("cluster_id", &*pod.cluster_id),
                ("namespace", &*pod.namespace),
                ("pod_uid", &*pod.pod_uid),
                ("reason", or_empty(&pod.reason)),
            ]),
            Payload::PodUsage(usage) => self.text("pod_uid", &usage.pod_uid),
            Payload::RateSet(rate) => self.texts(&[
                ("provider", &*rate.provider),
                ("region", &*rate.region),
                ("gpu_model", or_empty(&rate.gpu_model)),
                ("qos", &*rate.qos),
                ("currency", &*rate.currency),
            ]),
            Payload::BillSet(bill) => self.texts_of_bill(bill),
            Payload::BillingPeriodClosed(closed) => self.texts(&[
                ("provider", &*closed.provider),
                ("billing_account_id", &*closed.billing_account_id),
                ("invoice_id", or_empty(&closed.invoice_id)),
            ]),
            other => self.texts_of_agreement(other),
        }
    }

    fn texts_of_agreement(&self, payload: &Payload) -> Result<(), Reject> {
        match payload {
            Payload::ReservationSet(reservation) => {
                self.texts(&[
                    ("reservation_id", &*reservation.reservation_id),
                    ("name", &*reservation.name),
                    ("provider", &*reservation.provider),
                    ("region", &*reservation.region),
                    ("zone", or_empty(&reservation.zone)),
                    ("gpu_model", &*reservation.gpu_model),
                    ("currency", &*reservation.currency),
                ])?;
                self.names_of_quantities("capacity", &reservation.capacity)
            }
            Payload::ReservationReleased(released) => self.text("reservation_id", &released.reservation_id),
            Payload::CommitmentSet(commitment) => self.texts_of_commitment(commitment),
            Payload::CommitmentDeleted(deleted) => self.text("commitment_id", &deleted.commitment_id),
            Payload::QuotaSet(quota) => {
                self.texts(&[("cluster_id", &*quota.cluster_id), ("quota_id", &*quota.quota_id)])?;
                self.count("namespaces", quota.namespaces.len(), LIST_MAX)?;
                quota.namespaces.iter().try_for_each(|name| self.text("namespaces", name))?;
                self.names_of_quantities("min", &quota.min)?;
                quota.max.iter().try_for_each(|max| self.names_of_quantities("max", max))
            }
            Payload::QuotaDeleted(quota) => {
                self.texts(&[("cluster_id", &*quota.cluster_id), ("quota_id", &*quota.quota_id)])
            }
            Payload::PoolSet(pool) => {
                self.texts(&[
                    ("pool_id", &*pool.pool_id),
                    ("cluster_id", &*pool.cluster_id),
                    ("provider", &*pool.provider),
                    ("default_qos", &*pool.default_qos),
                    ("currency", &*pool.currency),
                ])?;
                self.names_of_quantities("max_capacity", &pool.max_capacity)?;
                self.names_of_quantities("min_capacity", &pool.min_capacity)?;
                self.names_of_quantities("warm_capacity", &pool.warm_capacity)?;
                self.count("qos_pricing", pool.qos_pricing.len(), LIST_MAX)?;
                pool.qos_pricing.iter().try_for_each(|price| self.text("qos_pricing.qos", &price.qos))
            }
            Payload::PoolDeleted(pool) => self.text("pool_id", &pool.pool_id),
            // `all_texts` checks the other payloads.
            Payload::NodeStarted(_)
            | Payload::NodeStopped(_)
            | Payload::PodStarted(_)
            | Payload::PodStopped(_)
            | Payload::PodUsage(_)
            | Payload::RateSet(_)
            | Payload::BillSet(_)
            | Payload::BillingPeriodClosed(_) => Ok(()),
        }
    }

    fn texts_of_commitment(&self, commitment: &CommitmentSet) -> Result<(), Reject> {
        self.texts(&[
            ("commitment_id", &*commitment.commitment_id),
            ("name", &*commitment.name),
            ("provider", &*commitment.provider),
            ("region", &*commitment.region),
            ("instance_family", &*commitment.instance_family),
            ("gpu_model", or_empty(&commitment.gpu_model)),
            ("currency", &*commitment.currency),
        ])?;
        self.count("assignments", commitment.assignments.len(), LIST_MAX)?;
        let mut clusters = commitment.assignments.iter();
        clusters.try_for_each(|to| self.text("assignments.cluster_id", &to.cluster_id))?;
        self.count("discounts", commitment.discounts.len(), LIST_MAX)?;
        commitment.discounts.iter().try_for_each(|discount| {
            self.texts(&[
                ("discounts.region", or_empty(&discount.region)),
                ("discounts.instance_family", or_empty(&discount.instance_family)),
                ("discounts.instance_type", or_empty(&discount.instance_type)),
                ("discounts.gpu_model", or_empty(&discount.gpu_model)),
            ])
        })
    }

    fn texts_of_bill(&self, bill: &BillSet) -> Result<(), Reject> {
        self.texts(&[
            ("provider", &*bill.provider),
            ("billing_account_id", &*bill.billing_account_id),
            ("resource_key", &*bill.resource_key),
            ("currency", &*bill.currency),
        ])?;
        self.count("lines", bill.lines.len(), LIST_MAX)?;
        bill.lines.iter().try_for_each(|line| self.texts_of_bill_line(line))
    }

    fn texts_of_bill_line(&self, line: &BillLine) -> Result<(), Reject> {
        self.texts(&[
            ("lines.line_id", &*line.line_id),
            ("lines.service", &*line.service),
            ("lines.sku_id", or_empty(&line.sku_id)),
            ("lines.description", or_empty(&line.description)),
            ("lines.account_id", or_empty(&line.account_id)),
            ("lines.invoice_id", or_empty(&line.invoice_id)),
            ("lines.commitment_id", or_empty(&line.commitment_id)),
            ("lines.reservation_id", or_empty(&line.reservation_id)),
        ])
    }

    pub(super) fn text(&self, field: &str, text: &str) -> Result<(), Reject> {
        match text.len() {
            bytes if bytes > TEXT_BYTES_MAX => {
                self.above(field, format_args!("a text of {bytes} bytes"), TEXT_BYTES_MAX)
            }
            _ => Ok(()),
        }
    }

    fn texts(&self, texts: &[(&str, &str)]) -> Result<(), Reject> {
        texts.iter().try_for_each(|(field, text)| self.text(field, text))
    }

    fn count(&self, field: &str, count: usize, bound: usize) -> Result<(), Reject> {
        if count > bound { self.above(field, format_args!("a list of {count}"), bound) } else { Ok(()) }
    }

    fn names_of_quantities(&self, field: &str, quantities: &Quantities) -> Result<(), Reject> {
        self.count(field, quantities.len(), NAMES_MAX)?;
        quantities.iter().try_for_each(|(name, quantity)| {
            self.text(field, name)?;
            self.text(field, &quantity.text)
        })
    }

    fn labels(&self, labels: &Labels) -> Result<(), Reject> {
        self.count("labels", labels.len(), NAMES_MAX)?;
        labels.iter().try_for_each(|(name, value)| {
            self.text("labels", name)?;
            self.text("labels", value)
        })
    }
}
