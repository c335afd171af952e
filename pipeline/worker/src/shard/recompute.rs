//! Recomputation of closed hours whose events, rules or files have changed. The stream worker and the
//! backfill fold an hour again only in this way.
//!
//! A run recomputes a set of organizations, a *slice* of hours at a time. It starts at the nearest snapshot
//! before the first dirty hour, moves the dirty marks along, and ends where the state equals the recorded
//! state.
//!
//! - [`some`] recomputes the organizations with dirty hours. It folds each organization from the nearest
//!   usable snapshot, and replaces the organization's rows in the existing files. The run of each
//!   organization ends separately.
//! - [`all`] recomputes all organizations. It folds them from one snapshot, encodes every file again, and
//!   keeps each file whose content is the same. The run ends for all organizations at the same hour.
//!
//! A run covers all organizations if hours are dirty for all, if the caller asks for it, or if some
//! organizations cannot be recomputed alone. This is the case if hours have left the checkpoint, table files
//! cannot be read, or no usable snapshot is near.

mod all;
mod some;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange, WallTime};

use self::some::SomeSlice;
use super::archive::ArchiveIndex;
use super::base::FoldPosition;
use super::emit::{self, EncodedHour, LiveTables};
use super::window::WindowLimits;
use crate::checkpoint::retention::Retention;
use crate::checkpoint::snapshot::ShardState;
use crate::checkpoint::snapshot::idle::{IdleState, RunState};
use crate::checkpoint::{Checkpoint, Draft, ObjectNamer};
use crate::error::Result;
use crate::ports::Ports;
use crate::shard::rules::RuleBook;

/// Number of hours in the first window, when the number of rows per hour is not known yet.
const WINDOW_HOURS_FIRST: i64 = 2;

/// The run of one organization through its dirty hours.
#[derive(Clone, Debug)]
struct OrganizationRun {
    /// The next hour to fold.
    next: Hour,
    /// The organization's state before that hour; `None` if the organization is new.
    state: Option<RunState>,
}

/// Runs of organizations, by id.
type OrganizationRuns = BTreeMap<OrganizationId, OrganizationRun>;

/// The progress of recomputation between two slices. While nothing is under way, the next slice begins a run.
#[derive(Debug)]
pub struct RecomputeRun {
    /// The next hour and state, while all organizations are recomputed.
    all: Option<FoldPosition>,
    /// Organizations under way, while only some are recomputed.
    some: OrganizationRuns,
    /// The last hour that was recomputed.
    pub through: Option<Hour>,
    /// Table files that cannot be used, and are written again when their hours are folded.
    pub unusable: BTreeSet<(Hour, Table)>,
    /// Number of hours in the next window of all organizations.
    pub window_hours: i64,
}

impl Default for RecomputeRun {
    fn default() -> Self {
        let (all, some, through) = (None, OrganizationRuns::new(), None);
        Self { all, some, through, unusable: BTreeSet::new(), window_hours: WINDOW_HOURS_FIRST }
    }
}

impl RecomputeRun {
    /// Returns whether a run has begun that has not ended yet.
    pub fn is_under_way(&self) -> bool {
        self.all.is_some() || !self.some.is_empty()
    }

    /// Returns whether a run of some organizations is under way.
    pub fn is_of_some(&self) -> bool {
        !self.some.is_empty()
    }

    /// Returns whether the next slice of a shard may cover only some organizations.
    pub fn may_be_of_some(&self, checkpoint: &Checkpoint) -> bool {
        let dirty = &checkpoint.dirty;
        self.all.is_none() && dirty.of_all().is_empty() && !dirty.of_organizations().is_empty()
    }
}

/// Everything that recomputation needs besides the shard.
pub struct Recomputer<'a> {
    /// Ports that every owner runs on.
    pub ports: &'a Ports,
    /// Rules by version.
    pub rules: &'a RuleBook,
    /// Limits of a slice.
    pub limits: WindowLimits,
    /// The wall clock, for `last_updated`.
    pub now: WallTime,
    /// The owner, whose id is part of the names of files that are split off a day's file.
    pub owner: &'a Text,
    /// The retention, which decides the snapshots that stay.
    pub retention: Retention,
}

