//! Dead letters of a root: which there are, which of them can count now, and their replay.
//!
//! A replay gives nothing a second life by itself: a message goes back to its topic as it came, and the
//! worker judges it again; an event that only came too late, or was read from a file, goes through a backfill
//! into the same root. Either way the same event twice is one event, so a replay that is cut off may be
//! repeated. What was replayed is noted in the root, and is not replayed again.
//!
//! [`TopicReplay`] folds what retired topics still hold, which no worker will read.

mod judge;
mod letters;
mod message;
mod replay;
mod topics;

pub use judge::{Currencies, Judge, Refusal, Verdict, decode_file_letter};
pub use letters::{DeadLetters, Letter, LetterFile};
pub use message::{message_headers, message_key};
pub use replay::{
    EXAMPLES_PER_REASON_MAX, Failing, FoldedEvents, MessageSender, Outgoing, Replay, ReplayError,
    ReplayOptions, Replayed,
};
pub use topics::{TopicReader, TopicReplay, TopicsReplayed};
