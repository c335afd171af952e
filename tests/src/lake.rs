//! A reader's view of a lake: through the tables' logs, and through the checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use prorata_connectors::DeltaTables;
use prorata_connectors::store::Store;
use prorata_schemas::tables::Table;
use prorata_schemas::time::Hour;
use prorata_worker::checkpoint::Checkpoint;
use prorata_worker::checkpoint::log;
use prorata_worker::names::{self, Shard, TableFile};
use prorata_worker::ports::{ObjectStore, TableCommitter};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

/// The columns of `hours` that depend on when events arrived.
const CLOCKS: [&str; 5] = ["late_events", "max_event_time_seen", "complete", "revision", "last_updated"];

/// A bound after every hour.
pub const EVERY_HOUR: Hour = Hour(i32::MAX as i64);

/// Live files by table, shard and hour, in the order of their digests.
pub type LiveFiles = BTreeMap<(Table, Shard, Hour), Vec<TableFile>>;

/// Paths of files by content.
type Contents = BTreeMap<String, String>;

/// A lake.
pub struct StoredLake {
    store: Store,
    runtime: Arc<Runtime>,
}

/// The progress that a lake must reach.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Number of messages taken, over all topics.
    pub messages: i64,
    /// Hour through which every shard with events is closed.
    pub through: Hour,
}

impl StoredLake {
    /// The lake at a folder or URL.
    pub fn open(url: &str, runtime: Arc<Runtime>) -> Self {
        Self { store: Store::open(url).unwrap(), runtime }
    }

    /// Returns the latest checkpoint of each shard that has one.
    pub fn checkpoints(&self) -> BTreeMap<Shard, Checkpoint> {
        let all = async {
            let mut found = BTreeMap::new();
            for shard in log::latest_seqs(&self.store).await?.into_keys() {
                found.insert(shard, Checkpoint::clone(&*log::latest(&self.store, shard).await?));
            }
            Ok::<_, prorata_worker::WorkerError>(found)
        };
        self.runtime.block_on(all).unwrap()
    }

    /// Returns the owners of each shard in all checkpoints that are kept.
    pub fn owners(&self) -> BTreeSet<(Shard, String)> {
        let all = async {
            let mut found = BTreeSet::new();
            for object in self.store.list(names::STATE).await? {
                let Some((shard, seq)) = names::parse_checkpoint(&object.path) else { continue };
                // A part of an earlier checkpoint may be gone.
                if let Ok(decided) = log::read(&self.store, shard, seq).await {
                    found.extend(decided.owner.as_ref().map(|owner| (shard, owner.id.to_string())));
                }
            }
            Ok::<_, prorata_worker::WorkerError>(found)
        };
        self.runtime.block_on(all).unwrap()
    }

    /// An object of the lake.
    pub fn object(&self, path: &str) -> bytes::Bytes {
        self.runtime.block_on(self.store.get(path)).unwrap().unwrap_or_else(|| panic!("no {path}"))
    }

    /// Paths of objects below a folder.
    pub fn list(&self, folder: &str) -> Vec<String> {
        let listed = self.runtime.block_on(self.store.list(folder)).unwrap();
        listed.into_iter().map(|object| object.path).collect()
    }

    /// Returns all objects in the tables' folders. Every change of a table leaves an object there.
    pub fn tables(&self) -> Vec<String> {
        Table::HOURLY.iter().flat_map(|table| self.list(table.name())).collect()
    }

    /// Returns the live files of hours up to `through`. Fails if two files of one table, shard and hour have
    /// the same content, because they would count money twice.
    pub fn files(&self, through: Hour) -> LiveFiles {
        let tables = DeltaTables::new(self.store.clone());
        let mut files = LiveFiles::new();
        for table in Table::HOURLY {
            for file in self.runtime.block_on(tables.load(table)).unwrap().files {
                let name =
                    TableFile::parse(&file.path).unwrap_or_else(|| panic!("{} is not ours", file.path));
                if name.hour > through {
                    continue;
                }
                let of_hour = files.entry((table, name.shard, name.hour)).or_default();
                let twice = of_hour.iter().any(|other| other.digest == name.digest);
                assert!(!twice, "{} has its content twice", file.path);
                of_hour.push(name);
                of_hour.sort_by(|left, right| left.digest.cmp(&right.digest));
            }
        }
        files
    }

    /// Checks that the goal is reached: all messages are taken, all hours are closed and folded, and the
    /// tables equal the checkpoints.
    ///
    /// # Errors
    /// If anything is missing; the message says what is missing.
    pub fn reached(&self, goal: Goal) -> Result<(), String> {
        let checkpoints = self.checkpoints();
        let taken: i64 = checkpoints.values().map(taken).sum();
        if taken != goal.messages {
            assert!(taken < goal.messages, "{taken} messages taken of {}", goal.messages);
            return Err(format!("{taken} messages of {} are taken", goal.messages));
        }
        for (shard, checkpoint) in &checkpoints {
            if let Some(dirty) = checkpoint.dirty.first() {
                return Err(format!("shard {shard} is dirty from {dirty}"));
            }
            if taken_any(checkpoint) && checkpoint.closed_through < Some(goal.through) {
                let closed = checkpoint.closed_through;
                return Err(format!("shard {shard} is closed through {closed:?}, not {}", goal.through));
            }
            if let Some(letters) = checkpoint.unsent_dead_letters.first() {
                return Err(format!("{letters} is not on the topic of dead letters"));
            }
        }
        self.published(&checkpoints, goal.through)
    }

