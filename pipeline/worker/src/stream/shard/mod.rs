//! A shard that this worker holds: its last decided checkpoint, the draft of the next, and the waiting
//! events.
//!
//! The parts change only together and only on success: folding and encoding only read the contents of the
//! shard, and the results replace the contents at the end. So an error in between leaves the shard unchanged,
//! and the step can be retried.

mod budgets;
mod buffer;
mod flush;
mod fold;
mod merge;
mod recover;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prorata_schemas::Text;
use prorata_schemas::ids::OrganizationId;
use prorata_schemas::time::{Hour, WallTime};

use super::watermark::ShardTopics;
use crate::backoff::{self, Backoff};
use crate::checkpoint::log::{Appended, Log};
use crate::checkpoint::retention::Retention;
use crate::checkpoint::snapshot::{ShardState, hold_message};
use crate::checkpoint::{ArchivedFile, Checkpoint, Decided, Draft, ObjectNamer};
use crate::error::Result;
use crate::names::Shard;
use crate::ports::{DeadLetter, ObjectStore};
use crate::shard::Body;
use crate::shard::archive::ArchiveIndex;
use budgets::Costs;
pub(super) use budgets::HoursRead;
use buffer::EventBuffer;
pub(super) use fold::Folding;
use merge::Merging;
pub(super) use recover::{Claimed, Recovery};
use schedule::Recomputation;
pub(super) use schedule::RestatePace;

/// A claim of a shard.
#[derive(Clone, Debug)]
struct Claim {
    shard: Shard,
    /// The owner id of this claim alone.
    owner: Text,
    /// The sequence number of the claim.
    seq: u64,
    /// A counter of objects, over all shards and claims of this process.
    counter: Arc<AtomicU64>,
}

impl Claim {
    /// Returns whether an archive file existed before this claim.
    fn is_earlier(&self, file: &ArchivedFile) -> bool {
        file.object_id.seq <= self.seq
    }
}

/// The publishing state of the shard's tables.
#[derive(Clone, Copy, Debug, Default)]
struct Publication {
    /// The time since which tables may differ from the last decided checkpoint; `None` if they are equal to
    /// it.
    behind_since: Option<WallTime>,
}

/// Objects that no checkpoint names any more.
#[derive(Debug)]
pub(super) struct Garbage {
    /// Paths of objects that wait to be deleted.
    pub paths: BTreeSet<String>,
    /// The time at which the state folder was last searched.
    pub looked_at: WallTime,
}

impl Garbage {
    fn new(now: WallTime) -> Self {
        Self { paths: BTreeSet::new(), looked_at: now }
    }
}

/// A held shard.
pub(super) struct LiveShard {
    claim: Claim,
    retention: Retention,
    log: Log,
    decided_at: WallTime,
    /// The draft of the next checkpoint; not used while that checkpoint is sealed.
    draft: Box<Draft>,
    buffer: EventBuffer,
    topics: ShardTopics,
    archive: ArchiveIndex,
    merging: Merging,
    /// State at the end of the last closed hour; `None` while it must still be recomputed from an older
    /// state.
    states: Option<ShardState>,
    /// Bytes of the state's last snapshot.
    state_bytes: u64,
    recompute: Recomputation,
    publication: Publication,
    garbage: Garbage,
    backoff: Backoff,
    costs: Costs,
    /// The back-off of the next attempt to start reading; `None` once reading has started.
    unread: Option<Backoff>,
    /// The hour up to which events are too late, because earlier hours have left the last checkpoint; see
    /// [`Retention::oldest_base`].
    oldest_base: Option<Hour>,
}

impl LiveShard {
    pub fn shard(&self) -> Shard {
        self.claim.shard
    }

    /// Returns the last decided checkpoint.
    pub fn decided(&self) -> &Decided {
        self.log.decided()
    }

    /// Returns when the last checkpoint was decided.
    pub fn decided_at(&self) -> WallTime {
        self.decided_at
    }

