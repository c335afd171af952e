//! Which hours a backfill folds: up to where, and from which snapshot.
//!
//! It closes every organization through one hour: that of the last event of the archive, or `--to`, or the
//! last hour closed before, whichever is latest. One exception keeps a wrong clock from making years of empty
//! hours: an event later than the wall clock that lies more than the horizon behind every event before it,
//! and whatever follows it, stays in the archive unclosed until time comes near it, or `--to` names it.

use std::collections::BTreeSet;

use prorata_schemas::time::Hour;

use super::Run;
use super::outcome::Ahead;
use super::shards::OwnedShard;
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::root::rules;
use crate::shard::cursor::Recompute;

/// Most hours without an event that are closed for the sake of an event in the future: 400 days.
const AHEAD_HOURS: i64 = 400 * 24;

/// The last hour to close, none while there is nothing to close; notes what lies behind it.
pub(super) fn end(run: &mut Run) -> Option<Hour> {
    let hours: BTreeSet<Hour> = run.shards.iter().flat_map(|(_, owned)| owned.archive.hours()).collect();
    let wanted = run.options.to.or_else(|| last_in_reach(&hours, run.ports.shared.clock.now().hour()));
    let closed = run.shards.iter().filter_map(|(_, owned)| owned.draft.closed_through).max();
    let end = wanted.max(closed);
    let behind = hours.range(end.map_or(Hour(i64::MIN), Hour::next)..);
    if let (Some(first), Some(last)) = (behind.clone().next(), behind.clone().next_back()) {
        run.outcome.ahead = Some(Ahead { hours: behind.count() as u64, first: *first, last: *last });
    }
    run.outcome.closed_through = end;
    end
}

/// The last of these hours with events that is not cut off by a wrong clock.
fn last_in_reach(hours: &BTreeSet<Hour>, now: Hour) -> Option<Hour> {
    let mut last: Option<Hour> = None;
    for hour in hours {
        if *hour > now && last.is_some_and(|last| hour.0 - last.0 > AHEAD_HOURS) {
            break;
        }
        last = Some(*hour);
    }
    last
}

/// Lists the rules of every shard, and marks the hours that are to be folded again though no event has
/// changed.
pub(super) async fn prepare(run: &mut Run, end: Hour) -> Result<()> {
    let options = &run.options;
    let has_events = |owned: &OwnedShard| owned.archive.hours().next().is_some();
    let unlisted = run.shards.iter().any(|(_, owned)| owned.draft.rules.is_empty() && has_events(owned));
    if options.rewrite_rules || unlisted {
        run.shards.rules.store(&*run.ports.shared.store, &options.rules).await?;
    }
    for (_, owned) in run.shards.iter_mut() {
        let Some(first) = owned.archive.hours().next() else { continue };
        let draft = &mut owned.draft;
        let closed = draft.closed_through.map(|closed| (first, closed));
        if draft.rules.is_empty() {
            draft.list_rules(first, options.rules.version.clone());
        } else if options.rewrite_rules {
            let mut list = draft.rules.clone();
            let range = (options.from, options.to);
            let changed = rules::rewrite(&mut list, &options.rules.version, range, closed);
            draft.set_rules(list);
            changed.into_iter().for_each(|hour| draft.mark_dirty(hour));
        }
        if let (Some(from), Some((first, closed))) = (options.from, closed) {
            let last = options.to.unwrap_or(end).min(closed);
            draft.mark_dirty_range(from.max(first), last);
        }
    }
    Ok(())
}

/// Where to fold a shard next, none when it is done.
pub(super) async fn next_segment(run: &mut Run, shard: Shard, end: Hour) -> Result<Option<Recompute>> {
    let owned = run.shards.get_mut(shard)?;
    let draft = &owned.draft;
    let Some(first) = owned.archive.hours().next() else { return Ok(None) };
    let open = draft.closed_through.map_or(first, |closed| closed.next().max(first));
    let start = draft.dirty.first().unwrap_or(open).max(first);
    if start > end {
        return Ok(None);
    }
    let store = &*run.ports.shared.store;
    Recompute::begin(store, draft, &mut owned.archive, start).await.map(Some)
}

/// Hours between a cursor and the end; more than allowed are taken for a wrong clock.
pub(super) fn hours_left(run: &Run, shard: Shard, cursor: &Recompute, end: Hour) -> Result<i64> {
    let hours = end.0 - cursor.next.0 + 1;
    if hours > run.options.hours_max {
        let (next, most) = (cursor.next, run.options.hours_max);
        return Err(WorkerError::Configuration(format!(
            "shard {shard} has {hours} hours to fold, from {next} to {end}, more than backfill.hours_max: \
             {most}; an event with a wrong clock may lie at either end: leave it out, name another --to, or \
             raise backfill.hours_max"
        )));
    }
    Ok(hours)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(hours: &[i64], now: i64) -> Option<i64> {
        let hours = hours.iter().copied().map(Hour).collect();
        last_in_reach(&hours, Hour(now)).map(|hour| hour.0)
    }

    #[test]
    fn a_clock_years_ahead_closes_no_empty_years() {
        assert_eq!(last(&[10, 11, 50_000], 12), Some(11));
        assert_eq!(last(&[10, 11, 50_000, 50_001], 12), Some(11), "nor what follows it");
    }

    #[test]
    fn a_gap_in_the_past_and_a_near_future_are_closed() {
        assert_eq!(last(&[10, 50_000], 60_000), Some(50_000));
        assert_eq!(last(&[10, 11, 11 + AHEAD_HOURS], 12), Some(11 + AHEAD_HOURS));
        assert_eq!(last(&[90_000, 90_001], 5), Some(90_001), "a trace that lies wholly in the future");
        assert_eq!(last(&[], 5), None);
    }
}
