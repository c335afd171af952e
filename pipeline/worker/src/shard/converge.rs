//! The hour at which a recomputation may end before the last closed hour.

use std::collections::BTreeMap;

use prorata_schemas::time::Hour;

use super::fold::OrganizationHour;
use crate::checkpoint::{Checkpoint, snapshot};

/// Returns the digest of a shard's state at the end of an hour, from the digests of its organizations.
pub fn state_digest(organizations: &[OrganizationHour]) -> String {
    snapshot::shard_digest(
        organizations.iter().map(|folded| (&folded.packed.organization_id, &folded.digest)),
    )
}

/// Returns the first hour, `emit_from` or later, at which a recomputation may end. The state at its end
/// equals the recorded one. No later hour is dirty, or the next dirty hour has a base snapshot of its own.
pub fn converged(
    checkpoint: &Checkpoint,
    folded: &BTreeMap<Hour, Vec<OrganizationHour>>,
    emit_from: Hour,
) -> Option<Hour> {
    let has_later_base = |hour: Hour| {
        checkpoint.dirty.first_after(hour).is_none_or(|dirty| {
            checkpoint.hours.range(hour.next()..dirty).any(|(_, entry)| entry.snapshot.is_some())
        })
    };
    let mut hours = folded.range(emit_from..);
    let recorded = hours.find(|(hour, organizations)| {
        let entry = checkpoint.hours.get(hour);
        entry.is_some_and(|entry| entry.state_digest == state_digest(organizations)) && has_later_base(**hour)
    });
    recorded.map(|(hour, _)| *hour)
}
