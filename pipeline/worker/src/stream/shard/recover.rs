//! Takes a shard: claims it, and loads the state that its last owner left.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prorata_schemas::Text;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, HourRange, WallTime};

use super::{Claim, Costs, Garbage, LiveShard, Publication};
use crate::backoff::{self, Backoff};
use crate::checkpoint::claim::{self, Claimant};
use crate::checkpoint::log::Log;
use crate::checkpoint::retention::Retention;
use crate::checkpoint::snapshot::ShardState;
use crate::checkpoint::snapshot::idle::IdleState;
use crate::checkpoint::{Decided, OwnerKind, RulesFrom, TopicOffsets};
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::ports::Ports;
use crate::shard::archive::ArchiveIndex;
use crate::shard::base::{self, Nearest};
use crate::shard::rules::RuleBook;
use crate::stream::watermark::ShardTopics;

/// An hour after all hours: the last of the year 9999.
const LAST_HOUR: Hour = Hour(70_389_527);

/// A shard that is claimed and not loaded yet.
#[derive(Clone, Debug)]
pub(in crate::stream) struct Claimed {
    /// The random id of the claim.
    owner: Text,
    /// The checkpoint that records the claim.
    pub decided: Decided,
    /// The monotonic time from the start of the claim to its end.
    pub wrote: Range<Duration>,
}

/// The context of taking a shard.
pub(in crate::stream) struct Recovery<'a> {
    pub ports: &'a Ports,
    /// A counter of objects, over all shards and claims.
    pub counter: &'a Arc<AtomicU64>,
    pub rules: &'a mut RuleBook,
    /// The configured rules.
    pub configured: &'a Rules,
    /// The configured topics.
    pub topics: &'a [Text],
    /// Topics that are no longer read.
    pub retired: &'a [Text],
    /// Maximum age, in hours, of the first hour of a shard in which no hour is closed.
    pub max_history_hours: i64,
    pub retention: Retention,
}

