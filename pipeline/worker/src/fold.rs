//! Folding of a shard's window of hours, all organizations on all cores: what worker and backfill share.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prorata_engine::State;
use prorata_schemas::Text;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use rayon::prelude::{IntoParallelIterator, ParallelIterator};

use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::ports::Archive;
use crate::snapshot::{self, OrganizationState, PackedState, ShardState};

/// An event's kind and canonical body.
pub type Body = (EventKind, Box<[u8]>);

/// One organization's folded hour.
pub struct FoldedHour {
    /// Its rows.
    pub tables: HourTables,
    /// Its state at the hour's end.
    pub packed: PackedState,
    /// Digest of that.
    pub digest: [u8; 32],
}

/// Digest of a shard's state at the end of an hour, from those of its organizations.
pub fn state_digest(organizations: &[FoldedHour]) -> String {
    snapshot::shard_digest(
        organizations.iter().map(|folded| (&folded.packed.organization_id, &folded.digest)),
    )
}

/// Consecutive hours of one shard, with everything that folding them takes.
pub struct Window {
    /// The hours with their rules, ascending.
    pub hours: Vec<(Hour, Arc<Rules>)>,
    /// Archive files of these hours.
    pub files: Vec<(Hour, Bytes)>,
    /// Events of these hours that are not read from files.
    pub bodies: Vec<(Hour, Vec<Body>)>,
    /// State before the first hour.
    pub states: ShardState,
}

/// The hours of a window, folded, and the state at the end of the last.
pub type FoldedShard = (BTreeMap<Hour, Vec<FoldedHour>>, ShardState);

/// One organization's part of a window.
struct Item {
    shard: Shard,
    organization_id: Text,
    state: Option<OrganizationState>,
    events: BTreeMap<Hour, Vec<EventRecord>>,
}

/// Folds windows of several shards on all cores. It blocks: call it off the async threads.
///
/// # Errors
/// When an archive file is damaged, or the engine refuses an hour.
pub fn fold(archive: &dyn Archive, windows: BTreeMap<Shard, Window>) -> Result<BTreeMap<Shard, FoldedShard>> {
    let mut items = Vec::new();
    let mut hours = BTreeMap::new();
    for (shard, window) in windows {
        hours.insert(shard, window.hours.clone());
        items.extend(organizations(archive, shard, window)?);
    }
    let folded: Vec<(Item, Vec<FoldedHour>)> = items
        .into_par_iter()
        .map(|item| {
            let hours = hours.get(&item.shard).map(Vec::as_slice).unwrap_or_default();
            fold_organization(item, hours)
        })
        .collect::<Result<_>>()?;
    let mut shards: BTreeMap<Shard, FoldedShard> =
        hours.keys().map(|shard| (*shard, FoldedShard::default())).collect();
    for (item, folded) in folded {
        let (by_hour, states) = shards.entry(item.shard).or_default();
        for folded in folded {
            by_hour.entry(folded.tables.hour).or_default().push(folded);
        }
        states.extend(item.state.map(|state| (item.organization_id, state)));
    }
    Ok(shards)
}

