//! Folds closed hours again, as a stream worker does: after late events, under other rules, or to replace
//! lost or damaged table files.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::tables::{HourFile, Table};
use prorata_schemas::time::Hour;

use super::Run;
use super::outcome::{FoldedAgain, HourTotals};
use super::run::totals;
use crate::checkpoint::Draft;
use crate::checkpoint::snapshot::ShardState;
use crate::error::{Result, WorkerError};
use crate::names::{Shard, TableFile};
use crate::objects::days::{LiveDay, read_day};
use crate::objects::{self, CONCURRENCY};
use crate::ports::{ObjectStore, Ports};
use crate::shard::recompute::{RecomputeShard, Recomputed, Recomputer, Set, States};
use crate::shard::window::{WindowLimits, memory_for_events};
use crate::shard::{base, emit, splice};

/// The divisor of the number of a shard's organizations. If more organizations than the quotient are marked,
/// all are folded: from one snapshot, and without reading the existing files.
const ORGANIZATIONS_PART: usize = 2;

/// Maximum number of shards that are recomputed at a time.
const SHARDS_AT_ONCE: usize = 16;

/// Recomputes the dirty hours of all shards.
pub(super) async fn recompute(run: &mut Run) -> Result<()> {
    let mut sets = BTreeMap::new();
    let shards: Vec<Shard> = run.shards.iter().map(|(shard, _)| *shard).collect();
    for shard in shards {
        if let Some(set) = set(run, shard).await? {
            sets.insert(shard, set);
        }
    }
    while !sets.is_empty() {
        for (shard, recomputed) in slices(run, &sets).await? {
            match recomputed {
                Some(recomputed) => store(run, shard, recomputed).await?,
                None => drop(sets.remove(&shard)),
            }
        }
        if run.checkpointed.elapsed() >= run.options.checkpoint_interval {
            let now = run.checkpointed_by();
            run.shards.checkpoint(&run.ports.shared, now).await?;
        }
    }
    Ok(())
}

/// Returns the organizations of a shard to recompute; `None` if no hour is dirty.
async fn set(run: &mut Run, shard: Shard) -> Result<Option<Set>> {
    let draft = &run.shards.get(shard)?.draft;
    let Some(closed) = draft.closed_through.filter(|_| !draft.dirty.is_empty()) else { return Ok(None) };
    if let Some(some) = some_marked(&*run.ports.shared.store, draft).await? {
        run.outcome.some_folded.insert(shard, some);
        return Ok(Some(Set::Dirty(closed)));
    }
    run.shards.get_mut(shard)?.draft.widen_marks();
    Ok(Some(Set::All))
}

/// Returns the number of organizations of a shard to fold again. `None` if all organizations must be folded,
/// because some hours are dirty for all, many organizations are marked, or the newest snapshot cannot be
/// used.
async fn some_marked(store: &dyn ObjectStore, draft: &Draft) -> Result<Option<FoldedAgain>> {
    let marked = draft.dirty.of_organizations();
    if !draft.dirty.of_all().is_empty() {
        return Ok(None);
    }
    let Some((_, newest)) = draft.kept_before(Hour(i64::MAX)).next() else { return Ok(None) };
    let Some(states) = base::load_packed(store, newest).await? else { return Ok(None) };
    if marked.len() > states.len() / ORGANIZATIONS_PART {
        return Ok(None);
    }
    let new = marked.keys().filter(|id| !states.contains_key(*id)).count();
    Ok(Some(FoldedAgain { folded: marked.len() as u64, all: (states.len() + new) as u64 }))
}

/// Recomputes the next slice of each shard. The result of a shard is `None` if nothing is left to recompute.
async fn slices(
    run: &mut Run,
    sets: &BTreeMap<Shard, Set>,
) -> Result<Vec<(Shard, Option<Recomputed<HourTotals>>)>> {
    let at_once = sets.len().clamp(1, SHARDS_AT_ONCE);
    let parts = at_once as u64;
    let rows = (run.options.rows_in_flight / parts).max(1);
    let event_bytes = memory_for_events(run.options.memory_limit, 0) / parts;
    let (ports, now, buffer_bytes) =
        (&run.ports.shared, run.ports.shared.clock.now(), run.options.buffer_bytes);
    let retention = run.options.retention;
    let (rules, owner, shards) = run.shards.recompute_parts();
    let slices = shards.filter_map(|(shard, owned, namer)| {
        let set = *sets.get(&shard)?;
        // Files are compressed; for some organizations, the buffer is as large as a worker's slice.
        let event_bytes = if set == Set::All { event_bytes } else { event_bytes.min(buffer_bytes) };
        let limits = WindowLimits { event_bytes, rows };
        Some(async move {
            let recomputer = Recomputer { ports, rules, limits, now, owner, retention };
            let (draft, archive) = (&mut owned.draft, &mut owned.archive);
            let (live, run) = (&mut owned.live, &mut owned.recompute);
            let mut of = RecomputeShard { draft, archive, live, namer, run, set };
            Ok::<_, WorkerError>((shard, recomputer.slice(&mut of, totals).await?))
        })
    });
    stream::iter(slices.collect::<Vec<_>>()).buffered(at_once).try_collect().await
}

