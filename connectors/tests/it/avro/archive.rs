//! Archive files: ours and others', whole and damaged. Every byte of a file is reported, as an event or as
//! rejected.

use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use apache_avro::{Codec, DeflateSettings, Reader, Schema, Writer, ZstandardSettings};
use prorata_connectors::archive::{
    AvroArchive, BLOCK_BYTES_MAX, FileError, Position, Rejected, archive_schema, read_events, write_events,
    write_own,
};
use prorata_samples::arbitrary::{records, samples};
use prorata_samples::dice::{dice, mutate};
use prorata_schemas::avsc;
use prorata_schemas::body::wire::{put_bytes, put_long};
use prorata_schemas::body::{EventRecordRef, encode};
use prorata_schemas::event::{Event, EventKind, EventRecord, Payload};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::reject::Reason;
use prorata_worker::ports::{Archive, Wanted};
use std::cell::Cell;
use std::collections::BTreeSet;

type Outcomes = Vec<(Position, Result<EventRecord, Rejected>)>;

fn read(file: &[u8]) -> Result<Outcomes, FileError> {
    let mut outcomes = Vec::new();
    read_events(file, &mut |position, record| {
        outcomes.push((position, record.map(EventRecordRef::into_owned)));
    })?;
    Ok(outcomes)
}

/// Returns the events of a file and the reasons of rejected records.
fn sorted(outcomes: &Outcomes) -> (Vec<EventRecord>, Vec<Reason>) {
    let events = outcomes.iter().filter_map(|(_, record)| record.clone().ok()).collect();
    let reasons =
        outcomes.iter().filter_map(|(_, record)| Some(record.as_ref().err()?.reject.reason)).collect();
    (events, reasons)
}

fn archive(events: &[EventRecord]) -> Vec<u8> {
    let records: Vec<_> = events.iter().map(|record| (record.event.payload.kind(), &*record.body)).collect();
    write_events(&records).unwrap()
}

/// Returns events in which distinct pods stop.
fn stops(count: usize) -> Vec<EventRecord> {
    let sample = samples().into_iter().find(|event| event.payload.kind() == EventKind::PodStopped).unwrap();
    let stop = |index: usize| {
        let mut event = sample.clone();
        event.organization_id = format!("organization-{index:05}").into();
        EventRecord::new(event)
    };
    (0..count).map(stop).collect()
}

const SYNC: [u8; 16] = *b"0123456789abcdef";

/// Builds a file by hand: a header, then the given blocks.
fn file(schema: &str, codec: &str, blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut file = b"Obj\x01".to_vec();
    put_long(&mut file, 2);
    for (key, value) in [("avro.schema", schema), ("avro.codec", codec)] {
        put_bytes(&mut file, key.as_bytes());
        put_bytes(&mut file, value.as_bytes());
    }
    file.push(0);
    file.extend(SYNC);
    file.extend(blocks.concat());
    file
}

fn block(records: i64, data: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    put_long(&mut block, records);
    put_bytes(&mut block, data);
    block.extend(SYNC);
    block
}

/// Returns these events in uncompressed blocks of `each` events.
fn blocks_of(events: &[EventRecord], each: usize) -> Vec<Vec<u8>> {
    let bodies =
        |chunk: &[EventRecord]| chunk.iter().flat_map(|record| record.body.to_vec()).collect::<Vec<_>>();
    events.chunks(each).map(|chunk| block(chunk.len() as i64, &bodies(chunk))).collect()
}

const STOPPED: &str = avsc(EventKind::PodStopped);

#[test]
fn an_archive_gives_back_its_events_in_order() {
    let events = [records(), stops(20_000), records()].concat();
    let bytes = archive(&events);
    assert_eq!(sorted(&read(&bytes).unwrap()), (events.clone(), vec![]));
    assert_eq!(archive(&events), bytes, "equal events, equal bytes");
    assert_ne!(archive(&events[1..])[..], bytes[..]);
    assert_eq!(read(&archive(&[])).unwrap(), vec![]);
}

fn own(events: &[EventRecord]) -> Vec<u8> {
    let records: Vec<_> = events.iter().map(|record| (record.event.payload.kind(), &*record.body)).collect();
    write_own(&records).unwrap()
}

/// Reads the events of wanted organizations from a file of our own; all events if `None`.
fn read_wanted(file: &[u8], wanted: Option<&[&str]>) -> Result<Vec<Event>, String> {
    let wanted = wanted.map(|ids| ids.iter().map(|id| OrganizationId::from(*id)).collect::<BTreeSet<_>>());
    read_all_of(file, Wanted { organizations: wanted.as_ref(), bodies: None })
}

