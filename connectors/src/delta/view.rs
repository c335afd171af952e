//! The part of a table that a process keeps in memory: only the live files of requested dates.
//!
//! The library would keep every live file of all time with its statistics, 2 to 4 kB each, in every worker. A
//! worker asks only for the dates of its checkpoints, so it keeps files up to the horizon: names and sizes,
//! about 150 bytes a file. The whole log is read once, batch by batch and without statistics. After that,
//! each new commit is read once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use delta_kernel::actions::Protocol;
use delta_kernel::scan::StatsOptions;
use delta_kernel::scan::state::ScanFile;
use delta_kernel::snapshot::{Snapshot, SnapshotRef};
use delta_kernel::table_features::TableFeature;
use delta_kernel::{Engine, Error as Kernel};
use deltalake_core::DeltaTableError;
use deltalake_core::logstore::LogStoreRef;
use prorata_schemas::time::Date;
use prorata_worker::names::partition_date;
use serde::Deserialize;

/// Number of loads for which a date is kept after the last request for it. Lagging shards ask less often than
/// the others.
const KEPT_LOADS: u64 = 1_024;

/// Maximum number of new commits that are read one by one. If there are more, the log is read again.
const COMMITS_READ: u64 = 128;

/// Writer features that require nothing of commits such as ours.
const WRITER_FEATURES: [TableFeature; 6] = [
    TableFeature::AppendOnly,
    TableFeature::DeletionVectors,
    TableFeature::TimestampWithoutTimezone,
    TableFeature::V2Checkpoint,
    TableFeature::VariantType,
    TableFeature::VariantTypePreview,
];

type Result<T> = std::result::Result<T, DeltaTableError>;

/// Sizes in bytes of live files, by path under the table's folder.
pub(super) type Sizes = BTreeMap<String, i64>;

/// A table as last read.
pub(super) struct View {
    log_store: LogStoreRef,
    snapshot: SnapshotRef,
    dates: BTreeMap<Date, KeptDate>,
    /// Versions of transactions as of the snapshot, by name; `None` if the log has no such transaction. A
    /// name is read from the log when it is first requested.
    transactions: BTreeMap<String, Option<u64>>,
    /// The number of loads.
    loads: u64,
}

/// The live files of a date.
#[derive(Default)]
struct KeptDate {
    files: Sizes,
    /// The number of the last load that asked for the date.
    asked: u64,
}

/// The fields of one line of a commit that matter here.
#[derive(Deserialize)]
pub(super) struct CommitLine {
    add: Option<FileAction>,
    pub remove: Option<FileAction>,
    txn: Option<TransactionAction>,
}

#[derive(Deserialize)]
pub(super) struct FileAction {
    pub path: String,
    size: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TransactionAction {
    app_id: String,
    version: i64,
}

/// Returns the lines of a commit.
pub(super) fn lines_of(commit: &[u8]) -> serde_json::Result<Vec<CommitLine>> {
    let lines = commit.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(serde_json::from_slice).collect()
}

impl View {
    /// Opens the table at a version, or at its newest version.
    pub async fn open(log_store: LogStoreRef, version: Option<u64>) -> Result<Self> {
        // If the URL did not end in a slash, the kernel would replace its last folder.
        let root = format!("{}/", log_store.root_url().as_str().trim_end_matches('/'));
        let build = move |engine: &dyn Engine| {
            let builder = Snapshot::builder_for(root);
            version.into_iter().fold(builder, |builder, version| builder.at_version(version)).build(engine)
        };
        let snapshot = blocking(&log_store, build).await?;
        Ok(Self { log_store, snapshot, dates: BTreeMap::new(), transactions: BTreeMap::new(), loads: 0 })
    }

    /// Returns the version that was read.
    pub fn version(&self) -> u64 {
        self.snapshot.version()
    }

    pub fn snapshot(&self) -> &SnapshotRef {
        &self.snapshot
    }

    pub fn log_store(&self) -> &LogStoreRef {
        &self.log_store
    }

    /// Returns how many files the view keeps.
    pub fn files_kept(&self) -> usize {
        self.dates.values().map(|date| date.files.len()).sum()
    }

