//! Rejected input: its source, and the reason that it was rejected.

use std::fmt;

use prorata_schemas::reject::Reject;

/// The place of a record in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the record's block, from 0.
    pub block: u64,
    /// The block's first byte in the file.
    pub byte: u64,
    /// Number of the record in the block, from 0; `None` for the block itself.
    pub record: Option<u64>,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} at byte {}", self.block, self.byte)?;
        self.record.map_or(Ok(()), |record| write!(f, ", record {record}"))
    }
}

/// A record that cannot become an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The reason.
    pub reject: Reject,
    /// The record's original bytes, if they can be separated from the rest of the file.
    pub bytes: Vec<u8>,
}

impl Rejected {
    /// Returns the reason, with the place.
    pub fn at(&self, position: Option<Position>) -> String {
        let place = position.map_or(String::new(), |position| format!("{position}: "));
        format!("{place}{}", self.reject)
    }
}

/// The source of rejected input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, or a place in it.
    File {
        /// The file's path.
        path: String,
        /// The place in the file; `None` for the file itself.
        position: Option<Position>,
    },
    /// A message on Kafka.
    Message {
        /// The message's topic.
        topic: String,
        /// The message's partition.
        partition: i32,
        /// The message's offset.
        offset: i64,
        /// The message's timestamp in milliseconds since the epoch; -1 if it has none.
        timestamp_millis: i64,
        /// The message's key.
        key: Option<Vec<u8>>,
        /// The message's headers, in order.
        headers: Vec<(String, Option<Vec<u8>>)>,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, position: None } => f.write_str(path),
            Self::File { path, position: Some(position) } => write!(f, "{path}, {position}"),
            Self::Message { topic, partition, offset, .. } => {
                write!(f, "topic {topic}, partition {partition}, offset {offset}")
            }
        }
    }
}

/// A rejected record or message, with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The source.
    pub origin: Origin,
    /// The rejected bytes, and the reason.
    pub rejected: Rejected,
}
