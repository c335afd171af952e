//! Conformance of the archive and of the table encoder. Both the fake and the real implementation pass the
//! checks.

use std::collections::BTreeSet;

use bytes::Bytes;
use prorata_schemas::body::EventRecordRef;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::reject::{Reason, Reject};
use prorata_schemas::rows::HourTables;
use prorata_schemas::rows::budget::{BudgetUse, Period};
use prorata_schemas::tables::{CutFile, HourClock, Table, TableSplice};
use prorata_schemas::time::WallTime;
use prorata_worker::Body;
use prorata_worker::ports::{
    Archive, DeadLetter, FILE_ROWS, FormatError, Origin, Position, Rejected, TableEncoder,
};

use crate::conformance::{Checked, equal};

/// Number of places at which files are cut and changed.
const PLACES: usize = 400;

/// The result of reading a file: events, their positions, and the number of rejections.
#[derive(Debug, Default, PartialEq)]
struct Contents {
    events: Vec<Body>,
    places: Vec<Option<Position>>,
    rejected: usize,
}

fn text(error: FormatError) -> String {
    error.to_string()
}

fn contents(archive: &dyn Archive, mut file: &[u8]) -> Result<Contents, String> {
    let mut contents = Contents::default();
    let each = &mut |place, record: Result<EventRecordRef<'_>, Rejected>| match record {
        Ok(record) => {
            contents.events.push((record.event.kind(), record.body));
            contents.places.push(place);
        }
        Err(_) => contents.rejected += 1,
    };
    archive.read(&mut file, each).map_err(|error| error.to_string())?;
    Ok(contents)
}

/// Checks an archive with these events. At least two of the events must differ.
///
/// # Errors
/// Returns the first promise that is not kept.
pub fn archive(archive: &dyn Archive, events: &[EventRecord]) -> Checked {
    let bodies: Vec<Body> =
        events.iter().map(|record| (record.event.payload.kind(), record.body.clone())).collect();
    let lent: Vec<(EventKind, &[u8])> = bodies.iter().map(|(kind, body)| (*kind, &**body)).collect();
    let file = archive.write(&lent).map_err(text)?;
    equal("equal events make equal bytes", archive.write(&lent).map_err(text)? == file, true)?;
    let read = contents(archive, &file)?;
    equal("what is written is read", &read.events, &bodies)?;
    equal("nothing of it is rejected", read.rejected, 0)?;
    equal("every event has a place", read.places.iter().all(Option::is_some), true)?;
    equal("places ascend", read.places.is_sorted_by(|one, next| one < next), true)?;
    let none = archive.write(&[]).map_err(text)?;
    equal("a file without events", contents(archive, &none)?.events.len(), 0)?;
    equal("bytes that are not a file are rejected", contents(archive, b"no file")?.rejected, 1)?;
    damage(archive, &file, &bodies, &read.places)?;
    dead_letters(archive)
}

/// Checks files that are cut or have a changed byte. The archive may report only events that were written,
/// and must report a rejection for missing events. A cut between two blocks leaves a whole file: only the
/// size that a checkpoint records shows it.
fn damage(archive: &dyn Archive, file: &[u8], bodies: &[Body], places: &[Option<Position>]) -> Checked {
    let written: BTreeSet<&Body> = bodies.iter().collect();
    let blocks: BTreeSet<u64> = places.iter().flatten().map(|place| place.byte).collect();
    let step = (file.len() / PLACES).max(1);
    for at in (0..file.len()).step_by(step) {
        let mut bent = file.to_vec();
        bent.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x10);
        for (what, damaged) in [("cut", file.get(..at).unwrap_or_default()), ("bent", &bent)] {
            let read = contents(archive, damaged)?;
            if let Some(invented) = read.events.iter().find(|event| !written.contains(event)) {
                return Err(format!("a file {what} at {at} reported {invented:?}, which was not written"));
            }
            let is_whole = what == "cut" && blocks.contains(&(at as u64));
            if read.events.len() < bodies.len() && read.rejected == 0 && !is_whole {
                return Err(format!("a file {what} at {at} lost events and rejected nothing"));
            }
        }
    }
    Ok(())
}

