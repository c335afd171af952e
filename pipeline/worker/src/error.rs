//! The errors that stop a run, by their remedy.
//!
//! A message says what happened and, if only a person can help, what to do. It does not say what the program
//! does next: a command that ends adds [`WorkerError::remedy`], a worker that continues on its own does not.

use prorata_engine::RULES_ENGINE_VERSION;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use tokio::task::JoinError;

use crate::names::closed::CLOSED;
use crate::names::{ArchivePath, DayFile, Shard};
use crate::ports::source::SourceError;
use crate::ports::{ErrorKind, FormatError, StoreError, TableError};

/// The reason that a run stopped.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields name the object of the message")]
pub enum WorkerError {
    /// An object store did not carry out a request. Nothing is lost or duplicated.
    #[error("{state}: {0}", state = .0.kind.state_of_storage())]
    Store(#[from] StoreError),

    /// A table's log did not carry out a request. Nothing is lost or duplicated.
    #[error("{state}: {0}", state = .0.kind.state_of_storage())]
    Tables(#[from] TableError),

    /// Another owner has taken the shard. Nothing is lost or duplicated.
    #[error("shard {shard} was taken by another backfill or worker while this one ran")]
    Taken { shard: Shard },

    /// Arguments or configuration are wrong. The message says what is wrong, where, and how to fix it.
    #[error("{0}")]
    Configuration(String),

    /// A worker holds the shard and has not released it.
    #[error(
        "shard {shard} is held by worker '{owner}', which has not released it; \
         stop the worker, or take the shard from it with --take-over"
    )]
    Held { shard: Shard, owner: String },

    /// A table or an object knows a later checkpoint than the checkpoint log.
    #[error(
        "state_behind_tables: {known_by} knows checkpoint {known_seq} of shard {shard}, but the newest under \
         state/ is {state_seq}; restore the missing checkpoints, or start a new root"
    )]
    StateBehindTables {
        /// The table or the object.
        known_by: String,
        /// The shard.
        shard: Shard,
        /// The sequence number that is known.
        known_seq: u64,
        /// The newest sequence number of the log.
        state_seq: u64,
    },

    /// A shard without a closed hour begins so early that it would take too long to close all hours since
    /// then.
    #[error(
        "history_too_long: the archive of shard {shard} begins at {first}, {hours} hours ago, more than \
         work.max_history_hours: {max_history_hours}, and every hour since would be closed one by one; fold \
         the same events with 'prorata backfill --shards {shard} --to HOUR', or raise work.max_history_hours"
    )]
    HistoryTooLong { shard: Shard, first: Hour, hours: i64, max_history_hours: i64 },

    /// Another program writes into a table.
    #[error(
        "foreign_file: {path} in {table} was not written by prorata; \
         remove it from the table, or restore the table to a version before it",
        table = .table.name()
    )]
    ForeignFile { table: Table, path: String },

    /// Kafka does not have the next messages.
    #[error(
        "offsets_lost: topic {topic}, partition {partition}: {cause}; Kafka has lost what lies between. \
         Restore the topic and restart the worker. Or, if you have a copy of its events, fold it with \
         'prorata backfill --shards {partition}', then set kafka.offsets_lost: earliest and restart the \
         worker, which continues without them"
    )]
    OffsetsLost { topic: String, partition: Shard, cause: String },

    /// A batch of messages cannot be read.
    #[error(
        "unreadable: topic {topic}, partition {partition}, offset {offset}: {cause}; nobody can read on \
         before this batch is gone or passed over. To give its messages up, add its place to \
         kafka.skip_batches, and restart the worker"
    )]
    Unreadable { topic: String, partition: Shard, offset: i64, cause: String },

    /// Kafka did not carry out a request of this worker.
    #[error(transparent)]
    Source(#[from] SourceError),

    /// This member was fenced long after it joined its group, perhaps by another session of its own.
    #[error(
        "the consumer group has given this member's place away, perhaps to a new session of its own after a \
         long pause. Restart the worker: if it ends at once for the same reason, another member uses the \
         same kafka.group_instance_id"
    )]
    FencedLate,

    /// An object under the root cannot be read.
    #[error("'{object}' is damaged: {cause}; {way_out}", way_out = way_out_of_damage(object))]
    Damaged { object: String, cause: String },

    /// Hours have rules of an engine version that this program does not compute.
    #[error(
        "'{object}' has engine version {engine_version}, this program computes {RULES_ENGINE_VERSION}: hours \
         under these rules cannot be folded; use the release that wrote them, or fold these hours again \
         under rules of another version with 'prorata backfill --config'"
    )]
    UnknownEngineVersion { object: String, engine_version: u32 },

    /// Rows could not be written as a table file.
    #[error(
        "{table} of shard {shard} cannot be encoded for hour {hour}: {source}; report it: a release that can \
         encode them continues from here",
        table = .table.name()
    )]
    Encode { table: Table, shard: Shard, hour: Hour, source: FormatError },

    /// A value cannot be encoded as a file or an object.
    #[error("internal error: {0}; report it")]
    Format(#[from] FormatError),

    /// A task of this program panicked or was cancelled.
    #[error("internal error: a task ended early: {0}; report it")]
    Join(#[from] JoinError),

    /// A state that this program must never reach.
    #[error("internal error: {0}; report it")]
    Internal(&'static str),
}

impl WorkerError {
    /// Returns the kind of a storage error, or `None` for any other error.
    pub const fn storage_kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Store(error) => Some(error.kind),
            Self::Tables(error) => Some(error.kind),
            _ => None,
        }
    }

    /// Returns what to do after a command has ended with this error; `None` if the error's message already
    /// says so.
    pub const fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Store(StoreError { kind, .. }) | Self::Tables(TableError { kind, .. }) => {
                Some(if kind.is_retryable() {
                    "nothing is lost or duplicated; run the same command again once storage answers"
                } else {
                    "nothing is lost or duplicated; run the same command again once this is corrected"
                })
            }
            Self::Taken { .. } => {
                Some("nothing is lost or duplicated; run the same command again when the other is done")
            }
            _ => None,
        }
    }

    /// Returns the reason for which this error stops a shard while the worker continues with its other
    /// shards. `None` if the error does not concern one shard.
    pub const fn stop_reason(&self) -> Option<StopReason> {
        match self {
            Self::Damaged { .. } => Some(StopReason::Damaged),
            Self::OffsetsLost { .. } => Some(StopReason::OffsetsLost),
            Self::Unreadable { .. } => Some(StopReason::Unreadable),
            Self::ForeignFile { .. } => Some(StopReason::ForeignFile),
            Self::StateBehindTables { .. } => Some(StopReason::StateBehindTables),
            Self::HistoryTooLong { .. } => Some(StopReason::HistoryTooLong),
            Self::Encode { .. } | Self::Format(_) => Some(StopReason::EncodeFailed),
            Self::Join(_) | Self::Internal(_) => Some(StopReason::Internal),
            Self::Store(_)
            | Self::Tables(_)
            | Self::Taken { .. }
            | Self::Configuration(_)
            | Self::UnknownEngineVersion { .. }
            | Self::Held { .. }
            | Self::FencedLate
            | Self::Source(_) => None,
        }
    }

    /// Returns whether the error concerns one shard, so that a command for all shards leaves that shard out.
    pub const fn is_of_one_shard(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::StateBehindTables { .. })
    }

    /// Returns whether a shard that was stopped for this error may recover without a restart of the worker.
    /// For example, a person may restore an object or fix a table. Messages that Kafka has lost require a
    /// restart, which continues from another offset.
    pub const fn may_heal(&self) -> bool {
        !matches!(self, Self::OffsetsLost { .. })
    }

    /// Returns the exit code, by kind of remedy: see `pipeline/cli/README.md`, "Exit codes". If storage does
    /// not answer, the code is 4: run the command again. If storage waits for a person, the code is 2, as for
    /// any other configuration that can never work.
    pub const fn exit_code(&self) -> u8 {
        if let Some(kind) = self.storage_kind() {
            return if kind.is_retryable() { 4 } else { 2 };
        }
        match self {
            Self::Configuration(_)
            | Self::UnknownEngineVersion { .. }
            | Self::Held { .. }
            | Self::HistoryTooLong { .. }
            | Self::Source(
                SourceError::Configuration(_) | SourceError::TooLarge(_) | SourceError::Fenced(_),
            ) => 2,
            Self::Store(_)
            | Self::Tables(_)
            | Self::Taken { .. }
            | Self::FencedLate
            | Self::Source(SourceError::Unavailable(_)) => 4,
            Self::StateBehindTables { .. }
            | Self::ForeignFile { .. }
            | Self::OffsetsLost { .. }
            | Self::Unreadable { .. }
            | Self::Damaged { .. }
            | Self::Encode { .. }
            | Self::Format(_)
            | Self::Join(_)
            | Self::Internal(_) => 1,
        }
    }
}

