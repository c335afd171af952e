//! Late events of some organizations: only these organizations are folded again, as by a stream worker. Lost
//! or damaged table files: their hours are folded again, and the files are rewritten.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::tables::{HourFile, Table};
use prorata_schemas::time::Hour;

use super::Run;
use super::outcome::{FoldedAgain, HourTotals};
use super::run::{limits, totals};
use crate::checkpoint::days::{LiveDay, read_day};
use crate::checkpoint::snapshot::ShardState;
use crate::error::{Result, WorkerError};
use crate::names::{Shard, TableFile};
use crate::objects::{self, CONCURRENCY};
use crate::ports::Ports;
use crate::shard::courses::{CourseFolder, CourseShard, CourseSlice, Courses, Restated};
use crate::shard::window::WindowLimits;
use crate::shard::{cursor, emit, restate};

/// The divisor of a shard's organizations above which all are folded: windows of hours are folded on all
/// cores, courses hour by hour.
const ORGANIZATIONS_PART: usize = 2;

/// Folds hours that are dirty for some organizations alone. Hours that cannot be folded that way become dirty
/// for all.
pub(super) async fn restate_all(run: &mut Run) -> Result<()> {
    let shards: Vec<Shard> = run.shards.iter().map(|(shard, _)| *shard).collect();
    for shard in shards {
        let Some(some) = some_marked(run, shard).await? else {
            run.shards.get_mut(shard)?.draft.mark_all();
            continue;
        };
        let (mut courses, mut through) = (Courses::new(), None);
        while let Some(mut slice) = slice(run, shard, (&courses, through)).await? {
            (courses, through) = (std::mem::take(&mut slice.courses), Some(slice.last));
            run.outcome.some_folded.insert(shard, some);
            store(run, shard, slice).await?;
            if run.checkpointed.elapsed() >= run.options.checkpoint_interval {
                let now = run.checkpointed_by();
                run.shards.checkpoint(&run.ports.shared, now).await?;
            }
        }
    }
    Ok(())
}

/// Returns how many organizations of a shard are to be folded again. `None` if all are, because some hours
/// are dirty for all, or the marked organizations are many.
async fn some_marked(run: &Run, shard: Shard) -> Result<Option<FoldedAgain>> {
    let draft = &run.shards.get(shard)?.draft;
    let marked = draft.dirty.of_organizations();
    if marked.is_empty() {
        return Ok(Some(FoldedAgain::default()));
    }
    if !draft.dirty.of_all().is_empty() {
        return Ok(None);
    }
    let Some((_, newest)) = draft.kept_before(Hour(i64::MAX)).next() else { return Ok(None) };
    let Some(states) = cursor::load_packed(&*run.ports.shared.store, newest).await? else { return Ok(None) };
    if marked.len() > states.len() / ORGANIZATIONS_PART {
        return Ok(None);
    }
    let new = marked.keys().filter(|id| !states.contains_key(*id)).count();
    Ok(Some(FoldedAgain { folded: marked.len() as u64, all: (states.len() + new) as u64 }))
}

/// Folds the next slice of a shard; returns `None` if nothing is left to fold that way.
async fn slice(
    run: &mut Run,
    shard: Shard,
    under_way: (&Courses, Option<Hour>),
) -> Result<Option<Restated<HourTotals>>> {
    let limits = limits(run, 1);
    // Files are compressed; the buffer is as large as a worker's slice.
    let event_bytes = limits.event_bytes.min(run.options.buffer_bytes);
    let limits = WindowLimits { event_bytes, ..limits };
    let namer = run.shards.namer(shard)?;
    let (rules, owned) = run.shards.with_rules(shard)?;
    let Some(closed) = owned.draft.closed_through else { return Ok(None) };
    let now = run.ports.shared.clock.now();
    let folder = CourseFolder { ports: &run.ports.shared, rules, limits, now };
    let of = CourseShard { draft: &mut owned.draft, archive: &mut owned.archive, namer };
    match folder.slice(of, under_way, closed, totals).await? {
        CourseSlice::Waits(hour) => rules.of(&owned.draft, hour).map(|_| None),
        CourseSlice::Nothing => Ok(None),
        CourseSlice::Restated(restated) => Ok(Some(restated)),
        CourseSlice::NeedsAll { cause, unusable } => {
            tracing::warn!(shard, cause, "folding all organizations again");
            owned.draft.mark_all();
            run.outcome.some_folded.remove(&shard);
            run.unusable.extend(unusable.map(|(hour, table)| (shard, hour, table)));
            Ok(None)
        }
    }
}

/// Stores the objects of a slice, and takes the slice into the draft.
async fn store(run: &mut Run, shard: Shard, mut slice: Restated<HourTotals>) -> Result<()> {
    let new = slice.hours.iter_mut().flat_map(|hour| std::mem::take(&mut hour.objects));
    objects::put_all(&*run.ports.shared.store, new).await?;
    run.outcome.organization_hours += slice.folded;
    for hour in &slice.hours {
        run.outcome.take(hour);
    }
    let states = slice.states.iter().filter_map(|(id, state)| Some((id.clone(), state.clone()?)));
    run.outcome.note_held(&states.collect::<ShardState>());
    slice.take_into(&mut run.shards.get_mut(shard)?.draft);
    Ok(())
}

/// Checks the table files of the hours that the run names, by default of all hours in the checkpoint. Marks
/// hours dirty whose files are lost or damaged.
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
    for table in Table::ALL.into_iter().filter(|_| from.is_some()) {
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
            Some(bytes) => restate::look_at(&*encoder, table, &bytes, &digest),
            None => Some("it does not exist".to_owned()),
        };
        let cause = tokio::task::spawn_blocking(looks).await?;
        Ok::<_, WorkerError>(cause.map(|cause| ((shard, hour, table), cause)))
    });
    let looked_at = stream::iter(looked_at.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY);
    let found: Vec<_> = looked_at.try_collect().await?;
    let mut found: Vec<_> = found.into_iter().flatten().collect();
    // One after another: each is as large as a day.
    for (table, day) in days {
        found.extend(look_at_day(&run.ports.shared, table, day).await?);
    }
    for ((shard, hour, table), cause) in found {
        tracing::warn!(shard, %hour, table = table.name(), cause, "writing a table file again");
        run.unusable.insert((shard, hour, table));
        run.shards.get_mut(shard)?.draft.mark_dirty(hour);
    }
    Ok(())
}

/// Returns the hours of a day's file whose rows are lost or damaged, and why.
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
            let cause = restate::look_at(&*encoder, table, &file.bytes, &file.digest)?;
            Some(((shard, hour, table), cause))
        });
        looked_at.collect()
    };
    Ok(tokio::task::spawn_blocking(look).await?)
}