fn dead_letters(archive: &dyn Archive) -> Checked {
    let rejected = |bytes: &[u8]| Rejected {
        reject: Reject::new(Reason::KeyMismatch, "the message key is 'a'"),
        bytes: bytes.to_vec(),
    };
    let message = Origin::Message {
        topic: "pods".into(),
        partition: 3,
        offset: 1 << 40,
        timestamp_millis: -1,
        key: Some(Vec::new()),
        headers: vec![("a".into(), None), ("a".into(), Some(vec![0, 255]))],
    };
    let file = |position| Origin::File { path: "x/y.avro".into(), position };
    let place = Position { block: 2, byte: 77, record: Some(5) };
    let letters: Vec<DeadLetter> = [message, file(None), file(Some(place))]
        .into_iter()
        .map(|origin| DeadLetter { origin, rejected: rejected(&[0xc3, 0x01, 0]) })
        .collect();
    let bytes = archive.write_dead_letters(&letters).map_err(text)?;
    equal(
        "equal letters make equal bytes",
        archive.write_dead_letters(&letters).map_err(text)? == bytes,
        true,
    )?;
    equal("letters are read as written", archive.read_dead_letters(&bytes).map_err(text)?, letters)?;
    let cut = bytes.get(..bytes.len() - 1).unwrap_or_default();
    equal("a file of letters that is cut is an error", archive.read_dead_letters(cut).is_err(), true)
}

/// Checks a table encoder with the tables of an hour, which have rows of `table`, and with the tables of
/// another organization, whose rows differ.
///
/// # Errors
/// Returns the first promise that is not kept.
pub fn table_encoder(
    encoder: &dyn TableEncoder,
    table: Table,
    hour: &HourTables,
    other: &HourTables,
) -> Checked {
    let clock = |revision| HourClock {
        late_events: 0,
        max_event_time_seen: None,
        complete: true,
        revision,
        last_updated: WallTime(revision * 1_000_000),
    };
    let encode = |hour: &HourTables, revision| {
        let clock = [clock(revision)];
        let mut files =
            encoder.encode(table, std::slice::from_ref(hour), &clock, FILE_ROWS).map_err(text)?.into_iter();
        match (files.next(), files.next()) {
            (Some(one), None) => Ok(one.file),
            _ => Err(format!("{} has rows, but not one file", table.name())),
        }
    };
    let (file, again) = (encode(hour, 1)?, encode(hour, 1)?);
    equal("equal rows make equal bytes", again == file, true)?;
    equal("it has rows", file.rows > 0, true)?;
    money(encoder, table, hour, &file.bytes.clone().into())?;
    let later = encode(hour, 2)?;
    equal("the clock is no part of the digest", &later.digest, &file.digest)?;
    equal("only hours depends on the clock", later.bytes == file.bytes, table != Table::Hours)?;
    equal("other rows have another digest", encode(other, 1)?.digest == file.digest, false)?;
    let named = !file.digest.is_empty() && file.digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    equal("a digest can stand in a name", named, true)?;
    equal("no organization, no file", encoder.encode(table, &[], &[], FILE_ROWS).map_err(text)?, Vec::new())?;
    let [first, second] =
        if hour.organization_id < other.organization_id { [hour, other] } else { [other, hour] };
    for replaced in [first, second] {
        for file_rows in [FILE_ROWS, 1] {
            splice(encoder, table, file_rows, [first, second], replaced, clock)?;
        }
    }
    let refused = TableSplice {
        old: &[b"damaged"],
        organizations: &BTreeSet::new(),
        hours: &[],
        clocks: &[],
        revision: 1,
        last_updated: WallTime(0),
        file_rows: FILE_ROWS,
    };
    equal("a damaged file is refused", encoder.splice(table, &refused).is_err(), true)
}

