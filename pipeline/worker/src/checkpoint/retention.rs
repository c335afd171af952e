//! Retention of a checkpoint's content: hours inside the horizon; every snapshot for 48 hours, then one a
//! day.
//!
//! Two older snapshots are always kept. One is the newest at or before the horizon, or the newest before the
//! first dirty hour if that is earlier. The other is the newest before the first dirty hour, wherever it
//! lies: a recomputation that leads up to that hour has come that far. All ages count from the last closed
//! hour.

use std::sync::Arc;

use prorata_schemas::time::Hour;

use super::model::Checkpoint;

/// The number of hours inside the horizon: 35 days.
pub const HORIZON_HOURS: i64 = 35 * 24;

/// The number of hours for which every snapshot is kept.
const HOURLY: i64 = 48;

/// Returns whether the snapshot of `hour` is kept once the shard is closed through `closed_through`.
pub fn keeps_snapshot(hour: Hour, closed_through: Hour) -> bool {
    let age = closed_through.0 - hour.0;
    age < HOURLY || (age < HORIZON_HOURS + 24 && hour.of_day() == 23)
}

/// Drops everything from a checkpoint that need not be kept, and returns the snapshots that it no longer
/// names. An hour leaves only if every table is known to hold it.
pub(super) fn prune(checkpoint: &mut Checkpoint) -> Vec<String> {
    let Some(closed_through) = checkpoint.closed_through else { return Vec::new() };
    let horizon = Hour(closed_through.0 - HORIZON_HOURS);
    let with_snapshot = checkpoint.hours.iter().filter(|(_, entry)| entry.snapshot.is_some());
    // A dirty hour is recomputed from the newest snapshot before it.
    let oldest_needed = checkpoint.dirty.first().map_or(horizon, |dirty| horizon.min(dirty.previous()));
    let anchor = with_snapshot.clone().map(|(hour, _)| *hour).filter(|hour| *hour <= oldest_needed).max();
    let base = checkpoint
        .dirty
        .first()
        .and_then(|dirty| with_snapshot.map(|(hour, _)| *hour).filter(|hour| *hour < dirty).max());
    let mut dropped = Vec::new();
    for (hour, entry) in &mut checkpoint.hours {
        let before_anchor = anchor.is_some_and(|anchor| *hour < anchor);
        let is_base = Some(*hour) == anchor || Some(*hour) == base;
        let goes = before_anchor || (!is_base && !keeps_snapshot(*hour, closed_through));
        if goes && entry.snapshot.is_some() {
            dropped.extend(Arc::make_mut(entry).take_snapshot());
        }
    }
    let revisions = &mut checkpoint.revisions;
    checkpoint.hours.retain(|hour, entry| {
        let stays = *hour >= horizon || !entry.published || entry.snapshot.is_some();
        if stays {
            revisions.remove(hour);
        } else if entry.revision > 0 {
            revisions.insert(*hour, entry.revision);
        }
        stays
    });
    let hours = &checkpoint.hours;
    checkpoint.unsent_budgets.retain(|hour| hours.contains_key(&hour));
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Dirty, HourEntry};

    fn checkpoint(hours: i64, published: bool) -> Checkpoint {
        let mut checkpoint = Checkpoint::unowned(0);
        checkpoint.closed_through = Some(Hour(hours - 1));
        for hour in 0..hours {
            let snapshot = Some(format!("s{hour}"));
            let entry = HourEntry { snapshot, published, revision: 1, ..HourEntry::default() };
            checkpoint.hours.insert(Hour(hour), entry.into());
        }
        checkpoint
    }

    fn snapshots(checkpoint: &Checkpoint) -> Vec<i64> {
        let kept = checkpoint.hours.iter().filter(|(_, entry)| entry.snapshot.is_some());
        kept.map(|(hour, _)| hour.0).collect()
    }

    #[test]
    fn snapshots_are_hourly_then_daily_and_one_before_the_horizon() {
        let mut checkpoint = checkpoint(100 * 24, true);
        let dropped = prune(&mut checkpoint);
        let kept = snapshots(&checkpoint);
        assert_eq!(kept.iter().filter(|hour| **hour >= 98 * 24).count(), 48);
        assert_eq!(kept.first(), Some(&(65 * 24 - 1)), "the newest at or before the horizon");
        assert_eq!(kept.len(), 48 + 34, "33 whole days inside the horizon and the one before it");
        assert_eq!(dropped.len() + kept.len(), 100 * 24);
        assert_eq!(checkpoint.hours.len(), 35 * 24 + 1);
        assert_eq!(checkpoint.revisions.len(), 65 * 24 - 1);
        assert_eq!(checkpoint.revision_of(Hour(3)), 1);
    }

    #[test]
    fn the_base_of_a_dirty_hour_is_kept_beyond_the_horizon() {
        let mut checkpoint = checkpoint(40 * 24, true);
        prune(&mut checkpoint);
        assert_eq!(snapshots(&checkpoint).first(), Some(&(5 * 24 - 1)));
        // Four days close at once, and the dirty hour lies before the new horizon.
        checkpoint.closed_through = Some(Hour(44 * 24 - 1));
        checkpoint.dirty.insert(Hour(6 * 24));
        prune(&mut checkpoint);
        assert_eq!(snapshots(&checkpoint).first(), Some(&(6 * 24 - 1)), "the newest before the dirty hour");
        checkpoint.dirty = Dirty::default();
        prune(&mut checkpoint);
        assert_eq!(snapshots(&checkpoint).first(), Some(&(9 * 24 - 1)));
    }

    #[test]
    fn no_hour_leaves_before_the_tables_hold_it() {
        let mut checkpoint = checkpoint(100 * 24, false);
        prune(&mut checkpoint);
        assert_eq!(checkpoint.hours.len(), 100 * 24);
    }
}
