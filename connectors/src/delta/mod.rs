//! An implementation of the worker's port [`TableCommitter`] with Delta logs.
//!
//! A commit is tried once, on the snapshot for which it was made; the worker decides what an error means. The
//! library never compares transaction versions and would retry a commit that has landed, so its own retries
//! are off. Its clean-up of expired logs is off too, because it lists the whole log at every commit.

mod failure;
mod look;
mod schema;
mod upkeep;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use deltalake_core::kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake_core::kernel::transaction::{
    CommitBuilder, CommitData, CommitProperties, TableReference, TransactionError,
};
use deltalake_core::kernel::{
    Action, Add, DataType, MetadataExt, Remove, StructField, StructType, Transaction,
};
use deltalake_core::logstore::{CommitOrBytes, LogStoreRef, StorageConfig, default_logstore};
use deltalake_core::operations::create::CreateBuilder;
use deltalake_core::protocol::{DeltaOperation, SaveMode};
use deltalake_core::{DeltaTable, DeltaTableError};
use object_store::prefix::PrefixStore;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Date;
use prorata_worker::ports::FileEntry;
use prorata_worker::ports::{
    CommitOutcome, ErrorKind, LiveFile, LiveTable, TableCommit, TableCommitter, TableError,
};
use tokio::sync::Mutex;

use crate::store::Store;

use failure::{failure, kind_of};
use view::{Sizes, View};

pub use look::TableLook;

/// The partition column of every table.
const PARTITION: &str = "date";

/// Maximum number of attempts to commit new columns while other writers commit first.
const EXTEND_ATTEMPTS: u32 = 8;

/// Number of commits between two checkpoints of a log, if its properties do not set an interval.
const CHECKPOINT_INTERVAL: u64 = 100;

/// The Delta logs under a root.
pub struct DeltaTables {
    store: Store,
    open: BTreeMap<Table, Mutex<Option<View>>>,
}

impl DeltaTables {
    /// Returns the tables under a root.
    pub fn new(store: Store) -> Self {
        let tables = Table::HOURLY.into_iter().chain([Table::ClosedAllocation]);
        let open = tables.map(|table| (table, Mutex::new(None))).collect();
        Self { store, open }
    }

    fn log_store(&self, table: Table) -> Result<LogStoreRef, TableError> {
        let url = self.store.folder_url(table.name());
        let url = url.map_err(|error| TableError::new(ErrorKind::Invalid, "load", table, error))?;
        let prefixed = PrefixStore::new(self.store.root(), self.store.folder(table.name()));
        Ok(default_logstore(Arc::new(prefixed), self.store.root(), &url, &StorageConfig::default()))
    }

    /// Opens a table, and creates it if it does not exist. Another process may create the table first.
    async fn open(&self, table: Table) -> Result<View, TableError> {
        let failed = |error: DeltaTableError| failure("load", table, error);
        let log_store = self.log_store(table)?;
        if !log_store.is_delta_table_location().await.map_err(failed)?
            && let Err(error) = self.create(table).await
            && !log_store.is_delta_table_location().await.map_err(failed)?
        {
            return Err(error);
        }
        for _ in 0..EXTEND_ATTEMPTS {
            let view = View::open(Arc::clone(&log_store), None).await.map_err(failed)?;
            if missing(table, &view.snapshot().schema())?.is_empty() {
                return Ok(view);
            }
            let mut delta = DeltaTable::new(Arc::clone(&log_store));
            delta.load().await.map_err(failed)?;
            self.extend_schema(table, &delta).await?;
        }
        let cause = "every attempt to add its new columns lost to another commit";
        Err(TableError::new(ErrorKind::Conflict, "open", table, cause))
    }

