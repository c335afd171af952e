//! A dead letter as a message: its original bytes, key and headers, and headers that say why it was rejected
//! and where it was read.

use crate::ports::{DeadLetter, Origin};
use crate::source::Header;

/// The prefix of the headers that prorata adds. If a message comes back and is rejected again, these headers
/// get new values, and no header is added twice.
const OURS: &str = "prorata.";

/// Returns the message's key; `None` if the message has no key, or the letter is from a file.
pub fn message_key(letter: &DeadLetter) -> Option<&[u8]> {
    match &letter.origin {
        Origin::Message { key, .. } => key.as_deref(),
        Origin::File { .. } => None,
    }
}

/// Returns the message's original headers and prorata's headers, which replace prorata's headers from an
/// earlier rejection.
pub fn message_headers(letter: &DeadLetter) -> Vec<Header> {
    let ours = |name: &str, value: String| (format!("{OURS}{name}"), Some(value.into_bytes()));
    let (mut all, place) = match &letter.origin {
        Origin::Message { topic, partition, offset, headers, .. } => {
            let foreign = headers.iter().filter(|(name, _)| !name.starts_with(OURS));
            let place = [
                ("topic", topic.clone()),
                ("partition", partition.to_string()),
                ("offset", offset.to_string()),
            ];
            (foreign.cloned().collect(), place.to_vec())
        }
        Origin::File { path, position } => {
            let position = position.map(|position| ("position", position.to_string()));
            (Vec::new(), std::iter::once(("file", path.clone())).chain(position).collect())
        }
    };
    let reject = &letter.rejected.reject;
    all.extend([ours("reason", reject.reason.code().into()), ours("message", reject.message.clone())]);
    all.extend(place.into_iter().map(|(name, value)| ours(name, value)));
    all.push(ours("version", env!("CARGO_PKG_VERSION").into()));
    all
}

#[cfg(test)]
mod tests {
    use prorata_schemas::reject::Reject;

    use crate::ports::{Position, Rejected};

    use super::*;

    fn letter(origin: Origin) -> DeadLetter {
        DeadLetter {
            origin,
            rejected: Rejected { reject: Reject::malformed("no magic byte"), bytes: vec![1] },
        }
    }

    fn message(headers: Vec<Header>) -> DeadLetter {
        let (topic, key) = ("pods".to_owned(), Some(b"acme".to_vec()));
        letter(Origin::Message { topic, partition: 3, offset: 42, timestamp_millis: 7, key, headers })
    }

    fn shown(letter: &DeadLetter) -> String {
        let text = |value: &Option<Vec<u8>>| {
            String::from_utf8_lossy(value.as_deref().unwrap_or(b"none")).into_owned()
        };
        message_headers(letter).iter().map(|(name, value)| format!("{name}={}\n", text(value))).collect()
    }

    #[test]
    fn a_letter_keeps_its_headers_and_says_why_and_where_from() {
        let letter = message(vec![("trace".into(), Some(b"a".to_vec())), ("empty".into(), None)]);
        let expected = format!(
            "trace=a\nempty=none\nprorata.reason=malformed\nprorata.message=no magic \
             byte\nprorata.topic=pods\n\
             prorata.partition=3\nprorata.offset=42\nprorata.version={}\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(shown(&letter), expected);
        assert_eq!(message_key(&letter), Some(&b"acme"[..]));
    }

    #[test]
    fn a_second_rejection_replaces_the_headers_of_the_first() {
        let first = message(vec![("trace".into(), Some(b"a".to_vec()))]);
        assert_eq!(message_headers(&message(message_headers(&first))), message_headers(&first));
    }

    #[test]
    fn a_letter_of_a_file_names_the_file() {
        let position = Position { block: 1, byte: 99, record: None };
        let shown = shown(&letter(Origin::File { path: "a.avro".into(), position: Some(position) }));
        assert!(shown.contains("prorata.file=a.avro\nprorata.position=block 1 at byte 99\n"), "{shown}");
    }
}
