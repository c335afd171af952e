//! Dead letters of a root: lists all of them, judges which can count now, and replays the latter.
//!
//! A replay itself never adds an event to the archive. A message goes back to its topic in its original form,
//! and the worker judges it again. An event that only came too late, or was read from a file, goes through a
//! backfill into the same root. Either way, an event that comes twice counts once, so an interrupted replay
//! may be repeated. Replayed dead letters are recorded in the root, and are not replayed again.
//!
//! [`TopicReplay`] folds the messages that retired topics still hold, which no worker will read.

mod files;
mod judge;
mod message;
mod replay;
mod topics;

pub use files::{DeadLetterObject, DeadLetters, StoredDeadLetter};
pub use judge::{Currencies, Judge, Refusal, Verdict, decode_file_letter};
pub use message::{message_headers, message_key};
pub use replay::{
    EXAMPLES_PER_REASON_MAX, Failing, FoldedEvents, MessageSender, Outgoing, Replay, ReplayError,
    ReplayOptions, Replayed,
};
pub use topics::{TopicReader, TopicReplay, TopicsReplayed};
