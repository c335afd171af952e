//! Checks every version of every table and every checkpoint when it appears, for properties that must always
//! hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, WallTime};
use prorata_testkit::fakes::{FakeEncoder, FakeStore, FakeTables};
use prorata_worker::checkpoint::Checkpoint;
use prorata_worker::checkpoint::log;
use prorata_worker::names::{self, ArchivePath, DayFile, Shard, TableFile};
use prorata_worker::ports::{
    CommitOutcome, ErrorKind, LiveTable, ObjectMeta, ObjectStore, PutOutcome, StoreError, TableCommit,
    TableCommitter, TableEncoder, TableError,
};

use crate::harness::{Lake, named};

/// Everything seen so far. Clones share it.
#[derive(Clone)]
pub struct Audit {
    store: FakeStore,
    tables: FakeTables,
    seen: Arc<Mutex<Seen>>,
    outage: Arc<AtomicBool>,
    on_call: Arc<Mutex<Option<OnCall>>>,
}

/// A function that runs at every call of storage.
type OnCall = Box<dyn FnMut() + Send>;

#[derive(Default)]
struct Seen {
    versions: BTreeMap<Table, u64>,
    files: BTreeMap<Table, BTreeMap<(Shard, Hour), BTreeSet<String>>>,
    revisions: BTreeMap<(Shard, Hour), i64>,
    checkpoints: BTreeMap<(Shard, u64), Arc<Checkpoint>>,
    /// Whether offsets may go back, because messages were lost on purpose.
    offsets_free: bool,
    /// Number of archive files of open hours that were read back.
    read_back: u64,
    /// Number of folders that were listed.
    lists: usize,
    /// Number of archive files that were written.
    archived: usize,
    /// The latest true time at which anything was stored.
    latest: WallTime,
}

impl Audit {
    pub fn of(lake: &Lake) -> Self {
        Self {
            store: lake.store.clone(),
            tables: lake.tables.clone(),
            seen: Arc::default(),
            outage: Arc::default(),
            on_call: Arc::default(),
        }
    }

    /// Allows offsets to go back and topics to be removed from now on.
    pub fn free_offsets(&self) {
        self.seen.lock().unwrap().offsets_free = true;
    }

    /// Starts or ends an outage of storage.
    pub fn set_outage(&self, outage: bool) {
        self.outage.store(outage, Ordering::Relaxed);
    }

    /// Runs `call` at every call of storage from now on.
    pub fn on_call(&self, call: impl FnMut() + Send + 'static) {
        *self.on_call.lock().unwrap() = Some(Box::new(call));
    }

    /// Removes the function that runs at every call of storage.
    pub fn no_call(&self) {
        *self.on_call.lock().unwrap() = None;
    }

    /// Returns the number of archive files of open hours that were read.
    pub fn read_back(&self) -> u64 {
        self.seen.lock().unwrap().read_back
    }

    /// Returns the number of folders that were listed.
    pub fn lists(&self) -> usize {
        self.seen.lock().unwrap().lists
    }

    /// Returns the number of archive files that were written.
    pub fn archived(&self) -> usize {
        self.seen.lock().unwrap().archived
    }

    /// Returns whether an object was stored less than `age` ago.
    pub fn is_younger(&self, path: &str, age: Duration) -> bool {
        let stored_at = now(self.store.stat(path)).unwrap().map(|meta| meta.modified).unwrap_or_default();
        self.store.now() < stored_at.after(age)
    }

    fn reach(&self, object: &str) -> Result<(), StoreError> {
        if let Some(call) = &mut *self.on_call.lock().unwrap() {
            call();
        }
        let down = self.outage.load(Ordering::Relaxed);
        if down {
            Err(StoreError::new(ErrorKind::Transient, "reach", object, "503 slow down"))
        } else {
            Ok(())
        }
    }

    fn reach_table(&self, table: Table) -> Result<(), TableError> {
        self.reach(table.name()).map_err(|error| TableError::new(error.kind, "reach", table, error.source))
    }

    fn note_read(&self, path: &str) {
        let Some(ArchivePath { hour, shard, .. }) = ArchivePath::parse(path) else { return };
        let mut seen = self.seen.lock().unwrap();
        let of_shard = seen.checkpoints.range((shard, 0)..=(shard, u64::MAX));
        let closed = of_shard.last().and_then(|(_, checkpoint)| checkpoint.closed_through);
        if closed.is_none_or(|closed| hour > closed) {
            seen.read_back += 1;
        }
    }

    /// Returns every checkpoint decided so far.
    pub fn checkpoints(&self) -> BTreeMap<(Shard, u64), Arc<Checkpoint>> {
        self.seen.lock().unwrap().checkpoints.clone()
    }

