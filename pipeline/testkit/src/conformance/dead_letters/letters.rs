//! Checks of the content of a letter.

use std::collections::BTreeMap;

use prorata_schemas::reject::{Reason, Reject};
use prorata_worker::ports::{DeadLetter, Origin, Position, Rejected};
use prorata_worker::source::{Header, Message};

use super::{Checked, LetterStage, equal};

/// Prefix of the names of prorata's headers.
const OURS: &str = "prorata.";

/// Returns a message of topic `pods`, partition 3, that was rejected.
pub(super) fn letter(offset: i64, key: Option<&[u8]>, bytes: &[u8], headers: Vec<Header>) -> DeadLetter {
    let origin = Origin::Message {
        topic: "pods".into(),
        partition: 3,
        offset,
        timestamp_millis: 1_793_000_000_000,
        key: key.map(<[u8]>::to_vec),
        headers,
    };
    let reject = Reject::new(Reason::Malformed, "no magic byte");
    DeadLetter { origin, rejected: Rejected { reject, bytes: bytes.to_vec() } }
}

/// Returns the headers of the rejected message, as the checks must find them.
fn headers() -> Vec<Header> {
    let header = |name: &str, value: &[u8]| (name.to_owned(), Some(value.to_vec()));
    vec![
        header("trace", &[0, 255, 128]),
        ("none".into(), None),
        header("empty", b""),
        header("twice", b"first"),
        header("another", "Größe".as_bytes()),
        header("twice", b"second"),
        // The name only looks like one of prorata's headers.
        header("prorata", b"theirs"),
    ]
}

/// Checks that the message has the bytes and the key of the letter, its headers in order, and these headers
/// of prorata.
fn is_letter(message: &Message, letter: &DeadLetter, foreign: &[Header], place: &[(&str, &str)]) -> Checked {
    let key = match &letter.origin {
        Origin::Message { key, .. } => key.as_deref(),
        Origin::File { .. } => None,
    };
    equal("the key", message.key.as_deref(), key)?;
    equal("the bytes", message.value.as_deref(), Some(&letter.rejected.bytes[..]))?;
    let (ours, theirs): (Vec<&Header>, Vec<&Header>) =
        message.headers.iter().partition(|(name, _)| name.starts_with(OURS));
    equal("the headers that came", theirs, foreign.iter().collect())?;
    let reject = &letter.rejected.reject;
    let why = [("reason", reject.reason.code()), ("message", &*reject.message)];
    let expected: BTreeMap<String, &[u8]> =
        why.iter().chain(place).map(|(name, value)| (format!("{OURS}{name}"), value.as_bytes())).collect();
    let version = format!("{OURS}version");
    let (versions, ours): (Vec<&Header>, Vec<&Header>) =
        ours.into_iter().partition(|(name, _)| *name == version);
    let filled = versions.iter().filter(|(_, value)| value.as_ref().is_some_and(|value| !value.is_empty()));
    equal("headers with the version", (versions.len(), filled.count()), (1, 1))?;
    equal("how many headers of ours there are", ours.len(), expected.len())?;
    let found: BTreeMap<&str, Option<&[u8]>> =
        ours.into_iter().map(|(name, value)| (&**name, value.as_deref())).collect();
    let expected = expected.iter().map(|(name, value)| (&**name, Some(*value))).collect();
    equal("our headers", found, expected)
}

pub(super) async fn as_they_came(stage: &LetterStage) -> Checked {
    let all_bytes: Vec<u8> = (0..=255).collect();
    let keys: [Option<&[u8]>; 4] = [Some(b"acme"), None, Some(b""), Some(&[0, 255, 0xc3])];
    let values: [&[u8]; 3] = [&all_bytes, b"", b"{}"];
    let reasons = Reason::ALL.iter().cycle();
    let forms = keys.iter().flat_map(|key| values.iter().map(move |value| (*key, *value)));
    for (number, ((key, value), reason)) in (0..).zip(forms.zip(reasons)) {
        let headers = if number % 2 == 0 { headers() } else { Vec::new() };
        // The tested offsets are the first, the last, and some in between.
        let offset = if number == 1 { i64::MAX } else { number << 33 };
        let mut letter = letter(offset, key, value, headers.clone());
        letter.rejected.reject = Reject::new(*reason, format!("'Größe' of letter {number}: \"{reason}\"\n"));
        let message = stage.sent_alone(&letter).await?;
        let offset = offset.to_string();
        let place = [("topic", "pods"), ("partition", "3"), ("offset", &*offset)];
        is_letter(&message, &letter, &headers, &place)
            .map_err(|broken| format!("letter {number}: {broken}"))?;
    }
    Ok(())
}

pub(super) async fn files(stage: &LetterStage) -> Checked {
    let path = ("file", "events/date=2026-11-20/Größe.avro");
    let place = Position { block: 2, byte: 77, record: Some(5) };
    for (position, place) in
        [(None, vec![path]), (Some(place), vec![path, ("position", "block 2 at byte 77, record 5")])]
    {
        let origin = Origin::File { path: path.1.into(), position };
        let letter = DeadLetter { origin, ..letter(0, None, b"record", Vec::new()) };
        is_letter(&stage.sent_alone(&letter).await?, &letter, &[], &place)?;
    }
    Ok(())
}

pub(super) async fn again(stage: &LetterStage) -> Checked {
    let first = letter(7, Some(b"acme"), b"value", headers());
    let message = stage.sent_alone(&first).await?;
    let mut second = letter(8, Some(b"acme"), b"value", message.headers);
    second.rejected.reject = Reject::new(Reason::TooLate, "it came too late");
    let place = [("topic", "pods"), ("partition", "3"), ("offset", "8")];
    is_letter(&stage.sent_alone(&second).await?, &second, &headers(), &place)
}
