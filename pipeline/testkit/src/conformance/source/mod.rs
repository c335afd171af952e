//! Conformance of [`Source`]. Each promise is a check that both the fake and the real implementation pass.
//!
//! A check waits for each expected event, but only up to a limit. If an event has not occurred by then, the
//! check assumes that it never occurs. So checks need neither steps nor a clock, and run on servers and on
//! the fake.

mod groups;
mod listener;
mod reading;

use async_trait::async_trait;
use futures::FutureExt;
use prorata_schemas::Text;
use prorata_worker::names::Shard;
use prorata_worker::source::{Message, Source};

use super::{Check, Checked, Harness, Suite};
#[cfg(doc)]
use crate::wait;

/// Topics and a consumer group.
#[async_trait(?Send)]
pub trait SourcePlace {
    /// Creates an empty topic, and returns its full name.
    async fn create_topic(&self, name: &str, partitions: Shard) -> Result<Text, String>;

    /// Appends a message and returns its offset. The offset in the message is ignored.
    async fn produce(&self, message: Message) -> Result<i64, String>;

    /// Makes a gap of at least one offset at the end, as an aborted transaction does. Returns `false` if the
    /// place cannot make a gap.
    async fn skip_offsets(&self, topic: &Text, partition: Shard) -> Result<bool, String>;

    /// Deletes all messages before an offset.
    async fn delete_before(&self, topic: &Text, partition: Shard, offset: i64) -> Result<(), String>;

    /// Returns the next offset of a topic partition.
    async fn end(&self, topic: &Text, partition: Shard) -> Result<i64, String>;

    /// Creates a source that is the group's member with this static name.
    async fn member(&self, name: &str, topics: &[Text]) -> Result<Box<dyn Source>, String>;

    /// Returns the maximum number of polls to wait for an event that must occur, if polls take no time.
    /// Returns `None` if polls take time; [`wait::PATIENCE`] is then the limit.
    fn polls_max(&self) -> Option<u32>;

    /// Returns the number of polls, of up to 100 ms each, after which a check assumes that a forbidden event
    /// never occurs.
    fn silence(&self) -> u32;

    /// Ends the session of a member without its knowledge, as if the member had died. Nobody polls the member
    /// meanwhile. Returns `false` if the place cannot end a session.
    async fn expire(&self, name: &str) -> Result<bool, String>;
}

type SourceStage = super::Stage<dyn SourcePlace>;

/// Runs the suite, and returns what the harness could not do.
///
/// # Errors
/// Returns the first broken promise.
pub async fn source(harness: &impl Harness<Place = dyn SourcePlace>) -> Result<Vec<&'static str>, String> {
    let promises: Vec<(&'static str, Check<dyn SourcePlace>)> = vec![
        ("partitions of every topic are counted", |stage| reading::partitions(stage).boxed_local()),
        ("nothing is reported before a start", |stage| reading::nothing_before_start(stage).boxed_local()),
        ("every message is reported once, in order, and then the end, again and again", |stage| {
            reading::every_message(stage).boxed_local()
        }),
        ("a start is where it says, and a release is the end", |stage| reading::starts(stage).boxed_local()),
        ("all lost offsets are reported, and no others", |stage| reading::offsets_lost(stage).boxed_local()),
        ("commits are never read back", |stage| reading::commits(stage).boxed_local()),
        ("shards move whole, and only when they are released", |stage| groups::moves(stage).boxed_local()),
        ("a member that was taken for dead learns of it", |stage| groups::expiry(stage).boxed_local()),
        ("a member of the same name takes over, and the one before is fenced", |stage| {
            groups::fencing(stage).boxed_local()
        }),
    ];
    Suite(promises).run(harness).await
}

#[cfg(test)]
mod tests;