    /// Returns the latest checkpoint of every shard.
    pub fn latest(&self) -> BTreeMap<Shard, Arc<Checkpoint>> {
        self.checkpoints().into_iter().map(|((shard, _), checkpoint)| (shard, checkpoint)).collect()
    }

    /// Returns the first checkpoint of each owner of a shard.
    fn claiming(&self, shard: Shard) -> Vec<Arc<Checkpoint>> {
        let seen = self.seen.lock().unwrap();
        let of_shard = seen.checkpoints.range((shard, 0)..=(shard, u64::MAX));
        let of_shard: Vec<_> = of_shard.map(|(_, checkpoint)| checkpoint).collect();
        let owner = |checkpoint: &Checkpoint| checkpoint.owner.as_ref().map(|owner| owner.id.clone());
        of_shard.chunk_by(|a, b| owner(a) == owner(b)).map(|of_owner| Arc::clone(of_owner[0])).collect()
    }

    /// Returns the number of times that a shard was claimed.
    pub fn claims(&self, shard: Shard) -> usize {
        self.claiming(shard).len()
    }

    /// Returns the number of dates that were open when a shard was claimed, up to a day ahead, summed over
    /// all its claims.
    pub fn dates_claimed(&self, shard: Shard) -> usize {
        let dates = |claim: Arc<Checkpoint>| {
            let last = Hour(claim.written_at.hour().0 + 24);
            usize::try_from(last.date().days() - claim.closed_through?.next().date().days() + 1).ok()
        };
        self.claiming(shard).into_iter().filter_map(dates).sum()
    }

    /// Checks everything that is new.
    pub fn look(&self) {
        let mut seen = self.seen.lock().unwrap();
        for path in self.store.paths_under(names::STATE) {
            self.look_at_object(&mut seen, &path);
        }
        for (table, log) in self.tables.tables() {
            self.look_at_table(&mut seen, table, &log.live);
        }
    }

    fn object(&self, path: &str) -> Option<Bytes> {
        now(self.store.get(path)).unwrap()
    }

    fn look_at_object(&self, seen: &mut Seen, path: &str) {
        let Some((shard, seq)) = names::parse_checkpoint(path) else { return };
        if seen.checkpoints.contains_key(&(shard, seq)) {
            return;
        }
        if self.object(path).is_none() {
            return;
        }
        if seq > 1 {
            // Another process may have decided the previous checkpoint unseen.
            self.look_at_object(seen, &names::checkpoint(shard, seq - 1));
        }
        let checkpoint = now(log::read(&self.store, shard, seq)).unwrap();
        let fallback = Checkpoint::unowned(shard);
        let before = seen.checkpoints.get(&(shard, seq - 1)).map_or(&fallback, |before| &**before);
        assert_eq!((checkpoint.shard, checkpoint.seq), (before.shard, before.seq + 1), "a gap in the log");
        check_succession(before, &checkpoint, seen.offsets_free);
        self.check_names(before, &checkpoint);
        let stored_at = now(self.store.stat(path)).unwrap().map(|meta| meta.modified);
        seen.latest = seen.latest.max(stored_at.unwrap_or_default());
        check_not_ahead(&checkpoint, seen.latest);
        self.check_objects(before, &checkpoint);
        seen.checkpoints.insert((shard, seq), Arc::new(Checkpoint::clone(&checkpoint)));
    }

    /// Returns the archive files and dead letters that the latest checkpoints name.
    pub fn named(&self) -> BTreeSet<String> {
        self.latest().values().flat_map(|checkpoint| self.names(checkpoint)).collect()
    }

    /// Returns the archive files and dead letters that a checkpoint names.
    fn names(&self, checkpoint: &Checkpoint) -> BTreeSet<String> {
        now(named(&self.store, checkpoint)).unwrap()
    }

    /// Asserts that every new name is the name of a stored object. A checkpoint may drop an archive file only
    /// if it adds another file of the same hour.
    fn check_names(&self, before: &Checkpoint, after: &Checkpoint) {
        if before.archive == after.archive && before.dead_letters == after.dead_letters {
            return;
        }
        let (old, new) = (self.names(before), self.names(after));
        let added: BTreeSet<&String> = new.difference(&old).collect();
        for path in &added {
            assert!(self.object(path).is_some(), "{path} is named, not stored, at {}", after.seq);
        }
        let hour = |path: &str| ArchivePath::parse(path).map(|file| file.hour);
        for path in old.difference(&new) {
            let merged = hour(path).is_some() && added.iter().any(|added| hour(added) == hour(path));
            assert!(merged, "{path} is no longer named at {}", after.seq);
        }
    }

