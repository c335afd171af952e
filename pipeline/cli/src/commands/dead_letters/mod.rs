//! `prorata dead-letters`: lists dead letters by reason, and replays them after their cause is fixed.

mod topics;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use prorata_connectors::archive::AvroArchive;
use prorata_connectors::messages::Times;
use prorata_connectors::store::Store;
use prorata_schemas::reject::Reason;
use prorata_worker::dead_letters::{DeadLetters, Replay, ReplayError, ReplayOptions, Replayed};

use crate::commands::backfill;
use crate::config::{self, Loaded};
use crate::failure::{DEAD_LETTERED, Failure, LEFT_OUT};
use crate::report::dead_letters::{DeadLetterReport, Listing};
use crate::wiring::registry;
use crate::{logging, report, wiring};
use topics::KafkaTopics;

/// Arguments of `prorata dead-letters`.
#[derive(Clone, Debug, Args)]
pub struct DeadLettersArgs {
    /// Configuration file whose root.url is the lake; a replay needs sections kafka and registry
    #[arg(long, value_name = "FILE", required_unless_present = "lake")]
    pub config: Option<PathBuf>,
    /// Folder or URL (s3://, gs://, az://, file://) of the lake; overrides root.url
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: Option<String>,
    /// Only dead letters with this reason, such as too_late
    #[arg(long, value_name = "REASON")]
    pub reason: Option<Reason>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Replay the dead letters that would be accepted now
    ///
    /// Messages are sent back to their topics. Late events and records of files go through a backfill. The
    /// lake records which dead letters were replayed, and they are not replayed again.
    #[arg(long)]
    pub replay: bool,
    /// Take over shards that a worker holds and has not released, for events that need a backfill
    #[arg(long, requires = "replay")]
    pub take_over: bool,
}

/// Lists or replays dead letters, and prints the result.
///
/// # Errors
/// If there is no lake, or something that the command needs is wrong or unavailable.
pub fn run(args: &DeadLettersArgs) -> anyhow::Result<ExitCode> {
    let loaded = config::load(args.config.as_deref())?;
    logging::start(&loaded.config.log)?;
    let (runtime, threads) = wiring::runtime(loaded.config.backfill.threads)?;
    runtime.block_on(list_and_replay(args, &loaded, threads))
}

async fn list_and_replay(
    args: &DeadLettersArgs,
    loaded: &Loaded,
    threads: usize,
) -> anyhow::Result<ExitCode> {
    let lake = wiring::lake::named(args.lake.as_ref(), &loaded.config)?;
    let store = wiring::lake::store(lake).await?;
    let mut dead_letters = DeadLetters::load(&store).await?;
    // A broken shard or a missing file does not hide any other letter.
    let mut broken = std::mem::take(&mut dead_letters.left_out).into_values().next();
    let mut listing = Listing::default();
    for file in &dead_letters.files {
        let read = match dead_letters.read(&store, &AvroArchive, file).await {
            Err(error) if error.is_of_one_shard() => {
                tracing::warn!(%error, "file of dead letters left out");
                broken.get_or_insert(error);
                continue;
            }
            read => read?,
        };
        for letter in read {
            if args.reason.is_none_or(|reason| reason == letter.letter.rejected.reject.reason) {
                listing.add(&letter);
            }
        }
    }
    let mut report = DeadLetterReport { lake, listing, replayed: None };
    let mut result = Ok(());
    if args.replay {
        let mut done = Replayed::default();
        result = replay(args, loaded, threads, store, &dead_letters, &mut done).await;
        report.replayed = Some(done);
    }
    // Dead letters that were replayed before an error stay replayed, so the report is printed first.
    report::print(&if args.json { report.json()? } else { report.text() })?;
    result?;
    if let Some(broken) = broken {
        return Err(broken.into());
    }
    if report.replayed.as_ref().is_some_and(|replayed| !replayed.left_out.is_empty()) {
        return Ok(ExitCode::from(LEFT_OUT));
    }
    let failing = report.replayed.as_ref().map_or(0, Replayed::failing_all);
    Ok(if failing == 0 { ExitCode::SUCCESS } else { ExitCode::from(DEAD_LETTERED) })
}

async fn replay(
    args: &DeadLettersArgs,
    loaded: &Loaded,
    threads: usize,
    store: Store,
    dead_letters: &DeadLetters,
    done: &mut Replayed,
) -> anyhow::Result<()> {
    let config = &loaded.config;
    let replay = Replay {
        ports: backfill::replay_ports(store).await?,
        decoder: &*registry::decoder(&config.registry, Times::AT_ONCE)?,
        topics: &KafkaTopics::new(&config.kafka),
        options: ReplayOptions {
            reason: args.reason,
            topics: config.kafka.topics.iter().map(|topic| topic.name().into()).collect(),
            organizations: config.kafka.organizations()?,
            max_clock_skew: config.work.max_clock_skew,
            rules_given: loaded.rules_given,
            backfill: backfill::replay_options(loaded, threads, args.take_over),
        },
    };
    replay.run(dead_letters, done).await.map_err(failure)
}

/// Converts the error that stopped a replay to an error with an exit code.
pub fn failure(error: ReplayError) -> anyhow::Error {
    match error {
        ReplayError::Worker(error) => error.into(),
        ReplayError::Registry(error) if error.kind.is_retryable() => Failure::storage(error).into(),
        ReplayError::Registry(error) => Failure::usage(error).into(),
        ReplayError::Topics(error) => topics::failure(&error).into(),
    }
}
