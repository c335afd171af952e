//! Events as files in a folder or object store, which `prorata backfill` folds. The state is a log of
//! numbered files in the same place.
//!
//! Each record of the log holds the whole state or the changes of one step, so a batch writes only its
//! changes. The whole state is written after [`STEPS_MAX`] steps, or when the steps are larger than the last
//! whole state. Earlier records are then removed.
//!
//! The store lets only one collector write each number. A collector that starts takes the next number for the
//! whole state. The earlier collector finds that its next number is taken or that a later number exists, and
//! ends.

use async_trait::async_trait;
use bytes::Bytes;
use prorata_collector::{Batch, CollectorState};
use prorata_connectors::store::Store;
use prorata_schemas::time::Timestamp;
use prorata_worker::ports::{ObjectStore, PutOutcome, StoreError};
use serde::{Deserialize, Serialize};

use super::journal::{Journal, NotStored, StateStep, shut_out};
use crate::archive_file::archive_file;
use crate::failure::Failure;

/// Number of steps after which the whole state is written.
const STEPS_MAX: u64 = 64;
/// Total size of the steps, in bytes, up to which their size never causes the whole state to be written.
const STEP_BYTES_MIN: usize = 64 << 10;
/// Maximum number of attempts of a starting collector to claim the next number.
const CLAIMS_MAX: u32 = 5;

/// A record of the log, as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateRecord {
    /// The whole state.
    Whole(CollectorState),
    /// The changes of a step.
    Step(StateStep),
}

