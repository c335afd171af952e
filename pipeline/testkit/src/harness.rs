//! A lake in memory, backfills into it, and the tables that a plain fold of the same events produces.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a harness stops on a broken assumption")]

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prorata_engine::{HourEvents, OrderedEvents, State, close_hour, has_hour};
use prorata_samples::trace::START;
use prorata_schemas::event::EventRecord;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rows::HourTables;
use prorata_schemas::rules::Rules;
use prorata_schemas::tables::{CutFile, Table};
use prorata_schemas::time::{Hour, HourRange, WallTime};
use prorata_worker::WorkerError;
use prorata_worker::backfill::input::InMemoryFiles;
use prorata_worker::backfill::{self, BackfillOptions, BackfillPorts, Outcome};
use prorata_worker::checkpoint::retention::Retention;
use prorata_worker::checkpoint::{Checkpoint, log};
use prorata_worker::names::{self, DayFile, Shard, ShardHour, TableFile};
use prorata_worker::ports::{Archive, FILE_ROWS, Input, ObjectStore, Silent, TableCommitter, TableEncoder};
use prorata_worker::root::Root;
use prorata_worker::{ArchiveIndex, Ports};

use crate::fakes::{FakeArchive, FakeEncoder, FakeStore, FakeTables, Faults, FileRows, StoppedClock};

/// A root in memory.
#[derive(Clone, Default)]
pub struct Lake {
    /// Objects of the root.
    pub store: FakeStore,
    /// Logs of the root's tables.
    pub tables: FakeTables,
    /// Number of rows at which a table file ends; `None` for the default.
    pub file_rows: Option<u64>,
}

/// Returns the paths of the archive files and the dead letters that a checkpoint names.
///
/// # Errors
/// If a part of the checkpoint is missing or damaged.
pub async fn named(
    store: &dyn ObjectStore,
    checkpoint: &Checkpoint,
) -> Result<BTreeSet<String>, WorkerError> {
    let mut archive = ArchiveIndex::of(checkpoint);
    archive.ensure_all(store).await?;
    let mut paths = log::read_dead_letter_names(store, &checkpoint.dead_letters).await?;
    paths.extend(archive.all().map(|file| file.path(checkpoint.shard)));
    Ok(paths)
}

/// Returns a horizon that is shorter than the default. Tests of histories beyond the horizon then take half
/// the time.
pub fn five_weeks() -> Retention {
    Retention::new(Duration::from_secs(35 * 24 * 3_600)).unwrap()
}

/// Settings that differ between runs.
#[derive(Clone)]
pub struct Run {
    /// Options of the backfill.
    pub options: BackfillOptions,
    /// Faults of store and tables.
    pub faults: Faults,
    /// Time on the clock of the run; `None` for the store's time.
    pub now: Option<WallTime>,
}

impl Run {
    /// Creates a run with its own owner and two shards.
    pub fn new(owner: &str) -> Self {
        let mut options = BackfillOptions::new(owner.into());
        options.shards = Some(2);
        options.threads = 1;
        options.retention = five_weeks();
        Self { options, faults: Faults::default(), now: None }
    }

    /// Sets the faults.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Changes the options.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut BackfillOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Sets options that make a run write a checkpoint after every window of one hour.
    #[must_use]
    pub fn hurried(self) -> Self {
        self.with(|options| {
            options.checkpoint_interval = Duration::ZERO;
            options.rows_in_flight = 1;
            options.buffer_bytes = 600;
            options.memory_limit = 0;
        })
    }
}

/// Input files by name.
pub type Files = BTreeMap<String, Bytes>;

impl Lake {
    /// Runs a backfill.
    ///
    /// # Errors
    /// Returns the errors of the backfill.
    pub async fn run(&self, files: &Files, run: Run) -> Result<Outcome, WorkerError> {
        let store = Arc::new(self.store.with_faults(run.faults.clone()));
        let tables = Arc::new(self.tables.with_faults(run.faults.clone()));
        self.run_on(store, tables, files, run).await
    }

    /// Runs a backfill on the given store and tables.
    ///
    /// # Errors
    /// Returns the errors of the backfill.
    pub async fn run_on(
        &self,
        store: Arc<dyn ObjectStore>,
        tables: Arc<dyn TableCommitter>,
        files: &Files,
        run: Run,
    ) -> Result<Outcome, WorkerError> {
        self.run_with(store, tables, Arc::new(InMemoryFiles::of(files.clone())), run).await
    }

