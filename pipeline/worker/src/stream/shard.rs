//! A shard that this worker holds: what its next checkpoint will say, and the events that wait for it.

use std::collections::BTreeMap;

use bytes::Bytes;
use prorata_schemas::Text;
use prorata_schemas::time::{Hour, Timestamp};

use super::progress::{Offsets, TopicProgress};
use crate::archive_index::ArchiveDates;
use crate::checkpoint::Checkpoint;
use crate::fold::Body;
use crate::names::{Shard, Stamp};
use crate::ports::DeadLetter;
use crate::retention::HORIZON_HOURS;
use crate::snapshot::ShardState;
use crate::source::Start;

/// Bytes that an event takes in memory beside its body.
const EVENT_OVERHEAD: u64 = 64;

/// Events of an hour that is not closed.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenHour {
    /// Events in memory; the first `flushed` of them are in the archive, or wait in the pending checkpoint for it.
    pub events: Vec<Body>,
    /// How many have gone to the archive.
    pub flushed: usize,
    /// How many of them are decided.
    pub decided: usize,
    /// Whether the archive holds events of the hour that are not in memory.
    pub spilled: bool,
    /// Bytes of the events in memory.
    pub bytes: u64,
}

/// Where folding again stands.
pub(super) struct Refold {
    /// The next hour to fold.
    pub next: Hour,
    /// The first hour whose tables are wanted.
    pub emit_from: Hour,
    /// State before `next`.
    pub states: ShardState,
}

/// A checkpoint on its way: nothing of it changes any more.
pub(super) struct Pending {
    pub checkpoint: Checkpoint,
    /// Objects that must be stored before.
    pub objects: Vec<(String, Bytes)>,
    /// Archive files among them.
    pub archived: Vec<(Hour, Stamp, u64)>,
    /// Snapshots that it names no more.
    pub dropped: Vec<String>,
}

/// A held shard.
pub(super) struct LiveShard {
    pub shard: Shard,
    /// Owner id of this claim.
    pub owner: Text,
    /// What the next checkpoint will say; its sequence number is the next.
    pub draft: Checkpoint,
    /// State at the end of the last hour closed; none while it is yet to be folded from an older one.
    pub states: Option<ShardState>,
    pub archive: ArchiveDates,
    /// Hours that are not closed.
    pub open: BTreeMap<Hour, OpenHour>,
    /// New events of closed hours.
    pub late: BTreeMap<Hour, Vec<Body>>,
    /// Rejected messages.
    pub letters: Vec<DeadLetter>,
    pub topics: BTreeMap<Text, TopicProgress>,
    pub watermark: Option<Timestamp>,
    pub refold: Option<Refold>,
    /// When folding again last began at an hour not behind where it had come to.
    pub refold_at: Option<Timestamp>,
    /// How far it had come.
    pub refolded_through: Option<Hour>,
    /// Objects for the next checkpoint.
    pub objects: Vec<(String, Bytes)>,
    /// Archive files among them.
    pub archived: Vec<(Hour, Stamp, u64)>,
    pub pending: Option<Pending>,
    /// Snapshots that the next checkpoint names no more.
    pub replaced: Vec<String>,
    /// Snapshots that no checkpoint names any more.
    pub dropped: Vec<String>,
    /// Whether the next checkpoint would differ from the last.
    pub news: bool,
    /// Whether tables may differ from the last checkpoint decided.
    pub unpublished: bool,
    /// Bytes of events and letters that no decided checkpoint has.
    pub new_bytes: u64,
    /// Bytes of late events and letters in memory.
    pub aside_bytes: u64,
    /// When tables were last made equal to a checkpoint.
    pub published_at: Option<Timestamp>,
    /// When the last checkpoint was decided.
    pub decided_at: Timestamp,
    /// When storage may be asked again, after it failed.
    pub retry_at: Timestamp,
    /// Failures in a row.
    pub failures: u32,
    /// Hours to fold at a time.
    pub window: i64,
    /// The oldest snapshot that the last checkpoint names at or before the horizon: events before it are too late.
    pub oldest_base: Option<Hour>,
    pub state_bytes: u64,
    /// When old checkpoints were last cleared away.
    pub swept_at: Timestamp,
}

impl LiveShard {
    /// Takes an event of an hour that is not closed.
    pub fn push_open(&mut self, hour: Hour, body: Body) {
        let bytes = body.1.len() as u64 + EVENT_OVERHEAD;
        let open = self.open.entry(hour).or_default();
        open.bytes += bytes;
        open.events.push(body);
        self.new_bytes += bytes;
        self.news = true;
    }

    /// Takes an event of a closed hour.
    pub fn push_late(&mut self, hour: Hour, body: Body) {
        let bytes = body.1.len() as u64 + EVENT_OVERHEAD;
        self.late.entry(hour).or_default().push(body);
        self.new_bytes += bytes;
        self.aside_bytes += bytes;
        self.news = true;
    }

    /// Takes a rejected message.
    pub fn push_letter(&mut self, letter: DeadLetter) {
        let bytes = letter.rejected.bytes.len() as u64 + 256;
        self.letters.push(letter);
        self.new_bytes += bytes;
        self.aside_bytes += bytes;
        self.news = true;
    }

    /// Bytes of events and letters in memory.
    pub fn bytes(&self) -> u64 {
        self.open.values().map(|open| open.bytes).sum::<u64>() + self.aside_bytes
    }

