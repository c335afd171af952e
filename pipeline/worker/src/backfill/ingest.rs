//! Pass 1: copies the foreign events that the archive does not hold yet into the archive, by shard and event
//! hour.
//!
//! Events gather in memory up to a limit, are sorted, and go to one file per shard and hour. An event that
//! enters a closed hour marks the hour dirty. Rejected records go to the lead shard's folder under
//! `dead-letter/`. Known events are not written again, nor are files of rejected records that the root
//! already holds. So a second run over the same input adds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use prorata_schemas::body;
use prorata_schemas::event::EventKind;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::WallTime;
use rayon::prelude::{IntoParallelIterator, ParallelIterator};

use super::Run;
use super::plan;
use super::readers::{self, Arrival, Read, Reading};
use crate::checkpoint::{ArchivedFile, log};
use crate::error::{Result, WorkerError};
use crate::names::{self, ArchivePath, Shard, ShardHour};
use crate::objects::{self, CONCURRENCY};
use crate::ports::{Archive, DeadLetter, ErrorKind, Input, InputFile, StoreError};
use crate::shard::Body;
use crate::shard::clock::ClockLimit;
use crate::shard::dead_letters::DeadLetterFile;
use crate::shard::reading::{FileToRead, unknown_events};
use crate::shard::rules::RulesByHour;
use crate::shard::window::EVENT_OVERHEAD;

/// Returns the Avro files of the input, and the number of other files. An input without Avro files is an
/// error.
pub(super) async fn list_input(input: &dyn Input) -> Result<(Vec<InputFile>, u64)> {
    let all = input.list().await.map_err(|error| {
        let path =
            if error.path.is_empty() { "--events".to_owned() } else { format!("{} of --events", error.path) };
        WorkerError::Store(StoreError { path, ..error })
    })?;
    let (avro, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|file| file.path.ends_with(".avro"));
    for file in &others {
        tracing::debug!(file = file.path, "file skipped: its name does not end in .avro");
    }
    if avro.is_empty() {
        return Err(WorkerError::Configuration(
            "--events holds no file whose name ends in .avro; name the folder with the Avro object container \
             files"
                .into(),
        ));
    }
    Ok((avro, others.len() as u64))
}

/// Maximum number of times that the input is listed again because some of its files are gone. An owner that
/// merges its archive replaces the files of each hour once or twice.
const LISTED_AGAIN_MAX: usize = 8;

/// Returns the limit on how far in the future an event may lie. The limit counts from the wall clock, or from
/// the end of the hour that `--to` names, whichever is later. In a root with a worker, `--to` cannot name an
/// hour later than the wall clock's.
fn clock_limit(run: &Run) -> ClockLimit {
    let now = run.ports.shared.clock.now();
    let named = run.options.to.map_or(now, |to| WallTime(to.end().0));
    ClockLimit { now: now.max(named), max_clock_skew: run.options.max_clock_skew }
}

/// Reads all files, and archives the events that are new. If files of another root's archive are gone, the
/// owner of that root has merged them, so their folders are listed again.
pub(super) async fn ingest(run: &mut Run, files: Vec<InputFile>) -> Result<()> {
    let mut dead_letters = DeadLetterWriter::load(run).await?;
    let input = Arc::clone(&run.ports.input);
    for rejected in input.rejected().chunks(readers::DEAD_LETTERS_MAX) {
        dead_letters.write(run, rejected).await?;
    }
    let mut listed: BTreeSet<String> = files.iter().map(|file| file.path.clone()).collect();
    let (mut files, mut again) = (files, 0..LISTED_AGAIN_MAX);
    while !files.is_empty() {
        run.outcome.files += files.len() as u64;
        let gone = ingest_files(run, files, &mut dead_letters).await?;
        run.outcome.files -= gone.len() as u64;
        let Some(first) = gone.first() else { break };
        files = instead_of(&gone, list_input(&*input).await?.0, &mut listed);
        if files.is_empty() || again.next().is_none() {
            let cause = "it was listed but does not exist, and no later file of its folder can have its \
                         events";
            let error = StoreError::new(ErrorKind::Missing, "read", &first.path, cause);
            return Err(error.into());
        }
        tracing::info!(gone = gone.len(), instead = files.len(), "input files were merged meanwhile");
    }
    Ok(())
}

/// Returns the found files that were not listed before and that lie in the folder of a `gone` file. Adds them
/// to `listed`.
fn instead_of(gone: &[InputFile], found: Vec<InputFile>, listed: &mut BTreeSet<String>) -> Vec<InputFile> {
    let folders: BTreeSet<&str> =
        gone.iter().filter_map(|file| readers::folder_of_archive(&file.path)).collect();
    let is_wanted = |file: &InputFile| {
        readers::folder_of_archive(&file.path).is_some_and(|folder| folders.contains(folder))
    };
    found.into_iter().filter(|file| is_wanted(file) && listed.insert(file.path.clone())).collect()
}