impl Recovery<'_> {
    /// Claims a shard under `owner`, an id that only this claim uses.
    pub async fn claim(&self, shard: Shard, owner: Text) -> Result<Claimed> {
        let claimant = Claimant { owner: owner.clone(), kind: OwnerKind::Worker, take_over: true };
        let began = self.ports.clock.monotonic();
        let decided = claim::claim(self.ports, &claimant, shard, None).await?;
        let wrote = began..self.ports.clock.monotonic();
        Ok(Claimed { owner, decided, wrote })
    }

    /// Returns whether a claim is still the latest checkpoint of its shard.
    pub async fn is_latest(&self, claimed: &Claimed) -> Result<bool> {
        let next = names::checkpoint(claimed.decided.shard, claimed.decided.next_seq());
        Ok(self.ports.store.get(&next).await?.is_none())
    }

    /// Loads a claimed shard. Nothing is read from Kafka yet.
    pub async fn load(&mut self, from: &Claimed) -> Result<LiveShard> {
        let (owner, claimed) = (from.owner.clone(), from.decided.clone());
        let shard = claimed.shard;
        self.rules.load(&*self.ports.store, &claimed.rules).await?;
        let now = self.ports.clock.now();
        let archive = self.archive(&claimed).await?;
        let counter = Arc::clone(self.counter);
        let mut live = LiveShard {
            claim: Claim { shard, owner, seq: claimed.seq, counter },
            retention: self.retention,
            decided_at: now,
            draft: Box::new(claimed.next_draft()),
            buffer: Default::default(),
            topics: ShardTopics::new(self.offsets(&claimed)?, now),
            archive,
            merging: Default::default(),
            states: None,
            state_bytes: 0,
            recompute: Default::default(),
            publication: Publication::default(),
            garbage: Garbage::new(now),
            backoff: Backoff::new(backoff::STREAM),
            costs: Costs::default(),
            unread: None,
            oldest_base: self.retention.oldest_base(&claimed),
            log: Log::new(claimed),
        };
        if self.retired.iter().any(|topic| live.decided().offsets.contains_key(topic)) {
            live.topics.note_moved();
        }
        note_listed(&mut live);
        self.check_history(&live, now)?;
        live.states = self.states(&mut live).await?;
        self.list_rules(&mut live).await?;
        Ok(live)
    }

    /// Refuses a shard whose first hour is so old that this worker would reject a message of it: a backfill
    /// has archived the hour. Events that a worker has taken itself may have waited for as long as the
    /// horizon.
    fn check_history(&self, live: &LiveShard, now: WallTime) -> Result<()> {
        let first = live.next_hour().filter(|_| live.decided().closed_through.is_none());
        let Some(first) = first else { return Ok(()) };
        let hours = now.hour().0.saturating_sub(first.0);
        if hours <= self.max_history_hours.saturating_add(self.retention.hours()) {
            return Ok(());
        }
        let (shard, max_history_hours) = (live.shard(), self.max_history_hours);
        Err(WorkerError::HistoryTooLong { shard, first, hours, max_history_hours })
    }

    /// Returns the offsets up to which each configured topic has been read. Drops retired topics, and refuses
    /// any other topic that the checkpoint names.
    fn offsets(&self, claimed: &Decided) -> Result<BTreeMap<Text, TopicOffsets>> {
        let mut offsets = claimed.offsets.clone();
        // The next checkpoint omits them, as if no topic of that name had been read.
        for topic in self.retired {
            if let Some(TopicOffsets { next, .. }) = offsets.remove(topic) {
                tracing::warn!(shard = claimed.shard, %topic, next, "retired topic removed");
            }
        }
        if let Some(topic) = offsets.keys().find(|topic| !self.topics.contains(topic)) {
            return Err(WorkerError::Configuration(format!(
                "shard {} has read topic '{topic}', which kafka.topics does not name, so its events would be \
                 left out; name it there, or in kafka.retired_topics once nobody writes to it",
                claimed.shard
            )));
        }
        for topic in self.topics {
            offsets.entry(topic.clone()).or_default();
        }
        Ok(offsets)
    }

    /// Returns the index of the archive, with the names of the files of open hours.
    async fn archive(&self, decided: &Decided) -> Result<ArchiveIndex> {
        let mut archive = ArchiveIndex::of(decided);
        match decided.closed_through {
            Some(closed) => {
                archive.ensure(&*self.ports.store, HourRange::new(closed.next(), LAST_HOUR)).await?
            }
            // No hour is closed: the first hour may be any.
            None => archive.ensure_all(&*self.ports.store).await?,
        }
        Ok(archive)
    }

    /// Lists the configured rules if their version is not listed yet. They are in force from the first hour
    /// without an event. If this program does not compute the last listed version, they are in force from the
    /// first open hour, of which nothing is published.
    async fn list_rules(&mut self, live: &mut LiveShard) -> Result<()> {
        let version = &self.configured.version;
        let listed = &live.decided().rules;
        let Some(RulesFrom { from: last, version: in_force }) = listed.last().cloned() else { return Ok(()) };
        if listed.iter().any(|rules| rules.version == *version) {
            if in_force != *version {
                tracing::warn!(
                    shard = live.shard(),
                    configured = &**version,
                    in_force = &*in_force,
                    "configured rules not in force: the shard has left this version for another; to return \
                     to them, give them a new version"
                );
            }
            return Ok(());
        }
        self.rules.store(&*self.ports.store, self.configured).await?;
        let closed = live.decided().closed_through.map(Hour::next);
        if !self.rules.computes(live.decided(), Hour(i64::MAX)) {
            let mut rules = listed.clone();
            let from = closed.unwrap_or(Hour(i64::MIN));
            rules.retain(|listed| listed.from < from);
            let from = if rules.is_empty() { listed.first().map_or(last, |first| first.from) } else { from };
            rules.push(RulesFrom { from, version: version.clone() });
            if let Some(draft) = live.draft() {
                draft.set_rules(rules);
            }
            return Ok(());
        }
        let from = live.buffer.last_open().map(Hour::next).max(closed);
        if let (Some(from), Some(draft)) = (from.max(Some(last.next())), live.draft()) {
            draft.list_rules(from, version.clone());
            draft.touch();
        }
        self.warn_of_other_currency(live);
        Ok(())
    }

    /// Warns about organizations whose prices are not in the currency that the configured rules give them.
    fn warn_of_other_currency(&self, live: &LiveShard) {
        let is_other = |id: &OrganizationId, idle: &IdleState| {
            let currency = self.configured.currency_of(id);
            idle.unpack().is_ok_and(|unpacked| unpacked.state.has_prices_in_other_than(currency))
        };
        let mut other =
            live.states.iter().flatten().filter(|(id, state)| is_other(id, state)).map(|(id, _)| id);
        let Some(first) = other.next() else { return };
        tracing::warn!(
            shard = live.shard(),
            organizations = 1 + other.count(),
            first = %first,
            "the configured rules give organizations a currency that their prices do not use; the prices do \
             not count (other_currency) until producers send them in the new currency"
        );
    }

    /// Returns the state at the end of the last closed hour, or `None` while hours must be recomputed before
    /// it is known. Without a usable snapshot of that hour, all hours since the newest usable snapshot become
    /// dirty, and slices recompute them.
    async fn states(&self, live: &mut LiveShard) -> Result<Option<ShardState>> {
        let store = &*self.ports.store;
        let Some(closed) = live.decided().closed_through else { return Ok(Some(ShardState::new())) };
        let newest = live.decided().hours.get(&closed).filter(|entry| entry.snapshot.is_some()).cloned();
        if let Some(entry) = newest {
            if let Some(states) = base::load_base(store, &entry).await? {
                try_held_again(live, &states, closed);
                return Ok(Some(states));
            }
            if let Some(draft) = live.draft() {
                draft.drop_snapshots(&[closed]);
            }
        }
        if live.decided().dirty.is_empty() {
            let Nearest { base, unusable } = base::nearest_base(store, live.next(), closed.next()).await?;
            if let Some(draft) = live.draft() {
                draft.drop_snapshots(&unusable);
                draft.mark_dirty(base.map_or(closed, |(hour, _)| hour.next()));
            }
        }
        Ok(None)
    }
}

/// Notes which open hours have events in the archive, as the claimed checkpoint names them.
fn note_listed(live: &mut LiveShard) {
    let first = match live.decided().closed_through {
        Some(closed) => closed.next(),
        None if live.claim.seq > 1 => Hour(i64::MIN),
        None => return,
    };
    live.note_archived(HourRange::new(first, Hour(i64::MAX)));
}

/// Marks the refused hour of each held organization dirty if it lies inside the horizon, because this release
/// may be able to fold it. If the engine refuses it again, the state at the end of that hour is unchanged,
/// and recomputation ends there.
fn try_held_again(live: &mut LiveShard, states: &ShardState, closed: Hour) {
    let horizon = live.retention.horizon(closed);
    let Some(draft) = live.draft() else { return };
    for (organization_id, state) in states {
        if let Some(hold) = state.hold.as_ref().filter(|hold| hold.since > horizon) {
            draft.mark_dirty_of(organization_id, hold.since);
        }
    }
}