    /// Drops from memory what the archive holds of the latest open hour that has any.
    pub fn spill(&mut self) {
        let with_decided = self.open.values_mut().rev().find(|open| open.decided > 0);
        let Some(open) = with_decided else { return };
        open.events.drain(..open.decided);
        open.flushed -= open.decided;
        open.decided = 0;
        open.spilled = true;
        open.bytes = open.events.iter().map(|(_, body)| body.len() as u64 + EVENT_OVERHEAD).sum();
    }

    /// Notes which of these hours have events in the archive that were never in memory here: those of owners before.
    pub fn note_archived(&mut self, first: Hour, last: Hour) {
        let foreign =
            |hour: &Hour| self.archive.files(*hour).iter().any(|file| file.stamp.owner != self.owner);
        let hours: Vec<Hour> =
            self.archive.hours().filter(|hour| (first..=last).contains(hour) && foreign(hour)).collect();
        for hour in hours {
            self.open.entry(hour).or_default().spilled = true;
        }
    }

    /// Whether the archive holds events of open hours that are in memory, too.
    pub fn can_spill(&self) -> bool {
        self.open.values().any(|open| open.decided > 0)
    }

    /// Whether the draft says what is decided: nothing is on its way, and after an error the draft may name what is not
    /// stored.
    pub fn settled(&self) -> bool {
        self.pending.is_none() && self.failures == 0
    }

    /// The first hour that is not closed; none while the shard has had no event.
    pub fn next_hour(&self) -> Option<Hour> {
        let first_open = || self.open.keys().next().copied();
        self.draft.closed_through.map(Hour::next).or_else(first_open)
    }

    /// The last hour that the watermark lets close; none: not one.
    pub fn closable(&self) -> Option<Hour> {
        let last = self.watermark?.hour().previous();
        self.next_hour().filter(|next| *next <= last && self.states.is_some()).map(|_| last)
    }

    /// Whether a slice of dirty hours is to be folded: once that has begun, or where no hour can close before; and it goes
    /// back to an hour that it had come past only so often, for many late events come in a short while, and each may touch
    /// all hours since its own.
    pub fn refold_due(&self, now: Timestamp, every: i64) -> bool {
        let rested = self.refold_at.is_none_or(|began| now.0 - began.0 >= every);
        let begun = self.refold.is_some() || self.states.is_none() || self.refold_goes_on();
        !self.draft.dirty.is_empty() && (begun || rested)
    }

    /// Whether all dirty hours lie behind where folding again has come to.
    pub fn refold_goes_on(&self) -> bool {
        let through = self.refolded_through;
        self.draft.dirty.first().is_some_and(|dirty| through.is_some_and(|through| dirty > through))
    }

    /// Whether an event of this hour is late.
    pub fn is_closed(&self, hour: Hour) -> bool {
        self.draft.closed_through.is_some_and(|closed| hour <= closed)
    }

    /// Whether an event of this hour is too late: its hour is closed, and no state from before it is kept. A shard
    /// younger than the horizon has its empty beginning for that, but no further back than the horizon: else one event
    /// of 1970 would have half a century folded.
    pub fn is_too_late(&self, hour: Hour) -> bool {
        let horizon = |closed: Hour| Hour(closed.0 - HORIZON_HOURS);
        let oldest = self.oldest_base.or(self.draft.closed_through.map(horizon));
        self.is_closed(hour) && oldest.is_some_and(|oldest| hour <= oldest)
    }

    /// Finds the oldest base anew, from a decided checkpoint.
    pub fn note_bases(&mut self) {
        self.oldest_base = self.draft.closed_through.and_then(|closed| {
            let horizon = Hour(closed.0 - HORIZON_HOURS);
            let mut with_snapshot = self.draft.hours.iter().filter(|(_, entry)| entry.snapshot.is_some());
            with_snapshot.next().map(|(hour, _)| *hour).filter(|oldest| *oldest <= horizon)
        });
    }

    /// Whether anything was taken since the last record of its topic partitions was to be compared.
    pub fn has_read(&self) -> bool {
        self.topics.values().any(TopicProgress::has_read)
    }

    /// Where reading of each topic starts.
    pub fn starts(&self) -> BTreeMap<Text, Start> {
        self.topics.iter().map(|(topic, progress)| (topic.clone(), progress.start())).collect()
    }

    /// Next offsets by topic.
    pub fn next_offsets(&self) -> BTreeMap<Text, i64> {
        let next = self.topics.iter().filter_map(|(topic, progress)| Some((topic, progress.offsets.next?)));
        next.map(|(topic, next)| (topic.clone(), next)).collect()
    }

    /// Progress of topics for the checkpoint.
    pub fn offsets(&mut self) -> Result<BTreeMap<String, serde_json::Value>, serde_json::Error> {
        let mut offsets = BTreeMap::new();
        for (topic, progress) in &mut self.topics {
            progress.note_last();
            offsets.insert(topic.to_string(), serde_json::to_value(&progress.offsets)?);
        }
        Ok(offsets)
    }
}

/// Progress of topics as a checkpoint has it.
pub(super) fn read_offsets(checkpoint: &Checkpoint) -> Result<BTreeMap<Text, Offsets>, serde_json::Error> {
    let read = checkpoint.offsets.iter().map(|(topic, value)| {
        let offsets: Offsets = serde_json::from_value(value.clone())?;
        Ok((topic.as_str().into(), offsets))
    });
    read.collect()
}