    /// Runs a backfill of any input on the given store and tables.
    ///
    /// # Errors
    /// Returns the errors of the backfill.
    pub async fn run_with(
        &self,
        store: Arc<dyn ObjectStore>,
        tables: Arc<dyn TableCommitter>,
        input: Arc<dyn Input>,
        run: Run,
    ) -> Result<Outcome, WorkerError> {
        let ports = BackfillPorts {
            shared: Ports {
                store,
                tables,
                archive: Arc::new(FakeArchive),
                encoder: self.encoder(),
                clock: Arc::new(StoppedClock(run.now.unwrap_or(self.store.now()))),
            },
            input,
            progress: Arc::new(Silent),
        };
        backfill::run(ports, run.options).await
    }

    /// Returns the encoder of the lake's tables.
    pub fn encoder(&self) -> Arc<dyn TableEncoder> {
        Arc::new(FileRows { encoder: FakeEncoder, rows: self.file_rows() })
    }

    fn file_rows(&self) -> u64 {
        self.file_rows.unwrap_or(FILE_ROWS)
    }

    /// Returns the content of every table by hour and shard: the rows of all files of an hour, without the
    /// clock columns of `hours`. Also asserts that files end at the right number of rows.
    pub fn content(&self) -> Content {
        let mut files: BTreeMap<(Table, Hour, Shard), Vec<String>> = BTreeMap::new();
        let objects = self.store.objects();
        for (table, log) in self.tables.tables() {
            for file in log.live.files {
                let bytes = &objects[&format!("{}/{}", table.name(), file.path)];
                let (shard, _) = names::parse_table_file(&file.path).expect("a file of ours");
                let hours = match DayFile::parse(&file.path) {
                    Some(day) => {
                        let files = FakeEncoder.split(table, bytes).unwrap();
                        let mut hours: Vec<Hour> = files.iter().map(|file| file.hour).collect();
                        hours.dedup();
                        assert_eq!(day.hours().collect::<Vec<_>>(), hours, "{}", file.path);
                        files.into_iter().map(|file| (file.hour, file.file.bytes)).collect()
                    }
                    None => vec![(TableFile::parse(&file.path).unwrap().hour, bytes.to_vec())],
                };
                for (hour, bytes) in hours {
                    let text = without_clocks(table, &String::from_utf8(bytes).unwrap());
                    files.entry((table, hour, shard)).or_default().push(text);
                }
            }
        }
        let whole = files.into_iter().map(|(key, mut files)| {
            files.sort();
            if key.0 == Table::Hours {
                assert_eq!(files.len(), 1, "{key:?} has several files");
            } else {
                assert_cut(&files, self.file_rows(), &format!("{key:?}"));
            }
            (key, files.join("\n"))
        });
        whole.collect()
    }

    /// Returns the names of the live files by table.
    pub fn files(&self) -> BTreeMap<Table, Vec<String>> {
        let tables = self.tables.tables();
        tables
            .into_iter()
            .map(|(table, log)| (table, log.live.files.into_iter().map(|file| file.path).collect()))
            .collect()
    }

    /// Returns the names of all objects.
    pub fn objects(&self) -> Vec<String> {
        self.store.objects().into_keys().collect()
    }

    /// Returns the clock columns of an hour's file.
    pub fn clocks(&self, hour: i64, shard: Shard) -> String {
        let objects = self.store.objects();
        let files = self.files();
        let path = files[&Table::Hours].iter().find(|path| {
            let name = TableFile::parse(path).unwrap();
            (name.hour, name.shard) == (Hour(hour), shard)
        });
        let bytes = &objects[&format!("hours/{}", path.expect("the hour is published"))];
        String::from_utf8_lossy(bytes).lines().last().unwrap().to_owned()
    }
}

/// Asserts that the content is as expected. The message names the hours of tables that differ, and shows the
/// first difference.
pub fn assert_content(lake: &Lake, expected: &Content, context: &str) {
    let found = lake.content();
    let keys: std::collections::BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let differ: Vec<_> = keys.into_iter().filter(|key| found.get(key) != expected.get(key)).collect();
    let names = differ
        .iter()
        .map(|(table, hour, shard)| format!("{} of hour {} shard {shard}", table.name(), hour.0 - START));
    let names: Vec<String> = names.collect();
    let first = differ.first().map(|key| (found.get(key), expected.get(key)));
    assert!(differ.is_empty(), "{context}: {names:?}; found and expected of the first: {first:#?}");
}