fn read_all_of(file: &[u8], wanted: Wanted<'_>) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    let read = AvroArchive.read_own(file, wanted, &mut |event| events.push(event.into_owned()));
    read.map(|()| events).map_err(|error| error.source.to_string())
}

#[test]
fn a_file_of_our_own_is_read_by_what_its_bodies_say() {
    let records = records();
    for kind in EventKind::ALL {
        let (asked, next) = (Cell::new(0), Cell::new(0));
        let is_wanted = |of: EventKind, body: &[u8]| {
            let record = &records[next.replace(next.get() + 1)];
            assert!(record.event.payload.kind() == of && body.starts_with(&record.body), "{of:?}");
            asked.set(asked.get() + usize::from(of == kind));
            of == kind
        };
        let wanted = Wanted { organizations: None, bodies: Some(&is_wanted) };
        let of_kind = records.iter().map(|record| &record.event).filter(|event| event.payload.kind() == kind);
        let of_kind: Vec<Event> = of_kind.cloned().collect();
        assert_eq!(read_all_of(&archive(&records), wanted).unwrap(), of_kind);
        assert_eq!((asked.get(), next.get()), (of_kind.len(), records.len()), "{kind:?}");
    }
}

#[test]
fn a_file_in_the_order_of_organizations_is_read_by_organization() {
    // Organizations that fill several blocks, and one organization that spans several blocks.
    let mut events = stops(20_000);
    let big = EventRecord { ..events[10_000].clone() };
    events.splice(10_000..10_000, (0..10_000).map(|_| big.clone()));
    let (sorted, plain) = (own(&events), archive(&events));
    let has_index = |file: &[u8]| file.windows(15).any(|bytes| bytes == br#"["organization-"#);
    assert!(has_index(&sorted) && !has_index(&plain), "the index of its blocks");
    let all: Vec<Event> = events.iter().map(|record| record.event.clone()).collect();
    let of = |ids: &[&str]| -> Vec<Event> {
        all.iter().filter(|event| ids.contains(&&*event.organization_id)).cloned().collect()
    };
    let ids = ["organization-00000", "organization-10000", "organization-19999", "unknown"];
    for file in [&sorted, &plain] {
        assert_eq!(read_wanted(file, None).unwrap(), all);
        for one in ids {
            assert_eq!(read_wanted(file, Some(&[one])).unwrap(), of(&[one]), "{one}");
        }
        assert_eq!(read_wanted(file, Some(&ids)).unwrap(), of(&ids));
        assert_eq!(read_wanted(file, Some(&[])).unwrap(), vec![]);
    }
    assert_eq!(read(&sorted).unwrap().len(), all.len(), "others read it, too");
    assert!(!has_index(&own(&events.iter().rev().cloned().collect::<Vec<_>>())), "they do not ascend");
}

#[test]
fn blocks_of_others_are_skipped_and_damage_of_own_blocks_is_reported() {
    let events = stops(20_000);
    let mut file = own(&events);
    let at = file.len() - 100;
    file[at] ^= 1;
    let first: Vec<Event> = vec![events[0].event.clone()];
    assert_eq!(read_wanted(&file, Some(&["organization-00000"])).unwrap(), first);
    for wanted in [None, Some(&["organization-19999"][..])] {
        let damage = read_wanted(&file, wanted).unwrap_err();
        assert!(damage.starts_with("block ") && damage.contains("damaged"), "{damage}");
    }
    // A damaged index is not used: no block is skipped because of it.
    let mut bent = own(&events);
    let index = bent.windows(20).position(|bytes| bytes == b"\"organization-00000\"").unwrap();
    bent[index + 18] = b'9';
    assert_eq!(read_wanted(&bent, Some(&["organization-00000"])).unwrap(), first);
}

#[test]
fn apache_avro_reads_our_archive() {
    let events = records();
    let bytes = archive(&events);
    let reader = Reader::new(&bytes[..]).unwrap();
    for (value, (index, event)) in reader.zip(events.iter().enumerate()) {
        let schema = Schema::parse_str(avsc(event.event.payload.kind())).unwrap();
        let expected =
            GenericDatumReader::builder(&schema).build().unwrap().read_value(&mut &event.body[..]).unwrap();
        assert_eq!(value.unwrap(), Value::Union(u32::try_from(index).unwrap(), Box::new(expected)));
    }
}

#[test]
fn files_of_other_writers_are_read_in_every_codec() {
    let zstandard = Codec::Zstandard(ZstandardSettings::default());
    for codec in [Codec::Null, Codec::Deflate(DeflateSettings::default()), Codec::Snappy, zstandard] {
        for kind in EventKind::ALL {
            let events: Vec<_> =
                records().into_iter().filter(|record| record.event.payload.kind() == kind).collect();
            let schema = Schema::parse_str(avsc(kind)).unwrap();
            let datum = GenericDatumReader::builder(&schema).build().unwrap();
            let mut writer = Writer::with_codec(&schema, Vec::new(), codec).unwrap();
            for record in &events {
                writer.append_value(datum.read_value(&mut &record.body[..]).unwrap()).unwrap();
                writer.flush().unwrap();
            }
            let outcomes = read(&writer.into_inner().unwrap()).unwrap();
            assert_eq!(sorted(&outcomes), (events, vec![]), "{codec:?} {kind:?}");
        }
    }
}

#[test]
fn a_bad_record_costs_no_other_and_is_reported_with_position_and_bytes() {
    let mut events = stops(5);
    events[2].event.organization_id = "".into();
    events[2] = EventRecord::new(events[2].event.clone());
    let bytes = file(STOPPED, "null", &blocks_of(&events, 3));
    let outcomes = read(&bytes).unwrap();
    let byte = bytes.len() - blocks_of(&events, 3).concat().len();
    assert_eq!(outcomes.len(), 5);
    let (position, rejected) = &outcomes[2];
    assert_eq!(*position, Position { block: 0, byte: byte as u64, record: Some(2) });
    assert_eq!(position.to_string(), format!("block 0 at byte {byte}, record 2"));
    let rejected = rejected.as_ref().unwrap_err();
    assert_eq!(rejected.reject.reason, Reason::InvalidField);
    assert_eq!(rejected.bytes, events[2].body.to_vec());
    assert_eq!(sorted(&outcomes).0, [&events[..2], &events[3..]].concat());
}

#[test]
fn foreign_records_are_reported_one_by_one() {
    let foreign = r#"{"type": "record", "name": "acme.Order", "fields": [{"name": "id", "type": "long"}]}"#;
    let events = stops(2);
    let mut data = Vec::new();
    for (branch, body) in [(1, &events[0].body[..]), (0, &[0x2a]), (2, &[]), (1, &events[1].body[..])] {
        put_long(&mut data, branch);
        data.extend(body);
    }
    let schema = format!("[{foreign}, {STOPPED}, \"null\"]");
    let outcomes = read(&file(&schema, "null", &[block(4, &data)])).unwrap();
    assert_eq!(sorted(&outcomes), (events, vec![Reason::UnknownEvent; 2]));
    assert_eq!(outcomes[1].1.as_ref().unwrap_err().bytes, [0, 0x2a]);

    let outcomes = read(&file(foreign, "null", &[block(3, &[2, 4, 6])])).unwrap();
    assert_eq!(sorted(&outcomes), (vec![], vec![Reason::UnknownEvent; 3]));
}

#[test]
fn a_block_with_a_wrong_record_count_is_reported() {
    let events = stops(2);
    let data = [&events[0].body[..], &events[1].body].concat();
    for (claimed, read_events, rejected) in
        [(1, 1, &events[1].body[..]), (3, 2, &[]), (i64::MAX, 2, &[]), (0, 0, &data)]
    {
        let outcomes = read(&file(STOPPED, "null", &[block(claimed, &data), block(2, &data)])).unwrap();
        let (found, reasons) = sorted(&outcomes);
        assert_eq!(found, [&events[..read_events], &events].concat(), "{claimed}");
        assert_eq!(reasons, [Reason::Malformed], "{claimed}");
        assert_eq!(outcomes[read_events].1.as_ref().unwrap_err().bytes, rejected);
    }
}

#[test]
fn a_block_of_records_without_bytes_is_reported_once() {
    let empty = r#"{"type": "record", "name": "acme.Empty", "fields": []}"#;
    for schema in [empty, "\"null\""] {
        for left in [&[][..], &[0x2a], b"bytes that no record takes"] {
            let mut outcomes = Outcomes::new();
            let bytes = file(schema, "null", &[block(i64::MAX, left), block(0, &[])]);
            read_events(&bytes[..], &mut |position, record| {
                outcomes.push((position, record.map(EventRecordRef::into_owned)));
                assert!(outcomes.len() < 10, "reading does not end");
            })
            .unwrap();
            let [(position, Err(rejected))] = &outcomes[..] else { panic!("{schema}: {outcomes:?}") };
            assert_eq!((position.record, &rejected.bytes[..]), (Some(0), left), "{schema}");
            assert_eq!(rejected.reject.reason, Reason::Malformed, "{schema}");
        }
    }
}

#[test]
fn a_damaged_block_costs_only_itself_and_reading_continues_after_the_next_marker() {
    let events = stops(9);
    let blocks = blocks_of(&events, 3);
    let whole = file(STOPPED, "null", &blocks);
    let start = whole.len() - blocks[1].len() - blocks[2].len();
    let end = start + blocks[1].len();
    let damage: [(&str, usize, &[u8]); 5] = [
        ("its sync marker", end - 1, &[0]),
        ("a negative size", start + 1, &[1]),
        ("a size past the file", start + 1, &[0xfe, 0xff, 0x7f]),
        ("a size past the limit", start + 1, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
        ("a negative count", start, &[1]),
    ];
    for (what, at, bytes) in damage {
        let mut damaged = whole.clone();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        let outcomes = read(&damaged).unwrap();
        let (found, reasons) = sorted(&outcomes);
        let lost =
            if what == "its sync marker" { &events[..3] } else { &[&events[..3], &events[6..]].concat()[..] };
        assert_eq!(found, lost, "{what}");
        assert_eq!(reasons, [Reason::Malformed], "{what}");
        let (position, rejected) = &outcomes[3];
        assert_eq!(*position, Position { block: 1, byte: start as u64, record: None }, "{what}");
        let rejected = rejected.as_ref().unwrap_err();
        let rejected_end = if what == "its sync marker" { damaged.len() } else { end };
        assert_eq!(rejected.bytes, damaged[start..rejected_end], "{what}");
    }
}

#[test]
fn a_compressed_block_that_does_not_unpack_costs_itself_alone() {
    let events = stops(3);
    let data: Vec<u8> = events.iter().flat_map(|record| record.body.to_vec()).collect();
    let deflate = |data: &[u8]| miniz_oxide::deflate::compress_to_vec(data, 6);
    let zstandard = |data: &[u8]| zstd::bulk::compress(data, 3).unwrap();
    let snappy = |data: &[u8]| {
        let sum = crc32fast::hash(data).to_be_bytes();
        [snap::raw::Encoder::new().compress_vec(data).unwrap(), sum.to_vec()].concat()
    };
    let bomb = vec![0; BLOCK_BYTES_MAX * 5];
    let mut wrong_sum = snappy(&data);
    *wrong_sum.last_mut().unwrap() ^= 1;
    let cases = [
        ("deflate", deflate(&data), vec![deflate(&bomb), deflate(&data)[..20].to_vec(), vec![]]),
        (
            "zstandard",
            zstandard(&data),
            vec![zstandard(&bomb), zstandard(&data)[..20].to_vec(), vec![1, 2, 3]],
        ),
        (
            "snappy",
            snappy(&data),
            vec![wrong_sum, vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0], vec![0, 0]],
        ),
    ];
    for (codec, good, bad) in cases {
        for bad in bad {
            let outcomes =
                read(&file(STOPPED, codec, &[block(3, &good), block(3, &bad), block(3, &good)])).unwrap();
            let (found, reasons) = sorted(&outcomes);
            assert_eq!((found.len(), reasons), (6, vec![Reason::Malformed]), "{codec}");
            assert_eq!(outcomes[3].1.as_ref().unwrap_err().bytes, bad, "{codec}");
        }
    }
}

#[test]
fn a_file_cut_between_two_blocks_reads_as_fewer_events() {
    // A block has 256 KiB.
    let events = stops(8_000);
    let bodies: Vec<_> = events.iter().map(|record| (EventKind::PodStopped, &*record.body)).collect();
    let file = write_own(&bodies).unwrap();
    let marker = &file[file.len() - SYNC.len()..];
    let ends = (SYNC.len()..file.len()).filter(|end| file[..*end].ends_with(marker));
    let read_to = |end: usize| sorted(&read(&file[..end]).unwrap()).0;
    let mut cut = ends.map(read_to).filter(|found| !found.is_empty());
    // So a reader of our own archive compares sizes.
    let found = cut.next().unwrap();
    assert!(found.len() < events.len() && found == events[..found.len()]);
}

#[test]
fn a_truncated_file_gives_its_whole_records_and_reports_the_rest() {
    let events = stops(6);
    let blocks = blocks_of(&events, 2);
    let whole = file(STOPPED, "null", &blocks);
    let header = whole.len() - blocks.concat().len();
    for length in 0..whole.len() {
        let Ok(outcomes) = read(&whole[..length]) else {
            assert!(length < header, "cut to {length}");
            continue;
        };
        let (found, reasons) = sorted(&outcomes);
        assert_eq!(found, events[..found.len()], "cut to {length}");
        let boundary = (0..=3).any(|count| length == header + blocks[..count].concat().len());
        assert_eq!(reasons.is_empty(), boundary, "cut to {length}");
        assert!(reasons.iter().all(|reason| *reason == Reason::Malformed));
        let accounted_bytes: usize = found.iter().map(|record| record.body.len()).sum::<usize>()
            + outcomes
                .iter()
                .filter_map(|(_, record)| Some(record.as_ref().err()?.bytes.len()))
                .sum::<usize>();
        // Only framing is not reported: heads of three bytes, and the markers of blocks that were read.
        assert!(
            header + accounted_bytes + 3 * (3 + SYNC.len()) >= length,
            "cut to {length}: {accounted_bytes}"
        );
    }
}

#[test]
fn a_file_that_is_not_a_container_is_a_file_error() {
    let no_codec = file(STOPPED, "xz", &[]);
    let cases: [(&[u8], &str); 6] = [
        (b"", "it is empty"),
        (b"PAR1", "does not begin with Obj"),
        (b"Obj\x02", "does not begin with Obj"),
        (b"Obj\x01", "its header is damaged"),
        (&file("{", "null", &[]), "not an Avro schema"),
        (&no_codec, "its codec is xz"),
    ];
    for (bytes, message) in cases {
        let error = read(bytes).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_reader_that_fails_is_not_a_bad_file() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the network is gone"))
        }
    }
    let whole = archive(&stops(10_000));
    let mut count = 0;
    let file = std::io::Read::chain(&whole[..whole.len() / 2], Broken);
    let result = read_events(file, &mut |_, _| count += 1);
    assert!(matches!(result, Err(FileError::Io(_))), "{result:?}");
}

