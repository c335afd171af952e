//! `prorata backfill`: folds events of archived files into tables.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use prorata_connectors::store::{Store, open_input};
use prorata_schemas::time::Hour;
use prorata_worker::backfill::input::InMemoryFiles;
use prorata_worker::backfill::{self, BackfillOptions, BackfillPorts, Outcome};
use prorata_worker::names::Shard;
use prorata_worker::ports::Silent;
use prorata_worker::root::organizations::AllowedOrganizations;

use crate::config::{self, Loaded};
use crate::failure::{DEAD_LETTERED, Failure, LEFT_OUT};
use crate::{logging, report, wiring};

/// Arguments of `prorata backfill`.
#[derive(Clone, Debug, Args)]
pub struct BackfillArgs {
    /// Folder or URL of Avro object container files with events; its layout does not matter
    #[arg(long, value_name = "FOLDER|URL")]
    pub events: String,
    /// Folder or URL (s3://, gs://, az://, file://) of the lake; created if missing
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: String,
    /// First hour to recompute, even without new events, such as 2026-11-20T13
    #[arg(long, value_name = "HOUR")]
    pub from: Option<Hour>,
    /// Last hour to close, inclusive [default: the hour of the last event]
    #[arg(long, value_name = "HOUR")]
    pub to: Option<Hour>,
    /// Rewrite missing and damaged table files of these hours [default: all inside the horizon]
    #[arg(long)]
    pub rewrite: bool,
    /// Lost or damaged archive file to leave out, by its path under the lake; can be repeated
    ///
    /// Events of the file count again if --events has a copy of them.
    #[arg(long = "without-archive-file", value_name = "PATH")]
    pub without_archive_files: Vec<String>,
    /// Shards to claim, such as 0-3,7; the events of other shards are ignored [default: all]
    #[arg(long, value_name = "SHARDS", value_parser = parse_shards)]
    pub shards: Option<ShardList>,
    /// Organization whose events are accepted, such as acme or acme-*; can be repeated [default: any]
    ///
    /// Events of other organizations become dead letters (foreign_organization).
    #[arg(long = "organization", value_name = "ID|PREFIX*")]
    pub organizations: Vec<String>,
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Take over shards that a worker holds and has not released
    #[arg(long)]
    pub take_over: bool,
}

/// Runs a backfill and prints the result.
///
/// # Errors
/// See [`prorata_worker::WorkerError`].
pub fn run(args: &BackfillArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let loaded = config::load(args.config.as_deref())?;
    logging::start(&loaded.config.log)?;
    let (runtime, threads) = wiring::runtime(loaded.config.backfill.threads)?;
    let outcome = runtime.block_on(fold(args, &loaded, threads))?;
    let text = if args.json {
        report::backfill::json(&outcome, started.elapsed())?
    } else {
        report::backfill::text(&outcome, &args.lake, started.elapsed())
    };
    report::print(&text)?;
    Ok(match (outcome.left_out.is_empty(), outcome.dead_letters.is_empty()) {
        (false, _) => ExitCode::from(LEFT_OUT),
        (true, false) => ExitCode::from(DEAD_LETTERED),
        (true, true) => ExitCode::SUCCESS,
    })
}

async fn fold(args: &BackfillArgs, loaded: &Loaded, threads: usize) -> anyhow::Result<Outcome> {
    let input = open_input(&args.events).map_err(Failure::usage)?;
    let ports = BackfillPorts {
        shared: wiring::ports(wiring::store(&args.lake)?).await?,
        input,
        progress: report::progress::on_terminal(),
    };
    Ok(backfill::run(ports, options(args, loaded, threads)?).await?)
}

/// Returns the options of the command.
fn options(args: &BackfillArgs, loaded: &Loaded, threads: usize) -> Result<BackfillOptions, Failure> {
    let organizations = match args.organizations.as_slice() {
        [] => None,
        named => {
            let wrong = |why| Failure::usage(format!("--organization: {why}"));
            Some(AllowedOrganizations::new(named).map_err(wrong)?)
        }
    };
    Ok(BackfillOptions {
        organizations,
        only_shards: args.shards.as_ref().map(|shards| shards.0.clone()),
        from: args.from,
        to: args.to,
        rewrite_rules: loaded.rules_given,
        rewrite: args.rewrite,
        without_archive_files: args.without_archive_files.clone(),
        ..replay_options(loaded, threads, args.take_over)
    })
}

/// Returns the options of a backfill that adds events and does not apply other rules to hours.
pub fn replay_options(loaded: &Loaded, threads: usize, take_over: bool) -> BackfillOptions {
    let config = &loaded.config;
    BackfillOptions {
        owner: wiring::owner(),
        shards: loaded.shards_given.then_some(config.root.shards),
        root_format: config.root.format,
        retention: config.root.horizon,
        rules: config.rules.clone(),
        take_over,
        max_clock_skew: config.work.max_clock_skew,
        max_history_hours: config.work.max_history_hours,
        threads,
        ..config.backfill.clone()
    }
}

/// Returns the ports of a backfill that adds events. The input is added later.
///
/// # Errors
/// If the lake's tables cannot be reached.
pub async fn replay_ports(store: Store) -> anyhow::Result<BackfillPorts> {
    Ok(BackfillPorts {
        shared: wiring::ports(store).await?,
        input: Arc::new(InMemoryFiles::default()),
        progress: Arc::new(Silent),
    })
}

/// Shards, as the command line names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardList(pub BTreeSet<Shard>);

/// Reads shard numbers and ranges.
///
/// # Errors
/// If the text is not a list of numbers and ranges.
pub fn parse_shards(text: &str) -> Result<ShardList, String> {
    let number = |text: &str| text.trim().parse::<Shard>().ok();
    let mut shards = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => shards.extend(first..=last),
            _ => return Err("not a list of shards such as 0-3,7".into()),
        }
    }
    Ok(ShardList(shards))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_numbers_and_ranges() {
        let shards = |text: &str| parse_shards(text).map(|ShardList(shards)| Vec::from_iter(shards));
        assert_eq!(shards("0-3,7"), Ok(vec![0, 1, 2, 3, 7]));
        assert_eq!(shards("5"), Ok(vec![5]));
        for wrong in ["", "3-1", "a", "1-", "-1", "1,,2", "65536", "1-2-3"] {
            assert!(shards(wrong).is_err(), "{wrong}");
        }
    }
}
