//! Files of dead letters: everything written is read back, also by releases with a grown schema.

use apache_avro::{Reader, Schema, Writer};
use prorata_connectors::archive::{
    DEAD_LETTER_SCHEMA, Position, Rejected, read_dead_letters, write_dead_letters, write_events,
};
use prorata_samples::arbitrary::samples;
use prorata_schemas::event::EventRecord;
use prorata_schemas::reject::{Reason, Reject};
use prorata_worker::ports::{DeadLetter, Origin};

/// Returns a file of events, which is not a file of letters.
fn archive_of_one() -> Vec<u8> {
    let record = EventRecord::new(samples().remove(0));
    write_events(&[(record.event.payload.kind(), &*record.body)]).unwrap()
}

fn letter(reject: Reject, origin: Origin) -> DeadLetter {
    DeadLetter { origin, rejected: Rejected { reject, bytes: vec![0, 1, 2, 255] } }
}

fn letters() -> Vec<DeadLetter> {
    let position = Some(Position { block: 1, byte: 2, record: Some(3) });
    let damaged = Some(Position { block: 1, byte: 2, record: None });
    let file = |position| Origin::File { path: "events/a.avro".to_owned(), position };
    let message = |timestamp_millis, key: Option<&[u8]>, headers| Origin::Message {
        topic: "pods".to_owned(),
        partition: 7,
        offset: i64::MAX,
        timestamp_millis,
        key: key.map(<[u8]>::to_vec),
        headers,
    };
    let headers = vec![
        ("trace".to_owned(), Some(vec![0, 255])),
        ("trace".to_owned(), None),
        (String::new(), Some(Vec::new())),
    ];
    vec![
        letter(Reject::malformed("a"), file(None)),
        letter(Reject::invalid("PodUsage", "cpu_millis", "-1 is negative"), file(position)),
        letter(Reject::malformed(""), file(damaged)),
        letter(Reject::new(Reason::TooLate, "c"), message(-1, None, Vec::new())),
        letter(Reject::new(Reason::KeyMismatch, "d"), message(0, Some(b""), headers.clone())),
        letter(Reject::new(Reason::InTheFuture, "e"), message(1_763_643_600_000, Some(b"acme"), headers)),
    ]
}

#[test]
fn dead_letters_survive_the_round_trip() {
    let bytes = write_dead_letters(&letters()).unwrap();
    assert_eq!(read_dead_letters(&bytes[..]).unwrap(), letters());
    assert_eq!(write_dead_letters(&letters()).unwrap(), bytes);
    assert_eq!(read_dead_letters(&write_dead_letters(&[]).unwrap()[..]).unwrap(), vec![]);
    for length in 0..bytes.len() - 1 {
        let cut = read_dead_letters(&bytes[..length]);
        assert!(cut.is_err() || cut.unwrap().is_empty(), "cut to {length}");
    }
    assert!(read_dead_letters(&archive_of_one()[..]).is_err());
}

#[test]
fn every_reason_survives_as_a_dead_letter() {
    let origin = letters().remove(0).origin;
    let letters = Reason::ALL.map(|reason| letter(Reject::new(reason, "why"), origin.clone()));
    let read = read_dead_letters(&write_dead_letters(&letters).unwrap()[..]).unwrap();
    assert_eq!(read, letters);
}

/// A later schema may add fields with defaults, and no other fields. Existing files stay readable.
#[test]
fn the_schema_of_dead_letters_grows_both_ways() {
    let [first, now] = [include_str!("../../released/dead_letter_1.avsc"), DEAD_LETTER_SCHEMA]
        .map(|text| Schema::parse_str(text).unwrap());
    for (writer, reader) in [(&first, &now), (&now, &first)] {
        apache_avro::schema_compatibility::SchemaCompatibility::can_read(writer, reader).unwrap();
    }
    let bytes = write_dead_letters(&letters()).unwrap();
    let read = Reader::builder(&bytes[..]).reader_schema(&first).build().unwrap();
    assert_eq!(read.map(Result::unwrap).count(), letters().len());
}

/// A newer schema, with a field that this program does not know.
#[test]
fn dead_letters_of_a_grown_schema_are_read() {
    let grown = DEAD_LETTER_SCHEMA.replace(
        r#"{
      "name": "program_version","#,
        r#"{
      "name": "added",
      "type": ["null", "string"],
      "default": null,
      "doc": "A field of a later release."
    },
    {
      "name": "program_version","#,
    );
    assert_ne!(grown, DEAD_LETTER_SCHEMA);
    let schema = Schema::parse_str(&grown).unwrap();
    let bytes = write_dead_letters(&letters()).unwrap();
    let mut writer = Writer::new(&schema, Vec::new()).unwrap();
    for record in Reader::builder(&bytes[..]).reader_schema(&schema).build().unwrap() {
        writer.append_value(record.unwrap()).unwrap();
    }
    assert_eq!(read_dead_letters(&writer.into_inner().unwrap()[..]).unwrap(), letters());
}
