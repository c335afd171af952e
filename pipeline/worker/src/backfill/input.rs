//! Event files in memory: the input of runs that generate their own files, such as a replay of dead letters.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use async_trait::async_trait;
use bytes::Bytes;

use crate::ports::{DeadLetter, ErrorKind, Input, InputFile, StoreError};

/// A folder of event files in memory.
#[derive(Clone, Debug, Default)]
pub struct InMemoryFiles {
    /// The content by path.
    pub files: BTreeMap<String, Bytes>,
    /// Rejected records, which could not be written to any file.
    pub rejected: Vec<DeadLetter>,
}

impl InMemoryFiles {
    /// Creates a folder of these files, without rejected records.
    pub fn of(files: BTreeMap<String, Bytes>) -> Self {
        Self { files, rejected: Vec::new() }
    }
}

#[async_trait]
impl Input for InMemoryFiles {
    async fn list(&self) -> Result<Vec<InputFile>, StoreError> {
        let files = self.files.iter();
        Ok(files.map(|(path, bytes)| InputFile { path: path.clone(), bytes: bytes.len() as u64 }).collect())
    }

    async fn open(&self, file: &InputFile) -> Result<Box<dyn Read + Send>, StoreError> {
        let bytes = self.files.get(&file.path).cloned();
        let bytes =
            bytes.ok_or_else(|| StoreError::new(ErrorKind::Missing, "read", &file.path, "no such file"))?;
        Ok(Box::new(Cursor::new(bytes)))
    }

    fn rejected(&self) -> &[DeadLetter] {
        &self.rejected
    }
}
