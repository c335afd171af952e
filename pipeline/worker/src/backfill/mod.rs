//! Backfill into a root: the same fold as the stream worker's, over archived events.
//!
//! A backfill owns the shards that it touches as a worker does, through the same checkpoint log. Pass 1
//! copies new foreign events into the archive. Pass 2 folds every shard from the newest usable snapshot
//! before the first hour that changed, until the state equals the recorded state again. In closed hours, it
//! folds only the organizations with new events, unless there are many. If a run is killed, only its last
//! checkpoint counts, and the next run continues from there.

mod ingest;
pub mod input;
mod outcome;
mod plan;
mod readers;
mod recompute;
mod run;
mod shards;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prorata_schemas::Text;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, WallTime};
use serde::{Deserialize, Serialize};

use crate::checkpoint::retention::Retention;
use crate::error::{Result, WorkerError};
use crate::names::Shard;
use crate::ports::{Input, InputFile, Ports, Progress, duration};
use crate::root::Root;
use crate::root::organizations::AllowedOrganizations;
use crate::shard::clock::WitnessedClock;

pub use outcome::{Ahead, FoldedAgain, Outcome, Totals};
use shards::OwnedShards;

/// The ports of a backfill.
#[derive(Clone)]
pub struct BackfillPorts {
    /// The ports of every owner of shards.
    pub shared: Ports,
    /// The foreign events.
    pub input: Arc<dyn Input>,
    /// The receiver of the run's progress.
    pub progress: Arc<dyn Progress>,
}

/// The options of a backfill. The serialized options are the section `backfill` of the configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackfillOptions {
    /// Random id of this owner.
    #[serde(skip)]
    pub owner: Text,
    /// Number of shards of the root, if configured.
    #[serde(skip)]
    pub shards: Option<Shard>,
    /// Format to raise the root to; see [`Root::raise`]. 0 leaves the format as it is.
    #[serde(skip)]
    pub root_format: u32,
    /// The only shards to claim; `None` for all shards. Several runs can share the work, or one run can fix a
    /// shard while a worker owns the others. Events of all other shards are left to other runs.
    #[serde(skip)]
    pub only_shards: Option<BTreeSet<Shard>>,
    /// The only organizations whose events foreign files may bring; events of other organizations become dead
    /// letters. `None` if any organization is allowed.
    #[serde(skip)]
    pub organizations: Option<AllowedOrganizations>,
    /// First hour to fold again although its events have not changed.
    #[serde(skip)]
    pub from: Option<Hour>,
    /// Last hour to close, inclusive. By default, a shard that a worker has owned ends at the last hour that
    /// the worker has closed. Any other shard ends at the hour of the last event, but no later than the hour
    /// of the wall clock.
    #[serde(skip)]
    pub to: Option<Hour>,
    /// The time that hours stay in checkpoints.
    #[serde(skip)]
    pub retention: Retention,
    /// Rules for hours that have none yet.
    #[serde(skip)]
    pub rules: Rules,
    /// Whether `rules` also replaces the rules of the hours from `from` to `to`.
    #[serde(skip)]
    pub rewrite_rules: bool,
    /// Whether to look for lost or damaged table files and rewrite them. The search covers the hours from
    /// `from` to `to`, by default all hours inside the horizon.
    #[serde(skip)]
    pub rewrite: bool,
    /// Paths of lost or damaged archive files, which no longer count. Their events count only if this run
    /// brings a copy.
    #[serde(skip)]
    pub without_archive_files: Vec<String>,
    /// Whether shards may be taken from a worker that has not released them.
    #[serde(skip)]
    pub take_over: bool,
    /// Maximum time by which a foreign event may lie after the wall clock, or after the end of hour `to` if
    /// that is later.
    #[serde(skip)]
    pub max_clock_skew: Duration,
    /// Bytes of new events to gather before they are written to the archive.
    pub buffer_bytes: u64,
    /// Bytes of memory that folding should stay within.
    pub memory_limit: u64,
    /// Maximum number of rows of `cost_allocation` in memory at a time. Windows shrink down to one hour to
    /// stay within it, but an hour is never divided.
    pub rows_in_flight: u64,
    /// Minimum time between two checkpoints of a long fold.
    #[serde(with = "duration")]
    pub checkpoint_interval: Duration,
    /// Maximum number of hours of one shard to fold in one run: more hours indicate a wrong clock. An event
    /// further back becomes a dead letter.
    pub max_hours: i64,
    /// The limit in place of `max_hours`, if it is lower, for a shard that a worker has owned and that has no
    /// closed hour. The worker closes the hours of such a shard.
    #[serde(skip)]
    pub max_history_hours: i64,
    /// Number of threads that read foreign files; 0 for one per core. The program starts the same number of
    /// threads to fold and encode.
    pub threads: usize,
}

