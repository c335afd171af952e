//! Reading of archived files: events, and rejected records with their places.

use std::io::Read;
use std::sync::LazyLock;

use prorata_schemas::body::wire::Wire;
use prorata_schemas::body::{EventRecordRef, EventRef};
use prorata_schemas::reject::{RecordError, Reject};
use prorata_worker::ports::Wanted;

use super::container::{Block, Container, Lost, Next};
use super::error::{FileError, FileFault};
use super::{Position, Rejected};
use crate::avro::{Decoder, Decoders};

/// The callback for each record.
pub type OnRecord<'f> = dyn FnMut(Position, Result<EventRecordRef<'_>, Rejected>) + 'f;

static DECODERS: LazyLock<Decoders> = LazyLock::new(Decoders::default);

/// Reads an Avro object container file: records of one of our types or a union of records, in any supported
/// codec. Calls `on` with every record, in file order, as an event or as rejected. Damage loses only the
/// block in which it lies. The bytes of this block are rejected as `malformed`, and reading continues after
/// the next sync marker.
///
/// # Errors
/// If the whole file cannot be read: see [`FileError`].
pub fn read_events(file: impl Read, on: &mut OnRecord<'_>) -> Result<(), FileError> {
    let mut container = Container::open(file)?;
    let decoder = DECODERS.get(container.schema()).map_err(FileFault::Schema)?;
    let mut unpacked = Vec::new();
    while let Some(next) = container.next(&mut unpacked)? {
        match next {
            Next::Block(block) => read_block(|wire| decoder.next(wire), block, &unpacked, &mut *on),
            Next::Lost(lost) => read_lost(&decoder, lost, on),
        }
    }
    Ok(())
}

/// Reads a file of our own. Calls `each` with the wanted events, without their bodies. Skips the other events
/// without checking them.
///
/// # Errors
/// The first damage, with its place.
pub fn read_own(
    file: &[u8],
    wanted: Wanted<'_>,
    each: &mut dyn FnMut(EventRef<'_>),
) -> Result<(), FileError> {
    let mut container = Container::open(file)?;
    let decoder = DECODERS.get(container.schema()).map_err(FileFault::Schema)?;
    let mut damage = None;
    let mut unpacked = Vec::new();
    while let Some(next) = container.next_of(wanted, &mut unpacked)? {
        let mut on = |position, judged: Result<Option<EventRef<'_>>, Rejected>| match judged {
            Ok(event) => event.into_iter().for_each(&mut *each),
            Err(rejected) => {
                damage.get_or_insert_with(|| rejected.at(Some(position)));
            }
        };
        match next {
            Next::Block(block) => {
                read_block(|wire| decoder.next_wanted(wire, wanted), block, &unpacked, &mut on);
            }
            Next::Lost(lost) => {
                let reject = Reject::malformed(format!("a block is damaged: {}", lost.why));
                on(
                    Position { record: None, ..place(lost.block, 0) },
                    Err(Rejected { reject, bytes: lost.bytes }),
                );
            }
        }
    }
    damage.map_or(Ok(()), |damage| Err(FileFault::Own(damage).into()))
}

fn read_block<'r, E>(
    next_record: impl Fn(&mut Wire<'r>) -> Result<E, RecordError>,
    block: Block,
    records: &'r [u8],
    mut on: impl FnMut(Position, Result<E, Rejected>),
) {
    let mut wire = Wire::new(records);
    for record in 0..block.records {
        let rest = wire.rest();
        if rest.is_empty() {
            let why = format!("the block ends after {record} of its {} records", block.records);
            return reject(block, record, Reject::malformed(why), rest, &mut on);
        }
        let why = match next_with_bytes(&next_record, &mut wire) {
            (_, Err(RecordError::Malformed(reject))) => reject.message,
            // No event is empty, and a block may claim any number of such records.
            ([], _) => "a record takes no bytes".to_owned(),
            (bytes, judged) => {
                report(block, record, bytes, judged, &mut on);
                continue;
            }
        };
        let left = block.records - record;
        let why = format!("{why}; {left} records of the block are lost");
        return reject(block, record, Reject::malformed(why), rest, &mut on);
    }
    let rest = wire.rest();
    if !rest.is_empty() {
        let why = format!("{} bytes follow the block's last record", rest.len());
        reject(block, block.records, Reject::malformed(why), rest, &mut on);
    }
}

/// Rejects damaged bytes as `malformed`. If the end of the file cuts off an uncompressed block, first reports
/// the whole records before the cut like any other records.
fn read_lost(decoder: &Decoder, lost: Lost, on: &mut OnRecord<'_>) {
    let malformed = |kept: u64| {
        let kept =
            if kept > 0 { format!("; {kept} whole records before the cut were read") } else { String::new() };
        Reject::malformed(format!("a block is damaged: {}{kept}", lost.why))
    };
    let Some(records) = lost.cut_at.and_then(|cut_at| lost.bytes.get(cut_at..)) else {
        let position = Position { record: None, ..place(lost.block, 0) };
        let rejected = Rejected { reject: malformed(0), bytes: lost.bytes };
        return on(position, Err(rejected));
    };
    let mut wire = Wire::new(records);
    for record in 0..lost.block.records {
        let rest = wire.rest();
        match next_with_bytes(|wire: &mut Wire<'_>| decoder.next(wire), &mut wire) {
            (_, Err(RecordError::Malformed(_))) | ([], _) => {
                return reject(lost.block, record, malformed(record), rest, on);
            }
            (bytes, judged) => report(lost.block, record, bytes, judged, on),
        }
    }
    reject(lost.block, lost.block.records, malformed(lost.block.records), wire.rest(), on);
}

/// Returns the next record with its bytes. The end of a malformed record is unknown, so its bytes are
/// meaningless.
fn next_with_bytes<'a, E>(
    next_record: impl Fn(&mut Wire<'a>) -> Result<E, RecordError>,
    wire: &mut Wire<'a>,
) -> (&'a [u8], Result<E, RecordError>) {
    let before = wire.rest();
    let judged = next_record(wire);
    let bytes = before.get(..before.len() - wire.rest().len()).unwrap_or_default();
    (bytes, judged)
}

fn report<E>(
    block: Block,
    record: u64,
    bytes: &[u8],
    judged: Result<E, RecordError>,
    on: &mut (impl FnMut(Position, Result<E, Rejected>) + ?Sized),
) {
    match judged {
        Ok(event) => on(place(block, record), Ok(event)),
        Err(error) => reject(block, record, error.into_reject(), bytes, on),
    }
}

fn reject<E>(
    block: Block,
    record: u64,
    reject: Reject,
    bytes: &[u8],
    on: &mut (impl FnMut(Position, Result<E, Rejected>) + ?Sized),
) {
    on(place(block, record), Err(Rejected { reject, bytes: bytes.to_vec() }));
}

const fn place(block: Block, record: u64) -> Position {
    Position { block: block.number, byte: block.byte, record: Some(record) }
}
