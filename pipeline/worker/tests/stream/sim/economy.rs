//! The economy law. The numbers of objects and calls of a run stay under limits that depend on the work of
//! the run, and not on its faults.

use std::collections::BTreeSet;
use std::time::Duration;

use prorata_schemas::tables::Table;
use prorata_worker::checkpoint::Checkpoint;
use prorata_worker::names;

use super::coverage::Coverage;
use super::plan::Plan;
use crate::world::World;

/// The totals of a run, over all shards.
#[derive(Debug)]
struct Economy {
    /// Number of closed hours.
    hours: usize,
    /// Simulated time in hours, multiplied by the number of shards.
    shard_hours: usize,
    claims: usize,
    checkpoints: usize,
    lists: usize,
    /// Number of snapshots and parts of checkpoints. New objects that no sweep has seen and patches of
    /// snapshots that a checkpoint names do not count.
    state_objects: usize,
    /// Number of patches of snapshots that a checkpoint names.
    patches: usize,
    /// Number of hours with a snapshot.
    snapshots: usize,
    /// Number of archive files that were written, including files that were merged later.
    archived: usize,
    /// The stored size of the largest checkpoint, in bytes.
    checkpoint_bytes: usize,
}

/// Maximum number of dates from the true date to the date of the clock that is furthest ahead, plus a margin.
const DATES_AHEAD_MAX: usize = 42;

/// The age from which an object is swept. A worker sweeps once an hour, counted from its claim.
const SWEPT: Duration = Duration::from_secs(2 * 3_600);

/// Asserts the law at the end of a run.
pub fn check(world: &World, plan: &Plan, coverage: &Coverage, context: &str) {
    let objects = world.lake.store.objects();
    let latest = world.audit.latest();
    let count = |is: &dyn Fn(&str) -> bool| objects.keys().filter(|path| is(path)).count();
    let checkpoints = objects.iter().filter(|(path, _)| names::parse_checkpoint(path).is_some());
    let entries = || latest.values().flat_map(|checkpoint| checkpoint.hours.values());
    let patches: BTreeSet<&str> = entries().flat_map(|entry| &entry.patches).map(String::as_str).collect();
    let named: BTreeSet<&str> = latest.values().flat_map(|it| named(it)).collect();
    let is_left = |path: &str| match named.contains(path) {
        true => !patches.contains(path),
        false => !world.audit.is_younger(path, SWEPT),
    };
    let simulated = world.now().event_time().hour().0 - prorata_samples::trace::START;
    let economy = Economy {
        hours: world.lake.files().get(&Table::Hours).map_or(0, Vec::len),
        shard_hours: usize::try_from(simulated).unwrap() * usize::from(world.shards),
        claims: latest.keys().map(|shard| world.audit.claims(*shard)).sum(),
        checkpoints: latest.values().map(|checkpoint| checkpoint.seq as usize).sum(),
        lists: world.audit.lists(),
        state_objects: count(&|path| {
            let is_state = names::parse_snapshot(path).is_some() || names::parse_part(path).is_some();
            is_state && is_left(path)
        }),
        patches: patches.len(),
        snapshots: entries().filter(|entry| entry.snapshot.is_some()).count(),
        archived: world.audit.archived(),
        checkpoint_bytes: checkpoints.map(|(_, bytes)| bytes.len()).max().unwrap_or_default(),
    };
    let Economy { hours, shard_hours, claims, .. } = economy;
    let is_doubtful = plan.chances.wrong_clock > 0 || plan.chances.clock_step > 0;
    let doubts = if is_doubtful { plan.members * plan.rounds.unsigned_abs() as usize } else { 0 };
    // A process that starts with a clock weeks ahead lists the dates up to its own time once, before it knows
    // the store's time.
    let ahead = if plan.chances.wrong_clock > 0 { DATES_AHEAD_MAX * claims } else { 0 };
    // If a shard lags by weeks, as after a very old first event, each owner lists its open dates until they
    // are closed.
    let behind = latest.keys().map(|shard| world.audit.dates_claimed(*shard)).sum::<usize>();
    let behind = behind.saturating_sub(2 * claims);
    // A list that fails is requested again.
    let again = coverage.failed_reads() as usize;
    let letters = world.dead_letters.letters().len();
    // If calls of storage take hours, objects wait longer to be swept.
    let waiting = if plan.slow > 0 { 20 + hours / 4 } else { 0 };
    let lines = [
        ("bytes of a checkpoint", economy.checkpoint_bytes, 40_000),
        ("snapshots and parts", economy.state_objects, 40 + hours + hours / 4 + waiting),
        // HOURS.md, section Restate: a snapshot has at most three patches.
        ("patches of snapshots", economy.patches, 3 * economy.snapshots),
        ("lists", economy.lists, 40 + 8 * claims + shard_hours + ahead + behind + again),
        // Each flush of events or dead letters, claim, release and hour adds one checkpoint. If a clock is
        // wrong, its witness adds one checkpoint of one shard in each round.
        (
            "checkpoints",
            economy.checkpoints,
            60 + economy.archived + letters + 3 * claims + 2 * hours + doubts,
        ),
    ];
    for (what, found, line) in lines {
        assert!(found <= line, "{context}: {what}: {found}, more than {line}: {economy:?}");
    }
}

/// Returns the snapshots and parts that a checkpoint names.
fn named(checkpoint: &Checkpoint) -> impl Iterator<Item = &str> {
    let snapshots = checkpoint.hours.values().flat_map(|entry| entry.snapshot_objects());
    snapshots.chain(&checkpoint.parts).map(String::as_str)
}
