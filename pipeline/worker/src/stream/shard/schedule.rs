//! When hours of a shard are due: to close, or to be recomputed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, WallTime, micros};

use super::{LiveShard, Next};
use crate::checkpoint::HourSet;
use crate::checkpoint::retention::HORIZON_HOURS;
use crate::shard::courses::Courses;
use crate::shard::cursor::Recompute;

/// Hours of the first window, before rows are counted.
const WINDOW_HOURS_FIRST: i64 = 2;

/// Once no late event has come for so long, in microseconds, all that is dirty is written: one hour, so that
/// late events that come one at a time write no more than one run an hour.
const QUIET_MICROS: i64 = 3_600_000_000;

/// The part of their bytes with which hours that close pay for those that are written again: a half. The
/// other half is for hours that have waited for long enough.
const PAYING_PART: u64 = 2;

/// Hours that are so near to the horizon do not wait: two days.
const HORIZON_MARGIN_HOURS: i64 = 48;

/// When dirty hours of some organizations are recomputed.
#[derive(Clone, Copy, Debug)]
pub(in crate::stream) struct RestatePace {
    /// Least time between two runs.
    pub every: Duration,
    /// Most time that a dirty hour waits for live hours to write as much as is written again.
    pub delay_max: Duration,
}

/// How far a run may go that begins now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Through all that is dirty.
    All,
    /// Through this hour.
    Through(Hour),
    /// Through dirty hours whose table files have so many bytes, at least through the first.
    Bytes(u64),
}

/// How far recomputation has come.
#[derive(Debug)]
pub(super) struct Recomputation {
    /// Where it stands, while it goes on for all organizations.
    pub cursor: Option<Recompute>,
    /// Organizations that are recomputed alone, while that goes on.
    pub courses: Courses,
    /// Bytes of table files written again that hours closed since have not made up for.
    pub debt: u64,
    /// Since when each dirty hour waits.
    pub waiting: BTreeMap<Hour, WallTime>,
    /// When the last late event was taken.
    pub late_at: Option<WallTime>,
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
            debt: 0,
            waiting: BTreeMap::new(),
            late_at: None,
            unusable: BTreeSet::new(),
            began_at: None,
            through: None,
            window_hours,
            waits_for_release: false,
        }
    }
}

impl Recomputation {
    /// Pays the debt with the bytes of table files of hours that have closed.
    pub fn pay(&mut self, bytes: u64) {
        self.debt = self.debt.saturating_sub(bytes / PAYING_PART);
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
    /// arrive in bursts; hours of some organizations also wait while [`Self::reach`] says so.
    pub fn recompute_due(&self, now: WallTime, pace: RestatePace) -> bool {
        let recompute = &self.recompute;
        if self.next().dirty.is_empty() || recompute.waits_for_release {
            return false;
        }
        if recompute.cursor.is_some() || !recompute.courses.is_empty() || self.states.is_none() {
            return true;
        }
        let rested = recompute.began_at.is_none_or(|began| now.micros_since(began) >= micros(pace.every));
        let begun = rested || self.recompute_goes_on();
        begun && (!self.has_dirty_organizations_only() || self.reach(now, pace.delay_max).is_some())
    }

    /// How far a run for some organizations may go that begins now; none: it waits.
    ///
    /// Late events that never end may write half as many bytes again as live hours write: what they write
    /// is a debt, which hours pay when they close. A run begins while it is smaller than the files of the
    /// last hour closed. Hours that have waited for `delay_max`, or near the horizon, are written whatever
    /// that takes; and so is all that is dirty once no late event has come for an hour.
    pub(super) fn reach(&self, now: WallTime, delay_max: Duration) -> Option<Reach> {
        let (next, recompute) = (self.next(), &self.recompute);
        let closed = next.closed_through?;
        if recompute.late_at.is_none_or(|late| now.micros_since(late) >= QUIET_MICROS) {
            return Some(Reach::All);
        }
        let is_overdue = |(hour, since): &(&Hour, &WallTime)| {
            let leaves = closed.0 - hour.0 >= HORIZON_HOURS - HORIZON_MARGIN_HOURS;
            leaves || now.micros_since(**since) >= micros(delay_max)
        };
        if let Some((hour, _)) = recompute.waiting.iter().rev().find(is_overdue) {
            return Some(Reach::Through(*hour));
        }
        let allowed = self.file_bytes(closed).max(1);
        (recompute.debt < allowed).then(|| Reach::Bytes(allowed - recompute.debt))
    }

    /// Bytes of the table files of a closed hour.
    pub(super) fn file_bytes(&self, hour: Hour) -> u64 {
        self.next().hours.get(&hour).map_or(0, |entry| entry.file_bytes())
    }

    /// Notes which hours are dirty, and since when.
    pub(super) fn note_waiting(&mut self, now: WallTime) {
        let dirty = &self.next.dirty;
        let hours = dirty.of_organizations().values().flat_map(HourSet::iter).chain(dirty.of_all().iter());
        let since = |hour| self.recompute.waiting.get(&hour).copied().unwrap_or(now);
        self.recompute.waiting = hours.map(|hour| (hour, since(hour))).collect();
    }

    /// Number of hours that wait to be recomputed, and since when the first of them does.
    pub fn waiting(&self) -> (u64, Option<WallTime>) {
        let waiting = &self.recompute.waiting;
        (waiting.len() as u64, waiting.values().min().copied())
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
