//! How much of the memory limit is left for events.

/// Bytes that folding and encoding take, about: windows of events and rows, and buffers of table files.
const FOLDING_BYTES: u64 = 256 << 20;

/// How many times the bytes of its snapshot a state takes in memory, about.
const STATE_FACTOR: u64 = 4;

/// What takes memory beside events, in bytes.
pub(super) struct Taken {
    /// Snapshots of the shards.
    pub states: u64,
    /// What the source may hold.
    pub queue: u64,
    /// What the process was seen to hold beside events, when nothing was folded.
    pub beside: u64,
}

impl Taken {
    /// Bytes of events that may be in memory: what the limit leaves beside folding and encoding, and beside the source
    /// and the states, or what the process was seen to hold, if that is more; but always some, for it must go on.
    pub fn budget(&self, limit: u64) -> u64 {
        let expected = self.states.saturating_mul(STATE_FACTOR).saturating_add(self.queue);
        let taken = expected.max(self.beside).saturating_add(FOLDING_BYTES);
        limit.saturating_sub(taken).max(limit / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn left(states: u64, beside: u64) -> u64 {
        Taken { states: states * MIB, queue: 64 * MIB, beside: beside * MIB }.budget(1024 * MIB) / MIB
    }

    #[test]
    fn what_is_expected_and_not_there_yet_is_left_free() {
        assert_eq!(left(10, 0), 1024 - 64 - 256 - 40);
        assert_eq!(left(10, 104), 1024 - 64 - 256 - 40);
    }

    #[test]
    fn what_is_seen_to_be_held_counts_where_it_is_more_than_expected() {
        assert_eq!(left(10, 400), 1024 - 400 - 256);
    }

    #[test]
    fn an_eighth_is_always_for_events() {
        assert_eq!(left(10, 2_000), 128);
        assert_eq!(left(500, 0), 128);
    }
}
