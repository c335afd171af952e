//! The shards that this run owns, each with its last decided checkpoint and the draft of the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prorata_schemas::Text;
use prorata_schemas::time::{Hour, WallTime};

use super::BackfillOptions;
use crate::checkpoint::claim::{self, Claimant};
use crate::checkpoint::log::{self, Appended, Log};
use crate::checkpoint::publish;
use crate::checkpoint::retention::Retention;
use crate::checkpoint::sweep;
use crate::checkpoint::{ArchivedFile, Draft, ObjectNamer, OwnerKind};
use crate::error::{Result, WorkerError};
use crate::names::{self, ArchivePath, Shard};
use crate::ports::{Clock, ObjectStore, Ports, StoreError};
use crate::shard::archive::ArchiveIndex;
use crate::shard::clock::WitnessedClock;
use crate::shard::emit::LiveTables;
use crate::shard::recompute;
use crate::shard::rules::RuleBook;

const NOT_CLAIMED: WorkerError = WorkerError::Internal("a shard is used but was not claimed");

/// A shard that this run owns.
pub(super) struct OwnedShard {
    /// The draft of the next checkpoint.
    pub draft: Draft,
    /// The shard's archive, with the files that this run has added.
    pub archive: ArchiveIndex,
    /// The progress of recomputation.
    pub recompute: recompute::RecomputeRun,
    /// Live table files of hours that have left the checkpoint, read as needed.
    pub live: LiveTables,
    log: Log,
    /// Sequence number of this run's claim.
    claim_seq: u64,
}

impl OwnedShard {
    /// Returns whether a worker has ever owned the shard.
    pub fn has_worker(&self) -> bool {
        self.draft.had_worker
    }

    /// Returns whether an archive file existed before this run.
    pub fn is_earlier(&self, file: &ArchivedFile) -> bool {
        file.object_id.seq <= self.claim_seq
    }

    async fn sweep(&mut self, store: &dyn ObjectStore, now: WallTime) -> Result<(), StoreError> {
        let decided = self.log.decided();
        let listed = store.list(&names::state_folder(decided.shard)).await?;
        let paths = sweep::unneeded_state(&listed, decided, now);
        sweep::delete_all(store, paths).await.map_err(|(_, error)| error)
    }
}

/// All shards that this run owns.
pub(super) struct OwnedShards {
    claimant: Claimant,
    retention: Retention,
    /// The only shards that this run may own; `None` for all shards of the root.
    only: Option<BTreeSet<Shard>>,
    /// The shard that is claimed first.
    lead: Shard,
    /// Shards that cannot be owned, each with the reason.
    left_out: BTreeMap<Shard, String>,
    shards: BTreeMap<Shard, OwnedShard>,
    /// Hours with archived events of shards that this run may not own.
    other_hours: BTreeSet<Hour>,
    /// Whether a worker has owned any shard that this run may not own.
    others_have_worker: bool,
    counter: Arc<AtomicU64>,
    /// Rules by version.
    pub rules: RuleBook,
    commits: u64,
}

impl OwnedShards {
    /// Creates the shards of a run that owns none yet.
    pub fn new(options: &BackfillOptions) -> Self {
        Self {
            claimant: Claimant {
                owner: options.owner.clone(),
                kind: OwnerKind::Backfill,
                take_over: options.take_over,
            },
            retention: options.retention,
            only: options.only_shards.clone(),
            lead: 0,
            left_out: BTreeMap::new(),
            shards: BTreeMap::new(),
            other_hours: BTreeSet::new(),
            others_have_worker: false,
            counter: Arc::default(),
            rules: RuleBook::default(),
            commits: 0,
        }
    }

    /// Returns the shard that is claimed first: the lowest that this run can own.
    pub const fn lead(&self) -> Shard {
        self.lead
    }

    /// Returns the shards that cannot be owned, each with the reason.
    pub const fn left_out(&self) -> &BTreeMap<Shard, String> {
        &self.left_out
    }

