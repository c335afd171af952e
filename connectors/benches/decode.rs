//! Times to decode one event of each size class: our reader, a conversion from another version, apache-avro's
//! own read, and a whole archive file. Only ratios within one run are meaningful.

#![expect(clippy::unwrap_used, reason = "a benchmark stops on a broken assumption")]

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use prorata_connectors::archive::{read_events, write_events};
use prorata_connectors::avro::Decoder;
use prorata_samples::typical::typical;
use prorata_schemas::avsc;
use prorata_schemas::body::{decode, encode};
use prorata_schemas::event::EventKind;

const KINDS: [EventKind; 3] = [EventKind::PodStarted, EventKind::PodUsage, EventKind::NodeStarted];

fn main() {
    divan::main();
}

/// Decodes our newest schema to a typed event and its canonical body.
#[divan::bench(args = KINDS)]
fn decoder(bencher: Bencher<'_, '_>, kind: EventKind) {
    let decoder = Decoder::compile(avsc(kind)).unwrap();
    let body = encode(&typical(kind));
    bencher.bench(|| decoder.decode(black_box(&body)).unwrap());
}

/// Decodes an event of a writer's schema with an extra field, so every field is converted.
#[divan::bench(args = KINDS)]
fn decoder_of_another_version(bencher: Bencher<'_, '_>, kind: EventKind) {
    let text = avsc(kind);
    let other = text.replacen("\"fields\": [", "\"fields\": [{\"name\": \"extra\", \"type\": \"int\"},", 1);
    let decoder = Decoder::compile(&other).unwrap();
    let body = [&[0][..], &encode(&typical(kind))].concat();
    bencher.bench(|| decoder.decode(black_box(&body)).unwrap());
}

/// Decodes only the typed event.
#[divan::bench(args = KINDS)]
fn body(bencher: Bencher<'_, '_>, kind: EventKind) {
    let body = encode(&typical(kind));
    bencher.bench(|| decode(kind, black_box(&body)).unwrap());
}

/// Reads the library's generic value, which is not an event yet.
#[divan::bench(args = KINDS)]
fn apache_avro(bencher: Bencher<'_, '_>, kind: EventKind) {
    let schema = Schema::parse_str(avsc(kind)).unwrap();
    let reader = GenericDatumReader::builder(&schema).build().unwrap();
    let body = encode(&typical(kind));
    bencher.bench(|| reader.read_value(&mut black_box(&body[..])).unwrap());
}

/// Reads ten thousand events from an archive file.
#[divan::bench]
fn archive_file(bencher: Bencher<'_, '_>) {
    let bodies: Vec<_> = KINDS.map(|kind| (kind, encode(&typical(kind)))).to_vec();
    let records: Vec<_> =
        (0..10_000).map(|index| &bodies[index % 3]).map(|(kind, body)| (*kind, &body[..])).collect();
    let file = write_events(&records).unwrap();
    bencher.counter(ItemsCount::new(10_000usize)).bench(|| {
        let mut events = 0;
        read_events(&file[..], &mut |_, record| events += usize::from(record.is_ok())).unwrap();
        assert_eq!(events, 10_000);
    });
}
