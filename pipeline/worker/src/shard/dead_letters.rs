//! Rejected messages and records as an object.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::checkpoint::ObjectNamer;
use crate::checkpoint::snapshot::hex;
use crate::error::Result;
use crate::names::{self, Shard};
use crate::ports::{Archive, DeadLetter};

/// A file of dead letters that has no name yet.
pub struct DeadLetterFile {
    /// Content of the file.
    pub bytes: Bytes,
    /// Digest of the content: equal dead letters have equal digests.
    pub digest: String,
}

impl DeadLetterFile {
    /// Encodes dead letters.
    ///
    /// # Errors
    /// If they cannot be encoded.
    pub fn encode(archive: &dyn Archive, dead_letters: &[DeadLetter]) -> Result<Self> {
        let bytes = archive.write_dead_letters(dead_letters)?;
        let digest = hex(&Sha256::digest(&bytes)[..16]);
        Ok(Self { bytes: bytes.into(), digest })
    }

    /// Returns a new path for the file.
    pub fn path(&self, shard: Shard, namer: &ObjectNamer) -> String {
        names::dead_letters(shard, &namer.next(), &self.digest)
    }
}
