//! `prorata show`: shows the stored data of a shard as JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use prorata_connectors::store::Store;
use prorata_inspect::show::{self, ArchiveQuestion, ShowError, Shown};
use prorata_inspect::text::plain;
use prorata_schemas::time::Hour;
use prorata_worker::names::Shard;

use crate::failure::{Failure, LEFT_OUT};
use crate::{report, wiring};

/// Arguments of `prorata show`.
#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// The part to show
    #[command(subcommand)]
    pub what: ShownPart,
}

/// A stored part of a shard.
#[derive(Clone, Debug, Subcommand)]
pub enum ShownPart {
    /// Show the newest checkpoint, joined with its parts
    Checkpoint(ShardArgs),
    /// Show the organizations in the snapshot of an hour, or the state of one of them
    Snapshot(HourArgs),
    /// Show the rules, each with the hour from which it applies
    Rules(ShardArgs),
    /// Show the archive files of an hour with their events, one JSON document per line
    Archive(HourArgs),
}

/// The shard to look at.
#[derive(Clone, Debug, Args)]
pub struct ShardArgs {
    /// Folder or URL (s3://, gs://, az://, file://) of the lake
    #[arg(long, value_name = "FOLDER|URL")]
    pub lake: String,
    /// Number of the shard
    #[arg(long, value_name = "NUMBER")]
    pub shard: Shard,
}

/// The shard and the hour to look at.
#[derive(Clone, Debug, Args)]
pub struct HourArgs {
    #[command(flatten)]
    pub shard: ShardArgs,
    /// Hour, such as 2026-11-20T13 [default: the newest]
    #[arg(long, value_name = "HOUR")]
    pub hour: Option<Hour>,
    /// Show only this organization
    #[arg(long, value_name = "ID")]
    pub organization: Option<String>,
}

/// Prints the stored data. Reports objects that cannot be read on standard error, and then exits with code 1.
///
/// # Errors
/// If the lake has nothing of the kind, or storage is unavailable.
pub fn run(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let (runtime, _) = wiring::runtime(0)?;
    let faults = runtime.block_on(show(&args.what))?;
    for fault in &faults {
        // If the message cannot be written, the exit code still reports the fault.
        let _ = writeln!(io::stderr(), "prorata: {}", plain(fault));
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(LEFT_OUT) })
}

/// Prints the stored data. Returns a message for each object that cannot be read.
async fn show(what: &ShownPart) -> anyhow::Result<Vec<String>> {
    let Shown { json, faults } = match what {
        ShownPart::Checkpoint(args) => {
            show::checkpoint(&open(args).await?, args.shard).await.map_err(failed)?
        }
        ShownPart::Rules(args) => show::rules(&open(args).await?, args.shard).await.map_err(failed)?,
        ShownPart::Snapshot(HourArgs { shard: args, hour, organization }) => {
            let organization = organization.as_deref().map(Into::into);
            let shown = show::snapshot(&open(args).await?, args.shard, *hour, organization.as_ref()).await;
            shown.map_err(failed)?
        }
        ShownPart::Archive(args) => return archive(args).await,
    };
    report::print(&json)?;
    Ok(faults)
}

async fn open(args: &ShardArgs) -> anyhow::Result<Store> {
    wiring::lake::store(&args.lake).await
}

async fn archive(args: &HourArgs) -> anyhow::Result<Vec<String>> {
    let ports = wiring::look_ports(open(&args.shard).await?);
    let organization = args.organization.as_deref().map(Into::into);
    let question = ArchiveQuestion { shard: args.shard.shard, hour: args.hour, organization };
    let mut failure = None;
    let mut print = |line: &str| match report::print_some(line) {
        Ok(wants_more) => wants_more,
        Err(error) => {
            failure = Some(error);
            false
        }
    };
    let faults = show::archive(&ports, &question, &mut print).await.map_err(failed)?;
    failure.map_or(Ok(faults), |failure| Err(failure.into()))
}

fn failed(error: ShowError) -> anyhow::Error {
    match error {
        ShowError::NotFound(message) => Failure::usage(message).into(),
        ShowError::Worker(error) => error.into(),
        ShowError::Json(error) => error.into(),
    }
}
