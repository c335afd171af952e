//! The Avro schemas of the events as text, from the files in `schemas/events`. They are the source of truth
//! for what producers send.

use super::EventKind;

/// Namespace of every event record.
pub const NAMESPACE: &str = "prorata.events";

/// Returns our newest schema of `kind`, as JSON.
pub const fn avsc(kind: EventKind) -> &'static str {
    match kind {
        EventKind::NodeStarted => include_str!("../../events/node_started.avsc"),
        EventKind::NodeStopped => include_str!("../../events/node_stopped.avsc"),
        EventKind::PodStarted => include_str!("../../events/pod_started.avsc"),
        EventKind::PodStopped => include_str!("../../events/pod_stopped.avsc"),
        EventKind::PodUsage => include_str!("../../events/pod_usage.avsc"),
        EventKind::ReservationSet => include_str!("../../events/reservation_set.avsc"),
        EventKind::ReservationReleased => include_str!("../../events/reservation_released.avsc"),
        EventKind::CommitmentSet => include_str!("../../events/commitment_set.avsc"),
        EventKind::CommitmentDeleted => include_str!("../../events/commitment_deleted.avsc"),
        EventKind::QuotaSet => include_str!("../../events/quota_set.avsc"),
        EventKind::QuotaDeleted => include_str!("../../events/quota_deleted.avsc"),
        EventKind::PoolSet => include_str!("../../events/pool_set.avsc"),
        EventKind::PoolDeleted => include_str!("../../events/pool_deleted.avsc"),
        EventKind::RateSet => include_str!("../../events/rate_set.avsc"),
        EventKind::BillSet => include_str!("../../events/bill_set.avsc"),
        EventKind::BillingPeriodClosed => include_str!("../../events/billing_period_closed.avsc"),
    }
}

/// Released schemas from `released/` that are no longer the newest. Without a schema registry, they identify
/// older writers.
pub const OLDER: &[&str] = &[];

/// Returns the full name of the record of `kind`, such as `prorata.events.NodeStarted`.
pub fn full_name(kind: EventKind) -> String {
    format!("{NAMESPACE}.{}", kind.name())
}

/// Returns the kind whose record has this full name; `None` if no record does.
pub fn kind_of(full_name: &str) -> Option<EventKind> {
    let name = full_name.strip_prefix(NAMESPACE)?.strip_prefix('.')?;
    EventKind::ALL.into_iter().find(|kind| kind.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_schema_of_its_name() {
        for kind in EventKind::ALL {
            let name = full_name(kind);
            assert!(avsc(kind).contains(&format!("\"name\": \"{name}\"")), "{name}");
            assert_eq!(kind_of(&name), Some(kind));
        }
        for none in ["prorata.events", "prorata.events.", "prorata.eventsNodeStarted", "NodeStarted", ""] {
            assert_eq!(kind_of(none), None, "{none:?}");
        }
    }
}
