//! The log of a topic partition, and the position of a member that reads it.

use std::collections::BTreeMap;

use prorata_worker::source::{Message, Start};

/// The log of a topic partition.
#[derive(Debug, Default)]
pub(super) struct PartitionLog {
    pub(super) begin: i64,
    pub(super) end: i64,
    pub(super) messages: BTreeMap<i64, Message>,
}

/// Position of a member in a topic partition.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    from: Start,
    /// Next offset; `None` before the first response.
    pub(super) next: Option<i64>,
    /// Whether the log has lost messages that were read.
    diverged: bool,
    /// Number of the latest request for ends that was answered.
    pub(super) ends_reported: u64,
}

impl Reader {
    pub(super) const fn new(from: Start) -> Self {
        Self { from, next: None, diverged: false, ends_reported: 0 }
    }

    /// Records that the log now ends here and that other messages will follow.
    pub(super) fn diverge(&mut self, end: i64) {
        self.diverged |= self.next.is_some_and(|next| next > end);
    }

    /// Returns the next offset to read. If that offset is lost, returns Kafka's message, and the earliest
    /// offset if the lost offset is before it.
    pub(super) fn position(&mut self, log: &PartitionLog) -> Result<i64, (Option<i64>, String)> {
        let next = self.next.unwrap_or(match self.from {
            Start::Earliest => log.begin,
            Start::At(offset) => offset,
        });
        if self.diverged {
            return Err((None, format!("the log was truncated below offset {next}")));
        }
        if next < log.begin || next > log.end {
            let cause = format!("offset {next} is out of range [{}, {}]", log.begin, log.end);
            return Err(((next < log.begin).then_some(log.begin), cause));
        }
        self.next = Some(next);
        Ok(next)
    }
}
