//! Windows: consecutive hours of a shard, folded one after the other and emitted together.
//!
//! One rule sets the number of hours in a window, for the stream worker and the backfill alike. The events of
//! a window stay within a number of bytes, so that the window is folded soon. The rows of all windows in
//! memory stay within a number of rows. One hour always fits: its events are reduced while they are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_schemas::time::{Hour, HourRange};

use super::Body;
use super::archive::ArchiveIndex;
use super::fold::Window;
use crate::checkpoint::Checkpoint;
use crate::checkpoint::snapshot::ShardState;
use crate::error::Result;
use crate::ports::ObjectStore;
use crate::shard::rules::RuleBook;

/// Maximum number of hours of one window. More hours would only delay the next checkpoint: four days of a
/// shard with few events fold in a moment.
pub const WINDOW_HOURS_MAX: i64 = 96;

/// Bytes that an event takes in memory besides its body. They cover the event's kind and pointer (24), the
/// allocator's overhead (16), and the spare capacity of a growing list.
pub const EVENT_OVERHEAD: u64 = 64;

/// The bytes of memory, overhead included, that one byte of an archive file would take as bodies. Archive
/// files are compressed. The factor of generated clusters is 4.5 in files of 1,000 events and 5.9 in files of
/// 5,000. Larger files compress better, and 8 leaves room for them.
pub const ARCHIVE_FACTOR: u64 = 8;

/// Bytes that folding and encoding take besides the events: reduced events and rows of the current hours, and
/// the buffers of table files.
const FOLDING_BYTES: u64 = 256 << 20;

/// The divisor of a memory limit that gives the minimum for events. One eighth lets work continue even under
/// a low limit.
const EVENTS_PART: u64 = 8;

/// Returns the bytes of events that may be in memory: `limit` less the bytes of folding and encoding and less
/// `other`, but at least an eighth of `limit`.
pub fn memory_for_events(limit: u64, other: u64) -> u64 {
    limit.saturating_sub(other.saturating_add(FOLDING_BYTES)).max(limit / EVENTS_PART)
}

/// Limits on the number of hours in a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowLimits {
    /// Maximum bytes of events of one window, as bodies.
    pub event_bytes: u64,
    /// Maximum number of rows of `cost_allocation` over all windows in memory.
    pub rows: u64,
}

impl WindowLimits {
    /// Returns the number of hours of the next window, if the last `hours` hours had `rows` rows in total.
    /// `windows` is the number of windows in memory at a time.
    pub fn next_hours(&self, rows: u64, hours: usize, windows: usize) -> i64 {
        let rows_an_hour = rows / (hours as u64).max(1) + 1;
        let rows_at_once = rows_an_hour.saturating_mul((windows as u64).max(1));
        i64::try_from(self.rows / rows_at_once).unwrap_or(WINDOW_HOURS_MAX).clamp(1, WINDOW_HOURS_MAX)
    }
}

/// The places that hold the events of an hour.
#[derive(Clone, Debug, Default)]
pub struct EventPlaces {
    /// The events in memory.
    pub bodies: Option<Arc<Vec<Body>>>,
    /// Bytes of the events in memory.
    pub bytes: u64,
    /// Whether the archive holds other events.
    pub archived: bool,
}

impl EventPlaces {
    /// Returns the places of an hour whose events are all in the archive.
    pub fn archived() -> Self {
        Self { archived: true, ..Self::default() }
    }
}

/// A reader of everything that is needed to fold a window.
pub struct WindowReader<'a> {
    /// The root.
    pub store: &'a dyn ObjectStore,
    /// Rules by version.
    pub rules: &'a RuleBook,
    /// Limits of a window.
    pub limits: WindowLimits,
}

impl WindowReader<'_> {
    /// Returns the window that begins with the range's first hour. It has as many hours of the range as fit,
    /// and at least one. `states` is the state before the first hour; `events` returns the places of an
    /// hour's events.
    ///
    /// # Errors
    /// If storage is unavailable, or an hour has no rules.
    pub async fn read(
        &self,
        checkpoint: &Checkpoint,
        archive: &mut ArchiveIndex,
        range: HourRange,
        states: ShardState,
        events: impl Fn(Hour) -> EventPlaces,
    ) -> Result<Window> {
        archive.ensure(self.store, range).await?;
        let (mut hours, mut bodies, mut files) = (Vec::new(), BTreeMap::new(), Vec::new());
        let mut bytes = 0_u64;
        for hour in range {
            let events = events(hour);
            let own = if events.archived { archive.to_read(hour) } else { Vec::new() };
            let in_files = own.iter().map(|file| file.bytes).sum::<u64>().saturating_mul(ARCHIVE_FACTOR);
            bytes = bytes.saturating_add(in_files).saturating_add(events.bytes);
            if bytes > self.limits.event_bytes && !hours.is_empty() {
                break;
            }
            hours.push((hour, self.rules.of(checkpoint, hour)?));
            bodies.extend(events.bodies.map(|bodies| (hour, bodies)));
            files.extend(own.into_iter().map(|file| (hour, file)));
        }
        Ok(Window { hours, files, bodies, states })
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