    /// Commits this release's columns that the table lacks. The caller must read the log again afterwards,
    /// because another commit may have come first.
    ///
    /// # Errors
    /// If the table's columns cannot become this release's columns, or storage is unavailable.
    async fn extend_schema(&self, table: Table, delta: &DeltaTable) -> Result<(), TableError> {
        let failed = |error: DeltaTableError| failure("extend", table, error);
        let invalid = |cause: String| TableError::new(ErrorKind::Invalid, "open", table, cause);
        let state = delta.snapshot().map_err(failed)?;
        let found = state.schema();
        let missing = missing(table, &found)?;
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = missing.iter().map(|field| field.name().as_str()).collect();
        tracing::info!(table = table.name(), columns = names.join(", "), "adding new columns");
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
            _ => Ok(()),
        }
    }

    /// Takes the view out of its slot if the view has version `base`; otherwise opens the table at this
    /// version.
    async fn view_of(&self, table: Table, slot: &mut Option<View>, base: u64) -> Result<View, TableError> {
        match slot.take().filter(|view| view.version() == base) {
            Some(view) => Ok(view),
            None => {
                let opened = View::open(self.log_store(table)?, Some(base)).await;
                opened.map_err(|error| failure("load", table, error))
            }
        }
    }

    /// Returns how many live files of a table are kept in memory. Only files of requested dates are kept.
    pub async fn files_kept(&self, table: Table) -> usize {
        match self.slot(table) {
            Ok(slot) => slot.lock().await.as_ref().map_or(0, View::files_kept),
            Err(_) => 0,
        }
    }

    /// Reads the newest version of a table.
    async fn refreshed(&self, table: Table, slot: &mut Option<View>) -> Result<View, TableError> {
        match slot.take() {
            Some(mut view) => {
                view.refresh().await.map_err(|error| failure("load", table, error))?;
                Ok(view)
            }
            None => self.open(table).await,
        }
    }

    async fn create(&self, table: Table) -> Result<(), TableError> {
        let properties = [
            ("delta.checkpointInterval", CHECKPOINT_INTERVAL.to_string()),
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

    fn slot(&self, table: Table) -> Result<&Mutex<Option<View>>, TableError> {
        self.open
            .get(&table)
            .ok_or_else(|| TableError::new(ErrorKind::Invalid, "load", table, "it is not a table of prorata"))
    }
}

#[async_trait]
impl TableCommitter for DeltaTables {
    async fn load(&self, table: Table) -> Result<LiveTable, TableError> {
        let mut slot = self.slot(table)?.lock().await;
        let view = self.refreshed(table, &mut slot).await?;
        let files = view.scan(None).await.map_err(|error| failure("load", table, error))?;
        let live = LiveTable { version: view.version(), files: live_files(files) };
        *slot = Some(view);
        Ok(live)
    }

    async fn load_dates(&self, table: Table, dates: &BTreeSet<Date>) -> Result<LiveTable, TableError> {
        let mut slot = self.slot(table)?.lock().await;
        let mut view = self.refreshed(table, &mut slot).await?;
        let files = view.files(dates).await.map_err(|error| failure("load", table, error))?;
        let live = LiveTable { version: view.version(), files: live_files(files) };
        *slot = Some(view);
        Ok(live)
    }

    async fn transactions(
        &self,
        table: Table,
        base: u64,
        names: &[String],
    ) -> Result<BTreeMap<String, u64>, TableError> {
        let mut slot = self.slot(table)?.lock().await;
        let mut view = self.view_of(table, &mut slot, base).await?;
        let mut known = BTreeMap::new();
        for name in names {
            let failed = |error| failure("read transactions", table, error);
            let seq = view.transaction(name).await.map_err(failed)?;
            known.extend(seq.map(|seq| (name.clone(), seq)));
        }
        *slot = Some(view);
        Ok(known)
    }

    async fn commit(
        &self,
        table: Table,
        base: u64,
        commit: &TableCommit,
    ) -> Result<CommitOutcome, TableError> {
        let failed = |error: DeltaTableError| failure("commit", table, error);
        let mut slot = self.slot(table)?.lock().await;
        // The next load reads the commit from the log, whatever its outcome.
        let mut view = self.view_of(table, &mut slot, base).await?;
        if let Some(refusal) = view.refusal(!commit.removes.is_empty()) {
            return Err(TableError::new(ErrorKind::Invalid, "commit", table, refusal));
        }
        let mut sizes = Sizes::new();
        for path in &commit.removes {
            sizes.extend(view.size(path).await.map_err(failed)?.map(|size| (path.clone(), size)));
        }
        let bytes = actions(commit, &sizes).get_bytes().map_err(|error| failed(error.into()))?;
        let log_store = Arc::clone(view.log_store());
        // The commit after the base may already be gone from the log. Then its name is free again.
        if log_store.get_latest_version(base).await.map_err(failed)? > base {
            return Ok(CommitOutcome::Conflict);
        }
        let written =
            log_store.write_commit_entry(base + 1, CommitOrBytes::LogBytes(bytes), Default::default());
        match written.await {
            Ok(()) => {}
            Err(TransactionError::VersionAlreadyExists(_)) => return Ok(CommitOutcome::Conflict),
            Err(error) => return Err(failed(error.into())),
        }
        let interval = view.snapshot().table_properties().checkpoint_interval;
        if (base + 2).is_multiple_of(interval.map_or(CHECKPOINT_INTERVAL, std::num::NonZero::get)) {
            checkpoint(table, &mut view).await;
        }
        *slot = Some(view);
        Ok(CommitOutcome::Committed)
    }
}

/// Writes a checkpoint of the log. The commit has landed even if this fails: readers can do without a
/// checkpoint.
async fn checkpoint(table: Table, view: &mut View) {
    let written = match view.refresh().await {
        Ok(()) => view.checkpoint().await,
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        tracing::warn!(table = table.name(), %error, "no checkpoint of the table's log this time");
    }
}

/// Returns a commit as the log stores it.
fn actions(commit: &TableCommit, sizes: &Sizes) -> CommitData {
    let now = now_millis();
    let data_change = !commit.same_rows;
    let removes = commit.removes.iter().map(|path| remove(path, sizes.get(path).copied(), now));
    let removes = removes.map(|remove| Action::Remove(Remove { data_change, ..remove }));
    let adds = commit.adds.iter().map(|file| Action::Add(Add { data_change, ..add(file, now) }));
    let transactions = commit.transactions.iter().map(|(name, seq)| {
        Transaction::new_with_last_update(name, i64::try_from(*seq).unwrap_or(i64::MAX), Some(now))
    });
    let mode = if commit.removes.is_empty() { SaveMode::Append } else { SaveMode::Overwrite };
    let operation = if commit.same_rows {
        let largest = commit.adds.iter().map(|file| file.bytes).max().unwrap_or_default();
        let target_size = i64::try_from(largest).unwrap_or(i64::MAX);
        DeltaOperation::Optimize { predicate: None, target_size }
    } else {
        DeltaOperation::Write { mode, partition_by: Some(vec![PARTITION.into()]), predicate: None }
    };
    let owner = HashMap::from([("prorataOwner".to_owned(), serde_json::Value::from(commit.id.clone()))]);
    CommitData::new(removes.chain(adds).collect(), operation, owner, transactions.collect())
}

/// Returns live files, in ascending order of path.
fn live_files(sizes: Sizes) -> Vec<LiveFile> {
    sizes.into_iter().map(|(path, bytes)| LiveFile { path, bytes: bytes.unsigned_abs() }).collect()
}

/// Returns this release's columns that a table lacks.
///
/// # Errors
/// If the table's columns cannot become this release's columns.
fn missing(table: Table, found: &StructType) -> Result<Vec<StructField>, TableError> {
    schema::missing(found, &columns(table)?).map_err(|wrong| {
        let cause = format!(
            "its columns differ from this release's: {wrong}; use the release that wrote the table, or fold \
             the events into a new root"
        );
        TableError::new(ErrorKind::Invalid, "open", table, cause)
    })
}

/// Returns the columns of a table in this release, the partition last.
fn columns(table: Table) -> Result<StructType, TableError> {
    let columns: StructType = prorata_tables::schema(table)
        .as_ref()
        .try_into_kernel()
        .map_err(|error| TableError::new(ErrorKind::Invalid, "create", table, error))?;
    let columns = columns.fields().map(plain).chain([StructField::nullable(PARTITION, DataType::DATE)]);
    StructType::try_new(columns).map_err(|error| TableError::new(ErrorKind::Invalid, "create", table, error))
}

/// Returns a column without Arrow's metadata, which no reader of the log knows.
fn plain(field: &StructField) -> StructField {
    StructField::new(field.name().clone(), field.data_type().clone(), field.is_nullable())
}

/// Returns the date in a file's path, which names its partition; `None` if there is none.
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
