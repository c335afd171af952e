//! Computes the part of the memory limit that is left for events, and drops archived events from memory when
//! events exceed it.

use super::Worker;
use crate::shard::window::memory_for_events;
use crate::source::Source;
use crate::stream::shard::LiveShard;

/// The approximate bytes of a state in memory, as a multiple of the bytes of its snapshot. The real ratio is
/// a quarter while the state is idle, and eight while its organization is folded.
const STATE_FACTOR: u64 = 4;

/// The memory of everything besides events, in bytes.
struct OtherMemory {
    /// Snapshots of the shards.
    pub states: u64,
    /// Maximum number of bytes that the source may hold.
    pub queue: u64,
    /// The memory that the process held besides events, as measured while nothing was folded.
    pub seen: u64,
}

impl OtherMemory {
    /// Returns the bytes of events that may be in memory: the limit less folding and encoding, and less other
    /// memory. Other memory is either the source and the states, or the measured memory besides events,
    /// whichever is more.
    fn budget(&self, limit: u64) -> u64 {
        let expected = self.states.saturating_mul(STATE_FACTOR).saturating_add(self.queue);
        memory_for_events(limit, expected.max(self.seen))
    }
}

impl<S: Source> Worker<S> {
    /// Returns the bytes of events in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.shards.live().map(LiveShard::bytes).sum()
    }

    /// Returns the bytes of events that may be in memory.
    pub(super) fn budget(&self) -> u64 {
        let other = OtherMemory {
            states: self.shards.live().map(LiveShard::state_bytes).sum(),
            queue: self.setup.options.queue_bytes,
            seen: self.other_memory,
        };
        other.budget(self.setup.options.memory_limit)
    }

    /// Drops archived events from memory if events take too much: largest shards first, and within a shard
    /// latest hours first. It drops a large part at once, because otherwise every few messages would exceed
    /// the limit again.
    pub(super) fn evict(&mut self) {
        let mut bytes = self.bytes();
        let budget = self.budget();
        if bytes < budget / 2 {
            return;
        }
        while bytes >= budget / 4 {
            let live = self.shards.live_mut().filter(|live| live.can_spill());
            let Some(largest) = live.max_by_key(|live| live.bytes()) else { return };
            largest.spill();
            bytes = self.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn left(states: u64, seen: u64) -> u64 {
        OtherMemory { states: states * MIB, queue: 64 * MIB, seen: seen * MIB }.budget(1024 * MIB) / MIB
    }

    #[test]
    fn expected_memory_that_is_not_used_yet_is_left_free() {
        assert_eq!(left(10, 0), 1024 - 64 - 256 - 40);
        assert_eq!(left(10, 104), 1024 - 64 - 256 - 40);
    }

    #[test]
    fn used_memory_counts_if_it_is_more_than_expected() {
        assert_eq!(left(10, 400), 1024 - 400 - 256);
    }

    #[test]
    fn an_eighth_is_always_for_events() {
        assert_eq!(left(10, 2_000), 128);
        assert_eq!(left(500, 0), 128);
    }
}
