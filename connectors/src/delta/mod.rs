//! Delta logs behind the worker's port.
//!
//! A commit is tried once, from the snapshot it was made from: the worker decides what an error means. The
//! library never compares transaction versions and would by itself try a commit again that has landed, so its
//! own retries are off; so is its clean-up of expired logs, which lists the whole log at every commit.

mod failure;
mod look;
mod schema;
mod upkeep;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use deltalake_core::kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake_core::kernel::transaction::{CommitBuilder, CommitProperties, TableReference};
use deltalake_core::kernel::{
    Action, Add, DataType, MetadataExt, Remove, StructField, StructType, Transaction,
};
use deltalake_core::logstore::{LogStoreRef, StorageConfig, default_logstore};
use deltalake_core::operations::create::CreateBuilder;
use deltalake_core::protocol::{DeltaOperation, SaveMode};
use deltalake_core::table::state::DeltaTableState;
use deltalake_core::{DeltaTable, DeltaTableError};
use object_store::prefix::PrefixStore;
use prorata_schemas::tables::Table;
use prorata_worker::ports::FileEntry;
use prorata_worker::ports::{
    CommitOutcome, ErrorKind, LiveFile, LiveTable, TableCommit, TableCommitter, TableError,
};
use tokio::sync::Mutex;

use crate::store::Store;

use failure::{failure, kind_of};

pub use look::TableLook;

/// The partition column of every table.
const PARTITION: &str = "date";

/// How often new columns are committed before another writer wins every time.
const EXTEND_ATTEMPTS: u32 = 8;

/// Commits between two checkpoints of a log.
const CHECKPOINT_INTERVAL: &str = "100";

/// The Delta logs of a root.
pub struct DeltaTables {
    store: Store,
    open: BTreeMap<Table, Mutex<Option<Open>>>,
}

/// A table as read last.
struct Open {
    delta: DeltaTable,
    /// Transactions as of that version, as far as they have been asked for: the library reads the log for
    /// each.
    transactions: BTreeMap<String, Option<u64>>,
}

impl DeltaTables {
    /// The tables under a root.
    pub fn new(store: Store) -> Self {
        let open = Table::ALL.into_iter().map(|table| (table, Mutex::new(None))).collect();
        Self { store, open }
    }

    fn log_store(&self, table: Table) -> Result<LogStoreRef, TableError> {
        let url = self.store.folder_url(table.name());
        let url = url.map_err(|error| TableError::new(ErrorKind::Invalid, "load", table, error))?;
        let prefixed = PrefixStore::new(self.store.root(), self.store.folder(table.name()));
        Ok(default_logstore(Arc::new(prefixed), self.store.root(), &url, &StorageConfig::default()))
    }

    /// Opens a table, or creates it; another may create it first.
    async fn open(&self, table: Table) -> Result<Open, TableError> {
        let failed = |error: DeltaTableError| failure("load", table, error);
        let mut delta = DeltaTable::new(self.log_store(table)?);
        if !delta.verify_deltatable_existence().await.map_err(failed)?
            && let Err(error) = self.create(table).await
            && !delta.verify_deltatable_existence().await.map_err(failed)?
        {
            return Err(error);
        }
        for _ in 0..EXTEND_ATTEMPTS {
            delta.load().await.map_err(failed)?;
            if !self.extend_schema(table, &delta).await? {
                return Ok(Open { delta, transactions: BTreeMap::new() });
            }
        }
        let cause = "other commits came first at every attempt to add its new columns";
        Err(TableError::new(ErrorKind::Conflict, "open", table, cause))
    }

    /// Commits columns of this release that the table lacks; false when it lacks none. After true the log is
    /// to be read again, also because another commit may have come first.
    ///
    /// # Errors
    /// When the table's columns cannot become those of this release, or storage is unavailable.
    async fn extend_schema(&self, table: Table, delta: &DeltaTable) -> Result<bool, TableError> {
        let failed = |error: DeltaTableError| failure("extend", table, error);
        let invalid = |cause: String| TableError::new(ErrorKind::Invalid, "open", table, cause);
        let state = delta.snapshot().map_err(failed)?;
        let found = state.schema();
        let missing = schema::missing(&found, &columns(table)?).map_err(|wrong| {
            invalid(format!(
                "its columns differ from this release's: {wrong}; use the release that wrote the table, or \
                 fold the events into a new root"
            ))
        })?;
        if missing.is_empty() {
            return Ok(false);
        }
        let names: Vec<&str> = missing.iter().map(|field| field.name().as_str()).collect();
        tracing::info!(table = table.name(), columns = names.join(", "), "new columns are added");
        let extended = schema::extended(&found, &missing).map_err(invalid)?;
        let statistics = prorata_tables::stats_columns(table).join(",");
        let metadata = state.metadata().clone().with_schema(&extended);
        let metadata = metadata.and_then(|metadata| {
            metadata.add_config_key("delta.dataSkippingStatsColumns".to_owned(), statistics)
        });
        let actions = vec![Action::Metadata(metadata.map_err(|error| invalid(error.to_string()))?)];
        let properties =
            CommitProperties::default().with_max_retries(0).with_cleanup_expired_logs(Some(false));
        let reference: &dyn TableReference = state;
        let committed = CommitBuilder::from(properties)
            .with_actions(actions)
            .build(Some(reference), delta.log_store(), DeltaOperation::AddColumn { fields: missing })
            .await;
        match committed {
            Err(error) if kind_of(&error) != ErrorKind::Conflict => Err(failed(error)),
            _ => Ok(true),
        }
    }

