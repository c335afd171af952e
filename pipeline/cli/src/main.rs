//! The program: it reads arguments, returns an exit code, and prints one message if something is wrong.
//!
//! Read `commands` first. `wiring` builds the parts that commands run on, and `config` reads the
//! configuration. `collect` is the collector. `operations` serves the HTTP endpoints of a worker and of a
//! collector, and `report` formats the output.

mod archive_file;
mod collect;
mod commands;
mod config;
#[cfg(test)]
mod documents;
mod failure;
mod logging;
mod operations;
mod report;
mod wiring;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tikv_jemallocator::Jemalloc;

use commands::{
    backfill, check, close, dead_letters, feed, generate, look, maintain, ready, replay, schemas, work,
};

/// Jemalloc returns freed memory to the system, which a worker with a memory limit needs.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Turn Kubernetes and cloud events into the hourly cost of every pod.
///
/// Exit codes: 0 success; 1 failed for the printed reason, or check, diff or explain found errors or
/// differences; 2 wrong usage, configuration or permissions; 3 success, but some input was dead-lettered, or
/// check found only warnings; 4 storage, Kafka or the schema registry is unavailable.
#[derive(Debug, Parser)]
#[command(name = "prorata", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Convert a file of reservations, commitments, rates and pools to events
    Agreements(feed::agreements::AgreementsArgs),
    /// Build hourly tables from files of events
    Backfill(backfill::BackfillArgs),
    /// Convert the bill of a cloud provider to events, compare it with a lake, or close its month
    Bills(feed::bills::BillsArgs),
    /// Check that a lake is intact and its costs add up, or that a worker could start
    Check(check::CheckArgs),
    /// Close the months whose bills are final: what they cost never changes, and corrections follow
    Close(close::CloseArgs),
    /// Watch a Kubernetes cluster and write its events to files or Kafka
    Collect(feed::collect::CollectArgs),
    /// List dead letters, or replay them after a fix
    DeadLetters(dead_letters::DeadLettersArgs),
    /// Compare the costs of two lakes, or of one lake at two times
    Diff(look::diff::DiffArgs),
    /// Explain the cost of a pod, node, agreement or namespace in one hour, step by step
    Explain(look::explain::ExplainArgs),
    /// Write the rows of one organization as plain Parquet files, to give to that organization
    Export(look::export::ExportArgs),
    /// Write synthetic events to files or Kafka
    Generate(generate::GenerateArgs),
    /// Compact small table files, and delete replaced files, expired versions and leftovers
    Maintain(maintain::MaintainArgs),
    /// Build a price list from the price documents of cloud providers
    Prices(feed::prices::PricesArgs),
    /// Check over the network that workers are ready
    Ready(ready::ReadyArgs),
    /// Fold the messages that retired Kafka topics still hold
    Replay(replay::ReplayArgs),
    /// Write a cost report of a lake as one HTML page
    Report(look::report::ReportArgs),
    /// Print or register the Avro schemas of the events
    Schemas(schemas::SchemasArgs),
    /// Show the stored data of a shard as JSON: its checkpoint, rules, snapshots and archive
    Show(look::show::ShowArgs),
    /// Run a worker: build hourly tables from Kafka
    Work(work::WorkArgs),
}

fn main() -> ExitCode {
    // Two cryptographic libraries are linked. Without this choice, the first TLS connection would panic.
    let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = match Arguments::parse().command {
        Command::Agreements(args) => feed::agreements::run(&args),
        Command::Backfill(args) => backfill::run(&args),
        Command::Bills(args) => feed::bills::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Close(args) => close::run(&args),
        Command::Collect(args) => feed::collect::run(&args),
        Command::DeadLetters(args) => dead_letters::run(&args),
        Command::Diff(args) => look::diff::run(&args),
        Command::Explain(args) => look::explain::run(&args),
        Command::Export(args) => look::export::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Maintain(args) => maintain::run(&args),
        Command::Prices(args) => feed::prices::run(&args),
        Command::Ready(args) => ready::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Report(args) => look::report::run(&args),
        Command::Schemas(args) => schemas::run(&args),
        Command::Show(args) => look::show::run(&args),
        Command::Work(args) => work::run(&args),
    };
    outcome.unwrap_or_else(|error| failure::report(&error))
}
