//! The consumer group and the Kafka cluster that read for a root. Two consumers would take the root's shards
//! from each other forever. So the first worker records its consumer, and every later worker compares its own
//! consumer with the record.
//!
//! The record is an object of its own, so releases that do not know it can still use the root.

use bytes::Bytes;

use crate::checkpoint::checksum;
use crate::error::{Result, WorkerError};
use crate::names;
use crate::objects;
use crate::ports::{FormatError, ObjectStore};
use crate::source::ConsumerId;

/// Maximum number of moves of a root from one consumer to another.
const MOVES_MAX: u32 = 9_999;

/// This worker's consumer, after a comparison with the root's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// This worker's consumer.
    own: ConsumerId,
    /// The number of the consumer's record.
    number: u32,
}

impl Consumer {
    /// Compares this worker's consumer with the consumer that the root records. Records this worker's
    /// consumer if the root records none, or if the recorded consumer is `moved_from`.
    ///
    /// # Errors
    /// If another consumer reads for the root, the record cannot be read, or storage is unavailable.
    pub async fn open(store: &dyn ObjectStore, own: ConsumerId, moved_from: &str) -> Result<Self> {
        let mut last = None;
        for number in 1..=MOVES_MAX {
            let found = match store.get(&names::consumer(number)).await? {
                Some(found) => parse(number, &found)?,
                None => match &last {
                    Some(before) if own.is(before) => return Ok(Self { own, number: number - 1 }),
                    Some(before) if before.to_string() != moved_from => return Err(differs(&own, before)),
                    _ => {
                        tracing::info!(consumer = %own, "root now read by this consumer group");
                        let created = objects::create(store, &names::consumer(number), &json(&own)?).await?;
                        parse(number, &created)?
                    }
                },
            };
            last = Some(found);
        }
        Err(WorkerError::Internal("a root keeps moving from consumer to consumer"))
    }

    /// Compares again: another consumer may have been recorded since.
    ///
    /// # Errors
    /// If another consumer was recorded, or storage is unavailable.
    pub async fn compare(&self, store: &dyn ObjectStore) -> Result<()> {
        let next = self.number + 1;
        match store.get(&names::consumer(next)).await? {
            None => Ok(()),
            Some(found) => Err(differs(&self.own, &parse(next, &found)?)),
        }
    }
}

fn json(consumer: &ConsumerId) -> Result<Bytes> {
    let json = serde_json::to_vec(consumer).map_err(|error| FormatError::new("encode a consumer", error))?;
    Ok(checksum::add_to_json(&json).into())
}

fn parse(number: u32, found: &[u8]) -> Result<ConsumerId> {
    let damaged = |cause: String| WorkerError::Damaged { object: names::consumer(number), cause };
    let json = checksum::check_json(found).map_err(|mismatch| damaged(mismatch.to_string()))?;
    serde_json::from_slice(&json).map_err(|error| damaged(error.to_string()))
}

fn differs(own: &ConsumerId, recorded: &ConsumerId) -> WorkerError {
    WorkerError::Configuration(format!(
        "this worker reads as '{own}' (group@cluster), but this root is read by '{recorded}': the two would \
         take its shards from each other forever. Correct kafka.group_id or kafka.bootstrap_servers, or give \
         each its own root. To move the root, stop the workers of '{recorded}', and set kafka.moved_from: \
         '{recorded}'"
    ))
}