/// A shard to be recomputed.
pub struct RecomputeShard<'a> {
    /// The shard's next checkpoint.
    pub draft: &'a mut Draft,
    /// The shard's archive.
    pub archive: &'a mut ArchiveIndex,
    /// Live table files of hours that have left the checkpoint.
    pub live: &'a mut LiveTables,
    /// A source of names for objects of the draft.
    pub namer: ObjectNamer,
    /// The progress so far.
    pub run: &'a mut RecomputeRun,
    /// The organizations to recompute.
    pub set: Set,
}

/// The set of organizations of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Only the organizations with dirty hours, if that is possible, through this hour at most.
    Dirty(Hour),
    /// All organizations. The run ends early where the state equals the recorded state.
    All,
    /// All organizations, through the last closed hour, because the state at its end is not known.
    AllThrough,
}

/// Hours that were recomputed, ready to enter the draft.
pub struct Recomputed<T> {
    /// The hours, with objects that are yet to be stored.
    pub hours: Vec<EncodedHour<T>>,
    /// States at the end.
    pub states: States,
    /// Number of hours folded, counted once per organization.
    pub folded: u64,
    /// The reason that all organizations were folded although only some have dirty hours.
    pub fallback: Option<String>,
    marks: Marks,
}

/// States at the end of a slice.
#[derive(Debug)]
pub enum States {
    /// All organizations, at the last hour of the slice; `is_current` says whether that is the last closed
    /// hour.
    All { states: ShardState, is_current: bool },
    /// Organizations that have reached the last closed hour; `None` if the organization has left.
    Some(BTreeMap<OrganizationId, Option<Arc<IdleState>>>),
}

impl Default for States {
    fn default() -> Self {
        Self::Some(BTreeMap::new())
    }
}

/// Changes of the dirty marks: finished hours, and the hour at which the run continues.
enum Marks {
    /// For all organizations, with snapshots of hours that were folded only to reach the dirty hours.
    All { done: HourRange, continues_at: Option<Hour>, on_the_way: Vec<(Hour, String, Bytes)> },
    /// For each organization.
    Some(Vec<(OrganizationId, HourRange, Option<Hour>)>),
}

impl<T> Recomputed<T> {
    /// Returns whether all organizations were recomputed.
    pub fn is_of_all(&self) -> bool {
        matches!(self.marks, Marks::All { .. })
    }

    /// Puts hours and marks into the draft.
    pub fn take_into(self, draft: &mut Draft) {
        self.hours.into_iter().for_each(|hour| emit::take_into(draft, hour));
        match self.marks {
            Marks::All { done, continues_at, on_the_way } => {
                draft.recomputed(done, continues_at);
                on_the_way.into_iter().for_each(|(hour, path, bytes)| draft.set_snapshot(hour, path, bytes));
            }
            Marks::Some(marks) => {
                for (organization_id, done, continues_at) in marks {
                    draft.recomputed_of(&organization_id, done, continues_at);
                }
            }
        }
        draft.touch();
    }
}

impl Recomputer<'_> {
    /// Recomputes a slice of the dirty hours. Returns `None` if there is nothing to do. After an error, the
    /// run is unchanged.
    ///
    /// # Errors
    /// If storage is unavailable, an archive file is damaged, rows cannot be encoded, or this release does
    /// not compute the rules of any dirty hour.
    pub async fn slice<T: Send + 'static>(
        &self,
        shard: &mut RecomputeShard<'_>,
        summarize: fn(&[HourTables]) -> T,
    ) -> Result<Option<Recomputed<T>>> {
        let mut fallback = None;
        if let Set::Dirty(end) = shard.set
            && shard.run.may_be_of_some(shard.draft)
        {
            match self.slice_of_some(shard, end, summarize).await? {
                SomeSlice::Nothing => return Ok(None),
                SomeSlice::Recomputed(recomputed) => return Ok(Some(recomputed)),
                SomeSlice::Impossible { cause, unusable } => {
                    tracing::warn!(shard = shard.draft.shard, cause, "folding all organizations again");
                    shard.run.some.clear();
                    shard.draft.widen_marks();
                    shard.run.unusable.extend(unusable);
                    fallback = Some(cause);
                }
            }
        }
        let recomputed = self.slice_of_all(shard, summarize).await?;
        Ok(recomputed.map(|recomputed| Recomputed { fallback, ..recomputed }))
    }
}