/// Stores the objects of a slice, and takes the slice into the draft.
async fn store(run: &mut Run, shard: Shard, mut slice: Recomputed<HourTotals>) -> Result<()> {
    let new = slice.hours.iter_mut().flat_map(|hour| std::mem::take(&mut hour.objects));
    objects::put_all(&*run.ports.shared.store, new).await?;
    if slice.is_of_all() {
        run.outcome.some_folded.remove(&shard);
    }
    run.outcome.organization_hours += slice.folded;
    for hour in &slice.hours {
        run.outcome.take(hour);
    }
    match &slice.states {
        States::All { states, .. } => run.outcome.note_held(states),
        States::Some(states) => {
            let states = states.iter().filter_map(|(id, state)| Some((id.clone(), state.clone()?)));
            run.outcome.note_held(&states.collect::<ShardState>());
        }
    }
    slice.take_into(&mut run.shards.get_mut(shard)?.draft);
    Ok(())
}

/// Checks the table files of the hours from `from` to `to`, by default of all hours in the checkpoint. Marks
/// hours with lost or damaged files dirty.
pub(super) async fn find_unusable(run: &mut Run) -> Result<()> {
    let (from, to) = (run.options.from, run.options.to);
    let is_named = |hour: &Hour| from.is_none_or(|from| *hour >= from) && to.is_none_or(|to| *hour <= to);
    let mut files = Vec::new();
    for (shard, owned) in run.shards.iter() {
        for (hour, entry) in owned.draft.hours.iter().filter(|(hour, _)| is_named(hour)) {
            let of_hour = entry.files();
            let named =
                of_hour.map(|(table, file)| (*shard, *hour, table, file.path.clone(), file.digest.clone()));
            files.extend(named);
        }
    }
    let mut days = Vec::new();
    for table in Table::HOURLY.into_iter().filter(|_| from.is_some()) {
        for file in run.ports.shared.tables.load(table).await?.files {
            let is_wanted = |shard, hour: &Hour| {
                let owned = run.shards.iter().find(|(of, _)| **of == shard);
                owned.is_some_and(|(_, owned)| is_named(hour) && emit::has_left(&owned.draft, *hour))
            };
            if let Some(day) = LiveDay::parse(&file.path) {
                if day.name.hours().any(|hour| is_wanted(day.name.shard, &hour)) {
                    days.push((table, day));
                }
            } else if let Some(name) = TableFile::parse(&file.path)
                && is_wanted(name.shard, &name.hour)
            {
                files.push((name.shard, name.hour, table, file.path, name.digest));
            }
        }
    }
    let shared = &run.ports.shared;
    let looked_at = files.into_iter().map(|(shard, hour, table, path, digest)| async move {
        let bytes = shared.store.get(&format!("{}/{path}", table.name())).await?;
        let encoder = Arc::clone(&shared.encoder);
        let looks = move || match bytes {
            Some(bytes) => splice::look_at(&*encoder, table, &bytes, &digest),
            None => Some("it does not exist".to_owned()),
        };
        let cause = tokio::task::spawn_blocking(looks).await?;
        Ok::<_, WorkerError>(cause.map(|cause| ((shard, hour, table), cause)))
    });
    let looked_at = stream::iter(looked_at.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY);
    let found: Vec<_> = looked_at.try_collect().await?;
    let mut found: Vec<_> = found.into_iter().flatten().collect();
    // Files of days are checked one after another, because each is as large as a whole day.
    for (table, day) in days {
        found.extend(look_at_day(&run.ports.shared, table, day).await?);
    }
    for ((shard, hour, table), cause) in found {
        tracing::warn!(shard, %hour, table = table.name(), cause, "writing a table file again");
        let owned = run.shards.get_mut(shard)?;
        owned.recompute.unusable.insert((hour, table));
        owned.draft.mark_dirty(hour);
    }
    Ok(())
}

/// Returns the hours of a day's file whose rows are lost or damaged, each with the cause.
async fn look_at_day(
    ports: &Ports,
    table: Table,
    day: LiveDay,
) -> Result<Vec<((Shard, Hour, Table), String)>> {
    let shard = day.name.shard;
    let hours = match read_day(&*ports.store, &ports.encoder, table, &day).await {
        Err(WorkerError::Damaged { cause, .. }) => {
            return Ok(day.name.hours().map(|hour| ((shard, hour, table), cause.clone())).collect());
        }
        hours => hours?,
    };
    let encoder = Arc::clone(&ports.encoder);
    let look = move || {
        let looked_at = hours.into_iter().filter_map(|HourFile { hour, file }| {
            let cause = splice::look_at(&*encoder, table, &file.bytes, &file.digest)?;
            Some(((shard, hour, table), cause))
        });
        looked_at.collect()
    };
    Ok(tokio::task::spawn_blocking(look).await?)
}