    fn published(&self, checkpoints: &BTreeMap<Shard, Checkpoint>, through: Hour) -> Result<(), String> {
        // Hours that are old enough have left the checkpoints.
        let named_hour = |(_, shard, hour): &(Table, Shard, Hour)| {
            checkpoints.get(shard).is_some_and(|checkpoint| checkpoint.hours.contains_key(hour))
        };
        let files = self.files(through);
        let live = files.iter().filter(|(key, _)| named_hour(key));
        let path = |((table, ..), file): (&(Table, Shard, Hour), &TableFile)| {
            format!("{}/{}", table.name(), file.path())
        };
        let live = live.flat_map(|(key, files)| files.iter().map(move |file| (key, file)));
        let live: BTreeSet<String> = live.map(path).collect();
        let entries = checkpoints.values().flat_map(|checkpoint| checkpoint.hours.range(..=through));
        let named = entries.flat_map(|(_, entry)| entry.files());
        let named: BTreeSet<String> =
            named.map(|(table, file)| format!("{}/{}", table.name(), file.path)).collect();
        match live.symmetric_difference(&named).next() {
            Some(file) if live.contains(file) => Err(format!("the table still holds {file}")),
            Some(file) => Err(format!("the table does not hold {file} yet")),
            None => Ok(()),
        }
    }

    /// Fails unless both lakes are equal byte for byte, except for the clock columns of `hours`. Also fails
    /// if there are no costs to compare.
    pub fn assert_equals(&self, expected: &Self, through: Hour) {
        let of = |table: Table| self.files(through).keys().filter(|(of, ..)| *of == table).count();
        assert!(of(Table::CostAllocation) > 0, "there is nothing to compare");
        self.assert_holds(expected, through);
    }

    /// Fails like [`Self::assert_equals`], but accepts lakes without costs.
    pub fn assert_holds(&self, expected: &Self, through: Hour) {
        let (ours, theirs) = (self.contents(through), expected.contents(through));
        assert!(ours.keys().any(|(table, ..)| *table == Table::Hours), "there is nothing to compare");
        let digests =
            |contents: Option<&Contents>| contents.map(|contents| contents.keys().cloned().collect());
        let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        let differing: Vec<_> = keys
            .into_iter()
            .map(|key| (key, digests(ours.get(key)), digests(theirs.get(key))))
            .filter(|(_, found, wanted): &(_, Option<Vec<String>>, Option<Vec<String>>)| found != wanted)
            .collect();
        assert_eq!(differing, Vec::new(), "(files, here, and in the backfill's lake)");
        for (key, found) in ours.iter().filter(|((table, ..), _)| *table == Table::Hours) {
            for (digest, path) in found {
                let wanted = &theirs[key][digest];
                assert_hours_equal(self.object(path), expected.object(wanted), path);
            }
        }
    }

    /// Returns the paths of live files by table, shard and hour, and by content. The content is a digest of
    /// the bytes, or for `hours` a digest of the rows without the clock columns.
    fn contents(&self, through: Hour) -> BTreeMap<(Table, Shard, Hour), Contents> {
        let content = |table: Table, file: &TableFile| {
            let path = format!("{}/{}", names::table(table), file.path());
            let digest = match table {
                Table::Hours => file.digest.clone(),
                _ => format!("{:x}", Sha256::digest(self.object(&path))),
            };
            (digest, path)
        };
        let files = self.files(through).into_iter();
        files.map(|(key, files)| (key, files.iter().map(|file| content(key.0, file)).collect())).collect()
    }
}

/// Compares two files of `hours` except for the clock columns.
fn assert_hours_equal(found: bytes::Bytes, wanted: bytes::Bytes, path: &str) {
    let [found, wanted] = [found, wanted].map(|bytes| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
        let kept = builder.schema().fields().iter().enumerate();
        let kept: Vec<usize> = kept
            .filter(|(_, field)| !CLOCKS.contains(&field.name().as_str()))
            .map(|(index, _)| index)
            .collect();
        assert_eq!(kept.len() + CLOCKS.len(), builder.schema().fields().len(), "{:?}", builder.schema());
        let mask = ProjectionMask::roots(builder.parquet_schema(), kept);
        builder.with_projection(mask).build().unwrap().map(Result::unwrap).collect::<Vec<_>>()
    });
    assert_eq!(found, wanted, "{path}");
}

/// Returns the number of messages that a checkpoint has taken: the sum of the next offsets, because offsets
/// begin at 0.
pub fn taken(checkpoint: &Checkpoint) -> i64 {
    checkpoint.offsets.values().map(|offsets| offsets.next.unwrap_or(0)).sum()
}

/// Returns whether a shard has taken any event.
fn taken_any(checkpoint: &Checkpoint) -> bool {
    checkpoint.offsets.values().any(|offsets| offsets.max_event_time.is_some())
}