    async fn open_at(&self, table: Table, version: u64) -> Result<Open, TableError> {
        let mut delta = DeltaTable::new(self.log_store(table)?);
        delta.load_version(version).await.map_err(|error| failure("load", table, error))?;
        Ok(Open { delta, transactions: BTreeMap::new() })
    }

    async fn create(&self, table: Table) -> Result<(), TableError> {
        let properties = [
            ("delta.checkpointInterval", CHECKPOINT_INTERVAL.to_owned()),
            ("delta.enableExpiredLogCleanup", "false".to_owned()),
            ("delta.dataSkippingStatsColumns", prorata_tables::stats_columns(table).join(",")),
        ];
        CreateBuilder::new()
            .with_log_store(self.log_store(table)?)
            .with_table_name(table.name())
            .with_columns(columns(table)?.fields().cloned().collect::<Vec<_>>())
            .with_partition_columns([PARTITION])
            .with_configuration(properties.map(|(key, value)| (key, Some(value))))
            .with_save_mode(SaveMode::ErrorIfExists)
            .with_commit_properties(CommitProperties::default().with_max_retries(0))
            .await
            .map(|_| ())
            .map_err(|error| failure("create", table, error))
    }

    fn slot(&self, table: Table) -> Result<&Mutex<Option<Open>>, TableError> {
        self.open
            .get(&table)
            .ok_or_else(|| TableError::new(ErrorKind::Invalid, "load", table, "it is not a table of ours"))
    }
}

#[async_trait]
impl TableCommitter for DeltaTables {
    async fn load(&self, table: Table) -> Result<LiveTable, TableError> {
        let mut slot = self.slot(table)?.lock().await;
        let open = match slot.take() {
            Some(mut open) => {
                let before = open.delta.version();
                open.delta.update_state().await.map_err(|error| failure("load", table, error))?;
                if open.delta.version() != before {
                    open.transactions.clear();
                }
                open
            }
            None => self.open(table).await?,
        };
        let state = open.delta.snapshot().map_err(|error| failure("load", table, error))?;
        let live = LiveTable { version: state.version(), files: live_files(table, state)? };
        *slot = Some(open);
        Ok(live)
    }

    async fn transactions(
        &self,
        table: Table,
        base: u64,
        names: &[String],
    ) -> Result<BTreeMap<String, u64>, TableError> {
        let mut slot = self.slot(table)?.lock().await;
        let mut open = match slot.take().filter(|open| open.delta.version() == Some(base)) {
            Some(open) => open,
            None => self.open_at(table, base).await?,
        };
        let mut known = BTreeMap::new();
        for name in names {
            let seq = match open.transactions.get(name) {
                Some(seq) => *seq,
                None => transaction(table, &open.delta, name).await?,
            };
            open.transactions.insert(name.clone(), seq);
            known.extend(seq.map(|seq| (name.clone(), seq)));
        }
        *slot = Some(open);
        Ok(known)
    }

