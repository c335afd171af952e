//! Late events of some organizations: when their hours are recomputed, and with what result.
//!
//! [`crate::shard::courses`] says how the organizations are folded. A late event of an hour that a run has
//! passed waits for the next run. So a steady flow does not keep the last hours from being recomputed. Late
//! events that keep coming are collected, so that they write no more than live hours write; see `reach` in
//! [`super::schedule`].

use prorata_schemas::time::Hour;

use super::LiveShard;
use super::fold::Folding;
use super::schedule::Reach;
use crate::error::Result;
use crate::shard::courses::{CourseFolder, CourseShard, CourseSlice, Restated};

/// The result of a slice.
pub(super) enum SliceOutcome {
    /// The slice is in the draft, or there was nothing to do.
    Done,
    /// The slice needs all organizations; the reason.
    NeedsAll(String),
}

impl Folding<'_> {
    /// Recomputes a slice of the hours that are dirty for some organizations alone.
    pub(super) async fn restate_slice(&mut self, shard: &mut LiveShard) -> Result<SliceOutcome> {
        let (Some(closed), Some(namer)) = (shard.next().closed_through, shard.namer()) else {
            return Ok(SliceOutcome::Done);
        };
        let end = self.end(shard, closed);
        let begins = shard.recompute.courses.is_empty() && !shard.recompute_goes_on();
        let draft = &mut *shard.draft;
        let folder =
            CourseFolder { ports: self.ports, rules: &*self.rules, limits: self.limits, now: self.now };
        let of = CourseShard { draft, archive: &mut shard.archive, namer };
        let under_way = (&shard.recompute.courses, shard.recompute.through);
        let slice = folder.slice(of, under_way, end, |_| ()).await?;
        if begins {
            shard.recompute.began_at = Some(self.now);
        }
        match slice {
            CourseSlice::Waits(hour) => self.rules.of(&shard.draft, hour).map(|_| SliceOutcome::Done),
            CourseSlice::Nothing => Ok(SliceOutcome::Done),
            CourseSlice::Restated(restated) => {
                self.take_restated(shard, restated);
                Ok(SliceOutcome::Done)
            }
            CourseSlice::NeedsAll { cause, unusable } => {
                shard.recompute.unusable.extend(unusable);
                Ok(SliceOutcome::NeedsAll(cause))
            }
        }
    }

    /// Returns the last hour that the next slice may have. A run that may not take all dirty hours begins
    /// with as many as it may write. If they change later hours, the run also takes what is dirty there.
    fn end(&self, shard: &LiveShard, closed: Hour) -> Hour {
        if !shard.recompute.courses.is_empty() {
            return closed;
        }
        let most = match shard.reach(self.now, self.pace.delay_max) {
            Some(Reach::All) => return closed,
            Some(Reach::Through(hour)) => return hour,
            Some(Reach::Bytes(most)) => most,
            None => 0,
        };
        let (mut bytes, mut last) = (0_u64, None);
        for hour in shard.recompute.waiting.keys() {
            bytes += shard.file_bytes(*hour);
            if last.is_some() && bytes > most {
                break;
            }
            last = Some(*hour);
        }
        last.unwrap_or(closed)
    }

    /// Takes a slice into the draft, and records the progress of its organizations.
    fn take_restated(&mut self, shard: &mut LiveShard, mut restated: Restated<()>) {
        let recompute = &mut shard.recompute;
        recompute.debt += restated.hours.iter().map(|hour| hour.file_bytes).sum::<u64>();
        recompute.through = Some(restated.last);
        recompute.courses = std::mem::take(&mut restated.courses);
        self.counts.folded_organization_hours += restated.folded;
        self.counts.restated_hours += restated.hours.iter().filter(|hour| hour.restated).count() as u64;
        if let Some(states) = &mut shard.states {
            for (organization_id, state) in std::mem::take(&mut restated.states) {
                match state {
                    Some(state) => states.insert(organization_id, state),
                    None => states.remove(&organization_id),
                };
            }
        }
        if let Some(draft) = shard.draft() {
            restated.take_into(draft);
        }
    }
}
