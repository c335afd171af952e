//! The hours that a backfill folds: the last hour, and the snapshot to start from.
//!
//! A shard that a worker has ever owned ends at its own `closed_through`, because the worker closes open
//! hours when its watermark passes them. In a root with such a shard, a shard that no worker has owned ends
//! at the hour of its own last event. In a root without a worker, every shard ends at the later of the last
//! closed hour and the hour of the archive's last event. `--to` overrides the end of all shards.
//!
//! No hour later than the wall clock's hour is closed, because all events of a later worker would otherwise
//! be late. Later events stay in the archive until their hour comes or `--to` names that hour. `--to` may
//! name a future hour only in a root that no worker has owned.

use std::collections::{BTreeMap, BTreeSet};

use prorata_schemas::time::{Hour, HourRange};

use super::Run;
use super::outcome::Ahead;
use super::shards::OwnedShard;
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::shard::base::FoldPosition;
use crate::shard::clock::HistoryLimit;
use crate::shard::rules;

/// The last hour to close, by shard.
pub(super) struct Ends {
    /// The end of every shard in a root without a worker; `None` if there is nothing to close.
    all: Option<Hour>,
    /// The end of each shard in a root with a worker.
    each: BTreeMap<Shard, Option<Hour>>,
}

impl Ends {
    /// Returns the last hour of a shard to close, or `None` if there is nothing to close.
    pub fn of(&self, shard: Shard) -> Option<Hour> {
        self.each.get(&shard).copied().unwrap_or(self.all)
    }
}

/// Refuses a `--to` that would close future hours of a worker's root. Every live event of these hours would
/// be late, and once the hours have passed the horizon, too late.
pub(super) fn check_to(run: &Run) -> Result<()> {
    let now = run.ports.shared.clock.now().hour();
    match run.options.to {
        Some(to) if to > now && run.shards.has_worker() => Err(WorkerError::Configuration(format!(
            "--to {to} is in the future, and this root has a worker whose events for these hours have not \
             arrived yet; name an hour up to {now}"
        ))),
        _ => Ok(()),
    }
}

/// Returns the age limits of events of the owned shards.
pub(super) fn history_limits(run: &Run) -> BTreeMap<Shard, HistoryLimit> {
    run.shards.iter().map(|(shard, owned)| (*shard, history_limit(run, Some(owned)))).collect()
}

/// Returns the age limit of events of a shard. The limit counts back from the latest hour up to which the
/// shard may be folded: the hour of the last event is not known yet. If a worker has owned the shard but
/// closed no hour, the worker's limit applies if it is lower, because the worker closes the hours.
pub(super) fn history_limit(run: &Run, owned: Option<&OwnedShard>) -> HistoryLimit {
    let (options, now) = (&run.options, run.ports.shared.clock.now().hour());
    let closed = owned.and_then(|owned| owned.draft.closed_through);
    let of_worker = owned.is_some_and(OwnedShard::has_worker);
    let wanted = options.to.max(if of_worker || options.to.is_some() { closed } else { None });
    let end = wanted.map_or(now, |end| end.min(now));
    let history = options.max_history_hours;
    if of_worker && wanted.is_none() && history < options.max_hours {
        return HistoryLimit::before(end, history, "work.max_history_hours");
    }
    HistoryLimit::before(end, options.max_hours, "backfill.max_hours")
}

/// Returns the end of every shard, and notes in the outcome which hours after it have events.
pub(super) fn ends(run: &mut Run) -> Ends {
    let now = run.ports.shared.clock.now().hour();
    let ends = match run.shards.has_worker() {
        true => ends_with_a_worker(run, now),
        false => Ends { all: end_without_a_worker(run, now), each: BTreeMap::new() },
    };
    let later = run.shards.iter().flat_map(|(shard, owned)| {
        let end = ends.of(*shard);
        owned.archive.hours().into_iter().filter(move |hour| end.is_none_or(|end| *hour > end))
    });
    let later: BTreeSet<Hour> = later.collect();
    if let (Some(first), Some(last)) = (later.first(), later.last()) {
        let worker_closes = run.shards.has_worker();
        let hours = later.len() as u64;
        run.outcome.ahead = Some(Ahead { hours, first: *first, last: *last, worker_closes });
    }
    run.outcome.closed_through = run.shards.iter().filter_map(|(shard, _)| ends.of(*shard)).max();
    ends
}