/// A record of the log, as it is written.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum WrittenRecord<'s> {
    Whole(&'s CollectorState),
    Step(&'s StateStep),
}

/// A journal of files in a folder.
pub struct FileJournal {
    store: Store,
    organization_id: String,
    cluster_id: String,
    /// Number of the record that was written last.
    last: u64,
    /// Number of steps since the whole state was written, their size in bytes, and the size of the whole
    /// state.
    steps: u64,
    step_bytes: usize,
    whole_bytes: usize,
}

impl FileJournal {
    /// Creates a journal in this folder.
    pub fn new(store: Store, organization_id: &str, cluster_id: &str) -> Self {
        Self {
            store,
            organization_id: organization_id.to_owned(),
            cluster_id: cluster_id.to_owned(),
            last: 0,
            steps: 0,
            step_bytes: 0,
            whole_bytes: 0,
        }
    }

    /// Returns the folder of the log. File names in it do not end in `.avro`, so a backfill skips them.
    fn folder(&self) -> String {
        format!("collector-state/{}/", self.cluster_id)
    }

    fn path(&self, number: u64) -> String {
        format!("{}{number:020}.json", self.folder())
    }

    fn shut_out(&self) -> NotStored {
        NotStored::ShutOut(shut_out(&self.cluster_id, &self.folder()))
    }

    /// Returns the numbers of the existing records, ascending.
    async fn numbers(&self) -> Result<Vec<u64>, Failure> {
        let listed = self.store.list(&self.folder()).await.map_err(|error| failure(&error))?;
        let number = |path: &str| path.rsplit('/').next()?.strip_suffix(".json")?.parse().ok();
        Ok(listed.iter().filter_map(|object| number(&object.path)).collect())
    }

    /// Reads the log back to the last whole state, and returns that state with the later steps applied.
    async fn read(&self, numbers: &[u64]) -> Result<CollectorState, Failure> {
        let mut steps = Vec::new();
        for number in numbers.iter().rev() {
            let path = self.path(*number);
            let Some(text) = self.store.get(&path).await.map_err(|error| failure(&error))? else { continue };
            match serde_json::from_slice(&text).map_err(|error| unreadable(&path, &error))? {
                StateRecord::Step(step) => steps.push(step),
                StateRecord::Whole(mut state) => {
                    steps.into_iter().rev().for_each(|step| step.put(&mut state));
                    return Ok(state);
                }
            }
        }
        if numbers.is_empty() { Ok(CollectorState::default()) } else { Err(no_whole(&self.folder())) }
    }

    /// Writes the next record. Returns `false` if another collector has written this number or a later one.
    async fn append(&mut self, bytes: Bytes) -> Result<bool, Failure> {
        let number = self.last + 1;
        let path = self.path(number);
        let written = self.store.put_if_absent(&path, bytes.clone()).await;
        if written.map_err(|error| failure(&error))? == PutOutcome::Exists {
            // A write that seemed to fail may have succeeded.
            let there = self.store.get(&path).await.map_err(|error| failure(&error))?;
            if there.as_ref() != Some(&bytes) {
                return Ok(false);
            }
        }
        // Records before a whole state are removed, so a free number may be an old one.
        let is_last = self.numbers().await?.last().is_none_or(|last| *last <= number);
        self.last = if is_last { number } else { self.last };
        Ok(is_last)
    }

    async fn append_step(&mut self, step: &StateStep) -> Result<(), NotStored> {
        let bytes = encoded(&WrittenRecord::Step(step), 0)?;
        let size = bytes.len();
        if !self.append(bytes).await? {
            return Err(self.shut_out());
        }
        (self.steps, self.step_bytes) = (self.steps + 1, self.step_bytes + size);
        Ok(())
    }

    /// Writes the whole state. Returns `false` if another collector has begun to write.
    async fn append_whole(&mut self, state: &CollectorState) -> Result<bool, Failure> {
        // The record is large, so its memory is allocated once.
        let bytes = encoded(&WrittenRecord::Whole(state), self.whole_bytes + self.whole_bytes / 8)?;
        let size = bytes.len();
        if !self.append(bytes).await? {
            return Ok(false);
        }
        (self.steps, self.step_bytes, self.whole_bytes) = (0, 0, size);
        for number in self.numbers().await?.into_iter().filter(|number| *number < self.last) {
            // Old records only take space, so a failure to delete them is not an error.
            if let Err(error) = self.store.delete(&self.path(number)).await {
                tracing::warn!(%error, "old record of the collector's state not deleted");
                break;
            }
        }
        Ok(true)
    }

    async fn write_events(&self, batch: &Batch) -> Result<(), Failure> {
        let (digest, file) = archive_file(&batch.events).map_err(Failure::storage)?;
        // Files sort by the time of their first event, and equal batches have the same name.
        let first = batch.events.iter().map(|event| event.event_time).min().unwrap_or(Timestamp(0));
        let first = first.to_string().get(..19).unwrap_or_default().replace(':', "");
        let path = format!("{}/{first}-{digest}.avro", self.organization_id);
        self.store.put_if_absent(&path, file.into()).await.map(drop).map_err(|error| failure(&error))
    }
}

#[async_trait]
impl Journal for FileJournal {
    async fn load(&mut self) -> Result<CollectorState, Failure> {
        for _ in 0..CLAIMS_MAX {
            let numbers = self.numbers().await?;
            let state = self.read(&numbers).await?;
            self.last = numbers.last().copied().unwrap_or(0);
            if self.append_whole(&state).await? {
                return Ok(state);
            }
        }
        Err(shut_out(&self.cluster_id, &self.folder()))
    }

    async fn store(&mut self, batch: &Batch, state: &CollectorState) -> Result<(), NotStored> {
        if !batch.events.is_empty() {
            // This step is written even without intents, because it shows whether another collector has
            // begun.
            self.append_step(&StateStep::intents(batch)).await?;
            self.write_events(batch).await?;
        }
        self.append_step(&StateStep::changes(batch)).await?;
        let is_long = self.step_bytes > self.whole_bytes.max(STEP_BYTES_MIN) || self.steps >= STEPS_MAX;
        if is_long && !self.append_whole(state).await? {
            return Err(self.shut_out());
        }
        Ok(())
    }
}

fn encoded(record: &WrittenRecord<'_>, capacity: usize) -> Result<Bytes, Failure> {
    let mut bytes = Vec::with_capacity(capacity);
    serde_json::to_writer(&mut bytes, record).map_err(Failure::storage)?;
    Ok(bytes.into())
}

fn failure(error: &StoreError) -> Failure {
    if error.kind.is_retryable() { Failure::storage(error) } else { Failure::usage(error) }
}

fn unreadable(path: &str, error: &serde_json::Error) -> Failure {
    Failure::usage(format!(
        "the collector's state {path} cannot be read: {error}; restore it, or remove it to start from scratch"
    ))
}

fn no_whole(folder: &str) -> Failure {
    Failure::usage(format!(
        "the collector's state in {folder} lacks its first record; restore it, or remove the folder to start \
         from scratch"
    ))
}

#[cfg(test)]
mod tests {
    use prorata_collector::object::ObjectKind;
    use prorata_collector::{Announced, Key, Phase, PodsVersion};
    use prorata_schemas::Text;
    use prorata_schemas::event::{Event, Payload, PodUsage};

    use super::*;
    use crate::wiring;

    fn journal(folder: &tempfile::TempDir) -> FileJournal {
        FileJournal::new(wiring::store(folder.path().to_str().unwrap()).unwrap(), "o", "c")
    }

    fn entry(id: u32, last: i64) -> (Key, Announced) {
        let key = Key { kind: ObjectKind::Pod, id: format!("pod-{id}").into() };
        let text = || Text::from("text");
        let announced = Announced {
            phase: Phase::Started,
            last: Timestamp(last),
            hash: 7,
            subject: text(),
            namespace: text(),
            name: text(),
            intended_start: None,
            intended_stop: None,
        };
        (key, announced)
    }

    fn event(at: i64) -> Event {
        let usage = PodUsage {
            pod_uid: "p".into(),
            interval_end: Timestamp(at + 1),
            cpu_millis: 0,
            memory_bytes: 0,
            gpu_millis: 0,
            gpu_memory_bytes: None,
        };
        Event::new("o".into(), Timestamp(at), Payload::PodUsage(usage))
    }

    fn batch(number: u32) -> Batch {
        let (key, announced) = entry(number, i64::from(number));
        let (gone, _) = entry(number.wrapping_sub(3), 0);
        Batch {
            intents: vec![(key.clone(), announced.clone())],
            events: vec![event(i64::from(number))],
            changes: vec![(key, Some(announced)), (gone, None)],
            since: Some(Timestamp(1)),
            pods_version: Some(PodsVersion { version: number.to_string().into(), has_waiting: false }),
            ..Batch::default()
        }
    }

    /// Applies the changes of a batch to `state`, and stores the batch.
    async fn store(
        writer: &mut FileJournal,
        batch: &Batch,
        state: &mut CollectorState,
    ) -> Result<(), NotStored> {
        StateStep::changes(batch).put(state);
        writer.store(batch, state).await
    }

    #[tokio::test]
    async fn stored_state_is_loaded_and_the_log_stays_short() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = journal(&folder);
        let mut stored = writer.load().await.unwrap();
        assert_eq!(stored, CollectorState::default());
        for number in 0..150 {
            store(&mut writer, &batch(number), &mut stored).await.unwrap();
            if number % 40 == 0 {
                let reader = journal(&folder);
                let state = reader.read(&reader.numbers().await.unwrap()).await.unwrap();
                assert_eq!(state, stored, "after batch {number}");
            }
        }
        let records = writer.numbers().await.unwrap().len();
        assert!(records <= STEPS_MAX as usize + 2, "{records} records");
        let names: Vec<_> = stored.announced.keys().map(|key| key.id.to_string()).collect();
        assert_eq!(names, ["pod-147", "pod-148", "pod-149"]);
        assert_eq!(journal(&folder).load().await.unwrap(), stored);
    }

    #[tokio::test]
    async fn the_collector_that_loaded_last_writes_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = journal(&folder);
        let mut stored = first.load().await.unwrap();
        store(&mut first, &batch(1), &mut stored).await.unwrap();
        let files = || std::fs::read_dir(folder.path().join("o")).unwrap().count();
        let mut second = journal(&folder);
        let mut of_second = second.load().await.unwrap();
        assert_eq!(of_second, stored);
        // The first collector is shut out, however much the second has written and removed meanwhile.
        for number in 2..80 {
            if [2, 3, 79].contains(&number) {
                let before = files();
                let outcome = store(&mut first, &batch(1_000 + number), &mut stored).await;
                let Err(NotStored::ShutOut(failure)) = outcome else { panic!("{outcome:?}") };
                assert!(failure.to_string().contains("another collector of cluster c"), "{failure}");
                assert_eq!(failure.code(), 2);
                assert_eq!(files(), before, "nothing was sent");
            }
            store(&mut second, &batch(number), &mut of_second).await.unwrap();
        }
        assert_eq!(journal(&folder).load().await.unwrap(), of_second);
    }

    #[tokio::test]
    async fn a_damaged_log_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = journal(&folder);
        writer.load().await.unwrap();
        let path = folder.path().join(writer.path(1));
        std::fs::write(&path, "{}").unwrap();
        let failure = journal(&folder).load().await.unwrap_err().to_string();
        assert!(failure.contains("collector-state/c/00000000000000000001.json cannot be read"), "{failure}");
        let step = encoded(&WrittenRecord::Step(&StateStep::changes(&batch(1))), 0).unwrap();
        std::fs::write(&path, step).unwrap();
        let failure = journal(&folder).load().await.unwrap_err().to_string();
        assert!(failure.contains("lacks its first record"), "{failure}");
    }
}