    /// Asserts that a checkpoint names only objects that were stored before it was decided.
    fn check_objects(&self, before: &Checkpoint, checkpoint: &Checkpoint) {
        let stored = |path: &str| self.object(path).is_some();
        let what = |hour: &Hour| format!("hour {hour} of shard {} at {}", checkpoint.shard, checkpoint.seq);
        for (hour, entry) in &checkpoint.hours {
            let old = before.hours.get(hour);
            for (table, file) in entry.files() {
                let known =
                    old.is_some_and(|old| old.files_of(table).iter().any(|old| old.path == file.path));
                let path = format!("{}/{}", table.name(), file.path);
                assert!(known || stored(&path), "{path} is named, not stored: {}", what(hour));
            }
            for snapshot in entry.snapshot_objects() {
                let known = old.is_some_and(|old| old.snapshot_objects().any(|old| old == snapshot));
                assert!(known || stored(snapshot), "{snapshot} is named, not stored: {}", what(hour));
            }
        }
    }

    /// Returns the digest and the text of each file of an hour in a table file. The table file is a file of
    /// an hour or a file of a day.
    fn rows_of(&self, table: Table, (_, hour): (Shard, Hour), path: &str) -> Vec<(String, String)> {
        let bytes = self.object(&format!("{}/{path}", table.name()));
        let bytes = bytes.unwrap_or_else(|| panic!("{table:?} names {path}, which is not there"));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match TableFile::parse(path) {
            Some(name) => vec![(name.digest, text(&bytes))],
            None => {
                let files = FakeEncoder.split(table, &bytes).unwrap().into_iter();
                let of_hour = files.filter(|file| file.hour == hour);
                of_hour.map(|file| (file.file.digest, text(&file.file.bytes))).collect()
            }
        }
    }

    fn look_at_table(&self, seen: &mut Seen, table: Table, live: &LiveTable) {
        if seen.versions.insert(table, live.version) == Some(live.version) {
            return;
        }
        let mut files: BTreeMap<(Shard, Hour), BTreeSet<String>> = BTreeMap::new();
        for file in &live.files {
            let (shard, hours) = match (TableFile::parse(&file.path), DayFile::parse(&file.path)) {
                (Some(name), _) => (name.shard, vec![name.hour]),
                (None, Some(name)) => (name.shard, name.hours().collect()),
                (None, None) => continue,
            };
            for hour in hours {
                files.entry((shard, hour)).or_default().insert(file.path.clone());
            }
        }
        let old = seen.files.insert(table, files.clone()).unwrap_or_default();
        let new = files.iter().flat_map(|(key, paths)| paths.iter().map(move |path| (key, path)));
        for (key, path) in new.filter(|(key, path)| !old.get(key).is_some_and(|old| old.contains(*path))) {
            let new = self.rows_of(table, *key, path);
            if is_rearranged(seen, *key, path) {
                let before = old.get(key).into_iter().flatten();
                let before: Vec<_> = before.flat_map(|old| self.rows_of(table, *key, old)).collect();
                assert!(new.iter().all(|rows| before.contains(rows)), "{path} has rows of its own");
            } else if table == Table::Hours {
                new.iter().for_each(|(_, text)| check_revision(seen, *key, text));
                check_whole(seen, *key, path);
            }
        }
        if table == Table::Hours {
            // An hour leaves the table if it has no organization left. Then its checkpoint names no file.
            let is_empty = |(shard, hour): &(Shard, Hour)| {
                let of_shard = seen.checkpoints.range((*shard, 0)..=(*shard, u64::MAX));
                let entry = of_shard.last().and_then(|(_, checkpoint)| checkpoint.hours.get(hour));
                entry.is_some_and(|entry| !entry.tables.contains_key(&table))
            };
            let gone = old.keys().find(|key| !files.contains_key(key) && !is_empty(key));
            assert_eq!(gone, None, "an hour has left the tables");
        }
    }
}

/// Returns whether a file only has rows of other files, so that no checkpoint names it.
fn is_rearranged(seen: &Seen, (shard, hour): (Shard, Hour), path: &str) -> bool {
    let Some(name) = TableFile::parse(path) else { return true };
    let checkpoint = seen.checkpoints.get(&(shard, name.object_id.seq));
    let checkpoint = checkpoint.unwrap_or_else(|| panic!("{path} is live, and its number is not decided"));
    let entry = checkpoint.hours.get(&hour);
    entry.is_none_or(|entry| entry.files().all(|(_, file)| file.path != path))
}

/// Asserts that each checkpoint continues from the checkpoint before it.
fn check_succession(before: &Checkpoint, after: &Checkpoint, offsets_free: bool) {
    let what = format!("shard {} at {}", after.shard, after.seq);
    assert!(before.closed_through <= after.closed_through, "an hour opens again: {what}");
    for (topic, old) in &before.offsets {
        let Some(new) = after.offsets.get(topic) else {
            assert!(offsets_free, "no offsets of {topic}: {what}");
            continue;
        };
        let went_back = new.next < old.next;
        assert!(offsets_free || !went_back, "offsets of {topic} go back from {old:?} to {new:?}: {what}");
    }
    for hour in before.hours.keys().chain(before.revisions.keys()) {
        let (old, new) = (before.revision_of(*hour), after.revision_of(*hour));
        assert!(old <= new, "revision of hour {hour} goes back from {old} to {new}: {what}");
    }
}