/// Text of live files, by table, hour and shard.
pub type Content = BTreeMap<(Table, Hour, Shard), String>;

/// Asserts that each file ends after the organization that brings it to `file_rows` rows, and nowhere else.
fn assert_cut(files: &[String], file_rows: u64, context: &str) {
    let organization = |line: &str| line.split(' ').next().unwrap().to_owned();
    for (index, file) in files.iter().enumerate() {
        let organizations: Vec<String> = file.lines().map(organization).collect();
        let before_last = organizations.iter().filter(|of| Some(*of) != organizations.last()).count() as u64;
        assert!(before_last < file_rows, "{context}: file {index} continues");
        let is_full = organizations.len() as u64 >= file_rows;
        assert!(is_full || index + 1 == files.len(), "{context}: file {index} ends early");
    }
}

fn without_clocks(table: Table, text: &str) -> String {
    match (table, text.rsplit_once('\n')) {
        (Table::Hours, Some((rows, _clocks))) => rows.to_owned(),
        _ => text.to_owned(),
    }
}

/// Returns the tables of a plain fold of these events, hour by hour from each organization's first hour. If
/// an hour of an organization cannot be folded, the organization is held from that hour on.
pub fn expected(
    events: &[EventRecord],
    through: Hour,
    shard_of: impl Fn(&str) -> Shard,
    rules: impl Fn(Hour) -> Rules,
) -> Content {
    let mut organizations: BTreeMap<OrganizationId, Vec<EventRecord>> = BTreeMap::new();
    for event in events {
        organizations.entry(event.event.organization_id.clone()).or_default().push(event.clone());
    }
    let mut hours: BTreeMap<ShardHour, Vec<HourTables>> = BTreeMap::new();
    for (organization, events) in organizations {
        let first = events.iter().map(|event| event.event.event_time.hour()).min().unwrap();
        let (mut state, mut held) = (State::new(organization.clone()), false);
        for hour in HourRange::new(first, through) {
            let within = events.iter().filter(|event| event.event.event_time.hour() == hour);
            let within = HourEvents::of(hour, within.cloned());
            if !held && !has_hour(&state, &within) {
                continue;
            }
            let rules = rules(hour);
            let within = OrderedEvents::from(within);
            let count = within.standing();
            let close = AssertUnwindSafe(|| close_hour(state.clone(), within, &rules));
            let closed = if held { None } else { catch_unwind(close).ok().and_then(Result::ok) };
            let tables = match closed {
                Some((next, tables)) => {
                    state = next;
                    tables
                }
                None => {
                    held = true;
                    HourTables::without_rows(&organization, hour, &rules, count)
                }
            };
            hours.entry(ShardHour { shard: shard_of(&organization), hour }).or_default().push(tables);
        }
    }
    let mut content = Content::new();
    for (ShardHour { shard, hour }, tables) in hours {
        for table in Table::HOURLY {
            for CutFile { file, .. } in FakeEncoder.encode(table, &tables, &[], u64::MAX).unwrap() {
                let text = String::from_utf8(file.bytes).unwrap();
                content.insert((table, hour, shard), without_clocks(table, &text));
            }
        }
    }
    content
}

/// Returns the shard of an organization in a root of two shards.
pub fn shard_of(organization: &str) -> Shard {
    Root::new(2).shard_of(organization)
}

/// Returns input files of these events.
pub fn files(parts: &[&[EventRecord]]) -> Files {
    let name = |index: usize| format!("part-{index}.avro");
    parts.iter().enumerate().map(|(index, events)| (name(index), file(events))).collect()
}

/// Returns one input file.
pub fn file(events: &[EventRecord]) -> Bytes {
    let bodies: Vec<_> = events.iter().map(|event| (event.event.payload.kind(), &*event.body)).collect();
    FakeArchive.write(&bodies).unwrap().into()
}

/// Returns the default rules, which are the same at every hour.
pub fn rules(_hour: Hour) -> Rules {
    Rules::default()
}
