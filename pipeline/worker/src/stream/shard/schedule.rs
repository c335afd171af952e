//! The times at which hours of a shard are due: to close, or to be recomputed.

use std::collections::BTreeMap;
use std::time::Duration;

use prorata_schemas::time::{Hour, WallTime, micros};

use super::LiveShard;
use crate::checkpoint::HourSet;
use crate::shard::recompute::RecomputeRun;
use crate::status::RecomputeGate;

/// The time without late events after which all dirty hours are recomputed. It is one hour, so that late
/// events that come one at a time cause at most one run an hour.
const QUIET: Duration = Duration::from_secs(3_600);

/// The divisor of the bytes that closing hours write. The quotient, one half, pays for rewritten hours. The
/// other half is for hours that have waited long enough.
const PAYING_PART: u64 = 2;

/// The distance from the horizon at which hours no longer wait: two days.
const HORIZON_MARGIN_HOURS: i64 = 48;

/// The pace at which dirty hours of some organizations are recomputed.
#[derive(Clone, Copy, Debug)]
pub(in crate::stream) struct RestatePace {
    /// Minimum time between two runs.
    pub every: Duration,
    /// Maximum time that a dirty hour waits until live hours have written enough bytes to pay for it.
    pub delay_max: Duration,
}

/// The extent of a run that begins now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunLimit {
    /// Through all dirty hours.
    All,
    /// Through this hour.
    Through(Hour),
    /// Through dirty hours whose table files together have this many bytes, at least through the first dirty
    /// hour.
    Bytes(u64),
}

/// The progress of recomputation.
#[derive(Debug, Default)]
pub(super) struct Recomputation {
    /// The run, if one is in progress.
    run: RecomputeRun,
    /// Bytes of rewritten table files for which closing hours have not paid yet.
    debt: u64,
    /// The time since which each dirty hour waits.
    waiting: BTreeMap<Hour, WallTime>,
    /// The time at which the last late event was taken.
    late_at: Option<WallTime>,
    /// The time at which recomputation last began at an hour that it had passed before.
    began_at: Option<WallTime>,
    /// Whether all dirty hours wait for a release that computes their rules.
    waits_for_release: bool,
}

impl Recomputation {
    /// Returns the run.
    pub fn run(&self) -> &RecomputeRun {
        &self.run
    }

    /// Returns the run, to move it along.
    pub fn run_mut(&mut self) -> &mut RecomputeRun {
        &mut self.run
    }

    /// Notes that a late event was taken. Hours that waited for a release are tried again.
    pub fn note_late(&mut self, now: WallTime) {
        self.late_at = Some(now);
        self.waits_for_release = false;
    }

    /// Notes that recomputation has begun at an hour that it had passed before.
    pub fn note_begin(&mut self, now: WallTime) {
        self.began_at = Some(now);
    }

    /// Makes all dirty hours wait for a release that computes their rules, until the next late event.
    pub fn wait_for_release(&mut self) {
        self.waits_for_release = true;
    }

    /// Adds the bytes of rewritten table files to the debt.
    pub fn owe(&mut self, bytes: u64) {
        self.debt += bytes;
    }

    /// Reduces the debt by half the bytes of the table files of hours that have closed.
    pub fn pay(&mut self, bytes: u64) {
        self.debt = self.debt.saturating_sub(bytes / PAYING_PART);
    }
}

impl LiveShard {
    /// Returns the first hour that is not closed, or `None` while the shard has had no event.
    pub fn next_hour(&self) -> Option<Hour> {
        self.next().closed_through.map(Hour::next).or_else(|| self.buffer.first_open())
    }

    /// Returns the last hour that the watermark lets close, or `None` if no hour may close.
    pub fn closable(&self) -> Option<Hour> {
        let last = self.topics.watermark()?.hour().previous();
        self.next_hour().filter(|next| *next <= last && self.states.is_some()).map(|_| last)
    }