    async fn commit(
        &self,
        table: Table,
        base: u64,
        commit: &TableCommit,
    ) -> Result<CommitOutcome, TableError> {
        let mut slot = self.slot(table)?.lock().await;
        // Whatever becomes of the commit, the next load reads the log again, unless it is known to have
        // landed.
        let open = match slot.take().filter(|open| open.delta.version() == Some(base)) {
            Some(open) => open,
            None => self.open_at(table, base).await?,
        };
        let Open { delta, transactions: mut known } = open;
        let state = delta.snapshot().map_err(|error| failure("commit", table, error))?;
        let now = now_millis();
        let sizes: BTreeMap<String, i64> =
            if commit.removes.is_empty() { BTreeMap::new() } else { sizes(table, state)? };
        let removes =
            commit.removes.iter().map(|path| Action::Remove(remove(path, sizes.get(path).copied(), now)));
        let adds = commit.adds.iter().map(|file| Action::Add(add(file, now)));
        let transactions = commit.transactions.iter().map(|(name, seq)| {
            Transaction::new_with_last_update(name, i64::try_from(*seq).unwrap_or(i64::MAX), Some(now))
        });
        let mode = if commit.removes.is_empty() { SaveMode::Append } else { SaveMode::Overwrite };
        let operation =
            DeltaOperation::Write { mode, partition_by: Some(vec![PARTITION.into()]), predicate: None };
        let properties = CommitProperties::default()
            .with_max_retries(0)
            .with_create_checkpoint(true)
            .with_cleanup_expired_logs(Some(false))
            .with_application_transactions(transactions.collect())
            .with_metadata([("prorataOwner".to_owned(), serde_json::Value::from(commit.id.clone()))]);
        let reference: &dyn TableReference = state;
        let committed = CommitBuilder::from(properties)
            .with_actions(removes.chain(adds).collect())
            .build(Some(reference), delta.log_store(), operation)
            .await;
        let committed = match committed {
            Ok(committed) => committed,
            Err(error) if kind_of(&error) == ErrorKind::Conflict => return Ok(CommitOutcome::Conflict),
            Err(error) => return Err(failure("commit", table, error)),
        };
        let mut next = DeltaTable::new(delta.log_store());
        next.state = Some(committed.snapshot());
        known.extend(commit.transactions.iter().map(|(name, seq)| (name.clone(), Some(*seq))));
        *slot = Some(Open { delta: next, transactions: known });
        Ok(CommitOutcome::Committed)
    }
}

async fn transaction(table: Table, delta: &DeltaTable, name: &str) -> Result<Option<u64>, TableError> {
    let failed = |error: DeltaTableError| failure("read transactions", table, error);
    let state = delta.snapshot().map_err(failed)?;
    let version = state.transaction_version(delta.log_store().as_ref(), name).await.map_err(failed)?;
    Ok(version.and_then(|version| u64::try_from(version).ok()))
}

/// Live files and their sizes.
fn sizes(table: Table, state: &DeltaTableState) -> Result<BTreeMap<String, i64>, TableError> {
    let data = state.snapshot().try_log_data().map_err(|error| failure("load", table, error))?;
    Ok(data.iter().map(|file| (file.path().into_owned(), file.size())).collect())
}

/// Live files, in ascending order of path.
fn live_files(table: Table, state: &DeltaTableState) -> Result<Vec<LiveFile>, TableError> {
    let sizes = sizes(table, state)?.into_iter();
    Ok(sizes.map(|(path, bytes)| LiveFile { path, bytes: bytes.unsigned_abs() }).collect())
}

/// The columns of a table in this release, the partition last.
fn columns(table: Table) -> Result<StructType, TableError> {
    let columns: StructType = prorata_tables::schema(table)
        .as_ref()
        .try_into_kernel()
        .map_err(|error| TableError::new(ErrorKind::Invalid, "create", table, error))?;
    let columns = columns.fields().map(plain).chain([StructField::nullable(PARTITION, DataType::DATE)]);
    StructType::try_new(columns).map_err(|error| TableError::new(ErrorKind::Invalid, "create", table, error))
}

/// A column without Arrow's metadata, which no reader of the log knows.
fn plain(field: &StructField) -> StructField {
    StructField::new(field.name().clone(), field.data_type().clone(), field.is_nullable())
}

/// The partition that a file's path names.
fn date_of(path: &str) -> Option<&str> {
    path.strip_prefix("date=")?.split_once('/').map(|(date, _)| date)
}

fn partition(date: &str) -> HashMap<String, Option<String>> {
    HashMap::from([(PARTITION.to_owned(), Some(date.to_owned()))])
}

fn add(file: &FileEntry, now: i64) -> Add {
    Add {
        path: file.path.clone(),
        partition_values: date_of(&file.path).map(partition).unwrap_or_default(),
        size: i64::try_from(file.bytes).unwrap_or(i64::MAX),
        modification_time: now,
        data_change: true,
        stats: file.stats.clone(),
        tags: None,
        deletion_vector: None,
        base_row_id: None,
        default_row_commit_version: None,
        clustering_provider: None,
    }
}

fn remove(path: &str, size: Option<i64>, now: i64) -> Remove {
    let date = date_of(path);
    Remove {
        path: path.to_owned(),
        data_change: true,
        deletion_timestamp: Some(now),
        extended_file_metadata: Some(date.is_some() && size.is_some()),
        partition_values: date.map(partition),
        size,
        tags: None,
        deletion_vector: None,
        base_row_id: None,
        default_row_commit_version: None,
    }
}

fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
