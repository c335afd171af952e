//! When hours of a shard are due: to close, or to be recomputed.

use std::collections::BTreeSet;
use std::time::Duration;

use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, WallTime, micros};

use super::restate::Courses;
use super::{LiveShard, Next};
use crate::shard::cursor::Recompute;

/// Hours of the first window, before rows are counted.
const WINDOW_HOURS_FIRST: i64 = 2;

/// For each of so many hours whose files a run has written again, the next begins one `checkpoint_every`
/// later.
const RESTED_HOURS: i64 = 8;

/// Most times `checkpoint_every` between two runs: one hour by default.
const RESTS_MAX: i64 = 60;

/// How far recomputation has come.
#[derive(Debug)]
pub(super) struct Recomputation {
    /// Where it stands, while it goes on for all organizations.
    pub cursor: Option<Recompute>,
    /// Organizations that are recomputed alone, while that goes on.
    pub courses: Courses,
    /// Hours whose files were written again by the last run for organizations alone.
    pub written_hours: i64,
    /// Table files that cannot be used: they are written again when their hours are folded.
    pub unusable: BTreeSet<(Hour, Table)>,
    /// When it last began at an hour that it had come past before.
    pub began_at: Option<WallTime>,
    /// The last hour that was recomputed.
    pub through: Option<Hour>,
    /// Hours of the next window.
    pub window_hours: i64,
    /// Whether dirty hours wait for a release that computes their rules.
    pub waits_for_release: bool,
}

impl Default for Recomputation {
    fn default() -> Self {
        let window_hours = WINDOW_HOURS_FIRST;
        Self {
            cursor: None,
            courses: Courses::new(),
            written_hours: 0,
            unusable: BTreeSet::new(),
            began_at: None,
            through: None,
            window_hours,
            waits_for_release: false,
        }
    }
}

impl LiveShard {
    /// The first hour that is not closed; none while the shard has had no event.
    pub fn next_hour(&self) -> Option<Hour> {
        self.next().closed_through.map(Hour::next).or_else(|| self.buffer.first_open())
    }

    /// The last hour that the watermark lets close; none: no hour may close.
    pub fn closable(&self) -> Option<Hour> {
        let last = self.topics.watermark()?.hour().previous();
        self.next_hour().filter(|next| *next <= last && self.states.is_some()).map(|_| last)
    }

    /// True if a slice of dirty hours is due: a recomputation is in progress, or closing waits for one.
    /// Restarting at an hour that was recomputed before is limited to once per `every`, because late events
    /// arrive in bursts, and to less where the last run wrote the files of many hours.
    pub fn recompute_due(&self, now: WallTime, every: Duration) -> bool {
        let rest = micros(every) * (self.recompute.written_hours / RESTED_HOURS).clamp(1, RESTS_MAX);
        let rested = self.recompute.began_at.is_none_or(|began| now.micros_since(began) >= rest);
        let under_way = self.recompute.cursor.is_some() || !self.recompute.courses.is_empty();
        let begun = under_way || self.states.is_none() || self.recompute_goes_on();
        !self.next().dirty.is_empty() && !self.recompute.waits_for_release && (begun || rested)
    }

    /// Whether the archive holds all late events that a checkpoint has taken. Those that the draft has yet to
    /// store are not readable.
    pub fn has_stored_late(&self) -> bool {
        match &self.next {
            Next::Draft(draft) => draft.archived().iter().all(|file| !self.is_closed(file.hour)),
            Next::Sealed(_) => false,
        }
    }

    /// Whether all dirty hours lie after the last hour that was recomputed.
    pub(super) fn recompute_goes_on(&self) -> bool {
        let through = self.recompute.through;
        self.next().dirty.first().is_some_and(|dirty| through.is_some_and(|through| dirty > through))
    }
}
