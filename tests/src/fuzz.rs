//! Checks that must hold for any bytes. The same functions run under the fuzzer, `tests/fuzz`, and over the
//! committed corpus in an ordinary test, `tests/tests/corpus.rs`.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::executor::block_on;
use prorata_collector::prices::{Importer, PriceDocument, PriceList, read_price_list, write_price_list};
use prorata_connectors::archive::{FileError, read_events};
use prorata_connectors::avro::{Decoder, fingerprint};
use prorata_inspect::columns;
use prorata_schemas::avsc;
use prorata_schemas::body::encode;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::quantity::Quantity;
use prorata_schemas::tables::{HourFile, RowSource, SplicedFiles, Table, TableSplice};
use prorata_schemas::time::{Hour, WallTime};
use prorata_tables::{DayPart, EncodeError, day_parts, join, splice, split, stats_columns};
use prorata_testkit::fakes::FakeStore;
use prorata_worker::checkpoint::{Checkpoint, checksum, log, snapshot};
use prorata_worker::names;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Checks a message. The first byte chooses one of our schemas. If the byte is out of range, the next two
/// bytes are the length of a writer's schema, which follows them. An accepted event has one canonical body,
/// which decodes to an equal event.
pub fn decoder(input: &[u8]) {
    let Some((&choice, body)) = input.split_first() else { return };
    let decoded = match EventKind::ALL.get(usize::from(choice)) {
        Some(kind) => Decoder::compile(avsc(*kind)).map(|decoder| decoder.decode(body)),
        None => {
            let Some((length, rest)) = body.split_first_chunk::<2>() else { return };
            let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
            let (schema, body) = rest.split_at(length);
            Decoder::compile(&String::from_utf8_lossy(schema)).map(|decoder| decoder.decode(body))
        }
    };
    if let Ok(Ok(record)) = decoded {
        assert_canonical(&record.into_owned());
    }
}

/// Checks a writer's schema. Either both the decoder and the fingerprint refuse it, or neither does. Then the
/// decoder decodes zeros and the text itself, because a schema must not cost more than the bytes that it
/// decodes.
pub fn schema(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let compiled = Decoder::compile(&text);
    assert_eq!(compiled.is_ok(), fingerprint(&text).is_ok());
    let Ok(decoder) = compiled else { return };
    for body in [&[0; 1 << 16][..], input] {
        if let Ok(record) = decoder.decode(body) {
            assert_canonical(&record.into_owned());
        }
    }
}

fn assert_canonical(record: &EventRecord) {
    assert_eq!(encode(&record.event), record.body.to_vec());
    let again = prorata_schemas::body::decode(record.event.payload.kind(), &record.body);
    assert_eq!(again.as_ref(), Ok(&record.event));
}

/// Checks a quantity, once in bytes and once in thousandths. Either both readings succeed or neither does,
/// and the bytes are the thousandths rounded up.
pub fn quantity(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match (Quantity::parse("memory", text), Quantity::parse("cpu", text)) {
        (Ok(bytes), Ok(thousandths)) => {
            assert_eq!(thousandths.amount.div_ceil(1_000), bytes.amount);
        }
        (bytes, thousandths) => assert_eq!(bytes.err(), thousandths.err()),
    }
}

/// Checks an archive file. Every reported record comes after the record before it, and every reported event
/// is canonical.
pub fn container(input: &[u8]) {
    let mut last = None;
    let result = read_events(input, &mut |position, record| {
        assert!(last < Some((position.block, position.record)), "{position} comes after {last:?}");
        assert!(position.byte < input.len() as u64);
        last = Some((position.block, position.record));
        if let Ok(record) = record {
            assert_canonical(&record.into_owned());
        }
    });
    assert!(!matches!(result, Err(FileError::Io(_))), "a slice cannot fail to be read");
}

/// Checks a checkpoint after correcting its checksum. A readable checkpoint has a stored form, which is read
/// back as an equal checkpoint. Returns whether the checkpoint is readable.
pub fn checkpoint(input: &[u8]) -> bool {
    let Ok(mut json) = serde_json::from_slice::<Value>(input) else { return false };
    let Some(fields) = json.as_object_mut() else { return false };
    fields.remove("checksum");
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    let shard = number("shard").and_then(|shard| names::Shard::try_from(shard).ok()).unwrap_or(0);
    let seq = number("seq").unwrap_or(1);
    let Ok(text) = serde_json::to_vec(&json) else { return false };
    let store = FakeStore::default();
    store.overwrite(&names::checkpoint(shard, seq), checksum::add_to_json(&text).into());
    let Ok(decided) = block_on(log::read(&store, shard, seq)) else { return false };
    let read: &Checkpoint = &decided;
    let again = serde_json::to_vec(read).and_then(|text| serde_json::from_slice::<Checkpoint>(&text));
    assert_eq!(again.as_ref().ok(), Some(read));
    true
}

/// Checks the input as a snapshot, after correcting format and checksum, and as the content of a snapshot.
/// Readable states are packed and read back as equal states. Returns whether any state is readable.
pub fn snapshot(input: &[u8]) -> bool {
    let Ok(empty) = snapshot::encode(&[]) else { return false };
    let body = input.get(snapshot::HEADER..).unwrap_or_default();
    let before = &empty[..snapshot::HEADER - Sha256::output_size()];
    let object = [before, &Sha256::digest(body), body].concat();
    let Ok(content) = snapshot::wrap(input) else { return false };
    // Both are tried, whatever the first one gives.
    let (of_object, of_content) = (is_readable(object), is_readable(content));
    of_object || of_content
}