/// Asserts that the world has reached every closed hour. A backfill may close the current hour, and clocks
/// differ within `max_clock_skew`. The true time of a simulation steps back by at most half an hour.
fn check_not_ahead(checkpoint: &Checkpoint, latest: WallTime) {
    const SLACK: Duration = Duration::from_secs(2 * 3_600);
    let (shard, closed) = (checkpoint.shard, checkpoint.closed_through);
    let ahead = closed.is_some_and(|closed| closed.end() > latest.after(SLACK).event_time());
    assert!(!ahead, "shard {shard} is closed through {closed:?}, the future of {latest:?}");
}

/// Asserts that revisions in `hours` never decrease.
fn check_revision(seen: &mut Seen, key: (Shard, Hour), text: &str) {
    let clocks = text.lines().last().unwrap();
    let (_, revision) = clocks.split_once("revision: ").unwrap();
    let revision: i64 = revision.split_once(',').unwrap().0.parse().unwrap();
    let newest = seen.revisions.entry(key).or_insert(revision);
    assert!(revision >= *newest, "the revision of {key:?} goes back from {newest} to {revision}");
    *newest = revision;
}

/// Asserts that, if `hours` shows a change of an hour, all tables have the files of that change.
fn check_whole(seen: &Seen, (shard, hour): (Shard, Hour), path: &str) {
    let seq = TableFile::parse(path).unwrap().object_id.seq;
    let checkpoint = seen.checkpoints.get(&(shard, seq));
    let checkpoint = checkpoint.unwrap_or_else(|| panic!("{path} is live, but {seq} is not decided"));
    let entry = &checkpoint.hours[&hour];
    for table in Table::HOURLY {
        let live = seen.files.get(&table).and_then(|files| files.get(&(shard, hour)));
        let named: BTreeSet<String> = entry.files_of(table).iter().map(|file| file.path.clone()).collect();
        assert_eq!(
            live.cloned().unwrap_or_default(),
            named,
            "hour {hour} of shard {shard} is torn: {table:?}, {path}"
        );
    }
}

/// Returns the result of a future of a fake without faults, which is ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    futures::executor::block_on(future)
}

/// A store that audits every new checkpoint.
pub struct AuditedStore {
    inner: FakeStore,
    audit: Audit,
}

impl AuditedStore {
    pub fn new(inner: FakeStore, audit: &Audit) -> Self {
        Self { inner, audit: audit.clone() }
    }
}

#[async_trait]
impl ObjectStore for AuditedStore {
    async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        self.audit.reach(path)?;
        self.audit.note_read(path);
        self.inner.get(path).await
    }

    async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome, StoreError> {
        self.audit.reach(path)?;
        let put = self.inner.put_if_absent(path, bytes).await;
        let mut seen = self.audit.seen.lock().unwrap();
        seen.archived += usize::from(ArchivePath::parse(path).is_some());
        self.audit.look_at_object(&mut seen, path);
        put
    }

    async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, StoreError> {
        self.audit.reach(folder)?;
        self.audit.seen.lock().unwrap().lists += 1;
        self.inner.list(folder).await
    }

    async fn stat(&self, path: &str) -> Result<Option<ObjectMeta>, StoreError> {
        self.audit.reach(path)?;
        self.inner.stat(path).await
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        self.audit.reach(path)?;
        self.inner.delete(path).await
    }
}

/// Tables that audit every new version.
pub struct AuditedTables {
    inner: FakeTables,
    audit: Audit,
}

impl AuditedTables {
    pub fn new(inner: FakeTables, audit: &Audit) -> Self {
        Self { inner, audit: audit.clone() }
    }
}

#[async_trait]
impl TableCommitter for AuditedTables {
    async fn load(&self, table: Table) -> Result<LiveTable, TableError> {
        self.audit.reach_table(table)?;
        self.inner.load(table).await
    }

    async fn transactions(
        &self,
        table: Table,
        base: u64,
        names: &[String],
    ) -> Result<BTreeMap<String, u64>, TableError> {
        self.audit.reach_table(table)?;
        self.inner.transactions(table, base, names).await
    }

    async fn commit(
        &self,
        table: Table,
        base: u64,
        commit: &TableCommit,
    ) -> Result<CommitOutcome, TableError> {
        self.audit.reach_table(table)?;
        let committed = self.inner.commit(table, base, commit).await;
        let live = now(self.audit.tables.load(table)).unwrap();
        self.audit.look_at_table(&mut self.audit.seen.lock().unwrap(), table, &live);
        committed
    }
}