/// Reads `files`, archives their new events, and returns the files that no longer exist.
async fn ingest_files(
    run: &mut Run,
    files: Vec<InputFile>,
    dead_letters: &mut DeadLetterWriter,
) -> Result<Vec<InputFile>> {
    let files_all = files.len() as u64;
    let default_rules = Arc::new(run.options.rules.clone());
    let reading = Reading {
        input: Arc::clone(&run.ports.input),
        archive: Arc::clone(&run.ports.shared.archive),
        root: run.root.clone(),
        files,
        rules: currencies(run)?,
        clock_limit: clock_limit(run),
        history: plan::history_limits(run),
        default_history: plan::history_limit(run, None),
        default_rules,
        only: run.options.only_shards.clone(),
        left_out: run.shards.left_out().keys().copied().collect(),
        organizations: run.options.organizations.clone(),
    };
    let mut queue = readers::start(reading, run.options.threads);
    let mut buffer = Buffer::default();
    let mut gone = Vec::new();
    let mut files_done = 0;
    while let Some(read) = queue.recv().await {
        match read {
            Read::Events(events) => {
                run.outcome.events_read += events.len() as u64;
                for event in events {
                    if run.shards.may_own(event.shard) {
                        buffer.push(event);
                    } else {
                        run.outcome.events_elsewhere += 1;
                        run.shards.note_other_hour(event.hour);
                    }
                }
            }
            Read::DeadLetters(batch) => dead_letters.write(run, &batch).await?,
            Read::Failed(error) => return Err(error.into()),
            Read::Gone(file) => {
                files_done += 1;
                gone.push(file);
            }
            Read::Done => {
                files_done += 1;
                run.ports.progress.reading(files_done, files_all, run.outcome.events_read);
            }
        }
        if buffer.bytes >= run.options.buffer_bytes {
            flush(run, std::mem::take(&mut buffer)).await?;
            let now = run.checkpointed_by();
            run.shards.checkpoint(&run.ports.shared, now).await?;
        }
    }
    if files_done != files_all {
        return Err(WorkerError::Internal("the readers ended before all files were read"));
    }
    flush(run, buffer).await?;
    Ok(gone)
}

/// Returns the rules that define each shard's currencies: the listed rules of each hour. The result is empty
/// if this run replaces the rules.
fn currencies(run: &Run) -> Result<BTreeMap<Shard, RulesByHour>> {
    if run.options.rewrite_rules {
        return Ok(BTreeMap::new());
    }
    let listed = run.shards.iter().filter(|(_, owned)| !owned.draft.rules.is_empty());
    let rules = |owned| run.shards.rules.for_judging(owned);
    listed.map(|(shard, owned)| Ok((*shard, rules(&owned.draft)?))).collect()
}

/// The number of hours whose new events are compared with the archive at a time.
const COMPARED_AT_A_TIME: usize = 4;

/// New events in memory.
#[derive(Default)]
struct Buffer {
    hours: BTreeMap<ShardHour, Vec<Body>>,
    bytes: u64,
}

impl Buffer {
    fn push(&mut self, event: Arrival) {
        let Arrival { shard, hour, kind, body } = event;
        self.bytes += body.len() as u64 + EVENT_OVERHEAD;
        self.hours.entry(ShardHour { shard, hour }).or_default().push((kind, body));
    }
}

/// The new events of one shard's hour.
struct Bucket {
    path: ArchivePath,
    /// Events that no archive file from before this run holds, in archive order.
    events: Vec<Body>,
    known: u64,
    /// Whether the hour is closed.
    is_closed: bool,
}

