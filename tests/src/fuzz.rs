//! What must hold for any bytes. The same functions run under the fuzzer, `tests/fuzz`, and over the
//! committed corpus in an ordinary test, `connectors/tests/it/avro/corpus.rs`.

use prorata_connectors::archive::{FileError, read_events};
use prorata_connectors::avro::{Decoder, fingerprint};
use prorata_schemas::avsc;
use prorata_schemas::body::encode;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::quantity::Quantity;

/// A message. The first byte chooses one of our schemas; past them, a writer's schema of the length in the
/// next two bytes comes first. An event that is accepted has one canonical body, which is read back as the
/// same event.
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

/// A writer's schema. Its decoder and its fingerprint both refuse it or neither does. Then zeros and the text
/// itself are passed as its records: a schema costs no more than the bytes that it reads.
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

/// A quantity of a resource that counts bytes and of one that counts thousandths: both read it or neither
/// does, and bytes never pass thousandths.
pub fn quantity(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match (Quantity::parse("memory", text), Quantity::parse("cpu", text)) {
        (Ok(bytes), Ok(thousandths)) => {
            assert_eq!(thousandths.amount.div_ceil(1_000), bytes.amount);
        }
        (bytes, thousandths) => assert_eq!(bytes.err(), thousandths.err()),
    }
}

/// An archive file: every record it tells has a place behind the last one's, and no event is told that is not
/// canonical.
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
