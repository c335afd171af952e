//! Retention of a checkpoint's content. Hours stay while they are inside the horizon. Every snapshot stays
//! for 48 hours, then one snapshot a day stays. The horizon is a setting, `root.horizon`. It may change at
//! any time: a longer horizon keeps the content that still exists.
//!
//! Two older snapshots are always kept. One is the newest at or before the horizon, or the newest before the
//! first dirty hour if that is earlier. The other is the newest before the first dirty hour, at any age: an
//! interrupted recomputation continues from this snapshot. All ages count from the last closed hour.

use std::sync::Arc;
use std::time::Duration;

use prorata_schemas::time::Hour;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::model::Checkpoint;
use crate::ports::duration;

/// The number of hours for which every snapshot is kept.
const HOURLY: i64 = 48;

/// The number of hours in a day.
const DAY: i64 = 24;

/// The time that hours stay in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The number of hours inside the horizon; at least two days.
    hours: i64,
}

impl Default for Retention {
    /// Returns a horizon of 70 days: providers change the bill of a month for weeks after the month has
    /// ended.
    fn default() -> Self {
        Self { hours: 70 * DAY }
    }
}

impl Retention {
    /// The shortest and the longest horizon, in hours: 2 days to 2 years.
    const BOUNDS: (i64, i64) = (2 * DAY, 731 * DAY);

    /// Returns a retention with this horizon, in whole hours; `None` if it is shorter than two days or longer
    /// than two years.
    pub fn new(horizon: Duration) -> Option<Self> {
        let hours = i64::try_from(horizon.as_secs() / 3_600).ok()?;
        (Self::BOUNDS.0..=Self::BOUNDS.1).contains(&hours).then_some(Self { hours })
    }

    /// Returns the number of hours inside the horizon.
    pub const fn hours(self) -> i64 {
        self.hours
    }

    /// Returns the first hour inside the horizon of a shard that is closed through `closed_through`.
    pub const fn horizon(self, closed_through: Hour) -> Hour {
        Hour(closed_through.0 - self.hours)
    }

    /// Returns whether the snapshot of `hour` is kept once the shard is closed through `closed_through`.
    pub const fn keeps_snapshot(self, hour: Hour, closed_through: Hour) -> bool {
        let age = closed_through.0 - hour.0;
        age < HOURLY || (age < self.hours + DAY && hour.of_day() == 23)
    }

    /// Returns the oldest hour that a checkpoint still keeps of a longer history; no earlier state is kept.
    /// `None` if the history begins inside the horizon.
    ///
    /// If the horizon was raised, no snapshot is as old as the new horizon. Then the oldest hour in the
    /// checkpoint counts, until hours reach the age of the new horizon.
    pub fn oldest_base(self, checkpoint: &Checkpoint) -> Option<Hour> {
        let horizon = self.horizon(checkpoint.closed_through?);
        let mut with_snapshot = checkpoint.hours.iter().filter(|(_, entry)| entry.snapshot.is_some());
        let oldest = with_snapshot.next().map(|(hour, _)| *hour).filter(|oldest| *oldest <= horizon);
        let first = *checkpoint.hours.keys().next()?;
        // A late event before the first hour is in the archive before the hour is in the checkpoint.
        let known = checkpoint.dirty.first().map_or(first, |dirty| first.min(dirty));
        let has_left = checkpoint.archive_from.is_some_and(|from| from < known);
        oldest.or((first > horizon && has_left).then_some(first))
    }

    /// Drops everything from a checkpoint that need not be kept, and returns the snapshots that the
    /// checkpoint no longer names. An hour leaves only if every table is known to hold it.
    pub(super) fn prune(self, checkpoint: &mut Checkpoint) -> Vec<String> {
        let Some(closed_through) = checkpoint.closed_through else { return Vec::new() };
        let horizon = self.horizon(closed_through);
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
            let goes = before_anchor || (!is_base && !self.keeps_snapshot(*hour, closed_through));
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
}

impl Serialize for Retention {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.hours % DAY {
            0 => serializer.collect_str(&format_args!("{}d", self.hours / DAY)),
            _ => serializer.collect_str(&format_args!("{}h", self.hours)),
        }
    }
}

impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let horizon = duration::deserialize(deserializer)?;
        Self::new(horizon).ok_or_else(|| serde::de::Error::custom("a horizon is between 2d and 731d"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Dirty, HourEntry};

    const FIVE_WEEKS: Retention = Retention { hours: 35 * DAY };

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
        let dropped = FIVE_WEEKS.prune(&mut checkpoint);
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
        FIVE_WEEKS.prune(&mut checkpoint);
        assert_eq!(snapshots(&checkpoint).first(), Some(&(5 * 24 - 1)));
        // Four days close at once, and the dirty hour lies before the new horizon.
        checkpoint.closed_through = Some(Hour(44 * 24 - 1));
        checkpoint.dirty.insert(Hour(6 * 24));
        FIVE_WEEKS.prune(&mut checkpoint);
        assert_eq!(snapshots(&checkpoint).first(), Some(&(6 * 24 - 1)), "the newest before the dirty hour");
        checkpoint.dirty = Dirty::default();
        FIVE_WEEKS.prune(&mut checkpoint);
        assert_eq!(snapshots(&checkpoint).first(), Some(&(9 * 24 - 1)));
    }

    #[test]
    fn no_hour_leaves_before_the_tables_hold_it() {
        let mut checkpoint = checkpoint(100 * 24, false);
        FIVE_WEEKS.prune(&mut checkpoint);
        assert_eq!(checkpoint.hours.len(), 100 * 24);
    }

    #[test]
    fn a_longer_horizon_begins_with_what_is_kept() {
        let longer = Retention { hours: 70 * DAY };
        let mut checkpoint = checkpoint(40 * 24, true);
        checkpoint.archive_from = Some(Hour(0));
        assert_eq!(longer.oldest_base(&checkpoint), None, "nothing has left");
        FIVE_WEEKS.prune(&mut checkpoint);
        assert_eq!(FIVE_WEEKS.oldest_base(&checkpoint), Some(Hour(5 * 24 - 1)));
        assert_eq!(longer.oldest_base(&checkpoint), Some(Hour(5 * 24 - 1)), "the same until hours are older");
        // The history of a young shard has not left, also if a late event lies before it.
        let mut young = checkpoint_of_a_day();
        assert_eq!(longer.oldest_base(&young), None);
        young.archive_from = Some(Hour(-5));
        young.dirty.insert(Hour(-5));
        assert_eq!(longer.oldest_base(&young), None);
    }

    fn checkpoint_of_a_day() -> Checkpoint {
        let mut young = checkpoint(24, true);
        young.archive_from = Some(Hour(0));
        young
    }

    #[test]
    fn a_horizon_has_from_two_days_to_two_years() {
        let of = |hours: u64| Retention::new(Duration::from_secs(hours * 3_600)).map(Retention::hours);
        assert_eq!([of(47), of(48), of(731 * 24), of(731 * 24 + 1)], [None, Some(48), Some(731 * 24), None]);
        assert_eq!(Retention::new(Duration::MAX), None);
    }
}