    /// Returns the gate at which dirty hours wait, or `None` if no hour is dirty. The gates in order:
    ///
    /// 1. Hours whose rules this release does not compute wait for another release.
    /// 2. A run that has begun, or without which no hour can close, continues.
    /// 3. A restart at an hour that was recomputed before happens at most once per `every`, because late
    ///    events arrive in bursts.
    /// 4. Hours that are dirty for some organizations alone also wait while [`Self::run_limit`] is `None`.
    ///
    /// Finally, the late events must be in the archive, because a slice reads events only there.
    pub fn recompute_gate(&self, now: WallTime, pace: RestatePace) -> Option<RecomputeGate> {
        let recompute = &self.recompute;
        if self.next().dirty.is_empty() {
            return None;
        }
        if recompute.waits_for_release {
            return Some(RecomputeGate::Release);
        }
        let is_running = recompute.run.is_under_way() || self.states.is_none();
        if !is_running {
            let rested = recompute.began_at.is_none_or(|began| now.micros_since(began) >= micros(pace.every));
            if !rested && !self.recompute_continues() {
                return Some(RecomputeGate::Interval);
            }
            if self.has_dirty_organizations_only() && self.run_limit(now, pace.delay_max).is_none() {
                return Some(RecomputeGate::LateEvents);
            }
        }
        Some(match (self.has_stored_late(), is_running) {
            (false, _) => RecomputeGate::Checkpoint,
            (true, true) => RecomputeGate::Running,
            (true, false) => RecomputeGate::Due,
        })
    }

    /// Returns how far a run for some organizations that begins now may go, or `None` if it must wait.
    ///
    /// While late events keep coming, runs may write at most half as many bytes as live hours write. The
    /// bytes that runs write are a debt, which hours pay when they close. A run may begin only while the debt
    /// is smaller than the files of the last closed hour. Hours that have waited for `delay_max`, or are near
    /// the horizon, are written at any cost. So are all dirty hours once no late event has come for an hour.
    fn run_limit(&self, now: WallTime, delay_max: Duration) -> Option<RunLimit> {
        let (next, recompute) = (self.next(), &self.recompute);
        let closed = next.closed_through?;
        if recompute.late_at.is_none_or(|late| now.since(late) >= QUIET) {
            return Some(RunLimit::All);
        }
        let is_overdue = |(hour, since): &(&Hour, &WallTime)| {
            let leaves = hour.0 - HORIZON_MARGIN_HOURS <= self.retention.horizon(closed).0;
            leaves || now.micros_since(**since) >= micros(delay_max)
        };
        if let Some((hour, _)) = recompute.waiting.iter().rev().find(is_overdue) {
            return Some(RunLimit::Through(*hour));
        }
        let allowed = self.file_bytes(closed).max(1);
        (recompute.debt < allowed).then(|| RunLimit::Bytes(allowed - recompute.debt))
    }

    /// Returns the last hour that a slice of some organizations may include. A new run that may not take all
    /// dirty hours begins with as many hours as it may write. A run under way may continue through the last
    /// closed hour, and takes the dirty hours on its way.
    pub(super) fn slice_end(&self, closed: Hour, now: WallTime, delay_max: Duration) -> Hour {
        if self.recompute.run.is_of_some() {
            return closed;
        }
        let most = match self.run_limit(now, delay_max) {
            Some(RunLimit::All) => return closed,
            Some(RunLimit::Through(hour)) => return hour,
            Some(RunLimit::Bytes(most)) => most,
            None => 0,
        };
        let (mut bytes, mut last) = (0_u64, None);
        for hour in self.recompute.waiting.keys() {
            bytes += self.file_bytes(*hour);
            if last.is_some() && bytes > most {
                break;
            }
            last = Some(*hour);
        }
        last.unwrap_or(closed)
    }

    /// Returns the bytes of the table files of a closed hour.
    fn file_bytes(&self, hour: Hour) -> u64 {
        self.next().hours.get(&hour).map_or(0, |entry| entry.file_bytes())
    }

    /// Notes which hours are dirty, and since when.
    pub(super) fn note_waiting(&mut self, now: WallTime) {
        let dirty = &self.next().dirty;
        let hours = dirty.of_organizations().values().flat_map(HourSet::iter).chain(dirty.of_all().iter());
        let since = |hour| self.recompute.waiting.get(&hour).copied().unwrap_or(now);
        self.recompute.waiting = hours.map(|hour| (hour, since(hour))).collect();
    }

    /// Returns the number of hours that wait to be recomputed, and the time since which the first of them has
    /// waited.
    pub fn waiting(&self) -> (u64, Option<WallTime>) {
        let waiting = &self.recompute.waiting;
        (waiting.len() as u64, waiting.values().min().copied())
    }

    /// Returns whether the archive holds all late events that a checkpoint has taken. Events that the draft
    /// has yet to store are not readable.
    fn has_stored_late(&self) -> bool {
        !self.is_sealed() && self.draft.archived().iter().all(|hour| !self.is_closed(*hour))
    }

    /// Returns whether all dirty hours lie after the last hour that was recomputed.
    pub(super) fn recompute_continues(&self) -> bool {
        let through = self.recompute.run.through;
        self.next().dirty.first().is_some_and(|dirty| through.is_some_and(|through| dirty > through))
    }
}
