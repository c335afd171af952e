//! Taking a shard: claim it, and load what its last owner left.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, Timestamp};

use super::StreamPorts;
use super::progress::{Offsets, TopicProgress};
use super::shard::{LiveShard, read_offsets};
use crate::archive_index::ArchiveDates;
use crate::bases;
use crate::checkpoint::{Checkpoint, OwnerKind, RulesFrom};
use crate::claim::{self, Claimant};
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::rules::RuleBook;
use crate::snapshot::ShardState;

/// Hours to fold at first.
const WINDOW_FIRST: i64 = 2;

/// Hours after now whose archive is listed when a shard is taken.
const AHEAD_HOURS: i64 = 24;

/// Who takes a shard.
pub(super) struct Recovery<'a> {
    pub ports: &'a StreamPorts,
    /// Random id of this claim.
    pub owner: Text,
    pub rules: &'a mut RuleBook,
    /// The configured rules.
    pub configured: &'a Rules,
    /// The configured topics.
    pub topics: &'a [Text],
}

impl Recovery<'_> {
    /// Claims a shard and loads it. Nothing is read from Kafka yet.
    pub async fn take(&mut self, shard: Shard) -> Result<LiveShard> {
        let ports = self.ports;
        let claimant = Claimant { owner: self.owner.clone(), kind: OwnerKind::Worker, take_over: true };
        let claimed = claim::claim(&ports.shared, &claimant, shard, None).await?;
        self.rules.load(&*ports.shared.store, &claimed.rules).await?;
        let now = ports.shared.clock.now();
        let mut live = LiveShard {
            shard,
            owner: self.owner.clone(),
            states: None,
            archive: ArchiveDates::default(),
            open: BTreeMap::new(),
            late: BTreeMap::new(),
            letters: Vec::new(),
            topics: self.progress(&claimed, now)?,
            watermark: None,
            refold: None,
            refold_at: None,
            refolded_through: None,
            objects: Vec::new(),
            archived: Vec::new(),
            pending: None,
            replaced: Vec::new(),
            dropped: Vec::new(),
            published_at: None,
            news: false,
            unpublished: false,
            new_bytes: 0,
            aside_bytes: 0,
            decided_at: now,
            retry_at: now,
            failures: 0,
            window: WINDOW_FIRST,
            oldest_base: None,
            state_bytes: 0,
            swept_at: now,
            draft: claimed,
        };
        live.note_bases();
        self.list_archive(&mut live, now).await?;
        self.list_rules(&mut live).await?;
        live.states = self.states(&mut live).await?;
        live.draft.seq += 1;
        Ok(live)
    }

    /// Progress of every topic that the checkpoint or the configuration names.
    fn progress(&self, claimed: &Checkpoint, now: Timestamp) -> Result<BTreeMap<Text, TopicProgress>> {
        let mut offsets: BTreeMap<Text, Offsets> =
            read_offsets(claimed).map_err(|error| WorkerError::Damaged {
                object: names::checkpoint(claimed.shard, claimed.seq),
                cause: error.to_string(),
            })?;
        if let Some(topic) = offsets.keys().find(|topic| !self.topics.contains(topic)) {
            return Err(WorkerError::Configuration(format!(
                "shard {} has read topic '{topic}', which kafka.topics does not name; name it there, for its events \
                 would be left out",
                claimed.shard
            )));
        }
        for topic in self.topics {
            offsets.entry(topic.clone()).or_default();
        }
        Ok(offsets.into_iter().map(|(topic, offsets)| (topic, TopicProgress::new(offsets, now))).collect())
    }

    /// Which open hours have events in the archive.
    async fn list_archive(&self, live: &mut LiveShard, now: Timestamp) -> Result<()> {
        let store = &*self.ports.shared.store;
        let ahead = Hour(now.hour().0 + AHEAD_HOURS);
        let first = match live.draft.closed_through {
            Some(closed) => {
                let last = ahead.max(closed.next());
                live.archive.ensure(store, &live.draft, (closed.next(), last)).await?;
                closed.next()
            }
            // Nothing is closed: the first hour may be any.
            None if live.draft.owners.len() > 1 => {
                live.archive.ensure_all(store, &live.draft).await?;
                Hour(i64::MIN)
            }
            None => return Ok(()),
        };
        live.note_archived(first, Hour(i64::MAX));
        Ok(())
    }

    /// Configured rules of a version that is not listed yet hold from the first hour that has no event.
    async fn list_rules(&mut self, live: &mut LiveShard) -> Result<()> {
        let version = &self.configured.version;
        let listed = |list: &[RulesFrom]| list.iter().any(|rules| rules.version == *version);
        if live.draft.rules.is_empty() || listed(&live.draft.rules) {
            return Ok(());
        }
        self.rules.store(&*self.ports.shared.store, self.configured).await?;
        let newest_open = live.open.keys().next_back().copied();
        let from = newest_open.max(live.draft.closed_through).map(Hour::next);
        let last = live.draft.rules.last().map(|rules| rules.from);
        if let Some(from) = from.max(last.map(Hour::next)) {
            live.draft.rules.push(RulesFrom { from, version: version.clone() });
            live.news = true;
        }
        Ok(())
    }

    /// State at the end of the last hour closed; none while hours must be folded again before it is known. Without a
    /// snapshot of that hour all since the newest there is are dirty, and slices fold them.
    async fn states(&self, live: &mut LiveShard) -> Result<Option<ShardState>> {
        let store = &*self.ports.shared.store;
        let Some(closed) = live.draft.closed_through else { return Ok(Some(ShardState::new())) };
        let newest = live.draft.hours.get(&closed).and_then(|entry| entry.snapshot.clone());
        if let Some(object) = newest
            && let Some(states) = bases::load(store, &object).await?
        {
            return Ok(Some(states));
        }
        if live.draft.dirty.is_empty() {
            let base = bases::nearest(store, &live.draft, closed.next()).await?;
            live.draft.dirty.insert(base.map_or(closed, |(hour, _)| hour.next()));
            live.news = true;
        }
        Ok(None)
    }
}
