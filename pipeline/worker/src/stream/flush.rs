//! First part of a checkpoint: new events and rejected messages as objects.
//!
//! An event of a closed hour that the archive holds already is dropped; any other makes its hour dirty.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::event::EventKind;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::Hour;
use sha2::{Digest, Sha256};

use super::StreamPorts;
use super::shard::LiveShard;
use crate::error::Result;
use crate::fold::{Body, unknown_events};
use crate::hour_files::Stamper;
use crate::names;
use crate::objects;
use crate::ports::Archive;
use crate::snapshot::hex;
use crate::status::Counts;

/// Most closed hours of one checkpoint whose archive is read to tell known events from new ones; events of further
/// hours are taken for new, which costs a fold but changes nothing.
const KNOWN_HOURS_MAX: usize = 64;

/// Most bytes that are read for that.
const KNOWN_BYTES_MAX: u64 = 256 << 20;

/// Turns what is new into objects of the next checkpoint. After an error it can be called again.
pub(super) async fn flush(
    ports: &StreamPorts,
    shard: &mut LiveShard,
    stamper: &Stamper,
    counts: &mut Counts,
) -> Result<()> {
    flush_open(ports, shard, stamper).await?;
    flush_late(ports, shard, stamper, counts).await?;
    flush_letters(ports, shard, stamper)
}

async fn flush_open(ports: &StreamPorts, shard: &mut LiveShard, stamper: &Stamper) -> Result<()> {
    let due: Vec<Hour> = shard
        .open
        .iter()
        .filter(|(_, open)| open.flushed < open.events.len())
        .map(|(hour, _)| *hour)
        .collect();
    for hour in due {
        let Some(open) = shard.open.get_mut(&hour) else { continue };
        let events = std::mem::take(&mut open.events);
        let (from, archive) = (open.flushed, Arc::clone(&ports.shared.archive));
        let encode = move || {
            let fresh = events.get(from..).unwrap_or_default();
            let bytes = write_sorted(&*archive, fresh.iter().collect());
            (bytes, events)
        };
        let (bytes, events) = tokio::task::spawn_blocking(encode).await?;
        let Some(open) = shard.open.get_mut(&hour) else { continue };
        open.flushed = events.len();
        open.events = events;
        add_archive(shard, stamper, hour, bytes?);
    }
    Ok(())
}

/// An archive file of these events, each once, in the order of their bodies.
fn write_sorted(archive: &dyn Archive, mut events: Vec<&Body>) -> Result<Vec<u8>> {
    events.sort_unstable();
    events.dedup();
    let bodies: Vec<(EventKind, &[u8])> = events.into_iter().map(|(kind, body)| (*kind, &**body)).collect();
    Ok(archive.write(&bodies)?)
}

fn add_archive(shard: &mut LiveShard, stamper: &Stamper, hour: Hour, bytes: Vec<u8>) {
    let stamp = stamper.next();
    shard.archived.push((hour, stamp.clone(), bytes.len() as u64));
    shard.objects.push((names::archive(shard.shard, hour, &stamp), bytes.into()));
}

async fn flush_late(
    ports: &StreamPorts,
    shard: &mut LiveShard,
    stamper: &Stamper,
    counts: &mut Counts,
) -> Result<()> {
    let hours: Vec<Hour> = shard.late.keys().copied().collect();
    let mut read = 0;
    for (index, hour) in hours.into_iter().enumerate() {
        shard.archive.ensure(&*ports.shared.store, &shard.draft, (hour, hour)).await?;
        let files = shard.archive.files(hour);
        read += files.iter().map(|file| file.bytes).sum::<u64>();
        let compared = if index < KNOWN_HOURS_MAX && read <= KNOWN_BYTES_MAX {
            let paths = files.iter().map(|file| names::archive(shard.shard, hour, &file.stamp)).collect();
            objects::get_all(&*ports.shared.store, paths).await?
        } else {
            Vec::new()
        };
        let Some(events) = shard.late.get(&hour).cloned() else { continue };
        let all = events.len() as u64;
        let events = unknown_events(&*ports.shared.archive, (shard.shard, hour), &compared, events)?;
        shard.late.remove(&hour);
        counts.late_events += events.len() as u64;
        counts.late_duplicates += all - events.len() as u64;
        if events.is_empty() {
            continue;
        }
        let bytes = write_sorted(&*ports.shared.archive, events.iter().collect())?;
        add_archive(shard, stamper, hour, bytes);
        mark(shard, hour, &events);
    }
    Ok(())
}

/// Makes an hour dirty: what was folded from it on is folded again.
fn mark(shard: &mut LiveShard, hour: Hour, events: &[Body]) {
    shard.draft.dirty.insert(hour);
    let Some(entry) = shard.draft.hours.get_mut(&hour) else { return };
    let mut late: BTreeMap<OrganizationId, i64> = BTreeMap::new();
    for (kind, body) in events {
        if let Ok(event) = prorata_schemas::body::decode(*kind, body) {
            *late.entry(event.organization_id).or_default() += 1;
        }
    }
    for (organization, count) in late {
        *entry.late_events.entry(organization).or_default() += count;
    }
}

fn flush_letters(ports: &StreamPorts, shard: &mut LiveShard, stamper: &Stamper) -> Result<()> {
    if !shard.letters.is_empty() {
        let letters = std::mem::take(&mut shard.letters);
        let bytes = ports.shared.archive.write_dead_letters(&letters)?;
        let digest = hex(&Sha256::digest(&bytes)[..16]);
        let path = names::dead_letters(shard.shard, &stamper.next(), &digest);
        if ports.letters.is_some() {
            shard.draft.dead_letters.push(path.clone());
        }
        shard.objects.push((path, bytes.into()));
    }
    shard.aside_bytes = 0;
    Ok(())
}
