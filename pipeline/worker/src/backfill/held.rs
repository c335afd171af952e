//! The shards that this run holds: their last decided checkpoint, and the draft of the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prorata_schemas::time::Timestamp;

use super::{BackfillPorts, Options};
use crate::archive_index::{self, ShardArchive};
use crate::checkpoint::{Checkpoint, OwnerKind};
use crate::claim::{self, Claimant, LEAD};
use crate::error::{Result, WorkerError};
use crate::hour_files::Stamper;
use crate::log::{self, Decision};
use crate::names::Shard;
use crate::publish;
use crate::retention;
use crate::rules::RuleBook;

/// A shard this run holds.
pub(super) struct HeldShard {
    /// What the next checkpoint will say; its sequence number is the next.
    pub draft: Checkpoint,
    /// Whether that differs from the last one.
    pub changed: bool,
    /// Its archive, with what this run has added.
    pub archive: ShardArchive,
}

/// All shards this run holds.
pub(super) struct Held {
    claimant: Claimant,
    shards: BTreeMap<Shard, HeldShard>,
    counter: Arc<AtomicU64>,
    /// Rules by version.
    pub rules: RuleBook,
    commits: u64,
}

impl Held {
    /// Holds none yet.
    pub fn new(options: &Options) -> Self {
        Self {
            claimant: Claimant {
                owner: options.owner.clone(),
                kind: OwnerKind::Backfill,
                take_over: options.take_over,
            },
            shards: BTreeMap::new(),
            counter: Arc::default(),
            rules: RuleBook::default(),
            commits: 0,
        }
    }

    /// Reads which archive files the shards held have. An owner before could add files until it was claimed from, so
    /// this comes after the claim, never before.
    pub async fn list_archive(&mut self, ports: &BackfillPorts) -> Result<()> {
        let mut listed = archive_index::list(&*ports.shared.store).await?;
        for (shard, held) in &mut self.shards {
            let archive = listed.remove(shard).unwrap_or_default();
            held.archive = archive_index::admitted(archive, &held.draft);
        }
        Ok(())
    }

    /// Commits made to tables so far.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Shard, &HeldShard)> {
        self.shards.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Shard, &mut HeldShard)> {
        self.shards.iter_mut()
    }

    pub fn get(&self, shard: Shard) -> Result<&HeldShard> {
        self.shards.get(&shard).ok_or(WorkerError::Internal("a shard is used that was not claimed"))
    }

    pub fn get_mut(&mut self, shard: Shard) -> Result<&mut HeldShard> {
        self.shards.get_mut(&shard).ok_or(WorkerError::Internal("a shard is used that was not claimed"))
    }

    /// Gives names to new objects of a shard, until its next checkpoint.
    pub fn stamper(&self, shard: Shard) -> Result<Stamper> {
        let seq = self.get(shard)?.draft.seq;
        Ok(Stamper { seq, owner: self.claimant.owner.clone(), counter: Arc::clone(&self.counter) })
    }

    /// Takes a shard unless it is held already. Its archive is not known yet.
    pub async fn claim(&mut self, ports: &BackfillPorts, shard: Shard) -> Result<()> {
        if self.shards.contains_key(&shard) {
            return Ok(());
        }
        let lead = self.shards.get(&LEAD).map(|held| held.draft.seq - 1);
        let store = &*ports.shared.store;
        let claimed = claim::claim(&ports.shared, &self.claimant, shard, lead).await?;
        self.rules.load(store, &claimed.rules).await?;
        let mut draft = claimed;
        draft.seq += 1;
        self.shards.insert(shard, HeldShard { draft, changed: false, archive: ShardArchive::new() });
        Ok(())
    }

    /// Takes a shard that events have come for, with its archive.
    pub async fn claim_for_events(&mut self, ports: &BackfillPorts, shard: Shard) -> Result<()> {
        if self.shards.contains_key(&shard) {
            return Ok(());
        }
        self.claim(ports, shard).await?;
        let held = self.get_mut(shard)?;
        // A shard that nobody owned before has no archive.
        if held.draft.owners.len() > 1 {
            let mut listed = archive_index::list(&*ports.shared.store).await?;
            held.archive = archive_index::admitted(listed.remove(&shard).unwrap_or_default(), &held.draft);
        }
        Ok(())
    }

    /// Decides the next checkpoint of every shard that has changed, and publishes them together.
    pub async fn checkpoint(&mut self, ports: &BackfillPorts, now: Timestamp) -> Result<()> {
        let mut dropped = Vec::new();
        let mut decided: Vec<Shard> = Vec::new();
        for (shard, held) in self.shards.iter_mut().filter(|(_, held)| held.changed) {
            dropped.extend(retention::prune(&mut held.draft));
            held.draft.written_at = now;
            if log::decide(&*ports.shared.store, &held.draft).await? == Decision::Anothers {
                return Err(WorkerError::Taken { shard: *shard });
            }
            decided.push(*shard);
        }
        if decided.is_empty() {
            return Ok(());
        }
        let checkpoints: Vec<&Checkpoint> =
            decided.iter().filter_map(|shard| self.shards.get(shard)).map(|held| &held.draft).collect();
        let published =
            publish::publish(&*ports.shared.tables, &*ports.shared.clock, &checkpoints, &self.claimant.owner)
                .await?;
        self.commits += published.commits;
        if let Some(shard) = published.fenced.keys().next() {
            return Err(WorkerError::Taken { shard: *shard });
        }
        for shard in decided {
            let held = self.get_mut(shard)?;
            held.changed = false;
            held.draft.seq += 1;
            held.draft.hours_are_held();
        }
        for snapshot in dropped {
            if let Err(error) = ports.shared.store.delete(&snapshot).await {
                tracing::debug!(%error, "a snapshot that is not needed stays");
            }
        }
        Ok(())
    }
}
