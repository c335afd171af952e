//! Reads archive files, a few at a time, on all cores. Events are reduced as soon as they are read, so the
//! unreduced events of an hour need not fit in memory.

pub mod order;
mod organizations;
mod unknown;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use prorata_engine::HourEvents;
use prorata_schemas::body::{self, EventRecordRef, EventRef};
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::reject::Reject;
use prorata_schemas::time::Hour;
use rayon::prelude::{IntoParallelIterator, ParallelIterator};

use self::organizations::Organizations;
pub use self::unknown::unknown_events;
use super::Body;
use crate::error::{Result, WorkerError};
use crate::names::{Shard, ShardHour};
use crate::objects::{self, StoredObject};
use crate::ports::{self, Archive, FormatError, ObjectStore, Ports, Wanted};

/// Maximum number of bytes of archive files, compressed, that are fetched at a time. While these are decoded,
/// at most as many further bytes are fetched. A larger file is still fetched whole.
pub const FETCH_BYTES_MAX: u64 = 16 << 20;

/// An archive file yet to be read.
#[derive(Clone, Debug)]
pub struct FileToRead {
    /// The file's path under the root.
    pub path: String,
    /// The file's size.
    pub bytes: u64,
}

/// Organizations whose events are read; `None` for all.
pub type WantedOrganizations = Option<Arc<BTreeSet<OrganizationId>>>;

/// Events by organization.
pub type ByOrganization = BTreeMap<OrganizationId, HourEvents>;

/// Events of one hour of one shard, as they arrive.
struct Gathered {
    hour: Hour,
    organizations: Organizations<OrganizationId, HourEvents>,
}

impl Gathered {
    fn new(hour: Hour) -> Self {
        Self { hour, organizations: Organizations::new() }
    }

    fn take(&mut self, event: EventRef<'_>) {
        self.of(event.organization_id()).push_ref(event);
    }

    fn of(&mut self, organization_id: &str) -> &mut HourEvents {
        self.organizations.of(organization_id, || HourEvents::new(self.hour))
    }

    fn append(&mut self, other: Self) {
        for (organization_id, events) in other.organizations.into_ascending() {
            self.of(&organization_id).append(events);
        }
    }

    fn finish(self) -> ByOrganization {
        self.organizations.into_ascending().collect()
    }
}

/// Events of several shards, of one hour for each shard.
pub struct HourIntake {
    shards: BTreeMap<Shard, Gathered>,
}

impl HourIntake {
    /// Returns an empty intake for these hours.
    pub fn new(hours: impl IntoIterator<Item = ShardHour>) -> Self {
        Self { shards: hours.into_iter().map(|of| (of.shard, Gathered::new(of.hour))).collect() }
    }

    /// Takes events that are in memory, on all cores.
    ///
    /// # Errors
    /// If an event is damaged.
    pub fn take_bodies(&mut self, shard: Shard, bodies: &[Body]) -> Result<()> {
        let Some(gathered) = self.shards.get_mut(&shard) else { return Ok(()) };
        let hour = gathered.hour;
        let parts = on_all_cores(|part, parts| {
            let mut own = Gathered::new(hour);
            let mut mine = bodies.iter().skip(part).step_by(parts);
            for at in 0.. {
                body::prefetch(at, mine.clone().map(|(_, body)| &**body));
                let Some((kind, bytes)) = mine.next() else { break };
                let event = body::decode_ref(*kind, bytes);
                own.take(event.map_err(|reject| in_memory_damaged(shard, hour, &reject))?);
            }
            Ok(own)
        })?;
        parts.into_iter().for_each(|part| gathered.append(part));
        Ok(())
    }

    /// Takes the events of these files, on all cores.
    fn take_files(
        &mut self,
        archive: &dyn Archive,
        files: &[(Shard, StoredObject)],
        of: &WantedOrganizations,
    ) -> Result<()> {
        let parts = on_all_cores(|part, parts| {
            let mut own = self.empty();
            for (shard, file) in files.iter().skip(part).step_by(parts) {
                let Some(gathered) = own.shards.get_mut(shard) else { continue };
                let wanted = Wanted { organizations: of.as_deref(), bodies: None };
                read_own(archive, file, wanted, |event| gathered.take(event))?;
            }
            Ok(own)
        })?;
        for Self { shards } in parts {
            for (shard, part) in shards {
                if let Some(gathered) = self.shards.get_mut(&shard) {
                    gathered.append(part);
                }
            }
        }
        Ok(())
    }

    fn empty(&self) -> Self {
        let hours = self.shards.iter();
        Self::new(hours.map(|(shard, gathered)| ShardHour { shard: *shard, hour: gathered.hour }))
    }

    /// Removes and returns the events that were taken for a shard.
    pub fn finish(&mut self, shard: Shard) -> ByOrganization {
        self.shards.remove(&shard).map(Gathered::finish).unwrap_or_default()
    }
}