/// Checks that the encoder reads costs and budgets exactly as they are in an hour's file.
fn money(encoder: &dyn TableEncoder, table: Table, hour: &HourTables, file: &Bytes) -> Checked {
    let damaged = Bytes::from_static(b"damaged");
    if table == Table::Hours {
        let costs = vec![(hour.organization_id.clone(), hour.totals.allocated_cost)];
        equal("costs are read as written", encoder.allocated_costs(file).map_err(text)?, costs)?;
        equal("damaged costs are refused", encoder.allocated_costs(&damaged).is_err(), true)?;
    }
    if table == Table::PoolUsage {
        let mut budgets = Vec::new();
        for pool in &hour.pool_usage {
            for (period, spend, budget) in [
                (Period::Day, pool.spend_day, pool.budget_day),
                (Period::Month, pool.spend_month, pool.budget_month),
                (Period::Quarter, pool.spend_quarter, pool.budget_quarter),
            ] {
                let (organization_id, pool_id) = (hour.organization_id.clone(), pool.pool_id.clone());
                let used = |budget| BudgetUse { organization_id, pool_id, period, spend, budget };
                budgets.extend(budget.map(used));
            }
        }
        equal("a pool has a budget", budgets.is_empty(), false)?;
        equal("budgets are read as written", encoder.budgets(file).map_err(text)?, budgets)?;
        equal("damaged budgets are refused", encoder.budgets(&damaged).is_err(), true)?;
    }
    Ok(())
}

/// Checks that replacing the rows of one of two organizations gives the same result as encoding both again.
fn splice(
    encoder: &dyn TableEncoder,
    table: Table,
    file_rows: u64,
    both: [&HourTables; 2],
    replaced: &HourTables,
    clock: impl Fn(i64) -> HourClock,
) -> Checked {
    let whole: Vec<HourTables> = both.into_iter().cloned().collect();
    let other: Vec<HourTables> =
        both.into_iter().filter(|hour| hour.organization_id != replaced.organization_id).cloned().collect();
    let encode = |hours: &[HourTables], revision| {
        let clocks: Vec<HourClock> = hours.iter().map(|_| clock(revision)).collect();
        encoder.encode(table, hours, &clocks, file_rows).map_err(text)
    };
    let organizations = BTreeSet::from([replaced.organization_id.clone()]);
    let put = |old: &[CutFile], hours: &[HourTables], revision| {
        let clocks: Vec<HourClock> = hours.iter().map(|_| clock(revision)).collect();
        let HourClock { revision, last_updated, .. } = clock(revision);
        let old: Vec<&[u8]> = old.iter().map(|old| &*old.file.bytes).collect();
        let (old, organizations, clocks) = (&*old, &organizations, &*clocks);
        let splice = TableSplice { old, organizations, hours, clocks, revision, last_updated, file_rows };
        encoder.splice(table, &splice).map_err(text)
    };
    let (of_both, of_other) = (encode(&whole, 1)?, encode(&other, 1)?);
    let number = if table == Table::Hours || file_rows > 1 { 1 } else { 2 };
    equal("an hour is cut between organizations", of_both.len(), number)?;
    let last = of_both.last().map(|file| &file.last_organization);
    equal("the last organization of a file", last, whole.last().map(|hour| &hour.organization_id))?;
    let fresh = std::slice::from_ref(replaced);
    let without = put(&of_both, &[], 2)?;
    equal("rows that leave", &without.files, &encode(&other, 2)?)?;
    let digests = of_both.iter().map(|old| old.file.digest.clone()).collect();
    equal("the digests of what was there", &without.old_digests, &digests)?;
    equal("rows that come", put(&of_other, fresh, 2)?.files, encode(&whole, 2)?)?;
    equal("rows that stay the same", put(&of_both, fresh, 1)?.files, of_both)
}