/// The reason that a shard is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// An object under the root cannot be read.
    Damaged,
    /// Kafka does not have the next messages.
    OffsetsLost,
    /// A batch of messages cannot be read.
    Unreadable,
    /// Another program writes into a table.
    ForeignFile,
    /// A table or an object knows a later checkpoint than the log.
    StateBehindTables,
    /// The archive of a shard that has closed no hour begins too early.
    HistoryTooLong,
    /// Rows or another value could not be encoded as a file.
    EncodeFailed,
    /// A state that this program must never reach.
    Internal,
}

impl StopReason {
    /// Returns the reason's name, as in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::OffsetsLost => "offsets_lost",
            Self::Unreadable => "unreadable",
            Self::ForeignFile => "foreign_file",
            Self::StateBehindTables => "state_behind_tables",
            Self::HistoryTooLong => "history_too_long",
            Self::EncodeFailed => "encode_failed",
            Self::Internal => "internal",
        }
    }
}

/// Returns what a person can do about a damaged object. An archive file is the only copy of its events under
/// the root; other copies may be elsewhere.
fn way_out_of_damage(object: &str) -> String {
    let table_file = object.split_once('/').map(|(_, path)| path);
    if let Some(DayFile { date, shard, .. }) = table_file.and_then(DayFile::parse) {
        return format!(
            "restore it from a copy, or write it again with 'prorata backfill --rewrite --from {date}T00 \
             --shards {shard}'"
        );
    }
    let of_closed = [CLOSED, "closed_allocation/"];
    if of_closed.iter().any(|folder| object.starts_with(folder)) {
        return "restore it from a copy: it is what was issued, and cannot be computed again".to_owned();
    }
    match ArchivePath::parse(object) {
        Some(ArchivePath { shard, .. }) => format!(
            "restore it from a copy; or fold a copy of its events with 'prorata backfill --shards {shard} \
             --without-archive-file {object}'"
        ),
        None => "restore it from a copy, or fold its events into a new root".to_owned(),
    }
}

/// The result of an operation of a run.
pub type Result<T, E = WorkerError> = std::result::Result<T, E>;