/// Splits work into as many parts as there are cores, and runs all parts in parallel. `work` receives the
/// number of its part, and the number of parts.
fn on_all_cores<T: Send>(work: impl Fn(usize, usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let parts = rayon::current_num_threads().max(1);
    (0..parts).into_par_iter().map(|part| work(part, parts)).collect()
}

/// A file with the step at which it is read.
struct Planned {
    step: usize,
    shard: Shard,
    file: FileToRead,
}

/// Files of consecutive steps, fetched one batch ahead of decoding.
pub struct ArchiveReader {
    store: Arc<dyn ObjectStore>,
    archive: Arc<dyn Archive>,
    wanted: WantedOrganizations,
    planned: VecDeque<Planned>,
    fetched: VecDeque<(usize, Shard, StoredObject)>,
}

impl ArchiveReader {
    /// Returns a reader of these files, each at its step.
    pub fn new(
        ports: &Ports,
        mut files: Vec<(usize, Shard, FileToRead)>,
        wanted: WantedOrganizations,
    ) -> Self {
        files.sort_by_key(|(step, shard, _)| (*step, *shard));
        let planned = files.into_iter().map(|(step, shard, file)| Planned { step, shard, file });
        Self {
            store: Arc::clone(&ports.store),
            archive: Arc::clone(&ports.archive),
            wanted,
            planned: planned.collect(),
            fetched: VecDeque::new(),
        }
    }

    /// Reads the files of a step that belong to shards in `intake`, and returns the intake with their events.
    /// Runs off the async threads. Calls must come in ascending order of step, and within a step, of shard.
    ///
    /// # Errors
    /// If a file is missing or damaged, or storage is unavailable.
    pub async fn read(&mut self, step: usize, mut intake: HourIntake) -> Result<HourIntake> {
        loop {
            if self.fetched.is_empty() {
                self.fetched = fetch(&*self.store, &mut self.planned).await?;
            }
            let mut files = Vec::new();
            let is_next =
                |next: &mut (usize, Shard, _)| next.0 == step && intake.shards.contains_key(&next.1);
            while let Some((_, shard, object)) = self.fetched.pop_front_if(is_next) {
                files.push((shard, object));
            }
            if files.is_empty() {
                return Ok(intake);
            }
            let (archive, wanted) = (Arc::clone(&self.archive), self.wanted.clone());
            let decode = tokio::task::spawn_blocking(move || {
                intake.take_files(&*archive, &files, &wanted)?;
                Ok::<_, WorkerError>(intake)
            });
            if self.fetched.is_empty() {
                let (decoded, fetched) = tokio::join!(decode, fetch(&*self.store, &mut self.planned));
                (intake, self.fetched) = (decoded??, fetched?);
            } else {
                intake = decode.await??;
            }
        }
    }
}

/// Fetches the next files, as many as fit.
async fn fetch(
    store: &dyn ObjectStore,
    planned: &mut VecDeque<Planned>,
) -> Result<VecDeque<(usize, Shard, StoredObject)>> {
    let (mut bytes, mut batch) = (0, Vec::new());
    while let Some(next) =
        planned.pop_front_if(|next| batch.is_empty() || bytes + next.file.bytes <= FETCH_BYTES_MAX)
    {
        bytes += next.file.bytes;
        batch.push(next);
    }
    let objects = fetch_files(store, batch.iter().map(|next| &next.file)).await?;
    Ok(batch.into_iter().zip(objects).map(|(next, object)| (next.step, next.shard, object)).collect())
}

/// Fetches archive files, in this order. A file that was cut off between two blocks would be read without an
/// error, so its size must equal the recorded size.
///
/// # Errors
/// If a file is missing or has another size, or storage is unavailable.
pub async fn fetch_files(
    store: &dyn ObjectStore,
    files: impl Iterator<Item = &FileToRead> + Clone,
) -> Result<Vec<StoredObject>> {
    let objects = objects::get_all(store, files.clone().map(|file| file.path.clone()).collect()).await?;
    for (object, file) in objects.iter().zip(files) {
        let (found, recorded) = (object.bytes.len() as u64, file.bytes);
        if found != recorded {
            let cause = format!("it has {found} bytes, but its checkpoint says {recorded}");
            return Err(WorkerError::Damaged { object: object.path.clone(), cause });
        }
    }
    Ok(objects)
}

/// Reads the events of a file of our own archive, without their bodies. Every record must be an event.
///
/// # Errors
/// If a record is damaged.
pub fn read_own(
    archive: &dyn Archive,
    file: &StoredObject,
    wanted: Wanted<'_>,
    mut each: impl FnMut(EventRef<'_>),
) -> Result<()> {
    archive.read_own(&file.bytes, wanted, &mut each).map_err(|error| damaged(file, &error))
}

/// Reads a file of our own archive, including the bodies of its events. Every record must be an event.
///
/// # Errors
/// If a record is damaged; the error reports what is damaged and where.
pub fn read_archive(
    archive: &dyn Archive,
    file: &StoredObject,
    each: impl FnMut(EventRecordRef<'_>),
) -> Result<()> {
    ports::read_whole(archive, &file.bytes, each).map_err(|error| damaged(file, &error))
}

fn damaged(file: &StoredObject, error: &FormatError) -> WorkerError {
    WorkerError::Damaged { object: file.path.clone(), cause: error.source.to_string() }
}

fn in_memory_damaged(shard: Shard, hour: Hour, reject: &Reject) -> WorkerError {
    let object = format!("an event in memory, hour {hour}, shard {shard}");
    WorkerError::Damaged { object, cause: reject.to_string() }
}
