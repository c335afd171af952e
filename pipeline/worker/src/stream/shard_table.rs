//! The shards that the group has assigned to a worker: their states, and every transition between them.
//!
//! | state | event | next state |
//! |---|---|---|
//! | absent | the group assigns the shard: [`ShardTable::assign`] | waiting |
//! | waiting | its back-off is over, and it is still assigned: [`ShardTable::begin_loading`] | loading |
//! | waiting | the group does not answer: [`ShardTable::put_off`] | waiting, and asks again |
//! | loading | it is claimed and loaded: [`ShardTable::loaded`] | live |
//! | loading | storage or Kafka does not answer: [`ShardTable::not_loaded`] | waiting, with its claim |
//! | live | another owner has decided, or no checkpoint for a day: [`ShardTable::load_again`] | waiting |
//! | loading, live | an error that concerns this shard alone: [`ShardTable::stop`] | stopped |
//! | stopped | somebody has fixed it, or the next try is due: [`ShardTable::take_stopped`] | loading |
//! | stopped | it is not fixed, or not loaded: [`ShardTable::stop`] | stopped |
//! | any | the group revokes the shard, or the worker ends: [`ShardTable::remove`] | absent |
//!
//! A shard that is being loaded is in no slot: the worker does nothing else meanwhile.

use std::collections::BTreeMap;

use prorata_schemas::time::WallTime;

use super::shard::{Claimed, LiveShard};
use super::stopped::StoppedShard;
use crate::backoff::{self, Backoff};
use crate::checkpoint::log::Log;
use crate::names::Shard;

/// The state of a shard that the group has assigned.
pub(super) enum Slot {
    /// The shard is to be claimed and loaded, after the back-off; with `ask`, only if the group still assigns
    /// it. A claim of this worker that was not loaded yet is kept, because each claim writes a checkpoint.
    Waiting { backoff: Backoff, ask: bool, claimed: Option<Claimed> },
    /// The shard is held and read.
    Live(Box<LiveShard>),
    /// The shard cannot continue.
    Stopped(Box<StoppedShard>),
}

impl Slot {
    /// Returns the log of a shard whose claim is still to be released; `None` if there is no such claim.
    /// Events that no checkpoint has taken are dropped: the next owner reads them again.
    pub fn into_claimed_log(self) -> Option<Log> {
        match self {
            Self::Waiting { claimed, .. } => claimed.map(|claimed| Log::new(claimed.decided)),
            Self::Live(live) => Some(live.into_log()),
            Self::Stopped(stopped) => stopped.into_unreleased(),
        }
    }
}

/// The assigned shards by number.
#[derive(Default)]
pub(super) struct ShardTable(BTreeMap<Shard, Slot>);

impl ShardTable {
    /// Returns whether no shard is assigned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the assigned shards with their states.
    pub fn iter(&self) -> impl Iterator<Item = (Shard, &Slot)> {
        self.0.iter().map(|(shard, slot)| (*shard, slot))
    }

    /// Returns the assigned shards.
    pub fn shards(&self) -> Vec<Shard> {
        self.0.keys().copied().collect()
    }

    /// Returns the live shards.
    pub fn live(&self) -> impl Iterator<Item = &LiveShard> {
        self.0.values().filter_map(|slot| match slot {
            Slot::Live(live) => Some(&**live),
            Slot::Waiting { .. } | Slot::Stopped(_) => None,
        })
    }

    /// Returns the live shards, to be changed.
    pub fn live_mut(&mut self) -> impl Iterator<Item = &mut LiveShard> {
        self.0.values_mut().filter_map(|slot| match slot {
            Slot::Live(live) => Some(&mut **live),
            Slot::Waiting { .. } | Slot::Stopped(_) => None,
        })
    }

    /// Returns a shard if it is live.
    pub fn get_live(&mut self, shard: Shard) -> Option<&mut LiveShard> {
        match self.0.get_mut(&shard) {
            Some(Slot::Live(live)) => Some(live),
            _ => None,
        }
    }