impl Default for BackfillOptions {
    fn default() -> Self {
        Self::new(Text::default())
    }
}

impl BackfillOptions {
    /// Creates the default options of an owner.
    pub fn new(owner: Text) -> Self {
        Self {
            owner,
            shards: None,
            root_format: 0,
            only_shards: None,
            organizations: None,
            from: None,
            to: None,
            retention: Retention::default(),
            rules: Rules::default(),
            rewrite_rules: false,
            rewrite: false,
            without_archive_files: Vec::new(),
            take_over: false,
            max_clock_skew: Duration::from_secs(600),
            buffer_bytes: 64 << 20,
            memory_limit: 1 << 30,
            rows_in_flight: 100_000,
            checkpoint_interval: Duration::from_secs(60),
            max_hours: 100_000,
            max_history_hours: 8_784,
            threads: 0,
        }
    }
}

/// One run.
struct Run {
    ports: BackfillPorts,
    /// The clock in `ports`, with access to its witness.
    clock: Arc<WitnessedClock>,
    options: BackfillOptions,
    root: Root,
    shards: OwnedShards,
    outcome: Outcome,
    checkpointed: Instant,
}

/// Folds foreign events into the root, and makes the root's tables equal to the result.
///
/// # Errors
/// See [`WorkerError`]. All checkpoints decided before the error remain valid, and the next run continues
/// from them.
pub async fn run(ports: BackfillPorts, options: BackfillOptions) -> Result<Outcome> {
    check(&options)?;
    let (files, skipped) = ingest::list_input(&*ports.input).await?;
    let root = Root::open(&*ports.shared.store, options.shards).await?;
    let root = root.raise(options.root_format)?;
    let clock = Arc::new(WitnessedClock::new(Arc::clone(&ports.shared.clock), options.max_clock_skew));
    let shared = Ports { clock: Arc::<WitnessedClock>::clone(&clock), ..ports.shared };
    let mut run = Run {
        clock,
        shards: OwnedShards::new(&options),
        outcome: Outcome { files_skipped: skipped, ..Outcome::default() },
        checkpointed: Instant::now(),
        root,
        ports: BackfillPorts { shared, ..ports },
        options,
    };
    if let Err(error) = run.fold(files).await {
        run.shards.release_after_error(&run.ports.shared).await;
        return Err(error);
    }
    run.outcome.commits = run.shards.commits();
    run.outcome.left_out = run.shards.left_out().clone();
    Ok(run.outcome)
}

impl Run {
    async fn fold(&mut self, files: Vec<InputFile>) -> Result<()> {
        self.shards.claim_existing(&self.ports.shared, &self.clock, self.root.shards).await?;
        plan::check_to(self)?;
        self.shards.drop_archive_files(&self.options.without_archive_files)?;
        ingest::ingest(self, files).await?;
        let ends = plan::ends(self);
        plan::prepare(self, &ends).await?;
        if self.options.rewrite {
            recompute::find_unusable(self).await?;
        }
        recompute::recompute(self).await?;
        run::fold_all(self, &ends).await?;
        let now = self.checkpointed_by();
        self.shards.checkpoint(&self.ports.shared, now).await?;
        self.shards.sweep(&self.ports.shared).await;
        self.shards.release(&self.ports.shared, now).await
    }

    fn checkpointed_by(&mut self) -> WallTime {
        self.checkpointed = Instant::now();
        self.ports.shared.clock.now()
    }
}

fn check(options: &BackfillOptions) -> Result<()> {
    match (options.from, options.to) {
        (Some(from), Some(to)) if from > to => Err(WorkerError::Configuration(format!(
            "--from {from} is after --to {to}; swap them (both hours are included)"
        ))),
        _ => Ok(()),
    }
}