fn end_without_a_worker(run: &Run, now: Hour) -> Option<Hour> {
    let last = run.shards.hours().range(..=now).next_back().copied();
    let closed = run.shards.iter().filter_map(|(_, owned)| owned.draft.closed_through).max();
    run.options.to.or(last).max(closed)
}

fn ends_with_a_worker(run: &Run, now: Hour) -> Ends {
    let end = |owned: &OwnedShard| {
        let last = owned.archive.hours().range(..=now).next_back().copied();
        let wanted = run.options.to.or(if owned.has_worker() { None } else { last });
        wanted.max(owned.draft.closed_through)
    };
    Ends { all: None, each: run.shards.iter().map(|(shard, owned)| (*shard, end(owned))).collect() }
}

/// Lists the rules of every shard, and marks the hours to fold again although no event has changed.
pub(super) async fn prepare(run: &mut Run, ends: &Ends) -> Result<()> {
    let options = &run.options;
    let folds =
        |shard: Shard, owned: &OwnedShard| ends.of(shard).is_some() && owned.draft.archive_from.is_some();
    let is_unlisted =
        |(shard, owned): (&Shard, &OwnedShard)| owned.draft.rules.is_empty() && folds(*shard, owned);
    let unlisted = run.shards.iter().any(is_unlisted);
    if options.rewrite_rules || unlisted {
        run.shards.rules.store(&*run.ports.shared.store, &options.rules).await?;
    }
    for (shard, owned) in run.shards.iter_mut() {
        let (Some(first), Some(end)) = (owned.draft.archive_from, ends.of(*shard)) else { continue };
        let draft = &mut owned.draft;
        let closed = draft.closed_through.map(|closed| HourRange::new(first, closed));
        if draft.rules.is_empty() {
            draft.list_rules(first, options.rules.version.clone());
        } else if options.rewrite_rules {
            let mut list = draft.rules.clone();
            let changed = rules::rewrite(&mut list, &options.rules.version, options.from, options.to, closed);
            draft.set_rules(list);
            changed.into_iter().for_each(|hour| draft.mark_dirty(hour));
        }
        if let (Some(from), Some(closed)) = (options.from, closed) {
            let last = options.to.unwrap_or(end).min(closed.last);
            draft.mark_dirty_range(from.max(closed.first), last);
        }
    }
    Ok(())
}

/// The open hours of a shard to fold.
pub(super) struct Segment {
    /// The next hour to fold, and the state before it.
    pub position: FoldPosition,
    /// The last hour, inclusive.
    pub end: Hour,
}

/// Returns the open hours of a shard to fold, or `None` if there are none. No closed hour may be dirty any
/// more.
pub(super) async fn segment(run: &mut Run, shard: Shard, ends: &Ends) -> Result<Option<Segment>> {
    let Some(end) = ends.of(shard) else { return Ok(None) };
    let owned = run.shards.get_mut(shard)?;
    let draft = &owned.draft;
    let Some(first) = draft.archive_from else { return Ok(None) };
    let open = draft.closed_through.map_or(first, |closed| closed.next().max(first));
    if open > end {
        return Ok(None);
    }
    let (position, unusable) = FoldPosition::begin(&*run.ports.shared.store, draft, open).await?;
    owned.draft.drop_snapshots(&unusable);
    Ok(Some(Segment { position, end }))
}

/// Returns the number of hours of a segment. More than `max_hours` hours indicate a wrong clock and are an
/// error.
pub(super) fn hours_left(run: &Run, shard: Shard, segment: &Segment) -> Result<i64> {
    let Segment { position, end } = segment;
    let hours = end.0 - position.next.0 + 1;
    if hours > run.options.max_hours {
        let (next, most) = (position.next, run.options.max_hours);
        return Err(WorkerError::Configuration(format!(
            "shard {shard} has {hours} hours to fold, from {next} to {end}, more than backfill.max_hours: \
             {most}; an event with a wrong clock may be at either end: remove it, name another --to, or \
             raise backfill.max_hours"
        )));
    }
    Ok(hours)
}
