//! The offsets up to which a topic partition is read, as a checkpoint records them.

use prorata_schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::snapshot::hex;
use crate::source::Message;

/// The position up to which one topic partition is read. Fields are in the order of the stored form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicOffsets {
    /// The record before `next`.
    pub last: Option<LastRecord>,
    /// The largest event time of the records taken.
    pub max_event_time: Option<Timestamp>,
    /// The next offset to read; `None` for the earliest.
    pub next: Option<i64>,
}

/// The last record taken from a topic partition. A comparison with it shows whether the topic was recreated
/// or its log diverged. Fields are in the order of the stored form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastRecord {
    /// Digest of the record's key and value.
    pub checksum: String,
    /// The record's offset.
    pub offset: i64,
    /// The record's timestamp in milliseconds since the epoch.
    pub timestamp_millis: i64,
}

impl LastRecord {
    /// Returns the fields of a message that a checkpoint keeps.
    pub fn of(message: &Message) -> Self {
        let mut hash = Sha256::new();
        for part in [&message.key, &message.value] {
            let length = part.as_ref().map_or(u64::MAX, |part| part.len() as u64);
            hash.update(length.to_le_bytes());
            hash.update(part.as_deref().unwrap_or_default());
        }
        let checksum = hex(&hash.finalize()[..8]);
        Self { offset: message.offset, timestamp_millis: message.timestamp_millis, checksum }
    }

    /// Returns the error text for a record that Kafka no longer has, although the log begins before the
    /// record.
    pub fn cause_gone(&self) -> String {
        format!(
            "the record at offset {} is gone, and not by retention: the topic was recreated, or it is \
             compacted",
            self.offset
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_is_that_of_the_first_release() {
        let last = LastRecord { checksum: "00ff".into(), offset: 6, timestamp_millis: 5 };
        let offsets = TopicOffsets { last: Some(last), max_event_time: Some(Timestamp(9)), next: Some(7) };
        let stored =
            r#"{"last":{"checksum":"00ff","offset":6,"timestamp_millis":5},"max_event_time":9,"next":7}"#;
        assert_eq!(serde_json::to_string(&offsets).unwrap(), stored);
        assert_eq!(serde_json::from_str::<TopicOffsets>(stored).unwrap(), offsets);
        let nothing = r#"{"last":null,"max_event_time":null,"next":null}"#;
        assert_eq!(serde_json::to_string(&TopicOffsets::default()).unwrap(), nothing);
        assert_eq!(serde_json::from_str::<TopicOffsets>("{}").unwrap(), TopicOffsets::default());
    }
}