    /// Returns whether this run may own a shard.
    pub fn may_own(&self, shard: Shard) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&shard)) && !self.left_out.contains_key(&shard)
    }

    /// Leaves out a shard whose state is broken. Returns the error instead if the run was asked for shards by
    /// number, or if the error does not concern one shard.
    fn leave_out(&mut self, shard: Shard, error: WorkerError) -> Result<()> {
        if self.only.is_some() || !error.is_of_one_shard() {
            return Err(error);
        }
        tracing::warn!(shard, %error, "shard left out");
        self.left_out.insert(shard, error.to_string());
        Ok(())
    }

    /// Claims the lowest shard that this run can own as the lead shard.
    async fn claim_lead(&mut self, ports: &Ports, shards: Shard) -> Result<()> {
        let candidates: Vec<Shard> =
            self.only.as_ref().map_or_else(|| (0..shards).collect(), |only| only.iter().copied().collect());
        for shard in &candidates {
            self.lead = *shard;
            match self.claim(ports, *shard).await {
                Ok(()) => break,
                Err(error) if candidates.last() == Some(shard) => return Err(error),
                Err(error) => self.leave_out(*shard, error)?,
            }
        }
        Ok(())
    }

    /// Claims the lead shard and every shard that has been owned before. In a root with a worker, the wall
    /// clock must agree with the store's clock, because it decides when hours close and which events count.
    pub async fn claim_existing(
        &mut self,
        ports: &Ports,
        clock: &WitnessedClock,
        shards: Shard,
    ) -> Result<()> {
        if let Some(shard) = self.only.iter().flatten().find(|shard| **shard >= shards) {
            return Err(WorkerError::Configuration(format!(
                "--shards names shard {shard}, but the root has {shards} shards, 0 to {}",
                shards - 1
            )));
        }
        let began = clock.monotonic();
        self.claim_lead(ports, shards).await?;
        let lead = self.lead;
        let claimed = names::checkpoint(lead, self.get(lead)?.log.decided().seq);
        let agrees = clock.look(&*ports.store, &claimed, began..clock.monotonic()).await;
        let existing = log::latest_seqs(&*ports.store).await?;
        let mut others = Vec::new();
        for shard in existing.into_keys() {
            if shard >= shards {
                return Err(WorkerError::Damaged {
                    object: names::state_folder(shard),
                    cause: format!("the root has {shards} shards"),
                });
            }
            if self.left_out.contains_key(&shard) {
                continue;
            }
            if self.may_own(shard) {
                if let Err(error) = self.claim(ports, shard).await {
                    self.leave_out(shard, error)?;
                }
                continue;
            }
            match log::latest(&*ports.store, shard).await {
                Ok(latest) => others.push(latest),
                Err(error) if error.is_of_one_shard() => {
                    tracing::warn!(shard, %error, "hours of another shard are not known");
                }
                Err(error) => return Err(error),
            }
        }
        self.others_have_worker = others.iter().any(|other| other.had_worker);
        if self.has_worker() {
            agrees?;
        }
        for other in others {
            let mut archive = ArchiveIndex::of(&other);
            archive.ensure_all(&*ports.store).await?;
            self.other_hours.append(&mut archive.hours());
        }
        Ok(())
    }

    /// Claims a shard and reads the names of its archive files, unless this run owns the shard already.
    pub async fn claim(&mut self, ports: &Ports, shard: Shard) -> Result<()> {
        if self.shards.contains_key(&shard) {
            return Ok(());
        }
        let lead = self.shards.get(&self.lead).map(|owned| owned.log.decided());
        let decided = claim::claim(ports, &self.claimant, shard, lead).await?;
        self.rules.load(&*ports.store, &decided.rules).await?;
        let (draft, claim_seq) = (decided.next_draft(), decided.seq);
        let mut archive = ArchiveIndex::of(&decided);
        archive.ensure_all(&*ports.store).await?;
        let (recompute, live) = (recompute::RecomputeRun::default(), LiveTables::default());
        self.shards
            .insert(shard, OwnedShard { draft, archive, recompute, live, log: Log::new(decided), claim_seq });
        Ok(())
    }

    /// Leaves lost or damaged archive files out of the next checkpoint, and marks their closed hours dirty.
    pub fn drop_archive_files(&mut self, paths: &[String]) -> Result<()> {
        for path in paths {
            let refused = |cause: &str| {
                Err(WorkerError::Configuration(format!("--without-archive-file {path}: {cause}")))
            };
            let Some(ArchivePath { shard, hour, object_id }) = ArchivePath::parse(path) else {
                return refused("name a file by its path under the lake, as in the error message");
            };
            let Some(owned) = self.shards.get_mut(&shard) else {
                return refused("this run does not own its shard; name the shard with --shards");
            };
            let Some(file) = owned.archive.remove(hour, &object_id) else {
                // A run that is repeated has left it out already.
                tracing::warn!(path, "no checkpoint names this archive file, so it already does not count");
                continue;
            };
            tracing::warn!(path, "archive file left out; its events count only if this run brings them");
            owned.draft.drop_archive_file(file);
            if owned.draft.closed_through.is_some_and(|closed| hour <= closed) {
                owned.draft.mark_dirty(hour);
            }
        }
        Ok(())
    }

    /// Returns whether a worker has ever owned any shard of the root.
    pub fn has_worker(&self) -> bool {
        self.others_have_worker || self.shards.values().any(OwnedShard::has_worker)
    }

    /// Notes an hour with events of a shard that this run may not own.
    pub fn note_other_hour(&mut self, hour: Hour) {
        self.other_hours.insert(hour);
    }

    /// Returns the hours with events over all shards of the root.
    pub fn hours(&self) -> BTreeSet<Hour> {
        let owned = self.shards.values().flat_map(|owned| owned.archive.hours());
        owned.chain(self.other_hours.iter().copied()).collect()
    }

    /// Returns the number of commits made to tables so far.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Shard, &OwnedShard)> {
        self.shards.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Shard, &mut OwnedShard)> {
        self.shards.iter_mut()
    }

    pub fn get(&self, shard: Shard) -> Result<&OwnedShard> {
        self.shards.get(&shard).ok_or(NOT_CLAIMED)
    }

    pub fn get_mut(&mut self, shard: Shard) -> Result<&mut OwnedShard> {
        self.shards.get_mut(&shard).ok_or(NOT_CLAIMED)
    }

    /// Returns the rules by version, and a shard to be changed.
    pub fn with_rules(&mut self, shard: Shard) -> Result<(&RuleBook, &mut OwnedShard)> {
        let owned = self.shards.get_mut(&shard);
        let owned = owned.ok_or(NOT_CLAIMED)?;
        Ok((&self.rules, owned))
    }

    /// Returns the input of recomputation: the rules by version, the owner, and every shard with its namer.
    pub fn recompute_parts(
        &mut self,
    ) -> (&RuleBook, &Text, impl Iterator<Item = (Shard, &mut OwnedShard, ObjectNamer)>) {
        let (owner, counter) = (&self.claimant.owner, &self.counter);
        let shards = self.shards.iter_mut().map(move |(shard, owned)| {
            let namer = owned.draft.namer(owner, counter);
            (*shard, owned, namer)
        });
        (&self.rules, owner, shards)
    }

    /// Returns a namer for new objects of a shard, which is valid until the shard's next checkpoint.
    pub fn namer(&self, shard: Shard) -> Result<ObjectNamer> {
        Ok(self.get(shard)?.draft.namer(&self.claimant.owner, &self.counter))
    }

    /// Releases the shards that a worker has owned, because the worker may be waiting for them.
    pub async fn release(&mut self, ports: &Ports, now: WallTime) -> Result<()> {
        for owned in self.shards.values_mut().filter(|owned| owned.has_worker()) {
            owned.draft.touch();
            owned.draft.set_released(true);
        }
        self.checkpoint(ports, now).await
    }

    /// Releases, after an error, the shards that a worker has owned, as far as storage allows. Objects that
    /// were stored for an undecided checkpoint never count, because no checkpoint names them.
    pub async fn release_after_error(&mut self, ports: &Ports) {
        for (shard, _) in self.shards.iter().filter(|(_, owned)| owned.has_worker()) {
            if let Err(error) = release(ports, &self.claimant.owner, *shard).await {
                tracing::warn!(shard, %error, "shard not released; a worker waits for it or takes it over");
            }
        }
    }

    /// Decides the next checkpoint of every shard that has changed, and publishes these checkpoints together.
    pub async fn checkpoint(&mut self, ports: &Ports, now: WallTime) -> Result<()> {
        let (mut replaced, mut decided) = (Vec::new(), Vec::new());
        for (shard, owned) in self.shards.iter_mut().filter(|(_, owned)| owned.draft.is_changed()) {
            let mut draft = std::mem::replace(&mut owned.draft, owned.log.decided().next_draft());
            draft.prune(self.retention);
            let sealed = owned.log.seal(draft, now);
            replaced.extend_from_slice(sealed.replaced());
            if owned.log.append(&*ports.store).await? == Appended::Lost {
                return Err(WorkerError::Taken { shard: *shard });
            }
            let ours = owned.log.decided();
            owned.draft = ours.next_draft();
            owned.archive.follow(ours);
            owned.archive.ensure_all(&*ports.store).await?;
            decided.push(ours.clone());
        }
        if decided.is_empty() {
            return Ok(());
        }
        let owner = &self.claimant.owner;
        let published = publish::publish(ports, &decided, owner).await?;
        self.commits += published.commits;
        if let Some(shard) = published.fenced.keys().next() {
            return Err(WorkerError::Taken { shard: *shard });
        }
        for decided in &decided {
            self.get_mut(decided.shard)?.draft.note_published(decided);
        }
        if let Err((_, error)) = sweep::delete_all(&*ports.store, replaced).await {
            tracing::debug!(%error, "unneeded snapshots kept until the end of a run");
        }
        Ok(())
    }

    /// Deletes state that earlier owners left and no checkpoint needs. A failed deletion is left to the next
    /// owner.
    pub async fn sweep(&mut self, ports: &Ports) {
        for (shard, owned) in self.shards.iter_mut().filter(|(_, owned)| owned.claim_seq > 1) {
            if let Err(error) = owned.sweep(&*ports.store, ports.clock.now()).await {
                tracing::warn!(shard, %error, "unneeded objects left for the next owner");
            }
        }
    }
}

/// Releases a shard of this owner, unless another owner has it.
async fn release(ports: &Ports, owner: &str, shard: Shard) -> Result<()> {
    let latest = log::latest(&*ports.store, shard).await?;
    if latest.owner.as_ref().is_none_or(|latest| &*latest.id != owner) {
        return Ok(());
    }
    Log::new(latest).release(&*ports.store, &*ports.clock).await?;
    Ok(())
}
