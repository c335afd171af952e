//! Conformance of [`Source`]: each promise is a check that the fake and the real thing both pass.
//!
//! Checks ask for what must come until it comes, with bounded patience, and take what has not come for a
//! while as not coming. So they need neither steps nor a clock, and run on servers and on the fake.

mod groups;
mod listener;
mod reading;

use async_trait::async_trait;
use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{Message, Source};

use crate::conformance::Checked;

/// Where the suite runs.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Topics and a consumer group that no check has used before.
    async fn place(&self) -> Result<Box<dyn Place>, String>;

    /// Polls, of up to 100 ms each, that something which must come may take.
    fn patience(&self) -> u32;

    /// Polls after which something that must not come counts as not coming.
    fn silence(&self) -> u32;
}

/// Topics and a consumer group.
#[async_trait]
pub trait Place: Send + Sync {
    /// Creates an empty topic, and returns its full name.
    async fn create_topic(&self, name: &str, partitions: Shard) -> Result<Text, String>;

    /// Appends a message, whose offset is not looked at, and returns its offset.
    async fn produce(&self, message: Message) -> Result<i64, String>;

    /// Makes a hole of at least one offset at the end, as an aborted transaction does. False: it cannot.
    async fn skip_offsets(&self, topic: &Text, partition: Shard) -> Result<bool, String>;

    /// Deletes all messages before an offset.
    async fn delete_before(&self, topic: &Text, partition: Shard, offset: i64) -> Result<(), String>;

    /// The next offset of a topic partition.
    async fn end(&self, topic: &Text, partition: Shard) -> Result<i64, String>;

    /// A new source, the group's member of this static name.
    async fn member(&self, name: &str, topics: &[Text]) -> Result<Box<dyn Source>, String>;

    /// Ends the session of a member that is not polled meanwhile, as if it had died, without it knowing.
    /// False: it cannot.
    async fn expire(&self, name: &str) -> Result<bool, String>;
}

/// A check's harness, its place, and what it had to leave out.
struct Stage<'a> {
    harness: &'a dyn Harness,
    place: Box<dyn Place>,
    left_out: Vec<&'static str>,
}

/// Runs the suite, and returns what the harness could not do.
///
/// # Errors
/// The first promise that is not kept.
pub async fn source(harness: &dyn Harness) -> Result<Vec<&'static str>, String> {
    let mut left_out = Vec::new();
    for check in Check::ALL {
        let mut stage = Stage { harness, place: harness.place().await?, left_out: Vec::new() };
        let name = check.name();
        check.run(&mut stage).await.map_err(|broken| format!("{name}: {broken}"))?;
        left_out.append(&mut stage.left_out);
    }
    left_out.dedup();
    Ok(left_out)
}

/// The promises.
#[derive(Clone, Copy, Debug)]
enum Check {
    Partitions,
    NothingBeforeStart,
    EveryMessage,
    Starts,
    OffsetsLost,
    Commits,
    Moves,
    Expiry,
    Fencing,
}

impl Check {
    const ALL: [Self; 9] = [
        Self::Partitions,
        Self::NothingBeforeStart,
        Self::EveryMessage,
        Self::Starts,
        Self::OffsetsLost,
        Self::Commits,
        Self::Moves,
        Self::Expiry,
        Self::Fencing,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Partitions => "partitions of every topic are counted",
            Self::NothingBeforeStart => "nothing is told before a start",
            Self::EveryMessage => "every message is told once, in order, and then the end, again and again",
            Self::Starts => "a start is where it says, and a release is the end",
            Self::OffsetsLost => "lost offsets are told, and only they",
            Self::Commits => "commits are never read back",
            Self::Moves => "shards move whole, and only when they are released",
            Self::Expiry => "who was taken for dead is told so",
            Self::Fencing => "a member of the same name takes over, and the one before is fenced",
        }
    }

    async fn run(self, stage: &mut Stage<'_>) -> Checked {
        match self {
            Self::Partitions => reading::partitions(stage).await,
            Self::NothingBeforeStart => reading::nothing_before_start(stage).await,
            Self::EveryMessage => reading::every_message(stage).await,
            Self::Starts => reading::starts(stage).await,
            Self::OffsetsLost => reading::offsets_lost(stage).await,
            Self::Commits => reading::commits(stage).await,
            Self::Moves => groups::moves(stage).await,
            Self::Expiry => groups::expiry(stage).await,
            Self::Fencing => groups::fencing(stage).await,
        }
    }
}

#[cfg(test)]
mod tests;