async fn flush(run: &mut Run, buffer: Buffer) -> Result<()> {
    let shards: BTreeSet<Shard> = buffer.hours.keys().map(|of| of.shard).collect();
    for shard in shards {
        run.shards.claim(&run.ports.shared, shard).await?;
    }
    let mut hours = buffer.hours.into_iter().peekable();
    while hours.peek().is_some() {
        let chunk: Vec<_> = hours.by_ref().take(4 * CONCURRENCY).collect();
        let mut unread = Vec::new();
        for (ShardHour { shard, hour }, events) in chunk {
            let object_id = run.shards.namer(shard)?.next();
            let owned = run.shards.get(shard)?;
            let earlier = owned.archive.files(hour).filter(|file| owned.is_earlier(file));
            let earlier: Vec<FileToRead> = earlier.map(|file| file.to_read(shard)).collect();
            let is_closed = owned.draft.closed_through.is_some_and(|closed| hour <= closed);
            let path = ArchivePath { shard, hour, object_id };
            unread.push((path, is_closed, events, earlier));
        }
        let shared = &run.ports.shared;
        let compare = unread.into_iter().map(|(path, is_closed, events, earlier)| async move {
            let all = events.len();
            let events = unknown_events(shared, earlier, events).await?;
            let known = (all - events.len()) as u64;
            Ok::<_, WorkerError>(Bucket { path, events, known, is_closed })
        });
        let compare = stream::iter(compare.collect::<Vec<_>>()).buffered(COMPARED_AT_A_TIME);
        let buckets = compare.try_collect().await?;
        archive(run, buckets).await?;
    }
    Ok(())
}

/// Encodes the buckets on all cores, stores new events, and marks closed hours dirty.
async fn archive(run: &mut Run, buckets: Vec<Bucket>) -> Result<()> {
    let port = Arc::clone(&run.ports.shared.archive);
    let encode = move || -> Vec<Result<Encoded>> {
        buckets.into_par_iter().map(|bucket| encode_bucket(&*port, bucket)).collect()
    };
    let encoded = tokio::task::spawn_blocking(encode).await?;
    let encoded: Vec<Encoded> = encoded.into_iter().collect::<Result<_>>()?;
    let store = &run.ports.shared.store;
    let new = encoded.iter().filter(|file| file.new > 0);
    objects::put_all(&**store, new.map(|file| (file.path.path(), file.bytes.clone()))).await?;
    for file in encoded {
        run.outcome.events_new += file.new;
        run.outcome.events_known += file.known;
        if file.new == 0 {
            continue;
        }
        let Encoded { path, bytes, organizations, .. } = file;
        let ArchivePath { shard, hour, object_id } = path;
        let owned = run.shards.get_mut(shard)?;
        let file = ArchivedFile { hour, object_id, bytes: bytes.len() as u64 };
        owned.archive.add(file.clone());
        owned.draft.name_archive_file(file);
        owned.draft.mark_dirty_of_all(&organizations, hour);
    }
    Ok(())
}

struct Encoded {
    path: ArchivePath,
    bytes: Bytes,
    /// The organizations with new events; empty if the hour is open.
    organizations: BTreeSet<OrganizationId>,
    new: u64,
    known: u64,
}

fn encode_bucket(archive: &dyn Archive, bucket: Bucket) -> Result<Encoded> {
    let Bucket { path, events, known, is_closed } = bucket;
    let new = events.len() as u64;
    let bytes = if events.is_empty() {
        Vec::new()
    } else {
        let bodies: Vec<(EventKind, &[u8])> = events.iter().map(|(kind, body)| (*kind, &**body)).collect();
        archive.write(&bodies)?
    };
    let mut organizations = BTreeSet::new();
    if is_closed {
        let ids: BTreeSet<&[u8]> = events.iter().map(|(_, body)| body::organization_of(body)).collect();
        for id in ids {
            let id = std::str::from_utf8(id);
            let id = id.map_err(|_| WorkerError::Internal("an event that was read has no organization"))?;
            organizations.insert(id.into());
        }
    }
    Ok(Encoded { path, bytes: bytes.into(), organizations, new, known })
}

/// A writer of dead letters, with the digests of the dead-letter files that the root already holds.
struct DeadLetterWriter(BTreeSet<String>);

impl DeadLetterWriter {
    async fn load(run: &Run) -> Result<Self> {
        let lead = run.shards.get(run.shards.lead())?;
        let paths = log::read_dead_letter_names(&*run.ports.shared.store, &lead.draft.dead_letters).await?;
        let named = paths.iter().filter_map(|path| names::parse_dead_letters(path));
        Ok(Self(named.map(|(_, digest)| digest).collect()))
    }

    async fn write(&mut self, run: &mut Run, dead_letters: &[DeadLetter]) -> Result<()> {
        for letter in dead_letters {
            run.outcome.reject(letter);
        }
        let file = DeadLetterFile::encode(&*run.ports.shared.archive, dead_letters)?;
        if self.0.contains(&file.digest) {
            return Ok(());
        }
        let lead = run.shards.lead();
        let path = file.path(lead, &run.shards.namer(lead)?);
        objects::put(&*run.ports.shared.store, path.clone(), file.bytes).await?;
        self.0.insert(file.digest);
        run.shards.get_mut(lead)?.draft.name_dead_letters(path, false);
        Ok(())
    }
}
