//! The fixed choices of a root: the number of shards, and the shard of each organization. [`consumer`]
//! handles another object that all shards of a root share: the record of the consumer that reads for the
//! root.
//!
//! The first writer creates `root.json`, and no writer changes it. Every later writer compares its
//! configuration with it.
//!
//! `root.json` also records the format of everything else in the root. A release writes the format of the
//! root, and refuses a format newer than its own. So workers of two releases share a root, and an upgrade can
//! be rolled back, until `root.format` is raised: [`Root::raise`]. So far only format 1 exists.

pub mod close;
pub mod consumer;
pub mod look;
pub mod maintain;
pub mod organizations;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::checkpoint::checksum;
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::objects;
use crate::ports::{FormatError, ObjectStore};

/// Number of shards of a root if nothing is configured.
pub const SHARDS_DEFAULT: Shard = 16;

/// Maximum number of shards of a root, because names give a shard four digits.
pub const SHARDS_MAX: Shard = 9_999;

/// Format of new roots, and the newest format that this release knows.
pub const FORMAT: u32 = 1;

/// The fixed choices of a root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// Version of the layout under the root.
    pub format: u32,
    /// Number of shards, which is also the number of partitions of every topic.
    pub shards: Shard,
    /// The function that maps a message key to a shard.
    pub key_hash: KeyHash,
}

/// The function that maps a message key to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyHash {
    /// The partitioner of Kafka's Java client: positive murmur2 modulo the number of partitions.
    Murmur2,
}

impl Root {
    /// Creates the choices of a new root with this number of shards.
    pub const fn new(shards: Shard) -> Self {
        Self { format: FORMAT, shards, key_hash: KeyHash::Murmur2 }
    }

    /// Reads `root.json`. If it does not exist, creates it with `shards` or the default number of shards.
    ///
    /// # Errors
    /// See [`Self::find`].
    pub async fn open(store: &dyn ObjectStore, shards: Option<Shard>) -> Result<Self> {
        match Self::find(store, shards).await? {
            Some(root) => Ok(root),
            None => Self::new(shards.unwrap_or(SHARDS_DEFAULT)).create(store).await,
        }
    }

    /// Reads `root.json`. Returns `None` if it does not exist yet.
    ///
    /// # Errors
    /// If the root has another number of shards than configured, its file cannot be read, or storage is
    /// unavailable.
    pub async fn find(store: &dyn ObjectStore, shards: Option<Shard>) -> Result<Option<Self>> {
        if shards.is_some_and(|shards| shards == 0 || shards > SHARDS_MAX) {
            let message = format!("root.shards must be 1 to {SHARDS_MAX}; correct it in the configuration");
            return Err(WorkerError::Configuration(message));
        }
        let Some(found) = store.get(names::ROOT).await? else { return Ok(None) };
        let root = Self::parse(names::ROOT, &found)?;
        root.check(shards)?;
        // A newer release may have raised it.
        let raised = names::root_raised(root.format + 1);
        match store.get(&raised).await? {
            Some(found) => Self::parse(&raised, &found).map(Some),
            None => Ok(Some(root)),
        }
    }

    /// Creates the root. If another writer has created it first, returns that root, which must have the same
    /// number of shards.
    ///
    /// # Errors
    /// If another writer created it with another number of shards, or storage is unavailable.
    pub async fn create(self, store: &dyn ObjectStore) -> Result<Self> {
        let found = objects::create(store, names::ROOT, &self.to_json()?).await?;
        let root = Self::parse(names::ROOT, &found)?;
        root.check(Some(self.shards))?;
        Ok(root)
    }

    /// Raises the format of the root. A format that the root already has changes nothing, and so far there is
    /// no other. The release that introduces the next format creates [`names::root_raised`] here.
    ///
    /// # Errors
    /// If this release does not know the format.
    pub fn raise(self, format: u32) -> Result<Self> {
        if format > FORMAT {
            return Err(WorkerError::Configuration(format!(
                "root.format is {format}, this program knows formats up to {FORMAT}; correct it in the \
                 configuration, or use a newer release"
            )));
        }
        Ok(self)
    }

    fn parse(object: &str, found: &[u8]) -> Result<Self> {
        let damaged = |cause: String| WorkerError::Damaged { object: object.to_owned(), cause };
        let json = checksum::check_json(found).map_err(|mismatch| damaged(mismatch.to_string()))?;
        objects::check_format(object, &json, FORMAT)?;
        serde_json::from_slice(&json).map_err(|error| damaged(error.to_string()))
    }

    /// Returns the shard of an organization.
    pub fn shard_of(&self, organization_id: &str) -> Shard {
        let positive = murmur2(organization_id.as_bytes()) & 0x7fff_ffff;
        (positive % u32::from(self.shards)) as Shard
    }

    fn check(&self, shards: Option<Shard>) -> Result<()> {
        if self.shards == 0 || self.shards > SHARDS_MAX {
            let cause = format!("{} is not a number of shards", self.shards);
            return Err(WorkerError::Damaged { object: names::ROOT.to_owned(), cause });
        }
        match shards {
            Some(shards) if shards != self.shards => Err(WorkerError::Configuration(format!(
                "the root was made with {} shards, but the configuration says root.shards: {shards}; the \
                 number is fixed for a root: set root.shards to {}, or fold the events into a new root",
                self.shards, self.shards
            ))),
            _ => Ok(()),
        }
    }

    /// Encodes the choices as they are stored.
    ///
    /// # Errors
    /// If they cannot be encoded.
    pub fn to_json(&self) -> Result<Bytes> {
        let json = serde_json::to_vec(self).map_err(|error| FormatError::new("encode root.json", error))?;
        Ok(checksum::add_to_json(&json).into())
    }
}

/// MurmurHash2 with the seed of Kafka's Java client.
fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const MIX: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ (bytes.len() as u32);
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let mut value = word.iter().rev().fold(0_u32, |value, byte| value << 8 | u32::from(*byte));
        value = value.wrapping_mul(MIX);
        value ^= value >> 24;
        value = value.wrapping_mul(MIX);
        hash = hash.wrapping_mul(MIX) ^ value;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash ^= rest.iter().rev().fold(0_u32, |value, byte| value << 8 | u32::from(*byte));
        hash = hash.wrapping_mul(MIX);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MIX);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `UtilsTest.testMurmur2` of Apache Kafka.
    #[test]
    fn hashes_are_those_of_the_java_client() {
        let known: [(&str, i32); 6] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ];
        for (key, hash) in known {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
    }
}