    /// Returns the contents of the next checkpoint so far.
    pub fn next(&self) -> &Checkpoint {
        self.log.sealed().map_or(&**self.draft, |sealed| sealed)
    }

    /// Returns the draft of the next checkpoint, or `None` while it is sealed.
    fn draft(&mut self) -> Option<&mut Draft> {
        (!self.is_sealed()).then_some(&mut *self.draft)
    }

    /// Returns whether the next checkpoint is sealed.
    pub fn is_sealed(&self) -> bool {
        self.log.sealed().is_some()
    }

    pub fn topics(&self) -> &ShardTopics {
        &self.topics
    }

    pub fn topics_mut(&mut self) -> &mut ShardTopics {
        &mut self.topics
    }

    pub fn backoff_mut(&mut self) -> &mut Backoff {
        &mut self.backoff
    }

    pub fn backoff(&self) -> Backoff {
        self.backoff
    }

    pub fn garbage_mut(&mut self) -> &mut Garbage {
        &mut self.garbage
    }

    /// Returns the back-off of the next attempt to start reading; `None` once reading has started.
    pub fn unread(&self) -> Option<Backoff> {
        self.unread
    }

    /// Notes that the shard is read.
    pub fn note_read(&mut self) {
        self.unread = None;
    }

    /// Notes that reading could not be started.
    pub fn note_unread(&mut self, now: WallTime) {
        self.unread.get_or_insert(Backoff::new(backoff::STREAM)).fail(now);
    }

    /// Returns the shard's log.
    pub fn into_log(self) -> Log {
        self.log
    }

    /// Returns the bytes of the shard's state, as last written.
    pub fn state_bytes(&self) -> u64 {
        self.state_bytes
    }

    /// Returns the number of organizations in the shard's state.
    pub fn organizations(&self) -> u64 {
        self.states.as_ref().map_or(0, |states| states.len() as u64)
    }

    /// Returns the number of held organizations, and a message about the first of them; `None` if there are
    /// none.
    pub fn held(&self) -> (u64, Option<String>) {
        let states = self.states.iter().flatten();
        let mut held = states.filter_map(|(id, state)| Some((id, state.hold.as_ref()?))).peekable();
        let first = held.peek().map(|(id, hold)| hold_message(id, hold));
        (held.count() as u64, first)
    }

    /// Returns the oldest hour with events that is not closed.
    pub fn oldest_open_hour(&self) -> Option<Hour> {
        self.buffer.first_open()
    }

    /// Takes an event, as a late event if its hour is closed.
    pub fn push(&mut self, hour: Hour, body: Body) {
        if self.is_closed(hour) {
            self.buffer.push_late(hour, body);
        } else {
            self.buffer.push_open(hour, body);
        }
    }

    /// Takes a rejected message.
    pub fn push_dead_letter(&mut self, letter: DeadLetter) {
        self.buffer.push_dead_letter(letter);
    }

    /// Returns the bytes of events and dead letters in memory.
    pub fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// Returns the bytes of events and dead letters that no checkpoint has taken.
    pub fn new_bytes(&self) -> u64 {
        self.buffer.new_bytes()
    }

    /// Returns whether the archive holds events of open hours that are also in memory.
    pub fn can_spill(&self) -> bool {
        self.buffer.can_spill()
    }

    /// Drops from memory the archived events of the latest open hour that still has any in memory.
    pub fn spill(&mut self) {
        self.buffer.spill();
    }

    /// Returns whether the next checkpoint would differ from the last.
    pub fn has_news(&self) -> bool {
        !self.is_sealed() && self.draft.is_changed() || self.topics.have_moved()
    }

    /// Returns whether the only news is a few events of open hours. Nothing waits for a checkpoint of these
    /// events.
    pub fn is_quiet(&self) -> bool {
        !self.draft.is_changed() && self.buffer.is_quiet()
    }

    /// Returns whether an event of this hour is late.
    pub fn is_closed(&self, hour: Hour) -> bool {
        self.next().closed_through.is_some_and(|closed| hour <= closed)
    }