/// Decodes a window's events, and sorts states and events by organization, ascending.
fn organizations(archive: &dyn Archive, shard: Shard, window: Window) -> Result<Vec<Item>> {
    let Window { files, bodies, states, .. } = window;
    let mut decoded: Vec<(Hour, Vec<EventRecord>)> = files
        .into_par_iter()
        .map(|(hour, bytes)| {
            let mut records = Vec::new();
            read_archive(archive, (shard, hour), &bytes, |record| records.push(record))?;
            Ok((hour, records))
        })
        .collect::<Result<_>>()?;
    let in_memory = bodies.into_par_iter().map(|(hour, bodies)| {
        let records = bodies.into_par_iter().map(|(kind, body)| {
            let event = prorata_schemas::body::decode(kind, &body)
                .map_err(|reject| damaged((shard, hour), reject.to_string()))?;
            Ok(EventRecord { event, body })
        });
        Ok((hour, records.collect::<Result<_>>()?))
    });
    decoded.extend(in_memory.collect::<Result<Vec<_>>>()?);
    let new = |organization_id: Text| Item { shard, organization_id, state: None, events: BTreeMap::new() };
    let mut items: BTreeMap<Text, Item> = BTreeMap::new();
    for (organization_id, state) in states {
        items.insert(organization_id.clone(), Item { state: Some(state), ..new(organization_id) });
    }
    for (hour, records) in decoded {
        for record in records {
            let organization_id = record.event.organization_id.clone();
            let item = items.entry(organization_id.clone()).or_insert_with(|| new(organization_id));
            item.events.entry(hour).or_default().push(record);
        }
    }
    Ok(items.into_values().collect())
}

/// Folds one organization through the hours, from its first event on.
fn fold_organization(mut item: Item, hours: &[(Hour, Arc<Rules>)]) -> Result<(Item, Vec<FoldedHour>)> {
    let mut folded = Vec::new();
    for (hour, rules) in hours {
        let events = item.events.remove(hour).unwrap_or_default();
        let before = match item.state.take() {
            Some(state) => state,
            None if events.is_empty() => continue,
            None => {
                OrganizationState { state: State::new(item.organization_id.clone()), max_event_time: None }
            }
        };
        let (state, tables) =
            prorata_engine::close_hour(before.state, *hour, events, rules).map_err(|source| {
                WorkerError::Fold { organization: item.organization_id.to_string(), hour: *hour, source }
            })?;
        let max_event_time = before.max_event_time.max(tables.totals.max_event_time);
        let after = OrganizationState { state, max_event_time };
        let packed = snapshot::pack(&item.organization_id, &after)
            .map_err(|error| WorkerError::Task(error.to_string()))?;
        let digest = snapshot::state_digest(&packed);
        folded.push(FoldedHour { tables, packed, digest });
        item.state = Some(after);
    }
    Ok((item, folded))
}

/// Reads a file of a shard's hour in our own archive: every record must be an event.
///
/// # Errors
/// What is damaged, and where.
pub fn read_archive(
    archive: &dyn Archive,
    of: (Shard, Hour),
    mut bytes: &[u8],
    mut each: impl FnMut(EventRecord),
) -> Result<()> {
    let mut damage = None;
    let read = archive.read(&mut bytes, &mut |position, record| match record {
        Ok(record) => each(record),
        Err(rejected) => {
            let place = position.map_or(String::new(), |position| format!("{position}: "));
            damage.get_or_insert(format!("{place}{}", rejected.reject));
        }
    });
    read.map_err(|error| damaged(of, error.to_string()))?;
    damage.map_or(Ok(()), |cause| Err(damaged(of, cause)))
}

/// Those of these events that none of the files of a shard's hour holds, each once, in the order of their bodies.
///
/// # Errors
/// What is damaged, and where.
pub fn unknown_events(
    archive: &dyn Archive,
    of: (Shard, Hour),
    files: &[Bytes],
    mut events: Vec<Body>,
) -> Result<Vec<Body>> {
    events.sort_unstable();
    events.dedup();
    let mut known = vec![false; events.len()];
    for bytes in files {
        read_archive(archive, of, bytes, |record| {
            let body = (record.event.payload.kind(), record.body);
            let known = events.binary_search(&body).ok().and_then(|at| known.get_mut(at));
            known.into_iter().for_each(|known| *known = true);
        })?;
    }
    let mut known = known.into_iter();
    events.retain(|_| !known.next().unwrap_or_default());
    Ok(events)
}

fn damaged((shard, hour): (Shard, Hour), cause: String) -> WorkerError {
    WorkerError::Damaged { object: format!("archive of hour {hour}, shard {shard}"), cause }
}