    /// Reads the commits that the log has gained since the last read.
    pub async fn refresh(&mut self) -> Result<()> {
        let (before, old) = (self.version(), Arc::clone(&self.snapshot));
        self.snapshot =
            blocking(&self.log_store, move |engine| Snapshot::builder_from(old).build(engine)).await?;
        let new = before + 1..=self.version();
        if new.end() - before > COMMITS_READ {
            self.forget();
            return Ok(());
        }
        for version in new {
            match self.log_store.read_commit_entry(version).await? {
                Some(commit) => self.apply(&commit)?,
                // The commit is gone: a checkpoint of the log holds its content.
                None => {
                    self.forget();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.dates.clear();
        self.transactions.clear();
    }

    fn apply(&mut self, commit: &[u8]) -> Result<()> {
        let invalid =
            |json_err| DeltaTableError::InvalidJsonLog { json_err, line: String::new(), version: 0 };
        let lines = lines_of(commit).map_err(invalid)?;
        for removed in lines.iter().filter_map(|line| line.remove.as_ref()) {
            if let Some(date) = partition_date(&removed.path).and_then(|date| self.dates.get_mut(&date)) {
                date.files.remove(&removed.path);
            }
        }
        for line in lines {
            if let Some(FileAction { path, size }) = line.add
                && let Some(date) = partition_date(&path).and_then(|date| self.dates.get_mut(&date))
            {
                date.files.insert(path, size.unwrap_or_default());
            }
            if let Some(TransactionAction { app_id, version }) = line.txn {
                self.transactions.insert(app_id, u64::try_from(version).ok());
            }
        }
        Ok(())
    }

    /// Returns the live files of these dates, in ascending order of path. Forgets dates that nobody has
    /// requested recently.
    pub async fn files(&mut self, dates: &BTreeSet<Date>) -> Result<Sizes> {
        self.loads += 1;
        let (loads, mut found) = (self.loads, Sizes::new());
        self.ensure(dates).await?;
        for (_, date) in self.dates.iter_mut().filter(|(date, _)| dates.contains(date)) {
            date.asked = loads;
            found.extend(date.files.iter().map(|(path, bytes)| (path.clone(), *bytes)));
        }
        self.dates.retain(|_, date| date.asked + KEPT_LOADS > loads);
        Ok(found)
    }

    /// Returns the size of a live file in bytes; `None` if the file is not live.
    pub async fn size(&mut self, path: &str) -> Result<Option<i64>> {
        let Some(date) = partition_date(path) else { return Ok(None) };
        self.ensure(&BTreeSet::from([date])).await?;
        Ok(self.dates.get(&date).and_then(|date| date.files.get(path).copied()))
    }

    async fn ensure(&mut self, dates: &BTreeSet<Date>) -> Result<()> {
        let missing: BTreeSet<Date> =
            dates.iter().filter(|date| !self.dates.contains_key(date)).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut kept: BTreeMap<Date, KeptDate> =
            missing.iter().map(|date| (*date, KeptDate { files: Sizes::new(), asked: self.loads })).collect();
        for (path, bytes) in self.scan(Some(missing)).await? {
            if let Some(date) = partition_date(&path).and_then(|date| kept.get_mut(&date)) {
                date.files.insert(path, bytes);
            }
        }
        self.dates.append(&mut kept);
        Ok(())
    }

    /// Reads the live files of some dates, or of all dates, from the log.
    pub async fn scan(&self, dates: Option<BTreeSet<Date>>) -> Result<Sizes> {
        struct Found {
            dates: Option<BTreeSet<Date>>,
            files: Sizes,
        }
        let take = |found: &mut Found, file: ScanFile| {
            let is_wanted = match &found.dates {
                None => true,
                Some(dates) => partition_date(&file.path).is_some_and(|date| dates.contains(&date)),
            };
            if is_wanted {
                found.files.insert(file.path, file.size);
            }
        };
        let snapshot = Arc::clone(&self.snapshot);
        let scan = move |engine: &dyn Engine| {
            let scan = snapshot.scan_builder().with_stats(StatsOptions::none()).without_row_transforms();
            let mut found = Found { dates, files: Sizes::new() };
            for batch in scan.build()?.scan_metadata(engine)? {
                found = batch?.visit_scan_files(found, take)?;
            }
            Ok(found.files)
        };
        blocking(&self.log_store, scan).await
    }

    /// Returns the latest version of a transaction; `None` if the log has no such transaction.
    pub async fn transaction(&mut self, name: &str) -> Result<Option<u64>> {
        if let Some(known) = self.transactions.get(name) {
            return Ok(*known);
        }
        let (snapshot, asked) = (Arc::clone(&self.snapshot), name.to_owned());
        let found =
            blocking(&self.log_store, move |engine| snapshot.get_app_id_version(&asked, engine)).await?;
        let found = found.and_then(|version| u64::try_from(version).ok());
        self.transactions.insert(name.to_owned(), found);
        Ok(found)
    }

    /// Writes a checkpoint of the log at this version.
    pub async fn checkpoint(&self) -> Result<()> {
        let snapshot = Arc::clone(&self.snapshot);
        blocking(&self.log_store, move |engine| snapshot.checkpoint(engine, None)).await.map(|_| ())
    }

    /// Returns why the table does not accept commits such as ours; `None` if it accepts them.
    pub fn refusal(&self, removes: bool) -> Option<String> {
        let configuration = self.snapshot.table_configuration();
        let protocol: &Protocol = configuration.protocol();
        let refused: Vec<&TableFeature> = match protocol.min_writer_version() {
            ..=2 => Vec::new(),
            7 => protocol.writer_features().unwrap_or_default().iter().filter(|of| !is_known(of)).collect(),
            version => return Some(format!("it requires writers of version {version}")),
        };
        if !refused.is_empty() {
            return Some(format!("it requires writer features that this release lacks: {refused:?}"));
        }
        let append_only = self.snapshot.table_properties().append_only == Some(true);
        (append_only && removes).then(|| "its property 'delta.appendOnly' forbids replacing rows".into())
    }
}

fn is_known(feature: &TableFeature) -> bool {
    // This feature restricts only the clean-up of a log, and has no name in the kernel yet.
    let protection = matches!(feature, TableFeature::Unknown(name) if name == "checkpointProtection");
    protection || WRITER_FEATURES.contains(feature)
}

/// Runs kernel work on a thread that may block, because the kernel reads in its own threads and blocks the
/// caller.
async fn blocking<T: Send + 'static>(
    log_store: &LogStoreRef,
    work: impl FnOnce(&dyn Engine) -> std::result::Result<T, Kernel> + Send + 'static,
) -> Result<T> {
    let engine = log_store.engine(None);
    let done = tokio::task::spawn_blocking(move || work(&*engine)).await;
    let done = done.map_err(|error| DeltaTableError::Generic(error.to_string()))?;
    done.map_err(|error| match error.to_string() {
        message if message.contains("No files in log segment") => DeltaTableError::NotATable(message),
        _ => error.into(),
    })
}