    /// Returns whether an event of this hour is too late: the hour is closed, and no state from before the
    /// hour is kept. A shard younger than the horizon has its empty beginning as such a state, but only back
    /// to the horizon. Without this limit, one event of 1970 would recompute half a century.
    pub fn is_too_late(&self, hour: Hour) -> bool {
        let horizon = || Some(self.retention.horizon(self.next().closed_through?));
        let oldest = self.oldest_base.or_else(horizon);
        self.is_closed(hour) && oldest.is_some_and(|oldest| hour <= oldest)
    }

    /// Freezes the draft: its contents will be decided. `release` says whether the checkpoint releases the
    /// shard. `sends_budgets` says whether exceeded budgets have a topic.
    pub fn seal(&mut self, now: WallTime, release: bool, sends_budgets: bool) {
        if self.is_sealed() {
            return;
        }
        let mut draft = std::mem::replace(&mut *self.draft, self.log.decided().next_draft());
        draft.set_offsets(self.topics.take_offsets());
        draft.set_released(release);
        if sends_budgets {
            draft.list_budgets(self.log.decided());
        }
        draft.prune(self.retention);
        self.log.seal(draft, now);
        self.buffer.note_sealed();
    }

    /// Sends the sealed checkpoint to the log; each retry sends the same checkpoint. Returns `false` if
    /// another owner has decided this sequence number.
    ///
    /// # Errors
    /// If storage is unavailable: the checkpoint stays sealed.
    pub async fn decide(&mut self, store: &dyn ObjectStore, now: impl Fn() -> WallTime) -> Result<bool> {
        let Some(sealed) = self.log.sealed() else { return Ok(true) };
        let replaced = sealed.replaced().to_vec();
        if self.log.append(store).await? == Appended::Lost {
            return Ok(false);
        }
        let decided = self.log.decided().clone();
        self.archive.follow(&decided);
        self.garbage.paths.extend(replaced);
        self.buffer.note_decided();
        if let Some(closed) = decided.closed_through {
            self.archive.forget_before(self.retention.horizon(closed));
        }
        self.oldest_base = self.retention.oldest_base(&decided);
        let now = now();
        let is_due = decided.hours.values().any(|entry| !entry.published);
        self.publication.behind_since = is_due.then(|| self.publication.behind_since.unwrap_or(now));
        self.decided_at = now;
        *self.draft = decided.next_draft();
        self.note_waiting(now);
        Ok(true)
    }

    /// Returns whether tables may differ from the last decided checkpoint.
    pub fn is_publish_due(&self) -> bool {
        self.publication.behind_since.is_some()
    }

    /// Returns the time at which tables were last known to equal the last decided checkpoint: `now` if they
    /// equal it.
    pub fn published_at(&self, now: WallTime) -> WallTime {
        self.publication.behind_since.unwrap_or(now)
    }

    /// Notes that tables equal this checkpoint.
    pub fn note_published(&mut self, published: &Decided, now: WallTime) {
        if let Some(draft) = self.draft() {
            draft.note_published(published);
        }
        self.publication.behind_since = (self.decided().seq != published.seq).then_some(now);
    }

    /// Returns the path of a decided file of dead letters that has not reached its topic. `None` if there is
    /// none, or a checkpoint is sealed.
    pub fn next_dead_letters(&self) -> Option<&String> {
        if self.is_sealed() {
            return None;
        }
        let mut unsent = self.decided().unsent_dead_letters.iter();
        unsent.find(|path| self.draft.unsent_dead_letters.contains(path))
    }

    /// Notes that a file of dead letters has reached its topic.
    pub fn note_forwarded(&mut self, path: &str) {
        if let Some(draft) = self.draft() {
            draft.remove_dead_letters(path);
        }
    }

    fn namer(&self) -> Option<ObjectNamer> {
        (!self.is_sealed()).then(|| self.draft.namer(&self.claim.owner, &self.claim.counter))
    }
}

/// Late events by organization.
type LateCounts = BTreeMap<OrganizationId, i64>;
