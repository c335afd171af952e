//! Windows: consecutive hours of a shard, read together and folded hour by hour.
//!
//! One rule says how many hours fit, for the stream worker and the backfill alike: the events of a window, as
//! they lie in memory, stay within a number of bytes, and the rows that windows fold to stay within a number
//! of rows. One hour always fits.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::time::Hour;

use super::archive::ArchiveIndex;
use super::fold::{Body, Window};
use crate::checkpoint::Checkpoint;
use crate::checkpoint::snapshot::ShardState;
use crate::error::Result;
use crate::objects;
use crate::ports::ObjectStore;
use crate::root::rules::RuleBook;

/// Hours of one window at most. More would only delay the next checkpoint: four days of a shard with few
/// events fold in a moment.
pub const WINDOW_HOURS_MAX: i64 = 96;

/// Bytes that an event takes in memory besides its body: its kind and pointer (24), what the allocator adds
/// (16), and the spare room of a growing list.
pub const EVENT_OVERHEAD: u64 = 64;

/// How many bytes of memory one byte of an archive file becomes as bodies, overhead included. Archive files
/// are compressed. Measured on generated clusters: 4.5 in files of 1,000 events, 5.9 in files of 5,000.
/// Larger files compress better, and 8 leaves room for them.
pub const ARCHIVE_FACTOR: u64 = 8;

/// Bytes that folding and encoding take besides the events: decoded events and rows of the hours at hand, and
/// the buffers of table files.
const FOLDING_BYTES: u64 = 256 << 20;

/// At least this part of a memory limit is for events: one eighth, so that work goes on however low the
/// limit.
const EVENTS_PART: u64 = 8;

/// Bytes of events that may be in memory: what a limit leaves besides folding, encoding and `other` bytes.
pub fn memory_for_events(limit: u64, other: u64) -> u64 {
    limit.saturating_sub(other.saturating_add(FOLDING_BYTES)).max(limit / EVENTS_PART)
}

/// How many hours make a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowLimits {
    /// Bytes of events of one window.
    pub event_bytes: u64,
    /// Rows of `cost_allocation` over all windows in memory.
    pub rows: u64,
}

impl WindowLimits {
    /// Hours of the next window, after `hours` were folded to `rows` altogether; `windows` are in memory at a
    /// time.
    pub fn next_hours(&self, rows: u64, hours: usize, windows: usize) -> i64 {
        let rows_an_hour = rows / (hours as u64).max(1) + 1;
        let rows_at_once = rows_an_hour.saturating_mul((windows as u64).max(1));
        i64::try_from(self.rows / rows_at_once).unwrap_or(WINDOW_HOURS_MAX).clamp(1, WINDOW_HOURS_MAX)
    }
}

/// Where the events of an hour are.
#[derive(Clone, Debug, Default)]
pub struct HourEvents {
    /// Those in memory.
    pub bodies: Option<Arc<Vec<Body>>>,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the archive holds others.
    pub archived: bool,
}

impl HourEvents {
    /// All of them are in the archive.
    pub fn archived() -> Self {
        Self { archived: true, ..Self::default() }
    }
}

/// Reads windows.
pub struct WindowReader<'a> {
    /// The root.
    pub store: &'a dyn ObjectStore,
    /// Rules by version.
    pub rules: &'a RuleBook,
    /// Limits of a window.
    pub limits: WindowLimits,
}

impl WindowReader<'_> {
    /// Reads the hours from the first to the last, as many as fit, and always one. `states` is the state
    /// before the first; `events` says where an hour's events are.
    ///
    /// # Errors
    /// When storage is unavailable, a file is missing, or an hour has no rules.
    pub async fn read(
        &self,
        checkpoint: &Checkpoint,
        archive: &mut ArchiveIndex,
        (first, last): (Hour, Hour),
        states: ShardState,
        events: impl Fn(Hour) -> HourEvents,
    ) -> Result<Window> {
        archive.ensure(self.store, checkpoint, (first, last)).await?;
        let (mut hours, mut bodies) = (Vec::new(), BTreeMap::new());
        let (mut file_hours, mut paths) = (Vec::new(), Vec::new());
        let mut bytes = 0_u64;
        for hour in (first.0..=last.0).map(Hour) {
            let events = events(hour);
            let files = if events.archived { archive.files(hour) } else { &[] };
            let in_files = files.iter().map(|file| file.bytes).sum::<u64>().saturating_mul(ARCHIVE_FACTOR);
            bytes = bytes.saturating_add(in_files).saturating_add(events.bytes);
            if bytes > self.limits.event_bytes && !hours.is_empty() {
                break;
            }
            hours.push((hour, self.rules.of(checkpoint, hour)?));
            bodies.extend(events.bodies.map(|bodies| (hour, bodies)));
            for file in files {
                file_hours.push(hour);
                paths.push(file.path(checkpoint.shard, hour));
            }
        }
        let files = objects::get_all(self.store, paths).await?;
        Ok(Window { hours, files: file_hours.into_iter().zip(files).collect(), bodies, states })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_hours_as_their_rows_fit() {
        let limits = WindowLimits { event_bytes: 0, rows: 1_000 };
        assert_eq!(limits.next_hours(99 * 4, 4, 1), 10);
        assert_eq!(limits.next_hours(99 * 4, 4, 2), 5);
        assert_eq!(limits.next_hours(1_000_000, 1, 1), 1, "one hour always fits");
        assert_eq!(limits.next_hours(0, 0, 0), WINDOW_HOURS_MAX);
    }
}