#[test]
fn twenty_thousand_damaged_files_never_panic_and_hide_nothing() {
    let events = stops(6);
    let bodies: Vec<_> = events.iter().map(|record| (EventKind::PodStopped, &*record.body)).collect();
    let files = [file(STOPPED, "null", &blocks_of(&events, 2)), write_events(&bodies).unwrap()];
    let mut dice = dice(2029);
    let mut whole = 0;
    for round in 0..20_000 {
        let mut file = files[round % 2].clone();
        let header = file.windows(16).position(|window| window == &file[file.len() - 16..]).unwrap();
        // Half of the damage lies after the header, because a damaged header makes most files unreadable at
        // once.
        let mut tail = file.split_off(if round % 4 < 2 { 0 } else { header + 16 });
        mutate(&mut tail, &mut dice);
        file.extend(tail);
        if let Ok(outcomes) = read(&file) {
            let (found, reasons) = sorted(&outcomes);
            assert!(!reasons.is_empty() || found.len() <= 12);
            whole += usize::from(found.len() == 6);
        }
    }
    assert!(whole > 500, "only {whole} files kept their events: the damage is too coarse");
}

#[test]
fn the_archives_schema_is_the_union_of_ours() {
    let Schema::Union(union) = Schema::parse_str(archive_schema()).unwrap() else { unreachable!() };
    for (variant, kind) in union.variants().iter().zip(EventKind::ALL) {
        assert_eq!(*variant, Schema::parse_str(avsc(kind)).unwrap());
    }
    assert_eq!(union.variants().len(), EventKind::ALL.len());
}

#[test]
fn a_rejected_record_can_be_replayed_once_repaired() {
    let mut event: Event = stops(1).remove(0).event;
    event.organization_id = "".into();
    let bytes = file(STOPPED, "null", &[block(1, &encode(&event))]);
    let rejected = read(&bytes).unwrap().remove(0).1.unwrap_err();
    let repaired = [&[2, b'o'][..], &rejected.bytes[1..]].concat();
    let outcomes = read(&file(STOPPED, "null", &[block(1, &repaired)])).unwrap();
    let Payload::PodStopped(_) = &outcomes[0].1.as_ref().unwrap().event.payload else { unreachable!() };
}