    /// Notes that the group has assigned a shard. A shard that is assigned already stays as it is.
    pub fn assign(&mut self, shard: Shard, now: WallTime) {
        let backoff = Backoff::not_before(backoff::STREAM, now);
        self.0.entry(shard).or_insert(Slot::Waiting { backoff, ask: false, claimed: None });
    }

    /// Drops a shard from memory, to be loaded again after a back-off.
    pub fn load_again(&mut self, shard: Shard, backoff: Backoff) {
        self.0.insert(shard, Slot::Waiting { backoff, ask: true, claimed: None });
    }

    /// Returns the shards whose back-off is over, and for each whether the group must be asked first.
    pub fn due(&self, now: WallTime) -> Vec<(Shard, bool)> {
        let due = |(shard, slot): (&Shard, &Slot)| match slot {
            Slot::Waiting { backoff, ask, .. } if backoff.is_due(now) => Some((*shard, *ask)),
            _ => None,
        };
        self.0.iter().filter_map(due).collect()
    }

    /// Puts off a waiting shard, because the group does not report which member has it.
    pub fn put_off(&mut self, shard: Shard, now: WallTime) {
        if let Some(Slot::Waiting { backoff, ask, .. }) = self.0.get_mut(&shard) {
            backoff.fail(now);
            *ask = true;
        }
    }

    /// Removes a waiting shard from the table, to be loaded. Returns the shard's back-off, and its claim if
    /// it has one; `None` if the shard is not waiting.
    pub fn begin_loading(&mut self, shard: Shard) -> Option<(Backoff, Option<Claimed>)> {
        match self.0.remove(&shard)? {
            Slot::Waiting { backoff, claimed, .. } => Some((backoff, claimed)),
            other => {
                self.0.insert(shard, other);
                None
            }
        }
    }

    /// Adds a shard that is loaded.
    pub fn loaded(&mut self, shard: Shard, live: LiveShard) {
        self.0.insert(shard, Slot::Live(Box::new(live)));
    }

    /// Puts back a shard that could not be loaded, with its claim. If only reading could not be started, the
    /// shard is live already and stays live.
    pub fn not_loaded(&mut self, shard: Shard, backoff: Backoff, claimed: Option<Claimed>) {
        self.0.entry(shard).or_insert(Slot::Waiting { backoff, ask: true, claimed });
    }

    /// Adds a shard that cannot continue.
    pub fn stop(&mut self, shard: Shard, stopped: Box<StoppedShard>) {
        self.0.insert(shard, Slot::Stopped(stopped));
    }

    /// Returns the stopped shards to look at.
    pub fn due_stopped(&self, now: WallTime) -> Vec<Shard> {
        let due = |(shard, slot): (&Shard, &Slot)| match slot {
            Slot::Stopped(stopped) if stopped.is_look_due(now) => Some(*shard),
            _ => None,
        };
        self.0.iter().filter_map(due).collect()
    }

    /// Removes a stopped shard from the table, to be checked; `None` if the shard is not stopped.
    pub fn take_stopped(&mut self, shard: Shard) -> Option<Box<StoppedShard>> {
        match self.0.remove(&shard)? {
            Slot::Stopped(stopped) => Some(stopped),
            other => {
                self.0.insert(shard, other);
                None
            }
        }
    }

    /// Removes and returns the first shard if all shards are stopped and released, which ends the worker.
    pub fn take_if_all_stopped(&mut self) -> Option<Box<StoppedShard>> {
        let released = |slot: &Slot| matches!(slot, Slot::Stopped(stopped) if stopped.is_released());
        if !self.0.values().all(released) {
            return None;
        }
        let first = *self.0.first_key_value()?.0;
        self.take_stopped(first)
    }

    /// Removes a shard that no longer belongs to this worker, and returns its state.
    pub fn remove(&mut self, shard: Shard) -> Option<Slot> {
        self.0.remove(&shard)
    }
}
