//! A shard that cannot continue: its error, the claim that is still to be released, and the time of the next
//! try.

use std::time::Duration;

use prorata_schemas::time::WallTime;

use crate::backoff::{self, Backoff};
use crate::checkpoint::log::{self, Appended, Log};
use crate::checkpoint::{Decided, OwnerKind};
use crate::error::{Result, WorkerError};
use crate::names::{self, Shard};
use crate::ports::{ObjectStore, Ports};
use crate::status::ShardStop;

/// The time between two reads of a stopped shard's log: short enough that a person who has fixed the shard
/// need not wait long.
const LOOK: Duration = Duration::from_secs(30);

/// The longest time that a backfill may work on a stopped shard without a checkpoint before it counts as
/// dead. It is 15 minutes, many times `backfill.checkpoint_interval`.
const BACKFILL: Duration = Duration::from_secs(15 * 60);

/// The time that a shard must run after it was stopped before it counts as fixed: two hours, longer than the
/// longest delay.
const FIXED: Duration = Duration::from_secs(2 * 3_600);

/// A shard that is stopped.
#[derive(Debug)]
pub(super) struct StoppedShard {
    /// The error that stopped the shard.
    error: WorkerError,
    /// The last known checkpoint of the shard; `None` if the shard could not even be claimed.
    decided: Option<Decided>,
    /// The log with a claim that is still to be released.
    unreleased: Option<Log>,
    /// The back-off of tries that are made although nothing seems to have changed.
    tries: Backoff,
    /// The time at which the shard's log is read next.
    look_at: WallTime,
    /// A backfill that works on the shard: the sequence number of its last checkpoint, and the time at which
    /// that checkpoint was first seen.
    backfill: Option<(u64, WallTime)>,
}

impl StoppedShard {
    /// Creates a stopped shard. `unreleased` is the shard's log if the shard was claimed; `tries` says when
    /// to try again.
    pub fn new(error: WorkerError, unreleased: Option<Log>, tries: Backoff, now: WallTime) -> Self {
        let decided = unreleased.as_ref().map(|log| log.decided().clone());
        let mut stopped = Self { error, decided, unreleased, tries, look_at: now, backfill: None };
        stopped.note_look(now);
        stopped
    }

    /// Notes that the shard is looked at now.
    pub fn note_look(&mut self, now: WallTime) {
        self.look_at = now.after(LOOK);
    }

    /// Returns the error that stopped the shard.
    pub fn into_error(self) -> WorkerError {
        self.error
    }

    /// Returns the log with a claim that is still to be released; `None` if there is no such claim.
    pub fn into_unreleased(self) -> Option<Log> {
        self.unreleased
    }

    /// Notes a claim to release.
    pub fn note_claim(&mut self, claimed: Option<Decided>) {
        self.unreleased = claimed.map(Log::new);
    }

    /// Releases the shard, unless it is released already.
    pub async fn release(&mut self, shard: Shard, ports: &Ports) {
        let Some(log) = &mut self.unreleased else { return };
        match log.release(&*ports.store, &*ports.clock).await {
            Ok(released) => {
                if released == Appended::Ours {
                    self.decided = Some(log.decided().clone());
                }
                self.unreleased = None;
            }
            Err(error) if error.storage_kind().is_some() => {
                tracing::warn!(shard, %error, "stopped shard not released yet: waiting for storage");
            }
            Err(error) => {
                tracing::warn!(shard, %error, "stopped shard cannot be released");
                self.unreleased = None;
            }
        }
    }

    pub fn decided(&self) -> Option<&Decided> {
        self.decided.as_ref()
    }

    /// Returns whether the shard has no claim that is still to be released.
    pub fn is_released(&self) -> bool {
        self.unreleased.is_none()
    }

    /// Returns whether the shard's log is to be read.
    pub fn is_look_due(&self, now: WallTime) -> bool {
        self.look_at <= now
    }

    /// Returns the report for the status.
    pub fn report(&self) -> Option<ShardStop> {
        let reason = self.error.stop_reason()?;
        Some(ShardStop { reason, message: self.error.to_string() })
    }

    /// Returns whether to take the shard again: another owner has decided a checkpoint since and is done, or
    /// the next try is due.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn is_due(&mut self, store: &dyn ObjectStore, shard: Shard, now: WallTime) -> Result<bool> {
        let try_again = self.error.may_heal() && self.tries.is_due(now);
        let Some(decided) = &self.decided else { return Ok(try_again) };
        if store.get(&names::checkpoint(shard, decided.next_seq())).await?.is_none() {
            return Ok(try_again);
        }
        let latest = log::latest(store, shard).await?;
        let at_work =
            latest.owner.as_ref().is_some_and(|owner| owner.kind == OwnerKind::Backfill && !owner.released);
        if at_work {
            let since = self.backfill.filter(|(seq, _)| *seq == latest.seq).map_or(now, |(_, since)| since);
            self.backfill = Some((latest.seq, since));
            if now.since(since) < BACKFILL {
                return Ok(false);
            }
        }
        self.decided = Some(latest);
        Ok(true)
    }
}

/// The number of times that a shard was stopped.
#[derive(Debug)]
pub(super) struct Stops {
    tries: Backoff,
    last: WallTime,
}

impl Stops {
    /// Creates the count of a shard that has not been stopped.
    pub fn new(now: WallTime) -> Self {
        Self { tries: Backoff::new(backoff::STOPPED_SHARD), last: now }
    }

    /// Counts a stop, and returns the back-off of the next try. The count starts over if the shard has run
    /// for long enough.
    pub fn count(&mut self, now: WallTime) -> Backoff {
        if now.since(self.last) > FIXED {
            *self = Self::new(now);
        }
        self.tries.fail(now);
        self.last = now;
        self.tries
    }
}
