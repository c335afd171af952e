//! What the worker needs of the world, as traits. `connectors` has the real things; `pipeline/testkit` has a fake of
//! each, and the conformance suites that both must pass.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::event::{EventKind, EventRecord};
use prorata_schemas::reject::Reject;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Timestamp;

/// Storage did not do what was asked, or did not answer. What was asked may have happened all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} '{object}': {cause}")]
pub struct StoreError {
    /// What was asked, such as `write`.
    pub operation: &'static str,
    /// Of which object.
    pub object: String,
    /// What the storage said.
    pub cause: String,
}

impl StoreError {
    /// An error of `operation` on `object`.
    pub fn new(operation: &'static str, object: &str, cause: impl ToString) -> Self {
        Self { operation, object: object.to_owned(), cause: cause.to_string() }
    }
}

/// Answer to a write that may only create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The object is there now, and was not before.
    Created,
    /// An object of that name was there already; it is as it was. A retried write may find its own.
    Exists,
}

/// An object as listed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Path under the root.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// Everything under the root: objects that are created whole, read whole and never changed.
#[async_trait]
pub trait ObjectStore: Send + Sync {
    /// The object, or none.
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError>;

    /// Creates the object unless one of that name exists. Of any number of concurrent writers exactly one creates it,
    /// and nobody ever reads a part.
    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<Put, StoreError>;

    /// All objects whose path begins with `folder`, which is empty or ends in a slash, in ascending order of path.
    async fn list(&self, folder: &str) -> Result<Vec<Listed>, StoreError>;

    /// Removes the object; one that is not there is no error.
    async fn delete(&self, path: &str) -> Result<(), StoreError>;
}

/// A live file of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveFile {
    /// Path under the table's folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// A table at one version of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveTable {
    /// The version that was read.
    pub version: u64,
    /// Its live files, in ascending order of path.
    pub files: Vec<LiveFile>,
}

/// A file to add to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddFile {
    /// Path under the table's folder.
    pub path: String,
    /// Its date, the partition's value.
    pub date: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Statistics in Delta's JSON form, where known.
    pub stats: Option<String>,
}

/// One commit to a table's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCommit {
    /// Files to add.
    pub adds: Vec<AddFile>,
    /// Paths of live files to remove.
    pub removes: Vec<String>,
    /// Transactions, by name.
    pub transactions: BTreeMap<String, u64>,
    /// Random id that says whose commit it is.
    pub id: String,
}

/// A table's log did not do what was asked, or did not answer. A commit may have landed all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("table {table}: {cause}", table = .table.name())]
pub struct TableError {
    /// The table.
    pub table: Table,
    /// What went wrong.
    pub cause: String,
}

/// The logs of the tables.
#[async_trait]
pub trait TableCommitter: Send + Sync {
    /// The table's newest version; creates an empty table when there is none.
    async fn load(&self, table: Table) -> Result<LiveTable, TableError>;

    /// Latest version of each of these transactions as of version `base`, without those that never were. Asking may
    /// mean reading the whole log.
    async fn transactions(
        &self,
        table: Table,
        base: u64,
        names: &[String],
    ) -> Result<BTreeMap<String, u64>, TableError>;

    /// Commits right behind version `base`, once and without trying again; fails when the log has grown since.
    async fn commit(&self, table: Table, base: u64, commit: &TableCommit) -> Result<(), TableError>;
}

/// Where in a file a record stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the record's block, from 0.
    pub block: u64,
    /// The block's first byte in the file.
    pub byte: u64,
    /// Number of the record in the block, from 0; none: the block itself.
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
    /// Why.
    pub reject: Reject,
    /// Its bytes as they came, where they can be told apart.
    pub bytes: Vec<u8>,
}

/// Where rejected input came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, or a place in it.
    File {
        /// The file's path.
        path: String,
        /// Where in it; none: the file itself.
        position: Option<Position>,
    },
    /// A message on Kafka.
    Message {
        /// Its topic.
        topic: String,
        /// Its partition.
        partition: i32,
        /// Its offset.
        offset: i64,
        /// Its timestamp in milliseconds since the epoch; -1 without one.
        timestamp_millis: i64,
        /// Its key.
        key: Option<Vec<u8>>,
        /// Its headers, in their order.
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

/// A rejected record or message with the place it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it came from.
    pub origin: Origin,
    /// Its bytes and the reason.
    pub rejected: Rejected,
}

/// Takes one record after another, and what cannot be one; without a position, the file itself.
pub type EachRecord<'a> = &'a mut dyn FnMut(Option<Position>, Result<EventRecord, Rejected>);

/// Avro object container files of events.
pub trait Archive: Send + Sync {
    /// Reads every record of a file, whoever wrote it. What is damaged is itself handed over as rejected, and so is a
    /// file that is none.
    ///
    /// # Errors
    /// When the bytes could not be had: the file may be fine.
    fn read(&self, file: &mut dyn Read, each: EachRecord<'_>) -> std::io::Result<()>;

    /// A file of these canonical bodies, in this order. Equal events make equal bytes.
    fn write(&self, events: &[(EventKind, &[u8])]) -> Result<Vec<u8>, String>;

    /// A file of dead letters. Equal letters make equal bytes.
    fn write_dead_letters(&self, letters: &[DeadLetter]) -> Result<Vec<u8>, String>;

    /// Reads a file of dead letters whole.
    fn read_dead_letters(&self, bytes: &[u8]) -> Result<Vec<DeadLetter>, String>;
}

/// What of one organization's hour depends on when its events arrived: the clock columns of `hours`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourClock {
    /// Events that came after the hour had closed.
    pub late_events: i64,
    /// Latest event time seen by then.
    pub max_event_time_seen: Option<Timestamp>,
    /// Whether the watermark has passed the hour's end.
    pub complete: bool,
    /// How often the hour's rows have changed since they were first published.
    pub revision: i64,
    /// When they last changed.
    pub last_updated: Timestamp,
}

/// A table file before it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedFile {
    /// The file.
    pub bytes: Bytes,
    /// Its number of rows.
    pub rows: u64,
    /// Statistics in Delta's JSON form.
    pub stats: String,
    /// Digest of what of the content depends on events and rules alone, in hexadecimal.
    pub digest: String,
}

/// Turns rows into table files.
pub trait TableEncoder: Send + Sync {
    /// The file of one shard's one hour; none without rows. Organizations ascend, clocks go with them one by one.
    fn encode(
        &self,
        table: Table,
        hours: &[HourTables],
        clocks: &[HourClock],
    ) -> Result<Option<EncodedFile>, String>;
}

/// A file of foreign events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputFile {
    /// Its path under the folder that was named.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// A folder of foreign events.
#[async_trait]
pub trait Input: Send + Sync {
    /// All files in it and below, in ascending order of path.
    async fn list(&self) -> Result<Vec<InputFile>, StoreError>;

    /// Opens one of them for reading from its start. Reading may block: it is done off the async threads.
    async fn open(&self, file: &InputFile) -> Result<Box<dyn Read + Send>, StoreError>;
}

/// The wall clock, which decides nothing that reaches the tables but the clock columns of `hours`.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Comes back after `duration`, or sooner where time does not matter.
    async fn pause(&self, duration: Duration);
}

/// Is told how far a long run has come.
pub trait Progress: Send + Sync {
    /// Foreign files are being read.
    fn reading(&self, files: u64, files_all: u64, events: u64);

    /// Hours are being folded, over all shards.
    fn folding(&self, hours: u64, hours_all: u64);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn reading(&self, _files: u64, _files_all: u64, _events: u64) {}

    fn folding(&self, _hours: u64, _hours_all: u64) {}
}