/// Returns whether a snapshot has a readable state.
fn is_readable(object: Vec<u8>) -> bool {
    let Ok(states) = snapshot::decode_packed(&Bytes::from(object)) else { return false };
    let packed: Vec<_> = states.values().collect();
    let again = snapshot::encode(&packed).map(|bytes| snapshot::decode_packed(&bytes.into()));
    assert_eq!(again, Ok(Ok(states.clone())));
    let mut is_any_read = false;
    for packed in states.values() {
        let Ok(state) = snapshot::unpack(packed) else { continue };
        let again = snapshot::pack(&packed.organization_id, &state);
        assert_eq!(again.and_then(|packed| snapshot::unpack(&packed)), Ok(state));
        is_any_read = true;
    }
    is_any_read
}

/// Checks a price document of any provider, or a price list of our own. An imported list is written and read
/// back as the same list. Returns whether any document was imported.
pub fn prices(input: &[u8]) -> bool {
    let mut is_any_read = false;
    for kind in [PriceDocument::Aws, PriceDocument::Azure, PriceDocument::Gcp, PriceDocument::Csv] {
        let mut importer = Importer::new("USD");
        if importer.read(kind, input).is_err() {
            continue;
        }
        let Ok((list, _)) = importer.finish() else { continue };
        let (mut text, mut again) = (Vec::new(), PriceList::default());
        let written = write_price_list(&list, &mut text);
        assert!(written.is_ok(), "{written:?}");
        let read = read_price_list(&text[..], &mut again);
        assert!(read.is_ok() && again == list, "{kind:?}: {read:?} of {}", String::from_utf8_lossy(&text));
        is_any_read = true;
    }
    is_any_read
}

/// Checks a table file. Every reader of tables reads it or returns an error, whatever the Parquet library
/// does. A readable file keeps its rows. A file of the day that is split and joined again is equal. A file of
/// the day that is joined from a single hour has the rows of the hour's file. A file without replaced rows is
/// written again unchanged. Returns whether the input is readable as a file of this release.
pub fn table(input: &[u8]) -> bool {
    let bytes = Bytes::copy_from_slice(input);
    let mut is_any_read = false;
    for table in Table::HOURLY {
        let seen = look(table, &bytes);
        let hours = rejoined_rows(table, &bytes);
        let joined = seen.hour.and_then(|hour| join(table, &[of_hour(hour, "", bytes.clone())]).ok());
        if let Some(joined) = &joined {
            assert_eq!(rejoined_rows(table, &joined.bytes.clone().into()), Some(joined.rows));
        }
        if let Ok(spliced) = without_change(table, input) {
            for file in &spliced.files {
                let again = without_change(table, &file.file.bytes).map(|again| again.files);
                assert_eq!(again.ok().as_ref(), Some(&spliced.files));
            }
        }
        is_any_read |= seen.is_of_this_release && (hours.is_some() || joined.is_some());
    }
    is_any_read
}

/// Properties of a table file that a command determines.
struct Seen {
    is_of_this_release: bool,
    /// The first hour that a row names.
    hour: Option<Hour>,
}

fn look(table: Table, bytes: &Bytes) -> Seen {
    let (names, mut hour) = (stats_columns(table), None);
    let read = columns::read(bytes.clone(), names, |rows| {
        for name in names {
            // A column has one of these types.
            let is_text = rows.texts(name).map(|texts| assert_eq!(texts.len(), rows.len()));
            let is_amount = rows.amounts(name).map(|amounts| assert_eq!(amounts.len(), rows.len()));
            let is_integer = rows.integers(name).map(|integers| assert_eq!(integers.len(), rows.len()));
            let hours = rows.hours(name);
            if let Ok(hours) = &hours {
                hour = hour.or(hours.iter().flatten().next().copied());
            }
            is_text.or(is_amount).or(is_integer).or(hours.map(drop))?;
        }
        Ok(())
    });
    let is_of_this_release = matches!(columns::drift(table, bytes.clone()), Ok(None)) && read.is_ok();
    Seen { is_of_this_release, hour }
}

/// Returns the number of rows of a file of the day after splitting it and joining it again. Returns `None` if
/// the file is refused.
fn rejoined_rows(table: Table, bytes: &Bytes) -> Option<u64> {
    let files = split(table, bytes).ok()?;
    let listed = day_parts(table, bytes).ok()?;
    let part = |HourFile { hour, file }: &HourFile| DayPart {
        hour: *hour,
        digest: file.digest.clone(),
        rows: file.rows,
    };
    assert_eq!(listed, files.iter().map(part).collect::<Vec<_>>());
    let sources =
        files.iter().map(|HourFile { hour, file }| of_hour(*hour, &file.digest, file.bytes.clone()));
    let joined = join(table, &sources.collect::<Vec<_>>()).ok()?;
    let again = split(table, &joined.bytes.into()).ok()?;
    assert_eq!(again.len(), files.len());
    assert!(files.iter().all(|file| again.contains(file)), "{table:?}");
    Some(joined.rows)
}

fn of_hour(hour: Hour, digest: &str, bytes: impl Into<Bytes>) -> RowSource<Bytes> {
    RowSource::Hour { hour, digest: digest.to_owned(), bytes: bytes.into() }
}

/// Writes the rows of a file again.
fn without_change(table: Table, bytes: &[u8]) -> Result<SplicedFiles, EncodeError> {
    let last_updated = WallTime(0);
    let organizations = &BTreeSet::new();
    let (old, hours, clocks) = (&[bytes], &[], &[]);
    splice(
        table,
        &TableSplice { old, organizations, hours, clocks, revision: 1, last_updated, file_rows: u64::MAX },
    )
}
